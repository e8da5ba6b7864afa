//! Whether the log is what it was, and if not, which entry is the first that is not.
//!
//! The entries are gone through once, from the first. What each must be is told by the chain and
//! by the *anchors*: checkpoints whose signature is good, out of the database or out of the copies.
//! A checkpoint names the one before it by its digest, so one signature vouches for all before it.
//! Only when something is wrong is it asked what happened; that may cost a second look.

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
    /// Public keys that may have signed; without any only the chain is checked.
    pub keys: Vec<PublicKey>,
    /// Copies of the checkpoints from outside of the database.
    pub copies: Vec<Checkpoint>,
}

/// The kind of tampering with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TamperKind {
    /// It says something else than it did.
    Edited,
    /// It is gone.
    Deleted,
    /// It stands at another place.
    Reordered,
    /// It and all after it are gone.
    Truncated,
    /// It was not entered by whoever holds the key.
    Forged,
}

impl TamperKind {
    /// In a word.
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
    /// The number of checkpoints that vouch for it.
    pub checkpoints: usize,
    /// The number of the last entry for which a copied checkpoint vouches.
    pub copied: i64,
    /// The id of the key of the last signature, if it was checked.
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

/// Goes through a log.
///
/// # Errors
/// When it cannot be read; what is wrong with it is no error.
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
                let why = format!("the log was signed with {signed} entries, what follows is not");
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
            format!("the log ends with entry {n}, and checkpoint {} knows entry {}", anchor.k, anchor.last);
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
    /// Whether there is one.
    there: bool,
    /// The number of entries, if the signature is good or cannot be checked.
    signed: Option<i64>,
    hash: Vec<u8>,
    /// The id of the key that signed, if the signature was checked.
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
    /// What is wrong with the end of a log that is otherwise whole.
    fn wrong(&self, trust: &TrustAnchors, n: i64, hash: &[u8], sealed: i64) -> Option<TamperFinding> {
        // The first entry for which no checkpoint vouches.
        let open = (sealed + 1).min(n.max(1));
        match self.signed {
            None if !self.there && (n == 0 || trust.keys.is_empty()) => None,
            None if !self.there => {
                Some(found(open, TamperKind::Forged, "no signature covers the end of the log"))
            }
            None => {
                let why = "the signature of the end of the log is not of a key that is trusted";
                Some(found(open, TamperKind::Forged, why))
            }
            Some(signed) if signed > n => {
                Some(found(n + 1, TamperKind::Truncated, format!("the log was signed with {signed} entries")))
            }
            Some(_) if self.hash != hash => {
                Some(found(n, TamperKind::Forged, "it is not the entry that was signed as the last"))
            }
            Some(_) => None,
        }
    }
}

/// The checkpoints that can be trusted, in order and without a gap.
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
    // From the end: what a trusted one names by its digest is trusted too.
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
                let why = format!("checkpoint {k} is not as it was signed");
                return Ok(Err(found(point.first, TamperKind::Forged, why)));
            }
            (None, None) => {
                let from = chosen.last().map_or(1, |next| next.first);
                let why = format!("checkpoint {k}, which covers the entries before {from}, is gone");
                return Ok(Err(found(from, TamperKind::Forged, why)));
            }
        }
    }
    chosen.reverse();
    // The database must know what was copied out of it.
    let lost = chosen.iter().find(|point| own.get((point.k - 1).max(0) as usize) != Some(point));
    if let Some(point) = lost {
        let rows = sql.query("SELECT max(n) FROM audit", &[])?;
        let end = rows.first().map_or(0, |row| row.int(0));
        // If its entries are gone too, that is what is to be told.
        if end >= point.last {
            let why =
                format!("checkpoint {}, which covers it, was changed or removed in the database", point.k);
            return Ok(Err(found(point.first, TamperKind::Forged, why)));
        }
    }
    Ok(Ok(chosen))
}

/// What happened where entry `n + 1` was expected and `row` is.
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
        return Ok(found(expected, TamperKind::Edited, "what it says is not what was hashed"));
    }
    if fits {
        let why = "it was replaced and the chain was computed anew; the signed checkpoint knows another";
        return Ok(found(expected, TamperKind::Forged, why));
    }
    // Another entry stands here, or one that never was.
    let stands = |hash: &str, n: i64| mark_of(n) == Some(hash);
    let last = anchors.last().map_or(0, |anchor| anchor.last);
    let known = (1..=last).find(|other| *other != expected && stands(&stored, *other));
    let Some(known) = known else {
        return Ok(found(expected, TamperKind::Forged, "no signed checkpoint knows it"));
    };
    let mut after = n;
    loop {
        let rows = page(sql, after)?;
        let Some(end) = rows.last() else {
            let why = format!("entry {known} stands in its place");
            return Ok(found(expected, TamperKind::Deleted, why));
        };
        after = end.n;
        if let Some(moved) = rows.iter().find(|row| hex(row.hash.get(..MARK).unwrap_or_default()) == mark) {
            let why = format!("entry {known} stands in its place, and it stands at {}", moved.n);
            return Ok(found(expected, TamperKind::Reordered, why));
        }
    }
}

/// The same where no checkpoint tells what the entry was: the chain alone.
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
            // If the next one follows from what is written here as its hash, only the words changed.
            if first && follows(&row.hash, other.n, other) {
                return Ok(found(expected, TamperKind::Edited, "what it says is not what was hashed"));
            }
            if first && follows(&row.hash, other.n + 1, other) {
                return Ok(found(expected, TamperKind::Deleted, "the entries after it were numbered anew"));
            }
            first = false;
            if follows(before, expected, other) {
                let why = format!("it stands at {}", other.n);
                return Ok(found(expected, TamperKind::Reordered, why));
            }
        }
    }
    Ok(found(expected, TamperKind::Edited, format!("it does not follow from entry {}", expected - 1)))
}
