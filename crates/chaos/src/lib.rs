#![doc = include_str!("../README.md")]
//!
//! What it decides is decided by the simulator's own throttles and header dialects, so what was
//! simulated is what is met here. Everything else is a pure function of the seed and the request.
//!
//! The flow of one request: `wire` reads it, `judge` takes or refuses it, `fate` decides
//! what goes wrong, `route` finds the words (`state` holds them together), `server` delivers
//! them well or badly.
//!
//! | module | holds |
//! |---|---|
//! | `config`, [`spec`], [`preset`] | what it shall do: as values, in words, and ready-made |
//! | `wire`, `server` | requests and answers over TCP |
//! | `judge`, `quota_headers` | throttles, and how they are told in headers |
//! | `fate`, `outage` | what goes wrong, and when |
//! | `quirk` | what real servers do on purpose |
//! | `route`, [`world`], `layer` | the services, and the data that they serve |
//! | `state`, `memory`, `stats` | what it remembers and counts |
//! | `clock` | real time, or a manual clock |
#![forbid(unsafe_code)]

mod clock;
mod config;
mod fate;
mod hash;
mod judge;
mod layer;
mod memory;
mod outage;
pub mod preset;
mod quirk;
mod quota_headers;
mod reply;
mod route;
mod server;
pub mod spec;
mod state;
mod stats;
mod wire;
pub mod world;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;

pub use clock::ChaosClock;
pub use config::{Config, Draw, FaultKind, FaultRule, Outage, Scope, Service, When};
pub use layer::{ROOM, Unrest};
pub use quirk::Quirk;
pub use quota_headers::Dialect;
pub use stats::Stats;
pub use tidegate_sim::server::ServerLimit;

use state::ServerState;

/// Starts servers.
#[derive(Debug)]
pub struct Chaos;

impl Chaos {
    /// Starts a server in real time, on threads of its own.
    ///
    /// # Errors
    /// When the configuration is refused or the address cannot be had.
    pub fn start(config: Config) -> io::Result<Handle> {
        Chaos::start_on(config, ChaosClock::default())
    }

    /// Starts a server on a given clock.
    ///
    /// # Errors
    /// When the configuration is refused or the address cannot be had.
    pub fn start_on(config: Config, clock: ChaosClock) -> io::Result<Handle> {
        if let Some(why) = config.refusal() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if config.threads > 0 {
            builder.worker_threads(config.threads);
        }
        let runtime = builder.thread_name("chaos").enable_all().build()?;
        let state = Arc::new(ServerState::new(config, clock)?);
        let listener = listen(&runtime, state.config.addr)?;
        let addr = listener.local_addr()?;
        runtime.spawn(server::accept(Arc::clone(&state), listener));
        Ok(Handle { addr, state, runtime: Some(runtime) })
    }
}

/// Connections that wait to be taken.
const BACKLOG: u32 = 1024;

/// Listens without waiting, so that a server can be started from asynchronous code too.
fn listen(runtime: &Runtime, addr: SocketAddr) -> io::Result<TcpListener> {
    let _inside = runtime.enter();
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// A running server. It ends when this is dropped.
pub struct Handle {
    addr: SocketAddr,
    state: Arc<ServerState>,
    runtime: Option<Runtime>,
}

impl Handle {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// The layer as it is now: `count`, and the numbers `inserted` and `deleted` so far.
    #[must_use]
    pub fn layer(&self) -> serde_json::Value {
        self.state.layer_now()
    }

    /// Forgets what it has counted and seen, and begins anew.
    pub fn reset(&self) {
        self.state.reset();
    }

    /// Waits until the server is asked to quit, has served `stop_after` requests, or the process
    /// is interrupted.
    ///
    /// # Errors
    /// When the process cannot listen to signals.
    pub fn wait(&self) -> io::Result<()> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(server::ended(&self.state)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.state.quit();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
