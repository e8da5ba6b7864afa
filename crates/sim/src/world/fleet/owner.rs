//! What an owner does: it keeps the accounts of its members, runs the lane, and tells what it knows.

use tidegate_core::Mono;
use tidegate_core::lane::fleet::{MemberAccount, PermitWays, TurnState, Turns};
use tidegate_core::lane::{Admit, Lane};
use tidegate_core::limit::LimitBelief;

use super::state::{
    CallReport, FleetEvent, FleetKnowledge, FleetOwner, FleetState, Mail, MemberMail, OwnerMail,
};

/// The interval at which an owner tells its members what it has learned, in nanoseconds.
const ANNOUNCE_EVERY: u64 = 100_000_000;

impl FleetState<'_> {
    /// Makes a process the owner. `last` is what the owner before believed.
    pub(super) fn found_owner(&mut self, process: u32, last: Option<LimitBelief>) -> u32 {
        let now = self.clock();
        let mut lane = Lane::new(&self.world.policy.lane);
        let member = &self.members[process as usize];
        lane.restore(&member.lane.state(now), now);
        if let Some(belief) = last {
            lane.succeed(&belief, now.mono);
            lane.spend_burst(now.mono);
        }
        self.owners.push(FleetOwner {
            process,
            lane,
            accounts: self.members.iter().map(|_| None).collect(),
            turns: Turns::default(),
            ways: PermitWays::default(),
            queued: 0,
            wake: u64::MAX,
            told: None,
            is_over: false,
        });
        let owner = self.owners.len() as u32 - 1;
        self.queue.push(self.now + ANNOUNCE_EVERY, FleetEvent::Announce(owner));
        owner
    }

    /// A message reaches an owner.
    pub(super) fn owner_hears(&mut self, mail: Mail<OwnerMail>) {
        let now = self.clock();
        let Mail { owner: index, member, link, body } = mail;
        if self.members[member as usize].is_cut {
            return;
        }
        let owner = &mut self.owners[index as usize];
        let is_over = owner.is_over || self.members[owner.process as usize].hangs_until > self.now;
        if is_over || self.members[owner.process as usize].is_dead {
            return;
        }
        if let OwnerMail::Join(promises) = body {
            owner.lane.restore(&promises, now);
            self.end_account(index, member);
            self.owners[index as usize].accounts[member as usize] =
                Some((link, MemberAccount::new(now.mono)));
            self.announce_to(index, member);
            return self.pump_owner(index);
        }
        let Some((known, account)) = &mut owner.accounts[member as usize] else { return };
        if *known != link {
            return;
        }
        account.heard(now.mono);
        let mut is_news = false;
        match body {
            OwnerMail::Want(calls) => account.want(calls),
            OwnerMail::Reports(sent, reports) => {
                for report in reports {
                    match report {
                        CallReport::Settled { grant, came, verdict, hints } => {
                            let held = Mono::from_nanos(sent).since(came);
                            let way =
                                account.round_trip(grant, held, now.mono).filter(|_| member != owner.process);
                            way.into_iter().for_each(|way| owner.ways.note(member, way));
                            is_news |= !verdict.is_answer();
                            match account.give_up(grant) {
                                Some(permit) => owner.lane.settle(permit, &verdict, &hints, now.mono),
                                None => owner.lane.note_answer(&verdict, &hints, now.mono),
                            }
                        }
                        CallReport::Unused(grant) => {
                            if let Some(permit) = account.give_up(grant) {
                                owner.lane.withdraw(permit, now.mono);
                            }
                        }
                        CallReport::Asked(promises) => owner.lane.restore(&promises, now),
                    }
                }
            }
            OwnerMail::Alive | OwnerMail::Join(_) => {}
        }
        if is_news {
            self.announce(index);
        }
        self.enqueue(index, member);
        self.pump_owner(index);
    }

    /// Ends the account of a member: its permits are free.
    pub(super) fn end_account(&mut self, index: u32, member: u32) {
        let now = self.mono();
        let owner = &mut self.owners[index as usize];
        owner.ways.forget(member);
        if let Some((_, mut account)) = owner.accounts[member as usize].take() {
            owner.queued -= account.queued();
            account.take_all().into_iter().for_each(|permit| owner.lane.withdraw(permit, now));
        }
    }

    /// What a member wants waits for its turn, as far as it may.
    fn enqueue(&mut self, index: u32, member: u32) {
        let now = self.mono();
        let owner = &mut self.owners[index as usize];
        let Some((_, account)) = &mut owner.accounts[member as usize] else { return };
        let sharers = owner.turns.sharers() + u32::from(account.queued() == 0);
        let more = account.enqueue(owner.lane.limiter().cap(), sharers, now);
        if more > 0 {
            owner.queued += more;
            owner.turns.join(member);
        }
    }

    /// Gives out the permits that the lane has now.
    pub(super) fn pump_owner(&mut self, index: u32) {
        let now = self.mono();
        loop {
            let owner = &mut self.owners[index as usize];
            if owner.queued == 0 || owner.is_over {
                return;
            }
            let until = match owner.lane.admit(now) {
                Admit::Go(permit) => {
                    let accounts = &owner.accounts;
                    let turn = owner.turns.next(|member| {
                        let waits = accounts[member as usize].as_ref().is_some_and(|(_, a)| a.queued() > 0);
                        if waits { TurnState::Takes } else { TurnState::Idle }
                    });
                    let account =
                        turn.and_then(|member| Some((member, owner.accounts[member as usize].as_mut()?)));
                    let Some((member, (link, account))) = account else {
                        return owner.lane.withdraw(permit, now);
                    };
                    owner.queued -= 1;
                    let named = (member != owner.process).then_some(member);
                    let at = now + owner.ways.delay(named, owner.lane.limiter().rate());
                    let (link, grant) = (*link, account.grant(permit, at));
                    self.write_member(index, member, link, MemberMail::Grant(grant), at);
                    continue;
                }
                Admit::Wait(until) | Admit::Shut(until, _) => Some(until),
                Admit::Full => owner.lane.full_until(now),
            };
            let Some(at) = until.map(|until| until.nanos().max(self.now + 1)) else { return };
            if at < owner.wake {
                owner.wake = at;
                self.queue.push(at, FleetEvent::WakeOwner(index));
            }
            return;
        }
    }

    /// The regular tick of an owner.
    pub(super) fn owner_ticks(&mut self, index: u32) {
        let owner = &self.owners[index as usize];
        let process = &self.members[owner.process as usize];
        if owner.is_over || process.is_dead {
            return;
        }
        self.queue.push(self.now.max(process.hangs_until) + ANNOUNCE_EVERY, FleetEvent::Announce(index));
        if process.hangs_until > self.now {
            return;
        }
        let now = self.mono();
        let owner = &mut self.owners[index as usize];
        for account in owner.accounts.iter_mut().flatten() {
            let before = account.1.queued();
            account.1.take_expired(now).into_iter().for_each(|permit| owner.lane.withdraw(permit, now));
            owner.queued -= before - account.1.queued();
        }
        self.announce(index);
        for member in 0..self.members.len() as u32 {
            self.enqueue(index, member);
        }
        self.pump_owner(index);
    }

    /// Tells all members what the lane knows, if that is new.
    fn announce(&mut self, index: u32) {
        let knows = self.owner_knows(index);
        let owner = &mut self.owners[index as usize];
        if owner.told.is_some_and(|told| self.knowledge[told as usize] == knows) {
            return;
        }
        self.knowledge.push(knows);
        owner.told = Some(self.knowledge.len() as u32 - 1);
        for member in 0..self.members.len() as u32 {
            self.announce_to(index, member);
        }
    }

    fn announce_to(&mut self, index: u32, member: u32) {
        let owner = &self.owners[index as usize];
        if let (Some(told), Some((link, _))) = (owner.told, &owner.accounts[member as usize]) {
            let link = *link;
            self.write_member(index, member, link, MemberMail::Know(told), self.mono());
        }
    }

    fn owner_knows(&self, index: u32) -> FleetKnowledge {
        let now = self.clock();
        let owner = &self.owners[index as usize];
        FleetKnowledge {
            promises: owner.lane.state(now),
            findings: owner.lane.findings(now.mono),
            belief: owner.lane.limiter().belief(),
            members: owner.accounts.iter().flatten().count() as u32,
        }
    }

    fn write_member(&mut self, owner: u32, member: u32, link: u32, body: MemberMail, at: Mono) {
        let at = self.arrival(owner, member, 1, at.nanos());
        let mail = self.to_member.put(Mail { owner, member, link, body });
        self.queue.push(at, FleetEvent::ToMember(mail));
    }

    /// When a message between a member and an owner arrives that is sent at `sent`, in nanoseconds. An owner is a
    /// member of its own. `way` is 0 to the owner and 1 to the member.
    pub(super) fn arrival(&mut self, owner: u32, member: u32, way: usize, sent: u64) -> u64 {
        if self.owners[owner as usize].process == member {
            return sent;
        }
        let at = sent + self.spec.owner_hop.draw(&mut self.rng).as_nanos() as u64;
        let last = &mut self.members[member as usize].arrives[way];
        *last = at.max(*last);
        *last
    }
}
