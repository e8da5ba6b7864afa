//! Where the processes of one machine meet: a socket and a lock for each lane.
//!
//! Who holds the lock is the owner and listens on the socket. The system releases a lock when its process
//! ends, however it ends; a socket that was left over is replaced by the next owner. The directory belongs
//! to the user and is closed to all others, so whoever connects is the same user. A system without Unix
//! sockets has no such place: each process has its own lanes there.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
#[cfg(not(unix))]
pub(super) use tokio::net::{TcpListener as SocketListener, TcpStream as SocketStream};
#[cfg(unix)]
pub(super) use tokio::net::{UnixListener as SocketListener, UnixStream as SocketStream};

/// The socket of one lane.
#[derive(Clone, Debug)]
pub(in super::super) struct SocketPlace {
    dir: Option<PathBuf>,
    /// The name of the lane: a hash.
    name: String,
}

/// The right to listen on the socket of a lane, until it is dropped.
pub(super) struct SocketLock {
    /// Holds the lock.
    _lock: File,
    paths: [PathBuf; 2],
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // While the lock is held, so that nobody else's are removed.
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

impl SocketPlace {
    /// The place of the lane with this id.
    pub(super) fn new(dir: Option<PathBuf>, id: &str) -> SocketPlace {
        // A path of a socket has about a hundred bytes.
        let hash = Sha256::digest(id.as_bytes());
        let name = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        SocketPlace { dir, name }
    }
}

#[cfg(not(unix))]
impl SocketPlace {
    pub(super) async fn connect(&self) -> io::Result<SocketStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn try_own(&self) -> io::Result<Option<(SocketListener, SocketLock)>> {
        let why = format!("this system has no Unix sockets to meet at ({:?}, {})", self.dir, self.name);
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

#[cfg(unix)]
impl SocketPlace {
    /// Connects to the owner.
    pub(super) async fn connect(&self) -> io::Result<SocketStream> {
        private_dir(&self.dir()?)?;
        let stream = SocketStream::connect(self.path("sock")?).await?;
        if stream.peer_cred()?.uid() != own_user()? {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the lane is owned by another user"));
        }
        Ok(stream)
    }

    /// Becomes the owner, if there is none.
    pub(super) fn try_own(&self) -> io::Result<Option<(SocketListener, SocketLock)>> {
        use std::os::unix::fs::MetadataExt;
        let (socket, path) = (self.path("sock")?, self.path("lock")?);
        private_dir(&self.dir()?)?;
        let lock = crate::durable::private(&path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(why)) => return Err(why),
        }
        // The owner before may have removed the file after it was opened here.
        let same = fs::metadata(&path).is_ok_and(|at| lock.metadata().is_ok_and(|own| own.ino() == at.ino()));
        if !same {
            return Ok(None);
        }
        let held = SocketLock { _lock: lock, paths: [socket.clone(), path] };
        match fs::remove_file(&socket) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        Ok(Some((SocketListener::bind(&socket)?, held)))
    }

    fn path(&self, extension: &str) -> io::Result<PathBuf> {
        Ok(self.dir()?.join(format!("{}.{extension}", self.name)))
    }

    fn dir(&self) -> io::Result<PathBuf> {
        use std::os::unix::fs::MetadataExt;
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let user = own_user()?;
        let own = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == user);
        if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(own) {
            return Ok(dir.join("tidegate"));
        }
        Ok(std::env::temp_dir().join(format!("tidegate-{user}")))
    }
}

/// The number of the user of this process.
#[cfg(unix)]
fn own_user() -> io::Result<u32> {
    // The other end of a pair of our own is ourselves.
    Ok(SocketStream::pair()?.0.peer_cred()?.uid())
}

/// Creates a directory that only this user can enter, or checks that it is one.
fn private_dir(dir: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.mode() & 0o077 != 0 || found.uid() != own_user()? {
        let why = format!(
            "{} must be a directory of this user that nobody else can enter (mode 0700)",
            dir.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}
