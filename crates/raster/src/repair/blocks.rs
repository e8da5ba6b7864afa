//! Where the blocks of a picture are, tried until something proves it.
//!
//! The places and lengths that the directory gives come first. Where they fail, other readings are
//! tried: the length at which packed bytes end by themselves, another codec, the leaders that a COG
//! writes around its blocks, blocks that follow each other without a gap. A reading counts when every
//! block unpacks to its exact size under it.

use std::collections::HashMap;
use std::io;

use super::directory::RawDirectory;
use super::input::RepairInput;
use super::layout::RepairLayout;
use super::report::{FieldChange, Proof, RepairError, broken};
use super::unpack::{BlockCodec, BlockContent, unpack};

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockFate {
    /// The file says that it is not there, and that is how it was written.
    Absent,
    Whole {
        at: u64,
        len: u64,
        proof: Proof,
    },
    Lost,
}

/// The blocks of a picture under one reading.
#[derive(Clone, Debug)]
pub(super) struct BlockFates {
    pub(super) layout: RepairLayout,
    pub(super) fates: Vec<BlockFate>,
    /// The size that most blocks have in truth, where it is not the expected one.
    pub(super) other_size: Option<(u64, u64)>,
    pub(super) too_large: bool,
}

impl BlockFates {
    pub(super) fn lost(&self) -> usize {
        self.fates.iter().filter(|fate| **fate == BlockFate::Lost).count()
    }

    /// The weakest proof of any block.
    pub(super) fn proof(&self) -> Proof {
        let proofs = self.fates.iter().filter_map(|fate| match fate {
            BlockFate::Whole { proof, .. } => Some(*proof),
            _ => None,
        });
        proofs.min().unwrap_or(Proof::Size)
    }
}

const MEASURED_LEN_MAX: u64 = 80 << 20;

/// Packed bytes longer than this are not what a codec makes of a block.
fn packed_max(unpacked: u64) -> u64 {
    unpacked.saturating_mul(9) / 8 + 1024
}

/// So many packed bytes are looked at, to tell a block that is larger than explained from a broken one.
fn measured_max(unpacked: u64) -> u64 {
    packed_max(unpacked.saturating_mul(8)).min(MEASURED_LEN_MAX).max(packed_max(unpacked))
}

/// The places and lengths of a directory, as they are.
pub(super) struct BlockPlaces {
    pub(super) places: Vec<u64>,
    pub(super) lens: Vec<u64>,
    /// The lengths are not there at all.
    pub(super) no_lens: bool,
}

impl BlockPlaces {
    pub(super) fn read(directory: &RawDirectory, layout: &RepairLayout) -> Result<BlockPlaces, RepairError> {
        let (place_tag, len_tag) = layout.tags();
        // Some writers put the places of tiles under the tag of strips.
        let numbers = |tag, other| directory.numbers(tag).or_else(|| directory.numbers(other));
        let Some(places) = numbers(place_tag, 273) else {
            return Err(broken("the places of the blocks are not in the file"));
        };
        let lens = numbers(len_tag, 279);
        let no_lens = lens.is_none();
        let mut lens = lens.unwrap_or_default();
        lens.resize(places.len(), 0);
        Ok(BlockPlaces { places, lens, no_lens })
    }
}

/// Checks blocks of one input.
pub(super) struct BlockChecker<'a> {
    pub(super) input: &'a RepairInput,
    pub(super) unpacked: Vec<u8>,
}

