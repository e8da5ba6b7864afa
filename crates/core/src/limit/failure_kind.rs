//! What a failure means: a limit, an outage, or neither.
//!
//! Many servers do not say 429. nginx refuses with 503 by default, a tarpit with 500 after some seconds,
//! a firewall resets the connection. Such a refusal comes and goes with our pace or with our calls at
//! once; an outage does not, and neither does a share of calls that fails whatever we do. The status
//! does not tell them apart, so it is found out by a trial: failures are taken for refusals, the lane
//! slows down as it would for 429, and what becomes of the failures decides.
//!
//! | in the trial | the failures are |
//! |---|---|
//! | calls are accepted in between, and failures become few | those of a limit |
//! | calls sent alone fail, one after the other, for seconds | an outage |
//! | most calls fail although the lane has slowed down | an outage |
//! | their share stays while the pace falls (`random_refusals`) | random |
//! | there are no more of them | unknown as before |
//!
//! A server that says 429, or tells its quota, needs no other word for it: then there is no trial. Nor is
//! there one where the failure says when to come again, because then it is a wait and no measurement.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Weight of one call in the share of failures among the last fifty calls or so.
const SHARE_WEIGHT: f64 = 0.02;
/// Share of failures below which a trial is not worth it: about eight failures in a row,
const SHARE_TRIED: f64 = 0.15;
/// and for a new lane: four, so that the breaker does not open before.
const SHARE_TRIED_NEW: f64 = 0.06;
/// Calls for which a lane is new.
const NEW_CALLS: u64 = 100;
/// The failures of a limit become rarer than this share of what they were.
const SHARE_FELL: f64 = 0.5;
/// A share of random failures beyond this many times the usual one ...
const SHARE_GREW: f64 = 2.0;
/// ... and this much more may be something else.
const SHARE_MORE: f64 = 0.05;
/// Calls of a trial from which on it may be decided.
const TRIAL_CALLS: u32 = 30;
/// So often most calls may fail before a trial ends: the first pace may be far too high.
const TRIAL_BLOCKS: u32 = 2;
/// Calls after which a trial ends undecided.
const TRIAL_CALLS_QUIET: u32 = 200;
/// A limit that is paced for refuses a lower share of the trial's calls than this.
const LIMIT_SHARE_MAX: f64 = 0.4;
/// Failures that a limit must have caused in the trial; fewer decide nothing.
const LIMIT_FAILURES: u32 = 2;
/// Failures in a row, each sent alone and after the last was known, that are no limit ...
const OUTAGE_FAILURES: u32 = 3;
/// ... and an outage after this many seconds: a limit of one call a second refuses for almost one.
const OUTAGE_SECONDS: f64 = 2.0;
/// Calls before the next trial after one that found no limit; doubles each time, this often.
const REST_CALLS: u32 = 200;
const REST_DOUBLINGS: u32 = 6;

/// What failures are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Nothing is known.
    Unknown,
    /// They are taken for refusals, to find out.
    Trial,
    /// They are the refusals of a limit.
    Limit,
    /// They have nothing to do with our pace.
    Random,
    /// The server is down.
    Outage,
}

/// What is to be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureStep {
    /// Take it for a refusal.
    Refusal,
    /// It is no refusal.
    Failure,
    /// It is no refusal, and what was learned in the trial is void.
    Void,
}

/// Counts failures and holds the trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FailureTrial {
    kind: FailureKind,
    /// Share of failures among the last fifty calls or so.
    share: f64,
    /// Weight of all calls so far in that share; 1 after some hundred.
    weight: f64,
    /// The share of failures when the trial began.
    share_before: f64,
    /// The usual share of random failures.
    random_share: f64,
    /// The first call of the trial.
    from: u64,
    /// Calls of the trial that came back, and failures among them.
    calls: u32,
    failed: u32,
    /// How often so many calls came back, most of them failed.
    blocks: u32,
    /// The last failed call.
    last_failed: u64,
    /// A call that was sent after a failed one was accepted.
    goes_on: bool,
    /// Failures in a row, each sent alone and after the last was known.
    alone_in_row: u32,
    /// When the first of them came back.
    alone_since: Mono,
    /// Trials that found no limit.
    vain: u32,
    /// No trial before this call.
    rest_until: u64,
}

