//! The scalar values of a profile, validated while they are parsed.

use super::ProfileError;
use super::template::{Template, percent};
use crate::duration;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $check:expr, $say:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = ProfileError;
            fn try_from(text: String) -> Result<$name, ProfileError> {
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    Ok($name(text))
                } else {
                    Err(ProfileError::Invalid(format!(concat!("`{}` ", $say), text)))
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

text!(
    /// A plain name.
    Name, is_token, "is not a valid name; use letters, digits, `-`, `.` and `_`"
);
text!(
    /// A header name.
    Header, is_token, "is not a valid header name"
);
text!(
    /// A base URL: scheme, host and optionally a path.
    Url, is_base, "is not a valid URL; it must start with http:// or https://, without `?` and `#`"
);

fn is_base(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|host| {
        !host.is_empty()
            && !host.starts_with('/')
            && !host.contains('@')
            && host.bytes().all(|b| b.is_ascii_graphic() && !b"?#{}\"<>\\^`|".contains(&b))
    })
}

/// An HTTP status, 100 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Status(u16);

impl TryFrom<u16> for Status {
    type Error = ProfileError;
    fn try_from(status: u16) -> Result<Status, ProfileError> {
        if (100..600).contains(&status) {
            Ok(Status(status))
        } else {
            Err(ProfileError::Invalid(format!("{status} is not an HTTP status; expected 100 to 599")))
        }
    }
}

impl From<Status> for u16 {
    fn from(status: Status) -> u16 {
        status.0
    }
}

/// A number greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Positive(f64);

impl Positive {
    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Positive {
    type Error = ProfileError;
    fn try_from(n: f64) -> Result<Positive, ProfileError> {
        if n.is_finite() && n > 0.0 {
            Ok(Positive(n))
        } else {
            Err(ProfileError::Invalid(format!("{n} is not greater than 0")))
        }
    }
}

impl From<Positive> for f64 {
    fn from(n: Positive) -> f64 {
        n.0
    }
}

/// A duration as in a manifest: `500ms`, `30s`, `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeSpan(Duration);

impl TimeSpan {
    /// The duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<String> for TimeSpan {
    type Error = ProfileError;
    fn try_from(text: String) -> Result<TimeSpan, ProfileError> {
        match duration::parse(&text) {
            Some(span) if !span.is_zero() => Ok(TimeSpan(span)),
            _ => {
                let reason =
                    format!("invalid duration `{text}`; expected a value such as 500ms, 30s, 5m or 1h");
                Err(ProfileError::Invalid(reason))
            }
        }
    }
}

impl From<TimeSpan> for String {
    fn from(span: TimeSpan) -> String {
        duration::human(span.0.as_secs_f64())
    }
}

/// Names with templates, in the order written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs(Vec<(String, Template)>);

impl Pairs {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and templates, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Template)> {
        self.0.iter().map(|(name, template)| (name.as_str(), template))
    }

    /// Adds a pair; its name is inserted into the URL unchanged.
    pub(super) fn push(&mut self, name: String, template: Template) {
        self.0.push((name, template));
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Pairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with templates")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Pairs::default();
                while let Some((name, template)) = map.next_entry::<String, Template>()? {
                    let mut plain = String::new();
                    percent(&mut plain, &name);
                    if plain != name || name.is_empty() {
                        return Err(A::Error::custom(format!("invalid parameter name `{name}`")));
                    }
                    pairs.push(name, template);
                }
                Ok(pairs)
            }
        }
        d.deserialize_map(PairsVisitor)
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, template) in &self.0 {
            map.serialize_entry(name, template)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_a_unit() {
        let read = |t: &str| TimeSpan::try_from(t.to_owned()).ok().map(|s| s.get().as_millis());
        assert_eq!(read("500ms"), Some(500));
        assert_eq!(read("5m"), Some(300_000));
        for bad in ["5", "0s", "s", "-1s", "1s5m", "99999999999999999999999s"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_a_base() {
        for good in ["https://a.b", "http://127.0.0.1:8080/x"] {
            assert!(is_base(good), "{good}");
        }
        for bad in
            ["a.b", "ftp://a", "https://", "https:///x", "https://u:p@h", "https://h?x", "https://h/ x"]
        {
            assert!(!is_base(bad), "{bad}");
        }
    }
}
