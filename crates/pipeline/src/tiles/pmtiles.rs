//! Writes PMTiles (version 3): one file of tiles that can be read by ranges.
//!
//! The format: a header of 127 bytes, a root directory that ends within the first 16 KiB, metadata in
//! JSON, leaf directories if the root is too small for all entries, and the tiles. Tiles are ordered
//! along a Hilbert curve, zoom level by zoom level, so that neighbours are near each other in the
//! file. Equal tiles are stored once. Directories and metadata are compressed by gzip, which every reader
//! knows.
//!
//! The directories are made from lengths and checksums alone, so the tiles are read once, one at a
//! time, while the file is written.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_geo::tile::TileId;

/// The length of the header.
const HEADER: usize = 127;
/// Where the root directory must end.
const ROOT_END: usize = 16_384;
/// Entries of a leaf directory, at first.
const LEAF: usize = 4_096;

/// A tile to be written: its place, its length and the checksum of its content.
#[derive(Clone, Debug)]
pub(super) struct PmTile {
    pub(super) tile: TileId,
    pub(super) bytes: u32,
    pub(super) sha256: String,
}

/// The number of a tile on the curve, over all zoom levels.
pub(super) fn number(TileId { z, x, y }: TileId) -> u64 {
    let before = ((1_u64 << (2 * u32::from(z))) - 1) / 3;
    let (mut x, mut y, mut along) = (u64::from(x), u64::from(y), 0);
    for level in (0..z).rev() {
        let half = 1_u64 << level;
        let (right, down) = (x & half != 0, y & half != 0);
        along += half * half * ((3 * u64::from(right)) ^ u64::from(down));
        (x, y) = (x & (half - 1), y & (half - 1));
        if !down {
            if right {
                (x, y) = (half - 1 - x, half - 1 - y);
            }
            (x, y) = (y, x);
        }
    }
    before + along
}

/// An entry of a directory: tiles with one content, or a leaf (`run` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DirectoryEntry {
    number: u64,
    offset: u64,
    bytes: u32,
    run: u32,
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A directory as bytes: column by column.
fn directory(entries: &[DirectoryEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, entries.len() as u64);
    let mut last = 0;
    for entry in entries {
        varint(&mut out, entry.number - last);
        last = entry.number;
    }
    entries.iter().for_each(|entry| varint(&mut out, u64::from(entry.run)));
    entries.iter().for_each(|entry| varint(&mut out, u64::from(entry.bytes)));
    let mut next = None;
    for entry in entries {
        // Zero stands for "where the one before ends".
        varint(&mut out, if next == Some(entry.offset) { 0 } else { entry.offset + 1 });
        next = Some(entry.offset + u64::from(entry.bytes));
    }
    out
}

/// A directory or metadata as it is in the file.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes)?;
    gzip.finish()
}

/// The root directory and the leaves.
fn directories(entries: &[DirectoryEntry]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let root = packed(&directory(entries))?;
    if root.len() <= ROOT_END - HEADER {
        return Ok((root, Vec::new()));
    }
    let mut size = LEAF;
    loop {
        let (mut leaves, mut to_leaves) = (Vec::new(), Vec::new());
        for part in entries.chunks(size) {
            let leaf = packed(&directory(part))?;
            let (offset, bytes) = (leaves.len() as u64, leaf.len() as u32);
            to_leaves.push(DirectoryEntry {
                number: part.first().map_or(0, |entry| entry.number),
                offset,
                bytes,
                run: 0,
            });
            leaves.extend(leaf);
        }
        let root = packed(&directory(&to_leaves))?;
        if root.len() <= ROOT_END - HEADER {
            return Ok((root, leaves));
        }
        size *= 2;
    }
}

