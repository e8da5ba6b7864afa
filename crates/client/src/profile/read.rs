//! Interprets responses.
//!
//! Parsing never fails and never guesses. First the rules: the first match decides, whatever the
//! status. Then, for a 2xx only, the body must have the documented format, because many outages
//! answer 200: with a login page, the error page of a proxy, or half a document.
//!
//! | a 2xx body | means | code |
//! |---|---|---|
//! | HTML, the wrong Content-Type, a syntax error | transient | `UNEXPECTED_BODY` |
//! | empty, or ends too early | transient | `TRUNCATED_BODY` |
//! | over the size limit | permanent | `PAYLOAD_TOO_LARGE` |
//! | well-formed, but no shape of `answers` fits | permanent | `UNEXPECTED_BODY` |
//! | a coordinate that is missing, not a number or off the globe | permanent | `UNEXPECTED_BODY` |
//! | an empty list of answers, or 204 | no match | `NO_MATCH` |
//! | an empty list of answers beside a text of `doubt` that tells a failure | permanent | `UNEXPECTED_BODY` |
//!
//! An HTML page in the way may go away, so it is transient; a well-formed document that lacks a
//! required value will lack it again. A latitude of 120 most likely means swapped coordinates,
//! which makes the other answers suspect too, so none is used.

use super::Profile;
use super::form::BodyFormat;
use super::pull::{ExtractedValues, JsonLeaf, ListItem};
use super::rule::{Look, Scalar, Want};
use super::{Broken, xml};
use std::borrow::Cow;
use tidegate_core::Code;
use tidegate_core::content::ContentKind;
use tidegate_core::signal::{Finding, Means};

/// The number of bytes of a body that are searched for a text.
const TEXT_BYTES: usize = 16 * 1024;
/// The longest label or kind that is kept, in bytes.
const LABEL_BYTES_MAX: usize = 4096;

/// The interpretation of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sniffed {
    /// The finding in the body, which takes precedence over the status.
    pub finding: Option<Finding>,
    /// The answers in the service's order; empty unless the response is a success.
    pub answers: Vec<GeocodeCandidate>,
}

/// One candidate in the answer of a geocoder.
#[derive(Clone, Debug, PartialEq)]
pub struct GeocodeCandidate {
    /// Longitude in degrees, -180 to 180.
    pub lon: f64,
    /// Latitude in degrees, -90 to 90.
    pub lat: f64,
    /// The address as the service writes it.
    pub label: Option<String>,
    /// The confidence score, 0 to 1.
    pub score: Option<f64>,
    /// The match type, as the service names it.
    pub kind: Option<String>,
}

/// The kind of a body, judged by its first byte.
enum Body<'a> {
    Empty,
    Json(Result<ExtractedValues<'a>, Broken>),
    Html,
    Xml(Result<xml::XmlScan, Broken>),
    Other,
}

const PAGE: Finding = Finding { means: Means::Transient, code: Code::UNEXPECTED_BODY };
const CUT: Finding = Finding { means: Means::Transient, code: Code::TRUNCATED_BODY };

/// The finding if the body of a success has none of these formats.
fn odd(formats: &[BodyFormat], seen: &Body<'_>, body: &[u8]) -> Option<Finding> {
    let can = |format| formats.contains(&format);
    match seen {
        Body::Empty => Some(CUT),
        Body::Html => Some(PAGE),
        Body::Json(result) if can(BodyFormat::Json) => result.as_ref().err().map(broken),
        Body::Xml(result) if can(BodyFormat::Xml) => result.as_ref().err().map(broken),
        _ if can(BodyFormat::Binary) => None,
        Body::Other if can(BodyFormat::Tile) && is_tile(body) => None,
        _ => Some(PAGE),
    }
}

/// Whether bytes are a picture or a vector tile, which may be packed.
fn is_tile(body: &[u8]) -> bool {
    let kind = ContentKind::of_body(body);
    kind.is_picture() || matches!(kind, ContentKind::VectorTile | ContentKind::Gzip)
}

const fn broken(broken: &Broken) -> Finding {
    match broken {
        Broken::Cut => CUT,
        Broken::Bad => PAGE,
    }
}

fn only(means: Means, code: Code) -> Sniffed {
    Sniffed { finding: Some(Finding { means, code }), answers: Vec::new() }
}

impl Profile {
    /// Interprets the response to a query ([`Profile::request`]).
    #[must_use]
    pub fn read(&self, status: u16, content_type: Option<&str>, body: &[u8]) -> Sniffed {
        let (finding, seen) = self.sniffed(status, content_type, body);
        if finding.is_some() || !(200..300).contains(&status) || self.shapes.is_empty() {
            return Sniffed { finding, answers: Vec::new() };
        }
        match seen {
            Body::Empty if status == 204 => only(Means::NoMatch, Code::NO_MATCH),
            Body::Json(Ok(pulled)) => self.answers(&pulled),
            // Reached only for a profile without `formats`: a geocoder must answer in JSON.
            seen => Sniffed { finding: odd(&[BodyFormat::Json], &seen, body), answers: Vec::new() },
        }
    }

