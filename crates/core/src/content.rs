//! What the first bytes of a file say that it is.
//!
//! A service that cannot deliver an image may answer 200 with a page, an exception in XML, or a
//! picture of the error. The declared media type and the first bytes tell them apart.

/// The bytes that are needed to recognise a file.
pub const HEAD_BYTES: usize = 512;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// TIFF, also BigTIFF and Cloud Optimized GeoTIFF.
    Tiff,
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// JPEG 2000.
    Jp2,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
    /// A page of a website.
    Html,
    /// XML.
    Xml,
    /// JSON.
    Json,
    /// Nothing at all.
    Empty,
    /// Anything else.
    Other,
}

impl ContentKind {
    /// What the first bytes of a file are.
    #[must_use]
    pub fn of(head: &[u8]) -> ContentKind {
        const MAGIC: [(&[u8], ContentKind); 9] = [
            (b"II*\0", ContentKind::Tiff),
            (b"MM\0*", ContentKind::Tiff),
            (b"II+\0", ContentKind::Tiff),
            (b"MM\0+", ContentKind::Tiff),
            (b"\x89PNG\r\n", ContentKind::Png),
            (b"\xff\xd8\xff", ContentKind::Jpeg),
            (b"\0\0\0\x0cjP  ", ContentKind::Jp2),
            (b"\xff\x4f\xff\x51", ContentKind::Jp2),
            (b"GIF8", ContentKind::Gif),
        ];
        if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
            return *kind;
        }
        if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
            return ContentKind::Webp;
        }
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        let holds = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        match text.first() {
            None => ContentKind::Empty,
            Some(b'<') if holds(b"<html") || holds(b"<!doctype html") => ContentKind::Html,
            Some(b'<') => ContentKind::Xml,
            Some(b'{' | b'[') => ContentKind::Json,
            Some(_) => ContentKind::Other,
        }
    }

    /// The kind of a media type, with or without parameters; `None` if it is not one of these.
    #[must_use]
    pub fn of_media_type(text: &str) -> Option<ContentKind> {
        let name = text.split(';').next().unwrap_or_default().trim();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        let ends = |end: &str| name.len() > end.len() && name.to_ascii_lowercase().ends_with(end);
        match () {
            () if is("image/tiff") || is("image/vnd.stac.geotiff") => Some(ContentKind::Tiff),
            () if is("image/png") => Some(ContentKind::Png),
            () if is("image/jpeg") || is("image/jpg") => Some(ContentKind::Jpeg),
            () if is("image/jp2") => Some(ContentKind::Jp2),
            () if is("image/webp") => Some(ContentKind::Webp),
            () if is("text/html") => Some(ContentKind::Html),
            () if is("application/json") || ends("+json") => Some(ContentKind::Json),
            () if is("application/xml") || is("text/xml") || ends("+xml") => Some(ContentKind::Xml),
            () => None,
        }
    }

    /// The kind of a file by the extension of its name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<ContentKind> {
        let (_, extension) = name.rsplit_once('.')?;
        let is = |wanted: &[&str]| wanted.iter().any(|one| extension.eq_ignore_ascii_case(one));
        match () {
            () if is(&["tif", "tiff"]) => Some(ContentKind::Tiff),
            () if is(&["png"]) => Some(ContentKind::Png),
            () if is(&["jpg", "jpeg"]) => Some(ContentKind::Jpeg),
            () if is(&["jp2"]) => Some(ContentKind::Jp2),
            () if is(&["webp"]) => Some(ContentKind::Webp),
            () if is(&["html", "htm"]) => Some(ContentKind::Html),
            () if is(&["json", "geojson"]) => Some(ContentKind::Json),
            () if is(&["xml"]) => Some(ContentKind::Xml),
            () => None,
        }
    }

    /// Its name, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ContentKind::Tiff => "TIFF",
            ContentKind::Png => "PNG",
            ContentKind::Jpeg => "JPEG",
            ContentKind::Jp2 => "JPEG 2000",
            ContentKind::Gif => "GIF",
            ContentKind::Webp => "WebP",
            ContentKind::Html => "HTML",
            ContentKind::Xml => "XML",
            ContentKind::Json => "JSON",
            ContentKind::Empty => "nothing",
            ContentKind::Other => "something else",
        }
    }

    /// What came instead of what was declared; `None` if that may be. A file of an unknown kind may
    /// be anything but a page.
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
            Some(_) => Some(found),
            None => (found == ContentKind::Html).then_some(found),
        }
    }
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
            (b"", Some(ContentKind::Empty)),
            (b"\0\0", Some(ContentKind::Other)),
        ] {
            assert_eq!(ContentKind::instead_of(tiff, head), instead, "{head:?}");
        }
        assert_eq!(ContentKind::instead_of(None, b"\0\0"), None);
        assert_eq!(ContentKind::instead_of(None, b"<html>"), Some(ContentKind::Html));
        assert_eq!(ContentKind::instead_of(ContentKind::of_name("a.xml"), b"<a/>"), None);
        assert_eq!(ContentKind::of_name("a.JP2"), Some(ContentKind::Jp2));
        assert_eq!(ContentKind::of_media_type("application/geo+json"), Some(ContentKind::Json));
    }
}
