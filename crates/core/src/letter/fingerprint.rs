//! Groups letters with the same cause.
//!
//! Two failures belong to one group if code, stage, driver and normalised message are equal.
//! Normalisation replaces everything that differs between records: numbers, quoted names,
//! identifiers, URLs. A group can then be repaired at once.

use crate::taxonomy::Code;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use sha2::{Digest, Sha256};

/// The length at which a normalised message is cut, in bytes.
const NORMAL_MAX: usize = 400;

/// The id of a group of letters; 16 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a failure. Normalises the message.
    #[must_use]
    pub fn of(code: Code, stage: &str, message: &str, driver: &str) -> Fingerprint {
        Fingerprint::of_normal(code, stage, &normalise(message), driver)
    }

    /// The fingerprint of a failure whose message is already normalised.
    #[must_use]
    pub fn of_normal(code: Code, stage: &str, normal: &str, driver: &str) -> Fingerprint {
        let mut hash = Sha256::new();
        for part in [code.as_str(), stage, normal, driver] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let bytes: [u8; 32] = hash.finalize().into();
        Fingerprint(bytes.first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b)))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Fingerprint, &'static str> {
        let number = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(Fingerprint).ok_or("a fingerprint must be 16 hexadecimal digits")
    }
}

/// Replaces what differs between records: URLs by `<url>`, quoted text by `<s>`, words of 8 or more
/// bytes with digits and letters by `<id>`, other words with digits by `<n>`.
#[must_use]
pub fn normalise(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(NORMAL_MAX));
    let mut rest = message;
    while let Some(c) = rest.chars().next() {
        if out.len() >= NORMAL_MAX {
            break;
        }
        let taken = quoted(rest, c).map(|n| (n, "<s>")).or_else(|| token(rest, c));
        if let Some((len, mark)) = taken {
            if mark.is_empty() {
                out.push_str(rest.get(..len).unwrap_or_default());
            } else {
                out.push_str(mark);
            }
            rest = rest.get(len..).unwrap_or_default();
            continue;
        }
        if c.is_whitespace() || c.is_control() {
            if !out.ends_with(' ') && !out.is_empty() {
                out.push(' ');
            }
        } else {
            out.push(c);
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    let end = out.trim_end().len();
    out.truncate(end);
    out
}

/// The length in bytes of the quoted text at the start of `rest`. An apostrophe without a closing one
/// is not a quote.
fn quoted(rest: &str, c: char) -> Option<usize> {
    let close = match c {
        '"' | '`' | '\'' => c,
        '“' => '”',
        '«' => '»',
        _ => return None,
    };
    let inside = rest.get(c.len_utf8()..)?;
    let end = inside.char_indices().take(2000).find(|(_, d)| *d == close)?.0;
    Some(c.len_utf8() + end + close.len_utf8())
}

/// The length in bytes of the word at the start of `rest` and its placeholder; empty if the word is
/// kept.
fn token(rest: &str, c: char) -> Option<(usize, &'static str)> {
    let signed = c == '-' && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if !(c.is_alphanumeric() || signed) {
        return None;
    }
    if rest.starts_with("http://") || rest.starts_with("https://") {
        let end = rest.find(|d: char| d.is_whitespace() || "\"'`<>()[]{},;".contains(d));
        return Some((end.unwrap_or(rest.len()), "<url>"));
    }
    let start = usize::from(signed);
    let body = rest.get(start..)?;
    let end = body
        .char_indices()
        .find(|&(i, d)| {
            let inner = (d == '-' || d == '.' || d == '_' || d == ':')
                && body
                    .get(i + d.len_utf8()..)
                    .and_then(|r| r.chars().next())
                    .is_some_and(char::is_alphanumeric);
            !(d.is_alphanumeric() || inner)
        })
        .map_or(body.len(), |(i, _)| i);
    let word = body.get(..end)?;
    let mark = if !word.chars().any(char::is_numeric) {
        ""
    } else if word.len() >= 8 && word.chars().any(char::is_alphabetic) {
        "<id>"
    } else {
        "<n>"
    };
    // After a sign the mark is never empty, because the word starts with a digit.
    Some((start + end, if signed && mark.is_empty() { "<n>" } else { mark }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_from_record_to_record_is_taken_out() {
        for (message, normal) in [
            ("Self-intersection[16.3712 48.2]", "Self-intersection[<n> <n>]"),
            ("row 17: field \"area\" is 'x'", "row <n>: field <s> is <s>"),
            ("GET https://a.example/q?x=1 said 503", "GET <url> said <n>"),
            ("task 0199a2b4-77aa-7000-8000-0123456789ab died", "task <id> died"),
            ("no system  found\n in “ETRS89”", "no system found in <s>"),
            ("moved by -12.5 m", "moved by <n> m"),
            ("it's gone", "it's gone"),
            ("", ""),
        ] {
            assert_eq!(normalise(message), normal, "{message}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_code_stage_message_and_driver() {
        let of = |code, stage, message, driver| Fingerprint::of(code, stage, message, driver);
        let one = of(Code::TIMEOUT, "geocode", "no answer in 30 s", "pelias");
        assert_eq!(one, of(Code::TIMEOUT, "geocode", "no answer in 31 s", "pelias"));
        for other in [
            of(Code::UNKNOWN, "geocode", "no answer in 30 s", "pelias"),
            of(Code::TIMEOUT, "gate", "no answer in 30 s", "pelias"),
            of(Code::TIMEOUT, "geocode", "no answer", "pelias"),
            of(Code::TIMEOUT, "geocode", "no answer in 30 s", "opencage"),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(one.0, 0xa8f3_2062_2832_3e22, "stored in databases of last year: {one}");
        assert_eq!(alloc::format!("{one}").parse(), Ok(one));
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_numbers_never_matter(text in "\\PC{0,80}", a in 0u32..9999, b in 0u32..9999) {
            let _ = normalise(&text);
            let with = |n: u32| normalise(&alloc::format!("{text} at {n} m"));
            prop_assert_eq!(with(a), with(b));
        }

        #[test]
        fn the_normal_form_is_bounded(text in "\\PC{0,3000}") {
            prop_assert!(normalise(&text).len() <= NORMAL_MAX * 4);
        }
    }
}
