//! The wait queue of a lane.
//!
//! It consists of FIFO queues. Calls that were sent before go first: their deadline is running,
//! and a single throttled call behind ten thousand new ones would exceed it. New calls and those of
//! members of the lane in other processes take turns, one call of each process at a time.
//!
//! A waiter whose future was dropped stays as a closed entry until it is popped or swept. The sweep
//! runs when the queue has doubled since the last one, so calls that come and go while a lane is
//! shut cost constant time each and bounded memory.

use super::permit::LanePermit;
use std::collections::{BTreeMap, VecDeque};
use tidegate_core::lane::fleet::{TurnState, Turns};
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
    /// The member of the lane for which it waits.
    pub(super) member: Option<u64>,
}

pub(super) struct WaitQueue {
    started: VecDeque<Waiter>,
    fresh: VecDeque<Waiter>,
    /// Those that wait for members, by member.
    foreign: BTreeMap<u64, VecDeque<Waiter>>,
    /// Whose turn it is: this process (`None`) or a member.
    turns: Turns<Option<u64>>,
    /// Members so far.
    members: u64,
    /// A lower bound of the deadlines in `started`.
    by_min: Mono,
    /// The length, in entries, at which closed entries are swept.
    sweep_at: usize,
}

impl WaitQueue {
    pub(super) fn new() -> WaitQueue {
        let (started, fresh, foreign, turns) = Default::default();
        WaitQueue { started, fresh, foreign, turns, members: 0, by_min: Mono::FAR, sweep_at: 0 }
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
        if let Some(member) = waiter.member {
            // The owner bounds what one member wants.
            self.foreign.entry(member).or_default().push_back(waiter);
            self.turns.join(Some(member));
            return;
        }
        if self.waiting() >= self.sweep_at.max(64) {
            for queue in [&mut self.started, &mut self.fresh] {
                queue.retain(|w| !w.tell.is_closed());
            }
            self.sweep_at = self.waiting() * 2;
        }
        match waiter.by {
            Some(by) => {
                self.by_min = self.by_min.min(by);
                self.started.push_back(waiter);
            }
            None => self.fresh.push_back(waiter),
        }
    }

    /// The number of a new member.
    pub(super) fn new_member(&mut self) -> u64 {
        self.members += 1;
        self.members
    }

    /// The number of processes with calls that wait, as far as is known.
    pub(super) fn sharers(&self) -> u32 {
        u32::try_from(self.foreign.len() + usize::from(self.waiting() > 0)).unwrap_or(u32::MAX)
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
        if has_open(&mut self.fresh) {
            return true;
        }
        while let Some(mut queue) = self.foreign.first_entry() {
            if has_open(queue.get_mut()) {
                return true;
            }
            queue.remove();
        }
        false
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        if let Some(waiter) = self.started.pop_front() {
            return Some(waiter);
        }
        if self.foreign.is_empty() {
            return self.fresh.pop_front();
        }
        if !self.fresh.is_empty() {
            self.turns.join(None);
        }
        let (fresh, foreign) = (&mut self.fresh, &mut self.foreign);
        let turn = self.turns.next(|process| {
            let takes = match process {
                None => has_open(fresh),
                Some(member) => foreign.get_mut(&member).is_some_and(has_open),
            };
            if takes { TurnState::Takes } else { TurnState::Idle }
        })?;
        let Some(member) = turn else { return self.fresh.pop_front() };
        let queue = self.foreign.get_mut(&member)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.foreign.remove(&member);
        }
        waiter
    }

    /// Refuses all calls of this process, and those of members that `refusal` concerns.
    pub(super) fn refuse_all(&mut self, refusal: Refused) {
        if refusal.holds(None) {
            self.refuse_foreign(refusal);
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
            self.refuse_foreign(refusal);
        }
    }

    fn refuse_foreign(&mut self, refusal: Refused) {
        for waiter in std::mem::take(&mut self.foreign).into_values().flatten() {
            // A dropped receiver needs no reply.
            let _ = waiter.tell.send(Err(refusal));
        }
    }
}

/// Whether a waiter waits that has not been dropped. Removes those before it.
fn has_open(queue: &mut VecDeque<Waiter>) -> bool {
    while queue.front().is_some_and(|head| head.tell.is_closed()) {
        queue.pop_front();
    }
    !queue.is_empty()
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
