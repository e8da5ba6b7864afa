//! The events of a drain: calls arrive at the server and return to their client.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::hint::Hints;
use tidegate_core::limit::Feedback;
use tidegate_core::{Chance, Mono, Rng};

use super::hints::told;
use super::pause::PauseSchedule;
use super::{Decision, DrainClient, DrainOutcome, DrainWorld, earliest};
use crate::server::Throttle;

/// Drains `world` with `client`. The run is stopped as hopeless at twenty times the earliest
/// finish.
pub fn drain<C: DrainClient>(world: &DrainWorld, client: &mut C, seed: u64) -> DrainOutcome {
    let outcomes = drain_together(world, core::slice::from_mut(client), seed);
    outcomes.first().copied().unwrap_or_default()
}

/// Drains `world` with several clients on one server: each has an equal part of the requests and as
/// many workers as a client alone. A pause of the client is one of them all.
pub fn drain_together<C: DrainClient>(world: &DrainWorld, clients: &mut [C], seed: u64) -> Vec<DrainOutcome> {
    let mut run = DrainRun::new(world, clients.len(), seed);
    run.run(clients);
    run.sides.into_iter().map(|side| side.outcome).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrainEvent {
    Arrive(u32),
    Return(u32),
    Wake(u32),
}

struct CallInFlight<T> {
    client: u32,
    ticket: T,
    accepted: bool,
    hints: Hints,
}

/// One client's side.
struct DrainSide {
    outcome: DrainOutcome,
    /// Its requests, done or not.
    assigned: u64,
    queue: u64,
    in_flight: u32,
    /// The next time at which it is asked, in nanoseconds.
    wake: u64,
    /// The server asked it not to call before this time, in nanoseconds.
    not_before: u64,
}

struct DrainRun<'a, T> {
    world: &'a DrainWorld,
    rng: Rng,
    throttle: Throttle,
    server: PauseSchedule,
    client: PauseSchedule,
    events: BinaryHeap<Reverse<(u64, u64, DrainEvent)>>,
    order: u64,
    flights: Vec<Option<CallInFlight<T>>>,
    free: Vec<u32>,
    sides: Vec<DrainSide>,
    now: u64,
}

