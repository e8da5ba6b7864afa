//! What happens to a fleet: owners are killed, members are cut off or stand still, two own the lane.

use tidegate_core::limit::LimitBelief;

use super::FleetFault;
use super::state::{AskedOwner, FleetEvent, FleetState};

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl FleetState<'_> {
    /// Plans all faults.
    pub(super) fn plan_faults(&mut self) {
        for (index, fault) in self.spec.faults.iter().enumerate() {
            let (from, until) = match *fault {
                FleetFault::OwnerKilled { at, successor_after } => (at, at + successor_after),
                FleetFault::Partition { from, until, .. }
                | FleetFault::Hang { from, until, .. }
                | FleetFault::TwoOwners { from, until, .. } => (from, until),
            };
            self.queue.push(nanos(from), FleetEvent::FaultBegins(index as u32));
            self.queue.push(nanos(until), FleetEvent::FaultEnds(index as u32));
        }
    }

    /// The last members, so many of them.
    fn last(&self, count: u32) -> std::ops::Range<u32> {
        let all = self.members.len() as u32;
        all.saturating_sub(count)..all
    }

    pub(super) fn fault_begins(&mut self, index: u32) {
        match self.spec.faults[index as usize] {
            FleetFault::OwnerKilled { .. } => {
                let Some(owner) = self.owners.iter_mut().find(|owner| !owner.is_over) else { return };
                owner.is_over = true;
                let process = owner.process;
                self.members[process as usize].is_dead = true;
                self.counts.excuse(process);
                self.counts.owner_changes();
                for member in 0..self.members.len() as u32 {
                    // The connection ends, and everybody sees it.
                    self.ask(member, AskedOwner::Nobody);
                }
            }
            FleetFault::Partition { members, .. } => {
                for member in self.last(members) {
                    self.members[member as usize].is_cut = true;
                    self.counts.excuse(member);
                }
            }
            FleetFault::Hang { until, members, .. } => {
                for member in self.last(members) {
                    self.members[member as usize].hangs_until = nanos(until);
                    self.counts.excuse(member);
                }
            }
            FleetFault::TwoOwners { members, .. } => {
                let range = self.last(members);
                let first = range.start;
                self.counts.owner_changes();
                let owner = self.succeed(first);
                range.for_each(|member| self.ask(member, AskedOwner::Owner(owner)));
            }
        }
    }

    pub(super) fn fault_ends(&mut self, index: u32) {
        match self.spec.faults[index as usize] {
            FleetFault::OwnerKilled { .. } => {
                let Some(heir) = self.members.iter().position(|m| !m.is_dead && !m.is_cut) else { return };
                let owner = self.succeed(heir as u32);
                self.all_ask(owner);
            }
            FleetFault::Partition { members, .. } => {
                for member in self.last(members) {
                    self.members[member as usize].is_cut = false;
                    self.rejoin(member);
                }
            }
            FleetFault::Hang { members, .. } => {
                for member in self.last(members) {
                    self.rejoin(member);
                }
            }
            FleetFault::TwoOwners { .. } => {
                let Some((last, before)) = self.owners.split_last_mut() else { return };
                before.iter_mut().for_each(|owner| owner.is_over = true);
                let (owner, heir) = (before.len() as u32, last.process);
                let follows =
                    |m: &u32| self.members[*m as usize].asks != AskedOwner::Owner(owner) && *m != heir;
                let others: Vec<u32> = (0..self.members.len() as u32).filter(follows).collect();
                others.into_iter().for_each(|member| self.ask(member, AskedOwner::Owner(owner)));
            }
        }
    }

    /// Makes a member the owner, with what it was told last.
    fn succeed(&mut self, heir: u32) -> u32 {
        let last: Option<LimitBelief> = self.members[heir as usize].knows.map(|knows| knows.belief);
        self.found_owner(heir, last.or(Some(LimitBelief::default())))
    }

    fn all_ask(&mut self, owner: u32) {
        for member in 0..self.members.len() as u32 {
            let process = &self.members[member as usize];
            if !process.is_dead && !process.is_cut {
                self.ask(member, AskedOwner::Owner(owner));
            }
        }
    }

    /// A member that was away finds the owner.
    fn rejoin(&mut self, member: u32) {
        let owner = self.owners.iter().rposition(|owner| !owner.is_over);
        let asks = match owner {
            Some(owner) => AskedOwner::Owner(owner as u32),
            None if self.spec.shared => AskedOwner::Nobody,
            None => AskedOwner::Itself,
        };
        if !self.members[member as usize].is_dead {
            self.ask(member, asks);
        }
    }
}
