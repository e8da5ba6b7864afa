//! The file as a whole: header, promise, directories, tiles.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tidegate_geo::format::atomic::Pending;

use super::spool::{LevelPlaces, StoredTiles, TilePlace};
use super::tags::{self, OutTag};
use super::{CogOptions, CogSummary, RasterSpec, TileLevel, is_stored};
use crate::codec::BlockForm;
use crate::error::RasterError;

const TILE_OFFSETS: u16 = 324;
const TILE_LENS: u16 = 325;
/// The size before a tile, and its last bytes behind it.
const LEADER_LEN: u64 = 4;

/// What is written as one directory.
struct OutPicture<'a> {
    tags: Vec<OutTag>,
    tiles: &'a [TilePlace],
}

/// Where the tiles of a level begin, and their masks.
type LevelOffsets = (Vec<u64>, Vec<u64>);

/// GDAL's promise, which lets its readers skip the places of tiles.
fn promise(has_mask: bool) -> Vec<u8> {
    let masked = if has_mask { "MASK_INTERLEAVED_WITH_IMAGERY=YES\n" } else { "" };
    let text = format!(
        "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n\
         BLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n {masked}"
    );
    format!("GDAL_STRUCTURAL_METADATA_SIZE={:06} bytes\n{text}", text.len()).into_bytes()
}

