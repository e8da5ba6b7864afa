//! The event loop of a world.
//!
//! A request occupies a slot while it is active. A timeout is an event only if it happens: when a
//! call is sent, its arrival time is known, and when it arrives, the time of its answer, so it is
//! known which comes first. So every attempt ends in exactly one answer or timeout, and no event
//! can find its slot reused by another request.
//!
//! With a million active requests, nearly every access to a slot is a cache miss, which dominates
//! the cost. So a slot is one cache line, permits are stored elsewhere (requests without a lane
//! have none), and an event carries what its handler needs: of the three events of an attempt
//! without a lane, only the answer accesses the slot.

use core::mem;
use std::collections::VecDeque;

use tidegate_core::call::{Call, Next};
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::lane::{Admit, Lane, Permit};
use tidegate_core::retry::Budget;
use tidegate_core::signal::{Network, Signal};
use tidegate_core::{Mono, Rng, Verdict, VerdictKind};

use super::counters::{Curves, WorldCounts};
use super::policy::{ClientPolicy, LONG, LaneSharing, RetryGateState};
use super::server::{Server, ServerAnswer, ServerSpec, wall};
use super::workload::Workload;
use crate::distribution::{RandomDuration, exponential};
use crate::event_queue::EventQueue;
use crate::trace::TraceHash;

/// A world, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The arrivals of requests.
    pub workload: Workload,
    /// The number of clients.
    pub clients: u32,
    /// The sharing of lanes among clients.
    pub lanes: LaneSharing,
    /// The policy of the clients.
    pub policy: ClientPolicy,
    /// The one-way delay of the network.
    pub hop: RandomDuration,
    /// The server.
    pub server: ServerSpec,
    /// The end of the run, in nanoseconds from the start.
    pub end: u64,
    /// The length of a tick, in nanoseconds.
    pub tick: u64,
    /// The start and the end of the measured time, in nanoseconds from the start.
    pub measure: [u64; 2],
    /// How the clients share a lane as processes of a fleet; see [`super::fleet`].
    pub fleet: Option<super::fleet::FleetSpec>,
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct WorldRun {
    /// The counters.
    pub counts: WorldCounts,
    /// The curves, if requested.
    pub curves: Option<Curves>,
    /// The number of events handled.
    pub events: u64,
    /// The hash over all events.
    pub trace: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    /// A client's next request; `id` is the client.
    Offer,
    /// A call reaches the server.
    Arrive,
    /// The server has finished a call.
    Finish,
    /// A response reaches its client.
    Reply,
    /// A client stops waiting.
    Timeout,
    /// A request may be retried, through its lane.
    Retry,
    /// A request without a lane is retried.
    Resend,
    /// A lane may have a permit again; `id` is the lane.
    Wake,
}

/// One event; 16 bytes.
#[derive(Clone, Copy, Debug)]
struct WorldEvent {
    /// For an arrival and a resend: the deadline of the attempt, in nanoseconds. For a reply: the
    /// index of its hints.
    more: u64,
    /// The slot of the request, unless the kind says otherwise.
    id: u32,
    /// For a reply: the HTTP status.
    status: u16,
    what: EventKind,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct RequestSlot {
    call: Call,
    /// The time at which the request was offered, in nanoseconds.
    offered: u64,
    client: u32,
}

const _: () = assert!(size_of::<RequestSlot>() == 64 && size_of::<WorldEvent>() == 16);

#[derive(Debug)]
struct ClientLane {
    lane: Lane,
    gate: Option<RetryGateState>,
    /// Requests ready to be sent, oldest first.
    ready: VecDeque<u32>,
    /// The number of requests that have not started.
    backlog: u64,
    /// Time of the next wake event, in nanoseconds; `u64::MAX` if there is none.
    wake: u64,
    /// The earliest time of a call that the server allows, in nanoseconds.
    not_before: u64,
}

struct WorldState<'a> {
    world: &'a World,
    queue: EventQueue<WorldEvent>,
    rng: Rng,
    server: Server,
    /// How clients parse the server's headers.
    profile: HintProfile,
    roads: Vec<ClientLane>,
    /// The retry budget of requests without a lane.
    budget: Budget,
    slots: Vec<RequestSlot>,
    /// The permits of the slots, if there are lanes.
    permits: Vec<Option<Permit>>,
    /// Free slots.
    free: Vec<u32>,
    /// Hints of replies in flight; most replies have none.
    hints: Vec<Hints>,
    /// Free indexes in `hints`.
    hints_free: Vec<u64>,
    /// Calls in flight.
    in_flight: u32,
    /// The client that gets the next request of a schedule.
    turn: u32,
    /// The current tick and the arrivals in it.
    peak: (u64, u32),
    counts: WorldCounts,
    curves: Option<Curves>,
    trace: TraceHash,
    events: u64,
    /// The simulated time, in nanoseconds from the start.
    now: u64,
}

