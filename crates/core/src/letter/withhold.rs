//! The message of a sealed letter: it says what is wrong, not what the value is.
//!
//! Only the payload of a letter is sealed; triage needs the message. So the message of a sealed
//! letter is the normal form that groups it, and the values that a database names are left out too.

use super::fingerprint::normalise;
use alloc::string::String;

/// The message without values of the record.
#[must_use]
pub fn withhold(message: &str) -> String {
    let normal = normalise(message);
    let mut out = String::with_capacity(normal.len());
    let mut rest = normal.as_str();
    // PostgreSQL quotes nothing in `Key (name)=(value) already exists`. A value may hold brackets.
    if let Some((before, after)) = rest.split_once(")=(") {
        out.push_str(before);
        out.push_str(")=(<s>)");
        rest = after.rsplit_once(')').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

/// A URL without its query, which may hold an address.
#[must_use]
pub fn withhold_query(url: &str) -> &str {
    url.split_once(['?', '#']).map_or(url, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_left() {
        for (message, withheld) in [
            ("v: \"Ann\" is not an integer", "v: <s> is not an integer"),
            ("Key (name)=(Ann (jr)) already exists.", "Key (name)=(<s>) already exists."),
            ("the service said “no \"Ring 1\" here”", "the service said <s>"),
            ("Self-intersection[16.37 48.2]", "Self-intersection[<n> <n>]"),
        ] {
            assert_eq!(withhold(message), withheld);
            assert_eq!(withhold(withheld), withheld, "a letter is put once more after a replay");
            assert_eq!(normalise(withheld), withheld, "it stays in its group");
        }
        assert_eq!(withhold_query("http://a/find?q=Ring%201"), "http://a/find");
    }
}
