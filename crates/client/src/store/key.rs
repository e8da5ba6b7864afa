//! Keys of objects, and how they are spread.
//!
//! A key is a path: segments joined by `/`, none empty, `.` or `..`, without control characters. So
//! the same key is the same object in a bucket and in a directory, and no key leaves its store.
//!
//! Object stores throttle by prefix: a thousand tiles under `tiles/2026-03-01/` are one hot prefix.
//! With [`KeySpread::Hash`] an object is stored as `h=XX/KEY`, where `XX` are the first two
//! hexadecimal digits of the SHA-256 of the key. Writes are then spread evenly over 256 prefixes.
//! The whole key follows the shard, so the original key is found by removing the first five bytes,
//! and each shard lists in the order of the original keys: the whole store is listed in that order
//! by merging 256 sorted lists.

use sha2::{Digest, Sha256};
use std::fmt;

/// The number of shards of [`KeySpread::Hash`].
pub(super) const SHARDS: u16 = 256;
/// The longest key that S3 allows, in bytes.
const BYTES_MAX: usize = 1024;
/// The length of `h=XX/`, in bytes.
const SHARD_BYTES: usize = 5;

/// How keys are spread over prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySpread {
    /// Keys are stored unchanged.
    #[default]
    None,
    /// Keys are stored under `h=XX/`, by their hash.
    Hash,
}

/// Why a text is not a valid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKey {
    /// The key as given.
    pub key: String,
    /// The violated rule.
    pub why: &'static str,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid key {:?}: {}", self.key, self.why)
    }
}

impl std::error::Error for BadKey {}

/// Validates a key.
///
/// # Errors
/// The violated rule.
pub fn check(key: &str) -> Result<(), BadKey> {
    let why = if key.is_empty() {
        "it is empty"
    } else if key.len() > BYTES_MAX - SHARD_BYTES {
        "it is longer than 1019 bytes"
    } else if key.bytes().any(|b| b.is_ascii_control()) {
        "it contains a control character"
    } else if key.split('/').any(|s| matches!(s, "" | "." | "..")) {
        "a segment between slashes is empty, `.` or `..`"
    } else {
        return Ok(());
    };
    Err(BadKey { key: key.chars().take(80).collect(), why })
}

impl KeySpread {
    /// The physical key of an object.
    #[must_use]
    pub fn place(self, key: &str) -> String {
        match self {
            KeySpread::None => key.to_owned(),
            KeySpread::Hash => {
                let first = Sha256::digest(key.as_bytes()).first().copied().unwrap_or_default();
                shard(first.into()) + key
            }
        }
    }

    /// The key of the object with this physical key; `None` if it is not of this layout.
    #[must_use]
    pub fn original(self, physical_key: &str) -> Option<&str> {
        let key = match self {
            KeySpread::None => physical_key,
            KeySpread::Hash => physical_key.get(SHARD_BYTES..)?,
        };
        (self.place(key) == physical_key).then_some(key)
    }
}

/// The prefix of a shard, with its slash.
pub(super) fn shard(number: u16) -> String {
    format!("h={number:02x}/")
}

/// The part of a physical key that identifies its lane: the first `segments` segments, without the
/// last one of the key.
pub(super) fn lane_prefix(physical_key: &str, segments: usize) -> &str {
    let Some((folders, _)) = physical_key.rsplit_once('/') else { return "" };
    match folders.match_indices('/').nth(segments.saturating_sub(1)) {
        _ if segments == 0 => "",
        Some((end, _)) => folders.get(..end).unwrap_or_default(),
        None => folders,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_as_documented() {
        assert_eq!(KeySpread::Hash.place("tiles/1/2.png"), "h=88/tiles/1/2.png");
        assert_eq!(KeySpread::Hash.original("h=88/tiles/1/2.png"), Some("tiles/1/2.png"));
        assert_eq!(KeySpread::Hash.original("h=89/tiles/1/2.png"), None, "another shard's");
        for foreign in ["", "h=1a/", "h=1", "tiles/1/2.png", "hé1a/x"] {
            assert_eq!(KeySpread::Hash.original(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn bad_keys_are_refused() {
        for good in ["a", "a/b", "ä/日本 x/é.tif", "a b+c%20&=#?.json", "...", "h=00/x"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let long = "x".repeat(1020);
        for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "./a", "a\nb", "a\0", &long] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lane_is_named_by_the_first_folders() {
        for (key, segments, lane) in [
            ("a", 1, ""),
            ("a/b", 1, "a"),
            ("a/b/c/d", 1, "a"),
            ("a/b/c/d", 2, "a/b"),
            ("a/b/c/d", 9, "a/b/c"),
            ("a/b/c/d", 0, ""),
        ] {
            assert_eq!(lane_prefix(key, segments), lane, "{key} {segments}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn every_key_comes_back(key in "\\PC{1,60}", segments in 0usize..4) {
            for spread in [KeySpread::None, KeySpread::Hash] {
                let physical_key = spread.place(&key);
                prop_assert_eq!(spread.original(&physical_key), Some(key.as_str()));
                prop_assert!(physical_key.starts_with(lane_prefix(&physical_key, segments)));
            }
        }

        #[test]
        fn no_shard_is_hot(from in 0u32..1_000_000) {
            let mut shards = [0u32; 256];
            for n in from..from + 2560 {
                let physical_key = KeySpread::Hash.place(&format!("tiles/{n:08}.png"));
                let number = usize::from_str_radix(&physical_key[2..4], 16).unwrap();
                shards[number] += 1;
            }
            // Ten are expected; 40 would be nine standard deviations away.
            prop_assert!(shards.iter().all(|n| *n < 40));
        }
    }
}
