//! The owner's side: it serves permits of its lane to members.
//!
//! A member's wants wait in the queue of the lane beside its own calls, and processes take turns. How many
//! it may have, and when it loses them, its account says ([`MemberAccount`]).

use super::meeting_place::{LaneListener, LaneStream, Ownership};
use super::wire::{Hello, LaneKnowledge, ToMember, ToOwner, ceil_ms, push, write};
use super::{ALIVE_EVERY, OwnerTask, SILENT_MAX, ShareMode, start as join};
use crate::lane::states::LaneStateRecord;
use crate::lane::{LaneHandle, LaneInner, LanePermit, Refused};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_core::lane::fleet::{MemberAccount, PERMIT_SILENT_MAX};
use tokio::io::{AsyncBufReadExt, BufReader, split};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info};

/// The longest time in which a member is not told what the lane has learned.
const KNOW_EVERY: Duration = Duration::from_millis(100);

/// Starts to serve members.
pub(super) fn start(lane: &LaneHandle, ownership: Ownership) -> OwnerTask {
    let lane = Arc::downgrade(&lane.0);
    let (stop, stopped) = oneshot::channel::<()>();
    let lease = ownership.lease.map(Arc::new);
    let (listener, kept) = (ownership.listener, lease.clone());
    let task = tokio::spawn(async move {
        let Some(lease) = kept else { return accept(&lane, listener).await };
        let is_lost = tokio::select! {
            _ = stopped => false,
            () = accept(&lane, listener) => false,
            () = lease.keep(&lane) => true,
        };
        // No member is served any more, and all know.
        lease.resign().await;
        if let Some(lane) = lane.upgrade().map(LaneHandle).filter(|_| is_lost) {
            step_down(lane);
        }
    });
    let task = lease.is_none().then(|| task.abort_handle());
    OwnerTask { task, _stop: stop, members: 0, lease }
}

/// Takes members in. They are served until this is dropped.
async fn accept(lane: &Weak<LaneInner>, mut listener: LaneListener) {
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            member = listener.accept() => match member {
                Ok(stream) => drop(served.spawn(serve(lane.clone(), stream))),
                // As when all file descriptors are used. It is not the end.
                Err(_) => tokio::time::sleep(ALIVE_EVERY).await,
            },
            Some(_) = served.join_next(), if !served.is_empty() => {}
        }
    }
}

/// The lease is lost: another process is the owner, or nobody knows.
fn step_down(lane: LaneHandle) {
    let last = {
        let mut state = lane.lock();
        if state.closed || !matches!(state.mode, ShareMode::Owner(_)) {
            return;
        }
        let last = state.core.limiter().belief();
        state.mode = ShareMode::Joining;
        last
    };
    info!(
        target: "tidegate::share",
        host = lane.0.key.host(),
        "this process could not keep its lane and looks for the owner: {last}"
    );
    join(lane, Some(last));
}

async fn serve(lane: Weak<LaneInner>, stream: LaneStream) {
    let Some(member) = lane.upgrade().map(|lane| LaneHandle(lane).lock().queue.new_member()) else { return };
    count(&lane, 1);
    serve_member(&lane, stream, member).await;
    if let Some(lane) = lane.upgrade().map(LaneHandle) {
        lane.lock().ways.forget(member);
    }
    count(&lane, -1);
}

/// Counts members.
fn count(lane: &Weak<LaneInner>, change: i32) {
    let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
    let mut state = lane.lock();
    if let ShareMode::Owner(owner) = &mut state.mode {
        owner.members = owner.members.saturating_add_signed(change);
        debug!(target: "tidegate::share", host = lane.0.key.host(), members = owner.members, "members changed");
    }
}

