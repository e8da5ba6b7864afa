//! Archives.

use std::io::Write;

use crate::{Case, bad};

/// A file in an archive: its name, its bytes as they are stored, the method, what it says to unpack to
/// and its checksum.
pub(crate) struct Entry {
    name: String,
    stored: Vec<u8>,
    method: u16,
    size: u32,
    crc: u32,
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

pub(crate) fn plain(name: &str, bytes: &[u8]) -> Entry {
    Entry { name: name.into(), stored: bytes.to_vec(), method: 0, size: bytes.len() as u32, crc: crc(bytes) }
}

/// So many megabytes of blanks, packed.
fn blanks(name: &str, megabytes: u32) -> Entry {
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    let (mut crc, piece) = (flate2::Crc::new(), vec![b' '; 1 << 20]);
    for _ in 0..megabytes {
        out.write_all(&piece).unwrap();
        crc.update(&piece);
    }
    Entry {
        method: 8,
        stored: out.finish().unwrap(),
        size: megabytes << 20,
        crc: crc.sum(),
        ..plain(name, b"")
    }
}

fn packed(name: &str, bytes: &[u8]) -> Entry {
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    Entry { method: 8, stored: out.finish().unwrap(), ..plain(name, bytes) }
}

fn header(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(20u16.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend(entry.method.to_le_bytes());
    out.extend([0; 4]);
    out.extend(entry.crc.to_le_bytes());
    out.extend((entry.stored.len() as u32).to_le_bytes());
    out.extend(entry.size.to_le_bytes());
    out.extend((entry.name.len() as u16).to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out
}

pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut list) = (Vec::new(), Vec::new());
    for entry in entries {
        let at = out.len() as u32;
        out.extend(b"PK\x03\x04");
        out.extend(header(entry));
        out.extend(entry.name.as_bytes());
        out.extend(&entry.stored);
        list.extend(b"PK\x01\x02\x14\x00");
        list.extend(header(entry));
        list.extend([0; 10]);
        list.extend(at.to_le_bytes());
        list.extend(entry.name.as_bytes());
    }
    end(out, &list, entries.len() as u16)
}

fn end(mut out: Vec<u8>, list: &[u8], count: u16) -> Vec<u8> {
    let at = out.len() as u32;
    out.extend(list);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend((list.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out
}

const GOOD: &[u8] = br#"{"type":"Point","coordinates":[1,2]}"#;

pub(crate) fn archives() -> Vec<Case> {
    let bomb = blanks("a.geojson", 64);
    let lies = Entry { size: 100, ..blanks("a.geojson", 64) };
    let good = zip(&[plain("a.geojson", GOOD)]);
    let at = |offset: u32| {
        let mut out = good.clone();
        let end = out.len() - 22;
        out[end + 16..end + 20].copy_from_slice(&offset.to_le_bytes());
        out
    };
    let counts = |count: u16| {
        let mut out = good.clone();
        let end = out.len() - 22;
        out[end + 10..end + 12].copy_from_slice(&count.to_le_bytes());
        out
    };
    let entry_at = |offset: u32| {
        let mut out = good.clone();
        let list = out.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
        out[list + 42..list + 46].copy_from_slice(&offset.to_le_bytes());
        out
    };
    let list = good.windows(4).position(|w| w == b"PK\x01\x02").unwrap() as u32;
    let mut large = good.clone();
    let end_at = large.len() - 22;
    let tail = large.split_off(end_at);
    large.extend([&b"PK\x06\x07"[..], &[0; 4], &u64::MAX.to_le_bytes(), &[1, 0, 0, 0]].concat());
    large.extend(tail);
    let many: Vec<Entry> = (0..60_000).map(|n| plain(&format!("{n}.geojson"), b"")).collect();
    vec![
        bad("bomb.zip", zip(&[bomb])),
        bad("lies.zip", zip(&[lies])),
        bad("short.zip", zip(&[Entry { size: 1 << 30, ..plain("a.geojson", GOOD) }])),
        bad("bombs.zip", zip(&[blanks("a.shp", 40), blanks("a.dbf", 40), blanks("a.shx", 40)])),
        bad("within.zip", zip(&[plain("a.zip", &good)])),
        bad("checksum.zip", zip(&[Entry { crc: 7, ..plain("a.geojson", GOOD) }])),
        bad("method.zip", zip(&[Entry { method: 99, ..plain("a.geojson", GOOD) }])),
        bad("stream.zip", zip(&[Entry { method: 8, ..plain("a.geojson", GOOD) }])),
        bad("nothing.zip", zip(&[plain("readme.txt", b"no")])),
        bad("several.zip", zip(&many)),
        bad("list_itself.zip", at(list + 46)),
        bad("list_beyond.zip", at(u32::MAX)),
        bad("list_start.zip", at(0)),
        bad("more.zip", counts(u16::MAX)),
        bad("entry_in_list.zip", entry_at(list)),
        bad("entry_beyond.zip", entry_at(u32::MAX - 1)),
        bad("large_beyond.zip", large),
        bad("only_end.zip", end(Vec::new(), &[], 0)),
        bad("cut.zip", &good[..good.len() - 22]),
        bad("head.zip", "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0"),
        bad("empty.zip", ""),
        bad(
            "deep.zip",
            zip(&[packed(
                "a.csv",
                format!("a,wkt\n1,\"{}\"", "GEOMETRYCOLLECTION (".repeat(200_000)).as_bytes(),
            )]),
        ),
        bad("path.zip", zip(&[plain("../../../etc/passwd.geojson", b"{")])),
    ]
}
