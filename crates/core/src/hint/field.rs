//! Header values, and [`read`], which parses all headers of a response.
//!
//! There are two passes, because dates are relative to the Date header, which may come last. The
//! first finds the relevant headers by name, the second parses their values. A response without any
//! needs no allocation.

use alloc::vec::Vec;
use core::time::Duration;

use super::ietf::{limit, policies, rate_limit};
use super::name::{HeaderFamily, HeaderName, QuotaField, QuotaScope, classify};
use super::quota::{QuotaPart, Reset, both, push, settle};
use super::span::{CoarseDuration, MILLISECOND, SECOND, duration, number, trim};
use super::{HintProfile, Hints, TimeUnit, date};
use crate::time::Wall;

/// Parses the headers of one response, received at `wall`. Names are case-insensitive, values are any
/// bytes. The `HeaderMap` of the `http` crate iterates in this form.
///
/// ```
/// use tidegate_core::{Wall, hint};
/// let headers = [("Retry-After", "1.5"), ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Limit", "60")];
/// let hints = hint::read(headers, Wall::from_secs(1_794_718_800), &hint::HintProfile::default());
/// assert_eq!(hints.retry_after.unwrap().as_millis(), 1500);
/// assert_eq!(hints.quotas[0].unwrap().remaining, Some(0));
/// ```
#[must_use]
pub fn read<'a, N, V>(
    headers: impl IntoIterator<Item = (&'a N, &'a V)>,
    wall: Wall,
    profile: &HintProfile,
) -> Hints
where
    N: AsRef<[u8]> + ?Sized + 'a,
    V: AsRef<[u8]> + ?Sized + 'a,
{
    let mut hints = Hints::default();
    let mut server: Option<Wall> = None;
    let mut found: Vec<(HeaderName, &[u8])> = Vec::new();
    for (name, value) in headers {
        match classify(name.as_ref(), profile) {
            None => {}
            // The earlier of two Dates applies, because it makes every wait longer.
            Some(HeaderName::Date) => match date::parse(value.as_ref(), wall) {
                Some(moment) => server = both(server, Some(moment), Wall::min),
                None => hints.malformed = hints.malformed.saturating_add(1),
            },
            Some(name) => found.push((name, value.as_ref())),
        }
    }
    hints.clock_offset_ms = server.map(|moment| moment.millis_since(wall));
    if found.is_empty() {
        return hints;
    }
    let clock = ServerClock { now: server.unwrap_or(wall), dated: server.is_some() };
    let mut parts = Vec::new();
    for (name, value) in found {
        let good = match name {
            HeaderName::Date => true,
            HeaderName::RetryAfter(unit) => retry_after(value, unit, clock, &mut hints.retry_after),
            HeaderName::RateLimit => rate_limit(value, &mut parts),
            HeaderName::Policy => policies(value, &mut parts),
            HeaderName::EsriUnits => push(&mut parts, HeaderFamily::Esri, QuotaScope::Minute, esri(value)),
            HeaderName::Part(family, scope, QuotaField::Limit) => limit(value, family, scope, &mut parts),
            HeaderName::Part(family, scope, field) => {
                push(&mut parts, family, scope, part(field, value, clock))
            }
        };
        hints.malformed = hints.malformed.saturating_add(u32::from(!good));
    }
    hints.retry_after = hints.retry_after.map(|wait| wait.max(profile.floor));
    if !parts.is_empty() {
        hints.quotas = settle(parts);
    }
    hints
}

/// The best estimate of the server's clock.
#[derive(Clone, Copy)]
struct ServerClock {
    /// The server's time of the response.
    now: Wall,
    /// Whether `now` is the Date header, in whole seconds, and not the local clock.
    dated: bool,
}

impl ServerClock {
    /// The wait until a time; zero if it has passed.
    fn until(self, moment: Wall, step_ms: u64) -> CoarseDuration {
        let ms = u64::try_from(moment.millis_since(self.now)).unwrap_or(0);
        CoarseDuration { ms, step_ms: step_ms.saturating_add(if self.dated { 1000 } else { 0 }) }
    }
}

