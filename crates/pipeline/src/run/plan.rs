//! Plans a run without executing it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::bucket::BucketAddress;
use tidegate_core::lane::LaneConfig;
use tidegate_geo::format::Format;
use tidegate_geo::format::csv::CsvReader;
use tidegate_geo::format::geojson::ReadOptions;

use super::build::{PipelineParts, build};
use super::fetched::is_remote;
use super::report::RunError;
use crate::lane::LaneKey;
use crate::manifest::objects::{self, ObjectsLine};
use crate::manifest::{InputFormat, Manifest, Policy, ServiceSpec, SourceSpec};
use crate::sink::SinkError;
use crate::step::{self, Aside};
use crate::store::StoreSettings;
use crate::traffic;

/// How many requests a plan shows.
const REQUESTS_SHOWN: usize = 10;
/// How many pages are read to find them, if earlier steps drop records.
const PAGES_SHOWN: usize = 10;

/// What a run would do.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The number of records in the source, if known before reading.
    pub records: Option<u64>,
    /// The layer to read.
    pub layer: String,
    /// Its coordinate reference system.
    pub source_crs: Option<String>,
    /// The fields of the source, with their types.
    pub fields_in: Vec<(String, String)>,
    /// The steps.
    pub steps: Vec<String>,
    /// What may be opened by paths and addresses in the data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectsLine>,
    /// The fields of the sink, with their types.
    pub fields_out: Vec<(String, String)>,
    /// The geometry type in the sink; `None` if mixed or unknown.
    pub shape: Option<String>,
    /// The coordinate reference system of the sink.
    pub sink_crs: String,
    /// The gates with severity and highest failure rate, from 0 to 1.
    pub gates: Vec<(String, String, f64)>,
    /// The sink.
    pub sink: String,
    /// What prevents writing the records to an existing table, each with what removes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sink_problems: Vec<String>,
    /// Why the sink could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_unknown: Option<String>,
    /// Whether that is because its database is down.
    #[serde(skip)]
    pub sink_down: bool,
    /// What happens to existing records.
    pub mode: String,
    /// The key fields.
    pub key: Vec<String>,
    /// Whether an interrupted run continues at a batch; otherwise it starts again.
    pub resumable: bool,
    /// The number of batches, if the number of records is known.
    pub batches: Option<u64>,
    /// The number of calls by the source and steps, if nothing is cached and nothing is retried.
    pub calls: Option<u64>,
    /// The number of calls if every one fails as often as the policy allows.
    pub calls_max: Option<u64>,
    /// The services that are called.
    pub asked: Vec<ServiceLoad>,
    /// The longest time that one record may take, in seconds.
    pub record_seconds_max: f64,
    /// How long the run waits for a service that fails, in seconds; then it ends.
    pub patience_seconds: f64,
    /// The first requests of the first step that calls a service, without their secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// What differs from what was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The calls to one service, by all that share its lane.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceLoad {
    /// The name of the service; several names if they share host and key.
    pub service: String,
    /// Its profile, if it has one.
    pub profile: Option<String>,
    /// The number of steps that call it, each once per record.
    pub steps: u64,
    /// The services that it is a fallback of. Calls to it as a fallback are not predicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback_of: Vec<String>,
    /// The requests of the source to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<PagePlan>,
    /// The number of calls of source and steps, if nothing is cached, nothing is retried, and the
    /// number is known.
    pub questions: Option<u64>,
    /// The rate in calls per second and the burst in calls, from its profile.
    pub allowed: Option<(f64, u32)>,
    /// The rate that the manifest or the options ask for, in calls per second.
    pub rate_asked: Option<f64>,
    /// Whether it has a URL of its own, so that the limits of the profile are only an assumption.
    pub own_url: bool,
    /// The price of a thousand calls, if the manifest has one.
    pub price_per_thousand: Option<f64>,
    /// The retry policy of its calls, and where it is set.
    pub retry: RetryPlan,
    /// The lane that all calls share.
    #[serde(skip)]
    pub lane: LaneConfig,
    /// The policy of its calls.
    #[serde(skip)]
    pub policy: Policy,
}

/// The retry policy that applies to a service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryPlan {
    /// The section that sets it: `services.<name>.retry_policy` or `pipeline.retry_policy`.
    pub set_by: String,
    /// The maximum number of attempts for one record.
    pub max_attempts: u32,
    /// The deadline of one record, in seconds.
    pub deadline_seconds: f64,
    /// The share of the records read that may fail at its steps; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reject_rate: Option<f64>,
}

