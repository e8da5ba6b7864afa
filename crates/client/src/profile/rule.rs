//! Sniff rules: one condition on a body, and its meaning.
//!
//! A rule examines exactly one thing: a value in a JSON body, the root of an XML body, a text in a
//! body that is not JSON, an HTML page, or only the status. The first rule that matches applies. A
//! rule that means an answer (`done`, `no_match`) applies only to 2xx unless it lists statuses
//! itself: an empty list with a 402 is not an answer.

use super::ProfileError;
use super::pointer::Pointer;
use super::value::{Name, Status};
use serde::de::{Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate_core::Code;
use tidegate_core::signal::{Finding, Means};

/// A sniff rule as the profile file has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SniffRuleSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    status: Vec<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json: Option<Pointer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    xml: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attribute: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    element: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    html: bool,
    #[serde(default, rename = "in", skip_serializing_if = "Vec::is_empty")]
    one_of: Vec<Scalar>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contains: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    empty: bool,
    means: MeansName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<CodeName>,
}

/// A sniff rule, checked: one condition on a body and its finding.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "SniffRuleSpec", into = "SniffRuleSpec")]
pub struct SniffRule {
    written: SniffRuleSpec,
    /// What the rule examines.
    pub(super) look: Look,
    /// The condition.
    pub(super) want: Want,
    /// The finding if the condition holds.
    pub(super) finding: Finding,
}

/// What a rule examines.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Look {
    Json(Pointer),
    XmlRoot(Name),
    XmlAttribute(Name, Name),
    XmlElement(Name, Name),
    Text(String),
    Html,
    Status,
}

/// The condition of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Want {
    /// Anything but null.
    Some,
    /// One of these.
    In(Vec<Scalar>),
    /// A text that contains one of these, ignoring case.
    Contains(Vec<String>),
    /// Null, `""`, `[]` or `{}`.
    Empty,
}

impl SniffRule {
    /// Whether the rule applies to this status.
    pub(super) fn applies(&self, status: u16) -> bool {
        if self.written.status.is_empty() {
            !matches!(self.finding.means, Means::Done | Means::NoMatch) || (200..300).contains(&status)
        } else {
            self.written.status.iter().any(|s| u16::from(*s) == status)
        }
    }
}

impl TryFrom<SniffRuleSpec> for SniffRule {
    type Error = ProfileError;

    fn try_from(w: SniffRuleSpec) -> Result<SniffRule, ProfileError> {
        let invalid = |reason: &str| Err(ProfileError::Invalid(reason.to_owned()));
        let looks = usize::from(w.json.is_some())
            + usize::from(w.xml.is_some())
            + usize::from(w.text.is_some())
            + usize::from(w.html);
        if looks > 1 {
            return invalid("a rule must have one of json, xml, text, html");
        }
        if w.xml.is_none() && (w.attribute.is_some() || w.element.is_some()) {
            return invalid("attribute and element require xml, the name of the root element");
        }
        let look = match (&w.json, &w.xml, &w.text, w.html) {
            (Some(pointer), ..) => Look::Json(pointer.clone()),
            (_, Some(root), ..) => match (&w.attribute, &w.element) {
                (Some(_), Some(_)) => return invalid("a rule cannot have both attribute and element"),
                (Some(a), None) => Look::XmlAttribute(root.clone(), a.clone()),
                (None, Some(e)) => Look::XmlElement(root.clone(), e.clone()),
                (None, None) => Look::XmlRoot(root.clone()),
            },
            (_, _, Some(text), _) if text.is_empty() => return invalid("text is empty"),
            (_, _, Some(text), _) => Look::Text(text.to_ascii_lowercase()),
            (_, _, _, true) => Look::Html,
            _ if w.status.is_empty() => {
                return invalid("a rule must have one of json, xml, text, html, status");
            }
            _ => Look::Status,
        };
        let wants =
            usize::from(!w.one_of.is_empty()) + usize::from(!w.contains.is_empty()) + usize::from(w.empty);
        if wants > 1 {
            return invalid("a rule must have one of in, contains, empty");
        }
        let valued = matches!(look, Look::Json(_) | Look::XmlAttribute(..) | Look::XmlElement(..));
        if wants > 0 && !valued {
            return invalid("in, contains and empty require json, attribute or element");
        }
        let want = if w.empty {
            Want::Empty
        } else if !w.one_of.is_empty() {
            Want::In(w.one_of.clone())
        } else if !w.contains.is_empty() {
            Want::Contains(w.contains.iter().map(|c| c.to_ascii_lowercase()).collect())
        } else {
            Want::Some
        };
        let means = w.means.0;
        let code = w.code.map_or_else(|| usual(means), |c| c.0);
        Ok(SniffRule { look, want, finding: Finding { means, code }, written: w })
    }
}

impl From<SniffRule> for SniffRuleSpec {
    fn from(rule: SniffRule) -> SniffRuleSpec {
        rule.written
    }
}

const fn usual(means: Means) -> Code {
    match means {
        Means::Done => Code::OK,
        Means::NoMatch => Code::NO_MATCH,
        Means::Throttled => Code::RATE_LIMITED,
        Means::QuotaSpent => Code::QUOTA_EXHAUSTED,
        Means::Transient | Means::Permanent => Code::SERVICE_EXCEPTION,
    }
}

/// The name of a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct MeansName(Means);

const MEANS: [(&str, Means); 6] = [
    ("done", Means::Done),
    ("no_match", Means::NoMatch),
    ("throttled", Means::Throttled),
    ("quota_spent", Means::QuotaSpent),
    ("transient", Means::Transient),
    ("permanent", Means::Permanent),
];

impl Default for MeansName {
    fn default() -> MeansName {
        MeansName(Means::Permanent)
    }
}

impl TryFrom<String> for MeansName {
    type Error = ProfileError;
    fn try_from(name: String) -> Result<MeansName, ProfileError> {
        MEANS.iter().find(|(known, _)| *known == name).map(|(_, m)| MeansName(*m)).ok_or_else(|| {
            let names: Vec<&str> = MEANS.iter().map(|(n, _)| *n).collect();
            let guess = tidegate_core::suggest::question(&name, &names);
            ProfileError::Invalid(format!("unknown meaning `{name}`{guess}"))
        })
    }
}

impl From<MeansName> for String {
    fn from(name: MeansName) -> String {
        MEANS.iter().find(|(_, m)| *m == name.0).map_or_else(String::new, |(n, _)| (*n).to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct CodeName(Code);

impl TryFrom<String> for CodeName {
    type Error = ProfileError;
    fn try_from(name: String) -> Result<CodeName, ProfileError> {
        name.parse().map(CodeName).map_err(|e| ProfileError::Invalid(format!("`{name}`: {e}")))
    }
}

impl From<CodeName> for String {
    fn from(code: CodeName) -> String {
        code.0.as_str().to_owned()
    }
}

/// A scalar to compare with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Bool(bool),
    Number(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Scalar, D::Error> {
        struct ScalarVisitor;
        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }
            fn visit_bool<E>(self, v: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(v))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(v.to_owned()))
            }
        }
        d.deserialize_any(ScalarVisitor)
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Scalar::Bool(b) => s.serialize_bool(*b),
            Scalar::Number(n) if n.fract() == 0.0 && n.abs() < 1e15 => s.serialize_i64(*n as i64),
            Scalar::Number(n) => s.serialize_f64(*n),
            Scalar::Text(t) => s.serialize_str(t),
        }
    }
}
