//! Steps: what happens to each record between source and gates.
//!
//! A step is built once, against the schema and the reference system that reach it, and refuses
//! then whatever cannot work: a field that does not exist, a system that is unknown. After that it
//! turns batches into batches. A record that it cannot handle is set aside with all that is wrong
//! with it ([`Aside`]) and the others go on.
//!
//! | file | steps |
//! |---|---|
//! | `fields` | rename, drop, keep, default, constant |
//! | `coerce` | coerce |
//! | `flatten` | flatten |
//! | `filter` | filter |
//! | `lookup` | lookup |
//! | `geometry` | set_crs, reproject, make_valid, promote_to_multi, force_2d, round |
//! | `clip` | clip |
//! | `dedupe` | dedupe |
//! | `raster` | raster |
//! | `content_key` | the key of a record from its content, for the sink |
//! | `geocode`, `http`, `http_url` | geocode, http |
//!
//! The last two ask services. What they share is in `remote` (a batch in two halves), `window` (how
//! many records are on their way), `dispatch` (questions through the lane), `lane_watch` (the
//! patience of lanes) and `services` (whom to ask).

mod asker;
mod cached;
mod clip;
mod coerce;
pub(crate) mod content_key;
mod dedupe;
mod digest_map;
mod dispatch;
mod fields;
mod filter;
mod flatten;
mod geocode;
mod geometry;
mod http;
mod http_url;
mod lane_watch;
mod lookup;
mod raster;
mod remote;
mod services;
mod verdicts;
mod window;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::hex::hex;
use tidegate_core::suggest::nearest;
use tidegate_core::{Code, Wall};
use tidegate_geo::crs::{Grids, Operation};
use tidegate_geo::limits::RecordLimits;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema};

use crate::audit::AuditEvent;
use crate::error::SetupError;
use crate::letter::{Http, LetterAttempt};
use crate::manifest::{self, Cast};
use crate::objects::AllowedObjects;
use crate::telemetry::trace::BatchSpan;
pub(crate) use dedupe::hash;
pub use services::Services;
pub(crate) use services::secret;
pub(crate) use verdicts::call_history;

/// A record that was given up, with all that a dead letter needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reject {
    /// Its number in the source, from 0.
    pub record: u64,
    /// Where on its way it failed: `read`, `steps[1] coerce`, `gate is_valid`, `sink`.
    pub stage: String,
    /// All that is wrong with it.
    pub problems: Vec<Problem>,
    /// As the source held it; empty if the source keeps nothing.
    pub raw: Vec<u8>,
    /// As it was when it failed: a GeoJSON feature, in the system of that point of the way. Empty if that is
    /// as the source held it: a large record is not kept twice.
    pub feature: String,
    /// The call that failed, if it was one.
    pub call: Option<Box<FailedCall>>,
}

impl Reject {
    /// The record as it was when it failed, if it is text.
    #[must_use]
    pub fn feature(&self) -> &str {
        if self.feature.is_empty() {
            std::str::from_utf8(&self.raw).unwrap_or_default()
        } else {
            &self.feature
        }
    }
}

/// A call to a service that failed for good.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailedCall {
    /// The host and port.
    pub service: String,
    /// The name of the service in the manifest.
    pub name: String,
    /// How it was spoken to: the name of its profile.
    pub driver: String,
    /// Its address, without a key.
    pub url: String,
    /// The attempts.
    pub attempts: Vec<LetterAttempt>,
    /// The time that the service named for the next call, in milliseconds since 1970.
    pub not_before_ms: Option<i64>,
}

impl FailedCall {
    /// The last exchange, as a letter tells it.
    #[must_use]
    pub fn http(&self) -> Http {
        Http {
            method: "GET".into(),
            url: self.url.clone(),
            status: self.attempts.last().and_then(|attempt| attempt.status),
            body: String::new(),
        }
    }
}

/// A key that has been seen, by the step or gate that has to know it again after a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeenKey {
    /// Which step or gate: steps count from 0, gates from 1000.
    pub scope: u16,
    /// The first half of a SHA-256.
    pub hash: [u8; 16],
}

