//! Stores rejected records as dead letters, durable before the position passes them.
//!
//! The key of a letter is the key of its record as received, however it is spelled ([`RecordKeys`]). So
//! a batch that is repeated after a kill, or tomorrow's run over the same records, puts letters that
//! the store already has; it counts them once per run. A source that keeps no received form of a record, such as a table, uses the
//! record before the stage that failed. A batch in which most records fail alike is one incident
//! instead of many letters.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use tidegate_core::Code;
use tidegate_core::letter::incident::Threshold;
use tidegate_core::letter::{FailureClass, LetterState, blur};
use tidegate_core::quote::shell;
use tracing::warn;

use super::build::PipelineParts;
use super::counts::RecordCounts;
use super::definition::{self, absolute};
use super::rejects::{BatchRefused, Rejects, Unsuccessful};
use super::report::RunError;
use crate::durable;
use crate::error::SetupError;
use crate::letter::feature::FeaturePayload;
use crate::letter::store::{ArchivePlace, RepairedRecords};
use crate::letter::{
    Failure, KeyedRecord, Letter, LetterError, LetterSource, LetterStore, LetterStoreLocation, Letters,
    Payload, RecordKeys, Spatial, Versions, flood, now_ms, worker,
};
use crate::manifest::{DeadLetters, Manifest, Pipeline};
use crate::secret::Given;
use crate::step::{FailedCall, Flow, Reject};
use crate::telemetry::trace::{self, Tracer};
use crate::worker::TaskLink;

/// The bytes of payloads that are packed at once.
const PAYLOAD_BYTES_AT_ONCE: usize = 2 << 20;

/// The letter store of a manifest: a path relative to its directory; by default the store of the
/// state directory.
///
/// # Errors
/// When a reference cannot be resolved.
pub fn place(form: &DeadLetters, folder: &Path, state: &Path) -> Result<LetterStoreLocation, SetupError> {
    let Some(text) = &form.store else { return Ok(LetterStoreLocation::File(state.join("letters.db"))) };
    let given: Given = text.parse().map_err(|e| format!("dead_letters.store: {e}"))?;
    let at = LetterStoreLocation::of(&given).map_err(|e| format!("dead_letters.store: {e}"))?;
    Ok(match at {
        LetterStoreLocation::File(path) if given.reference().is_none() => {
            LetterStoreLocation::File(folder.join(path))
        }
        at => at,
    })
}

/// Why a pipeline does not run, if an incident suspends it.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn suspended(place: &LetterStoreLocation, pipeline: &str) -> Result<Option<String>, LetterError> {
    // A missing store holds no incident, and need not be created to find out.
    if matches!(place, LetterStoreLocation::File(path) if !path.exists()) {
        return Ok(None);
    }
    let open = LetterStore::open(place)?.incidents(Some(pipeline))?;
    Ok(open.first().map(|open| {
        format!(
            "{pipeline} is suspended by incident {}: {} of {} records failed with {} ({}). Fix the cause, then run `tidegate dlq incidents --close {} --store {}`",
            open.incident,
            open.failed,
            open.batch,
            open.code,
            blur(&open.message),
            open.incident,
            shell(&place.to_string())
        )
    }))
}

/// The error of a run that cannot start without the store.
pub(super) fn not_started(error: LetterError) -> RunError {
    let what = format!("dead_letters: {error}");
    if matches!(error, LetterError::Unreachable(_)) { RunError::Later(what) } else { RunError::Setup(what) }
}

/// Where open letters of a pipeline are archived at the end of their retention, if its manifest says.
#[must_use]
pub fn archive(manifest: &Manifest, folder: &Path) -> Option<ArchivePlace> {
    let Pipeline { id, dead_letters, .. } = &manifest.pipeline;
    let to = dead_letters.as_ref()?.archive.as_ref()?;
    let to = if to.contains("://") { to.clone() } else { absolute(&folder.join(to)).display().to_string() };
    Some(ArchivePlace { pipeline: id.clone(), to })
}

/// What is known of the records that come to a stage.
struct Stage {
    label: String,
    crs: Option<String>,
    /// Their fields, without those that are others in each run: attempts, times.
    fields: HashSet<String>,
}

