//! Grants permits, and takes them back: when a call settles, when the timer fires, and when the owner of a
//! shared lane has granted some.

use super::locked::{Asked, LockedLane, promised};
use super::permit::HeldPermit;
use super::share::{HintRecord, ShareMode, ToOwner, VerdictRecord};
use super::states::{self, LaneStateRecord};
use super::{Due, GRANT_KEPT_MAX, LaneHandle, LanePermit, timer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_core::hint::Hints;
use tidegate_core::lane as core;
use tidegate_core::{Mono, Now, Verdict};
use tracing::debug;

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
        if generation == state.generation {
            if let (Some(grant), ShareMode::Member(membership)) = (grant, &state.mode) {
                let (verdict, hints) = (VerdictRecord::of(verdict, now), HintRecord::of(hints));
                membership.say(ToOwner::Settle { grant, verdict, hints });
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
        }
        let out = then(&mut state.core, now);
        self.pump(&mut state, now);
        out
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
        if let ShareMode::Member(membership) = &mut state.mode {
            membership.expire(now);
        }
        while state.queue.has_head(now) && state.has_grant() {
            match state.ask(now) {
                Asked::Go(permit) => {
                    let Some(waiter) = state.queue.pop() else { break };
                    let held = state.hold(permit, waiter.foreign);
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
        if !state.has_grant() && state.due.is_some_and(|due| due.at <= now) {
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
        let waiting = state.queue.waiting();
        let promised = promised(&state.core, now);
        let later = state.due.filter(|due| due.at > now);
        // A permit that came a little early for the process's own rate is used in a moment.
        let is_soon = promised.is_none()
            && later.is_some_and(|due| due.shut.is_none() && due.at.since(now) <= GRANT_KEPT_MAX);
        if waiting == 0 || (membership.has_permit() && !is_soon) {
            membership.release_stock();
        }
        // The next call that comes back asks again.
        if later.is_some() || (state.is_full && state.in_flight > 0) {
            return;
        }
        match promised {
            Some(due) if waiting > 0 => self.wait_for(state, due),
            Some(_) => {}
            None => {
                let room = state.most.saturating_sub(state.in_flight) as usize;
                membership.want(waiting.min(room).min(state.wanted_max));
            }
        }
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
