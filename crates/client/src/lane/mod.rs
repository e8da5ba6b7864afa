//! The lane of the core on tokio: permits, wait queue and timer.
//!
//! All decisions are made by the core; this module owns a mutex, a queue and one timer per lane. A
//! call without a permit joins the queue and sleeps. It wakes with its permit, never to ask again:
//! when a call settles or the timer fires, the lane asks the core for permits until there are no
//! more, and each permit wakes one waiter. Ten thousand waiting calls cost ten thousand small
//! entries and one timer.
//!
//! # Precision
//!
//! Tokio's timer has a resolution of 1 ms and fires up to 2 ms late. At 1,000 calls per second that
//! is one or two whole intervals, and a pacer that restarts its interval on waking would reach half
//! its rate. So a late wake-up asks the core as of the time for which it was set, and continues
//! slot by slot until it reaches the present: several permits in one tick, and an exact average
//! rate. Catching up is limited to [`LATE_MAX`], so that a process that was suspended for a minute
//! does not burst when it resumes.
//!
//! # Order
//!
//! Calls that were sent before go first; otherwise first come, first served. See `queue`.
//!
//! # Other processes
//!
//! A lane may be shared by the processes of a machine. See `share`.

mod clock;
mod key;
mod permit;
mod queue;
mod registry;
mod share;
mod snapshot;
mod states;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use key::LaneKey;
pub use permit::LanePermit;
pub use queue::Refused;
pub use registry::Lanes;
pub use share::{LaneRole, LaneScope};
pub use snapshot::{Counts, Due, Snapshot};
pub use states::{FILE as LANE_FILE, LaneStates};

use crate::lock::lock;
use permit::HeldPermit;
use queue::{WaitQueue, Waiter};
use share::{HintRecord, MeetingPlace, ShareMode, ToOwner, VerdictRecord};
use states::{LaneId, LaneStateRecord};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tidegate_core::breaker::BreakerState;
use tidegate_core::hint::Hints;
use tidegate_core::lane::{self as core, Admit, LaneConfig};
use tidegate_core::limit::{BelievedKind, LimitBelief};
use tidegate_core::{Code, Mono, Now, Rng, Verdict};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

/// The longest timer delay that is caught up.
pub const LATE_MAX: Duration = Duration::from_millis(5);

/// How often a lane that is full without calls in flight asks the core again. It guards against a
/// lost permit.
const FULL_RECHECK: Duration = Duration::from_secs(1);
/// How long to wait if the core refuses a permit at the time that it named.
const STUCK_RECHECK: Duration = Duration::from_millis(1);
/// How long a single free slot may go unnoticed.
const ROOM_RECHECK: Duration = Duration::from_millis(10);
/// How long a permit of the owner is kept that the process's own rate does not allow to be used yet.
const GRANT_KEPT_MAX: Duration = Duration::from_millis(50);
/// The most free slots that may go unnoticed.
const SLACK_MAX: u32 = 4;

/// A handle to one lane: the lane of the core with its wait queue and timer. Clones share them.
#[derive(Clone)]
pub struct LaneHandle(Arc<LaneInner>);

struct LaneInner {
    key: LaneKey,
    clock: Clock,
    /// The configured concurrency limit, in calls in flight.
    most: u32,
    /// Whether the wait queue holds a waiter, readable without the lock.
    crowded: AtomicBool,
    state: Mutex<LockedLane>,
    /// Wakes the timer task to read `armed` again.
    rearm: Arc<Notify>,
    /// Notifies when the wait queue has become empty.
    drained: Notify,
    /// The persistent lane states, and the id of this lane in them.
    states: Option<(LaneStates, LaneId)>,
    config: LaneConfig,
    /// Where the processes of this machine meet that share the lane.
    place: Option<MeetingPlace>,
}

