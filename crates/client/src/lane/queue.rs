//! The wait queue of a lane.
//!
//! It consists of three queues. Calls that were sent before go first: their deadline is running,
//! and a single throttled call behind ten thousand new ones would exceed it. After them the processes
//! that share the lane have their turns, each with its new calls in the order in which they came. A
//! process with ten thousand waiting calls gets no more permits than one with ten.
//!
//! A waiter whose future was dropped stays as a closed entry until it is popped or swept. The sweep
//! runs when the queue has doubled since the last one, so calls that come and go while a lane is
//! shut cost constant time each and bounded memory.

use super::permit::LanePermit;
use std::collections::{HashMap, VecDeque};
use tidegate_core::{Code, Mono};
use tokio::sync::oneshot;

/// Why a lane refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lane is shut until after the deadline of the call, or its quota is spent.
    Shut(Mono, Code),
    /// The lane will not send before this time, which is after the deadline of the call.
    Late(Mono),
    /// The lane was closed by its owner.
    Closed,
}

pub(super) type Turn = Result<LanePermit, Refused>;

pub(super) struct Waiter {
    /// The deadline of a call that was sent before.
    pub(super) by: Option<Mono>,
    pub(super) tell: oneshot::Sender<Turn>,
    /// The member of the lane that it waits for.
    pub(super) member: Option<u64>,
    /// The round in which it has its turn; set by the queue.
    pub(super) round: u64,
}

pub(super) struct WaitQueue {
    started: VecDeque<Waiter>,
    fresh: VecDeque<Waiter>,
    /// Those that wait for members, by round.
    foreign: VecDeque<Waiter>,
    /// The round that has its turn.
    round: u64,
    /// The last round that each process has a waiter in, if it is still to come.
    last_rounds: HashMap<Option<u64>, u64>,
    /// A lower bound of the deadlines in `started`.
    by_min: Mono,
    /// The length, in entries, at which closed entries are swept.
    sweep_at: usize,
}

impl WaitQueue {
    pub(super) fn new() -> WaitQueue {
        let (started, fresh, foreign) = Default::default();
        WaitQueue {
            started,
            fresh,
            foreign,
            round: 0,
            last_rounds: HashMap::new(),
            by_min: Mono::FAR,
            sweep_at: 0,
        }
    }

    /// The number of calls of this process that wait.
    pub(super) fn waiting(&self) -> usize {
        self.started.len() + self.fresh.len()
    }

