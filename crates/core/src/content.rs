//! What the bytes of a file say that it is.
//!
//! A service that cannot deliver an image may answer 200 with a page, an exception in XML, an error in
//! JSON or a picture of the error, and call each of them `image/png`. A label is a claim; what is stored
//! is recognised by its bytes, and this module is the one place that does so.
//!
//! | file | holds |
//! |---|---|
//! | `exception` | the text of an exception report |
//! | `whole` | whether a picture or a vector tile ends where it should |

mod exception;
mod whole;

pub use exception::{ExceptionReport, exception, is_exception};
pub use whole::{is_vector_tile, is_whole};

/// The bytes that are needed to recognise a file.
pub const HEAD_BYTES: usize = 512;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// TIFF, also BigTIFF and Cloud Optimized GeoTIFF.
    Tiff,
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// JPEG 2000.
    Jp2,
    /// JPEG XL.
    Jxl,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
    /// AVIF.
    Avif,
    /// A Mapbox vector tile. Its bytes have no magic number: see [`ContentKind::of_body`].
    VectorTile,
    /// gzip, of anything.
    Gzip,
    /// ZIP, of anything.
    Zip,
    /// Parquet.
    Parquet,
    /// FlatGeobuf.
    FlatGeobuf,
    /// SQLite, such as a GeoPackage.
    Sqlite,
    /// PDF.
    Pdf,
    /// A page of a website.
    Html,
    /// XML.
    Xml,
    /// JSON.
    Json,
    /// Other text.
    Text,
    /// Nothing at all.
    Empty,
    /// Anything else.
    Other,
}

/// The beginnings that name a kind.
const MAGIC: &[(&[u8], ContentKind)] = &[
    (b"II*\0", ContentKind::Tiff),
    (b"MM\0*", ContentKind::Tiff),
    (b"II+\0", ContentKind::Tiff),
    (b"MM\0+", ContentKind::Tiff),
    (b"\x89PNG\r\n\x1a\n", ContentKind::Png),
    (b"\xff\xd8\xff", ContentKind::Jpeg),
    (b"\0\0\0\x0cjP  ", ContentKind::Jp2),
    (b"\xff\x4f\xff\x51", ContentKind::Jp2),
    (b"\0\0\0\x0cJXL ", ContentKind::Jxl),
    (b"\xff\x0a", ContentKind::Jxl),
    (b"GIF87a", ContentKind::Gif),
    (b"GIF89a", ContentKind::Gif),
    (b"\x1f\x8b", ContentKind::Gzip),
    (b"PK\x03\x04", ContentKind::Zip),
    (b"PK\x05\x06", ContentKind::Zip),
    (b"PAR1", ContentKind::Parquet),
    (b"fgb\x03fgb", ContentKind::FlatGeobuf),
    (b"SQLite format 3\0", ContentKind::Sqlite),
    (b"%PDF-", ContentKind::Pdf),
];

/// The kinds of media types.
const MEDIA_TYPES: &[(&str, ContentKind)] = &[
    ("image/tiff", ContentKind::Tiff),
    ("image/vnd.stac.geotiff", ContentKind::Tiff),
    ("image/png", ContentKind::Png),
    ("image/jpeg", ContentKind::Jpeg),
    ("image/jpg", ContentKind::Jpeg),
    ("image/jp2", ContentKind::Jp2),
    ("image/jxl", ContentKind::Jxl),
    ("image/gif", ContentKind::Gif),
    ("image/webp", ContentKind::Webp),
    ("image/avif", ContentKind::Avif),
    ("application/vnd.mapbox-vector-tile", ContentKind::VectorTile),
    ("application/x-protobuf", ContentKind::VectorTile),
    ("application/gzip", ContentKind::Gzip),
    ("application/zip", ContentKind::Zip),
    ("application/vnd.apache.parquet", ContentKind::Parquet),
    ("application/x-parquet", ContentKind::Parquet),
    ("application/flatgeobuf", ContentKind::FlatGeobuf),
    ("application/geopackage+sqlite3", ContentKind::Sqlite),
    ("application/vnd.sqlite3", ContentKind::Sqlite),
    ("application/x-sqlite3", ContentKind::Sqlite),
    ("application/pdf", ContentKind::Pdf),
    ("text/html", ContentKind::Html),
    ("application/json", ContentKind::Json),
    ("application/xml", ContentKind::Xml),
    ("text/xml", ContentKind::Xml),
];

