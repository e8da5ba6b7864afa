//! What a server has to do so that machines can share lanes at it: leases, and messages to an inbox.

use super::address::ServerAddress;
#[cfg(any(feature = "nats", feature = "postgres", feature = "redis"))]
use super::address::ServerKind;
use futures_util::future::BoxFuture;
use std::io;
use tokio::sync::mpsc;

/// Who owns a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneClaim {
    /// The inbox of the owner.
    pub(super) owner: String,
    /// The number of its ownership; a later one has a higher number.
    pub(super) epoch: u64,
    /// Whether it has just become the owner by this claim.
    pub(super) is_new: bool,
    /// What an owner has left.
    pub(super) checkpoint: Option<String>,
}

/// An ownership that is to be renewed or given up.
#[derive(Clone, Debug)]
pub(super) struct LeaseKey {
    pub(super) lane: String,
    pub(super) owner: String,
    pub(super) epoch: u64,
}

/// A lane that a server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownLane {
    pub(super) lane: String,
    /// Whether a process owns it now.
    pub(super) is_owned: bool,
    /// What an owner has left.
    pub(super) checkpoint: Option<String>,
}

/// A server at which machines meet. Every method may fail because the server cannot be reached.
pub(super) trait FleetBackend: Send + Sync {
    /// Becomes the owner of a lane for [`LEASE`](super::LEASE), or says who is.
    fn claim<'a>(&'a self, lane: &'a str, owner: &'a str) -> BoxFuture<'a, io::Result<LaneClaim>>;

    /// Begins the lease anew and keeps a checkpoint. False if another owner has the lane, or none.
    fn renew<'a>(
        &'a self,
        lease: &'a LeaseKey,
        checkpoint: Option<&'a str>,
    ) -> BoxFuture<'a, io::Result<bool>>;

    /// Gives the lane up. Nothing happens if another owner has it.
    fn resign<'a>(&'a self, lease: &'a LeaseKey) -> BoxFuture<'a, io::Result<()>>;

    /// The lanes that it knows, in any order.
    fn lanes(&self) -> BoxFuture<'_, io::Result<Vec<KnownLane>>>;

    /// Drops what an owner has left of a lane.
    fn forget<'a>(&'a self, lane: &'a str) -> BoxFuture<'a, io::Result<()>>;

    /// Sends a message. One that nobody reads is lost.
    fn send<'a>(&'a self, inbox: &'a str, text: String) -> BoxFuture<'a, io::Result<()>>;
}

/// Connects to a server. What comes to `inbox` is passed on; that ends with the connection.
pub(super) async fn connect(
    address: &ServerAddress,
    inbox: &str,
    to: mpsc::Sender<String>,
) -> io::Result<Box<dyn FleetBackend>> {
    match address.kind {
        #[cfg(feature = "redis")]
        ServerKind::Redis => super::redis::connect(address, inbox, to).await,
        #[cfg(feature = "postgres")]
        ServerKind::Postgres => super::postgres::connect(address, inbox, to).await,
        #[cfg(feature = "nats")]
        ServerKind::Nats => super::nats::connect(address, inbox, to).await,
        // `Fleet::new` has refused what this build lacks.
        #[allow(unreachable_patterns)]
        kind => {
            drop((inbox, to));
            kind.present().map_err(io::Error::other)?;
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