    /// Whether nobody waits, in any process.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.foreign.is_empty()
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let all = self.waiting() + self.foreign.len();
        if all >= self.sweep_at.max(64) {
            for queue in [&mut self.started, &mut self.fresh, &mut self.foreign] {
                queue.retain(|w| !w.tell.is_closed());
            }
            self.last_rounds.retain(|_, last| *last > self.round);
            self.sweep_at = (self.waiting() + self.foreign.len()) * 2;
        }
        if let Some(by) = waiter.by {
            self.by_min = self.by_min.min(by);
            self.started.push_back(waiter);
            return;
        }
        // One waiter of each process in each round.
        let last = self.last_rounds.entry(waiter.member).or_default();
        let round = self.round.max(*last) + 1;
        *last = round;
        let waiter = Waiter { round, ..waiter };
        if waiter.member.is_some() {
            let at = self.foreign.partition_point(|other| other.round <= round);
            self.foreign.insert(at, waiter);
        } else {
            self.fresh.push_back(waiter);
        }
    }

    /// Whether a call waits. Drops closed entries at the head and refuses calls past their
    /// deadline.
    pub(super) fn has_head(&mut self, now: Mono) -> bool {
        while let Some(head) = self.started.front() {
            let late = head.by.is_some_and(|by| now >= by);
            if !late && !head.tell.is_closed() {
                return true;
            }
            if let Some(gone) = self.started.pop_front()
                && late
            {
                // A dropped receiver needs no reply.
                let _ = gone.tell.send(Err(Refused::Late(now)));
            }
        }
        for queue in [&mut self.fresh, &mut self.foreign] {
            while queue.front().is_some_and(|head| head.tell.is_closed()) {
                queue.pop_front();
            }
        }
        !(self.fresh.is_empty() && self.foreign.is_empty())
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        if let Some(waiter) = self.started.pop_front() {
            return Some(waiter);
        }
        let round = |queue: &VecDeque<Waiter>| queue.front().map_or(u64::MAX, |head| head.round);
        let foreign_first = round(&self.foreign) < round(&self.fresh);
        let next = if foreign_first { self.foreign.pop_front() } else { self.fresh.pop_front() };
        if let Some(next) = &next {
            self.round = next.round;
        }
        if self.fresh.is_empty() && self.foreign.is_empty() {
            self.last_rounds.clear();
        }
        next
    }

    /// Refuses all calls of this process, and those of members that `refusal` concerns.
    pub(super) fn refuse_all(&mut self, refusal: Refused) {
        if refusal.holds(None) {
            refuse(&mut self.foreign, refusal);
            self.last_rounds.clear();
        }
        for waiter in self.started.drain(..).chain(self.fresh.drain(..)) {
            // A dropped receiver needs no reply.
            let _ = waiter.tell.send(Err(refusal));
        }
        self.by_min = Mono::FAR;
    }

    /// Refuses the calls that `refusal` concerns. Usually there are none, and finding that out must
    /// not visit every entry.
    pub(super) fn refuse(&mut self, refusal: Refused) {
        if refusal.holds(Some(self.by_min)) {
            refuse(&mut self.started, refusal);
            self.by_min = self.started.iter().filter_map(|w| w.by).min().unwrap_or(Mono::FAR);
        }
        if refusal.holds(None) {
            refuse(&mut self.fresh, refusal);
            refuse(&mut self.foreign, refusal);
            self.last_rounds.clear();
        }
    }
}

fn refuse(queue: &mut VecDeque<Waiter>, refusal: Refused) {
    for waiter in std::mem::take(queue) {
        if refusal.holds(waiter.by) {
            // A dropped receiver needs no reply.
            let _ = waiter.tell.send(Err(refusal));
        } else {
            queue.push_back(waiter);
        }
    }
}

impl Refused {
    /// Whether this concerns a call with the deadline `by`. A spent quota concerns all calls.
    pub(super) fn holds(&self, by: Option<Mono>) -> bool {
        match *self {
            Refused::Shut(_, Code::QUOTA_EXHAUSTED) | Refused::Closed => true,
            Refused::Shut(until, _) | Refused::Late(until) => by.is_some_and(|by| until >= by),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_their_turns_however_many_calls_wait() {
        let mut queue = WaitQueue::new();
        let mut kept = Vec::new();
        let mut push = |queue: &mut WaitQueue, member| {
            let (tell, turn) = oneshot::channel();
            kept.push(turn);
            queue.push(Waiter { by: None, tell, member, round: 0 });
        };
        for _ in 0..100 {
            push(&mut queue, None);
        }
        for _ in 0..10 {
            queue.pop().unwrap();
        }
        // Two members join, with fewer calls.
        for member in [1, 2] {
            for _ in 0..5 {
                push(&mut queue, Some(member));
            }
        }
        let turns: Vec<_> = (0..15).map(|_| queue.pop().unwrap().member).collect();
        for of in [None, Some(1), Some(2)] {
            assert_eq!(turns.iter().filter(|member| **member == of).count(), 5, "{turns:?}");
        }
        // One that comes back is not owed what it did not ask for.
        let turns: Vec<_> = (0..50).map(|_| queue.pop().unwrap().member).collect();
        assert!(turns.iter().all(Option::is_none));
        for _ in 0..3 {
            push(&mut queue, Some(1));
        }
        let turns: Vec<_> = (0..6).map(|_| queue.pop().unwrap().member).collect();
        assert_eq!(turns.iter().filter(|member| member.is_some()).count(), 3, "{turns:?}");
    }
}
