//! What a member does: it asks for permits, makes its calls, and reports what came of them.

use tidegate_core::call::{Call, Next};
use tidegate_core::hint::Hints;
use tidegate_core::lane::fleet::{self, MemberDemand};
use tidegate_core::lane::{Admit, Lane, LaneConfig, LaneState};
use tidegate_core::time::seconds;
use tidegate_core::{Mono, Verdict};

use super::WithoutOwnerSpec;
use super::state::{AskedOwner, CallReport, FleetEvent, FleetSlot, FleetState, Mail, MemberMail, OwnerMail};
use tidegate_core::breaker::BreakerState;

impl FleetState<'_> {
    /// A member begins to ask an owner, or nobody, or itself. What it had of an owner before is void.
    pub(super) fn ask(&mut self, member: u32, asks: AskedOwner) {
        let now = self.clock();
        let mut config = self.world.policy.lane;
        let process = &mut self.members[member as usize];
        config.limit.in_flight_max = process.in_flight_max;
        match (asks, process.knows.filter(|_| self.spec.shared)) {
            (AskedOwner::Itself, Some(knows)) => {
                config.limit = fleet::alone_share(config.limit, &knows.belief, knows.members);
            }
            (AskedOwner::Itself, None) => {}
            _ => (config.limit.learn, config.limit.rate_max) = (false, None),
        }
        (process.asks, process.stock) = (asks, fleet::PermitStock::default());
        process.link += 1;
        process.reports.clear();
        process.heard = now.mono;
        let promises = process.renew(&config, now);
        if let AskedOwner::Owner(owner) = asks {
            self.write_owner(owner, member, OwnerMail::Join(promises));
        }
        self.pump_member(member);
    }

    /// A message reaches a member.
    pub(super) fn member_hears(&mut self, mail: Mail<MemberMail>) {
        let now = self.clock();
        let process = &mut self.members[mail.member as usize];
        if process.is_dead || process.is_cut || process.hangs_until > self.now || process.link != mail.link {
            return;
        }
        process.heard = now.mono;
        match mail.body {
            MemberMail::Grant(grant) => process.stock.granted(grant, now.mono),
            MemberMail::Know(index) => {
                let knows = self.knowledge[index as usize];
                process.lane.restore(&knows.promises, now);
                process.lane.follow(knows.findings);
                process.knows = Some(knows);
            }
        }
        self.pump_member(mail.member);
    }

    /// Lets the calls go that may go, and asks for what the others need.
    pub(super) fn pump_member(&mut self, member: u32) {
        let now = self.mono();
        let process = &mut self.members[member as usize];
        if process.is_dead || process.hangs_until > self.now || process.asks == AskedOwner::Nobody {
            return;
        }
        for grant in process.stock.expired(now) {
            self.report(member, CallReport::Unused(grant), now);
        }
        let (mut own_wait, mut is_full) = (None, false);
        loop {
            let process = &mut self.members[member as usize];
            let asks_owner = process.asks != AskedOwner::Itself;
            if process.waiting() == 0 || (asks_owner && !process.stock.has_permit()) {
                break;
            }
            if process.in_flight >= process.in_flight_max {
                is_full = true;
                break;
            }
            match process.lane.admit(now) {
                Admit::Go(permit) => {
                    let grant = if asks_owner { process.stock.take() } else { None };
                    self.counts.early += u64::from(self.now < self.members[member as usize].not_before);
                    let slot = self.next_request(member);
                    let link = self.members[member as usize].link;
                    let request = &mut self.slots[slot as usize];
                    (request.permit, request.grant, request.link) = (Some(permit), grant, link);
                    self.send(slot);
                }
                Admit::Wait(until) | Admit::Shut(until, _) => {
                    own_wait = Some(until);
                    break;
                }
                Admit::Full => {
                    is_full = process.in_flight > 0;
                    own_wait = process.lane.full_until(now).filter(|_| !is_full);
                    break;
                }
            }
        }
        self.want(member, own_wait, is_full);
    }

    fn want(&mut self, member: u32, own_wait: Option<Mono>, is_full: bool) {
        let now = self.mono();
        let process = &mut self.members[member as usize];
        let reading = process.lane.reading(now);
        let open = matches!(reading.breaker, BreakerState::Open(until) if until > now);
        let promised = reading.quota_until.max(reading.hint_until);
        let demand = MemberDemand {
            waiting: usize::try_from(process.waiting()).unwrap_or(usize::MAX),
            room: process.in_flight_max.saturating_sub(process.in_flight),
            burst: None,
            is_held: promised > now || open,
            own_wait: own_wait.map(|until| until.since(now)),
            is_full,
        };
        let due = own_wait.or_else(|| demand.is_held.then_some(promised)).filter(|until| *until > now);
        if let Some(at) = due.map(Mono::nanos).filter(|at| *at < process.wake) {
            process.wake = at;
            self.queue.push(at, FleetEvent::WakeMember(member));
        }
        let AskedOwner::Owner(owner) = process.asks else { return };
        let unused = if demand.holds_stock() { Vec::new() } else { process.stock.release() };
        let calls = process.stock.want(demand.wants());
        for grant in unused {
            self.report(member, CallReport::Unused(grant), now);
        }
        if calls > 0 {
            self.write_owner(owner, member, OwnerMail::Want(calls));
        }
    }

    /// The next request of a member: one that is ready, or a new one.
    fn next_request(&mut self, member: u32) -> u32 {
        let now = self.mono();
        let process = &mut self.members[member as usize];
        if let Some(slot) = process.ready.pop_front() {
            return slot;
        }
        process.backlog = process.backlog.saturating_sub(1);
        process.lane.start(now);
        self.counts.offered(member);
        self.new_slot(member)
    }

    pub(super) fn new_slot(&mut self, member: u32) -> u32 {
        let slot = FleetSlot { call: Call::new(), member, ..FleetSlot::default() };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// An answer came to a request.
    pub(super) fn settle(&mut self, slot: u32, verdict: &Verdict, hints: &Hints) {
        let now = self.clock();
        let request = &mut self.slots[slot as usize];
        let (member, link, grant) = (request.member, request.link, request.grant.take());
        let permit = request.permit.take();
        let process = &mut self.members[member as usize];
        process.in_flight -= 1;
        process.not_before = process.not_before.max(verdict.until().map_or(0, Mono::nanos));
        let mut report = None;
        if let Some(permit) = permit.filter(|_| link == process.link) {
            process.lane.settle(permit, verdict, hints, now.mono);
            report = grant.map(|(grant, came)| CallReport::Settled {
                grant,
                came,
                verdict: *verdict,
                hints: *hints,
            });
        } else if !verdict.is_answer() {
            process.lane.note_answer(verdict, hints, now.mono);
            report = Some(CallReport::Asked(process.lane.state(now)));
        }
        let policy = &self.world.policy.call;
        let request = &mut self.slots[slot as usize];
        let next = process.lane.next(&mut request.call, policy, verdict, now.mono, &mut self.rng);
        if let Some(report) = report {
            self.report(member, report, now.mono + seconds(self.spec.report_every));
        }
        match next {
            Next::RetryAt(at) => self.queue.push(at.nanos(), FleetEvent::Retry(slot)),
            Next::Accept => {
                self.counts.done += 1;
                self.free.push(slot);
            }
            Next::GiveUp(_) | Next::Park(..) => {
                self.counts.dead += 1;
                self.free.push(slot);
            }
        }
        self.pump_member(member);
    }

    /// Tells the owner by `by` what came of a permit.
    fn report(&mut self, member: u32, report: CallReport, by: Mono) {
        let AskedOwner::Owner(owner) = self.members[member as usize].asks else { return };
        let is_own = self.owners[owner as usize].process == member;
        let process = &mut self.members[member as usize];
        process.reports.push(report);
        let by = if is_own { self.now } else { by.nanos().max(self.now) };
        if by < process.flush {
            process.flush = by;
            self.queue.push(by, FleetEvent::Flush(member));
        }
    }

    /// Sends the reports that wait.
    pub(super) fn flush(&mut self, member: u32) {
        let process = &mut self.members[member as usize];
        if process.flush != self.now {
            return;
        }
        process.flush = u64::MAX;
        let reports = std::mem::take(&mut process.reports);
        let silent = process.is_dead || process.hangs_until > self.now;
        if let (AskedOwner::Owner(owner), false) = (process.asks, silent || reports.is_empty()) {
            self.write_owner(owner, member, OwnerMail::Reports(self.now, reports));
        }
    }

    /// The regular tick of a member.
    pub(super) fn member_ticks(&mut self, member: u32) {
        let now = self.mono();
        let process = &self.members[member as usize];
        if process.is_dead {
            return;
        }
        let every = fleet::ALIVE_EVERY.as_nanos() as u64;
        self.queue.push(self.now.max(process.hangs_until) + every, FleetEvent::Alive(member));
        let AskedOwner::Owner(owner) = process.asks else { return };
        if process.hangs_until > self.now {
            return;
        }
        let is_own = self.owners[owner as usize].process == member;
        if !is_own && now.since(process.heard) > fleet::SILENT_MAX && process.is_cut {
            return self.ask(member, self.without_owner());
        }
        self.write_owner(owner, member, OwnerMail::Alive);
        self.pump_member(member);
    }

    pub(super) const fn without_owner(&self) -> AskedOwner {
        match self.spec.without_owner {
            WithoutOwnerSpec::Stop => AskedOwner::Nobody,
            WithoutOwnerSpec::Share => AskedOwner::Itself,
        }
    }

    fn write_owner(&mut self, owner: u32, member: u32, body: OwnerMail) {
        let at = self.arrival(owner, member, 0, self.now);
        let link = self.members[member as usize].link;
        let mail = self.to_owner.put(Mail { owner, member, link, body });
        self.queue.push(at, FleetEvent::ToOwner(mail));
    }
}

impl super::state::FleetMember {
    /// Requests that wait for a permit.
    pub(super) fn waiting(&self) -> u64 {
        self.ready.len() as u64 + self.backlog
    }

    /// Begins with a new lane that keeps what the server asked for. Says what that is.
    fn renew(&mut self, config: &LaneConfig, now: tidegate_core::Now) -> LaneState {
        let promises = self.lane.state(now);
        self.lane = Lane::new(config);
        self.lane.restore(&promises, now);
        promises
    }
}
