//! The client that knows everything: when it would be done is what the others are measured by.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::DrainWorld;
use super::pause::PauseSchedule;
use crate::server::Throttle;

/// When a client that knows the limit would be done, in seconds, under the pauses of `seed`. It is
/// never refused and bound by the same workers, mean latencies and pauses.
#[must_use]
pub fn earliest(world: &DrainWorld, seed: u64) -> f64 {
    let mut throttle = Throttle::new(&world.limit);
    let (mut server, mut client) = PauseSchedule::pair(world.pauses, seed);
    let service = (world.service * 1e9) as u64;
    let half = (world.rtt * 0.5e9) as u64;
    let mut workers: BinaryHeap<Reverse<u64>> = (0..world.workers).map(|_| Reverse(0)).collect();
    let (mut last, mut clock) = (0, 0);
    for _ in 0..world.requests {
        let Some(Reverse(ready)) = workers.pop() else { break };
        let mut at = (ready + half).max(clock);
        loop {
            let sent = client.after(at.saturating_sub(half));
            at = server.after(at.max(sent + half));
            match throttle.wait(at) {
                0 => break,
                wait => at += wait,
            }
        }
        let held = throttle.offer(at, service).delay;
        clock = at;
        let back = client.after(server.after(at + held + service) + half);
        last = last.max(back);
        workers.push(Reverse(back));
    }
    last as f64 / 1e9
}
