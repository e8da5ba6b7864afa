//! The sentence in the body of an error that its author wrote for a person.
//!
//! OGC services wrap it in an exception report, ArcGIS and most others in a JSON object. A person
//! who reads a dead letter wants that sentence and not the first line of its envelope.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;

/// Of a document, so many events are read at most.
const EVENTS_MAX: usize = 2_000;

/// The message in a body, if it has one of the usual forms; not shortened.
pub(super) fn message(body: &[u8]) -> Option<String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    match body.first()? {
        b'<' => of_xml(body),
        b'{' => of_json(&serde_json::from_slice(body).ok()?),
        _ => None,
    }
    .filter(|text| !text.trim().is_empty())
}

/// The texts of an OGC exception report, of a WMS service exception, or of an S3 error.
fn of_xml(body: &[u8]) -> Option<String> {
    let mut reader = Reader::from_reader(body);
    reader.config_mut().check_end_names = false;
    let (mut rooted, mut inside) = (false, false);
    let mut found: Vec<String> = Vec::new();
    for _ in 0..EVENTS_MAX {
        match reader.read_event() {
            Ok(Event::Start(tag)) => {
                let name = tag.local_name();
                if !rooted {
                    rooted =
                        matches!(name.as_ref(), b"ExceptionReport" | b"ServiceExceptionReport" | b"Error");
                    if !rooted {
                        return None;
                    }
                }
                inside = matches!(name.as_ref(), b"ExceptionText" | b"ServiceException" | b"Message");
                if inside {
                    found.push(String::new());
                }
            }
            Ok(Event::End(_)) => inside = false,
            Ok(Event::Text(text)) if inside => {
                found.last_mut()?.push_str(&String::from_utf8_lossy(&text));
            }
            Ok(Event::CData(text)) if inside => {
                found.last_mut()?.push_str(&String::from_utf8_lossy(&text));
            }
            Ok(Event::GeneralRef(name)) if inside => found.last_mut()?.push_str(entity(&name)),
            Ok(Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let found: Vec<&str> = found.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    (!found.is_empty()).then(|| found.join("; "))
}

/// The five entities that XML has; no other is followed.
fn entity(name: &[u8]) -> &'static str {
    match name {
        b"lt" => "<",
        b"gt" => ">",
        b"amp" => "&",
        b"quot" => "\"",
        b"apos" => "'",
        _ => "",
    }
}

/// The message of an error object: ArcGIS, Google, OGC API and RFC 9457, and their like.
fn of_json(json: &Value) -> Option<String> {
    let text = |pointer: &str| {
        json.pointer(pointer).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty())
    };
    let message = [
        "/error/message",
        "/error_message",
        "/error/description",
        "/error",
        "/detail",
        "/description",
        "/message",
        "/title",
    ]
    .iter()
    .find_map(|pointer| text(pointer))?;
    let details = json.pointer("/error/details").and_then(Value::as_array);
    let mut all = vec![message];
    for detail in details.into_iter().flatten().filter_map(Value::as_str) {
        if !detail.trim().is_empty() && !all.contains(&detail) {
            all.push(detail);
        }
    }
    Some(all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_exception_and_not_its_envelope() {
        let ows = br#"<?xml version="1.0"?><!DOCTYPE ows:ExceptionReport SYSTEM "http://schemas.example/e.dtd">
            <ows:ExceptionReport xmlns:ows="u"><ows:Exception exceptionCode="InvalidParameterValue" locator="typeName">
            <ows:ExceptionText>Unknown type &lt;a:b&gt;
               in the request</ows:ExceptionText></ows:Exception></ows:ExceptionReport>"#;
        assert_eq!(message(ows).unwrap(), "Unknown type <a:b>\n               in the request");
        let wms = b"<ServiceExceptionReport><ServiceException code=\"LayerNotDefined\"><![CDATA[no layer x]]></ServiceException></ServiceExceptionReport>";
        assert_eq!(message(wms).unwrap(), "no layer x");
        assert_eq!(
            message(b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>").unwrap(),
            "Reduce your rate"
        );
        assert_eq!(message(b"<html><body>Error</body></html>"), None);
        assert_eq!(message(b"<ExceptionReport><Exception/></ExceptionReport>"), None);
    }

    #[test]
    fn the_message_of_an_error_object() {
        for (body, said) in [
            (
                r#"{"error":{"code":499,"message":"Token Required","details":["Token Required","ask for one"]}}"#,
                "Token Required; ask for one",
            ),
            (r#"{"error":"no such field"}"#, "no such field"),
            (
                r#"{"status":"REQUEST_DENIED","error_message":"The key is wrong.","results":[]}"#,
                "The key is wrong.",
            ),
            (r#"{"title":"Bad Request","status":400,"detail":"limit is too large"}"#, "limit is too large"),
        ] {
            assert_eq!(message(body.as_bytes()).as_deref(), Some(said), "{body}");
        }
        for body in [r#"{"error":{"code":400}}"#, r#"{"results":[]}"#, "{", "", "plain", "[]"] {
            assert_eq!(message(body.as_bytes()), None, "{body}");
        }
    }
}
