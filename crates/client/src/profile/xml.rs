//! Scans an XML document: its root, a few names near it, and whether it is complete.
//!
//! An OGC service may answer a failed request with 200 and an exception report, and a truncated
//! body with 200 and half a feature collection. Both can be detected without building the document:
//! by the name of the root, one attribute or element near it, and whether every tag was closed.
//! Depth and tag length are bounded. A document type declaration may reference a DTD, as old OGC
//! services do; it is not fetched. An internal subset is refused, because entity declarations are a
//! means of attack.

use super::Broken;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

const DEPTH_MAX: usize = 128;
const TAG_BYTES_MAX: usize = 64 * 1024;
const TEXT_BYTES_MAX: usize = 1024;
/// The depth down to which names are searched; the root is 1.
const LOOK_DEPTH: usize = 4;

/// The result of a scan.
#[derive(Debug, Default, PartialEq)]
pub(super) struct XmlScan {
    /// The root's local name.
    pub(super) root: String,
    /// The first value of each wanted attribute, in the order wanted.
    pub(super) attributes: Vec<Option<String>>,
    /// The first text of each wanted element, in the order wanted.
    pub(super) elements: Vec<Option<String>>,
}

/// Scans a document for the wanted local names.
pub(super) fn scan(body: &[u8], attributes: &[String], elements: &[String]) -> Result<XmlScan, Broken> {
    let mut found = XmlScan {
        root: String::new(),
        attributes: vec![None; attributes.len()],
        elements: vec![None; elements.len()],
    };
    let mut reader = Reader::from_reader(body);
    let mut depth = 0_usize;
    let mut open: Option<(usize, usize)> = None;
    let mut rooted = false;
    loop {
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(quick_xml::Error::Syntax(_)) => return Err(Broken::Cut),
            Err(_) => return Err(Broken::Bad),
        };
        match event {
            Event::Start(tag) => {
                depth += 1;
                if depth > DEPTH_MAX || (depth == 1 && rooted) {
                    return Err(Broken::Bad);
                }
                look(&tag, depth, &mut found, attributes)?;
                rooted = true;
                if depth <= LOOK_DEPTH {
                    let wanted = elements.iter().position(|e| e.as_bytes() == tag.local_name().as_ref());
                    if let Some(i) = wanted
                        && found.elements.get(i).is_some_and(Option::is_none)
                    {
                        open = Some((i, depth));
                    }
                }
            }
            Event::Empty(tag) => {
                if depth == 0 && rooted {
                    return Err(Broken::Bad);
                }
                look(&tag, depth + 1, &mut found, attributes)?;
                rooted = true;
            }
            Event::End(_) => {
                if open.is_some_and(|(_, d)| d == depth) {
                    open = None;
                }
                depth = depth.saturating_sub(1);
            }
            Event::Text(text) => {
                let bytes: &[u8] = &text;
                if depth == 0 && !bytes.trim_ascii().is_empty() {
                    return Err(Broken::Bad);
                }
                keep(&mut found, open, bytes);
            }
            Event::CData(text) => keep(&mut found, open, &text),
            Event::DocType(declared) if declared.contains(&b'[') => return Err(Broken::Bad),
            Event::Eof => break,
            Event::DocType(_) | Event::Decl(_) | Event::PI(_) | Event::Comment(_) | Event::GeneralRef(_) => {}
        }
    }
    if depth > 0 || !rooted { Err(Broken::Cut) } else { Ok(found) }
}

fn look(tag: &BytesStart<'_>, depth: usize, found: &mut XmlScan, wanted: &[String]) -> Result<(), Broken> {
    if tag.len() > TAG_BYTES_MAX {
        return Err(Broken::Bad);
    }
    if depth == 1 {
        found.root = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
    }
    if depth > LOOK_DEPTH || wanted.is_empty() {
        return Ok(());
    }
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|_| Broken::Bad)?;
        let place = wanted.iter().position(|w| w.as_bytes() == attribute.key.local_name().as_ref());
        if let Some(slot) = place.and_then(|i| found.attributes.get_mut(i))
            && slot.is_none()
        {
            *slot = Some(clip(&attribute.value));
        }
    }
    Ok(())
}

fn keep(found: &mut XmlScan, open: Option<(usize, usize)>, text: &[u8]) {
    if let Some((i, _)) = open
        && let Some(slot) = found.elements.get_mut(i)
    {
        let kept = slot.get_or_insert_default();
        if kept.len() < TEXT_BYTES_MAX {
            kept.push_str(&clip(text.trim_ascii()));
        }
    }
}

fn clip(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Result<XmlScan, Broken> {
        scan(body.as_bytes(), &["exceptionCode".into()], &["Code".into()])
    }

    #[test]
    fn the_root_and_the_names_near_it() {
        let ows = r#"<?xml version="1.0"?><ows:ExceptionReport xmlns:ows="u"><ows:Exception exceptionCode="NoApplicableCode"><ows:ExceptionText>x</ows:ExceptionText></ows:Exception></ows:ExceptionReport>"#;
        let f = found(ows).unwrap();
        assert_eq!(
            (f.root.as_str(), f.attributes[0].as_deref()),
            ("ExceptionReport", Some("NoApplicableCode"))
        );
        let old = r#"<?xml version='1.0' encoding="ISO-8859-1" standalone="no"?>
            <!DOCTYPE ServiceExceptionReport SYSTEM "http://schemas.opengis.net/wms/1.1.1/exception_1_1_1.dtd">
            <ServiceExceptionReport version="1.1.1"><ServiceException code="LayerNotDefined">x</ServiceException></ServiceExceptionReport>"#;
        assert_eq!(found(old).unwrap().root, "ServiceExceptionReport");
        let s3 = "<Error><Code>SlowDown</Code><Message>m</Message></Error>\n";
        assert_eq!(found(s3).unwrap().elements[0].as_deref(), Some("SlowDown"));
    }

    #[test]
    fn cut_and_bad_documents() {
        for cut in ["<a><b></b>", "<a>", "<a><b", "<a x=\"", "", "<?xml version=\"1.0\"?>"] {
            assert_eq!(found(cut), Err(Broken::Cut), "{cut}");
        }
        for bad in ["<a></b>", "<a/><b/>", "<a/>tail", "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>"] {
            assert_eq!(found(bad), Err(Broken::Bad), "{bad}");
        }
        assert_eq!(found(&"<a>".repeat(100_000)), Err(Broken::Bad));
        assert_eq!(found(&format!("<a {}/>", "b='c' ".repeat(100_000))), Err(Broken::Bad));
    }
}