/// The index of a reply without hints.
const NO_HINTS: u64 = u64::MAX;

impl World {
    /// Runs to the end.
    #[must_use]
    pub fn run(&self, seed: u64, curves: bool) -> WorldRun {
        let mut state = WorldState::new(self, seed, curves);
        state.begin();
        while let Some((now, event)) = state.queue.pop() {
            if now > self.end {
                break;
            }
            state.now = now;
            state.events += 1;
            let bits = u64::from(event.id) | (event.what as u64) << 32 | u64::from(event.status) << 35;
            state.trace.note(now, bits);
            state.handle(event);
        }
        state.counts.peak = state.counts.peak.max(state.peak.1);
        WorldRun {
            counts: state.counts,
            curves: state.curves,
            events: state.events,
            trace: state.trace.hash(),
        }
    }

    fn roads(&self) -> Vec<ClientLane> {
        let count = match self.lanes {
            LaneSharing::None => 0,
            LaneSharing::Shared => 1,
            LaneSharing::Each => self.clients,
        };
        let road = || ClientLane {
            lane: Lane::new(&self.policy.lane),
            gate: self.policy.retry_gate.as_ref().map(RetryGateState::new),
            ready: VecDeque::new(),
            backlog: 0,
            wake: u64::MAX,
            not_before: 0,
        };
        (0..count).map(|_| road()).collect()
    }
}