/// Bytes of the header and all directories.
fn head_len(pictures: &[OutPicture<'_>], big: bool, promise: &[u8]) -> u64 {
    let mut at = if big { 16 } else { 8 } + promise.len() as u64;
    for picture in pictures {
        at = directory_len(picture, big, at.next_multiple_of(8));
    }
    at.next_multiple_of(8)
}

/// Where a directory ends that begins at `at`, with its values.
fn directory_len(picture: &OutPicture<'_>, big: bool, at: u64) -> u64 {
    let (count_len, entry_len, place_len) = if big { (8, 20, 8) } else { (2, 12, 4) };
    let tags = picture.tags.len() as u64 + 2;
    let mut end = at + count_len + tags * entry_len + place_len;
    let count = picture.tiles.len() as u64;
    let lens = picture.tags.iter().map(|tag| tag.bytes.len() as u64);
    for len in lens.chain([count * place_len, count * 4]).filter(|len| *len > place_len) {
        end = end.next_multiple_of(8) + len;
    }
    end
}

/// The places of tiles in the file, and where it ends: overviews from small to large, then the
/// picture; each row by row, with the mask of a tile behind it.
fn places(levels: &[LevelPlaces], is_cog: bool, start: u64) -> (Vec<LevelOffsets>, u64) {
    let mut at = start;
    let extra = if is_cog { LEADER_LEN } else { 0 };
    let mut all = vec![LevelOffsets::default(); levels.len()];
    for (level, out) in levels.iter().zip(&mut all).rev() {
        for (index, tile) in level.tiles.iter().enumerate() {
            let mut put = |tile: &TilePlace, out: &mut Vec<u64>| {
                let place = if is_stored(tile) { at + extra } else { 0 };
                out.push(place);
                at += if is_stored(tile) { u64::from(tile.len) + 2 * extra } else { 0 };
            };
            put(tile, &mut out.0);
            if let Some(mask) = level.masks.get(index) {
                put(mask, &mut out.1);
            }
        }
    }
    (all, at)
}

/// Writes the file and gives it its name.
pub(super) fn assemble(
    path: &Path,
    spec: &RasterSpec,
    options: &CogOptions,
    levels: &[TileLevel],
    form: &BlockForm,
    stored: &StoredTiles,
) -> Result<CogSummary, RasterError> {
    let promise = if options.is_cog { promise(spec.has_mask) } else { Vec::new() };
    let mut pictures = Vec::new();
    for (at, (level, tiles)) in levels.iter().zip(&stored.levels).enumerate() {
        pictures
            .push(OutPicture { tags: tags::picture(spec, options, form, level, at), tiles: &tiles.tiles });
        if spec.has_mask {
            let tags = tags::mask(options, form.compression, level, at);
            pictures.push(OutPicture { tags, tiles: &tiles.masks });
        }
    }
    let ends = |big: bool| places(&stored.levels, options.is_cog, head_len(&pictures, big, &promise));
    let needed = ends(false).1 > u64::from(u32::MAX) - 4096;
    let big = options.big.unwrap_or(needed);
    if needed && !big {
        return Err(RasterError::too_large("the file has more than 4 GiB and must be BigTIFF"));
    }
    let (offsets, len) = ends(big);

    let mut out = BufWriter::with_capacity(1 << 20, Pending::new(path)?);
    let places_of = |at: usize| match spec.has_mask {
        false => offsets.get(at).map(|(tiles, _)| tiles),
        true => offsets.get(at / 2).map(|(tiles, masks)| if at.is_multiple_of(2) { tiles } else { masks }),
    };
    let head = head(&pictures, big, &promise, |at| places_of(at).map_or(&[], Vec::as_slice));
    out.write_all(&head)?;
    for level in stored.levels.iter().rev() {
        for (index, tile) in level.tiles.iter().enumerate() {
            copy(&stored.file, tile, options.is_cog, &mut out)?;
            if let Some(mask) = level.masks.get(index) {
                copy(&stored.file, mask, options.is_cog, &mut out)?;
            }
        }
    }
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    let written = file.path().metadata()?.len();
    if written != len {
        return Err(RasterError::invalid(format!("{written} bytes were written in place of {len}")));
    }
    file.commit()?;
    let all = || stored.levels.iter().flat_map(|level| &level.tiles);
    Ok(CogSummary {
        len,
        overviews: levels.len() as u32 - 1,
        tiles: all().count() as u64,
        sparse: all().filter(|tile| !is_stored(tile)).count() as u64,
        is_big: big,
    })
}

/// Header and directories.
fn head<'a>(
    pictures: &[OutPicture<'_>],
    big: bool,
    promise: &[u8],
    places: impl Fn(usize) -> &'a [u64],
) -> Vec<u8> {
    let mut out = Vec::new();
    let place_len = if big { 8 } else { 4 };
    let push = |out: &mut Vec<u8>, value: u64, len: usize| out.extend_from_slice(&value.to_le_bytes()[..len]);
    let start = (if big { 16 } else { 8 } + promise.len() as u64).next_multiple_of(8);
    out.extend_from_slice(if big { b"II\x2b\0\x08\0\0\0" } else { b"II\x2a\0" });
    push(&mut out, start, place_len);
    out.extend_from_slice(promise);
    for (at, picture) in pictures.iter().enumerate() {
        out.resize(out.len().next_multiple_of(8), 0);
        let begin = out.len() as u64;
        let lens: Vec<u32> = picture.tiles.iter().map(|tile| tile.len).collect();
        let offsets = places(at);
        let mut bytes = Vec::with_capacity(offsets.len() * place_len);
        offsets.iter().for_each(|place| push(&mut bytes, *place, place_len));
        let offsets = OutTag {
            number: TILE_OFFSETS,
            kind: if big { 16 } else { 4 },
            count: offsets.len() as u64,
            bytes,
        };
        let lens = tags::longs(TILE_LENS, &lens);
        let mut all: Vec<&OutTag> = picture.tags.iter().chain([&offsets, &lens]).collect();
        all.sort_by_key(|tag| tag.number);
        let (count_len, entry_len) = if big { (8, 20) } else { (2, 12) };
        push(&mut out, all.len() as u64, count_len);
        let mut values_at = begin + (count_len + all.len() * entry_len + place_len) as u64;
        let mut values = Vec::new();
        for tag in &all {
            push(&mut out, tag.number.into(), 2);
            push(&mut out, tag.kind.into(), 2);
            push(&mut out, tag.count, place_len);
            if tag.bytes.len() <= place_len {
                let mut inline = tag.bytes.clone();
                inline.resize(place_len, 0);
                out.extend_from_slice(&inline);
                continue;
            }
            let aligned = values_at.next_multiple_of(8);
            values.resize(values.len() + (aligned - values_at) as usize, 0);
            push(&mut out, aligned, place_len);
            values.extend_from_slice(&tag.bytes);
            values_at = aligned + tag.bytes.len() as u64;
        }
        let next = if at + 1 < pictures.len() { values_at.next_multiple_of(8) } else { 0 };
        push(&mut out, next, place_len);
        out.extend_from_slice(&values);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

/// Copies a tile with its size before it and its last bytes behind it.
fn copy(from: &File, tile: &TilePlace, is_cog: bool, out: &mut impl Write) -> Result<(), RasterError> {
    if !is_stored(tile) {
        return Ok(());
    }
    let mut bytes = vec![0; tile.len as usize];
    from.read_exact_at(&mut bytes, tile.offset)?;
    if is_cog {
        out.write_all(&tile.len.to_le_bytes())?;
    }
    out.write_all(&bytes)?;
    if is_cog {
        let mut last = [0; 4];
        let from = bytes.len().saturating_sub(4);
        let tail = bytes.get(from..).unwrap_or_default();
        last[..tail.len()].copy_from_slice(tail);
        out.write_all(&last)?;
    }
    Ok(())
}
