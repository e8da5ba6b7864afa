//! Grants permits, and takes them back: when a call settles, when the timer fires, and when the owner of a
//! shared lane has granted some.

use super::locked::{Asked, LockedLane, promised};
use super::permit::HeldPermit;
use super::share::{HintRecord, ShareMode, ToOwner, VerdictRecord};
use super::states::{self, LaneStateRecord};
use super::{Due, LaneHandle, LanePermit, timer};
use crate::duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidegate_core::hint::{Hints, SHARED_ANSWER_WAIT_MAX};
use tidegate_core::lane as core;
use tidegate_core::lane::fleet::MemberDemand;
use tidegate_core::{Mono, Now, Verdict};
use tracing::{debug, warn};

impl LaneHandle {
    pub(super) fn settle<T>(
        &self,
        held: HeldPermit,
        verdict: &Verdict,
        hints: &Hints,
        then: impl FnOnce(&mut core::Lane, Mono) -> T,
    ) -> T {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        let HeldPermit { core, generation, grant, foreign } = held;
        let wait_max = self.believed_max(&state, verdict);
        let cut = if hints.exceed(wait_max) { Some(hints.within(wait_max)) } else { None };
        let hints = cut.as_ref().unwrap_or(hints);
        if generation == state.generation {
            if let (Some((grant, came)), ShareMode::Member(membership)) = (grant, &state.mode) {
                let (verdict, hints) = (VerdictRecord::of(verdict, now), HintRecord::of(hints));
                let held_us = u64::try_from(now.since(came).as_micros()).unwrap_or(u64::MAX);
                membership.say(ToOwner::Settle { grant, held_us, verdict, hints });
            }
            state.core.settle(core, verdict, hints, now);
        } else if !verdict.is_answer() {
            // The lane that let it out is gone. What the server asked for is not.
            state.core.note_answer(verdict, hints, now);
            if let ShareMode::Member(membership) = &state.mode {
                let asked = state.core.state(self.0.clock.now());
                membership.say(ToOwner::Asked(Box::new(LaneStateRecord::of("", &asked))));
            }
        }
        state.is_full = false;
        state.count_returned(foreign);
        if !foreign {
            state.counts.settle(verdict, hints);
        }
        self.note_belief(&mut state, now);
        if !verdict.is_answer() {
            self.keep_state(&mut state, now);
            self.say_cut(&mut state, hints);
        }
        let out = then(&mut state.core, now);
        self.pump(&mut state, now);
        out
    }

    /// The longest wait that is believed of an answer. What comes with an answer that is no refusal must not shut
    /// a lane for long that other processes share.
    fn believed_max(&self, state: &LockedLane, verdict: &Verdict) -> Duration {
        let wait_max = self.0.config.wait_max;
        let is_shared = verdict.is_answer() && state.processes > 1;
        if is_shared { wait_max.min(SHARED_ANSWER_WAIT_MAX) } else { wait_max }
    }

    /// Says once that the server asked for a longer wait than is believed.
    fn say_cut(&self, state: &mut LockedLane, hints: &Hints) {
        let Some(asked) = hints.asked.filter(|_| !state.said_cut) else { return };
        state.said_cut = true;
        warn!(
            target: "tidegate::lane",
            host = self.0.key.host(),
            asked_seconds = asked.as_secs(),
            "the server asked to wait {} s, which is cut to {} (`retry_policy.wait_max`)",
            asked.as_secs(),
            duration::human(self.0.config.wait_max.as_secs_f64())
        );
    }

    /// Logs and counts a change of the believed kind of limit, with the reason.
    pub(super) fn note_belief(&self, state: &mut LockedLane, now: Mono) {
        let belief = state.belief(now);
        if belief.kind == state.believed {
            return;
        }
        let before = std::mem::replace(&mut state.believed, belief.kind);
        state.counts.belief_changes += 1;
        debug!(
            target: "tidegate::lane",
            host = self.0.key.host(),
            before = before.as_str(),
            kind = belief.kind.as_str(),
            rate = belief.rate,
            burst = belief.burst,
            window_seconds = belief.window.map(|window| window.as_secs_f64()),
            in_flight = belief.in_flight,
            "limit: {belief}"
        );
    }

    /// Saves what the server asked for, if it is longer than the saved state.
    pub(super) fn keep_state(&self, state: &mut LockedLane, now: Mono) {
        let Some((states, id)) = &self.0.states else { return };
        let asked = state.core.state(Now { mono: now, wall: self.0.clock.wall() });
        if asked.exceeds(&state.told, states::SLACK) {
            state.told = asked;
            states.put(id, &asked);
        }
    }