impl<'a> WorldState<'a> {
    fn new(world: &'a World, seed: u64, curves: bool) -> WorldState<'a> {
        WorldState {
            world,
            queue: EventQueue::new(),
            rng: Rng::new(seed),
            server: Server::new(&world.server, world.tick),
            profile: world.server.headers.profile(),
            roads: world.roads(),
            budget: Budget::new(&world.policy.lane.budget),
            slots: Vec::new(),
            permits: Vec::new(),
            free: Vec::new(),
            hints: Vec::new(),
            hints_free: Vec::new(),
            in_flight: 0,
            turn: 0,
            peak: (0, 0),
            counts: WorldCounts::default(),
            curves: curves.then(Curves::default),
            trace: TraceHash::default(),
            events: 0,
            now: 0,
        }
    }

    fn mono(&self) -> Mono {
        Mono::from_nanos(self.now)
    }

    fn push(&mut self, at: u64, what: EventKind, id: u32) {
        self.queue.push(at, WorldEvent { more: 0, id, status: 0, what });
    }

    fn begin(&mut self) {
        match &self.world.workload {
            Workload::Drain { requests } => {
                let lanes = self.roads.len() as u64;
                if lanes == 0 {
                    self.slots.reserve_exact((*requests).min(1 << 20) as usize);
                    for client in 0..*requests {
                        self.offer(client as u32);
                    }
                }
                for index in 0..lanes {
                    let share = requests / lanes + u64::from(index < requests % lanes);
                    self.roads[index as usize].backlog = share;
                    self.counts.offered += share;
                    self.pump(index as u32);
                }
            }
            Workload::Poisson { .. } => {
                for client in 0..self.world.clients {
                    self.draw_next(client);
                }
            }
            Workload::Schedule(_) => self.draw_next(0),
            Workload::Closed { .. } => {
                for client in 0..self.world.clients {
                    self.push(0, EventKind::Offer, client);
                }
            }
        }
    }

    /// Schedules the next request of an open workload.
    fn draw_next(&mut self, client: u32) {
        let now = self.now as f64 / 1e9;
        let at = match &self.world.workload {
            Workload::Poisson { rate, seconds } => {
                let at = now + exponential(1.0 / rate, &mut self.rng);
                (at < *seconds).then_some(at)
            }
            Workload::Schedule(steps) => {
                // Poisson arrivals are memoryless: at a change of rate, draw again from there.
                let mut from = now;
                loop {
                    let Some((rate, end)) = Workload::rate_at(steps, from) else { break None };
                    let at = from + exponential(1.0 / rate, &mut self.rng);
                    if at < end {
                        break Some(at);
                    }
                    from = end;
                }
            }
            Workload::Drain { .. } | Workload::Closed { .. } => None,
        };
        if let Some(at) = at {
            self.push((at * 1e9) as u64, EventKind::Offer, client);
        }
    }

    fn handle(&mut self, event: WorldEvent) {
        let id = event.id;
        match event.what {
            EventKind::Offer => {
                let client = match self.world.workload {
                    Workload::Schedule(_) => {
                        self.turn = (self.turn + 1) % self.world.clients;
                        self.turn
                    }
                    _ => id,
                };
                self.draw_next(id);
                self.offer(client);
            }
            EventKind::Arrive => self.arrive(id, event.more),
            EventKind::Finish => self.server.in_flight = self.server.in_flight.saturating_sub(1),
            EventKind::Reply => self.reply(id, event.status, event.more),
            EventKind::Timeout => self.timeout(id),
            EventKind::Retry => self.ready(id),
            EventKind::Resend => self.send(id, event.more),
            EventKind::Wake => {
                // A wake event that was superseded by an earlier one does nothing.
                if let Some(road) = self.roads.get_mut(id as usize).filter(|r| r.wake == self.now) {
                    road.wake = u64::MAX;
                    self.pump(id);
                }
            }
        }
    }

    fn road_of(&self, client: u32) -> Option<u32> {
        match self.world.lanes {
            LaneSharing::None => None,
            LaneSharing::Shared => Some(0),
            LaneSharing::Each => Some(client % self.world.clients),
        }
    }

    fn offer(&mut self, client: u32) {
        self.counts.offered += 1;
        let id = self.slot(client);
        self.ready(id);
    }

    /// Allocates a slot for a request that starts now.
    fn slot(&mut self, client: u32) -> u32 {
        let now = self.mono();
        if let Some(road) = self.road_of(client).and_then(|r| self.roads.get_mut(r as usize)) {
            road.lane.start(now);
        } else {
            self.budget.earn(now);
        }
        let slot = RequestSlot { call: Call::new(), offered: self.now, client };
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                if !self.roads.is_empty() {
                    self.permits.push(None);
                }
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Sends a request through its lane, or immediately if it has none.
    fn ready(&mut self, id: u32) {
        match self.road_of(self.slots[id as usize].client) {
            Some(road) => {
                self.roads[road as usize].ready.push_back(id);
                self.pump(road);
            }
            None => {
                let deadline = self.attempt(id, self.now);
                self.send(id, deadline);
            }
        }
    }

    /// Starts an attempt at `at`, now or later. Returns the time of its timeout, in nanoseconds.
    fn attempt(&mut self, id: u32, at: u64) -> u64 {
        let at = Mono::from_nanos(at);
        self.slots[id as usize].call.send(&self.world.policy.call, at).min(at + LONG).nanos()
    }

    /// Sends the requests for which the lane has permits.
    fn pump(&mut self, index: u32) {
        let now = self.mono();
        loop {
            let road = &mut self.roads[index as usize];
            if road.ready.is_empty() && road.backlog == 0 {
                return;
            }
            match road.lane.admit(now) {
                Admit::Go(permit) => {
                    self.counts.early += u64::from(self.now < road.not_before);
                    let id = match road.ready.pop_front() {
                        Some(id) => id,
                        None => {
                            road.backlog -= 1;
                            self.slot(index)
                        }
                    };
                    self.permits[id as usize] = Some(permit);
                    let deadline = self.attempt(id, self.now);
                    self.send(id, deadline);
                }
                Admit::Full => {
                    if let Some(until) = road.lane.full_until(now) {
                        self.wake(index, until);
                    }
                    return;
                }
                Admit::Wait(until) => return self.wake(index, until),
                Admit::Shut(until, _) => {
                    self.park_waiting(index, until);
                    return self.wake(index, until);
                }
            }
        }
    }

    fn wake(&mut self, index: u32, until: Mono) {
        let road = &mut self.roads[index as usize];
        let at = until.nanos().max(self.now + 1);
        if at < road.wake {
            road.wake = at;
            self.push(at, EventKind::Wake, index);
        }
    }

    /// The lane is shut: parks the requests whose deadline is before it opens.
    fn park_waiting(&mut self, index: u32, until: Mono) {
        let mut ready = mem::take(&mut self.roads[index as usize].ready);
        ready.retain(|&id| {
            let next = self.slots[id as usize].call.shut(&self.world.policy.call, until);
            if let Next::Park(..) = next {
                self.counts.parked += 1;
                self.end(id);
                return false;
            }
            true
        });
        self.roads[index as usize].ready = ready;
    }

    fn send(&mut self, id: u32, deadline: u64) {
        let hop = self.world.hop.draw(&mut self.rng).as_nanos() as u64;
        self.in_flight += 1;
        self.counts.in_flight_max = self.counts.in_flight_max.max(self.in_flight);
        if let Some(curves) = &mut self.curves {
            curves.in_flight(self.now, self.in_flight);
        }
        let at = self.now + hop;
        self.queue.push(at, WorldEvent { more: deadline, id, status: 0, what: EventKind::Arrive });
        if at > deadline {
            self.push(deadline, EventKind::Timeout, id);
        }
    }

    fn arrive(&mut self, id: u32, deadline: u64) {
        let now = self.now;
        let ServerAnswer { status, service } = self.server.arrive(now, &mut self.rng);
        self.count_arrival(status);
        let awaited = now <= deadline;
        if service > 0 {
            let mut finish = now + service;
            if self.server.abandons() {
                finish = finish.min(if awaited { deadline } else { now });
            }
            self.server.in_flight += 1;
            self.push(finish, EventKind::Finish, id);
        }
        if !awaited {
            return;
        }
        let hop = self.world.hop.draw(&mut self.rng).as_nanos() as u64;
        let at = now + service + hop;
        if at > deadline {
            self.push(deadline, EventKind::Timeout, id);
            return;
        }
        let more = self.read_hints(at);
        self.queue.push(at, WorldEvent { more, id, status, what: EventKind::Reply });
    }

    fn count_arrival(&mut self, status: u16) {
        let now = self.now;
        self.counts.calls += 1;
        self.counts.throttled += u64::from(status == 429);
        self.counts.failed += u64::from(status >= 500);
        if let Some(curves) = &mut self.curves {
            curves.arrival(now, status);
        }
        if (self.world.measure[0]..self.world.measure[1]).contains(&now) {
            let tick = now / self.world.tick;
            if self.peak.0 != tick {
                self.counts.peak = self.counts.peak.max(self.peak.1);
                self.peak = (tick, 0);
            }
            self.peak.1 += 1;
        }
    }

    /// Parses the headers that will reach the client at `at`. Returns the index of the hints.
    fn read_hints(&mut self, at: u64) -> u64 {
        if self.server.headers.is_empty() {
            return NO_HINTS;
        }
        let headers = self.server.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let hints = hint::read(headers, wall(at), &self.profile);
        let index = self.hints_free.pop().unwrap_or(self.hints.len() as u64);
        match self.hints.get_mut(index as usize) {
            Some(place) => *place = hints,
            None => self.hints.push(hints),
        }
        index
    }

    fn reply(&mut self, id: u32, status: u16, hints_index: u64) {
        let hints = self.hints.get(hints_index as usize).copied().unwrap_or_default();
        if hints_index != NO_HINTS {
            self.hints_free.push(hints_index);
        }
        let signal = Signal::Http { status, finding: None };
        let verdict = self.world.policy.classifier.classify(&signal, &hints, self.mono());
        self.settle(id, &verdict, &hints);
    }

    fn timeout(&mut self, id: u32) {
        self.counts.timeouts += 1;
        let signal = Signal::Network(Network::Timeout);
        let verdict = self.world.policy.classifier.classify(&signal, &Hints::default(), self.mono());
        self.settle(id, &verdict, &Hints::default());
    }

    fn settle(&mut self, id: u32, verdict: &Verdict, hints: &Hints) {
        let now = self.mono();
        self.in_flight -= 1;
        if let Some(curves) = &mut self.curves {
            curves.in_flight(self.now, self.in_flight);
        }
        let road_index = self.road_of(self.slots[id as usize].client);
        let slot = &mut self.slots[id as usize];
        let mut road = road_index.and_then(|r| self.roads.get_mut(r as usize));
        let mut gate_open = true;
        let asked = match verdict.kind {
            VerdictKind::Throttled { until }
            | VerdictKind::QuotaSpent { until }
            | VerdictKind::Transient { until } => until,
            VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent => None,
        };
        let asked = asked.map_or(0, Mono::nanos);
        if let Some(road) = &mut road {
            if let Some(permit) = self.permits[id as usize].take() {
                road.lane.settle(permit, verdict, hints, now);
            }
            road.not_before = road.not_before.max(asked);
            if let Some(gate) = &mut road.gate {
                gate.note(!verdict.is_answer(), self.now);
                gate_open = gate.open(self.now);
            }
        }
        let (call, policy) = (&mut slot.call, &self.world.policy.call);
        let next = match road {
            Some(road) => road.lane.next(call, policy, verdict, now, &mut self.rng),
            None => call.next(policy, verdict, now, &mut self.rng, &mut self.budget),
        };
        match next {
            Next::Accept => {
                self.counts.done += 1;
                if (self.world.measure[0]..self.world.measure[1]).contains(&self.now) {
                    self.counts.measured_done += 1;
                }
                if let Some(curves) = &mut self.curves {
                    curves.done(self.now);
                }
                self.end(id);
            }
            Next::RetryAt(at) if gate_open => {
                let at = at.nanos();
                if road_index.is_some() {
                    self.push(at, EventKind::Retry, id);
                } else {
                    // Nothing can delay it: schedule its next attempt while the slot is in the
                    // cache.
                    self.counts.early += u64::from(at < asked);
                    let more = self.attempt(id, at);
                    self.queue.push(at, WorldEvent { more, id, status: 0, what: EventKind::Resend });
                }
            }
            Next::RetryAt(_) | Next::GiveUp(_) => {
                self.counts.dead += 1;
                self.end(id);
            }
            Next::Park(..) => {
                self.counts.parked += 1;
                self.end(id);
            }
        }
        if let Some(road) = road_index {
            self.pump(road);
        }
    }

    /// A request has ended.
    fn end(&mut self, id: u32) {
        let RequestSlot { offered, client, .. } = self.slots[id as usize];
        self.counts.last = self.counts.last.max(self.now);
        self.counts.longest = self.counts.longest.max(self.now - offered);
        self.free.push(id);
        if let Workload::Closed { think, seconds } = &self.world.workload {
            let at = self.now + think.draw(&mut self.rng).as_nanos() as u64;
            if (at as f64) < seconds * 1e9 {
                self.push(at, EventKind::Offer, client);
            }
        }
    }
}
