//! The audit entries of a run.
//!
//! A batch and its entries must be durable together, but the audit log is another file than the
//! sink. So the entries of a batch are part of the checkpoint that the sink commits with the rows,
//! and are moved to the audit log afterwards, several batches at a time. A run that is killed in
//! between finds them in the checkpoint when it resumes; the batch number tells which of them the
//! log already has. A sink that becomes visible only at the end commits only at the end: its
//! batches are recorded as `stage`, not as `commit`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::counts::RecordCounts;
use super::lifecycle::RunStatus;
use super::report::{End, RunReport};
use super::state::{RunCheckpoint, StateDir};
use super::transform::BatchWork;
use crate::audit::{AuditEvent, AuditFilter, AuditLog, Signer};
use crate::gate::GateTally;
use crate::letter::now_ms;
use crate::manifest::Manifest;
use crate::secret::SecretRef;
use crate::step::Reject;
use tidegate_core::quote::shell;

/// The file of the audit log, in the state directory of the pipeline.
pub const AUDIT_FILE: &str = "audit.db";
/// The file of its copied checkpoints, unless the manifest names another.
pub const AUDIT_COPIES: &str = "audit.checkpoints";

/// The number of batches, or of entries, that are moved at once.
const BATCHES: usize = 16;
const ACTS: usize = 64;

/// The entries of one batch, pending in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PendingEntries {
    /// The number of the batch, from 1 over all resumes of a run.
    pub batch: u64,
    /// The entries.
    pub acts: Vec<AuditEvent>,
}

/// The audit of a run.
pub(super) struct Trail {
    book: AuditLog,
    sink: String,
    /// Whether each batch is committed, not only staged.
    commits: bool,
}

impl Trail {
    /// Opens the audit log of a pipeline.
    pub(super) fn open(
        manifest: &Manifest,
        folder: &Path,
        root: &Path,
        state: &StateDir,
    ) -> Result<Trail, String> {
        let form = &manifest.pipeline.audit;
        let signer = match &form.key {
            Some(key) => {
                let from = key.parse::<SecretRef>().map_err(|e| format!("audit.key: {e}"))?;
                let text = from.fetch().map_err(|e| format!("audit.key: {e}"))?;
                Signer::from_text(text.reveal()).map_err(|e| format!("audit.key: {e}"))?
            }
            None => Signer::of_dir(root).map_err(|e| e.to_string())?,
        };
        let copies =
            form.copy.as_ref().map_or_else(|| state.audit_dir().join(AUDIT_COPIES), |path| folder.join(path));
        let log =
            state.audit_dir().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut book = AuditLog::open(&state.audit_dir().join(AUDIT_FILE), &log, Some(signer), &copies)
            .map_err(|e| e.to_string())?;
        let path = |path: &Path| shell(&path.display().to_string()).into_owned();
        book.writer = book.writer.registered(root, &format!("{log}/{AUDIT_FILE}"));
        book.writer.check = format!("tidegate audit verify --state {}", path(root));
        if form.copy.is_some() {
            book.writer.check += &format!(" --copies {}", path(&copies));
        }
        Ok(Trail { book, sink: String::new(), commits: true })
    }

    /// Records the start of a run, or its resume from a checkpoint, after the entries pending in
    /// it.
    pub(super) fn begin(
        &mut self,
        from: &mut RunCheckpoint,
        (sink, commits): (String, bool),
        last: Option<RunStatus>,
        detail: Value,
    ) -> Result<(), String> {
        (self.sink, self.commits) = (sink, commits);
        let now = now_ms();
        let mut acts = Vec::new();
        if from.batch > 0 {
            let known = self.entered(&from.run)?;
            let pending = std::mem::take(&mut from.audit);
            acts.extend(pending.into_iter().filter(|batch| batch.batch > known).flat_map(|batch| batch.acts));
        }
        let mut detail = detail;
        detail["fingerprint"] = from.pipeline.as_str().into();
        detail["source_stamp"] = from.stamp.as_str().into();
        detail["after_record"] = from.counts.read.into();
        detail["before"] = json!(last);
        detail["version"] = env!("CARGO_PKG_VERSION").into();
        let word = if from.batch > 0 { "resume" } else { "run" };
        acts.push(AuditEvent::new(now, word, detail).key(&from.run).to(&self.sink));
        self.book.enter(acts).map_err(|e| e.to_string())
    }

    /// The number of the last batch of a run in the audit log.
    fn entered(&mut self, run: &str) -> Result<u64, String> {
        let acts = vec!["commit".to_owned(), "stage".to_owned()];
        let entries = self.book.read(&AuditFilter { acts, limit: 1, ..AuditFilter::default() });
        let entries = entries.map_err(|e| e.to_string())?;
        let batch = |detail: &Value| (detail.get("run")? == run).then(|| detail.get("batch")?.as_u64());
        let detail = entries.first().and_then(|entry| serde_json::from_str::<Value>(&entry.detail).ok());
        Ok(detail.as_ref().and_then(batch).flatten().unwrap_or(0))
    }

