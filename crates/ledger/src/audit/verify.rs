//! Verifies the log and names the first entry that was tampered with.
//!
//! One pass reads the entries from the first. The chain and the *anchors* determine what each must
//! be. An anchor is a checkpoint with a valid signature, from the database or from the copies. A
//! checkpoint contains the digest of the previous one, so one signature covers all checkpoints
//! before it. Only a mismatch is diagnosed further, which may read the log a second time.

use std::collections::HashMap;

use super::chain::{self, Hash, follows};
use super::log::head_message;
use super::seal::{self, Checkpoint, MARK};
use super::sign::PublicKey;
use super::{AuditError, AuditRow, COLUMNS};
use crate::sql::Sql;
use tidegate_core::hex::{hex, unhex_all};

/// The trust anchors of a verification.
#[derive(Clone, Debug, Default)]
pub struct TrustAnchors {
    /// Public keys that may have signed. Without any, signatures are not checked.
    pub keys: Vec<PublicKey>,
    /// Copies of the checkpoints from outside the database.
    pub copies: Vec<Checkpoint>,
}

/// The kind of tampering with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TamperKind {
    /// Its content was changed.
    Edited,
    /// It was deleted.
    Deleted,
    /// It was moved to another position.
    Reordered,
    /// It and all entries after it were deleted.
    Truncated,
    /// It was added without the key.
    Forged,
}

impl TamperKind {
    /// The name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TamperKind::Edited => "edited",
            TamperKind::Deleted => "deleted",
            TamperKind::Reordered => "reordered",
            TamperKind::Truncated => "truncated",
            TamperKind::Forged => "forged",
        }
    }
}

/// The first entry that was tampered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TamperFinding {
    /// The number of the entry.
    pub n: i64,
    /// The kind of tampering.
    pub fault: TamperKind,
    /// The evidence.
    pub why: String,
}

impl std::fmt::Display for TamperFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {} was {}: {}", self.n, self.fault.as_str(), self.why)
    }
}

/// The result of a verification without a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedLog {
    /// The number of entries.
    pub entries: i64,
    /// The hash of the last entry, in hex.
    pub hash: String,
    /// The number of checkpoints that cover the log.
    pub checkpoints: usize,
    /// The number of the last entry that a copied checkpoint covers.
    pub copied: i64,
    /// The id of the key of the last signature, if it was verified.
    pub key: Option<String>,
}

const PAGE: i64 = 2000;

fn page<S: Sql + ?Sized>(sql: &mut S, after: i64) -> Result<Vec<AuditRow>, AuditError> {
    let question = format!("SELECT {COLUMNS} FROM audit WHERE n > ?1 ORDER BY n LIMIT {PAGE}");
    Ok(sql.query(&question, &[after.into()])?.into_iter().map(AuditRow::from).collect())
}

fn found(n: i64, fault: TamperKind, why: impl Into<String>) -> TamperFinding {
    TamperFinding { n, fault, why: why.into() }
}

/// Verifies a log.
///
/// # Errors
/// When it cannot be read. Tampering is a finding, not an error.
pub(crate) fn verify<S: Sql + ?Sized>(
    sql: &mut S,
    log: &str,
    trust: &TrustAnchors,
) -> Result<Result<VerifiedLog, TamperFinding>, AuditError> {
    let anchors = match anchors(sql, log, trust)? {
        Ok(anchors) => anchors,
        Err(finding) => return Ok(Err(finding)),
    };
    let head = head(sql, log, trust)?;
    let (mut n, mut before) = (0, Vec::new());
    let mut at = 0;
    let mut leaves: Vec<Hash> = Vec::new();
    loop {
        let rows = page(sql, n)?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let anchor = anchors.get(at);
            let mark = anchor.and_then(|anchor| anchor.mark(n + 1));
            let whole = row.n == n + 1
                && follows(&before, row.n, row)
                && mark.is_none_or(|mark| hex(row.hash.get(..MARK).unwrap_or_default()) == mark);
            if let Some(signed) = head.signed.filter(|signed| row.n == n + 1 && row.n > *signed) {
                let why =
                    format!("the log was signed with {signed} entries; the entries after it are not signed");
                return Ok(Err(found(n + 1, TamperKind::Forged, why)));
            }
            if !whole {
                return diagnose(sql, &anchors, n, &before, row).map(Err);
            }
            n += 1;
            before.clone_from(&row.hash);
            if let Some(anchor) = anchor {
                leaves.push(row.hash.as_slice().try_into().unwrap_or_default());
                if n == anchor.last {
                    if hex(&chain::root(&leaves)) != anchor.root || hex(&before) != anchor.head {
                        let why = format!(
                            "entries {} to {} are not those of checkpoint {}",
                            anchor.first, anchor.last, anchor.k
                        );
                        return Ok(Err(found(anchor.first, TamperKind::Forged, why)));
                    }
                    leaves.clear();
                    at += 1;
                }
            }
        }
    }
    if let Some(anchor) = anchors.last().filter(|anchor| anchor.last > n) {
        let why =
            format!("the log ends with entry {n}, but checkpoint {} covers entry {}", anchor.k, anchor.last);
        return Ok(Err(found(n + 1, TamperKind::Truncated, why)));
    }
    let sealed = anchors.last().map_or(0, |anchor| anchor.last);
    if let Some(finding) = head.wrong(trust, n, &before, sealed) {
        return Ok(Err(finding));
    }
    let copied = trust.copies.last().map_or(0, |copy| copy.last);
    Ok(Ok(VerifiedLog { entries: n, hash: hex(&before), checkpoints: anchors.len(), copied, key: head.key }))
}

