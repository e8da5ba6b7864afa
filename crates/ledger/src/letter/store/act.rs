//! Changes to letters, each in one transaction with its audit entry.

use super::put::{PayloadBlob, sound};
use super::{
    AuditEvent, Db, LetterPage, LetterStore, Result, StoredLetter, Val, audit, broken, checksum, words,
};
use crate::letter::LetterError;
use crate::letter::archive::archive_to;
use crate::letter::envelope::Letter;
use crate::letter::filter::LetterFilter;
use crate::letter::seal::{RewrappedKey, WrappedKey};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use tidegate_core::letter::{LetterId, LetterState};

/// A change to one letter.
#[derive(Clone, Debug)]
pub struct Amend {
    /// The letter as it was read: the change is refused if somebody else changed it since.
    pub row: StoredLetter,
    /// The new envelope, with state, times and hold.
    pub letter: Letter,
    /// The new payload, sealed if the letter is; `None` leaves it unchanged.
    pub payload: Option<Vec<u8>>,
    /// The action of the audit entry.
    pub act: &'static str,
    /// The detail of the audit entry, as JSON.
    pub detail: serde_json::Value,
}

/// Where the open letters of a pipeline are archived before retention deletes them. It comes from a
/// manifest that a person named, never from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePlace {
    /// The name of the pipeline.
    pub pipeline: String,
    /// A directory or `s3://bucket/base`.
    pub to: String,
}

/// The result of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Letters that were purged.
    pub purged: u64,
    /// Letters that stay because they are on hold.
    pub held: u64,
    /// Open letters past their retention that stay, because they are not archived.
    pub unarchived: u64,
    /// Why they could not be archived.
    pub fault: Option<String>,
    /// The number of purged letters by the state that they had.
    pub states: BTreeMap<LetterState, u64>,
}

impl Purged {
    /// Whether a purge may delete a letter.
    #[must_use]
    pub fn may(letter: &Letter, archived_only: bool) -> bool {
        letter.hold.is_none()
            && letter.state != LetterState::Planned
            && (!archived_only || letter.archive.is_some())
    }

    /// Adds a letter that is purged.
    pub fn add(&mut self, state: LetterState) {
        self.purged += 1;
        *self.states.entry(state).or_default() += 1;
    }

    /// The number of purged letters that were open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.states.iter().filter(|(state, _)| state.is_open()).map(|(_, n)| n).sum()
    }
}

/// Deletes a blob that no letter references any more.
fn drop_blob(db: &mut dyn Db, sha: &[u8]) -> Result<()> {
    let sql = "DELETE FROM blob WHERE sha = ?1 AND NOT EXISTS
                   (SELECT 1 FROM body WHERE received_blob = ?1 OR current_blob = ?1)";
    db.exec(sql, &[sha.into()]).map(|_| ())
}

impl LetterStore {
    /// Changes a letter.
    ///
    /// # Errors
    /// [`LetterError::Fenced`] when it was changed or leased since it was read.
    pub fn amend(&mut self, amend: &Amend, now_ms: i64) -> Result<()> {
        let (row, letter) = (&amend.row, &amend.letter);
        let was = row.letter.state;
        if was != letter.state && !was.may_become(letter.state) {
            let why = format!("letter {} is {was} and cannot become {}", letter.id, letter.state);
            return Err(LetterError::Refused(why));
        }
        let part = amend.payload.clone().map(PayloadBlob::new);
        let json = serde_json::to_string(letter).map_err(broken)?;
        self.tx(|db, writer| {
            let changed = db.exec(
                "UPDATE letter SET state = ?1, not_before_ms = ?2, retain_ms = ?3, hold = ?4, archive = ?5,
                     crs = ?6, lease = lease + 1 WHERE seq = ?7 AND lease = ?8 AND state = ?9",
                &[
                    (letter.state as i64).into(),
                    letter.not_before_ms.into(),
                    letter.retain_until_ms.into(),
                    letter.hold.as_deref().into(),
                    letter.archive.as_deref().into(),
                    letter.spatial.as_ref().map(|s| s.source_crs.as_str()).filter(|c| !c.is_empty()).into(),
                    row.seq.into(),
                    row.lease.into(),
                    (was as i64).into(),
                ],
            )?;
            if changed == 0 {
                let why = format!("letter {} was changed by another process; try again", letter.id);
                return Err(LetterError::Fenced(why));
            }
            let old = db.query("SELECT envelope FROM body WHERE seq = ?1", &[row.seq.into()])?;
            let old = old.first().map(|row| row.text(0)).unwrap_or_default();
            let envelope = checksum::renew(&json, &old, amend.payload.as_deref());
            db.exec(
                "UPDATE body SET envelope = ?1 WHERE seq = ?2",
                &[envelope.as_str().into(), row.seq.into()],
            )?;
            if let Some(part) = &part {
                let before = db.query(
                    "SELECT current_blob FROM body WHERE seq = ?1",
                    std::slice::from_ref(&row.seq.into()),
                )?;
                if let Some(sha) = part.sha() {
                    let sql = "INSERT INTO blob (sha, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
                    db.exec(sql, &[sha.into(), part.bytes.as_slice().into()])?;
                }
                db.exec(
                    "UPDATE body SET current = ?1, current_blob = ?2 WHERE seq = ?3",
                    &[
                        part.inline().map_or(Val::Null, Val::from),
                        part.sha().map_or(Val::Null, Val::from),
                        row.seq.into(),
                    ],
                )?;
                if let Some(sha) = before.first().and_then(|row| row.maybe_blob(0)) {
                    drop_blob(db, &sha)?;
                }
            }
            if letter.spatial != row.letter.spatial {
                let bbox = letter.spatial.as_ref().and_then(|s| s.bbox).and_then(sound);
                db.index(row.seq, bbox, Some(&words(&letter.failure.message)))?;
            }
            let act = AuditEvent::new(now_ms, amend.act, amend.detail.clone()).letter(letter.id);
            let act = act.key(&letter.idempotency_key).code(letter.failure.code.as_str());
            audit::append(db, writer, [act.to(letter.state.as_str())])
        })
    }