/// The kinds of names.
const EXTENSIONS: &[(&str, ContentKind)] = &[
    ("tif", ContentKind::Tiff),
    ("tiff", ContentKind::Tiff),
    ("png", ContentKind::Png),
    ("jpg", ContentKind::Jpeg),
    ("jpeg", ContentKind::Jpeg),
    ("jp2", ContentKind::Jp2),
    ("jxl", ContentKind::Jxl),
    ("gif", ContentKind::Gif),
    ("webp", ContentKind::Webp),
    ("avif", ContentKind::Avif),
    ("pbf", ContentKind::VectorTile),
    ("mvt", ContentKind::VectorTile),
    ("gz", ContentKind::Gzip),
    ("zip", ContentKind::Zip),
    ("parquet", ContentKind::Parquet),
    ("fgb", ContentKind::FlatGeobuf),
    ("gpkg", ContentKind::Sqlite),
    ("pdf", ContentKind::Pdf),
    ("html", ContentKind::Html),
    ("htm", ContentKind::Html),
    ("json", ContentKind::Json),
    ("geojson", ContentKind::Json),
    ("xml", ContentKind::Xml),
];

impl ContentKind {
    /// What the first bytes of a file are.
    #[must_use]
    pub fn of(head: &[u8]) -> ContentKind {
        if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
            return *kind;
        }
        if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
            return ContentKind::Webp;
        }
        if head.get(4..12) == Some(b"ftypavif") || head.get(4..12) == Some(b"ftypavis") {
            return ContentKind::Avif;
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        let start = text.get(..HEAD_BYTES).unwrap_or(text);
        let holds = |word: &[u8]| start.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        match text.first() {
            None => ContentKind::Empty,
            Some(b'<') if holds(b"<html") || holds(b"<!doctype html") || is_page(start) => ContentKind::Html,
            Some(b'<') => ContentKind::Xml,
            Some(b'{' | b'[') => ContentKind::Json,
            Some(_) if is_text(start) => ContentKind::Text,
            Some(_) => ContentKind::Other,
        }
    }

    /// What a whole file is: as [`ContentKind::of`], and vector tiles, which only their structure tells.
    #[must_use]
    pub fn of_body(body: &[u8]) -> ContentKind {
        match ContentKind::of(body) {
            // A name of a layer may be all that is in the first bytes.
            ContentKind::Other | ContentKind::Text if is_vector_tile(body) => ContentKind::VectorTile,
            kind => kind,
        }
    }

    /// The kind of a media type, with or without parameters; `None` if it is not one of these.
    #[must_use]
    pub fn of_media_type(text: &str) -> Option<ContentKind> {
        let name = text.split(';').next().unwrap_or_default().trim();
        let known = MEDIA_TYPES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        let ends = |end: &str| {
            let at = name.len().checked_sub(end.len()).filter(|at| *at > 0);
            at.and_then(|at| name.get(at..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
        };
        match known {
            Some((_, kind)) => Some(*kind),
            None if ends("+json") => Some(ContentKind::Json),
            None if ends("+xml") => Some(ContentKind::Xml),
            None => None,
        }
    }

    /// The kind of a file by the extension of its name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<ContentKind> {
        let (_, extension) = name.rsplit_once('.')?;
        EXTENSIONS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind)
    }

    /// Its name, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ContentKind::Tiff => "TIFF",
            ContentKind::Png => "PNG",
            ContentKind::Jpeg => "JPEG",
            ContentKind::Jp2 => "JPEG 2000",
            ContentKind::Jxl => "JPEG XL",
            ContentKind::Gif => "GIF",
            ContentKind::Webp => "WebP",
            ContentKind::Avif => "AVIF",
            ContentKind::VectorTile => "a vector tile",
            ContentKind::Gzip => "gzip",
            ContentKind::Zip => "ZIP",
            ContentKind::Parquet => "Parquet",
            ContentKind::FlatGeobuf => "FlatGeobuf",
            ContentKind::Sqlite => "SQLite",
            ContentKind::Pdf => "PDF",
            ContentKind::Html => "HTML",
            ContentKind::Xml => "XML",
            ContentKind::Json => "JSON",
            ContentKind::Text => "text",
            ContentKind::Empty => "nothing",
            ContentKind::Other => "something else",
        }
    }

    /// Whether it is a picture.
    #[must_use]
    pub const fn is_picture(self) -> bool {
        matches!(
            self,
            ContentKind::Tiff
                | ContentKind::Png
                | ContentKind::Jpeg
                | ContentKind::Jp2
                | ContentKind::Jxl
                | ContentKind::Gif
                | ContentKind::Webp
                | ContentKind::Avif
        )
    }

    /// Whether it is what services write errors in, or nothing.
    #[must_use]
    pub const fn is_words(self) -> bool {
        matches!(
            self,
            ContentKind::Html | ContentKind::Xml | ContentKind::Json | ContentKind::Text | ContentKind::Empty
        )
    }

    /// What came instead of what was declared; `None` if that may be. A file of an unknown kind may
    /// be anything but a page, an exception report and nothing.
    #[must_use]
    pub fn instead_of(declared: Option<ContentKind>, head: &[u8]) -> Option<ContentKind> {
        let found = ContentKind::of(head);
        match declared {
            Some(declared) if declared == found => None,
            // XHTML is both.
            Some(ContentKind::Html | ContentKind::Xml)
                if matches!(found, ContentKind::Html | ContentKind::Xml) =>
            {
                None
            }
            // They have no magic number, and may be packed.
            Some(ContentKind::VectorTile) if !found.is_words() && !found.is_picture() => None,
            Some(_) => Some(found),
            None => {
                let is_error = match found {
                    ContentKind::Html => true,
                    ContentKind::Xml => is_exception(head),
                    _ => false,
                };
                is_error.then_some(found)
            }
        }
    }
}

