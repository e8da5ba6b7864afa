//! The wait queue of a lane.
//!
//! It consists of three FIFO queues. Calls that were sent before go first: their deadline is running,
//! and a single throttled call behind ten thousand new ones would exceed it. New calls, and those of
//! members of the lane in other processes, go in the order in which they came.
//!
//! A waiter whose future was dropped stays as a closed entry until it is popped or swept. The sweep
//! runs when the queue has doubled since the last one, so calls that come and go while a lane is
//! shut cost constant time each and bounded memory.

use super::permit::LanePermit;
use std::collections::VecDeque;
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
    /// It waits for a member of the lane.
    pub(super) foreign: bool,
    /// Its number in the order of arrival; set by the queue.
    pub(super) order: u64,
}

pub(super) struct WaitQueue {
    started: VecDeque<Waiter>,
    fresh: VecDeque<Waiter>,
    /// Those that wait for members.
    foreign: VecDeque<Waiter>,
    /// Waiters so far.
    arrived: u64,
    /// A lower bound of the deadlines in `started`.
    by_min: Mono,
    /// The length, in entries, at which closed entries are swept.
    sweep_at: usize,
}

impl WaitQueue {
    pub(super) fn new() -> WaitQueue {
        let (started, fresh, foreign) = Default::default();
        WaitQueue { started, fresh, foreign, arrived: 0, by_min: Mono::FAR, sweep_at: 0 }
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
            self.sweep_at = (self.waiting() + self.foreign.len()) * 2;
        }
        let waiter = Waiter { order: self.arrived, ..waiter };
        self.arrived += 1;
        match waiter.by {
            _ if waiter.foreign => self.foreign.push_back(waiter),
            Some(by) => {
                self.by_min = self.by_min.min(by);
                self.started.push_back(waiter);
            }
            None => self.fresh.push_back(waiter),
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
        let order = |queue: &VecDeque<Waiter>| queue.front().map_or(u64::MAX, |head| head.order);
        let foreign_first = order(&self.foreign) < order(&self.fresh);
        if foreign_first { self.foreign.pop_front() } else { self.fresh.pop_front() }
    }

    /// Refuses all calls of this process, and those of members that `refusal` concerns.
    pub(super) fn refuse_all(&mut self, refusal: Refused) {
        if refusal.holds(None) {
            refuse(&mut self.foreign, refusal);
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
