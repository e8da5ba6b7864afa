//! What a run would do, without doing it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::lane::LaneConfig;

use super::build::build;
use crate::manifest::{Manifest, Policy};
use crate::profile::Profiles;

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
    /// The services that are asked.
    pub asked: Vec<Asked>,
    /// The longest that one record may take, in seconds.
    pub record_seconds_max: f64,
}

/// What a service is asked.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The service.
    pub service: String,
    /// Its profile, if it has one.
    pub profile: Option<String>,
    /// Steps that ask it, each once per record.
    pub steps: u64,
    /// Questions if no answer is kept yet, none is repeated, and the number of records is known.
    pub questions: Option<u64>,
    /// Calls per second and burst that its profile names.
    pub allowed: Option<(f64, u32)>,
    /// What a thousand calls cost, if the manifest says.
    pub price_per_thousand: Option<f64>,
    /// The lane that all calls share.
    #[serde(skip)]
    pub lane: LaneConfig,
}

fn asked(manifest: &Manifest, policy: &Policy, records: Option<u64>) -> Vec<Asked> {
    let pipeline = &manifest.pipeline;
    let mut all: Vec<Asked> = Vec::new();
    for step in &pipeline.steps {
        let name = step.geocode.as_ref().map(|g| &g.service).or(step.http.as_ref().map(|h| &h.service));
        let Some((name, service)) = name.and_then(|name| Some((name, pipeline.services.get(name)?))) else {
            continue;
        };
        if let Some(known) = all.iter_mut().find(|asked| asked.service == *name) {
            known.steps += 1;
            known.questions = records.map(|records| records * known.steps);
            continue;
        }
        let profile =
            service.profile.as_ref().and_then(|name| Profiles::embedded().ok()?.get(name).ok().cloned());
        let mut lane = policy.lane;
        lane.limit.rate_max = service.requests_per_second.or(lane.limit.rate_max);
        all.push(Asked {
            service: name.clone(),
            profile: service.profile.clone(),
            steps: 1,
            questions: records,
            allowed: profile.filter(|p| p.form().rate.is_some()).map(|p| (p.rate_per_second(), p.burst())),
            price_per_thousand: service.price_per_thousand,
            lane,
        });
    }
    all
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
    let attempts = u64::from(policy.call.attempts_max)
        + u64::from(policy.call.throttles_free)
        + u64::from(policy.call.outages_free);
    let asked = asked(manifest, &policy, layer.records);
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
        resumable: parts.sink.keeps_checkpoints(),
        batches: layer.records.map(|records| records.div_ceil(batch_size)),
        calls: calls.filter(|calls| *calls > 0),
        calls_max: calls.filter(|calls| *calls > 0).map(|calls| calls.saturating_mul(attempts)),
        asked,
        record_seconds_max: pipeline.retry_policy.deadline_seconds,
    })
}
