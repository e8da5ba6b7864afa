//! Looks for the owner of a lane, and lets its calls go.

use super::fleet::{FleetPlace, WhenUnreachable};
use super::meeting_place::{MeetingPlace, OwnerSearch};
use super::wire::{LaneCheckpoint, ToOwner};
use super::{JOIN_PAUSE, ShareMode, member, owner};
use crate::lane::states::LaneStateRecord;
use crate::lane::{LaneHandle, LaneInner};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate_core::lane::LaneState;
use tidegate_core::lane::fleet::alone_share;
use tidegate_core::limit::LimitBelief;
use tracing::{debug, info, warn};

/// The pause before a server that could not be reached is tried once more.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// What an owner believed of the limit is used for so long.
const BELIEF_KEPT: Duration = Duration::from_secs(600);

/// Looks for the owner of a lane, then lets its calls go. `last` is what the owner before believed of the
/// limit.
pub(in super::super) fn start(lane: LaneHandle, last: Option<LimitBelief>) {
    let Some(place) = lane.0.place.clone() else { return };
    let lane = Arc::downgrade(&lane.0);
    // Boxed, because a member whose owner ends joins once more.
    let joined: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(join(lane, place, last));
    drop(tokio::spawn(joined));
}

async fn join(lane: Weak<LaneInner>, place: MeetingPlace, last: Option<LimitBelief>) {
    if last.is_some() {
        // An owner that is about to end says no more than its name.
        tokio::time::sleep(JOIN_PAUSE).await;
    }
    let found = loop {
        let found = place.find().await;
        let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
        match (found, &place) {
            (Err(why), MeetingPlace::Fleet(place)) => {
                if !wait_apart(&lane, place, last.as_ref(), &why) {
                    return;
                }
            }
            (found, _) => break found,
        }
        drop(lane);
        tokio::time::sleep(RETRY_PAUSE).await;
    };
    if let Some(lane) = lane.upgrade().map(LaneHandle) {
        adopt(&lane, found, last);
    }
}

/// Takes the part in the lane that was found for this process.
fn adopt(lane: &LaneHandle, found: io::Result<OwnerSearch>, last: Option<LimitBelief>) {
    let mut state = lane.lock();
    if state.closed {
        return;
    }
    let now = lane.0.clock.now();
    let mut config = lane.0.config;
    let (mut asked, mut left) = (None, None);
    let was_apart = matches!(state.mode, ShareMode::Apart);
    match found {
        Ok(OwnerSearch::Found(stream)) => {
            // The owner's limiter learns, and paces by its own rate for all.
            config.limit.learn = false;
            if stream.rate_max.is_some_and(|all| config.limit.rate_max.is_none_or(|own| own >= all)) {
                config.limit.rate_max = None;
            }
            let promises = state.core.state(now);
            asked = (promises != LaneState::default()).then_some(promises);
            state.mode = ShareMode::Member(Box::new(member::start(lane, stream)));
        }
        Ok(OwnerSearch::Owned(mut ownership)) => {
            left = ownership.checkpoint.take();
            state.processes = state.processes.max(1);
            state.mode = ShareMode::Owner(owner::start(lane, *ownership));
        }
        Err(why) => {
            warn!(
                target: "tidegate::share",
                host = lane.0.key.host(),
                "this process does not share its limit with others on this machine: {why}"
            );
            state.mode = ShareMode::Alone;
        }
    }
    if std::mem::take(&mut state.unreachable) {
        info!(target: "tidegate::share", host = lane.0.key.host(), "the lane is shared with the fleet again");
    }
    let follows = matches!(state.mode, ShareMode::Member(_));
    // What this process was told is newer than what the owner has left.
    let known = last.or_else(|| left.as_ref().and_then(|left| belief(left, now)));
    if follows || was_apart || known.is_some() {
        state.renew(&config, now);
    }
    if let Some(left) = left {
        state.core.restore(&left.knowledge.promises(), now);
    }
    if let Some(belief) = known.filter(|_| !follows) {
        state.core.succeed(&belief, now.mono);
    }
    if known.is_some() || was_apart {
        state.core.spend_burst(now.mono);
    }
    if last.is_some() {
        state.counts.owner_changes += 1;
    }
    if let (Some(asked), ShareMode::Member(membership)) = (asked, &state.mode) {
        membership.say(ToOwner::Asked(Box::new(LaneStateRecord::of("", &asked))));
    }
    let role = state.role().as_str();
    debug!(target: "tidegate::share", host = lane.0.key.host(), role, "the lane is shared");
    lane.pump(&mut state, now.mono);
}

/// What an owner believed, if it is not too old.
fn belief(left: &LaneCheckpoint, now: tidegate_core::Now) -> Option<LimitBelief> {
    let age = now.wall.millis().saturating_sub(left.saved_ms);
    let is_new = u128::from(age.unsigned_abs()) < BELIEF_KEPT.as_millis();
    is_new.then(|| left.knowledge.belief(now.mono))
}

/// The server of the fleet cannot be reached: the calls of the lane wait, or go on at a share. False if
/// nobody waits for the lane any more.
fn wait_apart(lane: &LaneHandle, place: &FleetPlace, last: Option<&LimitBelief>, why: &io::Error) -> bool {
    let mut state = lane.lock();
    if state.closed {
        return false;
    }
    let is_first = !std::mem::replace(&mut state.unreachable, true);
    let now = lane.0.clock.now();
    let shares = place.when_unreachable() == WhenUnreachable::Share && state.processes > 0;
    let share = shares.then(|| {
        let last = last.copied().unwrap_or_default();
        alone_share(lane.0.config.limit, &last, state.processes)
    });
    if is_first {
        let goes_on = match share.map(|share| share.rate_max) {
            None => "its calls wait until then".to_owned(),
            Some(None) => format!("until then this process goes on as one of {}", state.processes),
            Some(Some(rate)) => format!(
                "until then this process goes on with {rate:.2} calls a second, its share of {}",
                state.processes
            ),
        };
        warn!(
            target: "tidegate::share",
            host = lane.0.key.host(),
            "cannot share the lane at {}: {why}; it is tried again every second, and {goes_on}",
            place.server()
        );
    }
    if let Some(limit) = share.filter(|_| !matches!(state.mode, ShareMode::Apart)) {
        let mut config = lane.0.config;
        config.limit = limit;
        state.mode = ShareMode::Apart;
        state.renew(&config, now);
        state.core.spend_burst(now.mono);
    }
    lane.pump(&mut state, now.mono);
    true
}
