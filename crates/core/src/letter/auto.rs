//! Decides which letters are replayed unasked, when, and how many.
//!
//! A rule of the manifest names a code, a remedy and how often it may act. A letter whose replay
//! fails becomes a new letter of the next generation, and each generation waits twice as long as the
//! one before, so a rule that does not help costs less and less.

/// The longest delay between two replays of a record: a week.
const RETRY_MS_MAX: i64 = 7 * 24 * 3_600_000;

/// A limit of replays, such as 100 in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimit {
    /// The number of letters.
    pub letters: u64,
    /// The time in which they may be replayed, in milliseconds.
    pub per_ms: i64,
}

impl ReplayLimit {
    /// Reads a limit such as `100/h`; the units are s, min, h and d.
    #[must_use]
    pub fn parse(text: &str) -> Option<ReplayLimit> {
        let (number, unit) = text.split_once('/')?;
        let per_ms = match unit.trim() {
            "s" => 1000,
            "min" | "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let letters = number.trim().parse().ok().filter(|n| *n > 0)?;
        Some(ReplayLimit { letters, per_ms })
    }

    /// The start of the time that counts now.
    #[must_use]
    pub const fn since_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.per_ms)
    }

    /// How many more letters may be replayed, after this many since [`ReplayLimit::since_ms`].
    #[must_use]
    pub const fn left(&self, replayed: u64) -> u64 {
        self.letters.saturating_sub(replayed)
    }
}

/// The earliest time of a replay: `after_ms` after the failure, twice as long with each generation,
/// up to a week.
#[must_use]
pub fn retry_at_ms(failed_ms: i64, after_ms: i64, generation: u32) -> i64 {
    let factor = 1_i64.checked_shl(generation.min(62)).unwrap_or(i64::MAX);
    let delay = after_ms.max(0).saturating_mul(factor).min(RETRY_MS_MAX.max(after_ms));
    failed_ms.saturating_add(delay)
}

/// The share of replayed letters that did not fail again; `None` before the first.
#[must_use]
pub fn success(resolved: u64, failed: u64) -> Option<f64> {
    let all = resolved.saturating_add(failed);
    (all > 0).then(|| resolved as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_what_was_replayed_in_its_time() {
        let limit = ReplayLimit::parse("100/h").unwrap();
        assert_eq!(limit, ReplayLimit { letters: 100, per_ms: 3_600_000 });
        assert_eq!(limit.since_ms(4_000_000), 400_000);
        assert_eq!((limit.left(0), limit.left(99), limit.left(250)), (100, 1, 0));
        assert_eq!(ReplayLimit::parse("5 / min").map(|limit| limit.per_ms), Some(60_000));
        for bad in ["", "100", "0/h", "-1/h", "1.5/h", "10/year"] {
            assert_eq!(ReplayLimit::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_generation_waits_twice_as_long_up_to_a_week() {
        let hour = 3_600_000;
        assert_eq!(
            [0, 1, 2, 3].map(|generation| retry_at_ms(5, hour, generation) - 5),
            [hour, 2 * hour, 4 * hour, 8 * hour]
        );
        assert_eq!(retry_at_ms(0, hour, 60), RETRY_MS_MAX);
        assert_eq!(retry_at_ms(0, hour, u32::MAX), RETRY_MS_MAX);
        let month = 30 * 24 * hour;
        assert_eq!(retry_at_ms(0, month, 3), month, "a longer delay that was asked for is kept");
        assert_eq!(retry_at_ms(i64::MAX, hour, 1), i64::MAX);
    }

    #[test]
    fn success_needs_a_replay() {
        assert_eq!((success(0, 0), success(3, 1)), (None, Some(0.75)));
    }
}
