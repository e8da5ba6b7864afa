//! Stores letters.

use super::{AuditEvent, AuditWriter, Db, LetterStore, Result, Val, audit, broken, checksum, words};
use crate::letter::envelope::{Letter, RETENTION_DAYS};
use crate::letter::seal::Recipient;
use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use tidegate_core::letter::withhold::{withhold, withhold_query};
use tidegate_core::letter::{LetterId, LetterState, fingerprint};

/// The largest payload stored with its envelope, in bytes; a larger one becomes a blob.
pub(super) const INLINE_MAX: usize = 64 * 1024;

/// The result of putting a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is stored.
    New(LetterId),
    /// The store already has an open letter for the same failure of the same record; that one
    /// counts the failure, once per run.
    Known,
}

/// The bytes of a payload, and their SHA-256 if they are stored as a blob.
#[derive(Clone, Debug)]
pub(in crate::letter) struct PayloadBlob {
    pub(super) bytes: Vec<u8>,
    sha: Option<[u8; 32]>,
}

impl PayloadBlob {
    pub(in crate::letter) fn new(bytes: Vec<u8>) -> PayloadBlob {
        let sha = (bytes.len() > INLINE_MAX).then(|| Sha256::digest(&bytes).into());
        PayloadBlob { bytes, sha }
    }

    pub(super) fn inline(&self) -> Option<&[u8]> {
        self.sha.is_none().then_some(&self.bytes)
    }

    pub(super) fn sha(&self) -> Option<&[u8]> {
        self.sha.as_ref().map(<[u8; 32]>::as_slice)
    }
}

/// A letter prepared for storing. The caller packs it, so that the single writer thread only
/// writes.
#[derive(Clone, Debug)]
pub(in crate::letter) struct Packed {
    pub(in crate::letter) id: LetterId,
    pub(super) once: [u8; 16],
    pub(super) root: LetterId,
    pub(super) parent: Option<LetterId>,
    /// How many times the record had died before.
    pub(super) generation: u32,
    pub(super) state: LetterState,
    /// Time of the first failure, in milliseconds since 1970.
    pub(super) first_ms: i64,
    /// Time of this failure, in milliseconds since 1970.
    pub(super) failed_ms: i64,
    /// The id of the run that gave up; empty if there is none.
    pub(super) run: String,
    /// The earliest time of a replay, in milliseconds since 1970.
    pub(super) not_before_ms: Option<i64>,
    /// The end of the retention, in milliseconds since 1970.
    pub(super) retain_ms: i64,
    pub(super) hold: Option<String>,
    pub(super) crs: Option<String>,
    pub(super) bbox: Option<[f64; 4]>,
    pub(super) words: String,
    pub(super) envelope: String,
    pub(super) received: PayloadBlob,
    pub(super) current: Option<PayloadBlob>,
    pub(super) wrap: Option<Vec<u8>>,
    pub(super) key_id: Option<String>,
    group: FailureGroup,
}

/// The group of a letter: the same failure at the same service and stage.
#[derive(Clone, Debug)]
struct FailureGroup {
    key: i64,
    fp: i64,
    pipeline: String,
    stage: String,
    service: String,
    driver: String,
    code: String,
    class: &'static str,
    normal: String,
}

/// The bounding box, if an index can hold it.
pub(super) fn sound(bbox: [f64; 4]) -> Option<[f64; 4]> {
    let [w, s, e, n] = bbox;
    (bbox.iter().all(|x| x.is_finite()) && w <= e && s <= n).then_some(bbox)
}

/// The deduplication key: equal for the same failure of the same record. `key` is that of the first
/// letter of the lineage, so that a record whose replay failed is recognized when it fails in a run.
pub(super) fn once(pipeline: &str, stage: &str, key: &str) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [pipeline, stage, key] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    // In version 2 of the tables this was the generation; letters of runs have generation 0.
    hash.update(0u32.to_le_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    bytes.first_chunk().copied().unwrap_or_default()
}

