//! Rate-limit headers of responses, and the wait that they ask for.
//!
//! The values come from the throttle, the format from the header dialects of the simulator. The
//! wait is parsed back from the headers, and a share of the headers can be made malformed, in ways
//! that have broken real clients.

use std::time::Duration;

use tidegate_core::Wall;
use tidegate_core::time::nanos;
use tidegate_sim::server::{self, ThrottleAnswer};

pub use tidegate_sim::dialect::Dialect;
pub(crate) use tidegate_sim::server::headers::Headers;

use super::hash;

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

/// Writes the rate-limit headers for `answer`. Returns the wait that they ask for, if any.
pub(crate) fn write_quota_headers(
    dialect: Dialect,
    answer: &ThrottleAnswer,
    wall: Wall,
    out: &mut Headers,
) -> Option<Duration> {
    let (from, wait) = (out.len(), Duration::from_nanos(answer.wait));
    server::headers::write_quota(dialect, answer, Some(wait), wall, out);
    asked(dialect, wait, out.get(from..).unwrap_or_default())
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

/// Replaces hints by malformed values.
pub(crate) fn garble(draw: u64, out: &mut Headers) {
    let pick = (hash::mix(draw) % (GARBAGE.len() as u64 + 1)) as usize;
    let junk = GARBAGE.get(pick).map_or_else(|| "9".repeat(5_000), |text| (*text).to_owned());
    out.retain(|(name, _)| !name.to_ascii_lowercase().contains("retry-after"));
    out.push(("Retry-After", junk));
}

/// The end of a wait that was sent at `now`, in nanoseconds since the start.
pub(crate) fn until(now: u64, wait: Duration) -> u64 {
    now.saturating_add(nanos(wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::server::{ServerLimit, Throttle};

    fn headers(limit: &ServerLimit, dialect: Dialect, calls: usize) -> (Headers, Option<Duration>) {
        let mut throttle = Throttle::new(limit);
        let mut out = Vec::new();
        let mut told = None;
        for _ in 0..calls {
            out.clear();
            told =
                write_quota_headers(dialect, &throttle.offer(0, 0), Wall::from_secs(1_800_000_000), &mut out);
        }
        (out, told)
    }

    #[test]
    fn a_refusal_holds_the_client_to_what_was_written() {
        let limit = ServerLimit::TokenBucket { rate: 500.0, burst: 1.0 };
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
        let limit = ServerLimit::Concurrency { limit: 1 };
        let mut throttle = Throttle::new(&limit);
        throttle.offer(0, 1_500_000_000);
        let mut out = Vec::new();
        let told = write_quota_headers(Dialect::Ietf, &throttle.offer(0, 0), Wall::from_secs(0), &mut out);
        assert_eq!((out, told), (vec![("Retry-After", "2".into())], Some(Duration::from_secs(2))));
    }
}
