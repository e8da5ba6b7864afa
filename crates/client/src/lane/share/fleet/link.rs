//! The connection of this process to the server of its fleet.
//!
//! A process has one inbox for all its lanes. A frame that comes is passed to its thread; the first frame
//! of a member opens one. Whoever falls behind loses its thread, so that nobody holds the others up.

use super::address::ServerAddress;
use super::backend::{self, FleetBackend, KnownLane, LaneClaim, LeaseKey};
use super::frame::{FleetFrame, FrameHead};
use super::{REPLY_MAX, thread};
use crate::lane::share::meeting_place::LaneStream;
use crate::lock::lock;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// Frames that wait for the process to read them.
const INBOX_MAX: usize = 4096;
/// Frames that wait in one thread.
const THREAD_MAX: usize = 256;
/// New members that wait for the owner.
const NEWCOMERS_MAX: usize = 1024;
/// How long a list of all lanes may take.
const LIST_MAX: Duration = Duration::from_secs(60);
/// How long the end of a process waits for its last words to be sent.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// The connection to the server.
pub(super) struct FleetLink {
    /// The name of this process and of its inbox. A new connection has a new one, so what is late does not
    /// reach it.
    pub(super) inbox: String,
    backend: Box<dyn FleetBackend>,
    routes: Mutex<Routes>,
    closed: AtomicBool,
    /// Threads and leases that have not ended.
    pub(super) speaking: AtomicUsize,
    started: Instant,
}

/// Where frames go.
#[derive(Default)]
struct Routes {
    /// Threads by name, and whether this process is the owner's side.
    threads: HashMap<(String, bool), mpsc::Sender<FleetFrame>>,
    /// The lanes that this process owns, by lane and epoch.
    owned: HashMap<(String, u64), mpsc::Sender<LaneStream>>,
}

impl FleetLink {
    /// Connects.
    pub(super) async fn connect(address: &ServerAddress) -> io::Result<Arc<FleetLink>> {
        let inbox = random_name()?;
        let (to, mut frames) = mpsc::channel(INBOX_MAX);
        let backend = backend::connect(address, &inbox, to).await?;
        let link = Arc::new(FleetLink {
            inbox,
            backend,
            routes: Mutex::default(),
            closed: AtomicBool::new(false),
            speaking: AtomicUsize::new(0),
            started: Instant::now(),
        });
        let weak = Arc::downgrade(&link);
        tokio::spawn(async move {
            while let Some(text) = frames.recv().await {
                let Some(link) = weak.upgrade() else { return };
                link.route(&text).await;
            }
            if let Some(link) = weak.upgrade() {
                link.close();
            }
        });
        Ok(link)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends all threads: the connection is lost.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        *lock(&self.routes) = Routes::default();
    }

    /// Milliseconds since the connection was made.
    pub(super) fn clock_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits for an answer of the server. If there is none, the connection is lost.
    async fn ask<T>(&self, what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        if self.is_closed() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection is lost"));
        }
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let answer = timeout(REPLY_MAX, what).await.unwrap_or_else(|_| Err(slow()));
        if let Err(why) = &answer {
            debug!(target: "tidegate::share", "the server of the fleet: {why}");
            self.close();
        }
        answer
    }

    /// See [`FleetBackend::claim`].
    pub(super) async fn claim(&self, lane: &str) -> io::Result<LaneClaim> {
        self.ask(self.backend.claim(lane, &self.inbox)).await
    }

    /// See [`FleetBackend::renew`].
    pub(super) async fn renew(&self, lease: &LeaseKey, checkpoint: Option<&str>) -> io::Result<bool> {
        self.ask(self.backend.renew(lease, checkpoint)).await
    }

    /// See [`FleetBackend::resign`].
    pub(super) async fn resign(&self, lease: &LeaseKey) -> io::Result<()> {
        self.ask(self.backend.resign(lease)).await
    }

    /// See [`FleetBackend::lanes`].
    pub(super) async fn lanes(&self) -> io::Result<Vec<KnownLane>> {
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        timeout(LIST_MAX, self.backend.lanes()).await.unwrap_or_else(|_| Err(slow()))
    }

    /// See [`FleetBackend::forget`].
    pub(super) async fn forget_lane(&self, lane: &str) -> io::Result<()> {
        self.ask(self.backend.forget(lane)).await
    }

    /// Sends a frame.
    pub(super) async fn send(&self, inbox: &str, frame: &FleetFrame) -> io::Result<()> {
        self.ask(self.backend.send(inbox, frame.text())).await
    }

    /// Members of a lane come in here.
    pub(super) fn own(&self, lane: &str, epoch: u64) -> mpsc::Receiver<LaneStream> {
        let (to, newcomers) = mpsc::channel(NEWCOMERS_MAX);
        lock(&self.routes).owned.insert((lane.to_owned(), epoch), to);
        newcomers
    }

    /// No member comes in any more.
    pub(super) fn disown(&self, lane: &str, epoch: u64) {
        lock(&self.routes).owned.remove(&(lane.to_owned(), epoch));
    }

    /// Frames of a thread from now on.
    pub(super) fn listen(&self, thread: &str, is_owner: bool) -> mpsc::Receiver<FleetFrame> {
        let (to, frames) = mpsc::channel(THREAD_MAX);
        if !self.is_closed() {
            lock(&self.routes).threads.insert((thread.to_owned(), is_owner), to);
        }
        frames
    }

    pub(super) fn forget(&self, thread: &str, is_owner: bool) {
        lock(&self.routes).threads.remove(&(thread.to_owned(), is_owner));
    }

    /// Passes a frame on.
    async fn route(self: &Arc<Self>, text: &str) {
        let Some(frame) = FleetFrame::parse(text) else { return };
        let key = (frame.head.thread.clone(), frame.head.to_owner);
        let newcomers = {
            let mut routes = lock(&self.routes);
            if let Some(thread) = routes.threads.get(&key) {
                if thread.try_send(frame).is_err() {
                    routes.threads.remove(&key);
                }
                return;
            }
            let head = &frame.head;
            let is_first = head.to_owner && head.seq == 0 && !head.end;
            is_first.then(|| routes.owned.get(&(head.lane.clone(), head.epoch)).cloned()).flatten()
        };
        let head = frame.head;
        match newcomers {
            Some(newcomers) => {
                let peer = head.from.clone();
                let stream = thread::open(self, FrameHead { seq: 1, ..head }, peer, true);
                // An owner that takes no member in any more drops it, and the member is told.
                let _ = newcomers.try_send(stream);
            }
            None if !head.end => {
                let peer = head.from.clone();
                let _ = self.send(&peer, &self.last_word(head)).await;
            }
            None => {}
        }
    }

    /// The frame that ends a thread, as an answer to this one.
    fn last_word(&self, head: FrameHead) -> FleetFrame {
        let (from, to_owner, at_ms) = (self.inbox.clone(), !head.to_owner, self.clock_ms());
        FleetFrame {
            head: FrameHead { from, to_owner, at_ms, end: true, seq: 0, ..head },
            body: String::new(),
        }
    }

    /// Waits until all threads that end have said so.
    pub(super) async fn drained(&self) {
        let silent = async {
            while !self.is_closed() && self.speaking.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = timeout(DRAIN_MAX, silent).await;
    }
}

/// A name that nobody else has.
pub(super) fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
