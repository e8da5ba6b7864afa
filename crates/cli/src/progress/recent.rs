//! The recent rate of a run, for its estimated end.
//!
//! Why not the average since the start: after a resume, rows that the cache answers pass in no time,
//! and an average over them promises an end that the rows that are left cannot meet.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back the rate looks, if there are enough steps in it.
const WINDOW: Duration = Duration::from_secs(60);
/// The steps that are looked at however old they are, because a batch may take minutes.
const STEPS_MIN: usize = 3;

/// The latest changes of a count.
#[derive(Debug, Default)]
pub(crate) struct RecentRate {
    steps: VecDeque<(Duration, u64)>,
}

impl RecentRate {
    /// Takes a reading, and returns the rate per second. The first reading is the start: what was
    /// done before it does not count.
    pub(crate) fn read(&mut self, at: Duration, done: u64) -> f64 {
        if self.steps.back().is_none_or(|(_, last)| *last != done) {
            self.steps.push_back((at, done));
        }
        while self.steps.len() > STEPS_MIN
            && self.steps.get(1).is_some_and(|(second, _)| *second + WINDOW <= at)
        {
            self.steps.pop_front();
        }
        self.steps.front().map_or(0.0, |(from, first)| {
            done.saturating_sub(*first) as f64 / at.saturating_sub(*from).as_secs_f64().max(0.001)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_done_before_does_not_count() {
        let mut rate = RecentRate::default();
        assert_eq!(rate.read(at(0), 8000), 0.0);
        assert_eq!(rate.read(at(10), 8100), 10.0);
    }

    #[test]
    fn what_came_from_the_cache_is_forgotten() {
        let mut rate = RecentRate::default();
        for (second, done) in [(0, 0), (1, 5000), (2, 9000), (60, 9100), (120, 9200)] {
            rate.read(at(second), done);
        }
        assert_eq!(rate.read(at(162), 9200), 200.0 / 160.0);
    }

    #[test]
    fn a_stall_makes_it_slower_and_never_empty() {
        let mut rate = RecentRate::default();
        rate.read(at(0), 0);
        rate.read(at(100), 1000);
        assert_eq!(rate.read(at(400), 1000), 2.5);
    }
}
