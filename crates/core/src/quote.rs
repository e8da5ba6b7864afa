//! Quotes text of others for people: what a service said, and a word of a command line.
//!
//! Why not the debug form of Rust: it escapes every quote and every letter with an accent that it
//! does not know, and nobody can read JSON in it.

use alloc::borrow::Cow;
use alloc::string::String;

/// Whether a character could change what a terminal shows: a control character, or one that changes
/// the direction of the text around it.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// What a service said, in quotation marks: as it is, except that characters which a terminal would
/// obey become spaces. Its own marks of this kind become plain ones, so that the end can be found.
#[must_use]
pub fn said(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 6);
    out.push('“');
    out.extend(text.trim().chars().map(|c| match c {
        '“' | '”' => '"',
        c if is_unsafe(c) => ' ',
        c => c,
    }));
    out.push('”');
    out
}

/// A word of a command line, quoted for a POSIX shell if that is necessary.
#[must_use]
pub fn shell(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(alloc::format!("'{}'", word.replace('\'', r"'\''")))
}

/// The scheme of a location, such as `s3` in `s3://bucket/name`; `None` for the path of a file.
#[must_use]
pub fn scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once("://")?;
    let letters = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let starts = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (starts && scheme.chars().all(letters)).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::fingerprint::normalise;

    #[test]
    fn what_a_service_said_is_readable_and_harmless() {
        let text = "{\"error\":\"Straße “X”\"}\u{1b}[2J\r\n\u{202e}";
        let quoted = said(text);
        assert_eq!(quoted, "“{\"error\":\"Straße \"X\"\"} [2J   ”");
        assert_eq!(normalise(&alloc::format!("400: {quoted} end")), "<n>: <s> end", "one quotation");
    }

    #[test]
    fn a_word_survives_the_shell() {
        for (word, quoted) in [
            (".tidegate/letters.db", ".tidegate/letters.db"),
            ("my letters.db", "'my letters.db'"),
            ("postgres://u@h/db?schema=a", "'postgres://u@h/db?schema=a'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell(word), quoted);
        }
    }
}
