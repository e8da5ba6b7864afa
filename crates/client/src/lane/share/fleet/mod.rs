//! Machines that share lanes meet at a server that they all reach: Redis, PostgreSQL or NATS.
//!
//! The server holds who owns each lane, until when, and the number of that ownership, its epoch. It also
//! carries what owner and members tell each other, because machines of a fleet can often not connect to
//! one another. It decides nothing: the owner runs the lane, as on one machine.
//!
//! | file | holds |
//! |---|---|
//! | `address` | where the server is, and the files for TLS |
//! | `backend` | what a server has to do: leases and messages |
//! | `redis`, `postgres`, `nats` | the three that do it |
//! | `link` | the connection of this process to the server: one inbox, one connection for all lanes |
//! | `frame` | a message, with the lane, the epoch and its number |
//! | `thread` | a stream of bytes between owner and member, carried in frames |
//! | `lease` | the right to own a lane for three seconds, and its renewal |
//! | `place` | how the owner of one lane is found, or made |
//!
//! # Two owners
//!
//! An owner stops by its own clock when its lease ends, counted from before it was asked for; the server
//! gives the lane to another no earlier. Frames carry the epoch: an owner that was stopped and wakes up
//! talks to nobody, cannot renew, and its checkpoint is refused. A frame that is missing, or that came
//! [`LATE_MAX`] late, ends its thread, so that no permit is used long after it was given.

mod address;
mod backend;
mod frame;
mod lease;
mod link;
#[cfg(feature = "nats")]
mod nats;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod thread;

pub(super) use lease::Lease;
pub(super) use place::{FleetListener, FleetPlace};

use super::wire::LaneCheckpoint;
use crate::lane::StoredLane;
use crate::secret::Secret;
use address::ServerAddress;
use backend::KnownLane;
use link::FleetLink;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long an ownership lasts unless it is renewed.
const LEASE: Duration = Duration::from_secs(3);
/// The interval at which it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long one answer of the server may take.
const REPLY_MAX: Duration = Duration::from_secs(2);
/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A frame that is so much later than others is not used.
const LATE_MAX: Duration = Duration::from_secs(2);
/// How long what an owner has left is kept.
const CHECKPOINT_KEPT: Duration = Duration::from_secs(8 * 86_400);

/// What a process does while it cannot reach the server of its fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnreachable {
    /// It sends nothing until the server is back.
    #[default]
    Stop,
    /// It sends its share of the last known rate. A process that knows none sends nothing.
    Share,
}

/// The server at which the machines of a fleet share lanes. Clones share one connection to it.
#[derive(Clone)]
pub struct Fleet(Arc<FleetInner>);

struct FleetInner {
    address: ServerAddress,
    when_unreachable: WhenUnreachable,
    link: tokio::sync::Mutex<Option<Arc<FleetLink>>>,
}

impl Fleet {
    /// The fleet that meets at a URL: `redis://`, `rediss://`, `postgres://`, `nats://` or `tls://` (NATS).
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// When the URL cannot be used, or this build cannot talk to such a server. The error does not quote
    /// the URL, because it may contain a password.
    pub fn new(url: &Secret, when_unreachable: WhenUnreachable) -> Result<Fleet, String> {
        let address = ServerAddress::parse(url.reveal())?;
        address.kind.present().map_err(|missing| missing.to_string())?;
        Ok(Fleet(Arc::new(FleetInner { address, when_unreachable, link: tokio::sync::Mutex::default() })))
    }

    /// The server without user and password, for messages.
    #[must_use]
    pub fn server(&self) -> &str {
        self.0.address.shown()
    }

    pub(super) fn when_unreachable(&self) -> WhenUnreachable {
        self.0.when_unreachable
    }

    /// The connection to the server; a new one if the last one is lost.
    async fn link(&self) -> io::Result<Arc<FleetLink>> {
        let mut held = self.0.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        *held = None;
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let link = timeout(CONNECT_MAX, FleetLink::connect(&self.0.address)).await.map_err(|_| slow())??;
        Ok(held.insert(link).clone())
    }

    /// The lanes that the server knows, by their ids.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn stored(&self) -> io::Result<Vec<StoredLane>> {
        let known = self.link().await?.lanes().await?;
        let of = |known: KnownLane| {
            // What another version has left cannot be read; the lane is listed all the same.
            let left = known.checkpoint.and_then(|text| serde_json::from_str::<LaneCheckpoint>(&text).ok());
            StoredLane::of_fleet(known.lane, left.as_ref().map(|left| &left.knowledge), known.is_owned)
        };
        let mut all: Vec<StoredLane> = known.into_iter().map(of).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Forgets what owners have left of lanes: those of a host, or all. Returns those that were forgotten.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn clear_stored(&self, host: Option<&str>) -> io::Result<Vec<StoredLane>> {
        let link = self.link().await?;
        let mut cleared = self.stored().await?;
        cleared.retain(|lane| host.is_none_or(|host| lane.is_of(host)));
        for lane in &cleared {
            link.forget_lane(&lane.id).await?;
        }
        Ok(cleared)
    }

    /// Waits until what was said last to others is sent, but not for long.
    pub(in super::super) async fn settle(&self) {
        let link = self.0.link.lock().await.clone();
        if let Some(link) = link {
            link.drained().await;
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fleet({})", self.server())
    }
}

impl PartialEq for Fleet {
    fn eq(&self, other: &Fleet) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Fleet {}

/// What tests of a fleet do to its server.
#[cfg(test)]
pub(super) mod testing {
    use super::Fleet;
    use super::backend::LeaseKey;
    use crate::lane::Lanes;
    use std::io;

    /// What came of taking a lane from its owner.
    #[derive(Debug)]
    pub(in super::super) struct TakenLane {
        pub(in super::super) epoch_before: u64,
        pub(in super::super) epoch: u64,
        /// Whether the owner before could renew.
        pub(in super::super) renewed_before: bool,
        /// Whether the new one could.
        pub(in super::super) renewed: bool,
    }

    /// Takes a lane from its owner.
    pub(in super::super) async fn take(fleet: &Fleet, lane: &str) -> io::Result<TakenLane> {
        let link = fleet.link().await?;
        let before = link.claim(lane).await?;
        assert!(!before.is_new, "nobody owns the lane");
        let key = |owner, epoch| LeaseKey { lane: lane.to_owned(), owner, epoch };
        let old = key(before.owner, before.epoch);
        link.resign(&old).await?;
        let claim = link.claim(lane).await?;
        assert!(claim.is_new, "it was given to somebody else");
        let new = key(claim.owner, claim.epoch);
        let renewed_before = link.renew(&old, Some("x")).await?;
        let renewed = link.renew(&new, None).await?;
        let (epoch_before, epoch) = (before.epoch, claim.epoch);
        Ok(TakenLane { epoch_before, epoch, renewed_before, renewed })
    }

    /// The inbox of who owns a lane, perhaps from now on.
    pub(in super::super) async fn owner(fleet: &Fleet, lane: &str) -> io::Result<String> {
        Ok(fleet.link().await?.claim(lane).await?.owner)
    }

    /// The inbox of these lanes.
    pub(in super::super) async fn inbox(lanes: &Lanes) -> Option<String> {
        let crate::lane::LaneScope::Fleet(fleet) = lanes.scope() else { return None };
        Some(fleet.link().await.ok()?.inbox.clone())
    }
}
