//! What a run would do, without doing it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::build::build;
use crate::manifest::{Manifest, Policy};
use crate::sink::Target;

/// What a run would do.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The pipeline.
    pub pipeline: String,
    /// Records in the source, if that is known before reading.
    pub records: Option<u64>,
    /// The layer that is read.
    pub layer: String,
    /// Its system.
    pub source_crs: Option<String>,
    /// The fields as they come, with their types.
    pub fields_in: Vec<(String, String)>,
    /// The steps.
    pub steps: Vec<String>,
    /// The fields as they go, with their types.
    pub fields_out: Vec<(String, String)>,
    /// The shape as it goes; none if it is mixed or unknown.
    pub shape: Option<String>,
    /// The system as it goes.
    pub sink_crs: String,
    /// The gates with severity and the share that may fail.
    pub gates: Vec<(String, String, f64)>,
    /// Where it goes.
    pub sink: String,
    /// What happens to what is there.
    pub mode: String,
    /// By which fields.
    pub key: Vec<String>,
    /// Whether a run that is cut off goes on at a batch, or begins again.
    pub resumable: bool,
    /// Batches, if the number of records is known.
    pub batches: Option<u64>,
    /// Calls to services if no answer is kept yet and none is repeated.
    pub calls: Option<u64>,
    /// The most calls, if every one fails as often as the policy allows.
    pub calls_max: Option<u64>,
    /// The least time that the told rate allows for the calls, in seconds.
    pub seconds_min: Option<f64>,
    /// The longest that one record may take, in seconds.
    pub record_seconds_max: f64,
}

/// Plans a run. Nothing is written and no service is asked.
///
/// # Errors
/// Why it cannot work, in a sentence.
pub fn plan(manifest: &Manifest, folder: &Path) -> Result<Plan, String> {
    let parts = build(manifest, folder, None, Arc::default())?;
    let layer = parts.source.layer();
    let fields = |schema: &tidegate_geo::Schema| {
        schema.fields().iter().map(|field| (field.name.clone(), field.kind.to_string())).collect::<Vec<_>>()
    };
    let policy = Policy::from(manifest);
    let pipeline = &manifest.pipeline;
    let batch_size = u64::from(pipeline.source.as_ref().map_or(1, |source| source.batch_size)).max(1);
    let remote = parts.remote.len() as u64;
    let calls = layer.records.map(|records| records * remote);
    let rate = |form: &crate::manifest::Step| {
        let name = form.geocode.as_ref().map(|g| &g.service).or(form.http.as_ref().map(|h| &h.service))?;
        let own = pipeline.services.get(name).and_then(|service| service.requests_per_second);
        own.or(pipeline.rate_limit.requests_per_second)
    };
    let slowest = pipeline.steps.iter().filter_map(rate).reduce(f64::min);
    let attempts = u64::from(policy.call.attempts_max)
        + u64::from(policy.call.throttles_free)
        + u64::from(policy.call.outages_free);
    let seconds_min = calls.zip(slowest).map(|(calls, rate)| calls as f64 / rate);
    let mode = serde_json::to_value(parts.sink.mode)
        .ok()
        .and_then(|mode| mode.as_str().map(str::to_owned))
        .unwrap_or_default();
    Ok(Plan {
        pipeline: parts.id,
        records: layer.records,
        layer: layer.name.clone(),
        source_crs: layer.crs.as_ref().map(ToString::to_string),
        fields_in: fields(&layer.schema),
        steps: pipeline.steps.iter().map(|form| form.name().to_owned()).collect(),
        fields_out: fields(&parts.flow.schema),
        shape: parts.flow.schema.shape.map(|shape| shape.name().to_owned()),
        sink_crs: parts.sink.crs.to_string(),
        gates: parts
            .gates
            .list()
            .map(|(gate, severity, rate)| (gate.to_owned(), severity.to_owned(), rate))
            .collect(),
        sink: parts.sink.describe(),
        mode,
        key: parts.sink.key.clone(),
        resumable: !matches!(parts.sink.target, Target::File(..)),
        batches: layer.records.map(|records| records.div_ceil(batch_size)),
        calls: calls.filter(|calls| *calls > 0),
        calls_max: calls.filter(|calls| *calls > 0).map(|calls| calls.saturating_mul(attempts)),
        seconds_min,
        record_seconds_max: pipeline.retry_policy.deadline_seconds,
    })
}