    /// Interprets the response to any other request: rules and format, no answers.
    #[must_use]
    pub fn sniff(&self, status: u16, content_type: Option<&str>, body: &[u8]) -> Option<Finding> {
        self.sniffed(status, content_type, body).0
    }

    fn sniffed<'a>(
        &self,
        status: u16,
        content_type: Option<&str>,
        body: &'a [u8],
    ) -> (Option<Finding>, Body<'a>) {
        let success = (200..300).contains(&status);
        if body.len() as u64 > self.body_bytes_max() {
            let large = Finding { means: Means::Permanent, code: Code::PAYLOAD_TOO_LARGE };
            return (success.then_some(large), Body::Other);
        }
        let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
        let seen = self.look(content_type, text);
        let mut finding = self.rules(status, &seen, text);
        if finding.is_none()
            && success
            && !(status == 204 && text.is_empty())
            && !self.formats.contains(&BodyFormat::Any)
        {
            finding =
                if self.is_of_type(content_type) { odd(&self.formats, &seen, body) } else { Some(PAGE) };
        }
        (finding, seen)
    }

    fn is_of_type(&self, content_type: Option<&str>) -> bool {
        let wanted = self.form.content_types.as_deref().unwrap_or_default();
        wanted.is_empty() || content_type.is_none_or(|had| wanted.iter().any(|want| starts(had, want)))
    }

    fn look<'a>(&self, content_type: Option<&str>, text: &'a [u8]) -> Body<'a> {
        match text.first() {
            None => Body::Empty,
            Some(b'{' | b'[') => Body::Json(self.plan.pull(text)),
            Some(b'<') if is_html(text) => Body::Html,
            Some(b'<') => Body::Xml(xml::scan(text, &self.attributes, &self.elements)),
            // Of text only: bytes that are a picture are one, whatever they are called.
            Some(_)
                if content_type.is_some_and(|t| starts(t, "text/html"))
                    && ContentKind::of(text) == ContentKind::Text =>
            {
                Body::Html
            }
            Some(_) => Body::Other,
        }
    }

    fn rules(&self, status: u16, seen: &Body<'_>, text: &[u8]) -> Option<Finding> {
        let mut lower = None;
        let rule = self.rules.iter().find(|rule| {
            rule.rule.applies(status)
                && match (&rule.rule.look, seen) {
                    (Look::Status, _) | (Look::Html, Body::Html) => true,
                    (Look::Json(_), Body::Json(Ok(pulled))) => fits(&rule.rule.want, pulled.leaf(rule.slot)),
                    (Look::XmlRoot(root), Body::Xml(Ok(found))) => root.as_str() == found.root,
                    (Look::XmlAttribute(root, _), Body::Xml(Ok(found))) => {
                        root.as_str() == found.root && named(&rule.rule.want, found.attributes.get(rule.slot))
                    }
                    (Look::XmlElement(root, _), Body::Xml(Ok(found))) => {
                        root.as_str() == found.root && named(&rule.rule.want, found.elements.get(rule.slot))
                    }
                    (Look::Text(_), Body::Json(_)) => false,
                    (Look::Text(needle), _) => {
                        let window = text.get(..TEXT_BYTES).unwrap_or(text);
                        let hay = lower.get_or_insert_with(|| window.to_ascii_lowercase());
                        hay.windows(needle.len()).any(|w| w == needle.as_bytes())
                    }
                    _ => false,
                }
        });
        rule.map(|r| r.rule.finding)
    }

    fn answers(&self, pulled: &ExtractedValues<'_>) -> Sniffed {
        let strange = only(Means::Permanent, Code::UNEXPECTED_BODY);
        for shape in &self.shapes {
            let single: ListItem<'_>;
            let items = match pulled.list(shape.list) {
                Some(items) => items,
                None => {
                    single = shape.fields.each_ref().map(|places| {
                        let mut found = places.iter().map(|at| pulled.leaf(*at));
                        found.find(|leaf| **leaf != JsonLeaf::Absent).cloned().unwrap_or_default()
                    });
                    if single[0] == JsonLeaf::Absent || single[1] == JsonLeaf::Absent {
                        continue;
                    }
                    std::slice::from_ref(&single)
                }
            };
            if items.is_empty() {
                let failed = self.doubts.iter().any(|at| tells_failure(pulled.leaf(*at)));
                return if failed { strange } else { only(Means::NoMatch, Code::NO_MATCH) };
            }
            let answers: Option<Vec<GeocodeCandidate>> =
                items.iter().map(|i| answer(i, shape.score_max)).collect();
            return answers.map_or(strange, |answers| Sniffed { finding: None, answers });
        }
        strange
    }
}

/// First words of a successful status: OK, SUCCESS, ZERO_RESULTS.
const WELL: [&str; 4] = ["ok", "success", "successful", "zero"];
/// Phrases of services that found nothing, without a failure.
const NO_PLACE: [&str; 6] = ["no result", "no match", "no address", "no location", "not found", "nothing"];
/// Words about the request or the account: "key not found" is a failure, "address not found" is not.
const OF_ACCOUNT: [&str; 8] =
    ["key", "token", "credential", "credentials", "account", "quota", "limit", "permission"];