/// The signed head of the log.
struct SignedHead {
    /// Whether the log has a head.
    there: bool,
    /// The number of entries, if the signature is valid or there is no key to check it with.
    signed: Option<i64>,
    hash: Vec<u8>,
    /// The id of the key that signed, if the signature was verified.
    key: Option<String>,
}

fn head<S: Sql + ?Sized>(sql: &mut S, log: &str, trust: &TrustAnchors) -> Result<SignedHead, AuditError> {
    let rows = sql.query("SELECT n, hash, key_id, signature FROM audit_head", &[])?;
    let Some(row) = rows.first() else {
        return Ok(SignedHead { there: false, signed: None, hash: Vec::new(), key: None });
    };
    let (n, hash) = (row.int(0), row.blob(1));
    let good = trust.keys.iter().find(|key| {
        row.maybe_text(2).as_ref() == Some(&key.key_id)
            && key.verifies(&head_message(log, n, &hash), &row.blob(3))
    });
    let signed = (good.is_some() || trust.keys.is_empty()).then_some(n);
    Ok(SignedHead { there: true, signed, hash, key: good.map(|key| key.key_id.clone()) })
}

impl SignedHead {
    /// The finding at the end of a log whose chain is intact.
    fn wrong(&self, trust: &TrustAnchors, n: i64, hash: &[u8], sealed: i64) -> Option<TamperFinding> {
        // The first entry that no checkpoint covers.
        let open = (sealed + 1).min(n.max(1));
        match self.signed {
            None if !self.there && (n == 0 || trust.keys.is_empty()) => None,
            None if !self.there => {
                Some(found(open, TamperKind::Forged, "no signature covers the end of the log"))
            }
            None => {
                let why = "the end of the log is not signed with a trusted key";
                Some(found(open, TamperKind::Forged, why))
            }
            Some(signed) if signed > n => {
                Some(found(n + 1, TamperKind::Truncated, format!("the log was signed with {signed} entries")))
            }
            Some(_) if self.hash != hash => {
                Some(found(n, TamperKind::Forged, "it is not the entry that was signed last"))
            }
            Some(_) => None,
        }
    }
}

/// The trusted checkpoints, in order and without a gap.
fn anchors<S: Sql + ?Sized>(
    sql: &mut S,
    log: &str,
    trust: &TrustAnchors,
) -> Result<Result<Vec<Checkpoint>, TamperFinding>, AuditError> {
    let mut own: Vec<Checkpoint> = Vec::new();
    loop {
        let more = seal::after(sql, log, own.last().map_or(0, |last| last.k))?;
        if more.is_empty() {
            break;
        }
        own.extend(more);
    }
    let signed = |point: &Checkpoint| {
        let signature = point.signature.as_deref().and_then(unhex_all).unwrap_or_default();
        trust.keys.is_empty()
            || trust.keys.iter().any(|key| {
                point.key.as_ref() == Some(&key.key_id) && key.verifies(&point.message(), &signature)
            })
    };
    let mut by_number: HashMap<i64, Vec<&Checkpoint>> = HashMap::new();
    for point in trust.copies.iter().filter(|copy| copy.log == log).chain(&own) {
        by_number.entry(point.k).or_default().push(point);
    }
    let last = by_number.keys().copied().max().unwrap_or(0);
    let mut chosen: Vec<Checkpoint> = Vec::new();
    // From the last: a checkpoint whose digest is in a trusted one is trusted too.
    for k in (1..=last).rev() {
        let named = chosen.last().map(|next| next.before.clone());
        let points = by_number.get(&k).map(Vec::as_slice).unwrap_or_default();
        let good = points.iter().copied().find(|point| match &named {
            Some(digest) => point.digest() == *digest,
            None => signed(point),
        });
        match (good, points.first()) {
            (Some(point), _) => chosen.push(point.clone()),
            (None, Some(point)) => {
                let why = format!("checkpoint {k} differs from what was signed");
                return Ok(Err(found(point.first, TamperKind::Forged, why)));
            }
            (None, None) => {
                let from = chosen.last().map_or(1, |next| next.first);
                let why = format!("checkpoint {k}, which covers the entries before {from}, is missing");
                return Ok(Err(found(from, TamperKind::Forged, why)));
            }
        }
    }
    chosen.reverse();
    // The database must still hold every checkpoint that was copied.
    let lost = chosen.iter().find(|point| own.get((point.k - 1).max(0) as usize) != Some(point));
    if let Some(point) = lost {
        let rows = sql.query("SELECT max(n) FROM audit", &[])?;
        let end = rows.first().map_or(0, |row| row.int(0));
        // If its entries are gone too, report the truncation instead.
        if end >= point.last {
            let why =
                format!("checkpoint {}, which covers it, was changed or removed in the database", point.k);
            return Ok(Err(found(point.first, TamperKind::Forged, why)));
        }
    }
    Ok(Ok(chosen))
}