    /// Takes over what the server asked another process for.
    pub(super) fn restore(&self, asked: &core::LaneState) {
        let mut state = self.lock();
        let now = self.0.clock.now();
        state.core.restore(asked, now);
        self.keep_state(&mut state, now.mono);
        self.pump(&mut state, now.mono);
    }

    pub(super) fn release(&self, held: HeldPermit) {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        state.is_full = false;
        state.count_returned(held.foreign);
        state.counts.released += u64::from(!held.foreign);
        state.give_up(held, now);
        self.pump(&mut state, now);
    }

    /// Grants every permit that the core gives now.
    pub(super) fn pump(&self, state: &mut LockedLane, now: Mono) {
        while state.queue.has_head(now) && state.has_grant(now) {
            match state.ask(now) {
                Asked::Go(permit) => {
                    let Some(waiter) = state.queue.pop() else { break };
                    let held = state.hold(permit, waiter.member.is_some());
                    // The waiter's future may have been dropped in the meantime.
                    if let Err(Ok(unsent)) = waiter.tell.send(Ok(LanePermit::new(self.clone(), held))) {
                        let Some(held) = unsent.into_held() else { continue };
                        state.count_returned(held.foreign);
                        state.counts.sent -= u64::from(!held.foreign);
                        state.give_up(held, now);
                    }
                }
                Asked::Full => {
                    state.full(now);
                    break;
                }
                Asked::Due(due) => {
                    self.wait_for(state, due);
                    break;
                }
            }
        }
        // Without a permit of the owner nobody is asked, and what was due has passed.
        if !state.has_grant(now) && state.due.is_some_and(|due| due.at <= now) {
            state.due = None;
        }
        self.want(state, now);
        self.arm(state);
    }

    /// The next permit comes then; calls that cannot wait so long are refused.
    pub(super) fn wait_for(&self, state: &mut LockedLane, due: Due) {
        if state.due != Some(due) {
            state.due = Some(due);
            let refusal = due.refusal();
            if state.concerns(refusal, None) {
                state.queue.refuse_all(refusal);
            } else {
                state.queue.refuse(refusal);
            }
        }
    }

    /// Asks the owner for the permits that calls wait for, and gives up those that none can use soon.
    pub(super) fn want(&self, state: &mut LockedLane, now: Mono) {
        let ShareMode::Member(membership) = &mut state.mode else { return };
        let promised = promised(&state.core, now);
        let later = state.due.filter(|due| due.at > now);
        let demand = MemberDemand {
            waiting: state.queue.waiting(),
            room: state.most.saturating_sub(state.in_flight),
            burst: state.burst_max,
            is_held: promised.is_some() || later.is_some_and(|due| due.shut.is_some()),
            own_wait: later.map(|due| due.at.since(now)),
            // The next call that comes back asks again.
            is_full: state.is_full && state.in_flight > 0,
        };
        if !demand.holds_stock() {
            membership.release_stock();
        }
        membership.want(demand.wants());
        if let Some(due) = promised.filter(|_| demand.waiting > 0 && later.is_none() && !demand.is_full) {
            self.wait_for(state, due);
        }
    }

    /// Waits until a permit of a member that was let out at the same time would be there.
    pub(super) async fn travel(&self, member: Option<u64>) {
        let delay = {
            let state = self.lock();
            state.ways.delay(member, state.core.limiter().rate())
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// An answer came to a call whose permit was taken back. What the server asked for holds.
    pub(super) fn note_late(&self, verdict: &Verdict, hints: &Hints) {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        state.core.note_answer(verdict, hints, now);
        self.keep_state(&mut state, now);
        self.pump(&mut state, now);
    }

    /// Sets the timer to the next due time.
    pub(super) fn arm(&self, state: &mut LockedLane) {
        let empty = state.queue.waiting() == 0;
        self.0.crowded.store(!empty, Ordering::Relaxed);
        if state.queue.is_empty() {
            state.due = None;
        }
        if empty && (state.in_flight.saturating_add(state.slack) <= state.most || state.slack == 0) {
            self.0.drained.notify_one();
        }
        let Some(due) = state.due else { return };
        match state.armed {
            Some(armed) if armed <= due.at => {}
            Some(_) => {
                state.armed = Some(due.at);
                self.0.rearm.notify_one();
            }
            None => {
                state.armed = Some(due.at);
                tokio::spawn(timer(Arc::downgrade(&self.0), self.0.rearm.clone(), self.0.clock));
            }
        }
    }
}
