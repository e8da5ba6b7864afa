//! The text of an exception report.
//!
//! OGC services, map servers and object stores wrap their errors in XML. Whoever meets such a document
//! in place of data should quote what it says. This is no XML parser: it walks over tags of a document
//! of any length, keeps nothing but the texts that it looks for, and never fails.

use alloc::string::String;
use alloc::vec::Vec;

/// The roots of documents that are errors.
const ROOTS: [&[u8]; 3] = [b"ExceptionReport", b"ServiceExceptionReport", b"Error"];
/// The elements whose text is the message.
const TEXTS: [&[u8]; 3] = [b"ExceptionText", b"ServiceException", b"Message"];
/// The most tags of a document that are looked at.
const TAGS_MAX: usize = 2_000;

/// The elements whose text is a code, and the attributes that hold one.
const CODES: [&[u8]; 1] = [b"Code"];
const CODE_ATTRIBUTES: [&[u8]; 2] = [b"exceptionCode", b"code"];

/// What an exception report says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExceptionReport {
    /// The code of its first exception, such as `InvalidParameterValue`. Services that fail by themselves
    /// send none, as a rule.
    pub code: Option<String>,
    /// The texts of its exceptions; empty if it has none.
    pub text: String,
}

/// A part of a document.
enum ExceptionPart<'a> {
    /// The local name of an element that begins, its attributes, and whether it ends at once.
    Start(&'a [u8], &'a [u8], bool),
    /// An element ends.
    End,
    /// Text as it stands there.
    Text(&'a [u8]),
    /// Text in which nothing is escaped.
    Plain(&'a [u8]),
}

/// Walks over a document.
struct ExceptionParts<'a>(&'a [u8]);

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

impl<'a> ExceptionParts<'a> {
    /// Skips what ends with these bytes; returns what stands before them.
    fn skip(&mut self, from: usize, end: &[u8]) -> Option<&'a [u8]> {
        let rest = self.0.get(from..)?;
        let at = position(rest, end)?;
        self.0 = rest.get(at + end.len()..)?;
        rest.get(..at)
    }
}

impl<'a> Iterator for ExceptionParts<'a> {
    type Item = ExceptionPart<'a>;

    fn next(&mut self) -> Option<ExceptionPart<'a>> {
        loop {
            let text = self.0;
            let at = text.iter().position(|b| *b == b'<').unwrap_or(text.len());
            if at > 0 {
                let (before, rest) = text.split_at_checked(at)?;
                self.0 = rest;
                return Some(ExceptionPart::Text(before));
            }
            if text.starts_with(b"<![CDATA[") {
                return self.skip(9, b"]]>").map(ExceptionPart::Plain);
            }
            if text.starts_with(b"<!--") {
                self.skip(4, b"-->")?;
                continue;
            }
            if text.starts_with(b"<?") || text.starts_with(b"<!") {
                self.skip(2, b">")?;
                continue;
            }
            let tag = self.skip(1, b">")?;
            if tag.starts_with(b"/") {
                return Some(ExceptionPart::End);
            }
            let is_empty = tag.ends_with(b"/");
            let end = tag.iter().position(|b| b.is_ascii_whitespace() || *b == b'/').unwrap_or(tag.len());
            let name = tag.get(..end)?;
            let local =
                name.iter().rposition(|b| *b == b':').map_or(name, |at| name.get(at + 1..).unwrap_or(name));
            return Some(ExceptionPart::Start(local, tag.get(end..).unwrap_or_default(), is_empty));
        }
    }
}

