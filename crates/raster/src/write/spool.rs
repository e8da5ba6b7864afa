//! Tiles that are packed and wait for the end, in a temporary file without a name.
//!
//! They are packed by threads of the writer, or, if it has none, by the threads that bring them.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{CogOptions, RasterSpec, Tile, TileLevel, tiles_max};
use crate::codec::{BlockForm, Packer};
use crate::error::RasterError;
use crate::head::{Compression, Predictor};
use crate::sample::{Pixel, SampleData, SampleType, Samples};
use crate::with_pixel;

/// A tile to be packed.
pub(super) struct PackJob {
    pub(super) level: usize,
    pub(super) index: usize,
    pub(super) tile: Tile,
}

/// Where a packed tile is in the temporary file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TilePlace {
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Whether it came at all; it may have come and not be stored.
    pub(super) is_there: bool,
}

/// The places of the tiles of a level, and of their masks.
#[derive(Clone, Debug, Default)]
pub(super) struct LevelPlaces {
    pub(super) tiles: Vec<TilePlace>,
    pub(super) masks: Vec<TilePlace>,
}

/// A packed tile and its mask.
type PackedPair = (Arc<[u8]>, Arc<[u8]>);

struct SpoolState {
    places: Vec<LevelPlaces>,
    end: u64,
    failed: Option<RasterError>,
    packers: Vec<(Packer, Packer)>,
    /// An empty tile, packed, and its mask.
    empty: Option<PackedPair>,
    /// The tile that was packed last: sea and sky repeat, and so do the blocks of bombs.
    last: Option<PackedTile>,
    /// Tiles that came more than once, the last used one last.
    repeated: VecDeque<PackedTile>,
}

/// A tile and its packed bytes.
type PackedTile = (Arc<Samples>, Arc<[u8]>);

struct SpoolShared {
    file: File,
    spec: Arc<RasterSpec>,
    form: BlockForm,
    mask_form: BlockForm,
    effort: Option<i32>,
    block: u32,
    is_sparse: bool,
    state: Mutex<SpoolState>,
}

/// The packed tiles.
pub(super) struct TileSpool {
    shared: Arc<SpoolShared>,
    jobs: Option<SyncSender<PackJob>>,
    threads: Vec<JoinHandle<()>>,
}

/// All tiles at the end.
pub(super) struct StoredTiles {
    pub(super) file: File,
    pub(super) levels: Vec<LevelPlaces>,
}

impl TileSpool {
    pub(super) fn new(
        directory: &Path,
        spec: &Arc<RasterSpec>,
        options: &CogOptions,
        form: &BlockForm,
        levels: &[TileLevel],
    ) -> Result<TileSpool, RasterError> {
        let count = |level: &TileLevel| level.across as usize * level.down as usize;
        let places = levels
            .iter()
            .map(|level| LevelPlaces {
                tiles: vec![TilePlace::default(); count(level)],
                masks: vec![TilePlace::default(); if spec.has_mask { count(level) } else { 0 }],
            })
            .collect();
        // One bit for each pixel.
        let mask_form = BlockForm {
            compression: if form.compression == Compression::None {
                Compression::None
            } else {
                Compression::Deflate
            },
            predictor: Predictor::None,
            sample: SampleType::U8,
            bits: 8,
            width: options.block / 8,
            together: 1,
            ..form.clone()
        };
        let first = (Packer::new(form.clone(), options.effort)?, Packer::new(mask_form.clone(), None)?);
        let state = SpoolState {
            places,
            end: 0,
            failed: None,
            packers: vec![first],
            empty: None,
            last: None,
            repeated: VecDeque::new(),
        };
        let shared = Arc::new(SpoolShared {
            file: tempfile::tempfile_in(directory)?,
            spec: spec.clone(),
            form: form.clone(),
            mask_form,
            effort: options.effort,
            block: options.block,
            is_sparse: options.is_sparse,
            state: Mutex::new(state),
        });
        let (mut jobs, mut threads) = (None, Vec::new());
        if options.threads > 1 {
            let (to, from) = sync_channel(options.threads);
            let from = Arc::new(Mutex::new(from));
            for _ in 0..options.threads.min(64) {
                let (shared, from) = (shared.clone(), from.clone());
                threads.push(std::thread::Builder::new().spawn(move || work(&shared, &from))?);
            }
            jobs = Some(to);
        }
        Ok(TileSpool { shared, jobs, threads })
    }

    /// Bytes of a tile in memory.
    pub(super) fn tile_len(&self) -> usize {
        let block = self.shared.block as usize;
        let values = block * block * self.shared.spec.bands as usize;
        values * self.shared.spec.sample.size() + if self.shared.spec.has_mask { block * block } else { 0 }
    }

