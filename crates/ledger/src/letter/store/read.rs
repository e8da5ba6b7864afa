//! Queries letters.

use super::{LetterError, LetterStore, Result, RuleReplays, SqlDialect, Val, Vals, checksum};
use crate::letter::envelope::{DAY_MS, Letter, Payload};
use crate::letter::filter::LetterFilter;
use crate::letter::seal::Sealed;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use tidegate_core::hex::hex;
use tidegate_core::letter::{Fingerprint, LetterId, LetterState};

/// A letter with its row in the store.
#[derive(Clone, Debug)]
pub struct StoredLetter {
    /// The sequence number of the row.
    pub seq: i64,
    /// The fencing token: it counts leases and changes, and a change must present the current
    /// value.
    pub lease: i64,
    /// The expiry of the lease, in milliseconds since 1970.
    pub lease_until_ms: i64,
    /// The number of the replay plan that it is in.
    pub plan: Option<i64>,
    /// The envelope. It includes the payload if that was requested and is not sealed.
    pub letter: Letter,
    /// The sealed payload as stored, if it was requested.
    pub sealed: Option<Sealed>,
    /// The references to payloads that are stored by their content, if they were requested.
    pub references: PayloadReferences,
}

/// The references of a letter to payloads that are too large for its envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PayloadReferences {
    /// The payload as received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<PayloadReference>,
    /// The payload as it is now, if that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<PayloadReference>,
}

/// A payload that is stored by its content, as it is in the store: sealed, if the letter is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PayloadReference {
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// The number of its bytes.
    pub bytes: u64,
}

/// A page of letters to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterPage {
    /// The most rows to return.
    pub limit: u32,
    /// Whether the newest come first; else the oldest.
    pub newest_first: bool,
    /// Whether to read payloads too.
    pub payload: bool,
}

/// The property that letters are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The fingerprint of the failure.
    Fingerprint,
    /// The code of the taxonomy.
    Code,
    /// The service.
    Service,
    /// The pipeline.
    Pipeline,
    /// The class of the failure.
    Class,
    /// The stage.
    Stage,
    /// The state.
    State,
    /// The days since the first failure.
    Age,
}

/// The count of letters that share a property.
#[derive(Clone, Debug, PartialEq)]
pub struct LetterGroup {
    /// The value of the property.
    pub name: String,
    /// The code, if all have the same.
    pub code: String,
    /// The class, if all have the same.
    pub class: String,
    /// The message without its varying parts, if all have the same.
    pub message: String,
    /// The number of letters.
    pub count: u64,
    /// The number of open letters.
    pub open: u64,
    /// Time of the first failure, in milliseconds since 1970.
    pub first_ms: i64,
    /// Time of the last failure, in milliseconds since 1970.
    pub last_ms: i64,
}

/// The size and activity of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// The number of letters.
    pub letters: u64,
    /// The number of open letters.
    pub open: u64,
    /// Time of the first failure of the oldest open letter, in milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// The size of the store, in bytes.
    pub bytes: u64,
    /// The most letters that it may hold.
    pub capacity: u64,
    /// The number of letters that failed in the last hour.
    pub arrived_hour: u64,
    /// The number of letters resolved by replays, in all.
    pub resolved: u64,
    /// The number of letters whose replay failed, in all.
    pub died_again: u64,
    /// The number of open letters that failed a spatial check.
    pub spatial: u64,
    /// What rules have replayed unasked.
    pub rules: Vec<RuleReplays>,
}

/// The default capacity, in letters.
pub(super) const CAPACITY: u64 = 5_000_000;

const COLUMNS: &str = "l.seq, l.lease, l.lease_until_ms, l.plan, l.id, l.state, l.not_before_ms, l.retain_ms, l.hold, l.archive, l.times, l.last_ms";

/// A payload, and its reference if it is not in the row.
type PayloadPart = (Option<Vec<u8>>, Option<PayloadReference>);

