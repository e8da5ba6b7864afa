//! Whether a file is a COG, and whether all of it can be read.
//!
//! The rules are those of the specification (OGC 21-026) and of GDAL's promise, asked of the file
//! itself: where its directories and blocks are, and what stands before and behind each block.

use std::collections::HashSet;

use crate::error::RasterError;
use crate::geotiff::GeoTiff;

/// A picture up to this size needs neither tiles nor overviews.
const SMALL: u32 = 512;

/// What is found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Why it is not a COG.
    pub not_cog: Vec<String>,
    /// What is wrong with it.
    pub errors: Vec<String>,
    /// What may slow its readers down.
    pub warnings: Vec<String>,
    /// Blocks of all pictures, and of their masks.
    pub blocks: u64,
    /// Of these, blocks that are not in the file and count as nodata.
    pub absent: u64,
    /// Of these, blocks that were unpacked.
    pub unpacked: u64,
}

impl Validation {
    /// Whether it is a COG without errors.
    #[must_use]
    pub fn is_cog(&self) -> bool {
        self.not_cog.is_empty() && self.errors.is_empty()
    }
}

/// Errors of one kind after which no more are listed.
const LISTED_MAX: usize = 20;

/// Looks at a file; with `full`, unpacks every block.
///
/// # Errors
/// If the source cannot be read; what is wrong with the file is in the result.
pub fn validate(file: &GeoTiff, full: bool) -> Result<Validation, RasterError> {
    let head = file.head();
    let mut found = Validation { warnings: head.warnings.clone(), ..Validation::default() };
    let Some(first) = head.levels.first() else { return Ok(found) };
    let is_large = head.width > SMALL || head.height > SMALL;
    if is_large && !first.layout.tiled {
        found.not_cog.push("it is larger than 512 x 512 pixels and not tiled".to_owned());
    }
    if is_large && head.levels.len() == 1 {
        found.not_cog.push("it is larger than 512 x 512 pixels and has no overviews".to_owned());
    }
    let start = if head.is_big { 16 } else { 8 };
    let start = head.ghost.as_ref().map_or(start, |text| start + 43 + text.len() as u64).next_multiple_of(8);
    if first.offset > start {
        found.not_cog.push(format!("its first directory is at byte {}, not at the start", first.offset));
    }
    for pair in head.levels.windows(2) {
        if pair[1].offset < pair[0].offset {
            found.not_cog.push(format!(
                "the directory of the overview of {} x {} pixels comes before that of the larger one",
                pair[1].width, pair[1].height
            ));
        }
        if pair[1].width >= pair[0].width && pair[1].height >= pair[0].height {
            found.errors.push(format!("two overviews have {} x {} pixels", pair[1].width, pair[1].height));
        }
    }
    if head.levels.iter().skip(1).any(|level| !level.layout.tiled && level.width.max(level.height) > SMALL) {
        found.not_cog.push("an overview is not tiled".to_owned());
    }
    blocks(file, full, &mut found)?;
    if let Some(mask) = file.mask_beside() {
        beside(mask, full, &mut found)?;
    }
    file.source().unchanged()?;
    Ok(found)
}

/// Whether a failure is one of the file, not of reading it.
fn is_of_file(error: &RasterError) -> bool {
    use crate::RasterCause::{CorruptBlock, CorruptHeader, Short, TooLarge, Unsupported};
    matches!(error.cause, CorruptBlock | CorruptHeader | Short | TooLarge | Unsupported)
}

/// Looks at the blocks of all pictures, masks included.
fn blocks(file: &GeoTiff, full: bool, found: &mut Validation) -> Result<(), RasterError> {
    let head = file.head();
    let promised = |words: &str| head.ghost.as_ref().is_some_and(|text| text.contains(words));
    let directories_end =
        head.levels.iter().chain(&head.mask_levels).map(|level| level.offset).max().unwrap_or(0);
    let mut all: Vec<(u64, u64)> = Vec::new();
    // Where the data of each resolution begin; smaller ones must come first.
    let mut begins: Vec<u64> = Vec::new();
    let resolutions = head.levels.len();
    for at in 0..file.pictures() {
        let is_mask = at >= resolutions;
        let name = if is_mask { format!("mask {}", at - resolutions) } else { format!("resolution {at}") };
        let seen = picture(file, at, &name, full, found)?;
        if !seen.is_in_order && promised("BLOCK_ORDER=ROW_MAJOR") {
            complain(&mut found.errors, format!("blocks of {name} are not in the order that is promised"));
        }
        if let Some(least) = seen.places.iter().map(|(start, _)| *start).min().filter(|_| !is_mask) {
            begins.push(least);
        }
        all.extend(seen.places);
        if at + 1 == resolutions && found.blocks > 0 && found.absent == found.blocks {
            found.warnings.push("no block is in the file: all of it is nodata".to_owned());
        }
    }
    if all.iter().any(|(start, _)| *start < directories_end) {
        found.not_cog.push("pixels come before the last directory".to_owned());
    }
    if begins.windows(2).any(|pair| pair[1] > pair[0]) {
        found.not_cog.push("the pixels of an overview come behind those of a larger picture".to_owned());
    }
    all.sort_unstable();
    let shared = all.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
    if shared > 0 {
        found.warnings.push(format!("{shared} blocks share bytes with others"));
    }
    Ok(())
}