/// Raises `latest` to the longest wait of the list. Returns false if a member could not be parsed.
fn retry_after(value: &[u8], unit: TimeUnit, clock: ServerClock, latest: &mut Option<Duration>) -> bool {
    let bare = match unit {
        TimeUnit::Seconds => SECOND,
        TimeUnit::Milliseconds => MILLISECOND,
    };
    let (mut good, mut any) = (true, false);
    for member in value.split(|&b| b == b',').map(trim) {
        // The comma of an HTTP date separates the weekday from the rest.
        if date::is_weekday(member) {
            continue;
        }
        match duration(member, bare).or_else(|| Some(clock.until(date::parse(member, clock.now)?, 1000))) {
            Some(span) => *latest = both(*latest, Some(Duration::from_millis(span.ms)), Duration::max),
            None => good = false,
        }
        any = true;
    }
    good && any
}

/// Parses a reset: an epoch or a delta, depending on its size, a duration, or a date.
fn reset(text: &[u8], clock: ServerClock) -> Option<Reset> {
    let span = match number(text) {
        // Less than 10^9 is a delta of up to 31 years; from there on an epoch after September 2001 in
        // seconds, then epochs after 1973 in milliseconds, microseconds and nanoseconds.
        Some(n) => match n.whole {
            0..1_000_000_000 => n.of(SECOND),
            1_000_000_000..100_000_000_000 => {
                let CoarseDuration { ms, step_ms } = n.of(SECOND);
                clock.until(epoch(ms), step_ms)
            }
            100_000_000_000..100_000_000_000_000 => clock.until(epoch(n.of(MILLISECOND).ms), 1),
            100_000_000_000_000..100_000_000_000_000_000 => clock.until(epoch(n.of(1_000).ms), 1),
            _ => clock.until(epoch(n.of(1).ms), 1),
        },
        None => duration(text, SECOND).or_else(|| Some(clock.until(date::parse(text, clock.now)?, 1000)))?,
    };
    Some(span.into())
}

fn epoch(ms: u64) -> Wall {
    Wall::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl From<CoarseDuration> for Reset {
    fn from(span: CoarseDuration) -> Reset {
        Reset { after: Duration::from_millis(span.ms), step: Duration::from_millis(span.step_ms) }
    }
}

fn part(field: QuotaField, value: &[u8], clock: ServerClock) -> Option<QuotaPart> {
    let mut part = QuotaPart::default();
    match field {
        QuotaField::Limit => part.limit = Some(count(value)?),
        QuotaField::Remaining => part.remaining = Some(least(value)?),
        QuotaField::Used => part.used = Some(count(value)?),
        QuotaField::Reset => part.reset = Some(latest(value, |text| reset(text, clock))?),
        QuotaField::ResetAfter => part.reset_after = Some(duration(trim(value), SECOND)?.into()),
        QuotaField::Window => part.window = Some(window(duration(trim(value), SECOND)?.ms)?),
    }
    Some(part)
}

pub(super) fn window(ms: u64) -> Option<Duration> {
    (ms > 0).then_some(Duration::from_millis(ms))
}

/// Parses a number of calls; a fraction is dropped.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    number(trim(text)).map(|n| n.whole)
}

/// The minimum of the list, because proxies join repeated headers. A negative number counts as 0.
fn least(value: &[u8]) -> Option<u64> {
    value.split(|&b| b == b',').map(trim).try_fold(u64::MAX, |least, text| {
        Some(least.min(match text.strip_prefix(b"-") {
            Some(below) => count(below).map(|_| 0)?,
            None => count(text)?,
        }))
    })
}

/// The latest reset of the list, unless the whole value is one reset, such as a date with a comma.
fn latest(value: &[u8], reset: impl Fn(&[u8]) -> Option<Reset>) -> Option<Reset> {
    reset(trim(value)).or_else(|| {
        value
            .split(|&b| b == b',')
            .map(trim)
            .try_fold(Reset::default(), |late, text| Some(late.max(reset(text)?)))
    })
}

/// Parses `usage=97;max=10000`.
fn esri(value: &[u8]) -> Option<QuotaPart> {
    let mut part = QuotaPart::default();
    for pair in value.split(|&b| b == b';').map(trim) {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (name, number) = (pair.get(..at)?, pair.get(at + 1..)?);
        match trim(name) {
            b"usage" => part.used = Some(count(number)?),
            b"max" => part.limit = Some(count(number)?),
            _ => {}
        }
    }
    (part.limit.is_some() && part.used.is_some()).then_some(part)
}
