//! The run of a fleet: its workload, the network and the server.

use std::collections::VecDeque;

use tidegate_core::hint::{self, Hints};
use tidegate_core::lane::Lane;
use tidegate_core::lane::fleet::{ALIVE_EVERY, PermitStock};
use tidegate_core::signal::Signal;
use tidegate_core::{Mono, Now, Rng};

use super::FleetSpec;
use super::counts::FleetCounts;
use super::state::{AskedOwner, FleetEvent, FleetMember, FleetState, Mailbag};
use crate::distribution::exponential;
use crate::event_queue::EventQueue;
use crate::trace::TraceHash;
use crate::world::World;
use crate::world::server::{Server, ServerAnswer, wall};
use crate::world::workload::Workload;

/// The index of a reply without hints.
const NO_HINTS: u32 = u32::MAX;

/// The result of one run of a fleet.
#[derive(Clone, Debug)]
pub struct FleetRun {
    /// The counters.
    pub counts: FleetCounts,
    /// The number of events handled.
    pub events: u64,
    /// The hash over all events.
    pub trace: u64,
}

/// Runs a fleet to its end.
#[must_use]
pub fn run(world: &World, spec: &FleetSpec, seed: u64) -> FleetRun {
    let mut state = FleetState::new(world, spec, seed);
    state.begin();
    while let Some((now, event)) = state.queue.pop() {
        if now > world.end {
            break;
        }
        state.now = now;
        state.events += 1;
        state.handle(event);
    }
    FleetRun { counts: state.counts, events: state.events, trace: state.trace.hash() }
}

