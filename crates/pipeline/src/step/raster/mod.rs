//! raster: the raster that a record names, repaired, transformed or surveyed.
//!
//! The result has the name of the raster in the directory of the step, or one made of fields, so a run that
//! was killed and resumed writes it again under the same name, whole. Two records must not name the same
//! result. What a record names is data: it is opened only if the manifest allows it (`objects`).
//!
//! | file | holds |
//! |---|---|
//! | `action` | what is done, from the manifest |
//! | `name` | the names of results |
//! | `fields` | the fields that it adds |

mod action;
mod fields;
mod name;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};
use tidegate_raster::repair::RepairReport;
use tidegate_raster::{CogOptions, RasterError, RasterLimits};

use self::fields::RasterFields;
use self::name::NameTemplate;
use super::{Aside, FailedCall, Flow, Services, Step, StepError};
use crate::call::Later;
use crate::manifest::{MissingAnswer, RasterStep};
use crate::objects::{AllowedObjects, ObjectAddress, ObjectRefused};
use crate::raster::{
    self, ClipBy, HeldRaster, RasterAction, RasterCalls, RasterFailure, RasterInput, RasterReach,
    RasterSurvey, RasterTrouble,
};

/// The most rasters of one mosaic.
const MOSAIC_MAX: usize = 256;

struct RasterWork {
    schema: Arc<Schema>,
    /// The place of the field with the address.
    at: usize,
    /// The fields that it adds, and their places.
    fields: RasterFields,
    added: Vec<usize>,
    /// The system of the records.
    crs: Crs,
    /// The name of a result.
    name: Option<NameTemplate>,
    /// Whether a record outside its raster goes on.
    keeps_outside: bool,
    /// What the field may name.
    objects: AllowedObjects,
    output: Option<PathBuf>,
    action: Option<RasterAction>,
    cog: CogOptions,
    survey: bool,
    reach: RasterReach,
    /// The raster that the last record was clipped from, until the batch ends.
    held: HeldRaster,
    /// What each result was made of, as a hash.
    made: HashMap<PathBuf, [u8; 32]>,
}

pub(super) fn build(
    form: &RasterStep,
    flow: &mut Flow,
    (folder, objects): (&Path, AllowedObjects),
    services: &Services,
) -> Result<Box<dyn Step>, String> {
    let at = flow.field(&form.field)?;
    let action = action::of(form, folder, &flow.grids)?;
    if action.is_some() && form.output.is_none() {
        return Err("`raster` needs `output`, the directory of the results".into());
    }
    let name = form.name.as_deref().map(|text| NameTemplate::parse(text, flow)).transpose()?;
    let by_record = matches!(action, Some(RasterAction::Clip { by: ClipBy::Record, .. }));
    if by_record && name.is_none() {
        return Err("`clip` by the record needs `name`, so that each record has a result of its own: `name: \"{id}.tif\"`".into());
    }
    if !by_record && form.clip.as_ref().is_some_and(|clip| clip.outside == MissingAnswer::Keep) {
        return Err("`outside` is for `clip` with `record: true`".into());
    }
    let mut cog = CogOptions { effort: form.level, ..CogOptions::default() };
    if let Some(name) = &form.compression {
        cog.compression = name.parse().map_err(|e: RasterError| e.message)?;
    }
    let own = RasterFields::of(form);
    let mut fields = flow.fields();
    if let Some(field) = fields.get_mut(at) {
        field.1 = Kind::Text;
    }
    let mut added = Vec::new();
    for (name, kind) in own.iter() {
        match fields.iter_mut().position(|(known, _)| known == name) {
            Some(place) => {
                if let Some(field) = fields.get_mut(place) {
                    field.1 = kind;
                }
                added.push(place);
            }
            None => {
                added.push(fields.len());
                fields.push((name.to_owned(), kind));
            }
        }
    }
    flow.with(fields);
    Ok(Box::new(RasterWork {
        schema: flow.schema.clone(),
        at,
        fields: own,
        added,
        crs: flow.crs.clone().unwrap_or_else(Crs::wgs84),
        name,
        keeps_outside: form.clip.as_ref().is_some_and(|clip| clip.outside == MissingAnswer::Keep),
        objects,
        output: form.output.as_deref().map(|name| folder.join(name)),
        action,
        cog,
        survey: form.survey,
        reach: RasterReach {
            private: form.allow_private,
            looks_beside_cogs: form.sidecars,
            seed: seed(),
            ..reach(form, services)?
        },
        held: HeldRaster::default(),
        made: HashMap::new(),
    }))
}

