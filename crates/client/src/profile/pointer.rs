//! JSON Pointer (RFC 6901), checked when a profile is loaded.

use super::ProfileError;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A JSON pointer such as `/results/0/name`; the empty string is the whole document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer {
    source: String,
    steps: Vec<String>,
}

impl Pointer {
    /// The unescaped segments.
    #[must_use]
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// The concatenation of both pointers.
    #[must_use]
    pub fn join(&self, then: &Pointer) -> Pointer {
        let mut steps = self.steps.clone();
        steps.extend(then.steps.iter().cloned());
        Pointer { source: format!("{}{}", self.source, then.source), steps }
    }
}

/// One pointer or a list of them, for the names that different services give to the same value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Pointers(Vec<Pointer>);

impl Pointers {
    /// The pointers.
    pub fn iter(&self) -> impl Iterator<Item = &Pointer> {
        self.0.iter()
    }
}

impl<'de> Deserialize<'de> for Pointers {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Pointers, D::Error> {
        struct PointersVisitor;
        impl<'de> Visitor<'de> for PointersVisitor {
            type Value = Pointers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON pointer or a list of them")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Pointers, E> {
                Pointer::try_from(text.to_owned()).map(|p| Pointers(vec![p])).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pointers, A::Error> {
                let mut all = Vec::new();
                while let Some(pointer) = seq.next_element()? {
                    all.push(pointer);
                }
                if all.is_empty() { Err(A::Error::custom("missing pointer")) } else { Ok(Pointers(all)) }
            }
        }
        d.deserialize_any(PointersVisitor)
    }
}

impl TryFrom<String> for Pointer {
    type Error = ProfileError;

    fn try_from(source: String) -> Result<Pointer, ProfileError> {
        let mut steps = Vec::new();
        if !source.is_empty() {
            let Some(rest) = source.strip_prefix('/') else {
                return Err(invalid(&source, "it must start with `/` or be empty"));
            };
            for step in rest.split('/') {
                let unescaped = unescape(step);
                steps.push(unescaped.ok_or_else(|| invalid(&source, "`~` must be followed by 0 or 1"))?);
            }
        }
        Ok(Pointer { source, steps })
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> String {
        pointer.source
    }
}

fn invalid(source: &str, rule: &str) -> ProfileError {
    ProfileError::Invalid(format!("`{source}` is not a JSON pointer; {rule}"))
}

fn unescape(step: &str) -> Option<String> {
    let mut out = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_as_the_rfc_says() {
        let steps = |s: &str| Pointer::try_from(s.to_owned()).ok().map(|p| p.steps);
        assert_eq!(steps(""), Some(vec![]));
        assert_eq!(steps("/"), Some(vec![String::new()]));
        assert_eq!(steps("/a~1b/m~0n/0"), Some(vec!["a/b".into(), "m~n".into(), "0".into()]));
        for bad in ["a", "/~2", "/~"] {
            assert!(steps(bad).is_none(), "{bad}");
        }
    }
}
