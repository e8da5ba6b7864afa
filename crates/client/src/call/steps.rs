//! A call whose attempts somebody else sends, step by step.
//!
//! [`run`](super::run) drives a call whose attempts are futures. A caller that cannot be one, such as
//! a blocking HTTP client or a function of another language, takes the same steps itself: admit, send,
//! settle, and again until the call has ended. The decisions are the same, and so is the patience of
//! [`patient`](super::patient).

use super::{CallOutcome, Later, Spans, given_up, note_retry, refusal, server_asked};
use crate::lane::{LaneHandle, LanePermit};
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy, Next};
use tidegate_core::hint::Hints;
use tidegate_core::patience::{After, Patience};
use tidegate_core::{Mono, Rng, Verdict};

/// A call in steps. If it is dropped, its permit is released.
pub struct CallSteps {
    lane: LaneHandle,
    policy: CallPolicy,
    /// The call before its first attempt: a wait that is longer than a call is followed by a new one.
    unsent: Call,
    call: Call,
    chance: Rng,
    patience_max: Duration,
    patience: Patience,
    permit: Option<LanePermit>,
    /// The earliest time of the next attempt.
    not_before: Option<Mono>,
    began: Mono,
}

/// How a call in steps has ended without an accepted answer.
#[derive(Debug)]
pub enum StepsEnd {
    /// It was given up, or parked for longer than it may take.
    Ended(Box<CallOutcome<()>>),
    /// The service asks for a longer wait than the patience allows.
    Later(Later),
}

/// What follows a settled attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepsNext {
    /// The answer is accepted.
    Accept,
    /// Another attempt follows: ask to be admitted.
    Retry,
}

impl CallSteps {
    /// A call through a lane. The waits that its service asks for may take `patience` in all.
    #[must_use]
    pub fn new(
        lane: LaneHandle,
        policy: CallPolicy,
        call: Call,
        chance: Rng,
        patience: Duration,
    ) -> CallSteps {
        let began = lane.clock().mono();
        CallSteps {
            lane,
            policy,
            unsent: call.clone(),
            call,
            chance,
            patience_max: patience,
            patience: Patience::new(patience),
            permit: None,
            not_before: None,
            began,
        }
    }

    /// Its lane.
    #[must_use]
    pub fn lane(&self) -> &LaneHandle {
        &self.lane
    }