impl BlockChecker<'_> {
    /// All blocks under one reading.
    pub(super) fn check(
        &mut self,
        layout: &RepairLayout,
        codec: BlockCodec,
        places: &[u64],
        lens: &[u64],
    ) -> io::Result<BlockFates> {
        self.check_until(layout, codec, places, lens, false)
    }

    /// The same; with `is_chained` all blocks behind a lost one are lost, because each tells where the next
    /// begins.
    pub(super) fn check_until(
        &mut self,
        layout: &RepairLayout,
        codec: BlockCodec,
        places: &[u64],
        lens: &[u64],
        is_chained: bool,
    ) -> io::Result<BlockFates> {
        let mut sorted: Vec<u64> = places.iter().copied().filter(|at| *at != 0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut table =
            BlockFates { layout: layout.clone(), fates: Vec::new(), other_size: None, too_large: false };
        let mut sizes: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut last: Option<((u64, u64, u64), BlockContent)> = None;
        for (i, (at, len)) in places.iter().zip(lens).enumerate() {
            let expected = layout.len(i as u64);
            if *at == 0 && *len == 0 {
                table.fates.push(BlockFate::Absent);
                continue;
            }
            let after = sorted.get(sorted.partition_point(|other| other <= at)).copied();
            let room = after.unwrap_or(self.input.len()).min(self.input.len()).saturating_sub(*at);
            // A hostile file names one block a million times.
            let asked = (*at, *len, expected);
            let content = match last {
                Some((before, content)) if before == asked => content,
                _ => self.block(codec, *at, *len, room, expected)?,
            };
            last = Some((asked, content));
            match content {
                BlockContent::Whole { packed_len, proof } => {
                    table.fates.push(BlockFate::Whole { at: *at, len: packed_len, proof });
                }
                other => {
                    if let BlockContent::OtherSize(size) = other {
                        sizes.entry(size).or_insert((0, expected)).0 += 1;
                    }
                    table.too_large |= other == BlockContent::TooLarge;
                    table.fates.push(BlockFate::Lost);
                    if is_chained {
                        table.fates.resize(places.len(), BlockFate::Lost);
                        break;
                    }
                }
            }
        }
        let most = sizes.iter().max_by_key(|(size, (count, _))| (*count, **size));
        let many = most.filter(|(_, (count, _))| *count * 2 > places.len() as u64);
        table.other_size = many.map(|(size, (_, expected))| (*size, *expected));
        Ok(table)
    }

    /// One block: as long as the file says, else as long as it is.
    fn block(
        &mut self,
        codec: BlockCodec,
        at: u64,
        len: u64,
        room: u64,
        expected: u64,
    ) -> io::Result<BlockContent> {
        if at == 0 || room == 0 {
            return Ok(BlockContent::Broken);
        }
        let told = len != 0 && len <= measured_max(expected) && at.saturating_add(len) <= self.input.len();
        let mut found = BlockContent::Broken;
        if told {
            let packed = self.input.up_to(at, len)?;
            found = unpack(codec, &packed, expected, &mut self.unpacked);
            let padded = |needed: u64| needed <= len;
            if let BlockContent::Whole { packed_len, proof } = found {
                // The length stays what the file says where the block ends within it.
                let len = if padded(packed_len) && codec != BlockCodec::Plain { len } else { packed_len };
                return Ok(BlockContent::Whole { packed_len: len, proof });
            }
            if matches!(found, BlockContent::OtherSize(_) | BlockContent::TooLarge)
                && codec != BlockCodec::Plain
            {
                return Ok(found);
            }
        }
        let window = room.min(measured_max(expected));
        if codec == BlockCodec::Plain {
            // A block that is longer than its length says, where nothing else begins inside it.
            if matches!(found, BlockContent::OtherSize(size) if size > expected) || window < expected {
                return Ok(found);
            }
            let packed = self.input.up_to(at, expected)?;
            return Ok(unpack(codec, &packed, expected, &mut self.unpacked));
        }
        if !codec.ends_by_itself() {
            return Ok(found);
        }
        let packed = self.input.up_to(at, window)?;
        Ok(unpack(codec, &packed, expected, &mut self.unpacked))
    }

    /// The codec that the first bytes of every block show.
    pub(super) fn sniffed(&self, places: &[u64]) -> io::Result<Option<BlockCodec>> {
        let mut found = None;
        for at in places.iter().filter(|at| **at != 0) {
            let codec = BlockCodec::sniff(&self.input.up_to(*at, 4)?);
            if codec.is_none() || (found.is_some() && found != codec) {
                return Ok(None);
            }
            found = codec;
        }
        Ok(found)
    }
}

/// Blocks whose bytes more than one place of the picture claims are lost, as nothing says whose they
/// are. Blocks that a writer shares on purpose have the same length, and leave no bytes of the file
/// unexplained.
pub(super) fn doubt_shared(table: &mut BlockFates, lens: &[u64], unexplained: u64) -> Vec<u64> {
    let mut users: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, fate) in table.fates.iter().enumerate() {
        if let BlockFate::Whole { at, .. } = fate {
            users.entry(*at).or_default().push(i);
        }
    }
    let mut doubted = Vec::new();
    for group in users.into_values().filter(|group| group.len() > 1) {
        let told: Vec<u64> = group.iter().filter_map(|i| lens.get(*i)).copied().collect();
        let alike = told.windows(2).all(|two| two.first() == two.last());
        if alike && unexplained < 1024 {
            continue;
        }
        for i in group {
            if let Some(fate) = table.fates.get_mut(i) {
                *fate = BlockFate::Lost;
                doubted.push(i as u64);
            }
        }
    }
    doubted.sort_unstable();
    doubted
}

/// Says which lengths of blocks are not as they were.
pub(super) fn changed_lens(
    field: &str,
    lens: &[u64],
    no_lens: bool,
    table: &BlockFates,
) -> Option<FieldChange> {
    let mut changed = 0;
    let mut first = None;
    for (told, fate) in lens.iter().zip(&table.fates) {
        if let BlockFate::Whole { len, .. } = fate
            && len != told
        {
            changed += 1;
            first.get_or_insert((*told, *len));
        }
    }
    let (told, len) = first?;
    let from = if no_lens { "missing".to_owned() } else { format!("{changed} wrong, the first {told}") };
    Some(FieldChange::new(
        field,
        from,
        format!("{changed} computed, the first {len}"),
        match table.proof() {
            Proof::Checksum => "where the packed bytes end by themselves, with their checksum",
            Proof::Size => "the size of unpacked blocks and the places of the next",
            Proof::None => "where the packed bytes end by themselves",
        },
    ))
}
