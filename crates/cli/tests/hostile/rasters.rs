//! Headers made to break a reader: each ends in an answer, within the memory and the processor time that are
//! promised, without a panic.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

/// The sections that every manifest has.
const POLICIES: &str = "  retry_policy: { max_attempts: 4, base_delay: 10ms, retryable_status_codes: [429, 503] }\n  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n  dead_letters: {}\n";

const MEMORY_MB_MAX: i64 = 256;
/// Seconds of the processor for what is promised of a release build; this one is not optimised.
const CPU_SECONDS_MAX: u32 = if cfg!(debug_assertions) { 16 } else { 2 };

type Tag = (u16, u16, u32, Vec<u8>);

fn long(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn one(tag: u16, value: u32) -> Tag {
    (tag, 4, 1, long(&[value]))
}

/// A little-endian file of these tags, with bytes behind them. `next` is the place of the next directory.
fn tiff(tags: &[Tag], next: u32, behind: &[u8]) -> Vec<u8> {
    let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
    let mut at = 8 + 2 + tags.len() * 12 + 4;
    file.extend((tags.len() as u16).to_le_bytes());
    let mut data: Vec<u8> = Vec::new();
    for (tag, kind, count, bytes) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        if bytes.len() <= 4 {
            file.extend(bytes);
            file.extend(vec![0; 4 - bytes.len()]);
        } else {
            file.extend((at as u32).to_le_bytes());
            at += bytes.len();
            data.extend(bytes);
        }
    }
    file.extend(next.to_le_bytes());
    file.extend(data);
    file.extend(behind);
    file
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A picture with one strip or tile at the end of the file.
fn picture(more: &[Tag], block: &[u8]) -> Vec<u8> {
    let mut tags =
        vec![one(256, 64), one(257, 64), one(258, 8), one(259, 8), one(262, 1), one(277, 1), one(278, 64)];
    tags.retain(|(tag, ..)| more.iter().all(|(other, ..)| other != tag));
    tags.extend_from_slice(more);
    if more.iter().all(|(tag, ..)| !matches!(tag, 273 | 324)) {
        tags.push(one(273, 0));
        tags.push(one(279, block.len() as u32));
    }
    tags.sort_by_key(|(tag, ..)| *tag);
    let len = tiff(&tags, 0, &[]).len() as u32;
    if let Some(place) =
        tags.iter_mut().find(|(tag, _, count, bytes)| *tag == 273 && *count == 1 && bytes == &long(&[0]))
    {
        place.3 = long(&[len]);
    }
    tiff(&tags, 0, block)
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let small = zlib(&[7; 4096]);
    let bomb = zlib(&vec![0; 64 << 20]);
    let many = |count: usize| {
        let all = vec![8u32; count];
        (long(&all), count as u32)
    };
    let (places, count) = many(1 << 20);
    let mut bait = b"II\x2a\0\xff\xff\xff\x7f".to_vec();
    for _ in 0..200_000 {
        bait.extend([8, 0, 0, 1, 4, 0, 1, 0, 0, 0, 64, 0, 0, 0]);
    }
    let mut chain = b"II\x2a\0\x08\0\0\0".to_vec();
    for _ in 0..3000 {
        let next = chain.len() as u32 + 2 + 3 * 12 + 4;
        chain.extend(3u16.to_le_bytes());
        for (tag, value) in [(256u16, 1u32), (257, 1), (273, 8)] {
            chain.extend(tag.to_le_bytes());
            chain.extend([4, 0, 1, 0, 0, 0]);
            chain.extend(value.to_le_bytes());
        }
        chain.extend(next.to_le_bytes());
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![0; 64 << 20]).unwrap();
    let mut big = b"II\x2b\0\x08\0\0\0\x10\0\0\0\0\0\0\0".to_vec();
    big.extend(u64::MAX.to_le_bytes());
    big.extend([0xff; 400]);
    let zstd_lie = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0];
    vec![
        ("sound", picture(&[], &small)),
        ("width", picture(&[one(256, 4_000_000_000)], &small)),
        ("both", picture(&[one(256, u32::MAX), one(257, u32::MAX)], &small)),
        ("bands", picture(&[one(277, 65_535)], &small)),
        ("bits", picture(&[one(258, u32::MAX)], &small)),
        ("honest bomb", picture(&[one(256, 8000), one(257, 8000), one(278, 8000)], &bomb)),
        ("larger bomb", picture(&[one(256, 100_000), one(257, 100_000), one(278, 600)], &bomb)),
        ("lying bomb", picture(&[], &bomb)),
        ("lzw bomb", picture(&[one(259, 5)], &[0x80; 60_000])),
        ("zstd lie", picture(&[one(259, 50_000)], &zstd_lie)),
        (
            "lerc lie",
            picture(&[one(259, 34_887)], b"Lerc2 \x06\0\0\0\0\0\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f"),
        ),
        ("huge tile", picture(&[one(322, 65_536), one(323, 65_536), one(324, 8), one(325, 100)], &small)),
        (
            "one block a million times",
            picture(
                &[
                    one(256, 16 << 10),
                    one(257, 16 << 10),
                    one(322, 16),
                    one(323, 16),
                    (324, 4, count, places.clone()),
                    (325, 4, count, places),
                ],
                &small,
            ),
        ),
        (
            "millions of tiles and a table of one",
            picture(
                &[
                    one(256, 128 << 10),
                    one(257, 128 << 10),
                    one(322, 16),
                    one(323, 16),
                    one(324, 8),
                    one(325, 8),
                ],
                &small,
            ),
        ),
        ("loop", tiff(&[one(256, 1), one(257, 1), one(273, 8)], 8, &[])),
        ("chain", chain),
        ("count", picture(&[(273, 4, u32::MAX, long(&[8])), (279, 4, u32::MAX, long(&[8]))], &small)),
        ("text", picture(&[(42112, 2, u32::MAX, long(&[8]))], &small)),
        ("keys", picture(&[(34735, 3, u32::MAX, long(&[8]))], &small)),
        ("past the end", picture(&[one(273, u32::MAX), one(279, u32::MAX)], &small)),
        ("no blocks", picture(&[(273, 4, 0, Vec::new()), (279, 4, 0, Vec::new())], &small)),
        ("zero rows", picture(&[one(278, 0)], &small)),
        ("big", big),
        ("bait", bait),
        ("gzip bomb", gzip.finish().unwrap()),
        ("two bytes", b"II".to_vec()),
    ]
}

