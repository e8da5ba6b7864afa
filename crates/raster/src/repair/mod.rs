//! Repairs files whose header is broken, and says what it did.
//!
//! A header is a few hundred bytes that describe megabytes of pixels, and most of what it says can be
//! known from the pixels: packed blocks end by themselves and carry a checksum, plain blocks have one
//! size that fits, a COG writes the size of each block around it. So a repair is a search for the one
//! reading under which every block is whole. What nothing proves is refused, or left as it is and told.
//!
//! The input is never written to. The output appears under its name when it is whole and was checked
//! as the input was.

mod blocks;
mod directory;
mod find;
mod hint;
mod input;
mod layout;
mod leaders;
mod pictures;
mod place;
mod report;
mod settle;
mod unpack;
mod wrapper;
mod write;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use tidegate_core::Code;
use tidegate_geo::Crs;
use tidegate_geo::format::atomic::Pending;

use blocks::BlockFate;
use find::FoundDirectories;
use hint::PixelHints;
use input::RepairInput;
use report::broken;
pub use report::{FieldChange, Proof, RepairError, RepairOutcome, RepairRefusal, RepairReport};
use settle::{FileFacts, SettledPicture, settle};

/// The pixels that are allowed where nobody says otherwise.
pub const PIXELS_MAX: u64 = 1 << 36;
/// How many lost blocks a report names.
const NAMED_MAX: usize = 1000;
/// How many blocks are looked at for traces of a wrong reading.
const HINT_BLOCKS: usize = 16;

/// What a person allows and supplies.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Write what is left of a file that has lost blocks, with a mask.
    pub partial: bool,
    /// The system, where the file has lost it.
    pub crs: Option<Crs>,
    /// A picture that has no place on earth is fine.
    pub unplaced: bool,
    /// The most pixels. Given, it also allows pixels that unpack from almost nothing.
    pub max_pixels: Option<u64>,
}

/// Repairs a file into a new one.
///
/// # Errors
/// If it cannot be repaired, with the reason; there is no output then.
pub fn repair(input: &Path, output: &Path, options: &RepairOptions) -> Result<RepairReport, RepairError> {
    if let (Ok(a), Ok(b)) = (input.canonicalize(), output.canonicalize())
        && a == b
    {
        return Err(broken("the output is the input, which a repair never writes to"));
    }
    let examined = examine(RepairInput::new(File::open(input)?)?, input, options)?;
    let pending = Pending::new(output)?;
    let mut file = File::options().read(true).write(true).open(pending.path())?;
    if examined.report.outcome == RepairOutcome::Sound {
        // The bytes that were examined, and not what has the name of the input by now.
        let copied = std::io::copy(&mut examined.input.reader()?, &mut file)?;
        if copied != examined.input.len() {
            return Err(broken("the input was cut off while it was copied; nothing was written"));
        }
    } else {
        let is_partial = examined.report.outcome == RepairOutcome::Partial;
        write::write(&examined.input, &examined.pictures, is_partial, &mut file)?;
        check_output(pending.path(), &examined, options)?;
    }
    examined.input.unchanged()?;
    pending.commit()?;
    Ok(examined.report)
}

/// Says what a repair would do, and writes nothing.
///
/// # Errors
/// If the file cannot be repaired, with the reason.
pub fn diagnose(input: &Path, options: &RepairOptions) -> Result<RepairReport, RepairError> {
    Ok(examine(RepairInput::new(File::open(input)?)?, input, options)?.report)
}

/// The output must be sound, with the same blocks lost and no other.
fn check_output(output: &Path, made: &Examined, options: &RepairOptions) -> Result<(), RepairError> {
    let options = RepairOptions { partial: true, unplaced: true, crs: None, ..options.clone() };
    let found = examine(RepairInput::new(File::open(output)?)?, output, &options)?;
    let absent = found.report.blocks_absent.checked_sub(made.report.blocks_absent);
    let as_wanted = found.report.outcome == RepairOutcome::Sound
        && found.report.blocks == made.report.blocks
        && absent == Some(made.report.blocks_lost_count);
    if as_wanted {
        return Ok(());
    }
    Err(broken(format!(
        "the repaired file did not pass the same examination ({}); nothing was written",
        found.report.changes.first().map_or_else(|| "other blocks".to_owned(), ToString::to_string)
    )))
}

