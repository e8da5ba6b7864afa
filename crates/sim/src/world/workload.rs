//! The workload: the arrival times of the requests of a world.

use serde::Deserialize;

use crate::distribution::RandomDuration;

/// The arrival times of requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Workload {
    /// All requests at the start.
    Drain {
        /// The number of requests of all clients.
        requests: u64,
    },
    /// Every client sends requests at random times, independent of their outcome.
    Poisson {
        /// Requests per second and client.
        rate: f64,
        /// Length of the workload, in seconds.
        seconds: f64,
    },
    /// Every client sends its next request some time after the last one ended.
    Closed {
        /// Think time between two requests, in seconds.
        think: RandomDuration,
        /// Length of the workload, in seconds.
        seconds: f64,
    },
    /// Requests arrive at a rate that changes; they go to the clients in turn.
    Schedule(Vec<RateStep>),
}

/// A step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RateStep {
    /// Requests per second, all clients together.
    pub rate: f64,
    /// Length of the step, in seconds.
    pub seconds: f64,
}

impl Workload {
    /// The reason why it is invalid, if it is.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let good = |rate: f64, seconds: f64| rate > 0.0 && rate <= 1e9 && (0.0..=1e9).contains(&seconds);
        let ok = match self {
            Workload::Drain { requests } => (1..=u64::from(u32::MAX)).contains(requests),
            Workload::Poisson { rate, seconds } => good(*rate, *seconds),
            Workload::Closed { seconds, .. } => good(1.0, *seconds),
            Workload::Schedule(steps) => !steps.is_empty() && steps.iter().all(|s| good(s.rate, s.seconds)),
        };
        (!ok).then_some("a workload needs requests, or a rate above 0 for 0 to 1e9 seconds")
    }

    /// The rate of a schedule at a time, in calls per second, and the time of its next change, in
    /// seconds.
    #[must_use]
    pub fn rate_at(steps: &[RateStep], now: f64) -> Option<(f64, f64)> {
        let mut end = 0.0;
        steps.iter().find_map(|step| {
            end += step.seconds;
            (now < end).then_some((step.rate, end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_ends() {
        let steps = [RateStep { rate: 40.0, seconds: 20.0 }, RateStep { rate: 80.0, seconds: 5.0 }];
        assert_eq!(Workload::rate_at(&steps, 0.0), Some((40.0, 20.0)));
        assert_eq!(Workload::rate_at(&steps, 20.0), Some((80.0, 25.0)));
        assert_eq!(Workload::rate_at(&steps, 25.0), None);
        assert!(Workload::Schedule(vec![]).flaw().is_some());
        assert!(Workload::Poisson { rate: f64::NAN, seconds: 1.0 }.flaw().is_some());
    }
}
