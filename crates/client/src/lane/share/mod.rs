//! One lane for all processes of a machine, or of a fleet of machines.
//!
//! A server counts the calls of a machine or of a key, not those of a process. So processes that call the
//! same host with the same credential share one lane. The first of them, the owner, runs the lane of the
//! core as if it were alone. The others are members: they ask it for a permit before each call and report
//! what came of it. A member keeps its own breaker, budget and promises, and tells its own records what
//! to do.
//!
//! Processes of one user on one machine meet at a Unix socket that the owner listens on (`socket`); there
//! is no server to set up. Machines meet at a server (`fleet`). What they tell each other is the same
//! (`wire`), and what they decide is in [`tidegate_core::lane::fleet`]. When the owner ends, one of the
//! members takes over, a little below the last known rate. A member that is silent for a moment loses its
//! permits, so a process that was stopped does not hold the others up. When an owner hangs, its members on
//! the same machine go on alone and say so; in a fleet they stop or go on at their share until they find an
//! owner.
//!
//! | mode | who decides when a call may go |
//! |---|---|
//! | `Alone` | its own lane; nobody else is asked |
//! | `Joining` | nobody yet: calls wait until the owner is known |
//! | `Owner` | its own lane, for its members too |
//! | `Member` | the owner's lane |
//! | `Apart` | its own lane, at its share of the last known rate: the server of the fleet is unreachable |

#[cfg_attr(
    not(all(feature = "nats", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "a part of it is for the servers that are left out")
)]
mod fleet;
mod join;
mod meeting_place;
mod member;
mod owner;
mod socket;
mod wire;

pub use fleet::{Fleet, WhenUnreachable};
pub(super) use join::start;
pub(super) use meeting_place::MeetingPlace;
pub(super) use member::Membership;
pub(super) use wire::{HintRecord, LaneKnowledge, ToOwner, VerdictRecord};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::lane::fleet::{ALIVE_EVERY, SILENT_MAX};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How long a new member waits for the owner's first word.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// The pause before a process looks for the owner once more.
const JOIN_PAUSE: Duration = Duration::from_millis(5);
/// How often it looks before it goes on alone.
const JOIN_ATTEMPTS: u32 = 200;

/// Who shares a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LaneScope {
    /// All calls of one process.
    #[default]
    Process,
    /// All processes of one user on one machine. They meet in this directory, or where the system keeps
    /// such things.
    Machine(Option<PathBuf>),
    /// All processes on all machines that meet at this server.
    Fleet(Fleet),
}

/// What a process is to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneRole {
    /// It does not share the lane, or does not know yet with whom.
    Alone,
    /// It runs the lane for itself and so many others.
    Owner {
        /// The number of members.
        members: u32,
    },
    /// It asks the owner.
    Member,
}

impl LaneRole {
    /// The names of all roles.
    pub const NAMES: [&str; 3] = ["alone", "owner", "member"];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LaneRole::Alone => "alone",
            LaneRole::Owner { .. } => "owner",
            LaneRole::Member => "member",
        }
    }
}

/// How a lane is shared now.
pub(super) enum ShareMode {
    /// It is not.
    Alone,
    /// Not known yet; started by the first call.
    Unjoined,
    /// The owner is being looked for.
    Joining,
    /// This process is the owner.
    Owner(OwnerTask),
    /// Another process is the owner.
    Member(Box<Membership>),
    /// Nobody can be asked; it goes on at its share.
    Apart,
}

/// The task that serves members. It ends with the lane.
pub(super) struct OwnerTask {
    /// `None` if it ends by itself, because it has something to say to a server.
    task: Option<AbortHandle>,
    /// Dropped with the lane, which ends the task.
    _stop: oneshot::Sender<()>,
    pub(super) members: u32,
    /// How long the process owns the lane; `None` if until it ends.
    lease: Option<Arc<fleet::Lease>>,
}

impl OwnerTask {
    /// Whether the process is the owner at this moment.
    pub(super) fn is_held(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.is_held())
    }
}

impl Drop for OwnerTask {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