/// What was seen of the blocks of a picture.
struct SeenBlocks {
    /// Where those begin and end that are in the file.
    places: Vec<(u64, u64)>,
    is_in_order: bool,
}

fn picture(
    file: &GeoTiff,
    at: usize,
    name: &str,
    full: bool,
    found: &mut Validation,
) -> Result<SeenBlocks, RasterError> {
    let promised = |words: &str| file.head().ghost.as_ref().is_some_and(|text| text.contains(words));
    let has_leaders = promised("BLOCK_LEADER=SIZE_AS_UINT4");
    let has_trailers = promised("BLOCK_TRAILER=LAST_4_BYTES_REPEATED");
    let mut seen = SeenBlocks { places: Vec::new(), is_in_order: true };
    let (mut last, mut misplaced) = (0, 0);
    // A hostile file names one block a million times.
    let mut sound: HashSet<(u64, u64)> = HashSet::new();
    let blocks = file.blocks_of(at)?;
    for index in 0..blocks {
        found.blocks += 1;
        let place = match file.place_of(at, index) {
            Ok(Some(place)) => place,
            Ok(None) => {
                found.absent += 1;
                continue;
            }
            Err(error) if is_of_file(&error) => {
                complain(&mut found.errors, format!("{name}: {}", error.message));
                misplaced += 1;
                // A table of blocks that is broken is so for all; a header can claim billions.
                if misplaced > LISTED_MAX {
                    found.blocks += blocks - index - 1;
                    break;
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        seen.is_in_order &= place.start > last;
        last = place.start;
        seen.places.push((place.start, place.end));
        let around = if has_leaders || has_trailers {
            leaders(file, &place, has_leaders, has_trailers)
        } else {
            Ok(None)
        };
        match around {
            Ok(None) => {}
            Ok(Some(why)) => complain(&mut found.errors, format!("block {index} of {name}: {why}")),
            Err(error) if is_of_file(&error) => complain(&mut found.errors, error.message),
            Err(error) => return Err(error),
        }
        if full && !sound.contains(&(place.start, place.end)) {
            match file.check_block(at, index, &place) {
                Ok(()) => {
                    found.unpacked += 1;
                    sound.insert((place.start, place.end));
                }
                Err(error) if is_of_file(&error) => {
                    complain(&mut found.errors, format!("{name}: {}", error.message));
                }
                Err(error) => return Err(error),
            }
        } else if full {
            found.unpacked += 1;
        }
    }
    Ok(seen)
}

/// Looks at the file of a mask beside another.
fn beside(mask: &GeoTiff, full: bool, found: &mut Validation) -> Result<(), RasterError> {
    let mut seen = Validation::default();
    blocks(mask, full, &mut seen)?;
    let of_mask = |message: String| format!("the mask beside it: {message}");
    found.warnings.extend(mask.head().warnings.iter().cloned().map(of_mask));
    seen.errors.into_iter().for_each(|message| complain(&mut found.errors, of_mask(message)));
    found.blocks += seen.blocks;
    found.absent += seen.absent;
    found.unpacked += seen.unpacked;
    mask.source().unchanged()
}

fn complain(list: &mut Vec<String>, message: String) {
    match list.len() {
        0..LISTED_MAX => list.push(message),
        LISTED_MAX => list.push("and more".to_owned()),
        _ => {}
    }
}

/// What is wrong with the bytes before and behind a block.
fn leaders(
    file: &GeoTiff,
    place: &std::ops::Range<u64>,
    has_leaders: bool,
    has_trailers: bool,
) -> Result<Option<String>, RasterError> {
    let len = place.end - place.start;
    if has_leaders {
        let before = file.source().read_at(place.start.saturating_sub(4), 4)?;
        let told = before.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if told != len {
            return Ok(Some(format!("its leader says {told} bytes, and the directory {len}")));
        }
    }
    if has_trailers && len >= 4 {
        let behind = file.source().read_at(place.end - 4, 8)?;
        if behind.get(..4) != behind.get(4..) {
            return Ok(Some("its last bytes are not repeated behind it".to_owned()));
        }
    }
    Ok(None)
}