impl<'a> FleetState<'a> {
    fn new(world: &'a World, spec: &'a FleetSpec, seed: u64) -> FleetState<'a> {
        let process = |_| FleetMember {
            asks: AskedOwner::Nobody,
            link: 0,
            lane: Lane::new(&world.policy.lane),
            stock: PermitStock::default(),
            ready: VecDeque::new(),
            backlog: 0,
            rate: None,
            in_flight: 0,
            in_flight_max: world.policy.lane.limit.in_flight_max,
            reports: Vec::new(),
            flush: u64::MAX,
            wake: u64::MAX,
            heard: Mono::ZERO,
            arrives: [0; 2],
            knows: None,
            is_cut: false,
            hangs_until: 0,
            is_dead: false,
            not_before: 0,
        };
        FleetState {
            world,
            spec,
            queue: EventQueue::new(),
            rng: Rng::new(seed),
            server: Server::new(&world.server, world.tick),
            profile: world.server.headers.profile(),
            owners: Vec::new(),
            members: (0..world.clients).map(process).collect(),
            to_owner: Mailbag::default(),
            to_member: Mailbag::default(),
            knowledge: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hints: Vec::new(),
            hints_free: Vec::new(),
            counts: FleetCounts::new(world),
            trace: TraceHash::default(),
            events: 0,
            now: 0,
        }
    }

    pub(super) fn mono(&self) -> Mono {
        Mono::from_nanos(self.now)
    }

    pub(super) fn clock(&self) -> Now {
        Now { mono: self.mono(), wall: wall(self.now) }
    }

    fn begin(&mut self) {
        let count = self.members.len() as u64;
        for (index, member) in self.members.iter_mut().enumerate() {
            match self.world.workload {
                Workload::Drain { requests } => {
                    member.backlog = requests / count + u64::from((index as u64) < requests % count);
                }
                Workload::Poisson { rate, .. } => member.rate = Some(rate),
                Workload::Closed { .. } | Workload::Schedule(_) => {}
            }
        }
        let mut members = self.members.iter_mut().rev();
        for demand in &self.spec.demand {
            for member in members.by_ref().take(demand.members as usize) {
                if demand.rate.is_some() {
                    (member.rate, member.backlog) = (demand.rate, 0);
                }
                member.in_flight_max = demand.in_flight_max.unwrap_or(member.in_flight_max);
            }
        }
        self.plan_faults();
        let asks = match self.spec.shared {
            true => AskedOwner::Owner(self.found_owner(0, None)),
            false => AskedOwner::Itself,
        };
        let every = ALIVE_EVERY.as_nanos() as u64;
        for member in 0..count as u32 {
            if self.members[member as usize].rate.is_none() {
                self.counts.insatiable(member);
            }
            self.draw_next(member);
            self.ask(member, asks);
            // Not all at one moment.
            self.queue.push(every * u64::from(member) / count, FleetEvent::Alive(member));
        }
    }

    fn draw_next(&mut self, member: u32) {
        let Some(rate) = self.members[member as usize].rate else { return };
        let wait = exponential(1.0 / rate, &mut self.rng);
        let at = self.now + (wait * 1e9) as u64;
        let ends = match self.world.workload {
            Workload::Poisson { seconds, .. } => (seconds * 1e9) as u64,
            _ => self.world.end,
        };
        if at < ends {
            self.queue.push(at, FleetEvent::Offer(member));
        }
    }

    fn handle(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Offer(member) => {
                self.draw_next(member);
                let now = self.mono();
                let process = &mut self.members[member as usize];
                if !process.is_dead {
                    process.lane.start(now);
                    self.counts.offered(member);
                    let slot = self.new_slot(member);
                    self.ready(slot);
                }
            }
            FleetEvent::ToOwner(index) => {
                if let Some(mail) = self.to_owner.take(index) {
                    self.owner_hears(mail);
                }
            }
            FleetEvent::ToMember(index) => {
                if let Some(mail) = self.to_member.take(index) {
                    self.member_hears(mail);
                }
            }
            FleetEvent::Flush(member) => self.flush(member),
            FleetEvent::Alive(member) => self.member_ticks(member),
            FleetEvent::Announce(owner) => self.owner_ticks(owner),
            // A wake event that was superseded by an earlier one does nothing.
            FleetEvent::WakeOwner(index) => {
                let owner = &mut self.owners[index as usize];
                if owner.wake == self.now {
                    owner.wake = u64::MAX;
                    self.pump_owner(index);
                }
            }
            FleetEvent::WakeMember(member) => {
                let process = &mut self.members[member as usize];
                if process.wake == self.now {
                    process.wake = u64::MAX;
                    self.pump_member(member);
                }
            }
            FleetEvent::Arrive(slot) => self.arrive(slot),
            FleetEvent::Served => self.server.in_flight = self.server.in_flight.saturating_sub(1),
            FleetEvent::Reply { slot, status, hints } => self.reply(slot, status, hints),
            FleetEvent::Retry(slot) => self.ready(slot),
            FleetEvent::FaultBegins(index) => self.fault_begins(index),
            FleetEvent::FaultEnds(index) => self.fault_ends(index),
        }
    }

    fn ready(&mut self, slot: u32) {
        let member = self.slots[slot as usize].member;
        self.members[member as usize].ready.push_back(slot);
        self.pump_member(member);
    }

    /// Sends a call to the server.
    pub(super) fn send(&mut self, slot: u32) {
        let now = self.mono();
        let request = &mut self.slots[slot as usize];
        let _ = request.call.send(&self.world.policy.call, now);
        self.members[request.member as usize].in_flight += 1;
        let hop = self.world.hop.draw(&mut self.rng).as_nanos() as u64;
        self.queue.push(self.now + hop, FleetEvent::Arrive(slot));
    }

    fn arrive(&mut self, slot: u32) {
        let ServerAnswer { status, service } = self.server.arrive(self.now, &mut self.rng);
        let member = self.slots[slot as usize].member;
        self.trace.note(self.now, u64::from(member) << 16 | u64::from(status));
        self.counts.arrival(member, status < 400, self.now);
        if service > 0 {
            self.server.in_flight += 1;
            self.queue.push(self.now + service, FleetEvent::Served);
        }
        let hop = self.world.hop.draw(&mut self.rng).as_nanos() as u64;
        let at = self.now + service + hop;
        let hints = self.read_hints(at);
        self.queue.push(at, FleetEvent::Reply { slot, status, hints });
    }

    /// Parses the headers that will reach the member at `at`. Returns the index of the hints.
    fn read_hints(&mut self, at: u64) -> u32 {
        if self.server.headers.is_empty() {
            return NO_HINTS;
        }
        let headers = self.server.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let hints = hint::read(headers, wall(at), &self.profile);
        let index = self.hints_free.pop().unwrap_or(self.hints.len() as u32);
        match self.hints.get_mut(index as usize) {
            Some(place) => *place = hints,
            None => self.hints.push(hints),
        }
        index
    }

    fn reply(&mut self, slot: u32, status: u16, hints_index: u32) {
        let process = &self.members[self.slots[slot as usize].member as usize];
        if process.hangs_until > self.now {
            // It is read when the process goes on.
            return self
                .queue
                .push(process.hangs_until, FleetEvent::Reply { slot, status, hints: hints_index });
        }
        let is_dead = process.is_dead;
        let hints = self.hints.get(hints_index as usize).copied().unwrap_or_else(Hints::default);
        if hints_index != NO_HINTS {
            self.hints_free.push(hints_index);
        }
        if is_dead {
            return self.free.push(slot);
        }
        let signal = Signal::Http { status, finding: None };
        let verdict = self.world.policy.classifier.classify(&signal, &hints, self.mono());
        self.settle(slot, &verdict, &hints);
    }
}