/// The state that the mutex of a lane guards.
struct LockedLane {
    core: core::Lane,
    queue: WaitQueue,
    due: Option<Due>,
    /// The number of calls in flight.
    in_flight: u32,
    /// The number of calls of members in flight.
    foreign: u32,
    /// How the lane is shared.
    mode: ShareMode,
    /// How often the lane of the core was replaced.
    generation: u32,
    /// The lane of the core has just said that as many calls are out as may be.
    is_full: bool,
    /// The calls in flight that the user allows.
    most: u32,
    /// Permits that a member with a rate of its own asks for at once.
    wanted_max: usize,
    /// The deadline of the timer; `None` before it was started.
    armed: Option<Mono>,
    counts: Counts,
    closed: bool,
    /// Whether calls are refused, and do not wait, while the breaker is open.
    refuses_open: bool,
    /// The number of free slots at which the driver is notified.
    slack: u32,
    /// The kind of limit that the lane last believed in.
    believed: BelievedKind,
    /// The lane state last passed to `states`.
    told: core::LaneState,
}

/// The result of asking the core for one permit.
enum Asked {
    Go(core::Permit),
    /// A call in flight must settle first.
    Full,
    Due(Due),
}

impl LaneHandle {
    /// A lane without history.
    #[must_use]
    pub fn new(key: LaneKey, config: &LaneConfig, clock: Clock) -> LaneHandle {
        LaneHandle::keeping(key, config, clock, None, &LaneScope::Process)
    }

    /// A lane that starts with the saved state of an earlier run, and saves what its server asks
    /// for.
    fn keeping(
        key: LaneKey,
        config: &LaneConfig,
        clock: Clock,
        states: Option<&LaneStates>,
        scope: &LaneScope,
    ) -> LaneHandle {
        let states = states.map(|states| (states.clone(), states.id(&key)));
        let told = states.as_ref().map(|(states, id)| states.get(id)).unwrap_or_default();
        let mut core = core::Lane::new(config);
        let now = clock.now();
        core.restore(&told, now);
        // Each process its own: they all read the same file.
        let seed = u64::from(std::process::id()) ^ now.wall.millis().unsigned_abs();
        core.spread_restored(now.mono, &mut Rng::new(seed));
        let place = match (scope, &states) {
            (LaneScope::Machine(dir), Some((_, id))) => Some(MeetingPlace::new(dir.clone(), &id.id)),
            _ => None,
        };
        let state = LockedLane {
            core,
            queue: WaitQueue::new(),
            due: None,
            in_flight: 0,
            foreign: 0,
            mode: if place.is_some() { ShareMode::Unjoined } else { ShareMode::Alone },
            generation: 0,
            is_full: false,
            most: config.limit.in_flight_max,
            wanted_max: usize::MAX,
            refuses_open: false,
            armed: None,
            counts: Counts::default(),
            closed: false,
            slack: 0,
            believed: BelievedKind::None,
            told,
        };
        let (rearm, drained) = Default::default();
        let most = config.limit.in_flight_max;
        let crowded = AtomicBool::new(false);
        let state = Mutex::new(state);
        let config = *config;
        LaneHandle(Arc::new(LaneInner {
            key,
            clock,
            most,
            crowded,
            state,
            rearm,
            drained,
            states,
            config,
            place,
        }))
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &LaneKey {
        &self.0.key
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Waits for a permit. `by` is the deadline of a call that was sent before. A call that was not
    /// (`None`) waits however long the lane is shut, except for a new quota, because its deadline
    /// has not started.
    pub async fn acquire(&self, by: Option<Mono>) -> Result<LanePermit, Refused> {
        self.acquire_as(by, false).await
    }

    /// Waits for a permit for a member of the lane.
    async fn acquire_for_member(&self) -> Result<LanePermit, Refused> {
        self.acquire_as(None, true).await
    }

    async fn acquire_as(&self, by: Option<Mono>, foreign: bool) -> Result<LanePermit, Refused> {
        let turn = {
            let mut state = self.lock();
            let now = self.0.clock.mono();
            if state.closed {
                return Err(Refused::Closed);
            }
            if by.is_none() && !foreign {
                state.core.start(now);
                state.counts.started += 1;
            }
            if matches!(state.mode, ShareMode::Unjoined) {
                state.mode = ShareMode::Joining;
                share::start(self.clone(), None);
            }
            if state.queue.is_empty() && state.has_grant() {
                match state.ask(now) {
                    Asked::Go(permit) => {
                        let held = state.hold(permit, foreign);
                        state.due = None;
                        return Ok(LanePermit::new(self.clone(), held));
                    }
                    Asked::Full => {
                        state.is_full = true;
                        state.full(now);
                    }
                    Asked::Due(due) => state.due = Some(due),
                }
            }
            let concerns = |refusal: &Refused| match foreign {
                true => refusal.holds(by),
                false => state.concerns(*refusal, by),
            };
            if let Some(refusal) = state.due.filter(|due| due.at > now).map(Due::refusal).filter(concerns) {
                return Err(refusal);
            }
            state.counts.waited += u64::from(!foreign);
            let (tell, turn) = oneshot::channel();
            state.queue.push(Waiter { by, tell, foreign, order: 0 });
            self.want(&mut state, now);
            self.arm(&mut state);
            turn
        };
        // The lane keeps the sender until it replies; an error means that the lane was dropped.
        let dropped = || Err(Refused::Late(self.0.clock.mono()));
        let Some(by) = by else { return turn.await.unwrap_or_else(|_| dropped()) };
        tokio::select! {
            biased;
            reply = turn => reply.unwrap_or_else(|_| dropped()),
            // A lane whose permits are all out says nothing until one returns.
            () = self.0.clock.sleep_until(by) => Err(Refused::Late(by)),
        }
    }

    /// Resolves when fewer than `enough` calls wait. If there are enough, it resolves when none is
    /// left, so that a driver is not woken for each. For one driver at a time.
    pub async fn wants(&self, enough: usize) {
        loop {
            {
                let mut state = self.lock();
                if state.queue.waiting() < enough.max(1) {
                    return;
                }
                state.slack = 0;
            }
            self.0.drained.notified().await;
        }
    }

    /// Resolves when there is room for a call beside those in flight, waiting, or `coming`. For one
    /// driver at a time whose calls continue with another record when they end. A call that has
    /// just settled is not room yet, so the driver is notified of several free slots, and of a
    /// single one after a delay.
    pub async fn has_room(&self, coming: &AtomicU32) {
        loop {
            {
                let mut state = self.lock();
                let waiting = u32::try_from(state.queue.waiting()).unwrap_or(u32::MAX);
                let busy = waiting.saturating_add(state.in_flight);
                if busy.saturating_add(coming.load(Ordering::Relaxed)) < self.0.most.max(1) {
                    return;
                }
                state.slack = (self.0.most / 8).clamp(1, SLACK_MAX);
            }
            tokio::select! {
                () = self.0.drained.notified() => {}
                () = tokio::time::sleep(ROOM_RECHECK) => {}
            }
        }
    }

    /// Whether calls wait; a new one would wait behind them.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.0.crowded.load(Ordering::Relaxed)
    }

    /// Refuses calls while the breaker is open, instead of letting them wait: their records have
    /// somewhere else to go.
    pub fn refuse_while_open(&self) {
        self.lock().refuses_open = true;
    }

    /// Closes the lane: calls in flight settle as usual, all others are refused.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        // Members look for another owner.
        state.mode = ShareMode::Alone;
        state.queue.refuse(Refused::Closed);
        self.arm(&mut state);
    }