/// How remote rasters are read.
fn reach(form: &RasterStep, services: &Services) -> Result<RasterReach, String> {
    let traffic = services.traffic();
    let mut reach = RasterReach {
        calls: Arc::new(RasterCalls::of_run(traffic)),
        patience: traffic.patience(),
        key: services.asset_key()?,
        ..RasterReach::default()
    };
    if let Some(bucket) = &form.store {
        reach.cloud = bucket.cloud()?;
    }
    if let Some(attempts) = form.attempts {
        reach.policy.attempts_max = attempts;
    }
    if let Some(seconds) = form.deadline_seconds {
        reach.policy.deadline = tidegate_core::time::seconds(seconds);
    }
    if let Some(seconds) = form.base_delay_seconds {
        reach.policy.backoff =
            reach.policy.backoff.bounded(Some(tidegate_core::time::seconds(seconds)), None);
    }
    if let Some(seconds) = form.patience_seconds {
        reach.patience = tidegate_core::time::seconds(seconds);
    }
    Ok(reach)
}

/// The seed of the jitter. Without randomness it is always the same.
fn seed() -> u64 {
    let mut seed = [0; 8];
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}

/// What became of one raster.
struct RasterDone {
    address: String,
    survey: RasterSurvey,
    sha256: Option<String>,
    report: Option<RepairReport>,
}

impl RasterWork {
    fn raster(&mut self, batch: &Batch, row: usize) -> Result<RasterDone, RasterFailure> {
        let named = self.named(batch.value(row, self.at))?;
        let Some(first) = named.first() else { return Err(refuse("it names no raster".into())) };
        let Some(action) = self.action.clone() else {
            let raster = raster::open(first, &self.reach, &RasterLimits::default())?;
            let survey = raster::survey(&raster, self.survey)?;
            raster.source().unchanged()?;
            let sha256 = first.path().map(raster::sha256).transpose()?;
            let address = first.text().to_owned();
            return Ok(RasterDone { address, survey, sha256, report: None });
        };
        let name = match &self.name {
            Some(template) => template.of(batch, row),
            None => name::of_address(first),
        };
        let texts: Vec<&str> = named.iter().map(ObjectAddress::text).collect();
        let mut origin = Sha256::new_with_prefix(texts.join("\n"));
        if matches!(action, RasterAction::Clip { by: ClipBy::Record, .. }) {
            origin.update(batch.geometry(row).unwrap_or_default());
        }
        let target = self.target(&name.map_err(refuse)?, origin.finalize().into())?;
        let outline = batch.geometry(row).map(|wkb| (wkb, &self.crs));
        let input = RasterInput { addresses: &named, outline };
        let report = raster::work(&action, input, &target, &self.cog, &self.reach, &mut self.held)?;
        let made = ObjectAddress::made(&target);
        let raster = raster::open(&made, &self.reach, &RasterLimits::default())?;
        let survey = raster::survey(&raster, self.survey)?;
        let sha256 = Some(raster::sha256(&target)?);
        Ok(RasterDone { address: target.display().to_string(), survey, sha256, report })
    }