/// Whether a page begins here, without its first element.
fn is_page(text: &[u8]) -> bool {
    [&b"<head"[..], b"<body"]
        .iter()
        .any(|tag| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag)))
}

/// Whether bytes are text, of which the last character may be cut.
fn is_text(start: &[u8]) -> bool {
    let text = match core::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            start.get(..error.valid_up_to()).and_then(|part| core::str::from_utf8(part).ok()).unwrap_or("")
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_place_of_an_image_is_recognised() {
        let tiff = ContentKind::of_media_type("image/tiff; application=geotiff; profile=cloud-optimized");
        assert_eq!(tiff, Some(ContentKind::Tiff));
        for (head, instead) in [
            (&b"II*\0\x08"[..], None),
            (b"MM\0+", None),
            (b"\x89PNG\r\n\x1a\n", Some(ContentKind::Png)),
            (b"<!DOCTYPE html><html>", Some(ContentKind::Html)),
            (b"\xef\xbb\xbf <?xml version='1.0'?><ServiceExceptionReport>", Some(ContentKind::Xml)),
            (b"{\"error\": 1}", Some(ContentKind::Json)),
            (b"the service is busy", Some(ContentKind::Text)),
            (b"", Some(ContentKind::Empty)),
            (b" \r\n", Some(ContentKind::Empty)),
            (b"\0\0", Some(ContentKind::Other)),
        ] {
            assert_eq!(ContentKind::instead_of(tiff, head), instead, "{head:?}");
        }
        assert_eq!(ContentKind::instead_of(None, b"\0\0"), None);
        assert_eq!(ContentKind::instead_of(None, b"<a/>"), None);
        for error in [&b"<html>"[..], b"<?xml version='1.0'?><ServiceExceptionReport>", b"<body>"] {
            assert!(ContentKind::instead_of(None, error).is_some(), "{error:?}");
        }
        assert_eq!(ContentKind::instead_of(ContentKind::of_name("a.xml"), b"<a/>"), None);
        assert_eq!(ContentKind::of_name("a.JP2"), Some(ContentKind::Jp2));
        assert_eq!(ContentKind::of_media_type("application/geo+json"), Some(ContentKind::Json));
    }

    #[test]
    fn every_magic_number_is_that_of_its_kind() {
        for (magic, kind) in MAGIC {
            assert_eq!(ContentKind::of(&[magic, &b"\0rest"[..]].concat()), *kind);
        }
        assert_eq!(ContentKind::of(b"RIFF\x04\0\0\0WEBP"), ContentKind::Webp);
        assert_eq!(ContentKind::of(b"\0\0\0\x1cftypavif"), ContentKind::Avif);
        assert_eq!(ContentKind::of(b"GIF8"), ContentKind::Text, "too little to be one");
        assert_eq!(ContentKind::of("gr\u{fc}n".as_bytes().get(..3).unwrap_or_default()), ContentKind::Text);
    }

    #[test]
    fn a_vector_tile_is_known_by_its_structure() {
        // A layer named "a" of version 2.
        let tile = b"\x1a\x05\x78\x02\x0a\x01a";
        assert_eq!(ContentKind::of_body(tile), ContentKind::VectorTile);
        assert_eq!(ContentKind::of_body(&tile[..6]), ContentKind::Other, "cut");
        let declared = ContentKind::of_name("1.pbf");
        for (body, instead) in [
            (&tile[..], None),
            (b"\x1f\x8b\x08", None),
            (b"[]", Some(ContentKind::Json)),
            (b"\x89PNG\r\n\x1a\n", Some(ContentKind::Png)),
        ] {
            assert_eq!(ContentKind::instead_of(declared, body), instead);
        }
    }
}
