//! Merges partial statements into at most four quotas.
//!
//! A quota is spread over several headers: the limit in one, the remaining calls in another, the
//! window in a policy. Each header gives a [`QuotaPart`] with a [`QuotaKey`], and parts with the same
//! key are joined. The join takes the more restrictive of two statements, so their order and number
//! do not matter. Then quotas that are described in two formats (gateways often send both) are
//! merged into one.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use super::Quota;
use super::name::{HeaderFamily, QuotaScope};

/// The identity of a quota within one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QuotaKey<'a> {
    pub(super) family: HeaderFamily,
    pub(super) scope: QuotaScope,
    /// The name of the policy, if it has one. `None` and not an empty slice: comparing two empty
    /// slices makes a masked read from an invalid address, which costs 100 ns.
    pub(super) name: Option<&'a [u8]>,
}

/// The time when a quota is restored, with its resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reset {
    /// The time from the receipt of the response.
    pub(super) after: Duration,
    /// The resolution of `after`.
    pub(super) step: Duration,
}

/// The statement of one header about a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaPart {
    /// The number of calls allowed per window.
    pub(super) limit: Option<u64>,
    /// The length of the window.
    pub(super) window: Option<Duration>,
    /// The number of calls left.
    pub(super) remaining: Option<u64>,
    /// The number of calls made in this window.
    pub(super) used: Option<u64>,
    /// The time when the quota is restored; it may come from a date or an epoch.
    pub(super) reset: Option<Reset>,
    /// The same as a delta. It has precedence over `reset`, because it needs no clock.
    pub(super) reset_after: Option<Reset>,
    /// Whether the quota counts something else than requests, such as bytes.
    pub(super) other_unit: bool,
}

impl QuotaPart {
    fn join(self, other: QuotaPart) -> QuotaPart {
        QuotaPart {
            limit: both(self.limit, other.limit, u64::min),
            window: both(self.window, other.window, Duration::max),
            remaining: both(self.remaining, other.remaining, u64::min),
            used: both(self.used, other.used, u64::max),
            reset: both(self.reset, other.reset, Reset::max),
            reset_after: both(self.reset_after, other.reset_after, Reset::max),
            other_unit: self.other_unit || other.other_unit,
        }
    }

    fn quota(self, scope: QuotaScope) -> Option<Quota> {
        let left = || Some(self.limit?.saturating_sub(self.used?));
        let reset = self.reset_after.or(self.reset);
        let quota = Quota {
            limit: self.limit,
            window: self.window.or(scope.window()),
            remaining: self.remaining.or_else(left),
            reset: reset.map(|r| r.after),
            reset_step: reset.map_or(Duration::ZERO, |r| r.step),
        };
        let says = quota.limit.is_some() || quota.remaining.is_some() || quota.reset.is_some();
        (says && !self.other_unit).then_some(quota)
    }
}

/// The statements of all headers of a response.
pub(super) type QuotaParts<'a> = Vec<(QuotaKey<'a>, QuotaPart)>;

/// Adds the statement of a header that could be parsed. Returns whether it could.
pub(super) fn push(
    parts: &mut QuotaParts<'_>,
    family: HeaderFamily,
    scope: QuotaScope,
    part: Option<QuotaPart>,
) -> bool {
    parts.extend(part.map(|part| (QuotaKey { family, scope, name: None }, part)));
    part.is_some()
}

/// Combines two values by `pick`; if only one exists, returns it.
pub(super) fn both<T>(a: Option<T>, b: Option<T>, pick: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(pick(a, b)),
        (a, b) => a.or(b),
    }
}

/// The maximum number of quotas that are merged. Merging is quadratic, so the input must be bounded.
const FOLDED_MAX: usize = 32;

/// The four most restrictive quotas of the parts, the most restrictive first.
pub(super) fn settle(mut parts: QuotaParts<'_>) -> [Option<Quota>; 4] {
    parts.sort_unstable_by_key(|(key, _)| *key);
    let mut quotas: Vec<Quota> = Vec::with_capacity(parts.len().min(FOLDED_MAX));
    for same in parts.chunk_by(|(a, _), (b, _)| a == b) {
        let Some((key, first)) = same.first() else { continue };
        let whole = same.iter().skip(1).fold(*first, |joined, (_, part)| joined.join(*part));
        quotas.extend(whole.quota(key.scope));
    }
    if quotas.len() > 1 {
        quotas.sort_unstable_by(tighter);
        quotas.truncate(FOLDED_MAX);
        quotas = fold(quotas);
        quotas.sort_unstable_by(tighter);
    }
    let mut quotas = quotas.into_iter();
    core::array::from_fn(|_| quotas.next())
}