impl<'a, T> DrainRun<'a, T> {
    fn new(world: &'a DrainWorld, clients: usize, seed: u64) -> DrainRun<'a, T> {
        let clients = clients.max(1) as u64;
        let earliest = earliest(world, seed);
        let (server, client) = PauseSchedule::pair(world.pauses, seed);
        let sides = (0..clients).map(|i| {
            let queue = world.requests / clients + u64::from(i < world.requests % clients);
            let outcome = DrainOutcome { earliest, left: queue, ..DrainOutcome::default() };
            DrainSide { outcome, assigned: queue, queue, in_flight: 0, wake: u64::MAX, not_before: 0 }
        });
        DrainRun {
            world,
            rng: Rng::new(seed),
            throttle: Throttle::new(&world.limit),
            server,
            client,
            events: BinaryHeap::new(),
            order: 0,
            flights: Vec::new(),
            free: Vec::new(),
            sides: sides.collect(),
            now: 0,
        }
    }

    fn run<C: DrainClient<Ticket = T>>(&mut self, clients: &mut [C]) {
        let earliest = self.sides.first().map_or(0.0, |side| side.outcome.earliest);
        let stop = ((earliest + 10.0) * 20e9) as u64;
        for (i, client) in clients.iter_mut().enumerate() {
            self.send(i as u32, client);
        }
        while let Some(Reverse((at, order, event))) = self.events.pop() {
            let ready = match event {
                DrainEvent::Arrive(_) => self.server.after(at),
                DrainEvent::Return(_) | DrainEvent::Wake(_) => self.client.after(at),
            };
            if ready > at {
                self.events.push(Reverse((ready, order, event)));
                continue;
            }
            self.now = at;
            if self.now > stop {
                break;
            }
            let client = match event {
                DrainEvent::Arrive(slot) => match self.arrive(slot) {
                    Some(client) if self.client.after(at) == at => client,
                    _ => continue,
                },
                DrainEvent::Wake(client) => {
                    if let Some(side) = self.sides.get_mut(client as usize) {
                        side.wake = if at >= side.wake { u64::MAX } else { side.wake };
                    }
                    client
                }
                DrainEvent::Return(slot) => match self.settle(slot, clients) {
                    Some(client) => client,
                    None => continue,
                },
            };
            if self.sides.iter().all(|side| side.outcome.left == 0) {
                break;
            }
            if let Some(asked) = clients.get_mut(client as usize) {
                self.send(client, asked);
            }
        }
    }

    fn push(&mut self, at: u64, event: DrainEvent) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    /// Sends what the client lets out.
    fn send<C: DrainClient<Ticket = T>>(&mut self, client: u32, asked: &mut C) {
        let now = self.now;
        loop {
            let Some(side) = self.sides.get_mut(client as usize) else { return };
            if side.queue == 0 || side.in_flight >= self.world.workers {
                return;
            }
            match asked.admit(Mono::from_nanos(now)) {
                Decision::Go(ticket) => {
                    side.outcome.early += u64::from(now < side.not_before);
                    side.outcome.calls += 1;
                    (side.queue, side.in_flight) = (side.queue - 1, side.in_flight + 1);
                    let flight = CallInFlight { client, ticket, accepted: false, hints: Hints::default() };
                    let slot = self.free.pop().unwrap_or(self.flights.len() as u32);
                    match self.flights.get_mut(slot as usize) {
                        Some(place) => *place = Some(flight),
                        None => self.flights.push(Some(flight)),
                    }
                    let way = draw(&mut self.rng, self.world.rtt / 2.0, self.world.jitter);
                    self.push(now + way, DrainEvent::Arrive(slot));
                }
                Decision::At(t) => {
                    let t = t.nanos().max(now + 1);
                    if t < side.wake {
                        side.wake = t;
                        let late = late(&mut self.rng, self.world.timer_late);
                        self.push(t + late, DrainEvent::Wake(client));
                    }
                    return;
                }
                Decision::Full => return,
            }
        }
    }

    /// A call reaches the server; the number of its client is returned.
    fn arrive(&mut self, slot: u32) -> Option<u32> {
        let world = self.world;
        let service = draw(&mut self.rng, world.service, world.jitter);
        let answer = self.throttle.offer(self.now, service);
        let back = draw(&mut self.rng, world.rtt / 2.0, world.jitter);
        let busy =
            if answer.accepted { answer.delay + service } else { (world.refusal.after_seconds * 1e9) as u64 };
        let answered = self.server.after(self.now + busy);
        let flight = self.flights.get_mut(slot as usize)?.as_mut()?;
        flight.accepted = answer.accepted;
        flight.hints = told(world.tells, &answer, self.now);
        let client = flight.client;
        self.push(answered + back, DrainEvent::Return(slot));
        Some(client)
    }

    /// A call is back at its client, whose number is returned.
    fn settle<C: DrainClient<Ticket = T>>(&mut self, slot: u32, clients: &mut [C]) -> Option<u32> {
        let flight = self.flights.get_mut(slot as usize).and_then(Option::take)?;
        self.free.push(slot);
        let mono = Mono::from_nanos(self.now);
        let side = self.sides.get_mut(flight.client as usize)?;
        side.in_flight -= 1;
        let mut first_done = false;
        let seen = if flight.accepted {
            let outcome = &mut side.outcome;
            (outcome.left, outcome.finish) = (outcome.left - 1, self.now as f64 / 1e9);
            first_done = outcome.left == 0 && outcome.share == 0.0;
            Feedback::Accepted
        } else {
            (side.queue, side.outcome.refused) = (side.queue + 1, side.outcome.refused + 1);
            let until = flight.hints.retry_after.map(|d| mono + d);
            side.not_before = side.not_before.max(until.map_or(0, Mono::nanos));
            self.world.refusal.feedback(until)
        };
        clients.get_mut(flight.client as usize)?.settle(flight.ticket, mono, seen, &flight.hints);
        if first_done {
            self.share();
        }
        Some(flight.client)
    }

    /// The first client is done: notes what part of all that was done is whose.
    fn share(&mut self) {
        let done = |side: &DrainSide| (side.assigned - side.outcome.left) as f64;
        let all = self.sides.iter().map(done).sum::<f64>();
        for side in &mut self.sides {
            side.outcome.share = done(side) / all;
        }
    }
}

/// How late a timer is: the square of an exponential variable, as measured on a machine with little to do (half of
/// them less than a quarter of the mean, one in a hundred ten times as much).
fn late(rng: &mut Rng, mean: f64) -> u64 {
    if mean == 0.0 {
        return 0;
    }
    let drawn = -(1.0 - rng.unit()).ln();
    (mean * 0.5 * drawn * drawn * 1e9) as u64
}

fn draw(rng: &mut Rng, mean: f64, jitter: f64) -> u64 {
    (mean * 1e9 * (1.0 + jitter * (2.0 * rng.unit() - 1.0))).max(0.0) as u64
}