impl FailureTrial {
    pub(super) const NEW: FailureTrial = FailureTrial {
        kind: FailureKind::Unknown,
        share: 0.0,
        weight: 0.0,
        share_before: 0.0,
        random_share: 0.0,
        from: 0,
        calls: 0,
        failed: 0,
        blocks: 0,
        last_failed: 0,
        goes_on: false,
        alone_in_row: 0,
        alone_since: Mono::ZERO,
        vain: 0,
        rest_until: 0,
    };

    /// What failures are taken for.
    pub(super) const fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether a failure now is the refusal of a limit: the server goes on with other calls.
    pub(super) const fn is_limit(&self) -> bool {
        self.is_tried() && self.goes_on && !self.is_alone()
    }

    /// Whether failures are taken for refusals.
    pub(super) const fn is_tried(&self) -> bool {
        matches!(self.kind, FailureKind::Limit | FailureKind::Trial)
    }

    /// Whether a trial before has found no limit, and not that failures are random.
    pub(super) const fn was_vain(&self) -> bool {
        self.vain > 0 && !matches!(self.kind, FailureKind::Random)
    }

    /// Whether calls sent alone fail, one after the other.
    pub(super) const fn is_alone(&self) -> bool {
        self.alone_in_row >= OUTAGE_FAILURES
    }

    /// Call `seq` was accepted. True if a trial ended undecided: what was learned in it is void.
    pub(super) fn accepted(&mut self, seq: u64) -> bool {
        self.share -= SHARE_WEIGHT * self.share;
        self.weight += SHARE_WEIGHT * (1.0 - self.weight);
        if self.last_failed < seq {
            self.alone_in_row = 0;
            self.goes_on |= self.is_tried();
            if self.kind == FailureKind::Outage {
                self.kind = FailureKind::Unknown;
            }
        }
        self.count(seq, false)
    }

    /// A call was refused in so many words: that is the server's word for its limit.
    pub(super) fn throttled(&mut self) {
        (self.kind, self.rest_until) = (FailureKind::Unknown, u64::MAX);
    }

    /// Call `seq` failed; `alone` if it was sent alone after the last failure was known, `next` goes next.
    pub(super) fn failed(&mut self, seq: u64, alone: bool, next: u64, now: Mono) -> FailureStep {
        self.share += SHARE_WEIGHT * (1.0 - self.share);
        self.weight += SHARE_WEIGHT * (1.0 - self.weight);
        if seq > self.last_failed && alone {
            self.alone_since = if self.alone_in_row == 0 { now } else { self.alone_since };
            self.alone_in_row += 1;
        }
        self.last_failed = self.last_failed.max(seq);
        let worth = match self.kind {
            FailureKind::Random => self.share > SHARE_GREW * self.random_share + SHARE_MORE,
            FailureKind::Unknown if seq < NEW_CALLS => self.share >= SHARE_TRIED_NEW,
            FailureKind::Unknown => self.share >= SHARE_TRIED,
            FailureKind::Trial | FailureKind::Limit | FailureKind::Outage => false,
        };
        if worth && seq >= self.rest_until && !self.is_alone() {
            (self.kind, self.from, self.goes_on) = (FailureKind::Trial, next, false);
            (self.calls, self.failed, self.blocks) = (0, 0, 0);
            self.share_before = self.share / self.weight;
        }
        if !self.is_tried() {
            return FailureStep::Failure;
        }
        let void = self.count(seq, true);
        if self.is_alone() && secs(self.alone_since, now) >= OUTAGE_SECONDS {
            self.kind = FailureKind::Outage;
            return FailureStep::Void;
        }
        if void {
            self.rest(next);
            return FailureStep::Void;
        }
        FailureStep::Refusal
    }

