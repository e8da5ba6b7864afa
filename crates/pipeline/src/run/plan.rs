//! What a run would do, without doing it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::lane::LaneConfig;

use super::build::build;
use crate::error::SetupError;
use crate::lane::LaneKey;
use crate::manifest::{Manifest, Policy};
use crate::store::StoreSettings;
use crate::traffic;

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
    /// Calls to services, by the source and by steps, if no answer is kept yet and none is repeated.
    pub calls: Option<u64>,
    /// The most calls, if every one fails as often as the policy allows.
    pub calls_max: Option<u64>,
    /// The services that are asked.
    pub asked: Vec<ServiceLoad>,
    /// The longest that one record may take, in seconds.
    pub record_seconds_max: f64,
}

/// What a service is asked, by all who share its lane.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceLoad {
    /// The service; several names are of one host and key.
    pub service: String,
    /// Its profile, if it has one.
    pub profile: Option<String>,
    /// Steps that ask it, each once per record.
    pub steps: u64,
    /// What the source asks of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<PagePlan>,
    /// Requests and questions together, if no answer is kept yet, none is repeated, and their
    /// number is known.
    pub questions: Option<u64>,
    /// Calls per second and burst that its profile names.
    pub allowed: Option<(f64, u32)>,
    /// What a thousand calls cost, if the manifest says.
    pub price_per_thousand: Option<f64>,
    /// The lane that all calls share.
    #[serde(skip)]
    pub lane: LaneConfig,
}

/// What a source asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PagePlan {
    /// Requests in all, those that describe the layer included; `None` if nobody says how many
    /// records there are.
    pub requests: Option<u64>,
    /// Requests before the second page. The plan has made them.
    pub opening: u64,
    /// Records on a page; none if it is a file.
    pub page: Option<u64>,
}

impl ServiceLoad {
    /// Requests and questions together, if there are so many records.
    #[must_use]
    pub fn for_records(&self, records: u64) -> u64 {
        let pages = self.source.map_or(0, |source| {
            let rest = source.page.map_or(0, |page| records.div_ceil(page.max(1)).saturating_sub(1));
            source.requests.unwrap_or(source.opening.saturating_add(rest))
        });
        records.saturating_mul(self.steps).saturating_add(pages)
    }
}

fn asked(
    manifest: &Manifest,
    policy: &Policy,
    (records, source): (Option<u64>, PagePlan),
) -> Vec<ServiceLoad> {
    let pipeline = &manifest.pipeline;
    let mut all: Vec<(LaneKey, ServiceLoad)> = Vec::new();
    for one in traffic::uses(manifest, policy) {
        let known = all.iter().position(|(key, _)| *key == one.key);
        let service = pipeline.services.get(&one.service);
        let at = known.unwrap_or_else(|| {
            let allowed = one.profile.as_ref().filter(|p| p.form().rate.is_some());
            all.push((
                one.key.clone(),
                ServiceLoad {
                    service: one.service.clone(),
                    profile: service.and_then(|service| service.profile.clone()),
                    steps: 0,
                    source: None,
                    questions: None,
                    allowed: allowed.map(|p| (p.rate_per_second(), p.burst())),
                    price_per_thousand: service.and_then(|service| service.price_per_thousand),
                    lane: one.lane,
                },
            ));
            all.len() - 1
        });
        let Some((_, asked)) = all.get_mut(at) else { continue };
        if !asked.service.split(" and ").any(|name| name == one.service) {
            asked.service.push_str(&format!(" and {}", one.service));
        }
        asked.lane.limit = asked.lane.limit.and(one.lane.limit);
        asked.price_per_thousand =
            asked.price_per_thousand.or(service.and_then(|service| service.price_per_thousand));
        if one.source {
            asked.source = Some(source);
        } else {
            asked.steps += 1;
        }
    }
    let bucket = pipeline.source.as_ref().and_then(|from| from.file.as_deref()?.strip_prefix("s3://"));
    let mut all: Vec<ServiceLoad> = all.into_iter().map(|(_, asked)| asked).collect();
    all.extend(bucket.map(|rest| ServiceLoad {
        service: format!("s3://{}", rest.split('/').next().unwrap_or_default()),
        profile: Some("s3".into()),
        steps: 0,
        source: Some(source),
        questions: None,
        allowed: None,
        price_per_thousand: None,
        lane: StoreSettings::default().lane,
    }));
    for asked in &mut all {
        let known = asked.source.is_none_or(|source| source.requests.is_some());
        asked.questions = match (records, known) {
            (Some(records), true) => Some(asked.for_records(records)),
            (None, true) if asked.steps == 0 => Some(asked.for_records(0)),
            _ => None,
        };
    }
    all
}

/// Plans a run. Nothing is written; a source that is a service is asked for its description and its
/// first page, one that is a file elsewhere is fetched to be looked at, and no step asks anything.
///
/// # Errors
/// Why it cannot work, in a sentence.
pub fn plan(manifest: &Manifest, folder: &Path) -> Result<Plan, SetupError> {
    let parts = build(manifest, folder, None, Arc::default()).map_err(String::from)?;
    let opening = parts.traffic.requests();
    let left = parts.source.left();
    let requests = match left {
        Some(left) => left.requests.map(|left| left + opening),
        None => Some(opening),
    };
    let pages = PagePlan { requests, opening, page: left.map(|left| left.page) };
    let layer = parts.source.layer();
    let fields = |schema: &tidegate_geo::Schema| {
        schema.fields().iter().map(|field| (field.name.clone(), field.kind.to_string())).collect::<Vec<_>>()
    };
    let policy = Policy::from(manifest);
    let pipeline = &manifest.pipeline;
    let batch_size = u64::from(pipeline.source.as_ref().map_or(1, |source| source.batch_size));
    // A page is a batch.
    let batch_size = left.map_or(batch_size, |left| left.page).max(1);
    let attempts = u64::from(policy.call.attempts_max)
        + u64::from(policy.call.throttles_free)
        + u64::from(policy.call.outages_free);
    let asked = asked(manifest, &policy, (layer.records, pages));
    let calls = asked.iter().try_fold(0, |all: u64, asked| Some(all.saturating_add(asked.questions?)));
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
