//! Tiles of overviews that wait for their quarters.
//!
//! A tile is reduced into its quarter as soon as it comes, so that one unfinished tile per overview is held. A tile
//! that came before, at another place, is only noted. If all quarters of a tile are such ones, and were together
//! before, then so is the tile: the overviews of a block that a file names a million times are made once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::reduce::Reducer;
use super::{RasterSpec, Tile, tiles_max};
use crate::error::RasterError;
use crate::sample::Samples;

/// Bytes of unfinished tiles of overviews.
const PENDING_LEN_MAX: usize = 192 << 20;

/// Where a tile goes.
pub(super) struct QuarterPlace {
    /// Resolution, column and row of the tile that it becomes a quarter of.
    pub(super) above: (usize, u32, u32),
    /// How many quarters that has.
    pub(super) quarters: u32,
    /// Column and row among them.
    pub(super) quarter: (u32, u32),
    /// Columns and rows of the tile inside the picture.
    pub(super) inside: (u32, u32),
}

/// A quarter that came before, at another place.
struct RepeatedQuarter {
    samples: Arc<Samples>,
    inside: (u32, u32),
    quarter: (u32, u32),
}

impl PartialEq for RepeatedQuarter {
    fn eq(&self, other: &RepeatedQuarter) -> bool {
        Arc::ptr_eq(&self.samples, &other.samples)
            && (self.inside, self.quarter) == (other.inside, other.quarter)
    }
}

#[derive(Default)]
struct UnfinishedTile {
    samples: Option<Samples>,
    mask: Option<Vec<u8>>,
    repeated: Vec<RepeatedQuarter>,
    missing: u32,
}

#[derive(Default)]
struct PendingState {
    tiles: HashMap<(usize, u32, u32), UnfinishedTile>,
    /// What was made of quarters that are all repeated, the last used one last.
    made: VecDeque<(Vec<RepeatedQuarter>, Arc<Samples>)>,
}

/// The unfinished tiles of all overviews.
pub(super) struct PendingTiles {
    reducer: Reducer,
    spec: Arc<RasterSpec>,
    /// Bytes of a tile.
    tile_len: usize,
    state: Mutex<PendingState>,
}

impl PendingTiles {
    pub(super) fn new(reducer: Reducer, spec: Arc<RasterSpec>, tile_len: usize) -> PendingTiles {
        PendingTiles { reducer, spec, tile_len, state: Mutex::default() }
    }

    /// Puts a tile into its quarter; returns the tile above if that was the last one.
    pub(super) fn add(&self, place: &QuarterPlace, tile: &Tile) -> Result<Option<Tile>, RasterError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || UnfinishedTile { missing: place.quarters, ..UnfinishedTile::default() };
        let entry = state.tiles.entry(place.above).or_insert_with(new);
        if let Some(samples) = &tile.samples {
            if tile.is_repeated {
                let (inside, quarter) = (place.inside, place.quarter);
                entry.repeated.push(RepeatedQuarter { samples: samples.clone(), inside, quarter });
            } else {
                self.reduce(samples, tile.mask.as_deref(), (place.inside, place.quarter), entry);
            }
        }
        entry.missing = entry.missing.saturating_sub(1);
        if entry.missing == 0 {
            let done = state.tiles.remove(&place.above).unwrap_or_default();
            return Ok(Some(self.finish(done, &mut state.made)));
        }
        let held = state.tiles.values().filter(|entry| entry.samples.is_some()).count() * self.tile_len;
        if held > PENDING_LEN_MAX.max(8 * self.tile_len) {
            return Err(RasterError::invalid(format!(
                "overviews wait for tiles and hold {held} bytes; tiles must come in Z-order"
            )));
        }
        Ok(None)
    }

    fn reduce(
        &self,
        from: &Samples,
        mask: Option<&[u8]>,
        (inside, quarter): ((u32, u32), (u32, u32)),
        to: &mut UnfinishedTile,
    ) {
        if to.samples.is_none() {
            let (made, mask) = self.reducer.empty(&self.spec);
            (to.samples, to.mask) = (Some(made), mask);
        }
        if let Some(samples) = &mut to.samples {
            self.reducer.reduce(from, mask, inside, samples, to.mask.as_deref_mut(), quarter);
        }
    }

    /// The tile of which all quarters are there.
    fn finish(
        &self,
        mut tile: UnfinishedTile,
        made: &mut VecDeque<(Vec<RepeatedQuarter>, Arc<Samples>)>,
    ) -> Tile {
        let mut repeated = std::mem::take(&mut tile.repeated);
        let all = tile.samples.is_none() && !repeated.is_empty();
        repeated.sort_by_key(|one| one.quarter);
        if all && let Some(at) = made.iter().position(|(from, _)| *from == repeated) {
            let known = made.remove(at);
            let samples = known.as_ref().map(|(_, samples)| samples.clone());
            made.extend(known);
            return Tile { samples, mask: None, packed: None, is_repeated: true };
        }
        for one in &repeated {
            self.reduce(&one.samples, None, (one.inside, one.quarter), &mut tile);
        }
        let samples = tile.samples.map(Arc::new);
        if let (true, Some(samples)) = (all, &samples) {
            made.push_back((repeated, samples.clone()));
            if made.len() > tiles_max(self.tile_len) {
                made.pop_front();
            }
        }
        Tile { samples, mask: tile.mask, packed: None, is_repeated: false }
    }
}