/// The text with its predefined entities replaced. Others stay as they are.
fn push(out: &mut String, text: &[u8]) {
    const ENTITIES: [(&str, char); 5] =
        [("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\''), ("&amp;", '&')];
    let text = String::from_utf8_lossy(text);
    let mut rest = &*text;
    while let Some(at) = rest.find('&') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        match ENTITIES.iter().find(|(name, _)| after.starts_with(name)) {
            Some((name, c)) => {
                out.push(*c);
                rest = after.get(name.len()..).unwrap_or_default();
            }
            None => {
                out.push('&');
                rest = after.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
}

fn document(body: &[u8]) -> ExceptionParts<'_> {
    ExceptionParts(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start())
}

/// The value of the first of these attributes that is not empty.
fn attribute(attributes: &[u8], names: &[&[u8]]) -> Option<String> {
    names.iter().find_map(|name| {
        let at = position(attributes, name)?;
        // Not the end of a longer name.
        attributes.get(at.checked_sub(1)?).filter(|before| before.is_ascii_whitespace())?;
        let value =
            attributes.get(at + name.len()..)?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        let (quote, value) = value.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\''))?;
        let value = value.get(..value.iter().position(|b| b == quote)?)?.trim_ascii();
        let mut out = String::new();
        push(&mut out, value);
        Some(out).filter(|out| !out.is_empty())
    })
}

/// Whether a document, or its beginning, is an OGC exception report, a WMS service exception or an error
/// of an object store.
#[must_use]
pub fn is_exception(body: &[u8]) -> bool {
    let root = document(body).find_map(|part| match part {
        ExceptionPart::Start(name, ..) => Some(name),
        _ => None,
    });
    root.is_some_and(|root| ROOTS.contains(&root))
}

/// What an exception report says; `None` if the document is none.
#[must_use]
pub fn exception(body: &[u8]) -> Option<ExceptionReport> {
    if !is_exception(body) {
        return None;
    }
    let (mut texts, mut codes): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    // The text being read, and whether it is a code.
    let (mut said, mut is_code): (Option<String>, bool) = (None, false);
    for part in document(body).take(TAGS_MAX) {
        match (part, &mut said) {
            (ExceptionPart::Text(text), Some(said)) => push(said, text),
            (ExceptionPart::Plain(text), Some(said)) => said.push_str(&String::from_utf8_lossy(text)),
            (ExceptionPart::Text(_) | ExceptionPart::Plain(_), None) => {}
            (ExceptionPart::End, _) => if is_code { &mut codes } else { &mut texts }.extend(said.take()),
            (ExceptionPart::Start(name, attributes, is_empty), _) => {
                if is_code { &mut codes } else { &mut texts }.extend(said.take());
                codes.extend(attribute(attributes, &CODE_ATTRIBUTES));
                is_code = CODES.contains(&name);
                said = (!is_empty && (is_code || TEXTS.contains(&name))).then(String::new);
            }
        }
    }
    if is_code { &mut codes } else { &mut texts }.extend(said);
    let texts: Vec<&str> = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    let code = codes.iter().map(|code| code.trim()).find(|code| !code.is_empty());
    Some(ExceptionReport { code: code.map(String::from), text: texts.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_of_an_exception_and_not_its_envelope() {
        let ows = br#"<?xml version="1.0"?><!DOCTYPE ows:ExceptionReport SYSTEM "http://schemas.example/e.dtd">
            <ows:ExceptionReport xmlns:ows="u"><ows:Exception exceptionCode="InvalidParameterValue" locator="typeName">
            <ows:ExceptionText>Unknown type &lt;a:b&gt;
               in the request &amp;lt;</ows:ExceptionText></ows:Exception></ows:ExceptionReport>"#;
        let report = exception(ows).unwrap();
        assert_eq!(report.text, "Unknown type <a:b>\n               in the request &lt;");
        assert_eq!(report.code.as_deref(), Some("InvalidParameterValue"));
        for (body, said) in [
            (
                &b"<ServiceExceptionReport><ServiceException code=\"LayerNotDefined\"><![CDATA[no <layer> x]]></ServiceException></ServiceExceptionReport>"[..],
                Some("no <layer> x"),
            ),
            (b"\xef\xbb\xbf\n<!-- a > b --><Error><Code>SlowDown</Code><Message>Reduce &x; your rate</Message></Error>", Some("Reduce &x; your rate")),
            (b"<Error><Message>cut in the mid", Some("cut in the mid")),
            (b"<Error><Message>a</Message><Message/><Message>b</Message></Error>", Some("a; b")),
            (b"<ExceptionReport><Exception/></ExceptionReport>", None),
            (b"<html><body>Error</body></html>", None),
            (b"<a><Error><Message>not the root</Message></Error></a>", None),
            (b"", None),
        ] {
            let text = exception(body).map(|report| report.text).filter(|text| !text.is_empty());
            assert_eq!(text.as_deref(), said, "{}", String::from_utf8_lossy(body));
        }
        for (body, code) in [
            (
                &b"<ServiceExceptionReport><ServiceException code = 'LayerNotDefined'>x"[..],
                Some("LayerNotDefined"),
            ),
            (b"<ServiceExceptionReport><ServiceException code=\"\">x", None),
            (b"<ServiceExceptionReport><ServiceException barcode=\"1\">x", None),
            (b"<Error><Code> SlowDown </Code>", Some("SlowDown")),
        ] {
            assert_eq!(exception(body).unwrap().code.as_deref(), code, "{}", String::from_utf8_lossy(body));
        }
        assert!(is_exception(b"<ExceptionReport><Exception/>") && !is_exception(b"<Errors/>"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let body = [b"<Error><Message>".as_slice(), &tail].concat();
            let _ = exception(&body);
            let _ = exception(&tail);
            let _ = exception(&[b"<Error code=".as_slice(), &tail, b">x"].concat());
        }
    }
}
