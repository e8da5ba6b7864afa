//! A member's side: permits come from the owner.

use super::meeting_place::LaneStream;
use super::wire::{Hello, LaneKnowledge, ToMember, ToOwner, push, write};
use super::{ALIVE_EVERY, ShareMode, start as join};
use crate::lane::{LaneHandle, LaneInner};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_core::Mono;
use tidegate_core::lane::fleet::{PERMIT_SILENT_MAX, PermitStock};
use tidegate_core::limit::LimitBelief;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tracing::info;

/// A member's part in a lane.
pub(in super::super) struct Membership {
    owner: UnboundedSender<ToOwner>,
    /// Permits that wait for a call.
    stock: PermitStock<u64>,
    /// What the owner's lane knows.
    pub(in super::super) knowledge: LaneKnowledge,
}

impl Membership {
    /// Asks for permits, so that `waiting` calls have one each.
    pub(in super::super) fn want(&mut self, waiting: usize) {
        let calls = self.stock.want(waiting);
        if calls > 0 {
            self.say(ToOwner::Want(calls));
        }
    }

    /// Whether there is a permit for a call. Those that came too long ago are given up.
    pub(in super::super) fn has_permit(&mut self, now: Mono) -> bool {
        for grant in self.stock.expired(now) {
            self.say(ToOwner::Release(grant));
        }
        self.stock.has_permit()
    }

    /// Takes a permit for a call that goes now, and says when it came.
    pub(in super::super) fn take(&mut self) -> Option<(u64, Mono)> {
        self.stock.take()
    }

    /// Gives up the permits that wait for a call.
    pub(in super::super) fn release_stock(&mut self) {
        for grant in self.stock.release() {
            self.say(ToOwner::Release(grant));
        }
    }

    /// Tells the owner. A message to an owner that is gone is lost, and its permit with it.
    pub(in super::super) fn say(&self, message: ToOwner) {
        let _ = self.owner.send(message);
    }

    pub(in super::super) fn belief(&self, now: Mono) -> LimitBelief {
        self.knowledge.belief(now)
    }

    /// The learned pace in calls per second.
    pub(in super::super) fn rate(&self) -> Option<f64> {
        self.knowledge.rate
    }

    /// Calls that may be in flight, those of all processes.
    pub(in super::super) fn cap(&self) -> u32 {
        self.knowledge.cap
    }
}

/// A connection to an owner that has said its name.
pub(super) struct OwnerStream {
    lines: Lines<BufReader<ReadHalf<LaneStream>>>,
    to: WriteHalf<LaneStream>,
    /// The calls per second to which the owner's user limits all.
    pub(super) rate_max: Option<f64>,
    /// An owner without a word for so long is gone.
    silent_max: Duration,
}

/// Waits for the first word of the owner; `None` if it ends just now.
pub(super) async fn greet(
    stream: LaneStream,
    hello_max: Duration,
    silent_max: Duration,
) -> io::Result<Option<OwnerStream>> {
    let (read, to) = split(stream);
    let mut lines = BufReader::new(read).lines();
    let said = timeout(hello_max, lines.next_line()).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, "the process that owns the lane does not answer")
    })?;
    let Ok(Some(said)) = said else { return Ok(None) };
    match serde_json::from_str::<Hello>(&said) {
        Ok(hello) if hello.tidegate_lane == Hello::VERSION => {
            Ok(Some(OwnerStream { lines, to, rate_max: hello.rate_max, silent_max }))
        }
        _ => Err(io::Error::other("the process that owns the lane is of another version")),
    }
}

/// Becomes a member. To be called while the lane is locked, so that nothing is heard before it knows of it.
pub(super) fn start(lane: &LaneHandle, stream: OwnerStream) -> Membership {
    let (owner, messages) = unbounded_channel();
    let lane = Arc::downgrade(&lane.0);
    tokio::spawn(async move {
        talk(&lane, stream, messages).await;
        if let Some(lane) = lane.upgrade().map(LaneHandle) {
            owner_gone(lane);
        }
    });
    Membership { owner, stock: PermitStock::default(), knowledge: LaneKnowledge::default() }
}

/// Talks to the owner until one side is gone or the owner is silent.
async fn talk(lane: &Weak<LaneInner>, stream: OwnerStream, mut messages: UnboundedReceiver<ToOwner>) {
    let OwnerStream { mut lines, mut to, silent_max, .. } = stream;
    let (mut out, mut heard) = (Vec::new(), Instant::now());
    let mut tick = tokio::time::interval(ALIVE_EVERY);
    loop {
        if !write(&mut to, &mut out).await {
            return;
        }
        let asleep = Instant::now();
        // The owner has taken back the permits of a process that was stopped, those too that it hears of now.
        let was_stopped = || asleep.elapsed() > PERMIT_SILENT_MAX;
        tokio::select! {
            line = lines.next_line() => {
                let (Ok(Some(line)), Some(lane)) = (line, lane.upgrade().map(LaneHandle)) else { return };
                if was_stopped() {
                    return;
                }
                heard = Instant::now();
                let Ok(message) = serde_json::from_str(&line) else { return };
                hear(&lane, message);
            }
            message = messages.recv() => {
                let Some(message) = message else { return };
                push(&mut out, &message);
                while let Ok(message) = messages.try_recv() {
                    push(&mut out, &message);
                }
            }
            _ = tick.tick() => {
                if was_stopped() || heard.elapsed() > silent_max {
                    return;
                }
                push(&mut out, &ToOwner::Alive);
            }
        }
    }
}

fn hear(lane: &LaneHandle, message: ToMember) {
    let mut state = lane.lock();
    let now = lane.0.clock.now();
    let state = &mut *state;
    let ShareMode::Member(membership) = &mut state.mode else { return };
    match message {
        ToMember::Grant(grant) => {
            membership.stock.granted(grant, now.mono);
        }
        ToMember::Deny { quota_ms } => {
            membership.stock.denied();
            state.core.shut_quota(now.mono + Duration::from_millis(quota_ms), now.mono);
        }
        ToMember::Know(knowledge) => {
            state.core.restore(&knowledge.promises(), now);
            state.core.follow(knowledge.findings());
            state.processes = knowledge.processes;
            membership.knowledge = *knowledge;
        }
        ToMember::Alive => return,
    }
    lane.pump(state, now.mono);
}

/// The owner is gone: somebody else becomes it, perhaps this process.
fn owner_gone(lane: LaneHandle) {
    let last = {
        let mut state = lane.lock();
        let now = lane.0.clock.mono();
        let ShareMode::Member(membership) = &state.mode else { return };
        let last = membership.belief(now);
        state.mode = ShareMode::Joining;
        last
    };
    info!(
        target: "tidegate::share",
        host = lane.0.key.host(),
        "the process that owned the lane is gone; another takes over: {last}"
    );
    join(lane, Some(last));
}
