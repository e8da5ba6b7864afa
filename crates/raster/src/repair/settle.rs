//! One picture, from what its directory says to where its blocks are in truth.

use std::collections::HashSet;

use super::blocks::{BlockChecker, BlockFate, BlockFates, BlockPlaces, changed_lens, doubt_shared};
use super::directory::RawDirectory;
use super::input::RepairInput;
use super::layout::{BLOCK_LEN_MAX, RepairLayout};
use super::leaders;
use super::pictures;
use super::report::{FieldChange, Proof, RepairError, broken, too_large};
use super::unpack::{BlockCodec, BlockContent, unpack};

/// BlockContent bytes that any file may have.
const UNPACKED_LEN_FREE: u64 = 256 << 20;
/// How much larger than the file its pixels may be, beyond that.
const EXPANSION_MAX: u64 = 256;
/// Codecs that pictures are packed with and that are not checked here.
const UNCHECKED: [u64; 9] = [2, 3, 4, 6, 7, 34712, 34887, 34925, 50001];

/// A picture whose blocks are known.
pub(super) struct SettledPicture {
    pub(super) directory: RawDirectory,
    pub(super) table: BlockFates,
    pub(super) codec: BlockCodec,
}

/// What is known of the file as a whole.
pub(super) struct FileFacts<'a> {
    pub(super) input: &'a RepairInput,
    pub(super) is_big: bool,
    pub(super) pixels_max: u64,
    /// The pixels were allowed by a person, whatever they unpack to.
    pub(super) is_expansion_allowed: bool,
    /// Bytes that no directory explains.
    pub(super) unexplained: u64,
    /// The blocks with leaders, if the file has them.
    pub(super) leaders: Option<Vec<(u64, u64)>>,
    /// The places of blocks of other directories, and how many they have.
    pub(super) claimed: HashSet<u64>,
    pub(super) claimed_blocks: usize,
}

pub(super) fn settle(
    facts: &FileFacts<'_>,
    directory: &RawDirectory,
    changes: &mut Vec<FieldChange>,
) -> Result<SettledPicture, RepairError> {
    let mut layout = RepairLayout::read(directory, facts.pixels_max, changes)?;
    let limit = facts.input.len().saturating_mul(EXPANSION_MAX).max(UNPACKED_LEN_FREE);
    if layout.len_all() > limit && !facts.is_expansion_allowed {
        return Err(too_large(format!(
            "{} bytes of file unpack to {} bytes of pixels; --max-pixels allows it",
            facts.input.len(),
            layout.len_all()
        )));
    }
    let told = BlockPlaces::read(directory, &layout)?;
    let mut directory = directory.clone();
    let mut codec = BlockCodec::of(layout.compression);
    if told.places.len() as u64 != layout.blocks() {
        layout = by_rows(facts, layout, codec, &told, changes)?;
        directory.set_numbers(278, 4, &[layout.block_height]);
    }
    let mut checker = BlockChecker { input: facts.input, unpacked: Vec::new() };
    let mut table = checker.check(&layout, codec, &told.places, &told.lens)?;
    let mut replaced = false;

    let is_odd = |table: &BlockFates| table.lost() > 0;
    let is_plain_changed = |table: &BlockFates| {
        codec == BlockCodec::Plain && changed_lens("", &told.lens, told.no_lens, table).is_some()
    };
    if (is_odd(&table) || is_plain_changed(&table) || codec == BlockCodec::Other)
        && let Some(other) = checker.sniffed(&told.places)?.filter(|other| *other != codec)
    {
        let tried = checker.check(&layout, other, &told.places, &told.lens)?;
        if tried.lost() == 0 && tried.proof() == Proof::Checksum {
            changes.push(FieldChange::new(
                "Compression",
                layout.compression,
                other.number().unwrap_or_default(),
                "every block unpacks to its size and passes the checksum of this codec",
            ));
            layout.compression = other.number().unwrap_or(layout.compression);
            directory.set_numbers(259, 3, &[layout.compression]);
            (codec, table) = (other, tried);
            table.layout = layout.clone();
        }
    }
    if codec == BlockCodec::Other && !UNCHECKED.contains(&layout.compression) {
        return Err(broken(format!(
            "compression {} is unknown, and the blocks show no codec that a checksum would prove",
            layout.compression
        )));
    }
    pictures::lose_broken(facts.input, &directory, &mut table)?;
    let doubted = doubt_shared(&mut table, &told.lens, facts.unexplained);
    let all_absent = table.fates.iter().all(|fate| *fate == BlockFate::Absent);
    if is_odd(&table) || all_absent {
        for BlockReading { evidence, places, lens, is_chained } in readings(facts, &layout, codec, &told) {
            let tried = checker.check_until(&layout, codec, &places, &lens, is_chained)?;
            if tried.lost() < table.lost() || (all_absent && tried.lost() == 0) {
                table = tried;
                replaced = true;
                changes.push(FieldChange::new(
                    if layout.tiled { "TileOffsets" } else { "StripOffsets" },
                    format!("{} wrong", count_different(&told.places, &places)),
                    "computed",
                    evidence,
                ));
                break;
            }
        }
    }
    if !replaced && all_absent && facts.unexplained > 1024 {
        return Err(broken(format!(
            "every block is marked as absent, but {} bytes of the file belong to nothing else: the table of blocks was wiped",
            facts.unexplained
        )));
    }
    if let Some(first) = doubted.first().filter(|_| !replaced) {
        changes.push(FieldChange::new(
            "blocks used more than once",
            format!("{} blocks, the first {first}", doubted.len()),
            "lost",
            "their bytes can belong to one place only",
        ));
    }
    refuse_misfit(&table)?;
    let field = if layout.tiled { "TileByteCounts" } else { "StripByteCounts" };
    if !replaced {
        changes.extend(changed_lens(field, &told.lens, told.no_lens, &table));
    }
    directory.set_numbers(277, 3, &[layout.samples]);
    Ok(SettledPicture { directory, table, codec })
}

