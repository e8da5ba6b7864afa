//! `dlq capture`: stores features that fail the gates as letters and writes the others to a file.
//!
//! The smallest pipeline: a file in, a file out. It makes `fix` and `replay` usable without a
//! manifest, and imports records that other programs rejected.

use std::path::PathBuf;

use serde_json::json;
use tidegate_core::Code;
use tidegate_core::letter::FailureClass;
use tidegate_geo::Crs;
use tidegate_geo::validity::{Reason, first_flaw};
use tidegate_ledger::letter::feature::FeaturePayload;
use tidegate_ledger::letter::replay::{IntoFile, Rerun};
use tidegate_ledger::letter::{
    Failure, Letter, LetterSource, Letters, Payload, Put, RecordKeys, Versions, flood, worker,
};
use tidegate_pipeline::run::of_capture;

use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;

/// Load features from a GeoJSON file: valid ones into a file, invalid ones into the store
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  tidegate dlq capture parcels.geojson --into parcels.gpkg --pipeline parcels")]
pub(super) struct Args {
    /// GeoJSON file: a collection, or one feature per line
    file: PathBuf,
    /// Output file for valid features, written by key
    #[arg(long, value_name = "FILE")]
    into: PathBuf,
    /// Name of the pipeline [default: the file name]
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Coordinate reference system of the features, if they declare none
    #[arg(long, value_name = "CRS")]
    crs: Option<String>,
    /// Days to keep letters, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,
}

/// The code and message if a feature fails the gates.
fn judge(feature: &FeaturePayload, crs: Option<&str>) -> Option<(Code, String)> {
    if feature.geometry().is_none() {
        return Some((Code::INVALID_GEOMETRY, "the feature has no geometry".into()));
    }
    let wkb = match feature.wkb() {
        Ok(wkb) => wkb,
        Err(why) => return Some((Code::INVALID_GEOMETRY, why.to_string())),
    };
    let said = feature.said_crs().or_else(|| crs.map(str::to_owned));
    if let Some(Err(problem)) = said.as_deref().map(str::parse::<Crs>) {
        return Some((Code::CRS_NOT_FOUND, problem.message));
    }
    if let Some(flaw) = first_flaw(&wkb) {
        let code =
            if flaw.reason == Reason::RingNotClosed { Code::UNCLOSED_RING } else { Code::INVALID_GEOMETRY };
        return Some((code, flaw.to_string()));
    }
    match feature.spatial(said.as_deref()).and_then(|s| s.bbox) {
        Some([w, s, e, n]) if w < -180.0 || s < -90.0 || e > 180.0 || n > 90.0 => {
            let swapped = s >= -180.0 && n <= 180.0 && w >= -90.0 && e <= 90.0;
            let code = if swapped { Code::AXIS_ORDER_SWAPPED } else { Code::OUT_OF_BOUNDS };
            Some((
                code,
                format!("the bounds {w} {s} {e} {n} are outside the range of longitude and latitude"),
            ))
        }
        Some(_) => None,
        None => {
            Some((Code::CRS_NOT_FOUND, "the position in longitude and latitude cannot be computed".into()))
        }
    }
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    let text =
        std::fs::read_to_string(&args.file).map_err(|e| usage(format!("{}: {e}", args.file.display())))?;
    let stem = args.file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let pipeline = args.pipeline.clone().unwrap_or(stem);
    if let Some(open) = desk.store.incidents(Some(&pipeline))?.first() {
        return Err(CommandFailure(
            Exit::TryLater,
            format!(
                "{pipeline} is suspended by incident {}; fix the cause, then close it: {}",
                open.incident,
                desk.command(&format!("incidents --close {}", open.incident))
            ),
        ));
    }
    let records = records(&text).map_err(|e| usage(format!("{}: {e}", args.file.display())))?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let output = absolute(&args.into);
    let letters = Letters::open(&desk.place)?;
    letters.warning().into_iter().for_each(out::say);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut keys = RecordKeys::default();
    for (n, record) in records.iter().enumerate() {
        let (letter, failed) =
            letter(args, &pipeline, &absolute(&args.file), (n, record, &mut keys), desk.now_ms);
        if failed { bad.push(letter) } else { good.push(letter) }
    }
    if let Some(incident) = flood(&bad, records.len() as u64, &Default::default()) {
        let number = desk.store.incident_open(&incident)?;
        let why = format!(
            "incident {number}: {} of {} records failed with {} ({}); nothing was written and {pipeline} is suspended",
            incident.failed, incident.batch, incident.code, incident.message
        );
        return Err(CommandFailure(Exit::TryLater, why));
    }
    desk.store.define(&pipeline, &of_capture(&output))?;
    // The letters must be durable before the output is written.
    let puts = letters.put(&bad).wait()?;
    letters.close();
    let new = puts.iter().filter(|put| matches!(put, Put::New(_))).count() as u64;
    let mut sink = IntoFile { output };
    sink.run(&good).map_err(|why| CommandFailure(Exit::Failure, why.to_string()))?;
    let told = json!({
        "records": records.len(), "committed": good.len(), "dead": bad.len(), "new_letters": new,
    });
    if desk.format == LetterFormat::Table {
        out::say(&format!(
            "{}: {} committed, {} ({} new)",
            args.into.display(),
            counted(good.len() as u64, "feature", "features"),
            counted(bad.len() as u64, "dead letter", "dead letters"),
            thousands(new)
        ));
    } else {
        out::data(&format!("{told}\n"))?;
    }
    Ok(if bad.is_empty() { Exit::Done } else { Exit::DeadLetters })
}