fn fold(mut quotas: Vec<Quota>) -> Vec<Quota> {
    // Short windows first, so that a reset is matched to the shortest window that can contain it.
    quotas.sort_unstable_by_key(|q| (q.limit, q.window, q.remaining, q.reset, q.reset_step));
    let mut folded: Vec<Quota> = Vec::with_capacity(quotas.len());
    for quota in quotas {
        match folded.iter_mut().find(|same| agree(same, &quota)) {
            Some(same) => {
                same.window = same.window.or(quota.window);
                same.remaining = same.remaining.or(quota.remaining);
                if same.reset.is_none_or(|reset| Some(reset) < quota.reset) {
                    (same.reset, same.reset_step) = (quota.reset, quota.reset_step);
                }
            }
            None => folded.push(quota),
        }
    }
    folded
}

/// Whether two statements can describe one quota: the same limit and no contradiction.
fn agree(a: &Quota, b: &Quota) -> bool {
    let step = a.reset_step.max(b.reset_step);
    let fits = match (a.reset.max(b.reset), a.window.or(b.window)) {
        (Some(reset), Some(window)) => reset <= window.saturating_add(step),
        _ => true,
    };
    a.limit.is_some()
        && a.limit == b.limit
        && fits
        && same(a.window, b.window, |a, b| a == b)
        && same(a.remaining, b.remaining, |a, b| a == b)
        && same(a.reset, b.reset, |a, b| a.abs_diff(b) <= step)
}

fn same<T>(a: Option<T>, b: Option<T>, equal: impl Fn(T, T) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => equal(a, b),
        _ => true,
    }
}

/// Orders by the fewest calls left, then by the lowest rate.
fn tighter(a: &Quota, b: &Quota) -> Ordering {
    let left = |q: &Quota| q.remaining.unwrap_or(u64::MAX);
    let rate = |q: &Quota| match (q.limit, q.window) {
        (Some(limit), Some(window)) => limit as f64 / window.as_secs_f64(),
        _ => f64::INFINITY,
    };
    left(a)
        .cmp(&left(b))
        .then_with(|| rate(a).total_cmp(&rate(b)))
        .then_with(|| b.reset.cmp(&a.reset))
        .then_with(|| (a.limit, a.window, a.reset_step).cmp(&(b.limit, b.window, b.reset_step)))
        .then_with(|| a.remaining.cmp(&b.remaining))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn key(family: HeaderFamily) -> QuotaKey<'static> {
        QuotaKey { family, scope: QuotaScope::Whole, name: None }
    }

    #[test]
    fn two_dialects_of_one_quota_fold() {
        let counter = QuotaPart { limit: Some(20), remaining: Some(19), ..QuotaPart::default() };
        let reset = |s| Some(Reset { after: Duration::from_secs(s), step: Duration::from_secs(1) });
        let minute = QuotaKey { scope: QuotaScope::Minute, ..key(HeaderFamily::XRateLimit) };
        let quotas = settle(vec![
            (minute, counter),
            (key(HeaderFamily::RateLimit), QuotaPart { reset: reset(47), ..counter }),
        ]);
        let whole = Quota {
            limit: Some(20),
            window: Some(Duration::from_secs(60)),
            remaining: Some(19),
            reset: Some(Duration::from_secs(47)),
            reset_step: Duration::from_secs(1),
        };
        assert_eq!(quotas, [Some(whole), None, None, None]);
    }

    #[test]
    fn four_of_many_the_tightest_first() {
        let parts = [(&b"a"[..], 9), (b"b", 3), (b"c", 7), (b"d", 1), (b"e", 5)].map(|(name, left)| {
            let part = QuotaPart { limit: Some(left * 10), remaining: Some(left), ..QuotaPart::default() };
            (QuotaKey { name: Some(name), ..key(HeaderFamily::Ietf) }, part)
        });
        let left = settle(parts.to_vec()).map(|q| q.and_then(|q| q.remaining));
        assert_eq!(left, [Some(1), Some(3), Some(5), Some(7)]);
    }
}
