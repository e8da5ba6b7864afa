//! A system without Unix sockets: processes cannot meet, and each has its own lanes.

use std::io;
use std::path::PathBuf;
pub(super) use tokio::net::{TcpListener as LaneListener, TcpStream as LaneStream};

/// The meeting place of one lane: none.
#[derive(Clone, Debug)]
pub(in super::super) struct MeetingPlace;

/// The right to own a lane, which nobody gets.
pub(super) struct Ownership;

impl MeetingPlace {
    pub(in super::super) fn new(_: Option<PathBuf>, _: &str) -> MeetingPlace {
        MeetingPlace
    }

    pub(super) async fn connect(&self) -> io::Result<LaneStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn try_own(&self) -> io::Result<Option<(LaneListener, Ownership)>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
    }
}
