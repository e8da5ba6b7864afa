//! Where those who share a lane meet: at a socket of their machine, or at a server of their fleet.
//!
//! Both places do the same: they make one process the owner, and give every other one a stream of bytes to
//! it. What is said on that stream is the same everywhere (`wire`).

use super::fleet::{FleetListener, FleetPlace, Lease};
use super::member::{OwnerStream, greet};
use super::socket::{SocketListener, SocketLock, SocketPlace};
use super::wire::LaneCheckpoint;
use super::{Fleet, HELLO_MAX, JOIN_ATTEMPTS, JOIN_PAUSE, SILENT_MAX};
use std::io;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};

/// The meeting place of one lane.
#[derive(Clone)]
pub(in super::super) enum MeetingPlace {
    Socket(SocketPlace),
    Fleet(FleetPlace),
}

/// What came of looking for the owner.
pub(super) enum OwnerSearch {
    /// There is one.
    Found(OwnerStream),
    /// There was none, and now it is this process.
    Owned(Box<Ownership>),
}

/// The right to own a lane, until it is dropped.
pub(super) struct Ownership {
    pub(super) listener: LaneListener,
    /// How long the right lasts; `None` if until the process ends.
    pub(super) lease: Option<Lease>,
    /// What the owner before has left.
    pub(super) checkpoint: Option<LaneCheckpoint>,
}

/// A stream of bytes in both directions.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The connection between an owner and one member.
pub(super) type LaneStream = Box<dyn ByteStream>;

/// Where members of a lane come in.
pub(super) enum LaneListener {
    Socket { listener: SocketListener, _lock: SocketLock },
    Fleet(FleetListener),
}

impl LaneListener {
    pub(super) async fn accept(&mut self) -> io::Result<LaneStream> {
        match self {
            LaneListener::Socket { listener, .. } => Ok(Box::new(listener.accept().await?.0)),
            LaneListener::Fleet(listener) => listener.accept().await,
        }
    }
}

impl MeetingPlace {
    /// The socket of the lane with this id.
    pub(in super::super) fn socket(dir: Option<PathBuf>, id: &str) -> MeetingPlace {
        MeetingPlace::Socket(SocketPlace::new(dir, id))
    }

    /// The place of the lane with this id at the server of a fleet.
    pub(in super::super) fn fleet(fleet: &Fleet, id: &str) -> MeetingPlace {
        MeetingPlace::Fleet(FleetPlace::new(fleet, id))
    }

    /// The server of the fleet.
    pub(in super::super) fn server(&self) -> Option<&str> {
        match self {
            MeetingPlace::Socket(_) => None,
            MeetingPlace::Fleet(place) => Some(place.server()),
        }
    }

    /// Finds the owner, or becomes it.
    pub(super) async fn find(&self) -> io::Result<OwnerSearch> {
        match self {
            MeetingPlace::Socket(place) => find(place).await,
            MeetingPlace::Fleet(place) => place.find().await,
        }
    }
}

async fn find(place: &SocketPlace) -> io::Result<OwnerSearch> {
    for _ in 0..JOIN_ATTEMPTS {
        match place.connect().await {
            // Whoever has the socket may be about to end: then it is looked for anew.
            Ok(stream) => {
                if let Some(stream) = greet(Box::new(stream), HELLO_MAX, SILENT_MAX).await? {
                    return Ok(OwnerSearch::Found(stream));
                }
            }
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Err(why),
            Err(_) => {
                if let Some((listener, _lock)) = place.try_own()? {
                    let listener = LaneListener::Socket { listener, _lock };
                    return Ok(OwnerSearch::Owned(Box::new(Ownership {
                        listener,
                        lease: None,
                        checkpoint: None,
                    })));
                }
            }
        }
        tokio::time::sleep(JOIN_PAUSE).await;
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the process that owns the lane does not answer"))
}
