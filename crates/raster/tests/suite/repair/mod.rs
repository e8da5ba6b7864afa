//! Every way of damage that is known, each made from one sound picture, and how its repair must end.
//!
//! A case names its damage, what to expect, and nothing else: the pixels of whatever is written are
//! compared with those of the picture, and the input must be as it was.

mod look;
mod make;
mod pictures;

use std::fs;
use std::path::Path;

use look::look;
use make::{BANDS, HEIGHT, Made, Recipe, WIDTH, make, pack, picture};
use tidegate_core::Code;
use tidegate_raster::repair::{Proof, RepairError, RepairOptions, RepairOutcome, RepairReport, repair};

enum Expect {
    /// The output equals the input byte for byte.
    Sound,
    Repaired(Proof, &'static str),
    /// Refused without `partial`; with it, this share of the pixels is left, in whole percent.
    Partial(u32, u32),
    Refused(Code, &'static str),
    /// Refused, and the file should be fetched again.
    Transient,
}

use Expect::{Partial, Refused, Repaired, Sound, Transient};

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    expect: Expect,
}

fn case(name: &'static str, sound: &Made, expect: Expect, damage: impl FnOnce(&mut Made)) -> Case {
    let mut made = sound.clone();
    damage(&mut made);
    Case { name, bytes: made.bytes, expect }
}

fn plain() -> Recipe {
    Recipe::strips(1)
}

/// The 39 cases, in the order of docs/raster.md.
fn cases() -> Vec<Case> {
    let header = Code::CORRUPTED_HEADER;
    let sum = |field| Repaired(Proof::Checksum, field);
    let (strips, tiles, cog) = (make(&Recipe::strips(8)), make(&Recipe::tiles(8)), make(&Recipe::cog()));
    let (plain, lzw) = (make(&plain()), make(&Recipe::tiles(5)));
    vec![
        case("magic zeroed", &strips, sum("byte order"), |m| m.bytes[..4].fill(0)),
        case("order mark flipped", &strips, sum("byte order"), |m| m.bytes[..2].copy_from_slice(b"MM")),
        case("directory at 0", &strips, sum("place of the first directory"), |m| m.put32(4, 0)),
        case("directory past the end", &strips, sum("place of the first directory"), |m| {
            m.put32(4, 0x7fff_fff0);
        }),
        case("chain loops", &cog, sum("chain of directories"), |m| {
            let last = m.directories[1];
            let count = usize::from(m.u16(last));
            m.put32(last + 2 + count * 12, m.directories[0] as u32);
        }),
        case("tags out of order", &strips, sum("order of tags"), |m| {
            let (a, b) = (m.entry(256), m.entry(277));
            for i in 0..12 {
                m.bytes.swap(a + i, b + i);
            }
        }),
        case("lengths missing", &plain, Repaired(Proof::Size, "StripByteCounts"), |m| m.remove(279)),
        case("lengths zero", &plain, Repaired(Proof::Size, "StripByteCounts"), |m| m.each32(279, |_, _| 0)),
        case("lengths too short", &tiles, sum("TileByteCounts"), |m| m.each32(325, |_, len| len / 2)),
        case("lengths huge", &tiles, sum("TileByteCounts"), |m| m.each32(325, |_, _| 0xfff0_0000)),
        case("rows per strip doubled", &strips, sum("RowsPerStrip"), |m| {
            let at = m.entry(278) + 8;
            m.put32(at, 50);
        }),
        case("a COG cut at 70 %", &cog, Partial(50, 75), |m| {
            let len = m.bytes.len() * 7 / 10;
            m.bytes.truncate(len);
        }),
        case("strips cut at 60 %", &strips, Partial(55, 60), |m| {
            let len = m.bytes.len() * 6 / 10;
            m.bytes.truncate(len);
        }),
        case("one tile rotten, deflate", &tiles, Partial(95, 99), |m| {
            let (at, len) = m.block(7);
            m.bytes[at + len / 2] ^= 0x5a;
        }),
        case("one tile rotten, LZW", &lzw, Partial(95, 99), |m| {
            let (at, len) = m.block(7);
            m.bytes[at + len / 2..at + len].fill(0xff);
        }),
        case("geokeys lost", &strips, Refused(Code::CRS_NOT_FOUND, "--crs"), |m| m.remove(34735)),
        case("pixel scale 0", &strips, Refused(header, "pixel scale"), |m| {
            let (at, _) = m.values(33550);
            m.bytes[at..at + 16].fill(0);
        }),
        case(
            "nodata with a comma",
            &make(&Recipe { nodata: Some("0,0"), ..Recipe::strips(8) }),
            sum("nodata"),
            |_| {},
        ),
        case(
            "nodata out of range",
            &make(&Recipe { nodata: Some("-3.4e38"), ..Recipe::strips(8) }),
            sum("nodata"),
            |_| {},
        ),
        case("width 4 billion", &strips, Refused(Code::PAYLOAD_TOO_LARGE, "4000000000"), |m| {
            let at = m.entry(256) + 8;
            m.put32(at, 4_000_000_000);
        }),
        case("65529 samples a pixel", &strips, sum("SamplesPerPixel"), |m| {
            let at = m.entry(277) + 8;
            m.put16(at, 65529);
        }),
        case("65535 entries", &strips, sum("count of entries"), |m| {
            let at = m.directories[0];
            m.put16(at, 65535);
        }),
        case("compression wrong", &tiles, sum("Compression"), |m| {
            let at = m.entry(259) + 8;
            m.put16(at, 5);
        }),
        case("predictor lost", &strips, Refused(header, "differences"), |m| m.remove(317)),
        case("offsets of a COG zeroed", &cog, sum("TileOffsets"), |m| m.each32(324, |_, _| 0)),
        case("offsets of a COG are garbage", &cog, sum("TileOffsets"), |m| {
            m.each32(324, |i, _| 0x1234_5678 ^ (i as u32 * 7919));
        }),
        case("an XML error that asks to slow down", &strips, Transient, |m| {
            m.bytes = b"<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>".to_vec();
        }),
        case("an HTML page", &strips, Refused(Code::ERROR_DOCUMENT, "HTML"), |m| {
            m.bytes = b"<!DOCTYPE html><html><body>Please log in</body></html>".to_vec();
        }),
        case("gzipped", &strips, sum("wrapping"), |m| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packer, &m.bytes).unwrap();
            m.bytes = packer.finish().unwrap();
        }),
        case("an HTTP head in front", &strips, sum("wrapping"), |m| {
            let mut all =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", m.bytes.len()).into_bytes();
            all.append(&mut m.bytes);
            m.bytes = all;
        }),
        case("line ends mangled", &strips, Refused(header, "text mode"), |m| {
            m.bytes = m
                .bytes
                .iter()
                .flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] })
                .collect();
        }),
        case("bits per sample halved", &strips, Refused(header, "bits per sample"), |m| {
            let (at, _) = m.values(258);
            for i in 0..BANDS {
                m.put16(at + i * 2, 8);
            }
        }),
        case("sample format wrong", &strips, Sound, |m| {
            let (at, _) = m.values(339);
            for i in 0..BANDS {
                m.put16(at + i * 2, 2);
            }
        }),
        swapped(),
        case("all offsets the same", &tiles, sum("TileOffsets"), |m| {
            let (first, _) = m.block(0);
            m.each32(324, |_, _| first as u32);
        }),
        case("empty", &strips, Refused(header, "empty"), |m| m.bytes.clear()),
        case("all zeros", &strips, Refused(header, "zero bytes"), |m| m.bytes.fill(0)),
        case("an honest bomb", &strips, Refused(Code::PAYLOAD_TOO_LARGE, "--max-pixels"), |m| {
            let at = (m.entry(256) + 8, m.entry(257) + 8, m.entry(278) + 8);
            m.put32(at.0, 100_000);
            m.put32(at.1, 100_000);
            m.put32(at.2, 100);
            m.bytes.truncate(20_000);
        }),
        lying_bomb(),
    ]
}