/// What steps and gates put aside of one batch.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// Where the batch is now, for the rejects.
    pub stage: String,
    /// Records given up.
    pub rejected: Vec<Reject>,
    /// Records that failed and go on all the same, because their step says so in a field.
    pub failed: Vec<Reject>,
    /// Records that a filter or a clip let go.
    pub filtered: u64,
    /// Records that repeated another.
    pub deduped: u64,
    /// Records that came into being beyond those read, because a list was exploded.
    pub added: u64,
    /// Records that a service or a lookup had nothing for, and that went on.
    pub missed: Vec<u64>,
    /// Geometries that were repaired.
    pub repaired: u64,
    /// Keys seen for the first time.
    pub seen: Vec<SeenKey>,
    /// Calls to services, for the audit.
    pub attempts: Vec<AuditEvent>,
}

impl Aside {
    /// Takes the refused rows out of a batch.
    pub fn set_aside(&mut self, batch: Batch, refused: Vec<(usize, Problem)>) -> Batch {
        if refused.is_empty() {
            return batch;
        }
        let keep = self.refuse(&batch, refused);
        batch.filter(&keep)
    }

    /// Adds the refused rows of a batch to the rejects; returns which rows go on. A step that adds
    /// fields calls it before it does: a letter holds the record as it came to the step, so that a
    /// replay can start there.
    pub fn refuse(&mut self, batch: &Batch, refused: Vec<(usize, Problem)>) -> Vec<bool> {
        let mut keep = vec![true; batch.len()];
        for (row, problem) in refused {
            if let Some(flag) = keep.get_mut(row) {
                let first = std::mem::replace(flag, false);
                self.reject(batch, row, problem, first);
            }
        }
        keep
    }

    /// Adds a reject, or another problem to the last one.
    fn reject(&mut self, batch: &Batch, row: usize, problem: Problem, first: bool) {
        let problem = problem.of_record(batch.record(row));
        match self.rejected.last_mut() {
            Some(last) if !first && last.record == batch.record(row) => last.problems.push(problem),
            _ => {
                let reject = self.reject_of(batch, row, problem);
                self.rejected.push(reject);
            }
        }
    }

    fn reject_of(&self, batch: &Batch, row: usize, problem: Problem) -> Reject {
        Reject {
            record: batch.record(row),
            stage: self.stage.clone(),
            problems: vec![problem],
            raw: batch.origin(row).1.to_vec(),
            feature: feature(batch, row),
            call: None,
        }
    }

    /// Adds the calls that failed, by record, to the rejects of this stage.
    fn name_calls(&mut self, mut calls: HashMap<u64, FailedCall>) {
        if calls.is_empty() {
            return;
        }
        for reject in self.rejected.iter_mut().chain(&mut self.failed) {
            if reject.call.is_none() && reject.stage == self.stage {
                reject.call = calls.remove(&reject.record).map(Box::new);
            }
        }
    }

    /// A record failed, and goes on all the same.
    pub(crate) fn note(&mut self, batch: &Batch, row: usize, problem: Problem) {
        let reject = self.reject_of(batch, row, problem.of_record(batch.record(row)));
        self.failed.push(reject);
    }
}

/// A record as a GeoJSON feature, for people and dead letters.
#[must_use]
pub fn feature(batch: &Batch, row: usize) -> String {
    use serde_json::{Map, Value as Json, json};
    use tidegate_geo::Value;
    let mut properties = Map::new();
    for (at, field) in batch.schema().fields().iter().enumerate() {
        let value = match batch.value(row, at) {
            Value::Null => Json::Null,
            Value::Bool(b) => b.into(),
            Value::Int(i) => i.into(),
            Value::Real(x) => x.into(),
            Value::Text(text) => text.into(),
            Value::Bytes(bytes) => hex(bytes).into(),
            Value::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        };
        properties.insert(field.name.clone(), value);
    }
    let mut bytes = Vec::new();
    let geometry = match batch.geometry(row) {
        None => Json::Null,
        Some(wkb) => match tidegate_geo::format::geojson::geometry(wkb, &mut bytes) {
            Ok(()) => serde_json::from_slice(&bytes).unwrap_or(Json::Null),
            // What GeoJSON cannot hold, such as measures, is shown as text.
            Err(_) => json!({ "wkt": tidegate_geo::wkt::to_string(wkb) }),
        },
    };
    let mut feature = json!({ "type": "Feature", "properties": properties, "geometry": geometry });
    if let Some(id) = batch.id(row) {
        feature["id"] = serde_json::from_str(id).unwrap_or_else(|_| id.into());
    }
    feature.to_string()
}

