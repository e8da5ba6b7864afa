//! A server's limit as a scenario writes it.

use serde::Deserialize;

use crate::server::Limit;

/// What a server allows. Times in seconds, rates in calls per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LimitSpec {
    /// A token bucket.
    Bucket {
        /// Tokens per second.
        rate: f64,
        /// Size of the bucket.
        burst: f64,
    },
    /// So many calls in each window.
    Fixed {
        /// Calls per window.
        limit: u64,
        /// Length of a window.
        window: f64,
        /// When windows begin.
        #[serde(default)]
        phase: f64,
    },
    /// So many calls in any window, by a log.
    Sliding {
        /// Calls per window.
        limit: u64,
        /// Length of the window.
        window: f64,
    },
    /// So many calls in any window, by two counters.
    Counter {
        /// Calls per window.
        limit: u64,
        /// Length of a window.
        window: f64,
        /// When windows begin.
        #[serde(default)]
        phase: f64,
    },
    /// So many calls at once.
    Concurrent {
        /// Calls at once.
        limit: usize,
    },
    /// All of these.
    All(Vec<LimitSpec>),
    /// One after the other.
    Steps(Vec<StepSpec>),
}

/// A limit from some time on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct StepSpec {
    /// From this second on.
    pub from: f64,
    /// The limit.
    pub limit: LimitSpec,
}

impl LimitSpec {
    /// The limit itself.
    #[must_use]
    pub fn limit(&self) -> Limit {
        match *self {
            LimitSpec::Bucket { rate, burst } => Limit::Bucket { rate, burst },
            LimitSpec::Fixed { limit, window, phase } => Limit::Fixed { limit, window, phase },
            LimitSpec::Sliding { limit, window } => Limit::Sliding { limit, window },
            LimitSpec::Counter { limit, window, phase } => Limit::Counter { limit, window, phase },
            LimitSpec::Concurrent { limit } => Limit::Concurrent { limit },
            LimitSpec::All(ref limits) => Limit::All(limits.iter().map(LimitSpec::limit).collect()),
            LimitSpec::Steps(ref steps) => {
                Limit::Steps(steps.iter().map(|s| (s.from, s.limit.limit())).collect())
            }
        }
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let span = |x: f64| (1e-9..=1e9).contains(&x);
        let ok = match *self {
            LimitSpec::Bucket { rate, burst } => span(rate) && span(burst),
            LimitSpec::Fixed { limit, window, phase } | LimitSpec::Counter { limit, window, phase } => {
                limit > 0 && span(window) && phase.abs() <= 1e9
            }
            LimitSpec::Sliding { limit, window } => limit > 0 && span(window),
            LimitSpec::Concurrent { limit } => limit > 0,
            LimitSpec::All(ref limits) => return limits.iter().find_map(LimitSpec::flaw),
            LimitSpec::Steps(ref steps) => {
                if let Some(flaw) = steps.iter().find_map(|s| s.limit.flaw()) {
                    return Some(flaw);
                }
                steps.first().is_some_and(|s| s.from == 0.0) && steps.is_sorted_by(|a, b| a.from < b.from)
            }
        };
        (!ok).then_some("a limit needs numbers above 0; its steps begin at 0 and rise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_nest() {
        let spec: LimitSpec = serde_saphyr::from_str(
            "{steps: [{from: 0, limit: {bucket: {rate: 25, burst: 5}}},
                      {from: 60, limit: {all: [{concurrent: {limit: 4}}, {fixed: {limit: 9, window: 1}}]}}]}",
        )
        .unwrap();
        assert_eq!(spec.flaw(), None);
        let fixed = Limit::Fixed { limit: 9, window: 1.0, phase: 0.0 };
        assert_eq!(
            spec.limit(),
            Limit::Steps(vec![
                (0.0, Limit::Bucket { rate: 25.0, burst: 5.0 }),
                (60.0, Limit::All(vec![Limit::Concurrent { limit: 4 }, fixed])),
            ])
        );
        for bad in ["{bucket: {rate: 0, burst: 1}}", "{steps: []}", "{all: [{fixed: {limit: 0, window: 1}}]}"]
        {
            assert!(serde_saphyr::from_str::<LimitSpec>(bad).unwrap().flaw().is_some(), "{bad}");
        }
    }
}