struct Examined {
    input: RepairInput,
    pictures: Vec<SettledPicture>,
    report: RepairReport,
}

fn examine(input: RepairInput, path: &Path, options: &RepairOptions) -> Result<Examined, RepairError> {
    let (mut changes, mut warnings) = (Vec::new(), Vec::new());
    let input = wrapper::unwrap(input, &mut changes)?;
    let found = find::directories(&input, &mut changes)?;
    if found.cut && !options.partial {
        return Err(lost_blocks(
            "the chain of directories is broken: overviews or a mask may be lost".into(),
        ));
    }
    let mut pictures = Vec::new();
    for (i, directory) in found.all.iter().enumerate() {
        let facts = facts(&input, &found, i, options)?;
        let mut own = Vec::new();
        match settle(&facts, directory, &mut own) {
            // An overview can be made anew.
            Err(RepairError::Refused(_)) if i > 0 && directory.is_reduced() => dropped(i, &mut changes),
            Ok(picture) if i > 0 && directory.is_reduced() && picture.table.lost() > 0 => {
                dropped(i, &mut changes);
            }
            Ok(picture) if i > 0 && picture.table.lost() > 0 => {
                let what = if directory.is_mask() { "mask" } else { "picture" };
                return Err(lost_blocks(format!("blocks of {what} {i} are lost, and cannot be masked")));
            }
            Ok(picture) => {
                changes.append(&mut own);
                pictures.push(picture);
            }
            Err(error) => return Err(error),
        }
    }
    let Some(first) = pictures.first_mut() else { return Err(broken("the file has no picture")) };
    let lost: Vec<u16> = found.all.iter().take(1).flat_map(|d| d.lost.clone()).collect();
    if !lost.is_empty() && !options.partial {
        return Err(broken(format!(
            "the values of the tags {lost:?} are not in the file; --partial goes without"
        )));
    }
    for tag in lost {
        changes.push(FieldChange::new(&format!("tag {tag}"), "outside of the file", "none", "its place"));
    }
    place::restore_nodata(&mut first.directory, &mut changes);
    if !options.unplaced {
        place::restore_place(&mut first.directory, path, options.crs.as_ref(), &mut changes)?;
    }
    look_at_pixels(&input, first, &mut warnings)?;
    let report = report(first, changes, warnings);
    let has_mask = pictures.iter().skip(1).any(|p| p.directory.is_mask() && !p.directory.is_reduced());
    judge(&report, options, has_mask)?;
    Ok(Examined { input, pictures, report })
}

fn dropped(i: usize, changes: &mut Vec<FieldChange>) {
    changes.push(FieldChange::new(&format!("overview {i}"), "damaged", "none", "it can be made anew"));
}

fn lost_blocks(reason: String) -> RepairError {
    RepairRefusal::new(Code::CORRUPTED_BLOCK, reason).into()
}

fn facts<'a>(
    input: &'a RepairInput,
    found: &FoundDirectories,
    index: usize,
    options: &RepairOptions,
) -> Result<FileFacts<'a>, RepairError> {
    let (mut claimed, mut claimed_blocks, mut end, mut explained) = (HashSet::new(), 0, 0, 16u64);
    for (i, directory) in found.all.iter().enumerate() {
        let numbers = |tag: u16, other: u16| {
            directory.numbers(tag).or_else(|| directory.numbers(other)).unwrap_or_default()
        };
        let (places, lens) = (numbers(324, 273), numbers(325, 279));
        end = end.max(directory.end);
        explained += directory.weight() + directory.tags.len() as u64 * directory.form.entry_len() as u64;
        let mut seen = HashSet::new();
        for (at, len) in places.iter().zip(&lens) {
            if *at != 0 && seen.insert(*at) {
                explained = explained.saturating_add(len.saturating_add(9));
            }
        }
        if i != index {
            claimed_blocks += places.len();
            claimed.extend(places.into_iter().filter(|at| *at != 0));
        }
    }
    Ok(FileFacts {
        input,
        is_big: found.form.big,
        pixels_max: options.max_pixels.unwrap_or(PIXELS_MAX),
        is_expansion_allowed: options.max_pixels.is_some(),
        unexplained: input.len().saturating_sub(explained),
        leaders: leaders::walk(input, end)?,
        claimed,
        claimed_blocks,
    })
}

