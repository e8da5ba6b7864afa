//! Rows that failed, as dead letters: durable before the output that says so.

use super::answer::Finished;
use super::{By, Job, JobError, Run};
use crate::letter::{
    self, Failure, Http, Letter, LetterSource, LetterStore, LetterStoreLocation, Letters, Payload, Spatial,
    Versions, now_ms,
};
use crate::telemetry::Ended;
use tidegate_core::key::{KeyValue, key};
use tidegate_core::letter::{FailureClass, incident::Threshold};
use tidegate_geo::format::csv::CsvRow;

/// Where the letters of a job go.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// The store.
    pub place: LetterStoreLocation,
    /// The name of the pipeline.
    pub pipeline: String,
    /// How it is run again, as JSON.
    pub spec: String,
    /// How many days they are kept.
    pub retention_days: u32,
    /// When a batch is one incident.
    pub incident: Threshold,
}

/// A replay may be started from elsewhere.
fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The letters of a batch of rows.
pub(super) struct Dead {
    to: DeadLetters,
    letters: Letters,
    pending: Vec<Letter>,
    rows: u64,
    header: Vec<String>,
    source: String,
    output: String,
    url: String,
    driver: String,
    place: Option<(usize, usize)>,
}

impl Dead {
    /// Opens the store of a job that has one. A suspended pipeline does not start.
    pub(super) fn open(job: &Job, header: &[String]) -> Result<Option<Dead>, JobError> {
        let setup = |e: letter::LetterError| JobError::Setup(e.to_string());
        let Some(to) = job.dead_letters.clone() else { return Ok(None) };
        let mut store = LetterStore::open(&to.place).map_err(setup)?;
        if let Some(open) = store.incidents(Some(&to.pipeline)).map_err(setup)?.first() {
            return Err(JobError::Setup(format!(
                "{} is suspended by incident {}: {} of {} rows failed with {} ({}). Mend the cause, then \
                 `tidegate dlq incidents --close {}`",
                to.pipeline, open.incident, open.failed, open.batch, open.code, open.message, open.incident
            )));
        }
        store.pipeline_set(&to.pipeline, &to.spec).map_err(setup)?;
        let letters = Letters::open(&to.place).map_err(setup)?;
        let column = |name: &String| header.iter().position(|h| h.eq_ignore_ascii_case(name));
        let place = match &job.by {
            By::Address(_) => None,
            By::Place { lon, lat } => column(lon).zip(column(lat)),
        };
        Ok(Some(Dead {
            to,
            letters,
            pending: Vec::new(),
            rows: 0,
            header: header.to_vec(),
            source: absolute(&job.input),
            output: absolute(&job.output),
            url: job.profile.base_url().map(|url| url.to_string()).unwrap_or_default(),
            driver: job.profile.name().to_owned(),
            place,
        }))
    }

    /// Takes note of a row.
    pub(super) fn take(&mut self, row: &CsvRow, finished: &Finished, run: &Run) {
        self.rows += 1;
        if finished.ended == Ended::Failed {
            let letter = self.letter(row, finished, run);
            self.pending.push(letter);
        }
    }

    fn letter(&self, row: &CsvRow, f: &Finished, run: &Run) -> Letter {
        let cells = || self.header.iter().enumerate().map(|(i, name)| (name.as_str(), row.cell(i)));
        let mut attributes: Vec<(&str, KeyValue<'_>)> =
            cells().map(|(n, cell)| (n, KeyValue::Text(cell))).collect();
        // Equal rows are different records.
        attributes.push(("\u{0}row", KeyValue::Int(row.number.into())));
        let json: serde_json::Map<String, serde_json::Value> =
            cells().map(|(name, cell)| (name.to_owned(), cell.into())).collect();
        let spatial = self.place.and_then(|(lon, lat)| {
            let number = |i: usize| row.cell(i).trim().parse::<f64>().ok().filter(|x| x.is_finite());
            let (x, y) = (number(lon)?, number(lat)?);
            Some(Spatial {
                bbox: Some([x, y, x, y]),
                source_crs: "OGC:CRS84".into(),
                axis_order: "xy".into(),
                geometry_type: "Point".into(),
                vertices: 1,
                ..Spatial::default()
            })
        });
        let status = f.tried.last().and_then(|attempt| attempt.status);
        Letter {
            pipeline: self.to.pipeline.clone(),
            stage: "geocode".into(),
            task: format!("row {}", row.number),
            idempotency_key: key(&self.to.pipeline, &attributes, None),
            effect_key: format!("{}#{}", self.output, row.number),
            content_type: "application/json".into(),
            payload: Payload {
                received: serde_json::Value::Object(json).to_string().into_bytes(),
                current: None,
            },
            versions: Versions { binary: env!("CARGO_PKG_VERSION").into(), ..Versions::default() },
            source: LetterSource {
                uri: self.source.clone(),
                position: format!("row {}, line {}", row.number, row.line),
            },
            spatial,
            failure: Failure {
                class: FailureClass::of(f.code, None),
                code: f.code,
                message: f.message.clone(),
                service: run.lane.key().host(),
                driver: self.driver.clone(),
                http: f.tried.last().map(|_| Http {
                    method: "GET".into(),
                    url: self.url.clone(),
                    status,
                    body: String::new(),
                }),
                breaker: format!("{:?}", run.lane.snapshot().breaker).to_lowercase(),
                attempts: f.tried.clone(),
                worker: format!("pid {}", std::process::id()),
                failed_ms: now_ms(),
                ..Failure::default()
            },
            ..Letter::default()
        }
        .retained_for(self.to.retention_days)
    }

    /// Makes what was taken durable. A batch that fails with one story is an incident instead.
    pub(super) fn flush(&mut self) -> Result<(), JobError> {
        let broken = |e: letter::LetterError| JobError::Broken(e.to_string());
        let (pending, rows) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.rows));
        if let Some(incident) = letter::flood(&pending, rows, &self.to.incident) {
            let mut store = LetterStore::open(&self.to.place).map_err(broken)?;
            let number = store.incident_open(&incident).map_err(broken)?;
            return Err(JobError::Broken(format!(
                "incident {number}: {} of {} rows failed with {} ({}). {} is suspended and the output was not \
                 written; answers are kept. Mend the cause, then `tidegate dlq incidents --close {number}`",
                incident.failed, incident.batch, incident.code, incident.message, self.to.pipeline
            )));
        }
        if pending.is_empty() {
            return Ok(());
        }
        self.letters.put(&pending).wait().map(|_| ()).map_err(broken)
    }
}
