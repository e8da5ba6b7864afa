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
//! its rate. So the core answers a lane that asks late as of the time that it named
//! ([`LATE_MAX`](tidegate_core::limit::LATE_MAX)): several permits in one tick, and an exact average
//! rate. Where the wait is about as long as a call's interval and the lane is shared, an exact alarm wakes it (`alarm`).
//!
//! # Order
//!
//! Calls that were sent before go first; otherwise first come, first served. See `queue`.
//!
//! # Other processes
//!
//! A lane may be shared by the processes of a machine, or of a fleet of machines. See `share`.

mod alarm;
mod clock;
mod grant;
mod key;
mod locked;
mod permit;
mod queue;
mod registry;
mod share;
mod skip;
mod snapshot;
mod states;
mod stored;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use key::LaneKey;
pub use permit::LanePermit;
pub use queue::Refused;
pub use registry::Lanes;
pub use share::{Fleet, LaneRole, LaneScope, WhenUnreachable};
pub use skip::{skip_waits, skipped};
pub use snapshot::{Counts, Due, Snapshot};
pub use states::{FILE as LANE_FILE, LaneStates};
pub use stored::{StoredLane, clear_stored, stored};

use crate::lock::lock;
use alarm::LaneAlarm;
use locked::{Asked, LockedLane};
use queue::{WaitQueue, Waiter};
use share::{MeetingPlace, ShareMode};
use states::LaneId;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tidegate_core::breaker::BreakerState;
use tidegate_core::lane::fleet::PermitWays;
use tidegate_core::lane::{self as core, LaneConfig};
use tidegate_core::limit::BelievedKind;
use tidegate_core::patience::LaneReading;
use tidegate_core::{Mono, Rng};
use tokio::sync::{Notify, oneshot};

/// How often a lane that is full without calls in flight asks the core again. It guards against a
/// lost permit.
const FULL_RECHECK: Duration = Duration::from_secs(1);
/// How long to wait if the core refuses a permit at the time that it named.
const STUCK_RECHECK: Duration = Duration::from_millis(1);
/// How long a single free slot may go unnoticed.
const ROOM_RECHECK: Duration = Duration::from_millis(10);
/// The most free slots that may go unnoticed.
const SLACK_MAX: u32 = 4;

/// A handle to one lane: the lane of the core with its wait queue and timer. Clones share them.
#[derive(Clone)]
pub struct LaneHandle(Arc<LaneInner>);

struct LaneInner {
    key: LaneKey,
    clock: Clock,
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
    /// Where the processes meet that share the lane.
    place: Option<MeetingPlace>,
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
        let now = clock.now();
        let told = states.as_ref().map(|(states, id)| states.get(id)).unwrap_or_default();
        let told = told.within(now.wall, config.wait_max);
        let mut core = core::Lane::new(config);
        core.restore(&told, now);
        // Each process its own: they all read the same file.
        let seed = u64::from(std::process::id()) ^ now.wall.millis().unsigned_abs();
        core.spread_restored(now.mono, &mut Rng::new(seed));
        let place = match (scope, &states) {
            (LaneScope::Machine(dir), Some((_, id))) => Some(MeetingPlace::socket(dir.clone(), &id.id)),
            (LaneScope::Fleet(fleet), Some((_, id))) => Some(MeetingPlace::fleet(fleet, &id.id)),
            _ => None,
        };
        let state = LockedLane {
            core,
            queue: WaitQueue::new(),
            due: None,
            in_flight: 0,
            foreign: 0,
            mode: if place.is_some() { ShareMode::Unjoined } else { ShareMode::Alone },
            processes: 0,
            unreachable: false,
            ways: PermitWays::default(),
            generation: 0,
            is_full: false,
            most: config.limit.in_flight_max,
            burst_max: None,
            refuses_open: false,
            armed: None,
            counts: Counts::default(),
            closed: false,
            slack: 0,
            believed: BelievedKind::None,
            told,
            said_cut: false,
        };
        let (rearm, drained) = Default::default();
        let crowded = AtomicBool::new(false);
        let state = Mutex::new(state);
        let config = *config;
        LaneHandle(Arc::new(LaneInner { key, clock, crowded, state, rearm, drained, states, config, place }))
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &LaneKey {
        &self.0.key
    }

    /// The longest wait that its server is obeyed for.
    #[must_use]
    pub fn wait_max(&self) -> Duration {
        self.0.config.wait_max
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
        let permit = self.acquire_as(by, None).await?;
        if self.0.place.is_some() {
            self.travel(None).await;
        }
        Ok(permit)
    }

    /// Waits for a permit for a member of the lane.
    async fn acquire_for_member(&self, member: u64) -> Result<LanePermit, Refused> {
        let permit = self.acquire_as(None, Some(member)).await?;
        self.travel(Some(member)).await;
        Ok(permit)
    }

    async fn acquire_as(&self, by: Option<Mono>, member: Option<u64>) -> Result<LanePermit, Refused> {
        let foreign = member.is_some();
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
            if state.queue.is_empty() && state.has_grant(now) {
                match state.ask(now) {
                    Asked::Go(permit) => {
                        let held = state.hold(permit, foreign);
                        state.due = None;
                        return Ok(LanePermit::new(self.clone(), held));
                    }
                    Asked::Full => state.full(now),
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
            state.queue.push(Waiter { by, tell, member });
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
            () = self.0.clock.passed(by) => Err(Refused::Late(by)),
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
                if busy.saturating_add(coming.load(Ordering::Relaxed)) < state.most.max(1) {
                    return;
                }
                state.slack = (state.most / 8).clamp(1, SLACK_MAX);
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
            unreachable: state.unreachable,
            counts: state.counts.clone(),
        }
    }

    /// Whether calls are let out, for patience. A lane whose calls wait because the server of its fleet cannot
    /// be reached is as good as one whose service fails.
    #[must_use]
    pub fn reading(&self) -> (LaneReading, Mono) {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        let mut reading = state.core.reading(now);
        if state.unreachable && !state.has_grant(now) {
            reading.breaker = BreakerState::HalfOpen;
        }
        (reading, now)
    }

    /// The server at which the lane is shared, if calls wait because it cannot be reached.
    #[must_use]
    pub fn unreachable(&self) -> Option<&str> {
        let mut state = self.lock();
        let now = self.0.clock.mono();
        let place = self.0.place.as_ref().and_then(MeetingPlace::server);
        place.filter(|_| state.unreachable && !state.has_grant(now))
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

    fn lock(&self) -> MutexGuard<'_, LockedLane> {
        lock(&self.0.state)
    }
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
    // A lane that others share meets them at a socket; one for a process alone may be on a runtime without I/O.
    let has_io = lane.upgrade().is_some_and(|lane| lane.place.is_some());
    let alarm = LaneAlarm::new(clock, has_io);
    loop {
        let due = {
            let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
            let mut state = lane.lock();
            let due = state.due.map_or(Mono::FAR, |due| due.at);
            state.armed = Some(due);
            due
        };
        tokio::select! {
            () = alarm.until(due) => {
                let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
                let mut state = lane.lock();
                let now = clock.mono();
                lane.pump(&mut state, now);
            }
            () = rearm.notified() => {}
        }
    }
}