fn count_different(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

/// Blocks that are all whole and all of another size contradict the header, and no one field can be
/// blamed for it.
fn refuse_misfit(table: &BlockFates) -> Result<(), RepairError> {
    if table.lost() == 0 {
        return Ok(());
    }
    if let Some((size, expected)) = table.other_size {
        return Err(broken(format!(
            "the blocks hold {size} bytes where the header explains {expected}: bits per sample, bands or size are wrong, and nothing says which"
        )));
    }
    if table.too_large {
        return Err(too_large("a block unpacks to more bytes than the header explains"));
    }
    Ok(())
}

/// Where the blocks may be in truth.
struct BlockReading {
    /// What speaks for it.
    evidence: &'static str,
    places: Vec<u64>,
    lens: Vec<u64>,
    is_chained: bool,
}

/// Other places of the blocks, each with what speaks for it.
fn readings(
    facts: &FileFacts<'_>,
    layout: &RepairLayout,
    codec: BlockCodec,
    told: &BlockPlaces,
) -> Vec<BlockReading> {
    let mut all = Vec::new();
    if let Some(found) = &facts.leaders
        && let Some((places, lens)) =
            leaders::of_picture(found, layout.blocks() as usize, &facts.claimed, facts.claimed_blocks)
    {
        let evidence = "the sizes that the file repeats before and after each block";
        all.push(BlockReading { evidence, places, lens, is_chained: false });
    }
    if !facts.is_big && facts.input.len() > u64::from(u32::MAX) {
        let (mut carry, mut last) = (0u64, 0u64);
        let unwrapped = told.places.iter().map(|at| {
            if *at < last && *at != 0 {
                carry += 1 << 32;
            }
            last = *at;
            at + carry
        });
        let places: Vec<u64> = unwrapped.collect();
        let evidence = "places of 32 bits that passed 4 GiB";
        all.push(BlockReading { evidence, places, lens: told.lens.clone(), is_chained: false });
    }
    let provable = matches!(codec, BlockCodec::Deflate | BlockCodec::Zstd);
    let first = told.places.iter().copied().filter(|at| *at != 0 && *at < facts.input.len()).min();
    if let Some(first) = first.filter(|_| provable && told.lens.iter().all(|len| *len != 0)) {
        let gaps: [fn(u64) -> u64; 3] = [|len| len, |len| len.next_multiple_of(2), |len| len + 8];
        for gap in gaps {
            let mut at = first;
            let mut places = Vec::with_capacity(told.lens.len());
            for len in &told.lens {
                places.push(at);
                at = at.saturating_add(gap((*len).min(1 << 40)));
            }
            let evidence = "each block begins where the one before ends, and passes its checksum there";
            all.push(BlockReading { evidence, places, lens: told.lens.clone(), is_chained: true });
        }
    }
    all
}

/// The rows of a strip, from the number and the size of strips.
fn by_rows(
    facts: &FileFacts<'_>,
    mut layout: RepairLayout,
    codec: BlockCodec,
    told: &BlockPlaces,
    changes: &mut Vec<FieldChange>,
) -> Result<RepairLayout, RepairError> {
    let wrong = |layout: &RepairLayout| {
        broken(format!(
            "the file has {} blocks and its header explains {}",
            told.places.len(),
            layout.blocks()
        ))
    };
    if layout.tiled {
        return Err(wrong(&layout));
    }
    let strip = match codec {
        BlockCodec::Plain => {
            let by_next = || Some(told.places.get(1)?.saturating_sub(*told.places.first()?));
            told.lens.first().copied().filter(|len| *len != 0).or_else(by_next).unwrap_or(0)
        }
        _ => {
            let at = told.places.first().copied().unwrap_or(0);
            let cap = layout.row_len().saturating_mul(layout.height).min(BLOCK_LEN_MAX);
            let packed = facts.input.up_to(at, cap)?;
            match unpack(codec, &packed, cap, &mut Vec::new()) {
                BlockContent::OtherSize(size) => size,
                BlockContent::Whole { .. } => cap,
                _ => 0,
            }
        }
    };
    let rows = strip / layout.row_len().max(1);
    let before = layout.block_height;
    if rows == 0 || !strip.is_multiple_of(layout.row_len().max(1)) || rows > layout.height {
        return Err(wrong(&layout));
    }
    layout.block_height = rows;
    layout.check()?;
    if layout.blocks() != told.places.len() as u64 {
        return Err(wrong(&layout));
    }
    changes.push(FieldChange::new("RowsPerStrip", before, rows, "the number and the size of the strips"));
    Ok(layout)
}