    /// Adds the entries of a batch to the checkpoint that is committed with it.
    pub(super) fn batch(
        &self,
        next: &mut RunCheckpoint,
        before: &[GateTally],
        work: &BatchWork,
        rejected: &[Reject],
        to: &str,
    ) {
        let now = now_ms();
        next.batch += 1;
        let key = format!("{}/{}", next.run, next.batch);
        let mut acts = work.attempts.clone();
        acts.extend(rejected.iter().map(|reject| self.routed(now, reject, to)));
        for tally in &work.gates {
            let was = before.iter().find(|was| was.gate == tally.gate);
            let new = |now: u64, was: Option<u64>| now.saturating_sub(was.unwrap_or(0));
            let failed = new(tally.failed, was.map(|was| was.failed));
            if failed > 0 {
                let looked = new(tally.looked, was.map(|was| was.looked));
                let detail = json!({
                    "gate": tally.gate, "severity": tally.severity, "looked": looked, "failed": failed,
                });
                acts.push(AuditEvent::new(now, "gate", detail).key(&key).to(&tally.severity));
            }
        }
        let word = if self.commits { "commit" } else { "stage" };
        let mut detail = counts(&next.counts);
        detail["run"] = next.run.as_str().into();
        detail["batch"] = next.batch.into();
        detail["batch_read"] = work.delta.read.into();
        detail["gates"] = next.gates.len().into();
        acts.push(AuditEvent::new(now, word, detail).key(&key).to(&self.sink));
        next.audit.push(PendingEntries { batch: next.batch, acts });
    }

    fn routed(&self, now: i64, reject: &Reject, to: &str) -> AuditEvent {
        let problems: Vec<Value> = reject
            .problems
            .iter()
            .map(|problem| json!({ "code": problem.code.as_str(), "field": problem.path }))
            .collect();
        // The message is left out, because it may quote values of the record.
        let first = reject.problems.first();
        let message = first.map_or(Value::Null, |problem| self.book.writer.commit(&problem.message));
        let detail = json!({ "stage": reject.stage, "problems": problems, "message": message });
        let code = first.map_or("UNKNOWN", |problem| problem.code.as_str());
        AuditEvent::new(now, "route", detail).key(format!("record {}", reject.record)).code(code).to(to)
    }

    /// A batch is durable: moves the pending entries if there are enough.
    pub(super) fn landed(&mut self, checkpoint: &mut RunCheckpoint) -> Result<(), String> {
        let acts: usize = checkpoint.audit.iter().map(|batch| batch.acts.len()).sum();
        if checkpoint.audit.len() >= BATCHES || acts >= ACTS { self.flush(checkpoint) } else { Ok(()) }
    }

    /// Moves the pending entries to the audit log.
    pub(super) fn flush(&mut self, checkpoint: &mut RunCheckpoint) -> Result<(), String> {
        let pending = std::mem::take(&mut checkpoint.audit);
        self.book.enter(pending.into_iter().flat_map(|batch| batch.acts).collect()).map_err(|e| e.to_string())
    }

    /// Records the calls of a run that could not start.
    pub(super) fn calls(&mut self, calls: Vec<AuditEvent>) -> Result<(), String> {
        if calls.is_empty() {
            return Ok(());
        }
        self.book.enter(calls).and_then(|()| self.book.close(now_ms())).map_err(|e| e.to_string())
    }

    /// Records how a run ended, after its last calls, and signs the log.
    pub(super) fn end(
        &mut self,
        run: &str,
        report: &RunReport,
        status: RunStatus,
        (broken, calls): (Option<&str>, Vec<AuditEvent>),
    ) -> Result<(), String> {
        let now = now_ms();
        let mut acts = calls;
        if let End::Halted(halt) = &report.end {
            let detail = json!({
                "gate": halt.gate, "record": halt.record, "reason": self.book.writer.commit(&halt.reason),
            });
            let key = halt.record.map_or_else(|| run.to_owned(), |record| format!("record {record}"));
            acts.push(AuditEvent::new(now, "halt", detail).key(key).code("HALTED").to("uncommitted"));
        }
        let mut detail = counts(&report.counts);
        if report.end == End::Done && !self.commits {
            acts.push(AuditEvent::new(now, "commit", detail.clone()).key(run).to(&self.sink));
        }
        detail["gates"] = json!(report.gates);
        detail["calls"] = report.calls.into();
        detail["balanced"] = report.counts.balanced().into();
        if let Some(what) = broken {
            detail["error"] = self.book.writer.commit(what);
        }
        let word = json!(status);
        let code = match &report.end {
            End::TryLater(code, _) => code.as_str().to_owned(),
            _ => word.as_str().unwrap_or_default().to_uppercase(),
        };
        acts.push(AuditEvent::new(now, "end", detail).key(run).code(code).to(&self.sink));
        self.book.enter(acts).and_then(|()| self.book.close(now)).map_err(|e| e.to_string())
    }
}

fn counts(counts: &RecordCounts) -> Value {
    json!({
        "read": counts.read, "written": counts.written(), "inserted": counts.inserted,
        "updated": counts.updated, "unchanged": counts.unchanged, "deleted": counts.deleted, "rejected": counts.rejected,
        "filtered": counts.filtered, "deduped": counts.deduped, "added": counts.added,
        "no_match": counts.no_match, "repaired": counts.repaired,
    })
}