    pub(super) fn pack(&self, job: PackJob) -> Result<(), RasterError> {
        if let Some(error) = &self.shared.state().failed {
            return Err(error.clone());
        }
        let Some(jobs) = &self.jobs else { return self.shared.pack(job) };
        jobs.send(job).map_err(|_| RasterError::invalid("the threads that pack tiles have ended"))
    }

    pub(super) fn finish(mut self) -> Result<StoredTiles, RasterError> {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| RasterError::invalid("a thread that packs tiles has ended early"))?;
        }
        let mut state = self.shared.state();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let levels = std::mem::take(&mut state.places);
        drop(state);
        for (at, level) in levels.iter().enumerate() {
            let missing = level.tiles.iter().filter(|place| !place.is_there).count();
            if missing > 0 {
                return Err(RasterError::invalid(format!(
                    "{missing} of {} tiles of resolution {at} were not written",
                    level.tiles.len()
                )));
            }
        }
        Ok(StoredTiles { file: self.shared.file.try_clone()?, levels })
    }
}

fn work(shared: &SpoolShared, jobs: &Mutex<Receiver<PackJob>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if let Err(error) = shared.pack(job) {
            shared.state().failed.get_or_insert(error);
        }
    }
}

impl SpoolState {
    /// The bytes of a tile that came more than once.
    fn repeated_bytes(&mut self, samples: &Arc<Samples>) -> Option<Arc<[u8]>> {
        let at = self.repeated.iter().position(|(known, _)| Arc::ptr_eq(known, samples))?;
        let known = self.repeated.remove(at);
        let bytes = known.as_ref().map(|(_, bytes)| bytes.clone());
        self.repeated.extend(known);
        bytes
    }

    fn keep(&mut self, tile: PackedTile, is_repeated: bool) {
        if is_repeated {
            self.repeated.push_back(tile.clone());
            if self.repeated.len() > tiles_max(tile.0.data.bytes().len()) {
                self.repeated.pop_front();
            }
        }
        self.last = Some(tile);
    }
}

impl SpoolShared {
    fn state(&self) -> MutexGuard<'_, SpoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a tile, if it is one of those that repeat or the same as the last one.
    fn packed_before(&self, samples: &Arc<Samples>, is_repeated: bool) -> Option<Arc<[u8]>> {
        let last = {
            let mut state = self.state();
            if is_repeated && let Some(bytes) = state.repeated_bytes(samples) {
                return Some(bytes);
            }
            state.last.clone()
        };
        // The values are compared without the lock: other threads store their tiles meanwhile.
        let (_, bytes) = last.filter(|(last, _)| Arc::ptr_eq(last, samples) || is_same(last, samples))?;
        if is_repeated {
            self.state().keep((samples.clone(), bytes.clone()), true);
        }
        Some(bytes)
    }

    fn pack(&self, job: PackJob) -> Result<(), RasterError> {
        let packers = self.state().packers.pop();
        let (mut packer, mut mask_packer) = match packers {
            Some(packers) => packers,
            None => {
                (Packer::new(self.form.clone(), self.effort)?, Packer::new(self.mask_form.clone(), None)?)
            }
        };
        let result = self.packed(job, &mut packer, &mut mask_packer);
        self.state().packers.push((packer, mask_packer));
        result
    }

    fn packed(&self, job: PackJob, packer: &mut Packer, mask_packer: &mut Packer) -> Result<(), RasterError> {
        let PackJob { level, index, tile } = job;
        let Some(samples) = tile.samples else {
            if self.is_sparse {
                self.store(level, index, false, &[])?;
                return if self.spec.has_mask { self.store(level, index, true, &[]) } else { Ok(()) };
            }
            let (empty, mask) = self.empty(packer, mask_packer)?;
            self.store(level, index, false, &empty)?;
            return if self.spec.has_mask { self.store(level, index, true, &mask) } else { Ok(()) };
        };
        if let Some(mask) = &tile.mask {
            let packed = mask_packer.bytes(&bits(mask, &samples, self.block as usize))?;
            self.store(level, index, true, &packed)?;
        }
        if let Some(bytes) = tile.packed {
            return self.store(level, index, false, &bytes);
        }
        if let Some(bytes) = self.packed_before(&samples, tile.is_repeated) {
            return self.store(level, index, false, &bytes);
        }
        let block = self.block as usize;
        let bytes = packer.pack(with_pixel!(samples.sample(), T => side_by_side::<T>(&samples, block)))?;
        self.store(level, index, false, &bytes)?;
        self.state().keep((samples, bytes.into()), tile.is_repeated);
        Ok(())
    }

