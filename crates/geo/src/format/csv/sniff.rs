//! What the first bytes of a file say: another format, or which delimiter.

/// The format of bytes that are not CSV.
pub(super) fn other_format(start: &[u8]) -> Option<&'static str> {
    let magic: [(&[u8], &str); 5] = [
        (b"PK\x03\x04", "a zip archive or a spreadsheet (.xlsx)"),
        (b"\x1f\x8b", "a gzip file; unpack it first"),
        (b"SQLite format 3\0", "a GeoPackage or SQLite file"),
        (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
        (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
    ];
    magic.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, format)| format)
}

/// The candidate that occurs most often outside quotes in the first line.
pub(super) fn guess_delimiter(start: &[u8]) -> u8 {
    let candidates = [b',', b';', b'\t', b'|'];
    let mut counts = [0usize; 4];
    let mut quoted = false;
    for &b in start {
        match b {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if !quoted => {
                if let Some(i) = candidates.iter().position(|&c| c == b) {
                    counts[i] += 1;
                }
            }
            _ => {}
        }
    }
    let best = (0..4).rev().max_by_key(|&i| counts[i]).unwrap_or(0);
    if counts[best] == 0 { b',' } else { candidates[best] }
}
