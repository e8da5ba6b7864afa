//! The result of the last reading as metrics.

use tidegate_pipeline::run::{LastRun, RunStatus};
use tidegate_pipeline::telemetry::metric as m;
use tidegate_pipeline::telemetry::sample::{self, Of, Sample};
use tidegate_pipeline::telemetry::{RecordEnd, letter_samples};

use super::look::{StoreSummary, StoreView};

/// The samples of each pipeline and each store, by name.
pub(super) fn readings(view: &StoreView, now_ms: i64) -> Vec<(String, Vec<Sample>)> {
    let own = vec![
        Sample::number(&m::STARTED, view.began_ms as f64 / 1e3),
        Sample::of(&m::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0),
    ];
    let mut all = vec![("serve".to_owned(), own)];
    all.extend(view.runs.iter().map(|run| (run.pipeline.clone(), last_run(run))));
    all.extend(view.stores.iter().map(|seen| (seen.name.clone(), store(seen, now_ms))));
    all
}

/// The same, borrowed for the exporters.
pub(super) fn of(readings: &[(String, Vec<Sample>)]) -> Vec<Of<'_>> {
    readings.iter().map(|(name, samples)| (Some(name.as_str()), samples.as_slice())).collect()
}

/// The same in the Prometheus format.
pub(super) fn prometheus(view: &StoreView, now_ms: i64) -> String {
    sample::prometheus(&of(&readings(view, now_ms)))
}

fn last_run(run: &LastRun) -> Vec<Sample> {
    let mut out = vec![
        Sample::number(&m::LAST_RUN, run.at_ms as f64 / 1e3),
        Sample::number(&m::LAST_RUN_TOOK, run.elapsed_seconds),
        Sample::number(&m::LAST_RUN_READ, run.offered() as f64),
    ];
    for status in RunStatus::ALL {
        let on = f64::from(u8::from(status == run.status));
        out.push(Sample::of(&m::LAST_RUN_STATUS, &[status.word()], on));
    }
    for (how, count) in [
        (RecordEnd::Matched, run.committed()),
        (RecordEnd::NoMatch, run.no_match),
        (RecordEnd::Failed, run.rejected),
        (RecordEnd::Filtered, run.filtered),
        (RecordEnd::Deduped, run.deduped),
    ] {
        out.push(Sample::of(&m::LAST_RUN_RECORDS, &[how.outcome()], count as f64));
    }
    out
}

/// A store that cannot be read reports only that: its previous values may be outdated.
fn store(seen: &StoreSummary, now_ms: i64) -> Vec<Sample> {
    let readable = f64::from(u8::from(seen.fault.is_none()));
    let mut out = vec![
        Sample::number(&m::LETTER_READABLE, readable),
        Sample::number(&m::LETTER_PURGED, seen.purged as f64),
    ];
    match &seen.health {
        Some(health) => {
            out.extend(letter_samples(health, now_ms));
            out.push(Sample::number(&m::LETTER_INCIDENTS, seen.incidents.len() as f64));
        }
        None if !seen.there => {
            out.extend([&m::LETTERS, &m::LETTERS_OPEN].map(|metric| Sample::number(metric, 0.0)));
        }
        None => {}
    }
    for (alert, firing) in &seen.judged {
        out.push(Sample::of(&m::ALERT, &[alert], f64::from(u8::from(*firing))));
    }
    out
}
