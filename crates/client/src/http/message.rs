//! Extracts the error message from a response body.
//!
//! OGC services wrap it in an exception report, ArcGIS and most others in a JSON object. A dead
//! letter should quote this message, not the first line of its wrapper.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;

/// The most XML events read from a document.
const EVENTS_MAX: usize = 2_000;

/// The full message in a body, if it has a known structure.
pub(super) fn message(body: &[u8]) -> Option<String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    match body.first()? {
        b'<' => of_xml(body),
        b'{' => of_json(&serde_json::from_slice(body).ok()?),
        _ => None,
    }
    .filter(|text| !text.trim().is_empty())
}

/// The texts of an OGC exception report, a WMS service exception, or an S3 error.
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

/// The five predefined XML entities; others are ignored.
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

/// Places of the error message in ArcGIS, Google and similar services.
const OF_ERROR: [&str; 4] = ["/error/message", "/error_message", "/error/description", "/error"];
/// Places of the error message in OGC API, RFC 9457 and similar, where the whole body is an error.
const OF_PROBLEM: [&str; 4] = ["/detail", "/description", "/message", "/title"];

/// The message of an error object.
fn of_json(json: &Value) -> Option<String> {
    sentence(json, &OF_ERROR).or_else(|| sentence(json, &OF_PROBLEM))
}

/// The error that a body of JSON tells of beside what else it holds: its sentence, or what it is made
/// of. For answers whose status does not say that they are one.
#[must_use]
pub fn error_in(json: &Value) -> Option<String> {
    let is_some = |value: &&Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    let parts = || ["/error", "/errors", "/error_message"].iter().filter_map(|at| json.pointer(at));
    sentence(json, &OF_ERROR).or_else(|| parts().find(is_some).map(Value::to_string))
}

/// The first text at one of these places, with the details of ArcGIS.
fn sentence(json: &Value, places: &[&str]) -> Option<String> {
    let text = |pointer: &&str| {
        json.pointer(pointer).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty())
    };
    let mut all = vec![places.iter().find_map(text)?];
    let details = json.pointer("/error/details").and_then(Value::as_array);
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

    #[test]
    fn an_error_beside_an_answer_is_found_and_an_empty_one_is_none() {
        for (body, said) in [
            (r#"{"error":{"code":499,"message":"Token Required"}}"#, Some("Token Required")),
            (r#"{"error":{"code":400}}"#, Some(r#"{"code":400}"#)),
            (r#"{"errors":["a","b"]}"#, Some(r#"["a","b"]"#)),
            (r#"{"error":true}"#, Some("true")),
            (r#"{"error":null,"errors":[],"error_message":""}"#, None),
            (r#"{"error":false,"message":"fine","title":"A place"}"#, None),
        ] {
            assert_eq!(error_in(&serde_json::from_str(body).unwrap()).as_deref(), said, "{body}");
        }
    }
}