    /// The failures turned out to be random.
    pub(super) fn random(&mut self, next: u64) {
        (self.kind, self.random_share) = (FailureKind::Random, self.share);
        self.rest(next);
    }

    /// Counts a call of the trial and decides. True if it found no limit.
    fn count(&mut self, seq: u64, failed: bool) -> bool {
        if self.kind != FailureKind::Trial || seq < self.from {
            return false;
        }
        self.calls += 1;
        self.failed += u32::from(failed);
        if self.calls < TRIAL_CALLS {
            return false;
        }
        let share = f64::from(self.failed) / f64::from(self.calls);
        let few = share <= LIMIT_SHARE_MAX;
        if few && share <= SHARE_FELL * self.share_before && self.goes_on && self.failed >= LIMIT_FAILURES {
            self.kind = FailureKind::Limit;
            return false;
        }
        if few && self.calls < TRIAL_CALLS_QUIET {
            return false;
        }
        if !few && self.blocks + 1 < TRIAL_BLOCKS {
            (self.calls, self.failed, self.blocks) = (0, 0, self.blocks + 1);
            return false;
        }
        self.kind = FailureKind::Unknown;
        true
    }

    fn rest(&mut self, next: u64) {
        self.rest_until = next + u64::from(REST_CALLS << self.vain.min(REST_DOUBLINGS));
        self.vain = self.vain.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds calls in order, each `Some(alone)` if it failed, and gives what failures are taken for.
    fn fed(calls: impl IntoIterator<Item = Option<bool>>) -> FailureTrial {
        let mut trial = FailureTrial::NEW;
        for (seq, failed) in (1u64..).zip(calls) {
            let now = Mono::from_secs_f64(seq as f64);
            match failed {
                Some(alone) => {
                    let _ = trial.failed(seq, alone, seq + 1, now);
                }
                None => {
                    let _ = trial.accepted(seq);
                }
            }
        }
        trial
    }

    #[test]
    fn failures_that_become_few_are_those_of_a_limit() {
        let trial = fed((0..60).map(|i| (i < 5 || i % 8 == 3).then_some(false)));
        assert_eq!((trial.kind(), trial.is_limit()), (FailureKind::Limit, true));
    }

    #[test]
    fn calls_that_fail_alone_one_after_the_other_are_an_outage() {
        // Four fail together, then one after the other alone.
        let down = |i: u32| (5..20).contains(&i).then_some(i > 8);
        let trial = fed((0..20).map(down));
        assert_eq!((trial.kind(), trial.is_limit()), (FailureKind::Outage, false));
        let trial = fed((0..21).map(down));
        assert_eq!(trial.kind(), FailureKind::Unknown, "it is over with the first accepted call");
    }

    #[test]
    fn most_calls_failing_is_no_limit_and_not_tried_soon_again() {
        let trial = fed((0..80).map(|i| (i % 4 != 3).then_some(false)));
        assert_eq!((trial.kind(), trial.is_limit()), (FailureKind::Unknown, false));
        let trial = fed((0..120).map(|i| (i % 4 != 3).then_some(false)));
        assert_eq!(trial.kind(), FailureKind::Unknown);
    }

    #[test]
    fn a_single_failure_decides_nothing() {
        let trial = fed((0..200).map(|i| (i == 20).then_some(false)));
        assert_eq!((trial.kind(), trial.is_limit()), (FailureKind::Unknown, false));
    }

    #[test]
    fn a_server_that_says_429_needs_no_other_word() {
        let mut trial = FailureTrial::NEW;
        trial.throttled();
        assert_eq!(trial.failed(9, false, 10, Mono::ZERO), FailureStep::Failure);
    }
}