fn limited(args: &[&str], dir: &Path) -> (std::process::Output, i64) {
    let limits = format!("ulimit -c 0; ulimit -t {CPU_SECONDS_MAX}; ulimit -v 4194304; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &limits, env!("CARGO_BIN_EXE_tidegate")])
        .args(args)
        .current_dir(dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output, getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() / 1024)
}

#[test]
fn hostile_headers_end_in_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let mut faults = Vec::new();
    let manifest = format!(
        "pipeline:\n  id: h\n{POLICIES}  source: {{ rasters: [h.tif] }}\n  steps: [{{ raster: {{ survey: true }} }}]\n  sink: {{ file: i.geojsonl }}\n"
    );
    std::fs::write(dir.path().join("m.yaml"), manifest).unwrap();
    for (name, bytes) in cases() {
        std::fs::write(dir.path().join("h.tif"), &bytes).unwrap();
        drop(bytes);
        let repair = ["raster", "repair", "h.tif", "--dry-run", "--partial", "--unplaced"];
        let read = ["run", "m.yaml", "--state", "state", "--quiet"];
        let validate = ["raster", "validate", "h.tif", "--full", "--any"];
        for args in [&repair[..], &read, &validate] {
            let (output, peak) = limited(args, dir.path());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code();
            let sound = name == "sound";
            let fine = output.status.signal().is_none()
                && peak <= MEMORY_MB_MAX
                && !said.contains("internal error")
                && !said.contains("panicked")
                && if sound { code == Some(0) } else { matches!(code, Some(0 | 1 | 4)) };
            if !fine {
                faults.push(format!("{name} {:?}: {}, {peak} MB, {said}", args.first(), output.status));
            }
            let _ = std::fs::remove_dir_all(dir.path().join("state"));
            let _ = std::fs::remove_file(dir.path().join("i.geojsonl"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