/// Writes a file of these tiles. `read` gives the content of a tile.
///
/// # Errors
/// When a tile cannot be read, or the file cannot be written.
pub(super) fn write(
    out: &mut impl Write,
    mut tiles: Vec<PmTile>,
    (format, bbox, metadata): (&str, [f64; 4], &serde_json::Value),
    read: &mut dyn FnMut(TileId) -> io::Result<Vec<u8>>,
) -> io::Result<()> {
    tiles.sort_by_cached_key(|tile| number(tile.tile));
    let mut entries: Vec<DirectoryEntry> = Vec::with_capacity(tiles.len());
    let mut contents: HashMap<&str, u64> = HashMap::new();
    let mut stored = Vec::new();
    let mut end = 0_u64;
    for tile in &tiles {
        let number = number(tile.tile);
        let offset = *contents.entry(&tile.sha256).or_insert_with(|| {
            stored.push(tile.tile);
            end += u64::from(tile.bytes);
            end - u64::from(tile.bytes)
        });
        match entries.last_mut() {
            Some(last) if last.offset == offset && last.number + u64::from(last.run) == number => {
                last.run += 1;
            }
            _ => entries.push(DirectoryEntry { number, offset, bytes: tile.bytes, run: 1 }),
        }
    }
    let (root, leaves) = directories(&entries)?;
    let metadata = packed(metadata.to_string().as_bytes())?;
    let metadata_at = (HEADER + root.len()) as u64;
    let leaves_at = metadata_at + metadata.len() as u64;
    let tiles_at = leaves_at + leaves.len() as u64;
    let mut header = Vec::with_capacity(HEADER);
    header.extend(b"PMTiles\x03");
    for number in [
        HEADER as u64,
        root.len() as u64,
        metadata_at,
        metadata.len() as u64,
        leaves_at,
        leaves.len() as u64,
        tiles_at,
        end,
        tiles.len() as u64,
        entries.len() as u64,
        stored.len() as u64,
    ] {
        header.extend(number.to_le_bytes());
    }
    let (kind, compression) = match format {
        // Vector tiles come compressed or not; only a look into them would tell.
        "pbf" => (1, 0),
        "png" => (2, 1),
        "jpg" => (3, 1),
        "webp" => (4, 1),
        "avif" => (5, 1),
        // Pictures of a kind that the format has no number for.
        _ => (0, 1),
    };
    let zoom = |of: Option<&PmTile>| of.map_or(0, |tile| tile.tile.z);
    let (low, high) = (zoom(tiles.first()), zoom(tiles.last()));
    // Clustered, and directories in gzip.
    header.extend([1, 2, compression, kind, low, high]);
    let [west, south, east, north] = bbox;
    let degrees = |value: f64| ((value * 1e7).round() as i32).to_le_bytes();
    [west, south, east, north].iter().for_each(|value| header.extend(degrees(*value)));
    header.push(low);
    [(west + east) / 2.0, (south + north) / 2.0].iter().for_each(|value| header.extend(degrees(*value)));
    for part in [&header, &root, &metadata, &leaves] {
        out.write_all(part)?;
    }
    for tile in stored {
        out.write_all(&read(tile)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(z: u8, x: u32, y: u32) -> TileId {
        TileId { z, x, y }
    }

    #[test]
    fn tiles_are_numbered_along_the_curve() {
        for (at, expected) in
            [((0, 0, 0), 0), ((1, 0, 0), 1), ((1, 0, 1), 2), ((1, 1, 1), 3), ((1, 1, 0), 4), ((2, 0, 0), 5)]
        {
            assert_eq!(number(tile(at.0, at.1, at.2)), expected);
        }
        // The number in the specification.
        assert_eq!(number(tile(12, 3423, 1763)), 19_078_479);
        // Neighbours on the curve are neighbours on the map, and every number occurs once.
        let mut all: Vec<_> = (0..16).flat_map(|x| (0..16).map(move |y| tile(4, x, y))).collect();
        all.sort_by_key(|tile| number(*tile));
        assert_eq!((number(all[0]), number(all[255])), (85, 85 + 255));
        assert!(all.windows(2).all(|two| two[0].x.abs_diff(two[1].x) + two[0].y.abs_diff(two[1].y) == 1));
    }

    #[test]
    fn many_entries_have_leaves_and_the_root_stays_small() {
        let entries: Vec<DirectoryEntry> = (0..100_000_u64)
            .map(|n| DirectoryEntry {
                number: n * 7 + n * n % 5,
                offset: n * 1000,
                bytes: (n * n % 977) as u32,
                run: 1,
            })
            .collect();
        let (root, leaves) = directories(&entries).unwrap();
        assert!(root.len() <= ROOT_END - HEADER && !leaves.is_empty());
        let (root, leaves) = directories(&entries[..100]).unwrap();
        assert!(!root.is_empty() && leaves.is_empty());
    }

    #[test]
    fn equal_tiles_are_stored_once_and_neighbours_are_one_entry() {
        let of = |tile, sha: &str| PmTile { tile, bytes: 3, sha256: sha.to_owned() };
        let tiles = vec![
            of(tile(1, 0, 1), "a"),
            of(tile(1, 0, 0), "a"),
            of(tile(1, 1, 0), "a"),
            of(tile(1, 1, 1), "b"),
        ];
        let mut out = Vec::new();
        let mut asked = Vec::new();
        write(&mut out, tiles, ("png", [-180.0, -85.0, 180.0, 85.0], &serde_json::json!({})), &mut |tile| {
            asked.push(tile);
            Ok(b"xyz".to_vec())
        })
        .unwrap();
        assert_eq!(asked, [tile(1, 0, 0), tile(1, 1, 1)]);
        let number = |at: usize| u64::from_le_bytes(out[at..at + 8].try_into().unwrap());
        assert_eq!((number(72), number(80), number(88)), (4, 3, 2), "addressed, entries, contents");
        assert_eq!(number(56) + number(64), out.len() as u64);
        let mut root = Vec::new();
        io::Read::read_to_end(
            &mut flate2::read::GzDecoder::new(&out[127..127 + number(16) as usize]),
            &mut root,
        )
        .unwrap();
        assert_eq!(root, [3, 1, 2, 1, 2, 1, 1, 3, 3, 3, 1, 0, 1]);
    }
}