/// Looks for traces of a reading that passes every checksum and is wrong nevertheless.
fn look_at_pixels(
    input: &RepairInput,
    picture: &SettledPicture,
    warnings: &mut Vec<String>,
) -> Result<(), RepairError> {
    let layout = &picture.table.layout;
    let format = picture.directory.number(339).unwrap_or(1);
    if layout.predictor != 1 || !matches!(format, 1 | 2) {
        return Ok(());
    }
    let whole: Vec<(usize, u64, u64)> = picture
        .table
        .fates
        .iter()
        .enumerate()
        .filter_map(|(i, fate)| match fate {
            BlockFate::Whole { at, len, .. } => Some((i, *at, *len)),
            _ => None,
        })
        .collect();
    let mut hints = PixelHints::default();
    let mut unpacked = Vec::new();
    for (i, at, len) in whole.iter().step_by(whole.len().div_ceil(HINT_BLOCKS).max(1)) {
        let packed = input.up_to(*at, *len)?;
        unpack::unpack(picture.codec, &packed, layout.len(*i as u64), &mut unpacked);
        hints.add(layout, picture.directory.form, &unpacked);
    }
    let packed = !matches!(picture.codec, unpack::BlockCodec::Plain | unpack::BlockCodec::Other);
    if packed && hints.are_differences() {
        return Err(broken(
            "the pixels look like differences of neighbours, but the header names no predictor: the tag may be lost, and nothing proves it",
        ));
    }
    if hints.are_swapped() {
        warnings.push(
            "the pixels would be much smoother with their bytes swapped; nothing proves it, so they are left as they are".into(),
        );
    }
    Ok(())
}

fn report(picture: &SettledPicture, changes: Vec<FieldChange>, warnings: Vec<String>) -> RepairReport {
    let (table, layout) = (&picture.table, &picture.table.layout);
    let in_plane = layout.across() * layout.down();
    let lost: Vec<u64> =
        (0u64..).zip(&table.fates).filter(|(_, f)| **f == BlockFate::Lost).map(|(i, _)| i).collect();
    let places: HashSet<u64> = lost.iter().map(|i| i % in_plane.max(1)).collect();
    let outcome = match (lost.is_empty(), changes.is_empty()) {
        (false, _) => RepairOutcome::Partial,
        (true, false) => RepairOutcome::Repaired,
        (true, true) => RepairOutcome::Sound,
    };
    RepairReport {
        outcome,
        proof: table.proof(),
        changes,
        warnings,
        blocks: table.fates.len() as u64,
        blocks_absent: table.fates.iter().filter(|fate| **fate == BlockFate::Absent).count() as u64,
        pixels_lost: places.iter().map(|i| layout.pixels(*i)).sum(),
        blocks_lost_count: lost.len() as u64,
        blocks_lost: lost.into_iter().take(NAMED_MAX).collect(),
        pixels: layout.width * layout.height,
    }
}

/// Whether what was found may be written.
fn judge(report: &RepairReport, options: &RepairOptions, has_mask: bool) -> Result<(), RepairError> {
    if report.outcome != RepairOutcome::Partial {
        return Ok(());
    }
    if report.pixels_lost >= report.pixels {
        return Err(lost_blocks("every block is lost".into()));
    }
    let share = format!(
        "{} of {} blocks are lost, {} % of the pixels are left",
        report.blocks_lost_count,
        report.blocks,
        report.percent_recovered()
    );
    if !options.partial {
        return Err(lost_blocks(format!("{share}; --partial writes them, with a mask")));
    }
    if has_mask {
        return Err(lost_blocks(format!(
            "{share}, and the file has a mask of its own, which is not combined"
        )));
    }
    Ok(())
}

#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let options = RepairOptions { partial: true, unplaced: true, ..RepairOptions::default() };
    if let Ok(mut file) = tempfile::tempfile()
        && std::io::Write::write_all(&mut file, bytes).is_ok()
        && let Ok(input) = RepairInput::new(file)
    {
        let _ = examine(input, Path::new("fuzz.tif"), &options);
    }
}
