//! One suite for every store, and what only a bucket on the network can do wrong.

mod bucket;
mod conform;
mod trouble;

use std::time::Duration;
use tidegate_client::store::StoreSettings;
use tidegate_core::retry::backoff::{Backoff, Jitter};

/// The usual settings with waits of a millisecond.
fn quick() -> StoreSettings {
    let mut settings = StoreSettings { create: true, ..StoreSettings::default() };
    let (base, cap) = (Duration::from_millis(1), Duration::from_millis(2));
    settings.policy.backoff = Backoff::new(base, 1.0, cap, Jitter::None);
    settings
}