impl RetryPlan {
    fn of(policy: &Policy, service: Option<(&str, &ServiceSpec)>) -> RetryPlan {
        let own = service.filter(|(_, form)| form.retry_policy.is_some());
        RetryPlan {
            set_by: own.map_or_else(
                || "pipeline.retry_policy".to_owned(),
                |(name, _)| format!("services.{name}.retry_policy"),
            ),
            max_attempts: policy.call.attempts_max,
            deadline_seconds: policy.call.deadline.as_secs_f64(),
            max_reject_rate: service.and_then(|(_, form)| form.max_reject_rate),
        }
    }
}

/// The requests of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PagePlan {
    /// The number of requests, including those that describe the layer; `None` if the number of
    /// records is unknown.
    pub requests: Option<u64>,
    /// The number of requests before the second page. The plan has made them.
    pub opening: u64,
    /// The number of records on a page; `None` for a file.
    pub page: Option<u64>,
}

impl ServiceLoad {
    /// Why the run is slower than asked for: the profile allows less.
    fn capped(&self) -> Option<String> {
        let ((allowed, _), asked) = (self.allowed?, self.rate_asked?);
        if asked <= allowed {
            return None;
        }
        let profile = self.profile.as_deref().unwrap_or(&self.service);
        let then = if self.own_url {
            "the forecast assumes that; a server of your own may allow more"
        } else if self.lane.limit.rate_max.is_some_and(|rate| rate <= allowed) {
            "no more are sent"
        } else {
            "the service will refuse the rest, and the run slows down to that"
        };
        Some(format!(
            "{}: {asked} calls/s were asked for, but the profile {profile} allows {allowed}; {then}",
            self.service
        ))
    }

    /// Whether it is called only instead of another service.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.steps == 0 && self.source.is_none() && !self.fallback_of.is_empty()
    }

    /// The number of attempts for one record, if every one fails as often as the policy allows.
    fn attempts_max(&self) -> u64 {
        u64::from(self.policy.call.attempts_bound(self.policy.lane.limit.learn))
    }

    /// The number of calls of source and steps for this many records.
    #[must_use]
    pub fn for_records(&self, records: u64) -> u64 {
        let pages = self.source.map_or(0, |source| {
            let rest = source.page.map_or(0, |page| records.div_ceil(page.max(1)).saturating_sub(1));
            source.requests.unwrap_or(source.opening.saturating_add(rest))
        });
        records.saturating_mul(self.steps).saturating_add(pages)
    }
}

/// The number of records of a local CSV file, which does not declare one.
fn csv_records(form: &SourceSpec, folder: &Path) -> Option<u64> {
    let file = form.file.as_deref().filter(|file| !is_remote(file))?;
    let path = step::path(folder, file);
    let format = form.format.map(InputFormat::format).or_else(|| Format::of_path(&path));
    // The source has been opened already, so what cannot be read was reported there.
    (format == Some(Format::Csv))
        .then(|| CsvReader::open(&path, ReadOptions::default()).ok()?.count().ok())?
}

/// The first requests of the first step that calls a service, as a run would send them. Nothing is
/// sent: pages of services are not read for this, and the steps before it are local.
fn first_requests(parts: &mut PipelineParts) -> Vec<String> {
    let mut requests = Vec::new();
    let Some(at) = parts.steps.iter_mut().position(|named| named.step.as_remote().is_some()) else {
        return requests;
    };
    if parts.source.left().is_some() {
        return requests;
    }
    for _ in 0..PAGES_SHOWN {
        let Ok(Some(page)) = parts.source.next() else { break };
        let (earlier, rest) = parts.steps.split_at_mut(at);
        let through = earlier.iter_mut().try_fold(page.batch, |batch, named| {
            named.step.apply(batch, &mut Aside { stage: named.label.clone(), ..Aside::default() })
        });
        let (Ok(batch), Some(remote)) = (through, rest.first_mut().and_then(|named| named.step.as_remote()))
        else {
            break;
        };
        for row in 0..batch.len() {
            if requests.len() == REQUESTS_SHOWN {
                return requests;
            }
            let request = remote.preview(&batch, row);
            requests.push(request.unwrap_or_else(|problem| format!("none: {}", problem.message)));
        }
    }
    requests
}