/// Why a step or a source ends the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// The other side wants no calls for longer than the manifest allows.
    TryLater {
        /// `QUOTA_EXHAUSTED` or `CIRCUIT_OPEN`.
        code: Code,
        /// When to come again.
        until: Wall,
        /// Who asked for it and how, in a sentence.
        said: String,
    },
    /// The run is being stopped from outside.
    Cancelled,
    /// A service did not give what it was asked for, or what it gave is wrong.
    Failed {
        /// Why.
        code: Code,
        /// The same in a sentence.
        said: String,
    },
    /// Something that no record is to blame for.
    Broken(String),
}

impl From<SetupError> for StepError {
    fn from(error: SetupError) -> StepError {
        StepError::Broken(error.into())
    }
}

impl From<String> for StepError {
    fn from(what: String) -> StepError {
        StepError::Broken(what)
    }
}

impl From<StepError> for String {
    fn from(error: StepError) -> String {
        match error {
            StepError::TryLater { said, .. } | StepError::Failed { said, .. } => said,
            StepError::Cancelled => "interrupted".into(),
            StepError::Broken(what) => what,
        }
    }
}

/// A step that is ready for batches.
pub trait Step: Send {
    /// Takes a batch through.
    ///
    /// # Errors
    /// What ends the run; a record that fails is set aside instead.
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError>;

    /// Is told, before a resume, of a key that was seen and committed.
    fn remember(&mut self, _seen: &SeenKey) {}

    /// The step as one that asks a service, if it does.
    fn as_remote(&mut self) -> Option<&mut dyn RemoteStep> {
        None
    }
}

/// A step that asks a service about each record. Several batches may be begun before the first is
/// collected; how many is bounded by the step's window.
pub trait RemoteStep {
    /// Waits for room in the window and sends the questions of a batch on their way, as part of its
    /// span.
    ///
    /// # Errors
    /// What ends the run; [`StepError::Cancelled`] if it is over before there is room.
    fn begin(
        &mut self,
        batch: Batch,
        span: Option<BatchSpan>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Box<dyn BegunBatch>, StepError>;

    /// The request that would be sent for a record, without its secrets.
    ///
    /// # Errors
    /// Why nothing can be asked about it.
    fn preview(&self, batch: &Batch, row: usize) -> Result<String, Problem>;
}

/// A batch whose questions are on their way.
pub trait BegunBatch: Send {
    /// Waits until every record has its end, and takes the batch on. What is complete is given out
    /// even if the run is over.
    ///
    /// # Errors
    /// What ends the run; [`StepError::Cancelled`] if it is over before the batch is complete.
    fn collect(self: Box<Self>, aside: &mut Aside, is_over: &dyn Fn() -> bool) -> Result<Batch, StepError>;
}

/// What is known of the records at one point of their way.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Their fields and shape.
    pub schema: Arc<Schema>,
    /// Their reference system, if it is known.
    pub crs: Option<Crs>,
    /// The multi shape that `promote_to_multi` can promise.
    pub multi: Option<Shape>,
    /// The grids of datum shifts that there are.
    pub grids: Grids,
    /// What one record may cost.
    pub limits: RecordLimits,
    /// The ways between systems that the records went so far.
    pub operations: Vec<Operation>,
}

impl Flow {
    /// What a source says of itself.
    #[must_use]
    pub fn new(schema: Arc<Schema>, crs: Option<Crs>) -> Flow {
        let multi = schema.shape.map(Shape::multi);
        let (grids, limits) = (Grids::default(), RecordLimits::default());
        Flow { schema, crs, multi, grids, limits, operations: Vec::new() }
    }

    /// The place of a field, or a sentence with the one that was probably meant.
    pub(crate) fn field(&self, name: &str) -> Result<usize, String> {
        self.schema.position(name).ok_or_else(|| {
            let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name.as_str()).collect();
            match nearest(name, names.iter().copied()) {
                Some(known) => format!("the records have no field `{name}`; did you mean `{known}`?"),
                None => format!("the records have no field `{name}`; they have {}", listed(&names)),
            }
        })
    }

    /// The same fields and shape under another schema.
    pub(crate) fn with(&mut self, fields: impl IntoIterator<Item = (String, Kind)>) {
        let mut schema = Schema::new(fields);
        (schema.shape, schema.dim) = (self.schema.shape, self.schema.dim);
        self.schema = Arc::new(schema);
    }

    /// The names and kinds of the fields.
    pub(crate) fn fields(&self) -> Vec<(String, Kind)> {
        self.schema.fields().iter().map(|field| (field.name.clone(), field.kind)).collect()
    }
}

fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// What steps need besides their settings.
pub struct Tools<'a> {
    /// Relative paths start here.
    pub folder: &'a Path,
    /// The services of the manifest.
    pub services: &'a Services,
    /// What may be opened by paths and addresses in the records, at this step.
    pub objects: &'a AllowedObjects,
    /// Batches of a first pass over the source through the steps before this one, for a step that
    /// has to look at all records before the first; `None` if the source cannot be read twice.
    #[allow(clippy::type_complexity, reason = "one callback, used once")]
    pub pass: &'a dyn Fn(&mut dyn FnMut(&Batch)) -> Option<Result<(), String>>,
}

/// A path of the manifest.
#[must_use]
pub fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name)
}

/// Builds a step; `flow` is then what leaves it.
///
/// # Errors
/// Why it cannot work, in a sentence.
pub fn build(
    form: &manifest::StepSpec,
    scope: u16,
    flow: &mut Flow,
    tools: &Tools<'_>,
) -> Result<Option<Box<dyn Step>>, SetupError> {
    Ok(Some(if let Some(names) = &form.rename {
        fields::rename(names, flow)?
    } else if let Some(names) = &form.drop {
        fields::drop_fields(names, flow)?
    } else if let Some(names) = &form.keep {
        fields::keep(names, flow)?
    } else if let Some(values) = &form.default {
        fields::default(values, flow)?
    } else if let Some(values) = &form.constant {
        fields::constant(values, flow)?
    } else if let Some(form) = &form.coerce {
        coerce::build(form, flow)?
    } else if let Some(form) = &form.flatten {
        flatten::build(form, flow, tools)?
    } else if let Some(text) = &form.filter {
        filter::build(text, flow)?
    } else if let Some(form) = &form.lookup {
        lookup::build(form, flow, tools.folder)?
    } else if let Some(form) = &form.geocode {
        geocode::build(form, flow, tools.services)?
    } else if let Some(form) = &form.http {
        http::build(form, flow, tools.services)?
    } else if let Some(name) = &form.set_crs {
        flow.crs = Some(crs(name)?);
        return Ok(None);
    } else if let Some(name) = &form.reproject {
        match geometry::reproject(&crs(name)?, flow)? {
            Some(step) => step,
            None => return Ok(None),
        }
    } else if let Some(rectangle) = &form.clip {
        clip::build(rectangle, flow)?
    } else if form.make_valid {
        geometry::make_valid(flow)
    } else if form.promote_to_multi {
        geometry::promote(flow)
    } else if form.force_2d {
        geometry::force_2d(flow)
    } else if let Some(decimals) = form.round {
        geometry::round(decimals)
    } else if let Some(form) = &form.raster {
        raster::build(form, flow, (tools.folder, tools.objects.clone()), tools.services)?
    } else if let Some(names) = &form.dedupe {
        dedupe::build(names, scope, flow)?
    } else {
        return Ok(None);
    }))
}

/// The system of this name.
///
/// # Errors
/// If it is unknown.
pub fn crs(name: &str) -> Result<Crs, SetupError> {
    name.parse().map_err(|problem: Problem| problem.message.into())
}

/// The kind of a type of the manifest.
#[must_use]
pub const fn kind(cast: Cast) -> Kind {
    match cast {
        Cast::String => Kind::Text,
        Cast::Int => Kind::Int,
        Cast::Float => Kind::Real,
        Cast::Bool => Kind::Bool,
        Cast::Date => Kind::Date,
        Cast::Datetime => Kind::DateTime,
        Cast::Json => Kind::Json,
    }
}

/// The type of the manifest for a kind.
#[must_use]
pub const fn cast(kind: Kind) -> Cast {
    match kind {
        Kind::Text | Kind::Bytes => Cast::String,
        Kind::Int => Cast::Int,
        Kind::Real => Cast::Float,
        Kind::Bool => Cast::Bool,
        Kind::Date => Cast::Date,
        Kind::DateTime => Cast::Datetime,
        Kind::Json => Cast::Json,
    }
}