/// Serves one member until it is gone or silent. Its permits are released then.
async fn serve_member(lane: &Weak<LaneInner>, stream: LaneStream, member: u64) {
    let (read, mut to) = split(stream);
    let mut lines = BufReader::new(read).lines();
    let mut out = Vec::new();
    let now = match lane.upgrade().map(LaneHandle) {
        Some(lane) if !lane.lock().closed => {
            let rate_max = lane.0.config.limit.rate_max;
            push(&mut out, &Hello { tidegate_lane: Hello::VERSION, rate_max });
            lane.0.clock.mono()
        }
        _ => return,
    };
    let (mut wanted, mut account) = (FuturesUnordered::new(), MemberAccount::<LanePermit>::new(now));
    let (mut heard, mut said) = (Instant::now(), Instant::now());
    let mut known = LaneKnowledge::default();
    let mut tick = tokio::time::interval(KNOW_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if !write(&mut to, &mut out).await {
            return;
        }
        let asleep = Instant::now();
        tokio::select! {
            line = lines.next_line() => {
                let (Ok(Some(line)), Some(lane)) = (line, lane.upgrade().map(LaneHandle)) else { return };
                heard = Instant::now();
                account.heard(lane.0.clock.mono());
                let Ok(message) = serde_json::from_str(&line) else { return };
                match message {
                    ToOwner::Want(calls) => account.want(calls),
                    ToOwner::Settle { grant, held_us, verdict, hints } => {
                        let now = lane.0.clock.mono();
                        let (verdict, hints) = (verdict.verdict(now), hints.hints());
                        if let Some(way) = account.round_trip(grant, Duration::from_micros(held_us), now) {
                            lane.lock().ways.note(member, way);
                        }
                        match account.give_up(grant) {
                            Some(permit) => permit.settle(&verdict, &hints, |_, _| ()),
                            None => lane.note_late(&verdict, &hints),
                        }
                    }
                    // Dropping it releases it.
                    ToOwner::Release(grant) => drop(account.give_up(grant)),
                    ToOwner::Asked(record) => lane.restore(&record.state()),
                    ToOwner::Alive => {}
                }
            }
            Some(turn) = wanted.next(), if !wanted.is_empty() => match turn {
                Ok(permit) => {
                    let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
                    let grant = account.grant(permit, lane.0.clock.mono());
                    push(&mut out, &ToMember::Grant(grant));
                }
                Err(Refused::Closed) => return,
                Err(Refused::Shut(until, _) | Refused::Late(until)) => {
                    let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
                    account.deny();
                    let quota_ms = ceil_ms(until.since(lane.0.clock.mono()));
                    push(&mut out, &ToMember::Deny { quota_ms });
                }
            },
            _ = tick.tick() => {
                if heard.elapsed() > SILENT_MAX {
                    return;
                }
            }
        }
        let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
        let now = lane.0.clock.mono();
        if asleep.elapsed() > PERMIT_SILENT_MAX {
            // This process was stopped, and the member may have spoken.
            account.heard(now);
        }
        let expired = account.take_expired(now);
        if account.is_silent(now) {
            wanted.clear();
        }
        drop(expired);
        let (cap, sharers) = {
            let state = lane.lock();
            if state.closed {
                return;
            }
            let new = u32::from(account.queued() == 0);
            (state.core.limiter().cap(), state.queue.sharers().saturating_add(new))
        };
        for _ in 0..account.enqueue(cap, sharers, now) {
            let lane = lane.clone();
            wanted.push(async move { lane.acquire_for_member(member).await });
        }
        // What the lane knows goes first, so that the member acts by it.
        let knows = knowledge(&lane);
        if knows != known {
            known = knows;
            let mut first = Vec::new();
            push(&mut first, &ToMember::Know(Box::new(known.clone())));
            first.append(&mut out);
            out = first;
        }
        if !out.is_empty() {
            said = Instant::now();
        } else if said.elapsed() > ALIVE_EVERY {
            said = Instant::now();
            push(&mut out, &ToMember::Alive);
        }
    }
}

pub(super) fn knowledge(lane: &LaneHandle) -> LaneKnowledge {
    let state = lane.lock();
    let processes = match &state.mode {
        ShareMode::Owner(owner) => owner.members.saturating_add(1),
        _ => state.processes,
    };
    let now = lane.0.clock.now();
    let promises = LaneStateRecord::of(&lane.0.key.host(), &state.core.state(now));
    let limiter = state.core.limiter();
    LaneKnowledge::of(promises, state.core.findings(now.mono), &limiter.belief(), limiter.cap(), processes)
}