impl Stage {
    fn new(label: &str, flow: &Flow, manifest: &Manifest) -> Stage {
        let steps = manifest.pipeline.steps.iter().filter_map(|step| step.geocode.as_ref());
        let varying: HashSet<&String> =
            steps.flat_map(|step| [&step.attempts, &step.elapsed_ms, &step.cache_hit]).flatten().collect();
        let fields = flow.schema.fields().iter().map(|field| field.name.clone());
        Stage {
            label: label.to_owned(),
            crs: flow.crs.as_ref().map(ToString::to_string),
            fields: fields.filter(|name| !varying.contains(name)).collect(),
        }
    }

    /// The record as its key is made of it: without what is another in each run, and without the
    /// number of its row.
    fn before(&self, feature: &FeaturePayload) -> FeaturePayload {
        let mut before = feature.clone();
        before.json.as_object_mut().and_then(|json| json.remove("id"));
        if let Some(Value::Object(properties)) = before.json.get_mut("properties") {
            properties.retain(|name, _| self.fields.contains(name));
        }
        before
    }
}

/// The dead letters of a run.
pub(super) struct DeadRejects {
    letters: Letters,
    /// The identity of the store when the run began.
    identity: String,
    /// The records that were repaired and replayed before the run began.
    repaired: RepairedRecords,
    /// The store, once it was asked about them.
    store: Option<LetterStore>,
    place: LetterStoreLocation,
    pipeline: String,
    fingerprint: String,
    from: String,
    sink: String,
    /// The coordinate reference system of the sink.
    target_crs: String,
    key: Vec<String>,
    stages: Vec<Stage>,
    /// Whether one record may become several.
    explodes: bool,
    /// The keys of a source that ends. A worker has none.
    keys: RecordKeys,
    /// The tasks of a worker.
    tasks: Option<TaskLink>,
    /// The id of the run.
    run: String,
    /// The retention of letters, in days.
    retention_days: u32,
    threshold: Threshold,
}

impl DeadRejects {
    /// Opens the store, purges what is past its retention, and saves in it what the pipeline is.
    pub(super) fn open(
        form: &DeadLetters,
        manifest: &Manifest,
        parts: &PipelineParts,
        (folder, state): (&Path, &Path),
        tasks: Option<TaskLink>,
    ) -> Result<DeadRejects, RunError> {
        let place = place(form, folder, state)?;
        if let LetterStoreLocation::File(path) = &place
            && let Some(dir) = path.parent()
        {
            durable::make_dir(dir).map_err(|e| RunError::Setup(format!("{}: {e}", dir.display())))?;
        }
        let definition = definition::of_run(manifest, parts, (folder, state));
        let archives: Vec<ArchivePlace> = archive(manifest, folder).into_iter().collect();
        let (identity, repaired) = LetterStore::open(&place)
            .and_then(|mut store| {
                store.define(&parts.id, &definition)?;
                if let Some(why) = store.retain(now_ms(), &archives)?.fault {
                    warn!(target: "tidegate::letter", "letters past their retention period stay: {why}");
                }
                Ok((store.identity()?, store.repaired(&parts.id)?))
            })
            .map_err(not_started)?;
        let steps = parts.steps.iter().map(|step| (step.label.as_str(), &step.before));
        let ends = [("read", &parts.start), ("gate", &parts.flow), ("sink", &parts.flow)];
        let stages = steps.chain(ends).map(|(label, flow)| Stage::new(label, flow, manifest));
        Ok(DeadRejects {
            letters: Letters::open(&place).map_err(not_started)?,
            identity,
            repaired,
            store: None,
            place,
            pipeline: parts.id.clone(),
            fingerprint: parts.fingerprint.clone(),
            from: parts.from.clone(),
            sink: parts.sink.describe(),
            target_crs: parts.sink.crs.to_string(),
            key: parts.sink.key.clone(),
            stages: stages.collect(),
            explodes: manifest.pipeline.steps.iter().any(|step| step.flatten.is_some()),
            keys: RecordKeys::default(),
            tasks,
            run: String::new(),
            retention_days: form.retention_days,
            threshold: Threshold { share: form.incident_share, least: form.incident_least },
        })
    }

