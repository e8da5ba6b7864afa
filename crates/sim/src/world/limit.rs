//! The limit of a server in a scenario file.

use serde::Deserialize;

use crate::server::{LeakyBucketSpec, ServerLimit, StickTableSpec};

/// A limit. Times are in seconds, rates in calls per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerLimitSpec {
    /// A token bucket.
    #[serde(rename = "bucket")]
    TokenBucket {
        /// Tokens per second.
        rate: f64,
        /// Size of the bucket, in tokens.
        burst: f64,
    },
    /// A fixed window.
    #[serde(rename = "fixed")]
    FixedWindow {
        /// Calls per window.
        limit: u64,
        /// Length of a window, in seconds.
        window: f64,
        /// The time at which the first window begins, in seconds from the start.
        #[serde(default)]
        phase: f64,
    },
    /// A sliding window with a log of the accepted calls.
    #[serde(rename = "sliding")]
    SlidingWindow {
        /// Calls per window.
        limit: u64,
        /// Length of the window, in seconds.
        window: f64,
    },
    /// A sliding window approximated by two counters.
    #[serde(rename = "counter")]
    SlidingCounter {
        /// Calls per window.
        limit: u64,
        /// Length of a window, in seconds.
        window: f64,
        /// The time at which the first window begins, in seconds from the start.
        #[serde(default)]
        phase: f64,
    },
    /// A limit on calls in flight.
    #[serde(rename = "concurrent")]
    Concurrency {
        /// Calls in flight.
        limit: usize,
    },
    /// A leaky bucket in milliseconds, as nginx's `limit_req`.
    #[serde(rename = "leaky")]
    LeakyBucket {
        /// Calls per second.
        rate: f64,
        /// Calls above the rate that are taken; none by default.
        #[serde(default)]
        burst: u64,
        /// Calls above the rate that are served at once; later ones are held until their turn. Left
        /// out, none is held (`nodelay`).
        delay: Option<u64>,
    },
    /// A request rate that counts refused calls too, as HAProxy's stick table.
    StickTable {
        /// The rate above which calls are refused, in calls per window.
        limit: u64,
        /// Length of the window, in seconds.
        window: f64,
    },
    /// No limit, as one of several steps.
    Open,
    /// No call is taken, as one of several steps.
    Closed,
    /// All of these limits at once.
    All(Vec<ServerLimitSpec>),
    /// One limit after the other.
    Steps(Vec<LimitStepSpec>),
}

/// A limit from some time on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct LimitStepSpec {
    /// The time from which it holds, in seconds from the start.
    pub from: f64,
    /// The limit from then on.
    pub limit: ServerLimitSpec,
}

impl ServerLimitSpec {
    /// The limit for the simulator.
    #[must_use]
    pub fn limit(&self) -> ServerLimit {
        match *self {
            ServerLimitSpec::TokenBucket { rate, burst } => ServerLimit::TokenBucket { rate, burst },
            ServerLimitSpec::FixedWindow { limit, window, phase } => {
                ServerLimit::FixedWindow { limit, window, phase }
            }
            ServerLimitSpec::SlidingWindow { limit, window } => ServerLimit::SlidingWindow { limit, window },
            ServerLimitSpec::SlidingCounter { limit, window, phase } => {
                ServerLimit::SlidingCounter { limit, window, phase }
            }
            ServerLimitSpec::Concurrency { limit } => ServerLimit::Concurrency { limit },
            ServerLimitSpec::LeakyBucket { rate, burst, delay } => {
                ServerLimit::LeakyBucket(LeakyBucketSpec { rate, burst, delay })
            }
            ServerLimitSpec::StickTable { limit, window } => {
                ServerLimit::StickTable(StickTableSpec { limit, window })
            }
            ServerLimitSpec::Open => ServerLimit::Open,
            ServerLimitSpec::Closed => ServerLimit::Closed,
            ServerLimitSpec::All(ref limits) => {
                ServerLimit::All(limits.iter().map(ServerLimitSpec::limit).collect())
            }
            ServerLimitSpec::Steps(ref steps) => {
                ServerLimit::Steps(steps.iter().map(|s| (s.from, s.limit.limit())).collect())
            }
        }
    }

    /// The reason why it is invalid, if it is.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let span = |x: f64| (1e-9..=1e9).contains(&x);
        let ok = match *self {
            ServerLimitSpec::TokenBucket { rate, burst } => span(rate) && span(burst),
            ServerLimitSpec::FixedWindow { limit, window, phase }
            | ServerLimitSpec::SlidingCounter { limit, window, phase } => {
                limit > 0 && span(window) && phase.abs() <= 1e9
            }
            ServerLimitSpec::SlidingWindow { limit, window }
            | ServerLimitSpec::StickTable { limit, window } => limit > 0 && span(window),
            ServerLimitSpec::LeakyBucket { rate, burst, .. } => span(rate) && burst <= 1_000_000_000,
            ServerLimitSpec::Concurrency { limit } => limit > 0,
            ServerLimitSpec::Open | ServerLimitSpec::Closed => true,
            ServerLimitSpec::All(ref limits) => return limits.iter().find_map(ServerLimitSpec::flaw),
            ServerLimitSpec::Steps(ref steps) => {
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
        let spec: ServerLimitSpec = serde_saphyr::from_str(
            "{steps: [{from: 0, limit: {bucket: {rate: 25, burst: 5}}},
                      {from: 60, limit: {all: [{concurrent: {limit: 4}}, {fixed: {limit: 9, window: 1}}]}},
                      {from: 90, limit: {leaky: {rate: 100, burst: 20, delay: 0}}},
                      {from: 95, limit: {stick_table: {limit: 1000, window: 10}}},
                      {from: 97, limit: closed}, {from: 98, limit: open}]}",
        )
        .unwrap();
        assert_eq!(spec.flaw(), None);
        let fixed = ServerLimit::FixedWindow { limit: 9, window: 1.0, phase: 0.0 };
        assert_eq!(
            spec.limit(),
            ServerLimit::Steps(vec![
                (0.0, ServerLimit::TokenBucket { rate: 25.0, burst: 5.0 }),
                (60.0, ServerLimit::All(vec![ServerLimit::Concurrency { limit: 4 }, fixed])),
                (90.0, ServerLimit::LeakyBucket(LeakyBucketSpec { rate: 100.0, burst: 20, delay: Some(0) })),
                (95.0, ServerLimit::StickTable(StickTableSpec { limit: 1000, window: 10.0 })),
                (97.0, ServerLimit::Closed),
                (98.0, ServerLimit::Open),
            ])
        );
        for bad in ["{bucket: {rate: 0, burst: 1}}", "{steps: []}", "{all: [{fixed: {limit: 0, window: 1}}]}"]
        {
            assert!(serde_saphyr::from_str::<ServerLimitSpec>(bad).unwrap().flaw().is_some(), "{bad}");
        }
    }
}
