#![doc = include_str!("../README.md")]
//!
//! Throttles and header dialects are those of the simulator, so that a simulated server and this one
//! behave alike. Everything else is a pure function of the seed and the request.
//!
//! The path of a request: `wire` reads it, `judge` admits or refuses it, `fate` decides which fault it
//! meets, `route` builds the response (`state` connects these), `server` delivers it, with or without
//! the fault.
//!
//! | module | holds |
//! |---|---|
//! | `config`, [`spec`], [`preset`] | the configuration: its values, their notation on the command line, presets |
//! | `wire`, `server` | requests and responses over TCP |
//! | `judge`, `quota_headers` | throttles and their rate-limit headers |
//! | `fate`, `outage` | faults and outages |
//! | `quirk` | intended quirks of real servers |
//! | `route`, [`world`], `layer` | the services and their data |
//! | `state`, `memory`, `stats` | state, request history and statistics |
//! | `clock` | real time, or a manual clock |
//! | `lock` | locks a mutex even if it is poisoned |
#![forbid(unsafe_code)]

mod clock;
mod config;
mod fate;
mod hash;
mod judge;
mod layer;
mod lock;
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
pub use config::{Config, Draw, FaultKind, FaultRule, Outage, RangeFault, Scope, Service, When};
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
    /// When the configuration is invalid or the address cannot be bound.
    pub fn start(config: Config) -> io::Result<Handle> {
        Chaos::start_on(config, ChaosClock::default())
    }

    /// Starts a server on a given clock.
    ///
    /// # Errors
    /// When the configuration is invalid or the address cannot be bound.
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

/// The most connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Binds without blocking, so that a server can be started from asynchronous code too.
fn listen(runtime: &Runtime, addr: SocketAddr) -> io::Result<TcpListener> {
    let _inside = runtime.enter();
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// A running server. It stops when this is dropped.
pub struct Handle {
    addr: SocketAddr,
    state: Arc<ServerState>,
    runtime: Option<Runtime>,
}

impl Handle {
    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Its statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// The current layer: `count`, and the ids `inserted` and `deleted` so far.
    #[must_use]
    pub fn layer(&self) -> serde_json::Value {
        self.state.layer_now()
    }

    /// Resets statistics, history and layer.
    pub fn reset(&self) {
        self.state.reset();
    }

    /// Waits until the server is told to quit, has served `stop_after` requests, or the process
    /// is interrupted.
    ///
    /// # Errors
    /// When the process cannot listen for signals.
    pub fn wait(&self) -> io::Result<()> {
        self.wait_after(|| Ok(()))
    }

    /// The same; `ready` is called as soon as a signal would be heard. Whoever is told the address then can
    /// end the server at once and gets its statistics.
    ///
    /// # Errors
    /// When the process cannot listen for signals, and those of `ready`.
    pub fn wait_after(&self, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(server::ended(&self.state, ready)),
            None => ready(),
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
