//! Replay plans: a plan freezes its members, workers lease them, and only the holder of the newest
//! lease can finish one.

use super::put::{Packed, Put, put};
use super::{AuditEvent, AuditWriter, LetterPage, LetterStore, Result, StoredLetter, Val, audit, broken};
use crate::letter::LetterError;
use crate::letter::Letters;
use crate::letter::envelope::{Letter, Lineage};
use crate::letter::filter::LetterFilter;
use tidegate_core::letter::{FailureClass, LetterId, LetterState};

/// A replay plan and its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayPlan {
    /// The number of the plan.
    pub plan: i64,
    /// The pipeline that is replayed.
    pub pipeline: String,
    /// `running`, `cancelled` or `done`.
    pub state: String,
    /// The request, as JSON.
    pub spec: String,
    /// Time of creation, in milliseconds since 1970.
    pub made_ms: i64,
    /// The number of its letters.
    pub members: u64,
    /// The number of letters whose record is in the sink.
    pub resolved: u64,
    /// The number of letters that died again.
    pub dead: u64,
    /// The number of letters released to the state that they had before.
    pub back: u64,
    /// The number of letters that were purged before they could be replayed.
    pub purged: u64,
    /// The number of letters still to be replayed.
    pub left: u64,
}

/// A letter leased to this worker.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The letter with its payload.
    pub row: StoredLetter,
    /// The number of the replay plan.
    pub plan: i64,
    /// The fencing token of the lease: a finish must show it.
    pub token: i64,
}

/// A leased letter and how its replay ended.
#[derive(Clone, Debug)]
pub struct FinishedReplay {
    /// The leased letter.
    pub leased: Leased,
    /// How its replay ended.
    pub outcome: ReplayOutcome,
}

/// The outcome of a letter in a replay.
#[derive(Clone, Debug)]
pub enum ReplayOutcome {
    /// Its record is in the sink.
    Resolved {
        /// The confirmation of the sink, for the audit.
        note: String,
    },
    /// It failed again: the new letter, whose lineage is filled in by the store.
    Dead(Box<Letter>),
    /// It could not be tried: it is released to the state that it had before.
    Back {
        /// The earliest time of the next try, in milliseconds since 1970.
        not_before_ms: Option<i64>,
        /// The reason.
        note: String,
    },
}

impl LetterStore {
    /// The open letters of a filter that may be replayed: their time has come and they have not
    /// died too often. Ambiguous and poison letters are included only on request.
    fn members(
        &mut self,
        filter: &LetterFilter,
        generation_max: u32,
        now_ms: i64,
        args: &mut Vec<Val>,
    ) -> String {
        let mut filter = filter.clone();
        if filter.states.is_empty() {
            filter.states = LetterState::ALL.into_iter().filter(|s| s.is_replayable()).collect();
        } else {
            filter.states.retain(|s| s.is_replayable());
        }
        let none = filter.states.is_empty();
        if filter.classes.is_empty() {
            filter.classes = vec![FailureClass::Transient, FailureClass::Fatal, FailureClass::Systemic];
        }
        let condition = filter.sql(self.dialect(), args);
        args.extend([Val::Int(now_ms), Val::Int(generation_max.into())]);
        let n = args.len();
        let never = if none { " AND 1 = 0" } else { "" };
        format!(
            "{condition} AND (l.not_before_ms IS NULL OR l.not_before_ms <= ?{}) AND l.generation < ?{n}{never}",
            n - 1
        )
    }

