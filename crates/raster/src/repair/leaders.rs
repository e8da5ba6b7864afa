//! The leaders and trailers that a COG writes around its blocks.
//!
//! GDAL puts the size of a block in four bytes before it and repeats its last four bytes after it, and
//! says so in a text behind the header. So the blocks of a COG can be found without the directory.

use std::collections::HashSet;
use std::io;

use super::input::RepairInput;

/// How far after the directories the first block may begin.
const SEARCH_LEN_MAX: u64 = 4096;
const BLOCKS_MAX: usize = 1 << 23;

/// All blocks with leaders, as places and lengths; nothing if the file has none, or if they do not
/// reach from the directories to the end of the file.
pub(super) fn walk(input: &RepairInput, after: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let head = input.up_to(0, 1024)?;
    let says = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
    if !says(b"BLOCK_LEADER=SIZE_AS_UINT4") || !says(b"BLOCK_TRAILER=LAST_4_BYTES_REPEATED") {
        return Ok(None);
    }
    let bytes = input.up_to(after, SEARCH_LEN_MAX + 4)?;
    for skip in 0..bytes.len().saturating_sub(4) {
        let start = after + skip as u64;
        if let Some(size) = leader(bytes.get(skip..skip + 4)).filter(|size| fits(input, start, *size))
            && trailer_repeats(input, start, size)?
            && let Some(all) = walk_from(input, start)?
        {
            return Ok(Some(all));
        }
    }
    Ok(None)
}

/// The size before a block. It is little-endian in files of either order.
fn leader(bytes: Option<&[u8]>) -> Option<u64> {
    let four: [u8; 4] = bytes?.try_into().ok()?;
    Some(u64::from(u32::from_le_bytes(four)))
}

fn fits(input: &RepairInput, at: u64, size: u64) -> bool {
    size >= 4 && at.saturating_add(size).saturating_add(8) <= input.len()
}

fn trailer_repeats(input: &RepairInput, at: u64, size: u64) -> io::Result<bool> {
    let ends = input.exact(at + size, 8)?;
    Ok(ends.is_some_and(|bytes| bytes.get(..4) == bytes.get(4..)))
}

fn walk_from(input: &RepairInput, start: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let (mut all, mut at) = (Vec::new(), start);
    while at < input.len() {
        let bytes = input.exact(at, 4)?;
        let Some(size) = leader(bytes.as_deref()).filter(|size| fits(input, at, *size)) else {
            return Ok(None);
        };
        if !trailer_repeats(input, at, size)? || all.len() >= BLOCKS_MAX {
            return Ok(None);
        }
        all.push((at + 4, size));
        at += size + 8;
    }
    Ok(Some(all))
}

/// The blocks of the full picture: those that no other directory claims, else the last of all, as a COG
/// writes its smallest overview first.
pub(super) fn of_picture(
    all: &[(u64, u64)],
    wanted: usize,
    claimed: &HashSet<u64>,
    others: usize,
) -> Option<(Vec<u64>, Vec<u64>)> {
    let free: Vec<(u64, u64)> = all.iter().copied().filter(|(at, _)| !claimed.contains(at)).collect();
    let own = if free.len() == wanted {
        free
    } else if all.len() == wanted + others {
        all.get(others..)?.to_vec()
    } else {
        return None;
    };
    Some(own.into_iter().unzip())
}
