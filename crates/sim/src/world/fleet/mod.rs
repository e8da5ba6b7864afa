//! Many processes that share one lane: the owner of the lane, its members, and what happens to them.
//!
//! A world with a `fleet` section runs here. Each client is a process with its own workers and a lane that
//! follows; one of them is the owner and runs the lane that learns. What they decide is the core's
//! ([`tidegate_core::lane::fleet`]) and runs in the client too. The rest is simulated: messages that take time
//! and get lost, reports that wait for company, processes that are killed or stand still.
//!
//! | file | holds |
//! |---|---|
//! | `state` | the processes, the messages, the events |
//! | `event_loop` | the run: workload, network, server |
//! | `owner` | what an owner does with messages, and its turns |
//! | `member` | what a member does with permits, calls and answers |
//! | `faults` | owners killed, partitions, processes that stand still, two owners |
//! | `counts` | what is measured |

mod counts;
mod event_loop;
mod faults;
mod member;
mod owner;
mod state;

use serde::Deserialize;

use crate::distribution::RandomDuration;

pub use counts::FleetCounts;
pub use event_loop::{FleetRun, run};

/// The fleet section of a world. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct FleetSpec {
    /// Whether the processes share the lane; if not, each has one that learns by itself.
    pub shared: bool,
    /// The time of a message between a member and the owner, one way.
    pub owner_hop: RandomDuration,
    /// How long a report waits for others, at most.
    pub report_every: f64,
    /// What a member does that cannot reach an owner.
    pub without_owner: WithoutOwnerSpec,
    /// The demand of some members; the others have that of the workload.
    pub demand: Vec<MemberDemandSpec>,
    /// What happens to the fleet.
    pub faults: Vec<FleetFault>,
}

impl Default for FleetSpec {
    fn default() -> FleetSpec {
        FleetSpec {
            shared: true,
            owner_hop: RandomDuration::default(),
            report_every: 0.0,
            without_owner: WithoutOwnerSpec::Stop,
            demand: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// What a member does that cannot reach an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutOwnerSpec {
    /// It waits.
    #[default]
    Stop,
    /// It goes on with its share.
    Share,
}

/// The demand of the next members, counted from the last one backwards.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct MemberDemandSpec {
    /// The number of members.
    pub members: u32,
    /// Requests per second of each, at random times; those of the workload by default.
    pub rate: Option<f64>,
    /// The most calls of each at once; as the client section says by default.
    pub in_flight_max: Option<u32>,
}

/// What happens to a fleet. Members are counted from the last one backwards; the first is the first owner.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FleetFault {
    /// The owner is killed, and another process becomes the owner later.
    OwnerKilled {
        /// When.
        at: f64,
        /// How much later another is the owner.
        successor_after: f64,
    },
    /// Members cannot reach the owner. They reach the server.
    Partition {
        /// The start.
        from: f64,
        /// The end.
        until: f64,
        /// The number of members.
        members: u32,
    },
    /// Members stand still with the permits that they have, and go on later.
    Hang {
        /// The start.
        from: f64,
        /// The end.
        until: f64,
        /// The number of members.
        members: u32,
    },
    /// Members find another owner while the first one goes on with the others for a time.
    TwoOwners {
        /// The start.
        from: f64,
        /// The end: the first owner and its members follow the other one.
        until: f64,
        /// The number of members of the new owner.
        members: u32,
    },
}

impl FleetSpec {
    /// The reason why it is invalid for so many members, if it is.
    #[must_use]
    pub fn flaw(&self, members: u32) -> Option<&'static str> {
        let time = |x: f64| (0.0..=1e9).contains(&x);
        let some = |count: u32| count > 0 && count < members;
        if !time(self.report_every) {
            return Some("`report_every` must lie between 0 and 1e9 seconds");
        }
        let asked: u64 = self.demand.iter().map(|demand| u64::from(demand.members)).sum();
        let rates = self.demand.iter().all(|demand| demand.rate.is_none_or(|rate| rate > 0.0 && rate <= 1e9));
        let calls = self.demand.iter().all(|demand| demand.in_flight_max != Some(0));
        if asked > u64::from(members) || !rates || !calls {
            return Some("`demand` needs numbers above 0, and no more members than there are `clients`");
        }
        let ok = self.faults.iter().all(|fault| match *fault {
            FleetFault::OwnerKilled { at, successor_after } => {
                time(at) && time(successor_after) && members > 1
            }
            FleetFault::Partition { from, until, members: count }
            | FleetFault::Hang { from, until, members: count }
            | FleetFault::TwoOwners { from, until, members: count } => {
                time(from) && time(until) && from < until && some(count)
            }
        });
        (!ok).then_some("a fault needs times that rise, and at least one member but not all of them")
    }
}