/// The bytes of every pixel swapped: every checksum holds, and nothing proves it.
fn swapped() -> Case {
    let recipe = Recipe { predictor: 1, ..plain() };
    case("pixels swapped in their bytes", &make(&recipe), Sound, |m| {
        let (at, _) = m.block(0);
        for two in m.bytes[at..].chunks_exact_mut(2) {
            two.swap(0, 1);
        }
    })
}

/// A block that unpacks to a thousand times its size.
fn lying_bomb() -> Case {
    case(
        "a lying bomb",
        &make(&Recipe::strips(8)),
        Refused(Code::PAYLOAD_TOO_LARGE, "unpacks to more"),
        |m| {
            let bomb = pack(8, &vec![0; 40 << 20]);
            let at = m.bytes.len() as u32;
            m.bytes.extend(&bomb);
            let (places, _) = m.values(273);
            let (lens, _) = m.values(279);
            m.put32(places, at);
            m.put32(lens, bomb.len() as u32);
        },
    )
}

/// Repairs bytes in a directory of their own. The input must stay as it was.
fn repaired(
    bytes: &[u8],
    beside: &[(&str, &str)],
    options: &RepairOptions,
) -> (Result<RepairReport, RepairError>, Option<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.tif"), dir.path().join("out.tif"));
    fs::write(&from, bytes).unwrap();
    for (name, text) in beside {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let result = repair(&from, &to, options);
    assert_eq!(fs::read(&from).unwrap(), bytes, "the input was touched");
    assert_eq!(to.exists(), result.is_ok(), "an output if and only if it succeeded");
    assert_no_leftovers(dir.path(), beside.len() + 1 + usize::from(result.is_ok()));
    (result, fs::read(&to).ok())
}

fn assert_no_leftovers(dir: &Path, expected: usize) {
    assert_eq!(fs::read_dir(dir).unwrap().count(), expected, "files left behind");
}

#[test]
fn sound_files_are_copied_as_they_are() {
    for codec in [1, 5, 8, 50000] {
        for recipe in [Recipe::strips(codec), Recipe::tiles(codec)] {
            for big_endian in [false, true] {
                let made = make(&Recipe { big_endian, ..recipe.clone() });
                assert_eq!(look(&made.bytes).pixels, picture(), "the generator");
                let (report, out) = repaired(&made.bytes, &[], &RepairOptions::default());
                let report = report.unwrap();
                assert_eq!(report.outcome, RepairOutcome::Sound, "codec {codec}: {report:?}");
                assert_eq!(out.unwrap(), made.bytes);
            }
        }
    }
    let cog = make(&Recipe::cog());
    let (report, out) = repaired(&cog.bytes, &[], &RepairOptions::default());
    assert_eq!((report.unwrap().outcome, out.unwrap()), (RepairOutcome::Sound, cog.bytes));
}

#[test]
fn each_damage_ends_as_documented() {
    let wanted = picture();
    let all = cases();
    assert_eq!(all.len(), 39);
    for Case { name, bytes, expect } in all {
        let (result, out) = repaired(&bytes, &[], &RepairOptions::default());
        match (expect, result) {
            (Sound, Ok(report)) => {
                assert_eq!(report.outcome, RepairOutcome::Sound, "{name}: {report:?}");
                assert_eq!(out.unwrap(), bytes, "{name}");
            }
            (Repaired(proof, field), Ok(report)) => {
                assert_eq!(
                    (report.outcome, report.proof),
                    (RepairOutcome::Repaired, proof),
                    "{name}: {report:?}"
                );
                let named = report.changes.iter().any(|change| change.field.starts_with(field));
                assert!(named, "{name}: {:?}", report.changes);
                let looked = look(&out.unwrap());
                assert!(looked.pixels == wanted, "{name}: other pixels");
                assert!(looked.mask.is_none(), "{name}: a mask");
            }
            (Refused(code, word), Err(RepairError::Refused(refusal))) => {
                assert_eq!(refusal.code, code, "{name}: {refusal:?}");
                assert!(refusal.reason.contains(word), "{name}: {refusal:?}");
                assert!(!refusal.transient, "{name}");
            }
            (Transient, Err(RepairError::Refused(refusal))) => {
                assert_eq!((refusal.code, refusal.transient), (Code::ERROR_DOCUMENT, true), "{name}");
            }
            (Partial(low, high), Err(RepairError::Refused(refusal))) => {
                assert_eq!(refusal.code, Code::CORRUPTED_BLOCK, "{name}: {refusal:?}");
                assert!(refusal.reason.contains("--partial"), "{name}: {refusal:?}");
                partly(name, &bytes, low, high, &wanted);
            }
            (_, result) => panic!("{name} ended otherwise: {result:?}"),
        }
    }
}

/// With `partial`, the pixels under the mask are those of the picture, and the share is the one told.
fn partly(name: &str, bytes: &[u8], low: u32, high: u32, wanted: &[u16]) {
    let options = RepairOptions { partial: true, ..RepairOptions::default() };
    let (report, out) = repaired(bytes, &[], &options);
    let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(report.outcome, RepairOutcome::Partial, "{name}");
    let looked = look(&out.unwrap());
    let mask = looked.mask.unwrap_or_else(|| panic!("{name}: no mask"));
    for (i, there) in mask.iter().enumerate() {
        let (found, want) = (&looked.pixels[i * BANDS..][..BANDS], &wanted[i * BANDS..][..BANDS]);
        assert!(if *there { found == want } else { found == [0; BANDS] }, "{name}: pixel {i}");
    }
    let lost = mask.iter().filter(|there| !**there).count() as u64;
    assert_eq!((report.pixels_lost, report.pixels), (lost, (WIDTH * HEIGHT) as u64), "{name}");
    let share = report.percent_recovered() as u32;
    assert!((low..=high).contains(&share), "{name}: {share} %");
}

#[test]
fn a_lost_place_comes_from_files_beside_it_or_a_person() {
    let mut made = make(&Recipe::strips(8));
    made.remove(34735);
    made.remove(33550);
    made.remove(33922);
    let tfw = ("in.tfw", "10\n0\n0\n-10\n500005\n4999995\n");
    let (result, _) = repaired(&made.bytes, &[tfw], &RepairOptions::default());
    let Err(RepairError::Refused(refusal)) = result else { panic!("a place is no system: {result:?}") };
    assert_eq!(refusal.code, Code::CRS_NOT_FOUND);
    let said = RepairOptions { crs: "EPSG:32633".parse().ok(), ..RepairOptions::default() };
    let (report, out) = repaired(&made.bytes, &[tfw], &said);
    let fields: Vec<String> = report.unwrap().changes.into_iter().map(|change| change.field).collect();
    assert_eq!(fields, ["place", "system"]);
    let looked = look(&out.unwrap());
    assert_eq!(looked.tags[&34735].last(), Some(&32633));
    assert!(looked.pixels == picture());
    let aux = (
        "in.tif.aux.xml",
        "<PAMDataset><SRS>EPSG:32633</SRS><GeoTransform>500000, 10, 0, 5000000, 0, -10</GeoTransform></PAMDataset>",
    );
    let (report, _) = repaired(&made.bytes, &[aux], &RepairOptions::default());
    assert_eq!(report.unwrap().outcome, RepairOutcome::Repaired);
    let unplaced = RepairOptions { unplaced: true, ..RepairOptions::default() };
    assert_eq!(repaired(&made.bytes, &[], &unplaced).0.unwrap().outcome, RepairOutcome::Sound);
}

#[test]
fn swapped_bytes_are_told_and_left() {
    let (report, _) = repaired(&swapped().bytes, &[], &RepairOptions::default());
    assert!(report.unwrap().warnings.iter().any(|text| text.contains("swapped")));
}

/// Wiped tables without leaders leave nothing to go by, and zeros are no pixels.
#[test]
fn a_file_of_holes_is_not_sound() {
    let mut made = make(&Recipe::tiles(8));
    made.each32(324, |_, _| 0);
    made.each32(325, |_, _| 0);
    let options = RepairOptions { partial: true, ..RepairOptions::default() };
    let (result, _) = repaired(&made.bytes, &[], &options);
    let Err(RepairError::Refused(refusal)) = result else { panic!("{result:?}") };
    assert!(refusal.reason.contains("wiped"), "{refusal:?}");
}

/// Shared bytes of plain blocks belong to one place only, and nothing says to which.
#[test]
fn plain_blocks_with_one_place_are_lost() {
    let mut made = make(&plain());
    let (first, _) = made.block(0);
    made.each32(273, |i, at| if i < 10 { first as u32 } else { at });
    let (result, _) = repaired(&made.bytes, &[], &RepairOptions::default());
    assert!(matches!(&result, Err(RepairError::Refused(r)) if r.code == Code::CORRUPTED_BLOCK), "{result:?}");
    partly("shared", &made.bytes, 50, 50, &picture());
}

#[test]
fn the_input_is_never_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    fs::write(&path, make(&Recipe::strips(8)).bytes).unwrap();
    assert!(repair(&path, &path, &RepairOptions::default()).is_err());
}