    /// Marks letters as archived. An open letter stays open and only records where its copy is.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn archived(
        &mut self,
        seqs: &[i64],
        archive: &str,
        detail: serde_json::Value,
        now_ms: i64,
    ) -> Result<()> {
        self.tx(|db, writer| {
            for seq in seqs {
                let closed = [
                    LetterState::Resolved,
                    LetterState::Dead,
                    LetterState::Dismissed,
                    LetterState::Unrecoverable,
                ];
                let closed = closed.map(|s| (s as i64).to_string()).join(", ");
                db.exec(
                    &format!(
                        "UPDATE letter SET archive = ?1, lease = lease + 1,
                             state = CASE WHEN state IN ({closed}) THEN {} ELSE state END
                         WHERE seq = ?2",
                        LetterState::Archived as i64
                    ),
                    &[archive.into(), (*seq).into()],
                )?;
            }
            audit::append(db, writer, [AuditEvent::new(now_ms, "archive", detail.clone()).to(archive)])
        })
    }

    /// Deletes letters permanently in transactions of up to a thousand; tombstones remain. Letters
    /// that are on hold, planned or, with `archived_only`, not archived, stay.
    ///
    /// # Errors
    /// When the store cannot be written. Letters purged before stay purged.
    pub fn purge(
        &mut self,
        filter: &LetterFilter,
        why: &str,
        archived_only: bool,
        now_ms: i64,
    ) -> Result<Purged> {
        let mut done = Purged::default();
        let mut next = LetterFilter { after: Some(filter.after.unwrap_or(-1)), ..filter.clone() };
        loop {
            let rows = self.find(&next, LetterPage { limit: 1000, newest_first: false, payload: false })?;
            let Some(last) = rows.last() else { return Ok(done) };
            next.after = Some(last.seq);
            done.held += rows.iter().filter(|row| row.letter.hold.is_some()).count() as u64;
            let rows: Vec<&StoredLetter> =
                rows.iter().filter(|row| Purged::may(&row.letter, archived_only)).collect();
            if !rows.is_empty() {
                self.purge_rows(&rows, why, now_ms)?.into_iter().for_each(|state| done.add(state));
            }
        }
    }

    fn purge_rows(&mut self, rows: &[&StoredLetter], why: &str, now_ms: i64) -> Result<Vec<LetterState>> {
        self.tx(|db, writer| {
            let (mut entries, mut states) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
            for row in rows {
                let seq = Val::Int(row.seq);
                let letter = &row.letter;
                // Skip letters that changed since they were selected; they may be on hold now.
                let gone = db.exec(
                    "DELETE FROM letter WHERE seq = ?1 AND lease = ?2 AND hold IS NULL AND state <> ?3",
                    &[seq.clone(), row.lease.into(), (LetterState::Planned as i64).into()],
                )?;
                if gone == 0 {
                    continue;
                }
                let parts = db.query(
                    "SELECT received, received_blob, current, current_blob FROM body WHERE seq = ?1",
                    std::slice::from_ref(&seq),
                )?;
                let parts = parts.into_iter().next().unwrap_or_default();
                let sha: [u8; 32] = match parts.maybe_blob(1).and_then(|sha| sha.try_into().ok()) {
                    Some(sha) => sha,
                    None => Sha256::digest(parts.blob(0)).into(),
                };
                // The wrapped key is deleted with the row, so a sealed payload can no longer be
                // decrypted.
                db.exec("DELETE FROM body WHERE seq = ?1", std::slice::from_ref(&seq))?;
                db.index(row.seq, None, None)?;
                for sha in [parts.maybe_blob(1), parts.maybe_blob(3)].into_iter().flatten() {
                    drop_blob(db, &sha)?;
                }
                db.exec(
                    "INSERT INTO tombstone (id, pipeline, code, state, first_ms, purged_ms, why, archive, payload_sha)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
                    &[
                        letter.id.to_bytes().as_slice().into(),
                        letter.pipeline.as_str().into(),
                        letter.failure.code.as_str().into(),
                        (letter.state as i64).into(),
                        letter.first_failed_ms().into(),
                        now_ms.into(),
                        why.into(),
                        letter.archive.as_deref().into(),
                        sha.as_slice().into(),
                    ],
                )?;
                let detail = serde_json::json!({ "why": why, "state": letter.state.as_str(), "archive": letter.archive });
                let act = AuditEvent::new(now_ms, "purge", detail).letter(letter.id).key(&letter.idempotency_key);
                entries.push(act.code(letter.failure.code.as_str()).to("tombstone"));
                states.push(letter.state);
            }
            audit::append(db, writer, entries)?;
            Ok(states)
        })
    }

    /// Purges the letters whose retention has ended. An open letter that is not archived is the only
    /// trace of its record: it is archived first, if there is a place for its pipeline, and stays
    /// otherwise.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn retain(&mut self, now_ms: i64, archives: &[ArchivePlace]) -> Result<Purged> {
        // Runs at every start: one index lookup while nothing is due.
        let first = self.db.query("SELECT min(retain_ms) FROM letter WHERE hold IS NULL", &[])?;
        if first.first().and_then(|row| row.maybe_int(0)).is_none_or(|first| first >= now_ms) {
            return Ok(Purged::default());
        }
        let (open, closed) = LetterState::ALL.into_iter().partition(|state| state.is_open());
        let expired = LetterFilter { expired_ms: Some(now_ms), states: closed, ..LetterFilter::default() };
        let mut done = self.purge(&expired, "retention", false, now_ms)?;
        let open = LetterFilter { states: open, ..expired };
        if self.count(&open)? == 0 {
            return Ok(done);
        }
        for ArchivePlace { pipeline, to } in archives {
            let own = LetterFilter { pipeline: Some(pipeline.clone()), ..open.clone() };
            if self.count(&own)? == 0 {
                continue;
            }
            // The letters stay, and the next command tries again.
            let fault = archive_to(self, &own, to, now_ms).err().map(|why| why.to_string());
            done.fault = done.fault.or(fault);
        }
        let archived = self.purge(&open, "retention", true, now_ms)?;
        archived.states.into_iter().for_each(|(state, n)| (0..n).for_each(|_| done.add(state)));
        done.unarchived = self.count(&open)?;
        Ok(done)
    }

    /// The time, in milliseconds since 1970, and the reason if a letter was purged.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn tombstone(&mut self, id: LetterId) -> Result<Option<(i64, String)>> {
        let rows = self.db.query(
            "SELECT purged_ms, why FROM tombstone WHERE id = ?1",
            &[id.to_bytes().as_slice().into()],
        )?;
        Ok(rows.first().map(|row| (row.int(0), row.text(1))))
    }

    /// Replaces the wrapped keys of letters, all or none.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn rewrap(&mut self, keys: &[RewrappedKey], detail: serde_json::Value, now_ms: i64) -> Result<u64> {
        self.tx(|db, writer| {
            let mut count = 0;
            for key in keys {
                count += db.exec(
                    "UPDATE body SET wrap = ?1, key_id = ?2 WHERE seq = ?3 AND wrap = ?4",
                    &[
                        key.wrap.as_slice().into(),
                        key.key_id.as_str().into(),
                        key.seq.into(),
                        key.before.as_slice().into(),
                    ],
                )?;
            }
            audit::append(db, writer, [AuditEvent::new(now_ms, "rotate", detail.clone())])?;
            Ok(count)
        })
    }

    /// The next rows whose key is wrapped to a recipient other than this.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn wrapped_to_others(&mut self, key_id: &str, after: i64) -> Result<Vec<WrappedKey>> {
        let rows = self.db.query(
            "SELECT b.seq, l.id, b.key_id, b.wrap FROM body b JOIN letter l ON l.seq = b.seq
             WHERE b.key_id IS NOT NULL AND b.key_id <> ?1 AND b.seq > ?2 ORDER BY b.seq LIMIT 1000",
            &[key_id.into(), after.into()],
        )?;
        let row = |row: &super::Vals| {
            Some(WrappedKey {
                seq: row.int(0),
                letter: LetterId::from_bytes(&row.blob(1))?,
                key_id: row.text(2),
                wrap: row.blob(3),
            })
        };
        Ok(rows.iter().filter_map(row).collect())
    }
}