impl Packed {
    /// Packs a letter under this id and encrypts its payload if there is a recipient.
    pub(in crate::letter) fn new(
        mut letter: Letter,
        id: LetterId,
        recipient: Option<&Recipient>,
    ) -> Result<Packed> {
        letter.id = id;
        letter.lineage.first_failed_ms = letter.first_failed_ms();
        if letter.lineage.root == LetterId(0) {
            letter.lineage.root = id;
            letter.lineage.root_key.clone_from(&letter.idempotency_key);
        }
        (letter.times, letter.last_seen_ms) = (1, letter.failure.failed_ms);
        if letter.retain_until_ms == 0 {
            letter = letter.retained_for(RETENTION_DAYS);
        }
        if recipient.is_some() {
            without_values(&mut letter);
        }
        let payload = std::mem::take(&mut letter.payload);
        let (received, current, wrap, key_id) = match recipient {
            None => (payload.received, payload.current, None, None),
            Some(recipient) => {
                let sealed = recipient.seal(id, &payload)?;
                (sealed.received, sealed.current, Some(sealed.wrap), Some(recipient.key_id.clone()))
            }
        };
        let f = &letter.failure;
        let normal = fingerprint::normalise(&f.message);
        let fp = fingerprint::Fingerprint::of_normal(f.code, &letter.stage, &normal, &f.driver);
        let mut key = Sha256::new();
        for part in [&letter.pipeline, &letter.stage, &f.service, &f.driver] {
            key.update((part.len() as u64).to_le_bytes());
            key.update(part.as_bytes());
        }
        key.update(fp.0.to_le_bytes());
        key.update([f.class as u8]);
        let key: [u8; 32] = key.finalize().into();
        let group = FailureGroup {
            key: key.first_chunk::<8>().map_or(0, |b| i64::from_le_bytes(*b)),
            fp: fp.0.cast_signed(),
            pipeline: letter.pipeline.clone(),
            stage: letter.stage.clone(),
            service: f.service.clone(),
            driver: f.driver.clone(),
            code: f.code.to_string(),
            class: f.class.as_str(),
            normal,
        };
        let lineage = &letter.lineage;
        let first_key = if lineage.root_key.is_empty() { &letter.idempotency_key } else { &lineage.root_key };
        let spatial = letter.spatial.as_ref();
        Ok(Packed {
            id,
            once: once(&letter.pipeline, &letter.stage, first_key),
            root: lineage.root,
            parent: lineage.parent,
            generation: lineage.generation,
            state: letter.state,
            first_ms: lineage.first_failed_ms,
            failed_ms: f.failed_ms,
            run: letter.run.clone(),
            not_before_ms: letter.not_before_ms,
            retain_ms: letter.retain_until_ms,
            hold: letter.hold.clone(),
            crs: spatial.map(|s| s.source_crs.clone()).filter(|crs| !crs.is_empty()),
            bbox: spatial.and_then(|s| s.bbox).and_then(sound),
            words: words(&f.message),
            envelope: checksum::add(
                &serde_json::to_string(&letter).map_err(broken)?,
                &received,
                current.as_deref(),
            ),
            received: PayloadBlob::new(received),
            current: current.map(PayloadBlob::new),
            wrap,
            key_id,
            group,
        })
    }
}

/// Leaves the values of the record out of the failure, which is not sealed.
fn without_values(letter: &mut Letter) {
    let f = &mut letter.failure;
    f.message = withhold(&f.message);
    f.causes.iter_mut().for_each(|cause| *cause = withhold(cause));
    if let Some(http) = &mut f.http {
        http.url = withhold_query(&http.url).to_owned();
        http.body.clear();
    }
}

impl LetterStore {
    /// Gives, once, the open letters of failed replays in a store of version 2 the key of their
    /// record, unless another open letter has it: in version 2 each generation had its own.
    pub(super) fn rekey(&mut self) -> Result<()> {
        if self.setting("once")?.is_none() {
            return Ok(());
        }
        self.tx(|db, _| {
            let open = "SELECT l.seq, b.envelope FROM letter l JOIN body b ON b.seq = l.seq
                        WHERE l.generation > 0 AND l.state <= 6 ORDER BY l.seq";
            for row in db.query(open, &[])? {
                let letter: Letter = serde_json::from_str(&row.text(1)).map_err(broken)?;
                let key = once(&letter.pipeline, &letter.stage, &letter.lineage.root_key);
                db.exec(
                    "UPDATE letter SET once = ?1 WHERE seq = ?2 AND NOT EXISTS
                         (SELECT 1 FROM letter o WHERE o.once = ?1 AND o.state <= 6)",
                    &[key.as_slice().into(), row.int(0).into()],
                )?;
            }
            db.exec("DELETE FROM meta WHERE name = 'once'", &[]).map(|_| ())
        })
    }

