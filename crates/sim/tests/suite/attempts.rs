//! What refusals cost records: attempts are for failures, and a limit that refuses is none.
//!
//! Every record is a call of the core with the default policy of a manifest (5 attempts, 1 s, 30 s), and the
//! lanes do not know of each other. Everything is drawn from a seed, so the numbers are exact.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_core::call::{Call, CallPolicy, Next, ThrottleWait};
use tidegate_core::hint::Hints;
use tidegate_core::lane::{Admit, Lane, LaneConfig, Permit};
use tidegate_core::{Chance, Code, Mono, Rng, Verdict, VerdictKind};
use tidegate_sim::drain::DrainWorld;
use tidegate_sim::drain::pause::{PauseOf, PauseSchedule, Pauses};
use tidegate_sim::real_limiter::RealLimiter;
use tidegate_sim::server::{ServerLimit, Throttle};

/// What became of the records.
#[derive(Debug, Default, PartialEq)]
struct Ends {
    done: u32,
    /// Ended by their attempts.
    given_up: u32,
    /// Ended by their deadline, while they waited for their lane.
    late: u32,
    /// Calls refused.
    refused: u32,
    /// Most attempts of one record.
    attempts: u32,
    /// The last answer, in seconds.
    finish: f64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    Return(usize, bool),
    Retry(usize),
    Wake(usize),
}

/// Sends all requests of `world`, shared evenly by `lanes` lanes, to a server that refuses the first calls
/// whatever its limit says.
fn send_all(world: &DrainWorld, lanes: usize, refuse_first: u32, seed: u64) -> Ends {
    let policy = CallPolicy { throttle_wait: ThrottleWait::Lane, history: false, ..CallPolicy::default() };
    let mut rng = Rng::new(seed);
    let mut throttle = Throttle::new(&world.limit);
    let (mut server, mut client) = PauseSchedule::pair(world.pauses, seed);
    let mut sides: Vec<Lane> = (0..lanes).map(|_| Lane::new(&LaneConfig::default())).collect();
    // Those that were refused go first, as in the client.
    let mut started: Vec<VecDeque<usize>> = vec![VecDeque::new(); lanes];
    let mut fresh: Vec<VecDeque<usize>> = vec![VecDeque::new(); lanes];
    let mut wake = vec![u64::MAX; lanes];
    let mut calls: Vec<(Call, Option<Permit>)> = (0..world.requests).map(|_| (Call::new(), None)).collect();
    (0..calls.len()).for_each(|record| fresh[record % lanes].push_back(record));
    let mut events = BinaryHeap::new();
    (0..lanes).for_each(|lane| events.push(Reverse((0, Event::Wake(lane)))));
    let (mut ends, mut arrived) = (Ends::default(), 0);
    let draw =
        |rng: &mut Rng, mean: f64| (mean * 1e9 * (1.0 + world.jitter * (2.0 * rng.unit() - 1.0))) as u64;
    while let Some(Reverse((at, event))) = events.pop() {
        let ready = match event {
            Event::Arrive(_) => server.after(at),
            _ => client.after(at),
        };
        if ready > at {
            events.push(Reverse((ready, event)));
            continue;
        }
        let now = Mono::from_nanos(at);
        let lane = match event {
            Event::Arrive(record) => {
                let service = draw(&mut rng, world.service);
                let answer = throttle.offer(at, service);
                arrived += 1;
                let accepted = answer.accepted && arrived > refuse_first;
                let busy = if accepted { answer.delay + service } else { 0 };
                let back = server.after(at + busy) + draw(&mut rng, world.rtt / 2.0);
                events.push(Reverse((back, Event::Return(record, accepted))));
                continue;
            }
            Event::Return(record, accepted) => {
                let (lane, (call, permit)) = (record % lanes, &mut calls[record]);
                let kind = match world.refusal.status {
                    _ if accepted => VerdictKind::Done,
                    429 => VerdictKind::Throttled { until: None },
                    _ => VerdictKind::Transient { until: None },
                };
                let verdict = Verdict { kind, code: Code::UNKNOWN, status: None };
                let Some(permit) = permit.take() else { panic!("it was sent") };
                sides[lane].settle(permit, &verdict, &Hints::default(), now);
                ends.refused += u32::from(!accepted);
                match sides[lane].next(call, &policy, &verdict, now, &mut rng) {
                    Next::Accept => ends.done += 1,
                    Next::RetryAt(then) => {
                        events.push(Reverse((then.nanos().max(at), Event::Retry(record))));
                    }
                    Next::Park(..) | Next::GiveUp(_) => ends.given_up += 1,
                }
                ends.attempts = ends.attempts.max(call.attempts());
                ends.finish = at as f64 / 1e9;
                lane
            }
            Event::Retry(record) => {
                started[record % lanes].push_back(record);
                record % lanes
            }
            Event::Wake(lane) => {
                wake[lane] = if at >= wake[lane] { u64::MAX } else { wake[lane] };
                lane
            }
        };
        while let Some(&record) = started[lane].front().or(fresh[lane].front()) {
            if calls[record].0.deadline(&policy).is_some_and(|end| now >= end) {
                started[lane].pop_front();
                match calls[record].0.late(now) {
                    // As in the client: it is called anew.
                    Next::Park(..) => {
                        calls[record].0 = Call::new();
                        started[lane].push_back(record);
                    }
                    _ => ends.late += 1,
                }
                continue;
            }
            let again = match sides[lane].admit(now) {
                Admit::Go(permit) => {
                    let _ = started[lane].pop_front().or_else(|| fresh[lane].pop_front());
                    calls[record].0.send(&policy, now);
                    calls[record].1 = Some(permit);
                    events.push(Reverse((at + draw(&mut rng, world.rtt / 2.0), Event::Arrive(record))));
                    continue;
                }
                Admit::Wait(until) => Some(until),
                // As in the client: whoever cannot wait so long is put aside, and called anew.
                Admit::Shut(until, _) => {
                    for record in started[lane].drain(..) {
                        if let Next::Park(..) = calls[record].0.shut(&policy, until) {
                            calls[record].0 = Call::new();
                        }
                        events.push(Reverse((until.nanos(), Event::Retry(record))));
                    }
                    Some(until)
                }
                Admit::Full => sides[lane].full_until(now),
            };
            if let Some(until) = again.map(|until| until.nanos().max(at + 1)).filter(|at| *at < wake[lane]) {
                wake[lane] = until;
                events.push(Reverse((until, Event::Wake(lane))));
            }
            break;
        }
    }
    ends
}

