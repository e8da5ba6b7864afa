//! The rate-limit headers of an answer: from the exact state of a throttle to the text of a dialect.
//!
//! A world and the misbehaving HTTP server both write their headers here, so that a client meets the
//! same text in both. Two things are settled here. A policy is written in whole seconds, so a
//! quota of 5 per 100 ms is told as 50 per second where the dialect names a window. And a
//! concurrency limit, or a server that is down, has no quota to tell: only a wait, in dialects
//! that have a word for it.

use core::time::Duration;

use tidegate_core::Wall;
use tidegate_core::time::seconds;

use super::ThrottleAnswer;
use crate::dialect::{AdvertisedQuota, Dialect};

/// Header lines of one answer.
pub type Headers = Vec<(&'static str, String)>;

/// Appends the headers of an answer sent at `wall`. A refusal asks for `wait`, if the dialect has
/// a word for it.
pub fn write_quota(
    dialect: Dialect,
    answer: &ThrottleAnswer,
    wait: Option<Duration>,
    wall: Wall,
    out: &mut Headers,
) {
    let Some(quota) = answer.quota else {
        if let Some(wait) = wait.filter(|_| !answer.accepted) {
            write_wait(dialect, wait, wall, out);
        }
        return;
    };
    let window = window_in_dialect(dialect, quota.window);
    let scale = if quota.window > 0.0 { window / quota.window } else { 1.0 };
    let told = AdvertisedQuota {
        limit: (quota.limit * scale).round() as u64,
        window: seconds(window),
        remaining: quota.remaining as u64,
        reset: seconds(quota.reset),
        retry_after: wait,
        throttled: !answer.accepted,
    };
    dialect.emit(&told, wall, out);
}

/// A refusal without a quota: only the wait can be told.
pub fn write_wait(dialect: Dialect, wait: Duration, wall: Wall, out: &mut Headers) {
    let dialect = if dialect.asks_in_seconds() { Dialect::RetryAfter } else { dialect };
    if dialect.tells_quota() {
        return;
    }
    let quota = AdvertisedQuota {
        limit: 0,
        window: Duration::ZERO,
        remaining: 0,
        reset: wait,
        retry_after: Some(wait),
        throttled: true,
    };
    dialect.emit(&quota, wall, out);
}

/// The window in seconds in which the dialect states the limit.
fn window_in_dialect(dialect: Dialect, window: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{ServerLimit, Throttle};

    const WALL: Wall = Wall::from_secs(1_800_000_000);

    /// The headers of the last of so many calls at one instant.
    fn told(limit: &ServerLimit, dialect: Dialect, calls: usize) -> Headers {
        let mut throttle = Throttle::new(limit);
        let mut out = Vec::new();
        for _ in 0..calls {
            out.clear();
            let answer = throttle.offer(0, 1_500_000_000);
            write_quota(dialect, &answer, Some(Duration::from_nanos(answer.wait)), WALL, &mut out);
        }
        out
    }

    #[test]
    fn a_bucket_is_told_in_whole_seconds_where_a_window_is_named() {
        let out = told(&ServerLimit::TokenBucket { rate: 500.0, burst: 50.0 }, Dialect::Ietf, 1);
        assert_eq!(out[0], ("RateLimit-Policy", "\"default\";q=500;w=1".into()));
        assert_eq!(out[1..], [("RateLimit", "\"default\";r=49;t=0".into())]);
    }

    #[test]
    fn a_limit_without_a_quota_tells_only_a_wait() {
        let limit = ServerLimit::Concurrency { limit: 1 };
        for dialect in Dialect::ALL {
            assert_eq!(told(&limit, dialect, 1), [], "{dialect}: an accepted call");
        }
        assert_eq!(told(&limit, Dialect::Ietf, 2), [("Retry-After", "2".into())]);
        assert_eq!(told(&limit, Dialect::Amz, 2), [("x-amz-retry-after", "1500".into())]);
        assert_eq!(told(&limit, Dialect::None, 2), []);
        assert_eq!(told(&limit, Dialect::Mapbox, 2), [], "it has no word for a wait");
    }
}