/// Whether the text beside an empty answer reports a failure.
fn tells_failure(leaf: &JsonLeaf<'_>) -> bool {
    match leaf {
        JsonLeaf::Text(text) => {
            let text = text.to_ascii_lowercase().replace('_', " ");
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            let Some(first) = words.next() else { return false };
            let is_ours = OF_ACCOUNT.contains(&first) || words.any(|word| OF_ACCOUNT.contains(&word));
            let is_well = WELL.contains(&first) || NO_PLACE.iter().any(|phrase| text.contains(phrase));
            is_ours || !is_well
        }
        // An HTTP status, or a status of the service where 0 means success.
        JsonLeaf::Number(n) => *n >= 400.0 || *n < 0.0,
        JsonLeaf::Many(n) => *n > 0,
        JsonLeaf::Absent | JsonLeaf::Null | JsonLeaf::Bool(_) => false,
    }
}

/// One answer, if its coordinates are in range.
fn answer(item: &ListItem<'_>, score_max: f64) -> Option<GeocodeCandidate> {
    let [lon, lat, label, score, kind] = item;
    let lon = number(lon).filter(|x| x.abs() <= 180.0)?;
    let lat = number(lat).filter(|y| y.abs() <= 90.0)?;
    let score = number(score).map(|s| (s / score_max).clamp(0.0, 1.0));
    Some(GeocodeCandidate { lon, lat, label: words(label), score, kind: words(kind) })
}

fn number(leaf: &JsonLeaf<'_>) -> Option<f64> {
    match leaf {
        JsonLeaf::Number(n) => Some(*n),
        JsonLeaf::Text(t) => t.trim().parse().ok(),
        _ => None,
    }
    .filter(|n: &f64| n.is_finite())
}

fn words(leaf: &JsonLeaf<'_>) -> Option<String> {
    match leaf {
        JsonLeaf::Text(t) if !t.is_empty() => {
            let end = (0..=LABEL_BYTES_MAX.min(t.len())).rev().find(|i| t.is_char_boundary(*i))?;
            t.get(..end).map(str::to_owned)
        }
        _ => None,
    }
}

fn fits(want: &Want, leaf: &JsonLeaf<'_>) -> bool {
    match (want, leaf) {
        (_, JsonLeaf::Absent) => false,
        (Want::Some, leaf) => *leaf != JsonLeaf::Null,
        (Want::Empty, JsonLeaf::Null | JsonLeaf::Many(0)) => true,
        (Want::Empty, JsonLeaf::Text(t)) => t.is_empty(),
        (Want::Empty, _) => false,
        (Want::In(list), leaf) => list.iter().any(|s| match (s, leaf) {
            (Scalar::Bool(a), JsonLeaf::Bool(b)) => a == b,
            (Scalar::Number(a), JsonLeaf::Number(b)) => a == b,
            (Scalar::Text(a), JsonLeaf::Text(b)) => a == b,
            _ => false,
        }),
        (Want::Contains(list), JsonLeaf::Text(t)) => contains(list, t),
        (Want::Contains(_), _) => false,
    }
}

fn contains(list: &[String], text: &str) -> bool {
    let text = text.get(..TEXT_BYTES).map_or(Cow::Borrowed(text), Cow::Borrowed).to_ascii_lowercase();
    list.iter().any(|needle| text.contains(needle.as_str()))
}

fn named(want: &Want, value: Option<&Option<String>>) -> bool {
    let Some(Some(value)) = value else { return false };
    match want {
        Want::Some => true,
        Want::Empty => value.is_empty(),
        Want::In(list) => list.iter().any(|s| match s {
            Scalar::Text(t) => t == value,
            Scalar::Number(n) => value.parse() == Ok(*n),
            Scalar::Bool(b) => value.parse() == Ok(*b),
        }),
        Want::Contains(list) => contains(list, value),
    }
}

fn is_html(text: &[u8]) -> bool {
    let starts = |with: &[u8]| text.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with));
    let xhtml = || {
        let head = text.get(..1024).unwrap_or(text);
        starts(b"<?xml") && head.windows(5).any(|w| w.eq_ignore_ascii_case(b"<html"))
    };
    starts(b"<!doctype html") || starts(b"<html") || starts(b"<head") || starts(b"<body") || xhtml()
}

fn starts(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_beside_an_empty_answer_is_about_the_place_or_a_failure() {
        for text in [
            "OK",
            "ok.",
            "SUCCESS",
            "ZERO_RESULTS",
            "Zero matches",
            "No results found.",
            "address not found",
            "",
            " ",
        ] {
            assert!(!tells_failure(&JsonLeaf::Text(text.into())), "{text:?}");
        }
        for text in [
            "OVER_QUERY_LIMIT",
            "API key not found",
            "token_not_found",
            "no results: quota exceeded",
            "internal error",
            "okta login required",
            "REQUEST_DENIED",
        ] {
            assert!(tells_failure(&JsonLeaf::Text(text.into())), "{text:?}");
        }
    }
}