    fn empty(&self, packer: &mut Packer, mask_packer: &mut Packer) -> Result<PackedPair, RasterError> {
        if let Some(empty) = &self.state().empty {
            return Ok(empty.clone());
        }
        let values = self.block as usize * self.block as usize * self.spec.bands as usize;
        let mut data = SampleData::zeros(self.spec.sample, values);
        if let Some(nodata) = &self.spec.nodata {
            data.fill(nodata);
        }
        let mask = vec![0; self.block as usize / 8 * self.block as usize];
        let made: PackedPair = (packer.pack(data)?.into(), mask_packer.bytes(&mask)?.into());
        self.state().empty = Some(made.clone());
        Ok(made)
    }

    fn store(&self, level: usize, index: usize, is_mask: bool, bytes: &[u8]) -> Result<(), RasterError> {
        let len =
            u32::try_from(bytes.len()).map_err(|_| RasterError::too_large("a packed tile has 4 GiB"))?;
        let offset = {
            let mut state = self.state();
            let offset = state.end;
            let levels = state.places.get_mut(level);
            let slot = levels
                .and_then(|level| if is_mask { &mut level.masks } else { &mut level.tiles }.get_mut(index));
            let slot = slot.ok_or_else(|| RasterError::invalid("there is no such tile"))?;
            if slot.is_there {
                return Err(RasterError::invalid(format!(
                    "tile {index} of resolution {level} was written twice"
                )));
            }
            *slot = TilePlace { offset, len, is_there: true };
            state.end += u64::from(len);
            offset
        };
        Ok(self.file.write_all_at(bytes, offset)?)
    }
}

/// Whether two tiles have the same values, bit by bit. Two that differ do so within their first values.
fn is_same(a: &Samples, b: &Samples) -> bool {
    (a.width, a.height) == (b.width, b.height) && a.data.bytes() == b.data.bytes()
}

/// From band after band to pixel after pixel, in a full block: what is outside repeats the last pixel,
/// which packs best.
fn side_by_side<T: Pixel>(samples: &Samples, block: usize) -> SampleData {
    let (width, height, bands) = (samples.width as usize, samples.height as usize, samples.bands as usize);
    let Some(all) = T::of(&samples.data) else { return SampleData::zeros(T::TYPE, block * block * bands) };
    if bands == 1 && width == block && height == block {
        return T::wrap(all.to_vec());
    }
    let mut out = vec![T::default(); block * block * bands];
    let row_len = block * bands;
    for row in 0..height {
        let target = &mut out[row * row_len..(row + 1) * row_len];
        for band in 0..bands {
            let source = &all[(band * height + row) * width..(band * height + row + 1) * width];
            spread(&mut target[..width * bands], source, band, bands);
        }
        let (inside, outside) = target.split_at_mut(width * bands);
        if let Some(last) = inside.last_chunk_of(bands) {
            outside.chunks_exact_mut(bands).for_each(|pixel| pixel.copy_from_slice(last));
        }
    }
    let (inside, outside) = out.split_at_mut(height * row_len);
    if let Some(last) = inside.last_chunk_of(row_len) {
        outside.chunks_exact_mut(row_len).for_each(|row| row.copy_from_slice(last));
    }
    T::wrap(out)
}

trait LastChunk<T> {
    /// The last so many values.
    fn last_chunk_of(&self, len: usize) -> Option<&[T]>;
}

impl<T> LastChunk<T> for [T] {
    fn last_chunk_of(&self, len: usize) -> Option<&[T]> {
        self.len().checked_sub(len).and_then(|from| self.get(from..))
    }
}

/// Sets one value of each pixel.
fn spread<T: Pixel>(target: &mut [T], source: &[T], band: usize, bands: usize) {
    fn fixed<T: Pixel, const N: usize>(target: &mut [T], source: &[T], band: usize) {
        for (pixel, value) in target.as_chunks_mut::<N>().0.iter_mut().zip(source) {
            pixel[band] = *value;
        }
    }
    match bands {
        1 => target.copy_from_slice(source),
        2 => fixed::<T, 2>(target, source, band),
        3 => fixed::<T, 3>(target, source, band),
        4 => fixed::<T, 4>(target, source, band),
        _ => {
            for (pixel, value) in target.chunks_exact_mut(bands).zip(source) {
                pixel[band] = *value;
            }
        }
    }
}

/// A mask as one bit for each pixel of a full block.
fn bits(mask: &[u8], samples: &Samples, block: usize) -> Vec<u8> {
    let mut out = vec![0; block / 8 * block];
    for (row, line) in mask.chunks_exact(samples.width as usize).enumerate() {
        let target = &mut out[row * block / 8..(row + 1) * block / 8];
        for (at, _) in line.iter().enumerate().filter(|(_, valid)| **valid != 0) {
            target[at / 8] |= 0x80 >> (at % 8);
        }
    }
    out
}
