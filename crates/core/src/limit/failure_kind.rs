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
//! | their share stays while the pace falls, and while it rises again (`random_refusals`) | random |
//! | there are no more of them | unknown as before |
//! | few fail in a trial, many soon after it, and few again in the next trial | those of a limit |
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
/// A share of failures beyond this many times that when the last trial was over ...
const SHARE_GREW: f64 = 2.0;
/// ... and this much more may be those of a limit after all.
const SHARE_MORE: f64 = 0.05;
/// Failures are not random any more if more calls than this share fail, whatever it was before.
const SHARE_RANDOM_MAX: f64 = 0.55;
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

/// For so many calls after a trial that found no limit, a much higher share of failures than in it says that they
/// come and go with the pace.
const CALM_CALLS: u64 = 1000;

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
    /// The share of failures in the last trial that found no limit, or when they turned out to be random,
    calm_share: f64,
    /// and the call until which more of them say something about the pace.
    calm_until: u64,
    /// The trial began because there were more of them soon after the last one.
    came_back: bool,
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
        calm_share: 0.0,
        calm_until: 0,
        came_back: false,
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

    /// The share of calls that fail at random, as far as that is known.
    pub(super) fn random_share(&self) -> f64 {
        if self.kind == FailureKind::Random { self.calm_share } else { 0.0 }
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

    /// Another limiter took failures for the refusals of a limit. A short trial tells whether they still are.
    pub(super) const fn inherit(&mut self) {
        (self.kind, self.goes_on, self.came_back) = (FailureKind::Trial, true, true);
    }

    /// A call was refused in so many words: that is the server's word for its limit.
    pub(super) fn throttled(&mut self) {
        (self.kind, self.rest_until, self.calm_until) = (FailureKind::Unknown, u64::MAX, 0);
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
        let tried = if seq < NEW_CALLS { SHARE_TRIED_NEW } else { SHARE_TRIED };
        let came_back = seq < self.calm_until && self.grew() && self.share >= tried;
        let worth = match self.kind {
            FailureKind::Random => self.grew(),
            FailureKind::Unknown => self.share >= tried,
            FailureKind::Trial | FailureKind::Limit | FailureKind::Outage => false,
        };
        if worth && (came_back || seq >= self.rest_until) && !self.is_alone() {
            (self.kind, self.from, self.goes_on) = (FailureKind::Trial, next, false);
            (self.calls, self.failed, self.blocks, self.came_back) = (0, 0, 0, came_back);
            self.share_before = self.share / self.weight;
        }
        if !self.is_tried() {
            return FailureStep::Failure;
        }
        let void = self.count(seq, true);
        if self.is_alone() && secs(self.alone_since, now) >= OUTAGE_SECONDS {
            (self.kind, self.calm_until) = (FailureKind::Outage, 0);
            return FailureStep::Void;
        }
        if void {
            self.rest(next);
            return FailureStep::Void;
        }
        FailureStep::Refusal
    }

    /// The pace was kept although calls failed, and falls now: a trial begins anew.
    pub(super) const fn restart(&mut self, next: u64) {
        (self.from, self.calls, self.failed, self.blocks) = (next, 0, 0, 0);
    }

    /// The failures turned out to be random.
    pub(super) fn random(&mut self, next: u64) {
        (self.kind, self.calm_share, self.calm_until) = (FailureKind::Random, self.share, next + CALM_CALLS);
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
        let fell = share <= SHARE_FELL * self.share_before && self.failed >= LIMIT_FAILURES;
        if few && (fell || self.came_back) && self.goes_on {
            (self.kind, self.calm_until) = (FailureKind::Limit, 0);
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
        (self.calm_share, self.calm_until) = (share, seq + CALM_CALLS);
        true
    }

    /// Whether failures are much more frequent than when the last trial was over.
    fn grew(&self) -> bool {
        let most = if self.kind == FailureKind::Random { SHARE_RANDOM_MAX } else { 1.0 };
        self.share > (SHARE_GREW * self.calm_share + SHARE_MORE).min(most)
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

    /// Five fail, then none while the lane is slow. After `calm` calls more, nine fail, and then those that `then` says.
    fn failing_again(calm: u32, then: fn(u32) -> bool) -> FailureTrial {
        let again = 250 + calm;
        let failed = |i| i < 5 || (again..again + 9).contains(&i) || i >= again + 9 && then(i);
        fed((0..again + 109).map(|i| failed(i).then_some(false)))
    }

    #[test]
    fn failures_that_come_and_go_with_the_pace_are_those_of_a_limit() {
        assert_eq!(failing_again(0, |_| false).kind(), FailureKind::Limit);
        assert_ne!(failing_again(2000, |_| false).kind(), FailureKind::Limit, "that is long ago");
    }

    #[test]
    fn an_outage_soon_after_a_few_failures_is_no_limit() {
        for then in [|i| i % 5 != 0, |i| i % 2 == 0, |_| true] {
            assert_ne!(failing_again(0, then).kind(), FailureKind::Limit);
        }
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
