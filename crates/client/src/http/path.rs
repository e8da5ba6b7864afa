//! Values of records in the path of a request.
//!
//! A value becomes one part of a segment. It is percent-encoded, so it has no slash of its own, but
//! `.` and `..` are encoded by nothing: `/tenant/42/items/{id}` with `..` is `/tenant/42/`. URL parsers
//! and servers also take `%2e` for a dot, and some servers and proxies decode twice, take a backslash for a
//! slash, or drop what follows a semicolon. So a path that has such a segment for any of them is not
//! requested at all: with `..` the question would be about something else, and the answer would be
//! written into the record.

use std::borrow::Cow;
use std::fmt;

/// More layers of encoding than any server removes.
const LAYERS_MAX: usize = 8;

/// Why a path is not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsafePath {
    /// It has a segment `.` or `..`, perhaps encoded.
    Dots,
    /// A value has a backslash or an encoded slash.
    Separator,
}

impl fmt::Display for UnsafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnsafePath::Dots => {
                "with this value the path of the request has a segment `.` or `..`, which leads elsewhere"
            }
            UnsafePath::Separator => {
                "the value has a backslash or an encoded slash, which a server may take for a part of the path"
            }
        })
    }
}

impl std::error::Error for UnsafePath {}

/// Checks a value that is put into a path. A slash is allowed, because it is sent as `%2F`.
///
/// # Errors
/// Why it is not put there.
pub fn check_value(value: &str) -> Result<(), UnsafePath> {
    let Some(plain) = decoded(value) else { return Err(UnsafePath::Separator) };
    let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
    if plain.contains(&b'\\') || slashes(&plain) != slashes(value.as_bytes()) {
        return Err(UnsafePath::Separator);
    }
    if climbs(value) { Err(UnsafePath::Dots) } else { Ok(()) }
}

/// Checks a path with the values in it, before they are encoded: dots of the template and of values may make
/// a segment together.
///
/// # Errors
/// Why it is not requested.
pub fn check(path: &str) -> Result<(), UnsafePath> {
    if climbs(path) { Err(UnsafePath::Dots) } else { Ok(()) }
}

/// Whether a path has a segment `.` or `..` for anybody who decodes it.
#[must_use]
pub fn climbs(path: &str) -> bool {
    let Some(plain) = decoded(path) else { return true };
    plain.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(name.trim_ascii(), b"." | b"..")
    })
}

/// A text without any percent-encoding; `None` if there is no end of it.
fn decoded(text: &str) -> Option<Cow<'_, [u8]>> {
    let mut plain = Cow::Borrowed(text.as_bytes());
    for _ in 0..LAYERS_MAX {
        if !plain.contains(&b'%') {
            return Some(plain);
        }
        let next = decoded_once(&plain);
        if next == *plain {
            return Some(plain);
        }
        plain = Cow::Owned(next);
    }
    None
}

fn decoded_once(bytes: &[u8]) -> Vec<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_found_however_they_are_encoded() {
        for bad in [
            ".",
            "..",
            "a/../b",
            "../a",
            "a/..",
            "%2e%2e",
            ".%2E",
            "%2E.",
            "%252e%252e",
            "a/%2e/b",
            "..;x=1",
            "x/..;/y",
            " .. ",
            "..%09",
        ] {
            assert!(climbs(bad), "{bad}");
        }
        for good in
            ["", "a", "...", "..a", "a..", "a.b", ".hidden", "12/3", "50 % off", "%zz", "a;b", "a%20b"]
        {
            assert!(!climbs(good), "{good}");
        }
    }

    #[test]
    fn a_value_is_one_part_of_a_path() {
        for good in ["7", "12/3", "Straße 5/7", "a b", "50% und mehr", "...", "a;b", "a?b#c"] {
            assert_eq!(check_value(good), Ok(()), "{good}");
        }
        for dots in [".", "..", "a/../b", "%2e%2e", ".%2E"] {
            assert_eq!(check_value(dots), Err(UnsafePath::Dots), "{dots}");
        }
        for bad in ["..\\x", "a\\b", "%2F", "..%2f..%2fadmin", "%252F", "%5c", "%255C"] {
            assert_eq!(check_value(bad), Err(UnsafePath::Separator), "{bad}");
        }
        assert_eq!(check("/x/.%2e"), Err(UnsafePath::Dots));
        let mut deep = "..".to_owned();
        for _ in 0..20 {
            deep = deep.replace('%', "%25").replace('.', "%2e");
        }
        assert!(check_value(&deep).is_err() && climbs(&deep));
    }
}
