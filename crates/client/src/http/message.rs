//! Extracts the error message from a response body.
//!
//! OGC services wrap it in an exception report, ArcGIS and most others in a JSON object. A dead
//! letter should quote this message, not the first line of its wrapper.

use serde_json::Value;
use tidegate_core::content::exception;

/// The full message in a body, if it has a known structure.
#[must_use]
pub fn message(body: &[u8]) -> Option<String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    match body.first()? {
        b'<' => exception(body).map(|report| report.text),
        b'{' => of_json(&serde_json::from_slice(body).ok()?),
        _ => None,
    }
    .filter(|text| !text.trim().is_empty())
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
            ("<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>", "Reduce your rate"),
        ] {
            assert_eq!(message(body.as_bytes()).as_deref(), Some(said), "{body}");
        }
        for body in
            [r#"{"error":{"code":400}}"#, r#"{"results":[]}"#, "{", "", "plain", "[]", "<html>Error</html>"]
        {
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
