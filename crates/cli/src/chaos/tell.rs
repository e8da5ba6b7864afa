//! What a refused or accepted client is told, and what the server holds it to.
//!
//! The truth comes from the throttle, the words from the header dialects of the simulator. Two
//! things are added here. A policy is written in whole seconds, so a quota of 5 per 100 ms is told
//! as 50 per second where the dialect names a window. And a share of the hints can be garbage, of
//! the kinds that have killed real clients.

use std::time::Duration;

use tidegate_core::Wall;
use tidegate_core::time::{nanos, seconds};
use tidegate_sim::dialect;
use tidegate_sim::server::Answer;

pub use tidegate_sim::dialect::Dialect;

use super::hash;

/// Header lines of one answer.
pub(crate) type Headers = Vec<(&'static str, String)>;

const GARBAGE: [&str; 12] = [
    "",
    "-1",
    "1.5",
    "1m0s",
    "120, 60",
    "soon",
    "0x10",
    "99999999999999999999999999",
    "NaN",
    "Fri, 31 Dec 99999 23:59:59 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "\u{fffd}\u{fffd}",
];

/// The headers for `answer`, and the wait the client was asked for if it was.
pub(crate) fn tell(dialect: Dialect, answer: &Answer, wall: Wall, out: &mut Headers) -> Option<Duration> {
    let Some(truth) = answer.truth else { return tell_wait(dialect, answer, wall, out) };
    let wait = Duration::from_nanos(answer.wait);
    let window = told_window(dialect, truth.window);
    let scale = if truth.window > 0.0 { window / truth.window } else { 1.0 };
    let told = dialect::Truth {
        limit: (truth.limit * scale).round() as u64,
        window: seconds(window),
        remaining: truth.remaining as u64,
        reset: seconds(truth.reset),
        retry_after: Some(wait),
        throttled: !answer.accepted,
    };
    let from = out.len();
    dialect.emit(&told, wall, out);
    asked(dialect, wait, out.get(from..).unwrap_or_default())
}

/// A refusal without a quota: only the wait can be told.
pub(crate) fn tell_wait(
    dialect: Dialect,
    answer: &Answer,
    wall: Wall,
    out: &mut Headers,
) -> Option<Duration> {
    if answer.accepted || dialect == Dialect::None {
        return None;
    }
    let dialect = if only_waits(dialect) { dialect } else { Dialect::RetryAfter };
    let wait = Duration::from_nanos(answer.wait);
    let truth = dialect::Truth {
        limit: 0,
        window: Duration::ZERO,
        remaining: 0,
        reset: wait,
        retry_after: Some(wait),
        throttled: true,
    };
    let from = out.len();
    dialect.emit(&truth, wall, out);
    asked(dialect, wait, out.get(from..).unwrap_or_default())
}

/// Dialects that speak of the wait and not of the quota.
fn only_waits(dialect: Dialect) -> bool {
    matches!(
        dialect,
        Dialect::RetryAfter
            | Dialect::RetryAfterDate
            | Dialect::RetryAfterMs
            | Dialect::Amz
            | Dialect::SentinelHub
    )
}

/// The window in seconds in which the dialect states the limit.
fn told_window(dialect: Dialect, window: f64) -> f64 {
    match dialect {
        Dialect::Ietf | Dialect::IetfOlder | Dialect::IetfOldest | Dialect::Mapbox => window.ceil().max(1.0),
        Dialect::Kong | Dialect::Pelias => match window.ceil() as u64 {
            0..60 => 1.0,
            60..3_600 => 60.0,
            3_600..86_400 => 3_600.0,
            _ => 86_400.0,
        },
        Dialect::Esri => 60.0,
        _ => window,
    }
}

/// The shortest wait that these headers ask for.
fn asked(dialect: Dialect, wait: Duration, headers: &[(&'static str, String)]) -> Option<Duration> {
    let waits = headers.iter().filter_map(|(name, value)| {
        let millis = dialect == Dialect::SentinelHub || !name.eq_ignore_ascii_case("retry-after");
        let known = ["retry-after", "retry-after-ms", "x-amz-retry-after"];
        known.iter().any(|k| name.eq_ignore_ascii_case(k)).then(|| match value.parse::<u64>() {
            Ok(n) if millis => Duration::from_millis(n),
            Ok(n) => Duration::from_secs(n),
            Err(_) => wait,
        })
    });
    waits.min()
}

/// Puts a malformed value into the hints.
pub(crate) fn garble(draw: u64, out: &mut Headers) {
    let pick = (hash::mix(draw) % (GARBAGE.len() as u64 + 1)) as usize;
    let junk = GARBAGE.get(pick).map_or_else(|| "9".repeat(5_000), |text| (*text).to_owned());
    out.retain(|(name, _)| !name.to_ascii_lowercase().contains("retry-after"));
    out.push(("Retry-After", junk));
}

/// The end of a wait told at `now`.
pub(crate) fn until(now: u64, wait: Duration) -> u64 {
    now.saturating_add(nanos(wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::server::{Limit, Throttle};

    fn headers(limit: &Limit, dialect: Dialect, calls: usize) -> (Headers, Option<Duration>) {
        let mut throttle = Throttle::new(limit);
        let mut out = Vec::new();
        let mut told = None;
        for _ in 0..calls {
            out.clear();
            told = tell(dialect, &throttle.offer(0, 0), Wall::from_secs(1_800_000_000), &mut out);
        }
        (out, told)
    }

    #[test]
    fn a_bucket_is_told_in_whole_seconds_where_a_window_is_named() {
        let limit = Limit::Bucket { rate: 500.0, burst: 50.0 };
        let (out, told) = headers(&limit, Dialect::Ietf, 1);
        assert_eq!(out[0], ("RateLimit-Policy", "\"default\";q=500;w=1".into()));
        assert_eq!(out[1], ("RateLimit", "\"default\";r=49;t=0".into()));
        assert_eq!(told, None);
    }

    #[test]
    fn a_refusal_holds_the_client_to_what_was_written() {
        let limit = Limit::Bucket { rate: 500.0, burst: 1.0 };
        let (out, told) = headers(&limit, Dialect::RetryAfter, 2);
        assert_eq!(out, [("Retry-After", "1".into())]);
        assert_eq!(told, Some(Duration::from_secs(1)));
        let (out, told) = headers(&limit, Dialect::SentinelHub, 2);
        assert_eq!((out.len(), told), (1, Some(Duration::from_millis(2))));
        assert_eq!(headers(&limit, Dialect::Esri, 2).1, None);
        assert_eq!(headers(&limit, Dialect::None, 2), (vec![], None));
    }

    #[test]
    fn a_concurrency_limit_has_no_quota_to_tell() {
        let limit = Limit::Concurrent { limit: 1 };
        let mut throttle = Throttle::new(&limit);
        throttle.offer(0, 1_500_000_000);
        let mut out = Vec::new();
        let told = tell(Dialect::Ietf, &throttle.offer(0, 0), Wall::from_secs(0), &mut out);
        assert_eq!((out, told), (vec![("Retry-After", "2".into())], Some(Duration::from_secs(2))));
    }
}
