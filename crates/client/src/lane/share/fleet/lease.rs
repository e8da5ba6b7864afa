//! The right to own a lane, which ends unless it is renewed.

use super::backend::LeaseKey;
use super::link::FleetLink;
use super::{LEASE, RENEW_EVERY};
use crate::lane::share::ShareMode;
use crate::lane::share::owner::knowledge;
use crate::lane::share::wire::{LaneCheckpoint, LaneKnowledge};
use crate::lane::{LaneHandle, LaneInner};
use crate::lock::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How often a checkpoint is written that has not changed.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);

/// The right to own a lane.
pub(in super::super) struct Lease {
    link: Arc<FleetLink>,
    key: LeaseKey,
    begin: Instant,
    /// Its end, in milliseconds after `begin`.
    until_ms: AtomicU64,
    /// What was left at the server.
    saved: Mutex<Option<LaneKnowledge>>,
}

impl Lease {
    /// A lease that was asked for at that time.
    pub(super) fn new(link: Arc<FleetLink>, key: LeaseKey, asked: Instant) -> Lease {
        link.speaking.fetch_add(1, Ordering::AcqRel);
        Lease { link, key, begin: asked, until_ms: AtomicU64::new(millis(LEASE)), saved: Mutex::default() }
    }

    /// Whether it lasts. The server gives the lane to nobody else before.
    pub(in super::super) fn is_held(&self) -> bool {
        millis(self.begin.elapsed()) < self.until_ms.load(Ordering::Acquire)
    }

    /// Renews it until that fails.
    pub(in super::super) async fn keep(&self, lane: &Weak<LaneInner>) {
        let mut written = Instant::now();
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let checkpoint = {
                let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
                LaneCheckpoint { saved_ms: lane.0.clock.wall().millis(), knowledge: knowledge(&lane) }
            };
            let is_due = lock(&self.saved).as_ref() != Some(&checkpoint.knowledge)
                || written.elapsed() > CHECKPOINT_EVERY;
            let text = is_due.then(|| serde_json::to_string(&checkpoint).unwrap_or_default());
            let asked = Instant::now();
            let Ok(true) = self.link.renew(&self.key, text.as_deref()).await else { return };
            let held = self.is_held();
            self.until_ms.store(millis(asked.duration_since(self.begin) + LEASE), Ordering::Release);
            if is_due {
                written = asked;
                *lock(&self.saved) = Some(checkpoint.knowledge);
            }
            let Some(lane) = lane.upgrade().map(LaneHandle) else { return };
            let mut state = lane.lock();
            if let ShareMode::Owner(owner) = &state.mode {
                state.processes = owner.members.saturating_add(1);
            }
            if !held {
                lane.pump(&mut state, lane.0.clock.mono());
            }
        }
    }

    /// What was left at the server.
    #[cfg(test)]
    pub(in super::super) fn saved(&self) -> Option<LaneKnowledge> {
        lock(&self.saved).clone()
    }

    /// Gives the lane up, so that another can have it at once.
    pub(in super::super) async fn resign(&self) {
        let _ = self.link.resign(&self.key).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.link.speaking.fetch_sub(1, Ordering::AcqRel);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
