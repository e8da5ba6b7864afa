//! The report of a pipeline run: what the registry does not contain.

use std::path::Path;

use serde_json::Value as Json;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::letter::now_ms;
use tidegate_pipeline::manifest::{Manifest, objects};
use tidegate_pipeline::run::{End, RunError, RunReport as Result};
use tidegate_pipeline::telemetry::Telemetry;

use super::{OutcomeWords, ReportPage, Tone, page};
use crate::execute::counted;
use crate::observe::Observation;
use crate::progress::thousands;
use crate::summary::by_service;

/// The report of a run, whatever its outcome.
pub(crate) fn pipeline(
    (manifest, folder): (&Manifest, &Path),
    result: &std::result::Result<Result, RunError>,
    telemetry: &Telemetry,
    seen: &Observation,
) -> String {
    let (ended, tone) = match result {
        Err(error) => (format!("failed: {error}"), Tone::Bad),
        Ok(report) => match &report.end {
            End::Done if report.counts.dead() > 0 => {
                (format!("done; {} rejected", counted(report.counts.dead(), "record", "records")), Tone::Fair)
            }
            End::Done if report.counts.failed > 0 => {
                let failed = counted(report.counts.failed, "record", "records");
                (format!("done; {failed} failed, see their error field"), Tone::Fair)
            }
            End::Done if report.counts.read == 0 => {
                ("done; the source had no records".to_owned(), Tone::Fair)
            }
            End::Done => ("done; all records accounted for".to_owned(), Tone::Good),
            End::Halted(halt) => (format!("halted: {halt}"), Tone::Bad),
            End::Stopped => ("interrupted; use --resume to continue".to_owned(), Tone::Fair),
            End::Suspended(what) => (what.clone(), Tone::Bad),
            End::TryLater(code, until) if until.millis() <= now_ms() => {
                (format!("{code}: a service is unavailable; try again later"), Tone::Bad)
            }
            End::TryLater(code, until) => {
                (format!("{code}: a service asked to wait until {}", rfc3339(until.millis())), Tone::Bad)
            }
        },
    };
    let mut notes = Vec::new();
    if let Ok(report) = result {
        if report.resumed_at > 0 {
            notes.push(format!("resumed after record {}", thousands(report.resumed_at)));
        }
        let counts = &report.counts;
        // A new copy has nothing but new rows.
        if counts.updated + counts.unchanged + counts.deleted > 0 {
            notes.push(format!(
                "{} new, {} changed, {} unchanged",
                thousands(counts.inserted),
                thousands(counts.updated),
                thousands(counts.unchanged)
            ));
        }
        if counts.deleted > 0 {
            notes
                .push(format!("{} deleted: no longer in the source", counted(counts.deleted, "row", "rows")));
        }
        if report.counts.repaired > 0 {
            notes.push(format!("{} repaired", counted(report.counts.repaired, "geometry", "geometries")));
        }
        if report.end == End::Done && !report.sink.is_empty() {
            notes.push(format!("written to {}", report.sink));
        }
        notes.extend(by_service(&report.services));
        notes.extend(report.warnings.iter().cloned());
    }
    page(&ReportPage {
        kind: "Pipeline run",
        words: if manifest.pipeline.steps.iter().any(|step| step.geocode.is_some()) {
            OutcomeWords::GEOCODE
        } else {
            OutcomeWords::RUN
        },
        title: &manifest.pipeline.id,
        ended: &ended,
        tone,
        when: &rfc3339(now_ms()),
        telemetry,
        added: result.as_ref().map_or(0, |report| report.counts.added),
        seen,
        notes: &notes,
        policy: &policy(manifest),
        objects: &objects::of_rasters(&manifest.pipeline, folder).unwrap_or_default(),
    })
}

/// The policies of a manifest, defaults included.
fn policy(manifest: &Manifest) -> Vec<(String, Vec<(String, String)>)> {
    let all = serde_json::to_value(&manifest.pipeline).unwrap_or_default();
    let sections = ["retry_policy", "tolerance", "circuit_breaker", "retry_budget", "rate_limit"];
    let rows = |section: &str| match &all[section] {
        Json::Object(keys) => keys.iter().map(|(key, value)| (key.clone(), said(value))).collect(),
        _ => Vec::new(),
    };
    sections.map(|section| (section.to_owned(), rows(section))).to_vec()
}

fn said(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(", "),
        Json::Number(n) => n.as_f64().map_or_else(|| n.to_string(), |x| x.to_string()),
        Json::Bool(true) => "yes".to_owned(),
        Json::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}