    /// Stores letters, all or none, with one audit entry.
    pub(in crate::letter) fn put(&mut self, rows: &[&Packed], now_ms: i64) -> Result<Vec<Put>> {
        let mut known = std::mem::take(&mut self.groups);
        let done = self.tx(|db, writer| put(db, writer, &mut known, rows, now_ms));
        if done.is_ok() {
            self.groups = known;
        }
        done
    }
}

/// The same inside a transaction.
pub(super) fn put(
    db: &mut dyn Db,
    writer: &AuditWriter,
    known: &mut std::collections::HashMap<i64, i64>,
    rows: &[&Packed],
    now_ms: i64,
) -> Result<Vec<Put>> {
    let groups = rows.iter().map(|row| group(db, known, &row.group)).collect::<Result<Vec<i64>>>()?;
    let new = db.add(rows, &groups)?;
    for (row, _) in rows.iter().zip(&new).filter(|(_, new)| !**new) {
        count(db, row)?;
    }
    let puts: Vec<Put> =
        rows.iter().zip(&new).map(|(row, new)| if *new { Put::New(row.id) } else { Put::Known }).collect();
    let mut digest = Sha256::new();
    let mut ids = rows.iter().zip(&new).filter(|(_, new)| **new).map(|(row, _)| row.id);
    let (mut first, mut last, mut count) = (None, None, 0u64);
    for id in &mut ids {
        digest.update(id.to_bytes());
        first.get_or_insert(id);
        last = Some(id);
        count += 1;
    }
    let name = |id: Option<LetterId>| id.map(|id| id.to_string());
    let detail = serde_json::json!({
        "letters": count, "known": rows.len() as u64 - count, "first": name(first), "last": name(last),
        "ids_sha256": hex(&digest.finalize()),
    });
    audit::append(db, writer, [AuditEvent::new(now_ms, "capture", detail).to("dead_letters")])?;
    Ok(puts)
}

/// Counts a failure at the open letter of its record. A batch that is repeated after a kill belongs
/// to the same run and does not count; without a run, only a later failure counts. The retention
/// starts anew: the source still has the record.
fn count(db: &mut dyn Db, row: &Packed) -> Result<()> {
    db.exec(
        "UPDATE letter SET times = times + 1, run = ?1,
             last_ms = CASE WHEN last_ms < ?2 THEN ?2 ELSE last_ms END,
             retain_ms = CASE WHEN retain_ms < ?3 THEN ?3 ELSE retain_ms END
         WHERE once = ?4 AND state <= 6 AND ((?1 <> '' AND run <> ?1) OR (?1 = '' AND last_ms < ?2))",
        &[row.run.as_str().into(), row.failed_ms.into(), row.retain_ms.into(), row.once.as_slice().into()],
    )
    .map(|_| ())
}

fn group(
    db: &mut dyn Db,
    known: &mut std::collections::HashMap<i64, i64>,
    group: &FailureGroup,
) -> Result<i64> {
    if let Some(number) = known.get(&group.key) {
        return Ok(*number);
    }
    let find = "SELECT grp FROM grp WHERE fingerprint_key = ?1";
    let mut rows = db.query(find, &[group.key.into()])?;
    if rows.is_empty() {
        db.exec(
            "INSERT INTO grp (fingerprint_key, fp, pipeline, stage, service, driver, code, class, normal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
            &[
                group.key.into(),
                group.fp.into(),
                group.pipeline.as_str().into(),
                group.stage.as_str().into(),
                group.service.as_str().into(),
                group.driver.as_str().into(),
                group.code.as_str().into(),
                Val::from(group.class),
                group.normal.as_str().into(),
            ],
        )?;
        rows = db.query(find, &[group.key.into()])?;
    }
    let number = rows.first().map(|row| row.int(0)).ok_or_else(|| broken("a group cannot be made"))?;
    known.insert(group.key, number);
    Ok(number)
}
