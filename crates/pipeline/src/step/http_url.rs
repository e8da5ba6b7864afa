//! The address of a request of the step `http`: the URL of the service, and a template with fields in it.
//!
//! The template is appended to the path of the service; what follows its `?` is added to the query of the
//! service. The fields come from records, so they are encoded, and a path that they would lead elsewhere
//! (`..`) is not requested.

use tidegate_core::Code;
use tidegate_geo::{Batch, Problem, Value};
use url::Url;

use super::Flow;
use crate::http::path;

#[derive(Clone)]
enum UrlPart {
    Text(String),
    /// A field, by its place and its name.
    Field(usize, String),
}

/// A path and a query with fields in them.
#[derive(Clone)]
pub(super) struct UrlTemplate {
    path: Vec<UrlPart>,
    query: Vec<UrlPart>,
}

impl UrlTemplate {
    pub(super) fn parse(text: &str, flow: &Flow) -> Result<UrlTemplate, String> {
        let (mut path, mut query, mut in_query) = (Vec::new(), Vec::new(), false);
        let mut literal = String::new();
        for part in parts(text, flow)? {
            let side = if in_query { &mut query } else { &mut path };
            match part {
                UrlPart::Text(text) if !in_query => {
                    let (before, after) = text.split_once('?').unwrap_or((&text, ""));
                    literal.push_str(before);
                    side.push(UrlPart::Text(before.to_owned()));
                    in_query = before.len() < text.len();
                    query.push(UrlPart::Text(after.to_owned()));
                }
                part => {
                    literal.push('-');
                    side.push(part);
                }
            }
        }
        path::check(&literal).map_err(|_| "`path` must not have a segment `.` or `..`")?;
        let is_empty = |part: &UrlPart| matches!(part, UrlPart::Text(text) if text.is_empty());
        query.retain(|part| !is_empty(part));
        Ok(UrlTemplate { path, query })
    }

    /// The address for a record.
    pub(super) fn url(&self, base: &Url, batch: &Batch, row: usize) -> Result<Url, Problem> {
        let mut path = base.path().trim_end_matches('/').to_owned();
        // The path as it is before it is encoded, to look at segments that several values make.
        let mut plain = String::new();
        for part in &self.path {
            match part {
                UrlPart::Text(text) => {
                    path.push_str(text);
                    plain.push_str(text);
                }
                UrlPart::Field(at, name) => {
                    let value = value(batch, row, *at).ok_or_else(|| missing(name))?;
                    path::check_value(&value).map_err(|why| refused(why).under(name))?;
                    encode(&value, &mut path);
                    plain.push_str(&value);
                }
            }
        }
        path::check(&plain).map_err(refused)?;
        let mut query = base.query().unwrap_or_default().to_owned();
        if !query.is_empty() && !self.query.is_empty() {
            query.push('&');
        }
        for part in &self.query {
            match part {
                UrlPart::Text(text) => query.push_str(text),
                UrlPart::Field(at, name) => {
                    encode(&value(batch, row, *at).ok_or_else(|| missing(name))?, &mut query);
                }
            }
        }
        let mut url = base.clone();
        url.set_path(&path);
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        url.set_fragment(None);
        Ok(url)
    }
}

fn parts(text: &str, flow: &Flow) -> Result<Vec<UrlPart>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("`{` is not closed by `}` in `path`")?;
        parts.push(UrlPart::Text(before.to_owned()));
        parts.push(UrlPart::Field(flow.field(name)?, name.to_owned()));
        rest = after;
    }
    // A fragment is never sent.
    parts.push(UrlPart::Text(rest.split('#').next().unwrap_or_default().to_owned()));
    Ok(parts)
}

fn value(batch: &Batch, row: usize, at: usize) -> Option<String> {
    match batch.value(row, at) {
        Value::Text(text) => Some(text.to_owned()),
        Value::Int(i) => Some(i.to_string()),
        Value::Real(x) => Some(x.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        Value::Null | Value::Bytes(_) | Value::Json(_) => None,
    }
}

fn encode(value: &str, out: &mut String) {
    let encoded = url::form_urlencoded::byte_serialize(value.as_bytes());
    out.extend(encoded.map(|part| part.replace('+', "%20")));
}

fn missing(name: &str) -> Problem {
    Problem::new(Code::UNPROCESSABLE, "no value for the request").under(name)
}

fn refused(why: path::UnsafePath) -> Problem {
    Problem::new(Code::PATH_NOT_ALLOWED, why.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::sync::Arc;

    use tidegate_geo::{Kind, Schema};

    use super::*;

    fn ask(base: &str, template: &str, values: [&str; 2]) -> Result<String, Code> {
        let flow = Flow::new(Arc::new(Schema::new([("a", Kind::Text), ("b", Kind::Text)])), None);
        let template = UrlTemplate::parse(template, &flow).unwrap();
        let mut batch = Batch::new(flow.schema.clone());
        batch.push(None, values.map(Value::Text)).unwrap();
        let url = template.url(&Url::parse(base).unwrap(), &batch, 0);
        url.map(String::from).map_err(|problem| problem.code)
    }

    #[test]
    fn a_template_is_appended_to_path_and_query() {
        for (base, template, url) in [
            ("http://h.test", "/x/{a}", "http://h.test/x/1%2F2"),
            ("http://h.test/api/", "/x/{a}/y", "http://h.test/api/x/1%2F2/y"),
            ("http://h.test/api?key=k", "/x/{a}", "http://h.test/api/x/1%2F2?key=k"),
            ("http://h.test/api?key=k#f", "?q={b}", "http://h.test/api?key=k&q=a%20b%26c"),
            ("http://h.test/find", "?q={b}&n=1#f", "http://h.test/find?q=a%20b%26c&n=1"),
            ("http://h.test", "x/{a}", "http://h.test/x/1%2F2"),
        ] {
            assert_eq!(ask(base, template, ["1/2", "a b&c"]), Ok(url.to_owned()), "{base} {template}");
        }
    }

    #[test]
    fn no_value_leads_out_of_the_path() {
        let base = "http://h.test/tenant/42";
        for bad in [
            "..",
            ".",
            "../..",
            "%2e%2e",
            ".%2E",
            "%2E%2e",
            "..\\",
            "..%2F..",
            "x/../..",
            "%252e%252e",
            "..;a",
            "a%2Fb",
            "a\\b",
        ] {
            assert_eq!(ask(base, "/items/{a}/owner", [bad, ""]), Err(Code::PATH_NOT_ALLOWED), "{bad}");
        }
        assert_eq!(ask(base, "/items/{a}{b}/owner", [".", "."]), Err(Code::PATH_NOT_ALLOWED));
        assert_eq!(ask(base, "/items/.{a}/owner", [".", ""]), Err(Code::PATH_NOT_ALLOWED));
        let found = ask(base, "/items?id={a}", ["../..", ""]);
        assert_eq!(found, Ok("http://h.test/tenant/42/items?id=..%2F..".to_owned()));
        let flow = Flow::new(Arc::new(Schema::new([("a", Kind::Text)])), None);
        assert!(UrlTemplate::parse("/../{a}", &flow).is_err());
    }
}