/// Finds out what happened where entry `n + 1` was expected and `row` was found.
fn diagnose<S: Sql + ?Sized>(
    sql: &mut S,
    anchors: &[Checkpoint],
    n: i64,
    before: &[u8],
    row: &AuditRow,
) -> Result<TamperFinding, AuditError> {
    let expected = n + 1;
    if row.n < expected {
        return Ok(found(row.n, TamperKind::Forged, "entries are numbered from 1"));
    }
    if row.n > expected {
        let why = format!("entry {n} is followed by entry {}", row.n);
        return Ok(found(expected, TamperKind::Deleted, why));
    }
    let mark_of = |n: i64| {
        let at = anchors.partition_point(|anchor| anchor.last < n);
        anchors.get(at).and_then(|anchor| anchor.mark(n))
    };
    let stored = hex(row.hash.get(..MARK).unwrap_or_default());
    let fits = follows(before, expected, row);
    let Some(mark) = mark_of(expected) else {
        return untold(sql, expected, before, row);
    };
    if stored == mark {
        return Ok(found(expected, TamperKind::Edited, "its content does not match its hash"));
    }
    if fits {
        let why =
            "it was replaced and the chain was recomputed; the signed checkpoint contains another entry";
        return Ok(found(expected, TamperKind::Forged, why));
    }
    // Another entry was found here, moved or forged.
    let stands = |hash: &str, n: i64| mark_of(n) == Some(hash);
    let last = anchors.last().map_or(0, |anchor| anchor.last);
    let known = (1..=last).find(|other| *other != expected && stands(&stored, *other));
    let Some(known) = known else {
        return Ok(found(expected, TamperKind::Forged, "no signed checkpoint contains it"));
    };
    let mut after = n;
    loop {
        let rows = page(sql, after)?;
        let Some(end) = rows.last() else {
            let why = format!("entry {known} is in its place");
            return Ok(found(expected, TamperKind::Deleted, why));
        };
        after = end.n;
        if let Some(moved) = rows.iter().find(|row| hex(row.hash.get(..MARK).unwrap_or_default()) == mark) {
            let why = format!("entry {known} is in its place, and it is at {}", moved.n);
            return Ok(found(expected, TamperKind::Reordered, why));
        }
    }
}

/// The same without a checkpoint that covers the entry: from the chain alone.
fn untold<S: Sql + ?Sized>(
    sql: &mut S,
    expected: i64,
    before: &[u8],
    row: &AuditRow,
) -> Result<TamperFinding, AuditError> {
    let mut after = expected - 1;
    let mut first = true;
    loop {
        let rows = page(sql, after)?;
        let Some(end) = rows.last() else { break };
        after = end.n;
        for other in rows.iter().filter(|other| other.n > expected) {
            // If the next entry follows from the stored hash, only the content of this one changed.
            if first && follows(&row.hash, other.n, other) {
                return Ok(found(expected, TamperKind::Edited, "its content does not match its hash"));
            }
            if first && follows(&row.hash, other.n + 1, other) {
                return Ok(found(expected, TamperKind::Deleted, "the entries after it were renumbered"));
            }
            first = false;
            if follows(before, expected, other) {
                let why = format!("it is at {}", other.n);
                return Ok(found(expected, TamperKind::Reordered, why));
            }
        }
    }
    Ok(found(expected, TamperKind::Edited, format!("it does not follow from entry {}", expected - 1)))
}