fn asked(manifest: &Manifest, (records, source): (Option<u64>, PagePlan)) -> Vec<ServiceLoad> {
    let pipeline = &manifest.pipeline;
    let mut all: Vec<(LaneKey, ServiceLoad)> = Vec::new();
    for one in traffic::uses(manifest) {
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
                    fallback_of: Vec::new(),
                    source: None,
                    questions: None,
                    allowed: allowed.map(|p| (p.rate_per_second(), p.burst())),
                    rate_asked: None,
                    own_url: service.is_some_and(|service| service.url.is_some()),
                    price_per_thousand: service.and_then(|service| service.price_per_thousand),
                    retry: RetryPlan::of(&one.policy, service.map(|service| (one.service.as_str(), service))),
                    lane: one.lane,
                    policy: one.policy,
                },
            ));
            all.len() - 1
        });
        let Some((_, asked)) = all.get_mut(at) else { continue };
        if !asked.service.split(" and ").any(|name| name == one.service) {
            asked.service.push_str(&format!(" and {}", one.service));
        }
        asked.lane.limit = asked.lane.limit.and(one.lane.limit);
        let rate = service.and_then(|service| service.requests_per_second);
        let rate = rate.or(pipeline.rate_limit.requests_per_second);
        asked.rate_asked = match (asked.rate_asked, rate) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        asked.price_per_thousand =
            asked.price_per_thousand.or(service.and_then(|service| service.price_per_thousand));
        if let Some(of) = one.fallback_of {
            asked.fallback_of.push(of);
        } else if one.source {
            asked.source = Some(source);
        } else {
            asked.steps += 1;
        }
    }
    let policy = Policy::from(manifest);
    let bucket = pipeline.source.as_ref().and_then(|from| BucketAddress::parse(from.file.as_deref()?));
    let mut all: Vec<ServiceLoad> = all.into_iter().map(|(_, asked)| asked).collect();
    all.extend(bucket.map(|at| ServiceLoad {
        service: at.to_string(),
        profile: Some(at.cloud.profile().into()),
        steps: 0,
        fallback_of: Vec::new(),
        source: Some(source),
        questions: None,
        allowed: None,
        rate_asked: None,
        own_url: true,
        price_per_thousand: None,
        retry: RetryPlan::of(&policy, None),
        lane: StoreSettings::default().lane,
        policy,
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

/// Plans a run. Writes nothing. A service that is the source is asked for its description and its
/// first page, a remote file is downloaded to be examined, and steps make no calls.
///
/// # Errors
/// The reason why it cannot work.
pub fn plan(manifest: &Manifest, folder: &Path) -> Result<Plan, RunError> {
    let mut parts = build(manifest, folder, None, Arc::default())?;
    let opening = parts.traffic.requests();
    let left = parts.source.left();
    let requests = match left {
        Some(left) => left.requests.map(|left| left + opening),
        None => Some(opening),
    };
    let pages = PagePlan { requests, opening, page: left.map(|left| left.page) };
    let requests_shown = first_requests(&mut parts);
    let layer = parts.source.layer();
    let records = layer
        .records
        .or_else(|| manifest.pipeline.source.as_ref().and_then(|form| csv_records(form, folder)));
    let fields = |schema: &tidegate_geo::Schema| {
        schema.fields().iter().map(|field| (field.name.clone(), field.kind.to_string())).collect::<Vec<_>>()
    };
    let pipeline = &manifest.pipeline;
    let batch_size = u64::from(pipeline.source.as_ref().map_or(1, |source| source.batch_size));
    // A page is a batch.
    let batch_size = left.map_or(batch_size, |left| left.page).max(1);
    let asked = asked(manifest, (records, pages));
    let sum = |of: &dyn Fn(&ServiceLoad) -> Option<u64>| {
        asked.iter().try_fold(0, |all: u64, one| Some(all.saturating_add(of(one)?))).filter(|all| *all > 0)
    };
    let calls = sum(&|one| one.questions);
    let calls_max = sum(&|one| Some(one.questions?.saturating_mul(one.attempts_max())));
    let deadlines = asked.iter().map(|one| one.retry.deadline_seconds);
    let record_seconds_max = deadlines.reduce(f64::max).unwrap_or(pipeline.retry_policy.deadline_seconds);
    let mode = serde_json::to_value(parts.sink.mode)
        .ok()
        .and_then(|mode| mode.as_str().map(str::to_owned))
        .unwrap_or_default();
    let (sink_problems, sink_unknown, sink_down) = match parts.sink.differences() {
        Ok(problems) => (problems, None, false),
        Err(why) => (Vec::new(), Some(why.to_string()), matches!(why, SinkError::Transient { .. })),
    };
    Ok(Plan {
        pipeline: parts.id,
        sink_problems,
        sink_unknown,
        sink_down,
        records,
        layer: layer.name.clone(),
        source_crs: layer.crs.as_ref().map(ToString::to_string),
        fields_in: fields(&layer.schema),
        steps: pipeline.steps.iter().map(|form| form.name().to_owned()).collect(),
        objects: objects::told(manifest, folder),
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
        batches: records.map(|records| records.div_ceil(batch_size)),
        calls,
        calls_max,
        warnings: asked.iter().filter_map(ServiceLoad::capped).collect(),
        asked,
        record_seconds_max,
        patience_seconds: pipeline
            .source
            .as_ref()
            .map_or(SourceSpec::PATIENCE_SECONDS, |source| source.patience_seconds),
        requests: requests_shown,
    })
}
