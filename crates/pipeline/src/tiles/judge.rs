//! What came for a tile, by its bytes.
//!
//! Services label error pages `image/png`, and real tiles `text/html`. So the label is not asked. A tile is
//! a picture or a vector tile that ends where it should; of which of the two, the address may say. Words in
//! its place are judged by the profile first, which knows what exceptions mean, and then here.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use tidegate_core::Code;
use tidegate_core::content::{ContentKind, is_vector_tile, is_whole};
use tidegate_core::signal::{Finding, Means};

/// The bytes to which a packed vector tile may grow.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// What was received in the place of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileContent {
    /// What it is; a vector tile also when it is packed.
    pub(super) kind: ContentKind,
    /// Whether it ends where it should.
    is_whole: bool,
}

impl TileContent {
    /// What these bytes are.
    pub(super) fn of(body: &[u8]) -> TileContent {
        let kind = ContentKind::of_body(body);
        match kind {
            ContentKind::Gzip if is_packed_tile(body) => {
                TileContent { kind: ContentKind::VectorTile, is_whole: true }
            }
            kind => TileContent { kind, is_whole: is_whole(kind, body) },
        }
    }

    /// Why it is no tile of the kind that the address names; `None` if it is one.
    pub(super) fn finding(self, is_vector: Option<bool>) -> Option<Finding> {
        let wrong = |means, code| Some(Finding { means, code });
        let is_tile = self.kind.is_picture() || self.kind == ContentKind::VectorTile;
        match () {
            () if self.kind == ContentKind::Empty => wrong(Means::Transient, Code::TRUNCATED_BODY),
            () if !is_tile => wrong(Means::Transient, Code::UNEXPECTED_BODY),
            // A picture of the error in place of a vector tile will be there again.
            () if is_vector.is_some_and(|is_vector| is_vector != (self.kind == ContentKind::VectorTile)) => {
                wrong(Means::Permanent, Code::UNEXPECTED_BODY)
            }
            () if !self.is_whole => wrong(Means::Transient, Code::TRUNCATED_BODY),
            () => None,
        }
    }
}

/// Whether packed bytes are a vector tile, or one without layers.
fn is_packed_tile(body: &[u8]) -> bool {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(body).take(UNPACKED_BYTES_MAX).read_to_end(&mut unpacked);
    read.is_ok() && (unpacked.is_empty() || is_vector_tile(&unpacked))
}

/// The name of the format of tiles in MBTiles and in names of files.
pub(super) const fn format(kind: ContentKind) -> &'static str {
    match kind {
        ContentKind::Jpeg => "jpg",
        ContentKind::Webp => "webp",
        ContentKind::Avif => "avif",
        ContentKind::Gif => "gif",
        ContentKind::Tiff => "tif",
        ContentKind::Jp2 => "jp2",
        ContentKind::Jxl => "jxl",
        ContentKind::VectorTile => "pbf",
        _ => "png",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    const TILE: &[u8] = b"\x1a\x05\x78\x02\x0a\x01a";

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::default());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn a_packed_tile_is_looked_into() {
        let code = |body: &[u8]| TileContent::of(body).finding(Some(true)).map(|finding| finding.code);
        assert_eq!((code(TILE), code(&packed(TILE)), code(&packed(b""))), (None, None, None));
        assert_eq!(code(&packed(b"{\"error\":1}")), Some(Code::UNEXPECTED_BODY));
        assert_eq!(code(&packed(TILE)[..12]), Some(Code::UNEXPECTED_BODY));
        assert_eq!(code(b""), Some(Code::TRUNCATED_BODY));
    }

    #[test]
    fn a_picture_is_no_vector_tile_and_the_other_way_round() {
        let gif = b"GIF89a\x01\0\x01\0\0\0\0;";
        let means =
            |body: &[u8], is_vector| TileContent::of(body).finding(is_vector).map(|found| found.means);
        assert_eq!((means(gif, Some(false)), means(gif, None), means(TILE, None)), (None, None, None));
        assert_eq!(means(gif, Some(true)), Some(Means::Permanent));
        assert_eq!(means(TILE, Some(false)), Some(Means::Permanent));
        assert_eq!(means(&gif[..8], Some(false)), Some(Means::Transient));
    }
}