    /// How many letters a replay would take, by pipeline. Changes nothing.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn plan_dry(
        &mut self,
        filter: &LetterFilter,
        generation_max: u32,
        now_ms: i64,
    ) -> Result<Vec<(String, u64)>> {
        let mut args = Vec::new();
        let condition = self.members(filter, generation_max, now_ms, &mut args);
        let sql = format!(
            "SELECT g.pipeline, count(*) FROM letter l JOIN grp g ON g.grp = l.grp
             WHERE {condition} GROUP BY g.pipeline ORDER BY g.pipeline"
        );
        let rows = self.db.query(&sql, &args)?;
        Ok(rows.iter().map(|row| (row.text(0), row.int(1) as u64)).collect())
    }

    /// Creates a replay plan for one pipeline and freezes its members.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn plan(
        &mut self,
        pipeline: &str,
        filter: &LetterFilter,
        generation_max: u32,
        spec: &str,
        now_ms: i64,
    ) -> Result<ReplayPlan> {
        let filter = LetterFilter { pipeline: Some(pipeline.to_owned()), ..filter.clone() };
        let mut args = Vec::new();
        let condition = self.members(&filter, generation_max, now_ms, &mut args);
        let plan = self.tx(|db, writer| {
            let rows = db.query(
                "INSERT INTO plan (made_ms, who, pipeline, state, spec) VALUES (?1, ?2, ?3, 'running', ?4)
                 RETURNING plan",
                &[now_ms.into(), writer.who.as_str().into(), pipeline.into(), spec.into()],
            )?;
            let plan = rows.first().map(|row| row.int(0)).ok_or_else(|| broken("no plan was made"))?;
            let lock = db.dialect().skip_locked();
            let sql = format!("SELECT l.seq, l.state FROM letter l WHERE {condition} ORDER BY l.seq{lock}");
            let rows = db.query(&sql, &args)?;
            for row in &rows {
                let (seq, was) = (row.int(0), row.int(1));
                let sql = "INSERT INTO member (plan, seq, was) VALUES (?1, ?2, ?3)";
                db.exec(sql, &[plan.into(), seq.into(), was.into()])?;
                db.exec(
                    "UPDATE letter SET state = ?1, plan = ?2, lease = lease + 1, lease_until_ms = 0 WHERE seq = ?3",
                    &[(LetterState::Planned as i64).into(), plan.into(), seq.into()],
                )?;
            }
            let detail = serde_json::json!({ "plan": plan, "pipeline": pipeline, "letters": rows.len(), "spec": spec });
            audit::append(db, writer, [AuditEvent::new(now_ms, "plan", detail)])?;
            // Another process may have taken or purged the letters in the meantime.
            close(db, writer, plan, "done", now_ms)?;
            Ok(plan)
        })?;
        self.plan_get(plan)?.ok_or_else(|| broken("the plan has gone"))
    }

    /// Takes letters that no longer exist out of unfinished replay plans, and ends the plans that
    /// have none left.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn plans_settle(&mut self, now_ms: i64) -> Result<()> {
        let running = self.db.query("SELECT plan FROM plan WHERE state = 'running' ORDER BY plan", &[])?;
        if running.is_empty() {
            return Ok(());
        }
        self.tx(|db, writer| {
            for plan in running.iter().map(|row| row.int(0)) {
                db.exec(
                    "UPDATE member SET ended = 'purged' WHERE plan = ?1 AND ended IS NULL
                     AND NOT EXISTS (SELECT 1 FROM letter l WHERE l.seq = member.seq AND l.plan = ?1)",
                    &[plan.into()],
                )?;
                close(db, writer, plan, "done", now_ms)?;
            }
            Ok(())
        })
    }

    /// A replay plan and its progress.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn plan_get(&mut self, plan: i64) -> Result<Option<ReplayPlan>> {
        let rows = self
            .db
            .query("SELECT pipeline, state, spec, made_ms FROM plan WHERE plan = ?1", &[plan.into()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let counts = self.db.query(
            "SELECT coalesce(ended, ''), count(*) FROM member WHERE plan = ?1 GROUP BY coalesce(ended, '')",
            &[plan.into()],
        )?;
        let of = |name: &str| counts.iter().find(|c| c.text(0) == name).map_or(0, |c| c.int(1) as u64);
        Ok(Some(ReplayPlan {
            plan,
            pipeline: row.text(0),
            state: row.text(1),
            spec: row.text(2),
            made_ms: row.int(3),
            members: counts.iter().map(|c| c.int(1) as u64).sum(),
            resolved: of("resolved"),
            dead: of("dead"),
            back: of("back"),
            purged: of("purged"),
            left: of(""),
        }))
    }

    /// The unfinished replay plans, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn plans_running(&mut self) -> Result<Vec<ReplayPlan>> {
        let rows = self.db.query("SELECT plan FROM plan WHERE state = 'running' ORDER BY plan", &[])?;
        let plans = rows.iter().map(|row| self.plan_get(row.int(0))).collect::<Result<Vec<_>>>()?;
        Ok(plans.into_iter().flatten().collect())
    }

    /// Leases up to `limit` letters of a replay plan until `until_ms`. Letters leased by others are
    /// skipped.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn lease(&mut self, plan: i64, limit: u32, until_ms: i64, now_ms: i64) -> Result<Vec<Leased>> {
        let lock = self.dialect().skip_locked();
        let taken = self.tx(|db, _| {
            db.query(
                &format!(
                    "UPDATE letter SET lease = lease + 1, lease_until_ms = ?1 WHERE seq IN (
                         SELECT l.seq FROM letter l WHERE l.plan = ?2 AND l.state = ?3 AND l.lease_until_ms < ?4
                         ORDER BY l.seq LIMIT ?5{lock}) RETURNING seq, lease, id"
                ),
                &[
                    until_ms.into(),
                    plan.into(),
                    (LetterState::Planned as i64).into(),
                    now_ms.into(),
                    i64::from(limit).into(),
                ],
            )
        })?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let ids = taken.iter().filter_map(|row| LetterId::from_bytes(&row.blob(2)));
        let rows =
            self.find(&LetterFilter::of_ids(ids), LetterPage { limit, newest_first: false, payload: true })?;
        let whole: std::collections::HashSet<i64> = rows.iter().map(|row| row.seq).collect();
        for row in taken.iter().filter(|row| !whole.contains(&row.int(0))) {
            self.unlease(plan, row.int(0), row.int(1))?;
        }
        let token = |seq: i64| taken.iter().find(|row| row.int(0) == seq).map(|row| row.int(1));
        Ok(rows.into_iter().filter_map(|row| Some(Leased { token: token(row.seq)?, plan, row })).collect())
    }

    /// Takes a letter that was leased and is damaged out of its plan, as it was before.
    fn unlease(&mut self, plan: i64, seq: i64, lease: i64) -> Result<()> {
        self.tx(|db, _| {
            db.exec(
                "UPDATE letter SET state = (SELECT was FROM member WHERE plan = ?1 AND seq = ?2), plan = NULL,
                     lease = lease + 1, lease_until_ms = 0
                 WHERE seq = ?2 AND lease = ?3 AND plan = ?1",
                &[plan.into(), seq.into(), lease.into()],
            )?;
            let sql = "UPDATE member SET ended = 'back' WHERE plan = ?1 AND seq = ?2";
            db.exec(sql, &[plan.into(), seq.into()]).map(drop)
        })
    }

    /// Records the outcomes of leased letters in one transaction. Returns for each whether it was
    /// accepted: an outdated lease changes nothing.
    ///
    /// # Errors
    /// When the store cannot be written. Then no outcome is recorded.
    pub fn finish(&mut self, letters: &Letters, ended: &[FinishedReplay], now_ms: i64) -> Result<Vec<bool>> {
        let packed = ended
            .iter()
            .map(|FinishedReplay { leased, outcome }| match outcome {
                ReplayOutcome::Dead(child) => letters.pack(&child_of(&leased.row.letter, child)).map(Some),
                ReplayOutcome::Resolved { .. } | ReplayOutcome::Back { .. } => Ok(None),
            })
            .collect::<Result<Vec<Option<Packed>>>>()?;
        let mut known = std::mem::take(&mut self.groups);
        self.tx(|db, writer| {
            let mut counted = Vec::with_capacity(ended.len());
            let mut entries = Vec::new();
            for (FinishedReplay { leased, outcome }, child) in ended.iter().zip(&packed) {
                let was = db.query(
                    "SELECT was FROM member WHERE plan = ?1 AND seq = ?2",
                    &[leased.plan.into(), leased.row.seq.into()],
                )?;
                let was = was.first().map_or(0, |row| row.int(0));
                let (state, word, not_before, detail) = match outcome {
                    ReplayOutcome::Resolved { note } => {
                        (LetterState::Resolved as i64, "resolved", None, serde_json::json!({ "note": note }))
                    }
                    ReplayOutcome::Dead(letter) => {
                        let id = child.as_ref().map(|c| c.id.to_string());
                        let detail = serde_json::json!({ "child": id, "code": letter.failure.code.as_str() });
                        (LetterState::Dead as i64, "dead", None, detail)
                    }
                    ReplayOutcome::Back { not_before_ms, note } => {
                        let state = if not_before_ms.is_some() { LetterState::Scheduled as i64 } else { was };
                        (state, "back", *not_before_ms, serde_json::json!({ "note": note }))
                    }
                };
                let changed = db.exec(
                    "UPDATE letter SET state = ?1, not_before_ms = coalesce(?2, not_before_ms), plan = NULL,
                         lease = lease + 1, lease_until_ms = 0
                     WHERE seq = ?3 AND lease = ?4 AND plan = ?5 AND state = ?6",
                    &[
                        state.into(),
                        not_before.into(),
                        leased.row.seq.into(),
                        leased.token.into(),
                        leased.plan.into(),
                        (LetterState::Planned as i64).into(),
                    ],
                )?;
                counted.push(changed == 1);
                if changed == 0 {
                    continue;
                }
                db.exec(
                    "UPDATE member SET ended = ?1 WHERE plan = ?2 AND seq = ?3",
                    &[word.into(), leased.plan.into(), leased.row.seq.into()],
                )?;
                let mut detail = detail;
                if let Some(child) = child
                    && put(db, writer, &mut known, &[child], now_ms)? == [Put::Known]
                {
                    // Another open letter has counted this failure.
                    detail["child"] = serde_json::Value::Null;
                }
                detail["plan"] = leased.plan.into();
                detail["ended"] = word.into();
                let letter = &leased.row.letter;
                let act =
                    AuditEvent::new(now_ms, "replay", detail).letter(letter.id).key(&letter.idempotency_key);
                entries.push(act.code(letter.failure.code.as_str()).to(word));
            }
            audit::append(db, writer, entries)?;
            if let Some(first) = ended.first() {
                close(db, writer, first.leased.plan, "done", now_ms)?;
            }
            Ok(counted)
        })
    }

    /// Cancels a replay plan: its unfinished letters return to the state that they had before.
    ///
    /// # Errors
    /// [`LetterError::Refused`] when it has ended, or when the store cannot be written.
    pub fn plan_cancel(&mut self, plan: i64, now_ms: i64) -> Result<u64> {
        match self.plan_get(plan)? {
            Some(found) if found.state == "running" => {}
            Some(found) => {
                return Err(LetterError::Refused(format!("replay {plan} is already {}", found.state)));
            }
            None => return Err(LetterError::Refused(format!("no replay {plan}"))),
        }
        self.tx(|db, writer| {
            let back = db.exec(
                "UPDATE letter SET state = (SELECT was FROM member m WHERE m.plan = ?1 AND m.seq = letter.seq),
                     plan = NULL, lease = lease + 1, lease_until_ms = 0 WHERE plan = ?1 AND state = ?2",
                &[plan.into(), (LetterState::Planned as i64).into()],
            )?;
            db.exec("UPDATE member SET ended = 'back' WHERE plan = ?1 AND ended IS NULL", &[plan.into()])?;
            close(db, writer, plan, "cancelled", now_ms)?;
            Ok(back)
        })
    }
}

