//! The hash chain over entries and the Merkle tree over checkpoints, byte by byte.
//!
//! The hash of an entry is SHA-256 over: `tidegate-audit-2\n`; the hash of the previous entry
//! (nothing for the first); the number and the time as little-endian 64-bit integers; then who,
//! act, letter, key, code, destination and detail, each as its length (64 bits, little-endian, all
//! ones if absent) followed by its bytes. Stores created before key, code and destination existed
//! hold entries of format 1, which covers who, act, detail and letter.
//!
//! The tree is the one of RFC 6962: a leaf is hashed with the prefix byte 0, a node with the prefix
//! byte 1.

use sha2::{Digest, Sha256};

use super::AuditRow;

pub(super) type Hash = [u8; 32];

fn part(hash: &mut Sha256, bytes: Option<&[u8]>) {
    hash.update(bytes.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
    hash.update(bytes.unwrap_or_default());
}

/// The hash of an entry, given its number and the hash of the previous entry.
pub(super) fn link(before: &[u8], n: i64, row: &AuditRow) -> Hash {
    let mut hash = Sha256::new();
    hash.update(b"tidegate-audit-2\n");
    hash.update(before);
    hash.update(n.to_le_bytes());
    hash.update(row.at_ms.to_le_bytes());
    part(&mut hash, Some(row.who.as_bytes()));
    part(&mut hash, Some(row.act.as_bytes()));
    part(&mut hash, row.letter.as_deref());
    for field in [&row.key, &row.code, &row.dest] {
        part(&mut hash, field.as_deref().map(str::as_bytes));
    }
    part(&mut hash, Some(row.detail.as_bytes()));
    hash.finalize().into()
}

/// The hash of an entry of format 1.
fn link_1(before: &[u8], n: i64, row: &AuditRow) -> Hash {
    let mut hash = Sha256::new();
    hash.update(b"tidegate-audit-1\n");
    hash.update(before);
    hash.update(n.to_le_bytes());
    hash.update(row.at_ms.to_le_bytes());
    for text in [&row.who, &row.act, &row.detail] {
        part(&mut hash, Some(text.as_bytes()));
    }
    part(&mut hash, Some(row.letter.as_deref().unwrap_or_default()));
    hash.finalize().into()
}

/// Whether the stored hash of an entry matches its content, its number and the previous hash.
pub(super) fn follows(before: &[u8], n: i64, row: &AuditRow) -> bool {
    let old = || row.key.is_none() && row.code.is_none() && row.dest.is_none();
    link(before, n, row).as_slice() == row.hash || (old() && link_1(before, n, row).as_slice() == row.hash)
}

fn node(kind: u8, parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    hash.update([kind]);
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The Merkle root over these leaves.
pub(super) fn root(leaves: &[Hash]) -> Hash {
    let mut level: Vec<Hash> = leaves.iter().map(|leaf| node(0, &[leaf])).collect();
    if level.is_empty() {
        return Sha256::digest([]).into();
    }
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => node(1, &[left, right]),
                [alone, ..] => *alone,
                [] => [0; 32],
            })
            .collect();
    }
    level.first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::hex::hex;

    #[test]
    fn the_tree_is_that_of_rfc_6962() {
        assert_eq!(hex(&root(&[])), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let [a, b, c]: [Hash; 3] = [[1; 32], [2; 32], [3; 32]];
        let (la, lb, lc) = (node(0, &[&a]), node(0, &[&b]), node(0, &[&c]));
        assert_eq!(root(&[a]), la);
        assert_eq!(root(&[a, b, c]), node(1, &[&node(1, &[&la, &lb]), &lc]));
    }

    #[test]
    fn no_field_can_pass_for_another() {
        let row = |key: Option<&str>, code: Option<&str>| AuditRow {
            key: key.map(str::to_owned),
            code: code.map(str::to_owned),
            ..AuditRow::default()
        };
        let hashes = [(None, Some("x")), (Some("x"), None), (Some(""), None), (None, None)]
            .map(|(key, code)| link(&[], 1, &row(key, code)));
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[at + 1..].contains(hash));
        }
    }
}
