//! The processes of a fleet, the messages between them, and the events of a run.

use std::collections::VecDeque;

use tidegate_core::call::Call;
use tidegate_core::hint::{HintProfile, Hints};
use tidegate_core::lane::fleet::{MemberAccount, PermitStock, PermitWays, Turns};
use tidegate_core::lane::{Lane, LaneState, LimitFindings, Permit};
use tidegate_core::limit::LimitBelief;
use tidegate_core::{Mono, Rng, Verdict};

use super::FleetSpec;
use super::counts::FleetCounts;
use crate::event_queue::EventQueue;
use crate::trace::TraceHash;
use crate::world::World;
use crate::world::server::Server;

/// One event. Members and owners are named by their index.
#[derive(Clone, Copy, Debug)]
pub(super) enum FleetEvent {
    /// A member's next request.
    Offer(u32),
    /// A message reaches an owner; `.0` is its index in the mail.
    ToOwner(u32),
    /// A message reaches a member; `.0` is its index in the mail.
    ToMember(u32),
    /// A member sends the reports that wait.
    Flush(u32),
    /// A member says that it is alive.
    Alive(u32),
    /// An owner tells what it knows, and takes back permits.
    Announce(u32),
    /// An owner's lane may have a permit again.
    WakeOwner(u32),
    /// A member's lane may let a call go again.
    WakeMember(u32),
    /// A call reaches the server.
    Arrive(u32),
    /// The server has served a call.
    Served,
    /// An answer reaches its member.
    Reply { slot: u32, status: u16, hints: u32 },
    /// A request may be sent once more.
    Retry(u32),
    /// A fault begins.
    FaultBegins(u32),
    /// A fault ends.
    FaultEnds(u32),
}

/// What a member tells the owner.
#[derive(Debug)]
pub(super) enum OwnerMail {
    Join(LaneState),
    Want(u32),
    /// Sent at that time, in nanoseconds.
    Reports(u64, Vec<CallReport>),
    Alive,
}

/// What came of a permit.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few exist at a time, and most are the large one")]
pub(super) enum CallReport {
    Settled {
        grant: u64,
        /// When the permit came to the member.
        came: Mono,
        verdict: Verdict,
        hints: Hints,
    },
    Unused(u64),
    /// What the server asked for, in an answer to a call that an earlier owner had let out.
    Asked(LaneState),
}

/// What an owner tells a member.
#[derive(Debug)]
pub(super) enum MemberMail {
    Grant(u64),
    /// What the lane knows, by its index.
    Know(u32),
}

/// A message on its way. The link is that of the member when it was sent: what belongs to an earlier link is
/// not heard.
#[derive(Debug)]
pub(super) struct Mail<T> {
    pub(super) owner: u32,
    pub(super) member: u32,
    pub(super) link: u32,
    pub(super) body: T,
}

/// Messages on their way, by index.
#[derive(Debug)]
pub(super) struct Mailbag<T> {
    mail: Vec<Option<Mail<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Mailbag<T> {
    fn default() -> Mailbag<T> {
        Mailbag { mail: Vec::new(), free: Vec::new() }
    }
}

impl<T> Mailbag<T> {
    pub(super) fn put(&mut self, mail: Mail<T>) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.mail[index as usize] = Some(mail);
                index
            }
            None => {
                self.mail.push(Some(mail));
                self.mail.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, index: u32) -> Option<Mail<T>> {
        self.free.push(index);
        self.mail.get_mut(index as usize)?.take()
    }
}

/// What an owner's lane knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FleetKnowledge {
    pub(super) promises: LaneState,
    pub(super) findings: LimitFindings,
    pub(super) belief: LimitBelief,
    pub(super) members: u32,
}

/// An owner.
#[derive(Debug)]
pub(super) struct FleetOwner {
    /// The process that it is part of.
    pub(super) process: u32,
    pub(super) lane: Lane,
    /// The accounts of its members, with their links.
    pub(super) accounts: Vec<Option<(u32, MemberAccount<Permit>)>>,
    pub(super) turns: Turns<u32>,
    pub(super) ways: PermitWays<u32>,
    /// The wants of all members that wait for their turn.
    pub(super) queued: u32,
    /// The time of the next wake event, in nanoseconds; `u64::MAX` if there is none.
    pub(super) wake: u64,
    /// The index of what it told last.
    pub(super) told: Option<u32>,
    pub(super) is_over: bool,
}

/// Whom a member asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedOwner {
    /// Nobody: its calls wait.
    Nobody,
    /// This owner.
    Owner(u32),
    /// Itself.
    Itself,
}

/// A process of the fleet.
#[derive(Debug)]
pub(super) struct FleetMember {
    pub(super) asks: AskedOwner,
    /// The number of its connection to an owner.
    pub(super) link: u32,
    pub(super) lane: Lane,
    pub(super) stock: PermitStock<u64>,
    /// Requests ready to be sent, oldest first.
    pub(super) ready: VecDeque<u32>,
    /// The number of requests that have not started.
    pub(super) backlog: u64,
    /// Requests per second, if they come at random times.
    pub(super) rate: Option<f64>,
    pub(super) in_flight: u32,
    pub(super) in_flight_max: u32,
    pub(super) reports: Vec<CallReport>,
    /// The time of the next flush, in nanoseconds; `u64::MAX` if there is none.
    pub(super) flush: u64,
    /// The time of the next wake event, in nanoseconds; `u64::MAX` if there is none.
    pub(super) wake: u64,
    /// When the owner was last heard.
    pub(super) heard: Mono,
    /// When the last message to the owner and the last one from it arrive, in nanoseconds: they keep their order.
    pub(super) arrives: [u64; 2],
    pub(super) knows: Option<FleetKnowledge>,
    /// It cannot reach the owner.
    pub(super) is_cut: bool,
    /// It stands still until then, in nanoseconds.
    pub(super) hangs_until: u64,
    pub(super) is_dead: bool,
    /// The earliest time of a call that the server has asked this process for, in nanoseconds.
    pub(super) not_before: u64,
}

/// A request.
#[derive(Debug, Default)]
pub(super) struct FleetSlot {
    pub(super) call: Call,
    pub(super) member: u32,
    /// The permit of the member's own lane.
    pub(super) permit: Option<Permit>,
    /// The permit of the owner, and when it came.
    pub(super) grant: Option<(u64, Mono)>,
    /// The member's link when it was sent.
    pub(super) link: u32,
}

/// A run.
pub(super) struct FleetState<'a> {
    pub(super) world: &'a World,
    pub(super) spec: &'a FleetSpec,
    pub(super) queue: EventQueue<FleetEvent>,
    pub(super) rng: Rng,
    pub(super) server: Server,
    pub(super) profile: HintProfile,
    pub(super) owners: Vec<FleetOwner>,
    pub(super) members: Vec<FleetMember>,
    pub(super) to_owner: Mailbag<OwnerMail>,
    pub(super) to_member: Mailbag<MemberMail>,
    pub(super) knowledge: Vec<FleetKnowledge>,
    pub(super) slots: Vec<FleetSlot>,
    pub(super) free: Vec<u32>,
    pub(super) hints: Vec<Hints>,
    pub(super) hints_free: Vec<u32>,
    pub(super) counts: FleetCounts,
    pub(super) trace: TraceHash,
    pub(super) events: u64,
    /// The simulated time, in nanoseconds from the start.
    pub(super) now: u64,
}
