//! Predicts the calls of a run and their duration: simulates the manifest's policy and the limits
//! of each lane against a healthy server and several faulty ones.
//!
//! At most 2000 calls are simulated. Beyond that, time and calls are extrapolated linearly, as the
//! rate of a lane is constant once it has settled. Three things are not linear: an outage happens
//! once, a run ends when it loses patience, and an outcome that was seen once or twice has a bound
//! and no number.

use serde::Serialize;
use tidegate_pipeline::run::ServiceLoad;
use tidegate_sim::distribution::RandomDuration;
use tidegate_sim::world::World;
use tidegate_sim::world::counters::WorldCounts;
use tidegate_sim::world::limit::ServerLimitSpec;
use tidegate_sim::world::policy::{self, LaneSharing};
use tidegate_sim::world::server::{ServerOutage, ServerSpec, ServiceTime};
use tidegate_sim::world::workload::Workload;

const QUESTIONS_MAX: u64 = 2_000;
const SEED: u64 = 1;
/// The length of the outage in "down for a minute".
const OUTAGE_SECONDS: f64 = 60.0;

/// The predicted calls to one service in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Prediction {
    /// The name of the service.
    pub(crate) service: String,
    /// How the service behaves in this case.
    pub(crate) case: &'static str,
    /// The duration until the last record is done, in seconds.
    pub(crate) seconds: f64,
    /// The number of calls, retries included.
    pub(crate) calls: u64,
    /// The longest time that one record takes, in seconds.
    pub(crate) wait_max_seconds: f64,
    /// The number of records answered.
    pub(crate) answered: u64,
    /// The number of records given up.
    pub(crate) dead: u64,
    /// The number of records parked until later.
    pub(crate) parked: u64,
    /// The number of requests that were simulated; the numbers of larger runs are scaled.
    pub(crate) simulated: u64,
    /// A bound for `dead`, if too few were simulated for a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_fewer_than: Option<u64>,
    /// A bound for `parked`, if too few were simulated for a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parked_fewer_than: Option<u64>,
    /// What is special about the case in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
    /// The cost of the calls, in the currency of the price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

/// Simulates the calls to one service.
pub(crate) fn predict(asked: &ServiceLoad, questions: u64, terms: Terms) -> Vec<Prediction> {
    let policy = &asked.policy;
    let mut call = policy.call;
    call.history = false;
    // As in a real run: a lane that learns its rate does not wait for the reset of a quota.
    let classifier = policy.classifier.for_lane(&asked.lane);
    let policy = policy::ClientPolicy { classifier, call, lane: asked.lane, retry_gate: None };
    let service = ServiceTime { base_seconds: 0.065, spread: 0.2, ..ServiceTime::default() };
    let limit =
        asked.allowed.map(|(rate, burst)| ServerLimitSpec::TokenBucket { rate, burst: f64::from(burst) });
    let healthy = ServerSpec { service, limit, ..ServerSpec::default() };
    let sample = SimulatedPart { simulated: questions.min(QUESTIONS_MAX), questions };
    let simulate = |server: ServerSpec, end: u64| {
        World {
            workload: Workload::Drain { requests: sample.simulated },
            clients: 1,
            lanes: LaneSharing::Shared,
            policy,
            hop: RandomDuration::Constant(0.02),
            server,
            end,
            tick: 10_000_000,
            measure: [0, u64::MAX],
            fleet: None,
        }
        .run(SEED, false)
        .counts
    };
    let prediction = |case, forecast: Forecast, counts: &WorldCounts, note| Prediction {
        service: asked.service.clone(),
        case,
        seconds: forecast.seconds,
        calls: forecast.calls,
        wait_max_seconds: seconds(counts.longest),
        answered: forecast.answered,
        dead: forecast.dead,
        parked: forecast.parked,
        simulated: sample.simulated,
        dead_fewer_than: sample.fewer_than(counts.dead),
        parked_fewer_than: sample.fewer_than(counts.parked),
        note,
        cost: terms.price.map(|price| forecast.calls as f64 * price / 1000.0),
    };
    let answers = simulate(healthy.clone(), u64::MAX);
    let usual = sample.whole(&answers);
    let flaky = simulate(ServerSpec { fault_rate: 0.2, ..healthy.clone() }, u64::MAX);
    // It begins within the simulated part, however short that is.
    let from = (seconds(answers.last) / 4.0).min(1.0);
    let outage = ServerOutage { from, until: from + OUTAGE_SECONDS, recovery: None };
    let down = simulate(ServerSpec { outages: vec![outage], ..healthy.clone() }, u64::MAX);
    let longer = usual.seconds < OUTAGE_SECONDS;
    let patience = (terms.patience_seconds.clamp(0.0, 1e9) * 1e9) as u64;
    let never = simulate(ServerSpec { fault_rate: 1.0, ..healthy }, patience);
    let (lost, stops) = sample.until(&never, terms.patience_seconds);
    vec![
        prediction("answers", usual, &answers, None),
        prediction("fails 1 in 5", sample.whole(&flaky), &flaky, None),
        prediction(
            "down for a minute",
            usual.and_once(&answers, &down),
            // One outage happens once, however many records there are.
            &WorldCounts { dead: 0, parked: 0, ..down.clone() },
            longer.then_some("the outage is longer than the run would be without it"),
        ),
        prediction(
            "fails always",
            lost,
            &WorldCounts { dead: 0, parked: 0, ..never.clone() },
            stops.then_some("the run ends then, with exit code 75"),
        ),
    ]
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// What a prediction depends on besides the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The price of a thousand calls.
    pub(crate) price: Option<f64>,
    /// How long the run waits for a service that fails.
    pub(crate) patience_seconds: f64,
}

