//! The layer of parcels, which can change while it is read.
//!
//! The initial parcels are a function of the seed; only insertions and deletions are stored. With
//! insertions the initial ids are multiples of [`ROOM`], so that there is an id for a new parcel
//! between any two. A client that pages by offset then reads a feature twice or never.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::config::Config;
use super::hash;
use super::lock::lock;

/// The distance between the initial ids, if there are insertions.
pub const ROOM: u64 = 16;

/// How the layer, and the declared number of features, change between pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrest {
    /// The number of pages after which a feature is added; 0 for never.
    pub insert_every: u64,
    /// The number of pages after which a feature is removed; 0 for never.
    pub delete_every: u64,
    /// The error of the declared number of features.
    pub miscount: i64,
    /// The number of features after which the link to the next page leads back to the second; 0 for never.
    pub loop_after: u64,
}

/// Insertions and deletions, sorted.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// The number of pages served.
    pages: u64,
    inserted: Vec<u64>,
    deleted: Vec<u64>,
}

/// The layer of features that is served, with its changes since the start.
pub(crate) struct FeatureLayer(Mutex<Changes>);

/// A snapshot of the layer.
#[derive(Clone, Debug)]
pub(crate) struct LayerSnapshot {
    /// The number of initial parcels.
    base: u64,
    /// The distance between their ids.
    step: u64,
    changes: Changes,
}

fn below(sorted: &[u64], id: u64) -> u64 {
    sorted.partition_point(|other| *other <= id) as u64
}

impl LayerSnapshot {
    /// The number of parcels with an id of at most `id`.
    fn up_to(&self, id: u64) -> u64 {
        let first = (id / self.step).min(self.base);
        first + below(&self.changes.inserted, id) - below(&self.changes.deleted, id)
    }

    /// The largest id in use.
    fn last(&self) -> u64 {
        let base = self.base.saturating_mul(self.step);
        self.changes.inserted.last().copied().unwrap_or(0).max(base)
    }

    /// The number of parcels.
    pub(crate) fn count(&self) -> u64 {
        self.up_to(self.last())
    }

    /// The number of parcels with an id from `lo` to `hi`.
    pub(crate) fn count_between(&self, lo: u64, hi: u64) -> u64 {
        if lo > hi { 0 } else { self.up_to(hi.min(self.last())) - self.before(lo) }
    }

    /// The number of parcels with a smaller id.
    pub(crate) fn before(&self, id: u64) -> u64 {
        id.checked_sub(1).map_or(0, |id| self.up_to(id.min(self.last())))
    }

    /// The id at this position, from 0.
    pub(crate) fn nth(&self, place: u64) -> Option<u64> {
        if place >= self.count() {
            return None;
        }
        let (mut lo, mut hi) = (0, self.last());
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            if self.up_to(middle) > place { hi = middle } else { lo = middle + 1 }
        }
        Some(lo)
    }

    /// Whether there is a parcel with this id.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.count_between(id, id) == 1
    }
}

impl FeatureLayer {
    pub(crate) fn new() -> FeatureLayer {
        FeatureLayer(Mutex::default())
    }

    /// A snapshot of the current layer.
    pub(crate) fn view(&self, config: &Config) -> LayerSnapshot {
        let changes = lock(&self.0).clone();
        LayerSnapshot {
            base: config.features,
            step: if config.unrest.insert_every > 0 { ROOM } else { 1 },
            changes,
        }
    }

    /// Applies the changes that are due after a page.
    pub(crate) fn turn(&self, config: &Config) {
        let Unrest { insert_every, delete_every, .. } = config.unrest;
        if insert_every == 0 && delete_every == 0 {
            return;
        }
        let page = {
            let mut changes = lock(&self.0);
            changes.pages += 1;
            changes.pages
        };
        let draw = |what: u64| hash::mix(hash::mix(config.seed ^ what) ^ page);
        if insert_every > 0 && page.is_multiple_of(insert_every) && config.features > 0 {
            let (view, draw) = (self.view(config), draw(0x1257));
            let home = draw % config.features * ROOM;
            let free =
                (1..ROOM).map(|n| home + (n + (draw >> 32)) % (ROOM - 1) + 1).find(|id| !view.has(*id));
            // If there is no free id here, nothing is inserted.
            self.change(|changes| free.map(|id| put(&mut changes.inserted, id)));
        }
        if delete_every > 0 && page.is_multiple_of(delete_every) {
            let view = self.view(config);
            let id = view.nth(draw(0xde1e) % view.count().max(1));
            self.change(|changes| {
                id.map(|id| match changes.inserted.binary_search(&id) {
                    Ok(at) => _ = changes.inserted.remove(at),
                    Err(_) => put(&mut changes.deleted, id),
                })
            });
        }
    }

    fn change(&self, how: impl FnOnce(&mut Changes) -> Option<()>) {
        let mut changes = lock(&self.0);
        how(&mut changes);
    }

    /// Resets the layer to its initial state.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = Changes::default();
    }

    /// Insertions and deletions, for `/__layer`.
    pub(crate) fn describe(&self, config: &Config) -> Value {
        let view = self.view(config);
        json!({
            "count": view.count(),
            "step": view.step,
            "pages": view.changes.pages,
            "inserted": view.changes.inserted,
            "deleted": view.changes.deleted,
        })
    }
}

fn put(sorted: &mut Vec<u64>, id: u64) {
    if let Err(at) = sorted.binary_search(&id) {
        sorted.insert(at, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_rests_counts_from_one() {
        let config = Config { features: 10, ..Config::default() };
        let view = FeatureLayer::new().view(&config);
        assert_eq!((view.count(), view.nth(0), view.nth(9), view.nth(10)), (10, Some(1), Some(10), None));
        assert_eq!(
            (view.count_between(3, 5), view.count_between(9, 99), view.count_between(5, 3)),
            (3, 2, 0)
        );
        assert!(view.has(10) && !view.has(11) && !view.has(0));
    }

    #[test]
    fn what_comes_and_goes_keeps_the_order() {
        let unrest = Unrest { insert_every: 1, delete_every: 2, ..Unrest::default() };
        let config = Config { features: 100, seed: 5, unrest, ..Config::default() };
        let layer = FeatureLayer::new();
        for _ in 0..40 {
            layer.turn(&config);
        }
        let view = layer.view(&config);
        assert_eq!(view.count(), 100 + 40 - 20);
        let ids: Vec<u64> = (0..view.count()).map_while(|n| view.nth(n)).collect();
        assert_eq!(ids.len(), 120);
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids.iter().all(|id| view.has(*id)));
        assert!(view.changes.deleted.iter().all(|id| !view.has(*id)));
    }
}
