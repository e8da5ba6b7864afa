//! The idempotency key of a replay.
//!
//! A service or a ledger recognises a repeated record by its key. If the payload is unchanged, the
//! replay is the same request and keeps the key, so it has no effect if the first request
//! succeeded. If a remedy changed the payload, it is another request: with the old key, a service
//! could reject it or return the old response. So it gets a new key, which is the same for the same
//! change on every machine. The effect key never changes: it identifies the row in the sink, so a
//! replay overwrites the row and does not duplicate it.

use crate::hex::hex;
use alloc::string::{String, ToString};
use sha2::{Digest, Sha256};

/// A replay with a changed payload.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The idempotency key of the first letter of the lineage.
    pub root_key: &'a str,
    /// The generation of the letter: the number of earlier letters of this record.
    pub generation: u32,
    /// The name of the rule that changed the payload, or `edit`.
    pub rule: &'a str,
    /// SHA-256 of the changed payload.
    pub payload: [u8; 32],
}

/// The idempotency key of a replay: `key` itself, or a new one if the payload was changed.
#[must_use]
pub fn replay_key(key: &str, changed: Option<&Replayed<'_>>) -> String {
    let Some(change) = changed else { return key.to_string() };
    let mut hash = Sha256::new();
    hash.update(b"tidegate-replay-1\n");
    for part in [change.root_key, change.rule] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(change.generation.to_le_bytes());
    hash.update(change.payload);
    let source = change.root_key.rsplit_once(':').map_or("", |(source, _)| source);
    alloc::format!("{source}:{}", hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_payload_keeps_its_key_and_each_change_has_its_own() {
        assert_eq!(replay_key("parcels:ab", None), "parcels:ab");
        let change =
            Replayed { root_key: "parcels:ab", generation: 0, rule: "make_valid/1", payload: [7; 32] };
        let key = |change: Replayed<'_>| replay_key("parcels:zz", Some(&change));
        let one = key(change);
        assert!(one.starts_with("parcels:") && one.len() == "parcels:".len() + 64, "{one}");
        assert_eq!(one, key(change), "the same change has the same key");
        for other in [
            Replayed { generation: 1, ..change },
            Replayed { rule: "clip/1", ..change },
            Replayed { payload: [8; 32], ..change },
            Replayed { root_key: "parcels:ac", ..change },
        ] {
            assert_ne!(one, key(other));
        }
    }
}