/// The simulated part of all requests.
#[derive(Clone, Copy)]
struct SimulatedPart {
    simulated: u64,
    questions: u64,
}

/// The numbers of a whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Forecast {
    seconds: f64,
    calls: u64,
    answered: u64,
    dead: u64,
    parked: u64,
}

impl SimulatedPart {
    fn factor(self) -> f64 {
        self.questions as f64 / self.simulated.max(1) as f64
    }

    /// The whole run, if it goes on as the simulated part did.
    fn whole(self, counts: &WorldCounts) -> Forecast {
        self.times(counts, self.factor())
    }

    fn times(self, counts: &WorldCounts, factor: f64) -> Forecast {
        let scale = |n: u64| (n as f64 * factor).round() as u64;
        Forecast {
            seconds: seconds(counts.last) * factor,
            calls: scale(counts.calls),
            answered: scale(counts.done),
            dead: scale(counts.dead),
            parked: scale(counts.parked),
        }
    }

    /// The run until it loses patience, and whether it does.
    fn until(self, counts: &WorldCounts, patience: f64) -> (Forecast, bool) {
        let ended = counts.done + counts.dead + counts.parked;
        let whole = self.whole(counts);
        if ended == self.simulated && whole.seconds <= patience {
            return (whole, false);
        }
        // The simulated records may all have failed before, and the others fail as fast.
        let took = seconds(counts.last).max(1e-9);
        let factor = if ended == self.simulated { (patience / took).min(self.factor()) } else { 1.0 };
        (Forecast { seconds: patience, ..self.times(counts, factor) }, true)
    }

    /// A bound on a rare outcome of the whole run, if so few were simulated that their scaled number
    /// says little: the 95 % bound of a Poisson distribution. `None` if none or enough were seen, or
    /// if all records were simulated.
    fn fewer_than(self, seen: u64) -> Option<u64> {
        const BOUNDS: [f64; 10] = [3.0, 4.75, 6.3, 7.76, 9.16, 10.52, 11.85, 13.15, 14.44, 15.71];
        let bound = usize::try_from(seen).ok().and_then(|seen| BOUNDS.get(seen))?;
        (seen > 0 && self.questions > self.simulated)
            .then(|| ((bound * self.factor()).ceil() as u64).min(self.questions))
    }
}

impl Forecast {
    /// The same run with one event, which costs what it cost in the simulation.
    fn and_once(self, without: &WorldCounts, with: &WorldCounts) -> Forecast {
        let more = |n: u64, a: u64, b: u64| n.saturating_add(b).saturating_sub(a);
        Forecast {
            seconds: (self.seconds + seconds(with.last) - seconds(without.last)).max(0.0),
            calls: more(self.calls, without.calls, with.calls),
            answered: more(self.answered, without.done, with.done),
            dead: more(self.dead, without.dead, with.dead),
            parked: more(self.parked, without.parked, with.parked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: SimulatedPart = SimulatedPart { simulated: 2000, questions: 50_000 };

    fn counts(last: u64, calls: u64, dead: u64) -> WorldCounts {
        WorldCounts { last: last * 1_000_000_000, calls, dead, done: 2000 - dead, ..WorldCounts::default() }
    }

    #[test]
    fn one_of_many_is_a_bound_and_no_number() {
        assert_eq!(MANY.fewer_than(1), Some(119));
        assert_eq!((MANY.fewer_than(0), MANY.fewer_than(10)), (None, None));
        assert_eq!(SimulatedPart { simulated: 300, questions: 300 }.fewer_than(1), None);
    }

    #[test]
    fn an_outage_happens_once() {
        let without = counts(200, 2000, 0);
        let run = MANY.whole(&without).and_once(&without, &counts(262, 2058, 3));
        assert_eq!((run.seconds, run.calls, run.dead), (5062.0, 50_058, 3));
    }

    #[test]
    fn a_run_that_loses_patience_ends() {
        let (run, stops) = MANY.until(&counts(100, 10_000, 2000), 900.0);
        assert_eq!((run.seconds, run.calls, run.dead, stops), (900.0, 90_000, 18_000, true));
        let (run, stops) = MANY.until(&WorldCounts { done: 0, ..counts(600, 300, 20) }, 900.0);
        assert_eq!((run.seconds, run.calls, run.dead, stops), (900.0, 300, 20, true));
        let (run, stops) = MANY.until(&counts(10, 2000, 2000), 900.0);
        assert_eq!((run.seconds, run.dead, stops), (250.0, 50_000, false));
    }
}