#[test]
fn a_server_that_refuses_its_first_calls_costs_nobody_all_attempts() {
    for seed in 1..=100 {
        let world =
            DrainWorld { limit: ServerLimit::Open, requests: 50, ..RealLimiter::RequestsBurst.world(429) };
        let ends = send_all(&world, 1, 20, seed);
        assert_eq!((ends.done, ends.given_up, ends.late, ends.refused), (50, 0, 0, 20), "{seed}: {ends:?}");
    }
}

#[test]
fn a_bucket_on_a_machine_that_stalls_costs_no_record() {
    for seed in 1..=100 {
        let world = DrainWorld {
            limit: ServerLimit::TokenBucket { rate: 50.0, burst: 5.0 },
            requests: 200,
            pauses: Some(Pauses::usual(PauseOf::Both)),
            ..RealLimiter::RequestsBurst.world(429)
        };
        let ends = send_all(&world, 1, 0, seed);
        assert_eq!((ends.done, ends.given_up, ends.late), (200, 0, 0), "{seed}: {ends:?}");
    }
}

/// Of a strict bucket others take every token: a lane may find none for longer than its records have, and
/// they wait.
#[test]
fn lanes_that_do_not_know_of_each_other_lose_nothing_behind_one_limiter() {
    for (limiter, status) in [
        (RealLimiter::RequestsStrict, 429),
        (RealLimiter::RequestsStrict, 503),
        (RealLimiter::RequestsBurst, 429),
        (RealLimiter::RequestsBurst, 503),
        (RealLimiter::Connections, 429),
        (RealLimiter::Connections, 503),
    ] {
        for seed in 1..=20 {
            let ends = send_all(&limiter.world(status), 3, 0, seed);
            assert_eq!(
                (ends.done, ends.given_up, ends.late),
                (2000, 0, 0),
                "{limiter:?} {status} {seed}: {ends:?}"
            );
        }
    }
}