/// A second failure is a new letter, linked to its parent; the time of the first failure is never
/// reset.
fn child_of(parent: &Letter, child: &Letter) -> Letter {
    let mut child = child.clone();
    child.lineage = Lineage {
        root: parent.lineage.root,
        parent: Some(parent.id),
        generation: parent.lineage.generation.saturating_add(1),
        root_key: parent.lineage.root_key.clone(),
        first_failed_ms: parent.first_failed_ms(),
    };
    child.effect_key.clone_from(&parent.effect_key);
    child.retain_until_ms = parent.retain_until_ms;
    child.hold.clone_from(&parent.hold);
    child
}

/// Ends a replay plan that has no letters left.
fn close(db: &mut dyn super::Db, writer: &AuditWriter, plan: i64, state: &str, now_ms: i64) -> Result<()> {
    let ended = db.exec(
        "UPDATE plan SET state = ?2 WHERE plan = ?1 AND state = 'running'
         AND NOT EXISTS (SELECT 1 FROM member WHERE plan = ?1 AND ended IS NULL)",
        &[plan.into(), state.into()],
    )?;
    if ended == 1 {
        let detail = serde_json::json!({ "plan": plan, "state": state });
        audit::append(db, writer, [AuditEvent::new(now_ms, "plan", detail)])?;
    }
    Ok(())
}