    /// A snapshot of the lane.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let now = self.0.clock.mono();
        Snapshot {
            key: self.0.key.clone(),
            now,
            rate: state.rate(),
            in_flight: state.in_flight,
            cap: state.cap(),
            gate: state.core.limiter().not_before(),
            waiting: state.queue.waiting(),
            due: state.due.filter(|due| due.at > now),
            breaker: state.core.breaker().state(now),
            breaker_changes: state.core.breaker().changes(),
            belief: state.belief(now),
            role: state.role(),
            counts: state.counts.clone(),
        }
    }

    /// The waits that the server asked for and that have not passed.
    #[must_use]
    pub fn state(&self) -> core::LaneState {
        let state = self.lock();
        state.core.state(self.0.clock.now())
    }

    /// Runs `ask` on the lane of the core, outside of settling a permit.
    pub fn with_core<T>(&self, ask: impl FnOnce(&mut core::Lane, Mono) -> T) -> T {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        ask(&mut state.core, now)
    }

    fn settle<T>(
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
        self.note_belief(&mut state);
        if !verdict.is_answer() {
            self.keep_state(&mut state, now);
        }
        let out = then(&mut state.core, now);
        self.pump(&mut state, now);
        out
    }

    /// Logs and counts a change of the believed kind of limit, with the reason.
    fn note_belief(&self, state: &mut LockedLane) {
        let belief = state.belief(self.0.clock.mono());
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
    fn keep_state(&self, state: &mut LockedLane, now: Mono) {
        let Some((states, id)) = &self.0.states else { return };
        let asked = state.core.state(Now { mono: now, wall: self.0.clock.wall() });
        if asked.exceeds(&state.told, states::SLACK) {
            state.told = asked;
            states.put(id, &asked);
        }
    }

    /// Takes over what the server asked another process for.
    fn restore(&self, asked: &core::LaneState) {
        let mut state = self.lock();
        let now = self.0.clock.now();
        state.core.restore(asked, now);
        self.keep_state(&mut state, now.mono);
        self.pump(&mut state, now.mono);
    }

    fn release(&self, held: HeldPermit) {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        state.is_full = false;
        state.count_returned(held.foreign);
        state.counts.released += u64::from(!held.foreign);
        state.give_up(held, now);
        self.pump(&mut state, now);
    }

    /// Grants every permit that the core gives now.
    fn pump(&self, state: &mut LockedLane, now: Mono) {
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
                    state.is_full = true;
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
    fn wait_for(&self, state: &mut LockedLane, due: Due) {
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
    fn want(&self, state: &mut LockedLane, now: Mono) {
        let waiting = state.queue.waiting();
        let promised = promised(&state.core, now);
        let ShareMode::Member(membership) = &mut state.mode else { return };
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
                let room = self.0.most.saturating_sub(state.in_flight) as usize;
                membership.want(waiting.min(room).min(state.wanted_max));
            }
        }
    }

    /// Sets the timer to the next due time.
    fn arm(&self, state: &mut LockedLane) {
        let empty = state.queue.waiting() == 0;
        self.0.crowded.store(!empty, Ordering::Relaxed);
        if state.queue.is_empty() {
            state.due = None;
        }
        if empty && (state.in_flight.saturating_add(state.slack) <= self.0.most || state.slack == 0) {
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

    fn lock(&self) -> MutexGuard<'_, LockedLane> {
        lock(&self.0.state)
    }
}

impl LockedLane {
    /// Asks the core for one permit, as of the time for which the timer was set.
    fn ask(&mut self, now: Mono) -> Asked {
        // Calls that a lane before let out are still out.
        if self.in_flight.saturating_add(self.foreign) >= self.most.max(1) {
            return Asked::Full;
        }
        let mut at = self.due.map_or(now, |due| due.at.max(now.saturating_sub(LATE_MAX)).min(now));
        loop {
            let due = match self.core.admit(at) {
                Admit::Go(permit) => {
                    // The next permit is asked for as of the same slot.
                    self.due = (at < now).then_some(Due { at, shut: None });
                    return Asked::Go(permit);
                }
                Admit::Full => return Asked::Full,
                Admit::Wait(at) => Due { at, shut: None },
                Admit::Shut(at, code) => Due { at, shut: Some(code) },
            };
            if due.at > now {
                return Asked::Due(due);
            }
            if due.at > at {
                at = due.at;
            } else if at < now {
                at = now;
            } else {
                // Do not spin if the core refuses a permit at the time that it named.
                return Asked::Due(Due { at: now + STUCK_RECHECK, shut: due.shut });
            }
        }
    }

    /// Whether a refusal concerns a call with the deadline `by`.
    fn concerns(&self, refusal: Refused, by: Option<Mono>) -> bool {
        refusal.holds(by) || (self.refuses_open && matches!(refusal, Refused::Shut(..)))
    }

    fn full(&mut self, now: Mono) {
        let idle = (self.in_flight + self.foreign == 0).then_some(now + FULL_RECHECK);
        self.due = idle.or_else(|| self.core.full_until(now)).map(|at| Due { at, shut: None });
    }

    /// Begins with a new lane of the core, which keeps what the server asked for.
    fn renew(&mut self, config: &LaneConfig, now: Now) {
        let (promises, quota) = (self.core.state(now), self.core.reading(now.mono).quota_until);
        self.core = core::Lane::new(config);
        self.core.restore(&promises, now);
        self.core.shut_quota(quota);
        self.generation = self.generation.wrapping_add(1);
        self.is_full = false;
        let burst = config.limit.burst.unwrap_or(1.0).max(1.0) as usize;
        self.wanted_max = if config.limit.rate_max.is_some() { burst } else { usize::MAX };
    }

    /// Whether this process may ask its own lane: it is its owner, or the owner has granted a permit.
    fn has_grant(&self) -> bool {
        match &self.mode {
            ShareMode::Alone | ShareMode::Owner(_) => true,
            ShareMode::Unjoined | ShareMode::Joining => false,
            ShareMode::Member(membership) => membership.has_permit(),
        }
    }

    /// A permit goes out.
    fn hold(&mut self, core: core::Permit, foreign: bool) -> HeldPermit {
        if foreign {
            self.foreign += 1;
        } else {
            self.in_flight += 1;
            self.counts.sent += 1;
        }
        let grant = match &mut self.mode {
            ShareMode::Member(membership) => membership.take(),
            _ => None,
        };
        HeldPermit { core, generation: self.generation, grant, foreign }
    }

    fn count_returned(&mut self, foreign: bool) {
        let count = if foreign { &mut self.foreign } else { &mut self.in_flight };
        *count = count.saturating_sub(1);
    }

    /// A permit was not used, or its call was abandoned.
    fn give_up(&mut self, held: HeldPermit, now: Mono) {
        if held.generation != self.generation {
            return;
        }
        if let (Some(grant), ShareMode::Member(membership)) = (held.grant, &self.mode) {
            membership.say(ToOwner::Release(grant));
        }
        self.core.release(held.core, now);
    }

    fn role(&self) -> LaneRole {
        match &self.mode {
            ShareMode::Alone | ShareMode::Unjoined | ShareMode::Joining => LaneRole::Alone,
            ShareMode::Owner(owner) => LaneRole::Owner { members: owner.members },
            ShareMode::Member(_) => LaneRole::Member,
        }
    }

    fn rate(&self) -> Option<f64> {
        match &self.mode {
            ShareMode::Member(membership) => membership.rate(),
            _ => self.core.limiter().rate(),
        }
    }

    fn cap(&self) -> u32 {
        match &self.mode {
            ShareMode::Member(membership) => membership.cap().min(self.core.limiter().cap()),
            _ => self.core.limiter().cap(),
        }
    }

    fn belief(&self, now: Mono) -> LimitBelief {
        match &self.mode {
            ShareMode::Member(membership) => membership.belief(now),
            _ => self.core.limiter().belief(),
        }
    }
}

/// The next time at which a lane may send by what its server asked for.
fn promised(lane: &core::Lane, now: Mono) -> Option<Due> {
    let reading = lane.reading(now);
    let due = match reading.breaker {
        _ if reading.quota_until > now => Due { at: reading.quota_until, shut: Some(Code::QUOTA_EXHAUSTED) },
        BreakerState::Open(until) if until > now => Due { at: until, shut: Some(Code::CIRCUIT_OPEN) },
        _ => Due { at: reading.hint_until, shut: None },
    };
    (due.at > now).then_some(due)
}

impl Due {
    fn refusal(self) -> Refused {
        match self.shut {
            Some(code) => Refused::Shut(self.at, code),
            None => Refused::Late(self.at),
        }
    }
}

impl Drop for LaneInner {
    fn drop(&mut self) {
        self.rearm.notify_one();
    }
}

/// The timer task of one lane. It ends with the lane.
async fn timer(lane: Weak<LaneInner>, rearm: Arc<Notify>, clock: Clock) {
    loop {
        let due = {
            let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
            let mut state = lane.lock();
            let due = state.due.map_or(Mono::FAR, |due| due.at);
            state.armed = Some(due);
            due
        };
        tokio::select! {
            () = clock.sleep_until(due) => {
                let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
                let mut state = lane.lock();
                let now = clock.mono();
                lane.pump(&mut state, now);
            }
            () = rearm.notified() => {}
        }
    }
}