    /// The number of attempts sent in the current call.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.call.attempts()
    }

    /// Waits until the next attempt may be sent. May be dropped and called again.
    ///
    /// # Errors
    /// When none may be sent any more.
    pub async fn admit(&mut self) -> Result<(), StepsEnd> {
        let clock = self.lane.clock();
        loop {
            if let Some(at) = self.not_before {
                clock.sleep_until(at).await;
                self.not_before = None;
            }
            let turn = tokio::select! {
                biased;
                turn = self.lane.acquire(self.call.deadline(&self.policy)) => turn,
                later = given_up(&self.lane, self.patience_max) => return Err(StepsEnd::Later(later)),
            };
            match turn {
                Ok(permit) => {
                    self.call.send(&self.policy, clock.mono());
                    self.permit = Some(permit);
                    return Ok(());
                }
                Err(refused) => {
                    let (verdict, next) = refusal(&self.call, &self.policy, refused, &self.lane);
                    self.follow(&verdict, next, "lane")?;
                }
            }
        }
    }

    /// The attempt came to an end.
    ///
    /// # Errors
    /// When no other follows.
    pub fn settle(&mut self, verdict: &Verdict, hints: &Hints) -> Result<StepsNext, StepsEnd> {
        let CallSteps { call, policy, chance, .. } = self;
        let decide =
            |core: &mut tidegate_core::lane::Lane, now| core.next(call, policy, verdict, now, chance);
        let next = match self.permit.take() {
            Some(permit) => permit.settle(verdict, hints, decide),
            None => self.lane.with_core(decide),
        };
        self.follow(verdict, next, if server_asked(verdict) { "server" } else { "backoff" })
    }

    /// The attempt was not made, or says nothing about the service.
    pub fn release(&mut self) {
        self.permit = None;
    }

    fn follow(&mut self, verdict: &Verdict, next: Next, asked_by: &str) -> Result<StepsNext, StepsEnd> {
        let now = match next {
            Next::Accept => return Ok(StepsNext::Accept),
            _ => self.lane.clock().mono(),
        };
        if let Next::RetryAt(at) = next {
            note_retry(&self.lane, &self.call, verdict, (at.since(now), asked_by));
            self.not_before = Some(at);
            return Ok(StepsNext::Retry);
        }
        match self.patience.after(verdict, &next, now) {
            After::Settle => {
                let (call, elapsed) = (self.call.clone(), now.since(self.began));
                let outcome = CallOutcome {
                    verdict: *verdict,
                    next,
                    value: None,
                    call,
                    elapsed,
                    spans: Spans::default(),
                };
                Err(StepsEnd::Ended(Box::new(outcome)))
            }
            After::Wait(until) => {
                self.not_before = Some(until);
                self.call = self.unsent.clone();
                Ok(StepsNext::Retry)
            }
            After::TryLater(later) => Err(StepsEnd::Later(Later::of(&self.lane, later))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{Clock, LaneKey};
    use tidegate_core::lane::LaneConfig;
    use tidegate_core::{Code, VerdictKind};

    fn steps(patience: Duration) -> CallSteps {
        let lane = LaneHandle::new(LaneKey::of_prefix("mem:", ""), &LaneConfig::default(), Clock::system());
        CallSteps::new(lane, CallPolicy::default(), Call::new(), Rng::new(7), patience)
    }

    fn failed(status: u16, until: Option<Mono>) -> Verdict {
        let code = Code::SERVICE_UNAVAILABLE;
        Verdict { kind: VerdictKind::Transient { until }, code, status: Some(status) }
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_sent_five_times_and_then_has_ended() {
        let mut steps = steps(Duration::from_secs(60));
        for attempt in 1..=5 {
            steps.admit().await.unwrap();
            assert_eq!((steps.attempts(), steps.lane().snapshot().in_flight), (attempt, 1));
            match steps.settle(&failed(503, None), &Hints::default()) {
                Ok(next) => assert_eq!((next, attempt < 5), (StepsNext::Retry, true)),
                Err(StepsEnd::Ended(outcome)) => {
                    assert_eq!((attempt, outcome.word().as_str()), (5, "transient_503_exhausted"));
                }
                Err(StepsEnd::Later(later)) => panic!("{later}"),
            }
            assert_eq!(steps.lane().snapshot().in_flight, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_within_patience_is_waited_and_a_longer_one_is_told() {
        for (patience, waits) in [(200, true), (100, false)] {
            let mut steps = steps(Duration::from_secs(patience));
            steps.admit().await.unwrap();
            let began = steps.lane().clock().mono();
            let until = began + Duration::from_secs(150);
            let hints = Hints { retry_after: Some(Duration::from_secs(150)), ..Hints::default() };
            match steps.settle(&failed(503, Some(until)), &hints) {
                Ok(next) => {
                    assert_eq!((next, waits), (StepsNext::Retry, true));
                    steps.admit().await.unwrap();
                    assert!(steps.lane().clock().mono() >= until);
                    assert_eq!(steps.settle(&Verdict::DONE, &Hints::default()).unwrap(), StepsNext::Accept);
                }
                Err(StepsEnd::Later(later)) => {
                    assert_eq!((later.code, waits), (Code::SERVICE_UNAVAILABLE, false));
                }
                Err(StepsEnd::Ended(outcome)) => panic!("{}", outcome.word()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_gives_its_permit_back() {
        let mut steps = steps(Duration::from_secs(60));
        let lane = steps.lane().clone();
        steps.admit().await.unwrap();
        assert_eq!(lane.snapshot().in_flight, 1);
        drop(steps);
        assert_eq!((lane.snapshot().in_flight, lane.snapshot().counts.released), (0, 1));
    }
}