    /// The rasters that a value names: one, or for a mosaic a list. The value is data, so they are opened only
    /// if the manifest allows it.
    fn named(&self, value: Value<'_>) -> Result<Vec<ObjectAddress>, RasterFailure> {
        let address = |text: &str| {
            let refused = |why: ObjectRefused| Problem::new(why.code(), why.to_string());
            self.objects.address(text).map_err(|why| RasterFailure::Record(refused(why)))
        };
        let text = match value {
            Value::Text(text) | Value::Json(text) if !text.is_empty() => text,
            _ => return Err(refuse("it names no raster".into())),
        };
        let is_list = matches!(self.action, Some(RasterAction::Mosaic(_))) && text.starts_with('[');
        if !is_list {
            return Ok(vec![address(text)?]);
        }
        let all: Vec<String> =
            serde_json::from_str(text).map_err(|e| refuse(format!("it names no list of rasters: {e}")))?;
        if all.len() > MOSAIC_MAX {
            let what = format!("it names {} rasters, and a mosaic has at most {MOSAIC_MAX}", all.len());
            return Err(refuse(what));
        }
        all.iter().map(|name| address(name)).collect()
    }

    /// Where the result of this name goes; `origin` is what it is made of.
    fn target(&mut self, name: &str, origin: [u8; 32]) -> Result<PathBuf, RasterFailure> {
        let Some(dir) = &self.output else { return Err(refuse("there is no directory for it".into())) };
        let broken = |e: std::io::Error| {
            RasterFailure::Disk(std::io::Error::new(e.kind(), format!("{}: {e}", dir.display())))
        };
        fs::create_dir_all(dir).map_err(broken)?;
        let target = dir.join(name);
        match self.made.get(&target) {
            Some(other) if *other != origin => {
                let why = format!("two records would both become {name}; set `name` so that they differ");
                Err(RasterFailure::Record(Problem::new(Code::CONFLICT, why)))
            }
            _ => {
                self.made.insert(target.clone(), origin);
                Ok(target)
            }
        }
    }
}

fn refuse(why: String) -> RasterFailure {
    RasterFailure::Record(Problem::new(Code::SCHEMA_MISMATCH, why))
}

impl Step for RasterWork {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut refused = Vec::new();
        let mut calls: HashMap<u64, FailedCall> = HashMap::new();
        let mut address = Column::new(Kind::Text);
        let mut columns: Vec<Column> = self.fields.iter().map(|(_, kind)| Column::new(kind)).collect();
        for row in 0..batch.len() {
            self.reach.calls.forget_trouble();
            let done = match self.raster(&batch, row) {
                Ok(done) => Some(done),
                Err(RasterFailure::Disk(error)) => return Err(StepError::Broken(error.to_string())),
                Err(RasterFailure::Outside(_)) if self.keeps_outside => {
                    aside.missed.push(batch.record(row));
                    None
                }
                Err(RasterFailure::Record(problem) | RasterFailure::Outside(problem)) => {
                    refused.push((row, problem));
                    None
                }
                Err(RasterFailure::Call(problem)) => {
                    match self.reach.calls.take_trouble(problem.code) {
                        Some(RasterTrouble::Later(later)) => {
                            self.reach.calls.defer_report(&later);
                            let Later { code, until, said } = later;
                            return Err(StepError::TryLater { code, until, said });
                        }
                        Some(RasterTrouble::Failed(_, call)) => {
                            calls.insert(batch.record(row), call);
                        }
                        None => {}
                    }
                    refused.push((row, problem));
                    None
                }
            };
            let broken = |problem: Problem| StepError::Broken(problem.message);
            let named = done.as_ref().map_or(Value::Null, |done| Value::Text(&done.address));
            address.push(named).map_err(broken)?;
            for (column, (name, _)) in columns.iter_mut().zip(self.fields.iter()) {
                let value = done.as_ref().map_or(Value::Null, |done| fields::value(name, done));
                column.push(value).map_err(broken)?;
            }
        }
        self.held.close();
        let keep = aside.refuse(&batch, refused);
        aside.name_calls(calls);
        let mut picks: Vec<Pick> = (0..batch.schema().fields().len()).map(Pick::Old).collect();
        if let Some(pick) = picks.get_mut(self.at) {
            *pick = Pick::New(address);
        }
        for (place, column) in self.added.iter().zip(columns) {
            match picks.get_mut(*place) {
                Some(pick) => *pick = Pick::New(column),
                None => picks.push(Pick::New(column)),
            }
        }
        Ok(batch.with_columns(self.schema.clone(), picks).filter(&keep))
    }
}
