//! Whether a file ends where it should.
//!
//! A proxy or a cache may keep half of an answer and send it as a whole one. Pictures and vector tiles
//! say themselves where they end; only that is looked at, not what they show.

use super::ContentKind;

/// Whether a picture of this kind is complete. For kinds that do not say where they end, yes.
#[must_use]
pub fn is_whole(kind: ContentKind, body: &[u8]) -> bool {
    match kind {
        ContentKind::Png => png(body),
        ContentKind::Jpeg => jpeg(body),
        ContentKind::Gif => body.iter().rev().find(|b| **b != 0) == Some(&0x3b),
        ContentKind::Webp => riff(body),
        ContentKind::VectorTile => is_vector_tile(body),
        ContentKind::Empty => false,
        _ => true,
    }
}

fn u32_be(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(four)).ok()
}

/// Chunks with their lengths: the header first, until the end.
fn png(body: &[u8]) -> bool {
    let mut at = 8;
    if body.get(12..16) != Some(b"IHDR") {
        return false;
    }
    loop {
        let Some(len) = u32_be(body, at) else { return false };
        let Some(end) = at.checked_add(12).and_then(|head| head.checked_add(len)) else { return false };
        if end > body.len() {
            return false;
        }
        if body.get(at + 4..at + 8) == Some(b"IEND") {
            return true;
        }
        at = end;
    }
}

/// Segments with their lengths until the first scan; in a scan, only an end is an end.
fn jpeg(body: &[u8]) -> bool {
    const SCAN: u8 = 0xda;
    let mut at = 2;
    while let (Some(0xff), Some(marker)) = (body.get(at), body.get(at + 1)) {
        // Fill bytes may stand before a marker.
        if *marker == 0xff {
            at += 1;
            continue;
        }
        let Some(&[high, low]) = body.get(at + 2..at + 4) else { return false };
        at += 2 + usize::from(u16::from_be_bytes([high, low])).max(2);
        if *marker == SCAN {
            return body.get(at..).is_some_and(|scan| scan.windows(2).any(|two| two == b"\xff\xd9"));
        }
    }
    false
}

/// The length that the container states.
fn riff(body: &[u8]) -> bool {
    let stated: Option<[u8; 4]> = body.get(4..8).and_then(|four| four.try_into().ok());
    let stated = stated.and_then(|four| usize::try_from(u32::from_le_bytes(four)).ok());
    stated.is_some_and(|len| len >= 4 && body.len() - 8 >= len)
}

/// Whether bytes are a Mapbox vector tile: layers, and nothing but fields of a protocol buffer, up to the
/// last byte.
#[must_use]
pub fn is_vector_tile(body: &[u8]) -> bool {
    /// Field 3 of a tile: a layer.
    const LAYER: u64 = 3;
    let (mut rest, mut layers) = (body, 0_u64);
    while !rest.is_empty() {
        let Some(BufferField { number, value, after }) = field(rest) else { return false };
        if number == LAYER {
            if !value.is_some_and(is_layer) {
                return false;
            }
            layers += 1;
        }
        rest = after;
    }
    layers > 0
}

/// Whether a layer has a name, and fields up to its last byte.
fn is_layer(body: &[u8]) -> bool {
    /// Field 1 of a layer: its name.
    const NAME: u64 = 1;
    let (mut rest, mut named) = (body, false);
    while !rest.is_empty() {
        let Some(BufferField { number, value, after }) = field(rest) else { return false };
        named |= number == NAME && value.is_some();
        rest = after;
    }
    named
}

/// A field of a protocol buffer, and what comes after it.
struct BufferField<'a> {
    number: u64,
    /// Its bytes, if it has a length.
    value: Option<&'a [u8]>,
    after: &'a [u8],
}

/// The next field.
fn field(bytes: &[u8]) -> Option<BufferField<'_>> {
    let (tag, rest) = varint(bytes)?;
    let number = tag >> 3;
    if number == 0 {
        return None;
    }
    let (value, after) = match tag & 7 {
        0 => (None, varint(rest)?.1),
        1 => (None, rest.get(8..)?),
        2 => {
            let (len, rest) = varint(rest)?;
            let (value, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Some(value), after)
        }
        5 => (None, rest.get(4..)?),
        _ => return None,
    };
    Some(BufferField { number, value, after })
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0crc.\0\0\0\x02IDATxxcrc.\0\0\0\0IEND\xae\x42\x60\x82";
    const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x04ab\xff\xda\0\x04cddata\xff\0more\xff\xd9";

    #[test]
    fn what_is_cut_is_not_whole() {
        let gif = &b"GIF89a\x01\0\x01\0\0\0\0;"[..];
        let webp = &b"RIFF\x06\0\0\0WEBPab"[..];
        let tile = &b"\x1a\x05\x78\x02\x0a\x01a"[..];
        for (kind, body) in [
            (ContentKind::Png, PNG),
            (ContentKind::Jpeg, JPEG),
            (ContentKind::Gif, gif),
            (ContentKind::Webp, webp),
            (ContentKind::VectorTile, tile),
        ] {
            assert!(is_whole(kind, body), "{kind:?}");
            for end in 0..body.len() {
                assert!(!is_whole(kind, &body[..end]), "{kind:?} cut at {end}");
            }
        }
        assert!(!is_whole(ContentKind::Empty, b"") && is_whole(ContentKind::Tiff, b"II*\0"));
        // The end of a thumbnail is not that of the picture.
        assert!(!is_whole(ContentKind::Jpeg, b"\xff\xd8\xff\xe1\0\x06\xff\xd9ab\xff\xda\0\x02data"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..200)) {
            for kind in [ContentKind::Png, ContentKind::Jpeg, ContentKind::Gif, ContentKind::Webp, ContentKind::VectorTile] {
                let _ = is_whole(kind, &body);
                let _ = is_whole(kind, &[PNG.get(..9).unwrap_or_default(), &body].concat());
                let _ = is_whole(kind, &[JPEG.get(..4).unwrap_or_default(), &body].concat());
            }
        }
    }
}
