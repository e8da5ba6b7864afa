//! How the owner of one lane is found at the server of a fleet, or made.

use super::backend::LeaseKey;
use super::frame::FrameHead;
use super::lease::Lease;
use super::link::{FleetLink, random_name};
use super::{Fleet, LEASE, WhenUnreachable, thread};
use crate::lane::share::meeting_place::{LaneListener, LaneStream, OwnerSearch, Ownership};
use crate::lane::share::member::greet;
use crate::lane::share::wire::LaneCheckpoint;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a new member waits for the owner's first word before it looks once more.
const HELLO_MAX: Duration = Duration::from_secs(1);
/// The pause before the owner is looked for once more.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an owner may hold a lane without a word.
const SEARCH_MAX: Duration = Duration::from_secs(15);

/// The place of one lane at the server of a fleet.
#[derive(Clone)]
pub(in crate::lane) struct FleetPlace {
    fleet: Fleet,
    lane: String,
}

impl FleetPlace {
    pub(in super::super) fn new(fleet: &Fleet, id: &str) -> FleetPlace {
        FleetPlace { fleet: fleet.clone(), lane: id.to_owned() }
    }

    /// The server, for messages.
    pub(in super::super) fn server(&self) -> &str {
        self.fleet.server()
    }

    pub(in super::super) fn when_unreachable(&self) -> WhenUnreachable {
        self.fleet.when_unreachable()
    }

    /// Finds the owner, or becomes it.
    pub(in super::super) async fn find(&self) -> io::Result<OwnerSearch> {
        let end = Instant::now() + SEARCH_MAX;
        while Instant::now() < end {
            let link = self.fleet.link().await?;
            let asked = Instant::now();
            let claim = link.claim(&self.lane).await?;
            if claim.is_new {
                let newcomers = link.own(&self.lane, claim.epoch);
                let key = LeaseKey { lane: self.lane.clone(), owner: claim.owner, epoch: claim.epoch };
                let listener = FleetListener { link: link.clone(), key: key.clone(), newcomers };
                return Ok(OwnerSearch::Owned(Box::new(Ownership {
                    listener: LaneListener::Fleet(listener),
                    lease: Some(Lease::new(link, key, asked)),
                    // One that cannot be read is of another version.
                    checkpoint: claim
                        .checkpoint
                        .and_then(|text| serde_json::from_str::<LaneCheckpoint>(&text).ok()),
                })));
            }
            let head = FrameHead {
                lane: self.lane.clone(),
                epoch: claim.epoch,
                thread: random_name()?,
                from: link.inbox.clone(),
                to_owner: true,
                seq: 0,
                at_ms: 0,
                end: false,
            };
            match greet(thread::open(&link, head, claim.owner, false), HELLO_MAX, LEASE).await {
                Ok(Some(owner)) => return Ok(OwnerSearch::Found(owner)),
                // The owner is gone, or about to go: its lease ends.
                Ok(None) => {}
                Err(why) if why.kind() == io::ErrorKind::TimedOut => {}
                Err(why) => return Err(why),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the process that owns the lane does not answer"))
    }
}

/// Where members come in, until it is dropped.
pub(in super::super) struct FleetListener {
    link: Arc<FleetLink>,
    key: LeaseKey,
    newcomers: mpsc::Receiver<LaneStream>,
}

impl FleetListener {
    pub(in super::super) async fn accept(&mut self) -> io::Result<LaneStream> {
        match self.newcomers.recv().await {
            Some(stream) => Ok(stream),
            // The connection is lost; the lease ends with it.
            None => std::future::pending().await,
        }
    }
}

impl Drop for FleetListener {
    fn drop(&mut self) {
        self.link.disown(&self.key.lane, self.key.epoch);
    }
}
