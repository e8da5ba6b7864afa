//! A PNG file of 8 bits per channel: the least that all browsers show.

use libdeflater::{CompressionLvl, Compressor, crc32};

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

/// Encodes pixels of red, green, blue and opacity. Channels that say nothing are left out.
pub(super) fn encode(width: u32, height: u32, pixels: &[[u8; 4]]) -> Vec<u8> {
    let is_grey = pixels.iter().all(|[r, g, b, _]| r == g && g == b);
    let is_opaque = pixels.iter().all(|pixel| pixel[3] == 255);
    // The number of the colour type, and the channels that are written.
    let (kind, channels): (u8, &[usize]) = match (is_grey, is_opaque) {
        (true, true) => (0, &[0]),
        (true, false) => (4, &[0, 3]),
        (false, true) => (2, &[0, 1, 2]),
        (false, false) => (6, &[0, 1, 2, 3]),
    };
    let row_len = width as usize * channels.len();
    let mut rows = Vec::with_capacity((row_len + 1) * height as usize);
    let mut above = vec![0; row_len];
    for row in pixels.chunks_exact(width as usize) {
        let here: Vec<u8> = row.iter().flat_map(|pixel| channels.iter().map(|at| pixel[*at])).collect();
        filter(&here, &above, channels.len(), &mut rows);
        above = here;
    }
    let mut head = Vec::new();
    head.extend(width.to_be_bytes());
    head.extend(height.to_be_bytes());
    head.extend([8, kind, 0, 0, 0]);
    let mut packer = Compressor::new(CompressionLvl::default());
    let mut packed = vec![0; packer.zlib_compress_bound(rows.len())];
    // The bound is enough for any bytes, so this cannot fail.
    let len = packer.zlib_compress(&rows, &mut packed).unwrap_or(0);
    packed.truncate(len);
    let mut out = SIGNATURE.to_vec();
    for (name, bytes) in [(b"IHDR", &head), (b"IDAT", &packed), (b"IEND", &Vec::new())] {
        chunk(name, bytes, &mut out);
    }
    out
}

fn chunk(name: &[u8; 4], bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_be_bytes());
    let from = out.len();
    out.extend(name);
    out.extend(bytes);
    let sum = crc32(out.get(from..).unwrap_or_default());
    out.extend(sum.to_be_bytes());
}

/// Writes a row as differences to what its neighbours let expect (filter 4, Paeth).
fn filter(here: &[u8], above: &[u8], step: usize, out: &mut Vec<u8>) {
    out.push(4);
    for at in 0..here.len() {
        let before = |row: &[u8]| at.checked_sub(step).map_or(0, |at| row[at]);
        out.push(here[at].wrapping_sub(expected(before(here), above[at], before(above))));
    }
}

/// Of left, above and left above, the one nearest to left + above − left above.
fn expected(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i16::from);
    let off = |x: i16| (a + b - c - x).abs();
    if off(a) <= off(b) && off(a) <= off(c) {
        left
    } else if off(b) <= off(c) {
        above
    } else {
        corner
    }
}