    fn letter(&mut self, reject: &Reject, now_ms: i64) -> Letter {
        let call = reject.call.as_deref();
        let came = FeaturePayload::parse(&reject.raw).ok();
        let id = came.as_ref().and_then(|came| came.json.get("id")).filter(|id| !id.is_null());
        let id = id.map(ToString::to_string);
        // As it came, unless steps made another one of it: a tree of a large record takes many times its room.
        let made = match reject.feature.as_str() {
            "" => None,
            feature => FeaturePayload::parse(feature.as_bytes()).ok(),
        };
        let feature = if reject.feature.is_empty() { came.as_ref() } else { made.as_ref() };
        let task = self.tasks.as_ref().and_then(|tasks| tasks.task_of(reject.record));
        let idempotency_key = self.key(reject, came.as_ref(), feature, task.as_ref());
        let (task, position) = match &task {
            Some((key, 0)) => (Letter::geotask_text(key), Letter::geotask_text(key)),
            Some((key, n)) => (Letter::geotask_text(key), format!("task {key}, record {}", n + 1)),
            None => (format!("record {}", reject.record), format!("record {}", reject.record)),
        };
        let crs = self.stage(&reject.stage).and_then(|stage| stage.crs.as_deref());
        let (mut messages, mut code) = (Vec::new(), Code::UNKNOWN);
        for problem in &reject.problems {
            if messages.is_empty() {
                code = problem.code;
            }
            messages.push(match problem.path.as_str() {
                "" => problem.message.clone(),
                path => format!("{path}: {}", problem.message),
            });
        }
        let mut messages = messages.into_iter();
        let not_before_ms = call.and_then(|call| call.not_before_ms);
        Letter {
            pipeline: self.pipeline.clone(),
            stage: reject.stage.clone(),
            task,
            idempotency_key,
            effect_key: format!(
                "{}#{}",
                self.sink,
                self.row(feature).or(id).unwrap_or_else(|| position.clone())
            ),
            content_type: if feature.is_some() { "application/geo+json" } else { "text/plain" }.into(),
            versions: Versions {
                manifest: self.fingerprint.clone(),
                binary: env!("CARGO_PKG_VERSION").into(),
                ..Versions::default()
            },
            source: LetterSource { uri: self.from.clone(), position },
            spatial: feature
                .and_then(|feature| feature.spatial(crs))
                .map(|spatial| Spatial { target_crs: self.target_crs.clone(), ..spatial }),
            run: self.run.clone(),
            state: not_before_ms.map_or_else(LetterState::default, |_| LetterState::Scheduled),
            not_before_ms,
            failure: Failure {
                class: FailureClass::of(code, None),
                code,
                message: messages.next().unwrap_or_default(),
                causes: messages.collect(),
                service: call.map_or_else(String::new, |call| call.service.clone()),
                service_name: call.map_or_else(String::new, |call| call.name.clone()),
                driver: call.map_or_else(|| "run".into(), |call| call.driver.clone()),
                http: call.map(FailedCall::http),
                attempts: call.map_or_else(Vec::new, |call| call.attempts.clone()),
                trace_id: trace::tracer().map_or_else(String::new, Tracer::trace_id),
                worker: worker(),
                failed_ms: now_ms,
                ..Failure::default()
            },
            ..Letter::default()
        }
        .retained_for(self.retention_days)
    }

    fn stage(&self, label: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.label == label)
    }

    /// The key of the record.
    fn key(
        &mut self,
        reject: &Reject,
        came: Option<&FeaturePayload>,
        failed: Option<&FeaturePayload>,
        task: Option<&(String, u64)>,
    ) -> String {
        // Another format than GeoJSON is known by what was read of it.
        let came = came.filter(|came| came.json.get("type").is_some_and(Value::is_string));
        // Made only where it is a part of the key.
        let failed = failed.filter(|_| came.is_none() || self.explodes);
        let before = failed.map(|feature| match self.stage(&reject.stage) {
            Some(stage) => stage.before(feature),
            None => feature.clone(),
        });
        let parts: Vec<&FeaturePayload> = came.into_iter().chain(&before).collect();
        let record =
            if parts.is_empty() { KeyedRecord::Bytes(&reject.raw) } else { KeyedRecord::Features(&parts) };
        match task {
            Some((task, number)) => record.of_task(&self.pipeline, (task, *number)),
            None => self.keys.of_record(&self.pipeline, record, reject.record),
        }
    }

    /// The key of the record's row in the sink, if the record reached it.
    fn row(&self, feature: Option<&FeaturePayload>) -> Option<String> {
        let properties = feature?.json.get("properties")?;
        let values = self.key.iter().map(|name| properties.get(name).map(ToString::to_string));
        values.collect::<Option<Vec<_>>>().filter(|values| !values.is_empty()).map(|values| values.join(","))
    }
}