/// The features of a collection or of lines, each as text.
fn records(text: &str) -> Result<Vec<String>, String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() > 1 && lines.iter().all(|line| line.starts_with('{') && line.ends_with('}')) {
        return Ok(lines.into_iter().map(str::to_owned).collect());
    }
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    match value.get("features").and_then(|f| f.as_array()) {
        Some(features) => Ok(features.iter().map(ToString::to_string).collect()),
        None => Ok(vec![value.to_string()]),
    }
}

/// The feature as a letter, and whether it failed the gates.
fn letter(
    args: &Args,
    pipeline: &str,
    file: &std::path::Path,
    (n, record, keys): (usize, &str, &mut RecordKeys),
    now_ms: i64,
) -> (Letter, bool) {
    let feature = FeaturePayload::parse(record.as_bytes());
    let failed = match &feature {
        Ok(feature) => judge(feature, args.crs.as_deref()),
        Err(why) => Some((Code::UNEXPECTED_BODY, why.to_string())),
    };
    let spatial =
        feature.as_ref().ok().and_then(|f| f.spatial(f.said_crs().or_else(|| args.crs.clone()).as_deref()));
    let id = feature.as_ref().ok().and_then(|f| f.json.get("id").map(ToString::to_string));
    let position = format!("record {n}");
    let (code, message) = failed.clone().unwrap_or((Code::OK, String::new()));
    let letter = Letter {
        pipeline: pipeline.to_owned(),
        stage: "gate".into(),
        task: position.clone(),
        idempotency_key: match &feature {
            Ok(feature) => keys.of_feature(pipeline, feature, n as u64),
            Err(_) => keys.of_bytes(pipeline, record.as_bytes(), n as u64),
        },
        effect_key: format!("{pipeline}#{}", id.unwrap_or_else(|| n.to_string())),
        content_type: "application/geo+json".into(),
        payload: Payload { received: record.as_bytes().to_vec(), current: None },
        versions: Versions { binary: env!("CARGO_PKG_VERSION").into(), ..Versions::default() },
        source: LetterSource { uri: file.display().to_string(), position },
        spatial,
        failure: Failure {
            class: FailureClass::of(code, None),
            code,
            message,
            driver: "geojson".into(),
            worker: worker(),
            failed_ms: now_ms,
            ..Failure::default()
        },
        // Each capture is a run of its own: the next one over the same file counts.
        run: format!("capture {} {now_ms}", std::process::id()),
        ..Letter::default()
    };
    (letter.retained_for(args.retention), failed.is_some())
}