impl LetterStore {
    /// The letters that match a filter, without payloads unless requested.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn find(&mut self, filter: &LetterFilter, page: LetterPage) -> Result<Vec<StoredLetter>> {
        let mut args = Vec::new();
        let condition = filter.sql(self.dialect(), &mut args);
        let order = if page.newest_first { "DESC" } else { "ASC" };
        args.push(Val::Int(page.limit.into()));
        let payload =
            if page.payload { "b.received, b.received_blob, b.current, b.current_blob" } else { "NULL" };
        let sql = format!(
            "SELECT {COLUMNS}, b.envelope, b.wrap, b.key_id, {payload}
             FROM (SELECT * FROM letter l WHERE {condition} ORDER BY l.seq {order} LIMIT ?{}) l
             JOIN body b ON b.seq = l.seq ORDER BY l.seq {order}",
            args.len()
        );
        let rows = self.db.query(&sql, &args)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            match self.row(row, page.payload)? {
                Ok(letter) => found.push(letter),
                Err(how) => {
                    let id = LetterId::from_bytes(&row.blob(4)).unwrap_or(LetterId(0));
                    self.damaged.insert(id, how);
                }
            }
        }
        match rows.last() {
            // A page of nothing but damaged letters is not the end.
            Some(last) if found.is_empty() && !page.newest_first => {
                self.find(&LetterFilter { after: Some(last.int(0)), ..filter.clone() }, page)
            }
            _ => Ok(found),
        }
    }

    /// The letters that were read since the store was opened and are damaged, and how. They were
    /// left out of what was read.
    #[must_use]
    pub fn damaged(&self) -> &BTreeMap<LetterId, &'static str> {
        &self.damaged
    }

    /// Reads every letter with its payload, to find those that are damaged. Returns how many there
    /// are in all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn check_letters(&mut self) -> Result<u64> {
        let mut next = LetterFilter { after: Some(-1), ..LetterFilter::default() };
        let page = LetterPage { limit: 200, newest_first: false, payload: true };
        let mut whole = 0;
        loop {
            let rows = self.find(&next, page)?;
            let Some(last) = rows.last() else { return Ok(whole + self.damaged.len() as u64) };
            next.after = Some(last.seq);
            whole += rows.len() as u64;
        }
    }

    /// A letter, or how it is damaged.
    fn row(&mut self, row: &Vals, payload: bool) -> Result<std::result::Result<StoredLetter, &'static str>> {
        let envelope = row.text(12);
        let damaged = Ok(Err("its envelope does not match its checksum"));
        if !checksum::envelope_is_whole(&envelope) {
            return damaged;
        }
        let Ok(mut letter) = serde_json::from_str::<Letter>(&envelope) else { return damaged };
        letter.state = LetterState::from_number(row.int(5)).unwrap_or_default();
        letter.not_before_ms = row.maybe_int(6);
        letter.retain_until_ms = row.int(7);
        letter.hold = row.maybe_text(8);
        letter.archive = row.maybe_text(9);
        (letter.times, letter.last_seen_ms) = (row.int(10).max(1) as u64, row.int(11));
        let mut sealed = None;
        let mut references = PayloadReferences::default();
        if payload {
            let (Some((received, first)), Some((current, second))) =
                (self.part(row, 15)?, self.part(row, 17)?)
            else {
                return Ok(Err("a part of its payload is missing or damaged"));
            };
            if !checksum::payloads_are_whole(&envelope, received.as_deref(), current.as_deref()) {
                return Ok(Err("its payload does not match its checksum"));
            }
            (references.received, references.current) = (first, second);
            let received = received.unwrap_or_default();
            match (row.maybe_blob(13), row.maybe_text(14)) {
                (wrap, Some(key_id)) => {
                    let wrap = wrap.unwrap_or_default();
                    sealed = Some(Sealed { id: letter.id, key_id, wrap, received, current });
                }
                _ => letter.payload = Payload { received, current },
            }
        }
        Ok(Ok(StoredLetter {
            seq: row.int(0),
            lease: row.int(1),
            lease_until_ms: row.int(2),
            plan: row.maybe_int(3),
            letter,
            sealed,
            references,
        }))
    }

    /// A payload from column `at`, or from the blob whose hash is in the next column; `None` if
    /// that is missing or damaged.
    fn part(&mut self, row: &Vals, at: usize) -> Result<Option<PayloadPart>> {
        let Some(sha) = row.maybe_blob(at + 1) else { return Ok(Some((row.maybe_blob(at), None))) };
        let rows = self.db.query("SELECT bytes FROM blob WHERE sha = ?1", &[sha.as_slice().into()])?;
        let bytes = rows.first().map(|row| row.blob(0));
        Ok(bytes.filter(|bytes| Sha256::digest(bytes).as_slice() == sha).map(|bytes| {
            let reference = PayloadReference { sha256: hex(&sha), bytes: bytes.len() as u64 };
            (Some(bytes), Some(reference))
        }))
    }

    /// One letter with its payload.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn get(&mut self, id: LetterId) -> Result<Option<StoredLetter>> {
        let page = LetterPage { limit: 1, newest_first: false, payload: true };
        let found = self.find(&LetterFilter::of_ids([id]), page)?.pop();
        match self.damaged.get(&id) {
            Some(how) => Err(LetterError::Store(format!("letter {id} is damaged: {how}"))),
            None => Ok(found),
        }
    }

    /// At most two letters whose id ends with `end`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn ids_ending(&mut self, end: &str) -> Result<Vec<LetterId>> {
        let hex = match self.dialect() {
            SqlDialect::Sqlite => "lower(hex(id))",
            SqlDialect::Postgres => "encode(id, 'hex')",
        };
        let end: String = end.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase();
        let sql = format!("SELECT id FROM letter WHERE {hex} LIKE ?1 ORDER BY seq LIMIT 2");
        let rows = self.db.query(&sql, &[Val::Text(format!("%{end}"))])?;
        Ok(rows.iter().filter_map(|row| LetterId::from_bytes(&row.blob(0))).collect())
    }

    /// The letters created by failed replays of this one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn children(&mut self, id: LetterId) -> Result<Vec<LetterId>> {
        let rows = self.db.query(
            "SELECT id FROM letter WHERE parent = ?1 ORDER BY seq",
            &[id.to_bytes().as_slice().into()],
        )?;
        Ok(rows.iter().filter_map(|row| LetterId::from_bytes(&row.blob(0))).collect())
    }

    /// The number of letters that match a filter.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn count(&mut self, filter: &LetterFilter) -> Result<u64> {
        let mut args = Vec::new();
        let condition = filter.sql(self.dialect(), &mut args);
        let rows = self.db.query(&format!("SELECT count(*) FROM letter l WHERE {condition}"), &args)?;
        Ok(rows.first().map_or(0, |row| row.int(0)) as u64)
    }

    /// Letters counted by a property, most frequent first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn stats(&mut self, filter: &LetterFilter, by: By, now_ms: i64) -> Result<Vec<LetterGroup>> {
        let mut args = Vec::new();
        let condition = filter.sql(self.dialect(), &mut args);
        // The index is in the order of the groups, so nothing is sorted. It has no column for the
        // age, which takes a query of its own.
        let ages = match by {
            By::Age => {
                [i64::MAX, now_ms - DAY_MS, now_ms - 7 * DAY_MS, now_ms - 30 * DAY_MS, i64::MIN].to_vec()
            }
            _ => vec![i64::MAX, i64::MIN],
        };
        let n = args.len();
        let sql = format!(
            "SELECT grp, state, count(*), min(l.first_ms), max(l.last_ms) FROM letter l
             WHERE ({condition}) AND l.first_ms <= ?{} AND l.first_ms > ?{} GROUP BY grp, state",
            n + 1,
            n + 2
        );
        let mut counts = Vec::new();
        for (age, span) in ages.windows(2).enumerate() {
            args.truncate(n);
            args.extend(span.iter().map(|ms| Val::Int(*ms)));
            counts.extend(self.db.query(&sql, &args)?.into_iter().map(|row| (age, row)));
        }
        let groups =
            self.db.query("SELECT grp, fp, code, service, pipeline, class, stage, normal FROM grp", &[])?;
        let groups: BTreeMap<i64, &Vals> = groups.iter().map(|row| (row.int(0), row)).collect();
        let mut all: BTreeMap<String, LetterGroup> = BTreeMap::new();
        for (age, row) in &counts {
            let Some(group) = groups.get(&row.int(0)) else { continue };
            let state = LetterState::from_number(row.int(1)).unwrap_or_default();
            let name = match by {
                By::Fingerprint => Fingerprint(group.int(1).cast_unsigned()).to_string(),
                By::Code => group.text(2),
                By::Service => group.text(3),
                By::Pipeline => group.text(4),
                By::Class => group.text(5),
                By::Stage => group.text(6),
                By::State => state.to_string(),
                By::Age => ["under a day", "1 to 7 days", "7 to 30 days", "over 30 days"]
                    .get(*age)
                    .map_or_else(String::new, ToString::to_string),
            };
            let (count, first, last) = (row.int(2) as u64, row.int(3), row.int(4));
            let open = if state.is_open() { count } else { 0 };
            let entry = all.entry(name.clone()).or_insert_with(|| LetterGroup {
                name,
                code: group.text(2),
                class: group.text(5),
                message: group.text(7),
                count: 0,
                open: 0,
                first_ms: first,
                last_ms: last,
            });
            for (mine, theirs) in [(&mut entry.code, 2), (&mut entry.class, 5), (&mut entry.message, 7)]
                .map(|(m, i)| (m, group.text(i)))
            {
                if *mine != theirs {
                    mine.clear();
                }
            }
            entry.count += count;
            entry.open += open;
            entry.first_ms = entry.first_ms.min(first);
            entry.last_ms = entry.last_ms.max(last);
        }
        let mut all: Vec<LetterGroup> = all.into_values().collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.count));
        Ok(all)
    }

    /// The size and activity of the store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn health(&mut self, now_ms: i64) -> Result<Health> {
        let states = self.stats(&LetterFilter::default(), By::State, now_ms)?;
        let open: Vec<LetterState> = LetterState::ALL.into_iter().filter(|s| s.is_open()).collect();
        let spatial = [
            "INVALID_GEOMETRY",
            "CRS_NOT_FOUND",
            "OUT_OF_BOUNDS",
            "AXIS_ORDER_SWAPPED",
            "UNCLOSED_RING",
            "WRONG_WINDING",
        ];
        let spatial = LetterFilter {
            codes: spatial.map(String::from).to_vec(),
            states: open,
            ..LetterFilter::default()
        };
        Ok(Health {
            letters: states.iter().map(|g| g.count).sum(),
            open: states.iter().map(|g| g.open).sum(),
            oldest_ms: states.iter().filter(|g| g.open > 0).map(|g| g.first_ms).min(),
            bytes: self.db.bytes()?.max(0) as u64,
            capacity: self.capacity()?,
            arrived_hour: self.arrived_since(now_ms - 3_600_000)?,
            resolved: self.replayed("resolved")?,
            died_again: self.replayed("dead")?,
            spatial: self.count(&spatial)?,
            rules: self.rule_replays()?,
        })
    }

    /// The number of letters that replays ended in this way. The plans hold it, and a purge of the
    /// letters leaves them alone.
    fn replayed(&mut self, ended: &str) -> Result<u64> {
        let rows = self.db.query("SELECT count(*) FROM member WHERE ended = ?1", &[ended.into()])?;
        Ok(rows.first().map_or(0, |row| row.int(0)) as u64)
    }

    /// The number of letters that were new since then. A known one that failed once more is none.
    fn arrived_since(&mut self, then_ms: i64) -> Result<u64> {
        let rows = self.db.query("SELECT count(*) FROM letter WHERE failed_ms >= ?1", &[then_ms.into()])?;
        Ok(rows.first().map_or(0, |row| row.int(0)) as u64)
    }

    /// The most letters that the store may hold.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn capacity(&mut self) -> Result<u64> {
        Ok(self.setting("capacity")?.and_then(|text| text.parse().ok()).unwrap_or(CAPACITY))
    }
}
