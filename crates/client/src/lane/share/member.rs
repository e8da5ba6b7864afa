//! A member's side: permits come from the owner.

use super::meeting_place::LaneStream;
use super::wire::{Hello, LaneKnowledge, ToMember, ToOwner, push, write};
use super::{ALIVE_EVERY, PERMIT_MAX, ShareMode, WANTED_MAX, start as join};
use crate::lane::{LaneHandle, LaneInner};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_core::Mono;
use tidegate_core::limit::LimitBelief;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tracing::info;

/// A member's part in a lane.
pub(in super::super) struct Membership {
    owner: UnboundedSender<ToOwner>,
    /// Permits that wait for a call, and when they came.
    stock: Vec<(u64, Mono)>,
    /// Permits that were asked for and have not come.
    wanted: usize,
    /// What the owner's lane knows.
    pub(in super::super) knowledge: LaneKnowledge,
}

impl Membership {
    /// Asks for permits, so that `waiting` calls have one each.
    pub(in super::super) fn want(&mut self, waiting: usize) {
        let more = waiting.min(WANTED_MAX).saturating_sub(self.wanted + self.stock.len());
        if let Some(calls) = u32::try_from(more).ok().filter(|calls| *calls > 0) {
            self.wanted += more;
            self.say(ToOwner::Want(calls));
        }
    }

    pub(in super::super) fn has_permit(&self) -> bool {
        !self.stock.is_empty()
    }

    /// Gives up the permits that came too long ago, as after the process was stopped.
    pub(in super::super) fn expire(&mut self, now: Mono) {
        let is_old = |(_, came): &(u64, Mono)| now.since(*came) > PERMIT_MAX;
        if self.stock.iter().any(is_old) {
            let (old, fresh) = std::mem::take(&mut self.stock).into_iter().partition(is_old);
            self.stock = fresh;
            let old: Vec<(u64, Mono)> = old;
            old.into_iter().for_each(|(grant, _)| self.say(ToOwner::Release(grant)));
        }
    }

    /// Takes a permit for a call that goes now.
    pub(in super::super) fn take(&mut self) -> Option<u64> {
        self.stock.pop().map(|(grant, _)| grant)
    }

    /// Gives up the permits that wait for a call.
    pub(in super::super) fn release_stock(&mut self) {
        for (grant, _) in std::mem::take(&mut self.stock) {
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
    Membership { owner, stock: Vec::new(), wanted: 0, knowledge: LaneKnowledge::default() }
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
        tokio::select! {
            line = lines.next_line() => {
                let (Ok(Some(line)), Some(lane)) = (line, lane.upgrade().map(LaneHandle)) else { return };
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
                if heard.elapsed() > silent_max {
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
            membership.stock.push((grant, now.mono));
            membership.wanted = membership.wanted.saturating_sub(1);
        }
        ToMember::Deny { quota_ms } => {
            membership.wanted = membership.wanted.saturating_sub(1);
            state.core.shut_quota(now.mono + Duration::from_millis(quota_ms));
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
