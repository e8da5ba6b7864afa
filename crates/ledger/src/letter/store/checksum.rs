//! Checksums of what a letter consists of, so that a bit that flipped on a disk is noticed.
//!
//! They are the first field of the envelope: `{"sum":"…",` and the rest. Why not a column: an older
//! program that changes a letter writes its envelope without them, and a letter without them is
//! accepted as one of an older program. A column would be left with checksums of the old content.
//!
//! Each is the first eight bytes of a SHA-256, in hex: of the envelope without this field, of the
//! payload as received, of the current payload; as stored, so also of sealed payloads.

use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;

const PREFIX: &str = "{\"sum\":\"";
const DIGITS: usize = 16;
/// There are no bytes.
const NONE: &str = "----------------";
/// Nothing is known of the bytes: an older program stored them.
const UNKNOWN: &str = "????????????????";

/// The checksum of a payload.
fn of(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| NONE.to_owned(), |bytes| of_parts(&[bytes]))
}

fn of_parts(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let mut text = hex(&hash.finalize());
    text.truncate(DIGITS);
    text
}

/// The checksums in an envelope, and the envelope after them without its opening brace.
fn split(envelope: &str) -> Option<([&str; 3], &str)> {
    let (sums, rest) = envelope.strip_prefix(PREFIX)?.split_at_checked(3 * DIGITS)?;
    let (own, payloads) = sums.split_at_checked(DIGITS)?;
    let (received, current) = payloads.split_at_checked(DIGITS)?;
    Some(([own, received, current], rest.strip_prefix("\",")?))
}

fn joined(json: &str, received: &str, current: &str) -> String {
    let own = of_parts(&[json.as_bytes()]);
    format!("{PREFIX}{own}{received}{current}\",{}", json.get(1..).unwrap_or_default())
}

/// An envelope with its checksums.
pub(super) fn add(json: &str, received: &[u8], current: Option<&[u8]>) -> String {
    joined(json, &of(Some(received)), &of(current))
}

/// A new envelope for the letter of an old one: the payload as received stays, the current one
/// stays or is replaced.
pub(super) fn renew(json: &str, old: &str, current: Option<&[u8]>) -> String {
    let [_, received, was] = split(old).map_or([UNKNOWN; 3], |(sums, _)| sums);
    joined(json, received, &current.map_or_else(|| was.to_owned(), |bytes| of(Some(bytes))))
}

/// Whether an envelope is what was written; an older program wrote no checksums.
pub(super) fn envelope_is_whole(envelope: &str) -> bool {
    split(envelope).is_none_or(|([own, ..], rest)| of_parts(&[b"{", rest.as_bytes()]) == own)
}

/// Whether the payloads are what was written with the envelope.
pub(super) fn payloads_are_whole(envelope: &str, received: Option<&[u8]>, current: Option<&[u8]>) -> bool {
    let Some(([_, first, second], _)) = split(envelope) else { return true };
    let fits = |sum: &str, bytes: Option<&[u8]>| sum == UNKNOWN || sum == of(bytes);
    fits(first, Some(received.unwrap_or_default())) && fits(second, current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_what_counts_is_noticed() {
        let json = r#"{"id":"x","message":"Straße 7"}"#;
        let text = add(json, b"payload", Some(b"fixed"));
        assert!(envelope_is_whole(&text) && payloads_are_whole(&text, Some(b"payload"), Some(b"fixed")));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["id"], &value["message"]), (&"x".into(), &"Straße 7".into()));
        let start = PREFIX.len() + 3 * DIGITS + 2;
        for at in start..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                if let Ok(flipped) = String::from_utf8(bytes) {
                    assert!(!envelope_is_whole(&flipped), "{flipped}");
                }
            }
        }
        assert!(!payloads_are_whole(&text, Some(b"paylaod"), Some(b"fixed")));
        assert!(!payloads_are_whole(&text, Some(b"payload"), Some(b"fixee")));
        assert!(!payloads_are_whole(&text, Some(b"payload"), None));
        assert!(!payloads_are_whole(&text, None, Some(b"fixed")));
    }

    #[test]
    fn an_envelope_of_an_older_program_is_accepted_and_covered_from_its_next_change_on() {
        let old = r#"{"id":"x"}"#;
        assert!(envelope_is_whole(old) && payloads_are_whole(old, Some(b"any"), None));
        let changed = renew(r#"{"id":"x","n":1}"#, old, Some(b"fixed"));
        assert!(envelope_is_whole(&changed) && payloads_are_whole(&changed, Some(b"any"), Some(b"fixed")));
        assert!(!payloads_are_whole(&changed, Some(b"any"), Some(b"fixee")));
        let kept = renew(r#"{"id":"x","n":2}"#, &changed, None);
        assert!(payloads_are_whole(&kept, Some(b"any"), Some(b"fixed")));
        assert!(!payloads_are_whole(&kept, Some(b"any"), None));
    }
}