/// The record of a letter.
fn payload(reject: &Reject) -> Payload {
    let received = if reject.raw.is_empty() { reject.feature.as_bytes() } else { &reject.raw };
    let is_other = !reject.feature.is_empty() && reject.feature.as_bytes() != received;
    let current = is_other.then(|| reject.feature.clone().into_bytes());
    Payload {
        current: current.filter(|feature| FeaturePayload::parse(feature).is_ok()),
        received: received.to_vec(),
    }
}

fn failed(e: LetterError) -> BatchRefused {
    match e {
        LetterError::Unreachable(_) => BatchRefused::Unavailable(e.to_string()),
        _ => BatchRefused::Failed(e.to_string()),
    }
}

impl Rejects for DeadRejects {
    fn repaired(&mut self, rejects: &[Reject]) -> Result<Vec<bool>, BatchRefused> {
        if self.repaired.is_empty() || rejects.is_empty() {
            return Ok(vec![false; rejects.len()]);
        }
        let with_payload = |reject| Letter { payload: payload(reject), ..self.letter(reject, 0) };
        let letters: Vec<Letter> = rejects.iter().map(with_payload).collect();
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(LetterStore::open(&self.place).map_err(failed)?),
        };
        let is_repaired = |letter| store.is_repaired(&self.repaired, letter).map_err(failed);
        letters.iter().map(is_repaired).collect()
    }

    fn put(&mut self, batch: &Unsuccessful<'_>) -> Result<u64, BatchRefused> {
        let now = now_ms();
        let rejects = batch.rejected.iter().chain(batch.failed);
        let letters: Vec<Letter> = rejects.map(|reject| self.letter(reject, now)).collect();
        if letters.is_empty() {
            return Ok(0);
        }
        if let Some(incident) = flood(&letters, batch.records, &self.threshold) {
            let number = LetterStore::open(&self.place)
                .and_then(|mut store| store.incident_open(&incident))
                .map_err(failed)?;
            return Err(BatchRefused::Incident(format!(
                "incident {number}: {} of {} records failed with {} ({}). {} is suspended, and the batch was not committed. Fix the cause, then run `tidegate dlq incidents --close {number} --store {}`",
                incident.failed,
                incident.batch,
                incident.code,
                blur(&incident.message),
                self.pipeline,
                shell(&self.place.to_string())
            )));
        }
        // Payloads may be large: they are copied a few at a time, on their way to the writer.
        let (mut some, mut bytes, mut tickets) = (Vec::new(), 0, Vec::new());
        for (letter, reject) in letters.into_iter().zip(batch.rejected.iter().chain(batch.failed)) {
            let payload = payload(reject);
            bytes += payload.received.len() + payload.current.as_ref().map_or(0, Vec::len);
            some.push(Letter { payload, ..letter });
            if bytes >= PAYLOAD_BYTES_AT_ONCE {
                tickets.push(self.letters.put_all(std::mem::take(&mut some)));
                bytes = 0;
            }
        }
        tickets.push(self.letters.put_all(some));
        for ticket in tickets {
            ticket.wait().map_err(failed)?;
        }
        Ok(0)
    }

    fn of_run(&mut self, run: &str) {
        run.clone_into(&mut self.run);
    }

    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn rewind(&mut self, _: u64) -> Result<(), String> {
        // The same letters are put again and recognized.
        Ok(())
    }

    fn identity(&mut self) -> Result<String, String> {
        Ok(self.identity.clone())
    }

    fn verify(&mut self, _: u64, counts: &RecordCounts) -> Result<(), String> {
        if counts.unsuccessful() == 0 {
            return Ok(());
        }
        let say = |e: LetterError| format!("dead_letters: {e}");
        let lost = || {
            format!(
                "the dead letters of this run are no longer in {}: the store was removed or replaced",
                self.place
            )
        };
        let found = match LetterStore::look(&self.place).map_err(say)? {
            Some(mut store) => store.identity().map_err(say)?,
            None => return Err(lost()),
        };
        if found == self.identity { Ok(()) } else { Err(lost()) }
    }

    fn place(&self) -> String {
        self.place.to_string()
    }
}

impl Drop for DeadRejects {
    fn drop(&mut self) {
        self.letters.close();
    }
}
