//! One lane for all processes of a machine.
//!
//! A server counts the calls of a machine or of a key, not those of a process. So processes of one user
//! that call the same host with the same credential share one lane. The first of them, the owner, runs
//! the lane of the core as if it were alone. The others are members: they ask it for a permit before each
//! call and report what came of it. A member keeps its own breaker, budget and promises, and tells its
//! own records what to do.
//!
//! They meet at a Unix socket that the owner listens on (`meeting_place`). There is no server to set up. When the
//! owner ends, one of the members takes over, a little below the last known rate; when an owner hangs, its
//! members go on alone and say so. A member that is silent for a moment loses its permits, so a process
//! that was stopped does not hold the others up. What they decide is in [`tidegate_core::lane::fleet`].
//!
//! | mode | who decides when a call may go |
//! |---|---|
//! | `Alone` | its own lane; nobody else is asked |
//! | `Joining` | nobody yet: calls wait until the owner is known |
//! | `Owner` | its own lane, for its members too |
//! | `Member` | the owner's lane |

mod meeting_place;
mod member;
mod owner;
mod wire;

pub(super) use meeting_place::MeetingPlace;
pub(super) use member::Membership;
pub(super) use wire::{HintRecord, ToOwner, VerdictRecord};

use super::LaneHandle;
use super::states::LaneStateRecord;
use meeting_place::{LaneListener, Ownership};
use member::OwnerStream;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tidegate_core::lane::LaneState;
use tidegate_core::lane::fleet::{ALIVE_EVERY, SILENT_MAX};
use tidegate_core::limit::LimitBelief;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

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
}

/// The task that serves members. It ends with the lane.
pub(super) struct OwnerTask {
    task: AbortHandle,
    pub(super) members: u32,
}

impl Drop for OwnerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks for the owner of a lane, then lets its calls go. `last` is what the owner before believed of the
/// limit.
pub(super) fn start(lane: LaneHandle, last: Option<LimitBelief>) {
    // Boxed, because a member whose owner ends joins once more.
    let joined: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(join(lane, last));
    drop(tokio::spawn(joined));
}

async fn join(lane: LaneHandle, last: Option<LimitBelief>) {
    let Some(place) = lane.0.place.clone() else { return };
    if last.is_some() {
        // An owner that is about to end says no more than its name.
        tokio::time::sleep(JOIN_PAUSE).await;
    }
    let found = find(&place).await;
    let mut state = lane.lock();
    if state.closed {
        return;
    }
    let now = lane.0.clock.now();
    let mut config = lane.0.config;
    let mut asked = None;
    match found {
        Ok(OwnerSearch::Found(stream)) => {
            // The owner's limiter learns, and paces by its own rate for all.
            config.limit.learn = false;
            if stream.rate_max.is_some_and(|all| config.limit.rate_max.is_none_or(|own| own >= all)) {
                config.limit.rate_max = None;
            }
            let promises = state.core.state(now);
            asked = (promises != LaneState::default()).then_some(promises);
            state.mode = ShareMode::Member(Box::new(member::start(&lane, stream)));
        }
        Ok(OwnerSearch::Owned(listener, ownership)) => {
            state.mode = ShareMode::Owner(owner::start(&lane, listener, ownership));
        }
        Err(why) => {
            warn!(
                target: "tidegate::share",
                host = lane.0.key.host(),
                "this process does not share its limit with others on this machine: {why}"
            );
            state.mode = ShareMode::Alone;
        }
    }
    let follows = matches!(state.mode, ShareMode::Member(_));
    if follows || last.is_some() {
        state.renew(&config, now);
    }
    if let Some(belief) = last.filter(|_| !follows) {
        state.core.succeed(&belief, now.mono);
    }
    if last.is_some() {
        state.core.spend_burst(now.mono);
        state.counts.owner_changes += 1;
    }
    if let (Some(asked), ShareMode::Member(membership)) = (asked, &state.mode) {
        membership.say(ToOwner::Asked(Box::new(LaneStateRecord::of("", &asked))));
    }
    let role = state.role().as_str();
    debug!(target: "tidegate::share", host = lane.0.key.host(), role, "the lane is shared on this machine");
    lane.pump(&mut state, now.mono);
}

/// What came of looking for the owner.
enum OwnerSearch {
    /// There is one.
    Found(OwnerStream),
    /// There was none, and now it is this process.
    Owned(LaneListener, Ownership),
}

/// Finds the owner, or becomes it.
async fn find(place: &MeetingPlace) -> io::Result<OwnerSearch> {
    for _ in 0..JOIN_ATTEMPTS {
        match place.connect().await {
            // Whoever has the socket may be about to end: then it is looked for anew.
            Ok(stream) => {
                if let Some(stream) = member::greet(stream).await? {
                    return Ok(OwnerSearch::Found(stream));
                }
            }
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Err(why),
            Err(_) => {
                if let Some((listener, ownership)) = place.try_own()? {
                    return Ok(OwnerSearch::Owned(listener, ownership));
                }
            }
        }
        tokio::time::sleep(JOIN_PAUSE).await;
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the process that owns the lane does not answer"))
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
