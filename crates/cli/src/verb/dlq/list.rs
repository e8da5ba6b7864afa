//! `dlq ls`, `dlq stats`, `dlq export`: list, count and export letters.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_core::letter::auto::success;
use tidegate_core::letter::{LetterState, blur};
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::audit::AuditEvent;
use tidegate_ledger::letter::Letter;
use tidegate_ledger::letter::export;
use tidegate_ledger::letter::store::{By, Health, LetterPage};
use tidegate_pipeline::telemetry;

use super::filter::FilterArgs;
use super::subject::{AddressFields, record};
use super::table::{ago, table};
use super::{Done, LetterFormat, OpenLetterStore};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;

/// List open letters, newest first
///
/// A record that fails in the same way night after night is one letter: `times` counts the runs,
/// `first` and `last` say how long ago it failed first and last. Addresses in sealed letters are not
/// shown. Letters that are resolved, dismissed, archived or replaced are listed with --closed, or if
/// --state or --id selects them.
#[derive(clap::Args)]
pub(super) struct Ls {
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of letters
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// List closed letters too
    #[arg(long)]
    closed: bool,
    /// List the oldest first
    #[arg(long)]
    oldest: bool,
    /// Show exact coordinates; the reason is recorded in the audit
    #[arg(long, value_name = "WHY")]
    reveal: Option<String>,
}

/// Count letters by group
#[derive(clap::Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Property to group by
    #[arg(long, value_enum, default_value_t = Dimension::Fingerprint)]
    by: Dimension,
    /// Print Prometheus metrics of the store instead
    #[arg(long)]
    metrics: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dimension {
    Fingerprint,
    Code,
    Service,
    Pipeline,
    Class,
    Stage,
    State,
    Age,
}

/// Export letters as the layers valid, invalid, defects and nowhere
///
/// A .gpkg gets one table per layer; .fgb, .geojson, .ndjson and .csv get one with the field `layer`.
/// Geometries are exact; the export is recorded in the audit.
#[derive(clap::Args)]
pub(super) struct Export {
    #[command(flatten)]
    filter: FilterArgs,
    /// Output file; the extension selects the format
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Rounds to a tenth of a degree, about ten kilometres.
pub(super) fn coarse(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

/// Rounds the positions in all texts of a value.
fn blur_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = blur(text),
        Value::Array(items) => items.iter_mut().for_each(blur_all),
        Value::Object(fields) => fields.values_mut().for_each(blur_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The letter as JSON; coordinates are rounded unless `exact`.
pub(super) fn plain(letter: &Letter, exact: bool) -> Value {
    let mut letter = letter.clone();
    let fingerprint = letter.fingerprint().to_string();
    if let (Some(spatial), false) = (&mut letter.spatial, exact) {
        spatial.bbox = spatial.bbox.map(|b| b.map(coarse));
        spatial.native_bbox = None;
        if let Some(defect) = &mut spatial.defect {
            (defect.lon, defect.lat) = (coarse(defect.lon), coarse(defect.lat));
        }
    }
    let mut value = json!(letter);
    if !exact {
        for part in ["failure", "spatial", "remedies", "source"] {
            value.get_mut(part).map(blur_all);
        }
    }
    value["first_seen"] = rfc3339(letter.first_failed_ms()).into();
    value["last_seen"] = rfc3339(letter.last_seen_ms).into();
    value["record"] = record(&letter).into();
    value["fingerprint"] = fingerprint.into();
    value
}

fn place(letter: &Letter, exact: bool) -> String {
    let Some([w, s, e, n]) = letter.spatial.as_ref().and_then(|s| s.bbox) else { return String::new() };
    let (x, y) = (f64::midpoint(w, e), f64::midpoint(s, n));
    if exact { format!("{x:.6} {y:.6}") } else { format!("~{:.1} {:.1}", coarse(x), coarse(y)) }
}

pub(super) fn ls(args: &Ls, desk: &mut OpenLetterStore) -> Done {
    let mut filter = args.filter.filter(desk)?;
    if !args.closed && filter.states.is_empty() && filter.ids.is_empty() {
        filter.states = LetterState::ALL.into_iter().filter(|state| state.is_open()).collect();
    }
    let page = LetterPage { limit: args.limit, newest_first: !args.oldest, payload: true };
    let exact = args.reveal.is_some();
    if let Some(why) = &args.reveal {
        let detail = json!({ "verb": "ls", "why": why });
        desk.store.enter(AuditEvent::new(desk.now_ms, "reveal", detail))?;
    }
    let mut fields = AddressFields::default();
    let mut rows: Vec<(Letter, Option<String>)> = Vec::new();
    for row in desk.store.find(&filter, page)? {
        let address = fields.address(&mut desk.store, &row.letter)?;
        rows.push((row.letter, address));
    }
    let values = rows.iter().map(|(letter, address)| {
        let mut value = plain(letter, exact);
        if let Some(address) = address {
            value["address"] = address.as_str().into();
        }
        value
    });
    match desk.format {
        LetterFormat::Json => out::data(&format!("{:#}\n", json!(values.collect::<Vec<_>>())))?,
        LetterFormat::Ndjson => out::data(&values.map(|v| format!("{v}\n")).collect::<String>())?,
        LetterFormat::Table => {
            let cells: Vec<Vec<String>> = rows
                .iter()
                .map(|(l, address)| {
                    let id = l.id.to_string();
                    vec![
                        format!("…{}", id.get(24..).unwrap_or(&id)),
                        l.times.to_string(),
                        ago(l.first_failed_ms(), desk.now_ms),
                        ago(l.last_seen_ms, desk.now_ms),
                        l.state.to_string(),
                        l.failure.code.to_string(),
                        l.lineage.generation.to_string(),
                        l.pipeline.clone(),
                        record(l),
                        address.clone().unwrap_or_else(|| place(l, exact)),
                        if exact { l.failure.message.clone() } else { blur(&l.failure.message) },
                    ]
                })
                .collect();
            let head = [
                "id", "times", "first", "last", "state", "code", "gen", "pipeline", "record", "place",
                "message",
            ];
            out::data(&table(&head, &cells, &[1, 2, 3, 6]))?;
            let all = desk.store.count(&filter)?;
            if all > rows.len() as u64 {
                out::say(&format!("{} of {} letters shown; use -n to show more", rows.len(), thousands(all)));
            }
        }
    }
    Ok(Exit::Done)
}

pub(super) fn stats(args: &StatsArgs, desk: &mut OpenLetterStore) -> Done {
    if args.metrics {
        let health = desk.store.health(desk.now_ms)?;
        let samples = telemetry::letter_samples(&health, desk.now_ms);
        out::data(&telemetry::sample::prometheus(&[(None, &samples)]))?;
        return Ok(Exit::Done);
    }
    let filter = args.filter.filter(desk)?;
    let by = match args.by {
        Dimension::Fingerprint => By::Fingerprint,
        Dimension::Code => By::Code,
        Dimension::Service => By::Service,
        Dimension::Pipeline => By::Pipeline,
        Dimension::Class => By::Class,
        Dimension::Stage => By::Stage,
        Dimension::State => By::State,
        Dimension::Age => By::Age,
    };
    let groups = desk.store.stats(&filter, by, desk.now_ms)?;
    let values = groups.iter().map(|g| {
        json!({
            "name": g.name, "code": g.code, "class": g.class, "message": g.message, "letters": g.count,
            "open": g.open, "first_failed": rfc3339(g.first_ms), "last_failed": rfc3339(g.last_ms),
        })
    });
    match desk.format {
        LetterFormat::Json => out::data(&format!("{:#}\n", json!(values.collect::<Vec<_>>())))?,
        LetterFormat::Ndjson => out::data(&values.map(|v| format!("{v}\n")).collect::<String>())?,
        LetterFormat::Table => {
            let rows: Vec<Vec<String>> = groups
                .iter()
                .map(|g| {
                    vec![
                        g.name.clone(),
                        thousands(g.count),
                        thousands(g.open),
                        ago(g.first_ms, desk.now_ms),
                        ago(g.last_ms, desk.now_ms),
                        g.class.clone(),
                        g.code.clone(),
                        g.message.clone(),
                    ]
                })
                .collect();
            let head = ["group", "letters", "open", "first", "last", "class", "code", "message"];
            out::data(&table(&head, &rows, &[1, 2, 3, 4]))?;
            let health = desk.store.health(desk.now_ms)?;
            out::say(&words(&health, desk.now_ms));
            for rule in &health.rules {
                let remedy = if rule.remedy.is_empty() { String::new() } else { format!(" {}", rule.remedy) };
                let share = success(rule.resolved, rule.failed).unwrap_or_default() * 100.0;
                out::say(&format!(
                    "unasked, {}: {}{remedy}: {} resolved, {} failed again, {share:.0} % success",
                    rule.pipeline,
                    rule.code,
                    thousands(rule.resolved),
                    thousands(rule.failed)
                ));
            }
        }
    }
    Ok(Exit::Done)
}

fn words(h: &Health, now_ms: i64) -> String {
    let share = h.letters as f64 / h.capacity.max(1) as f64;
    let oldest =
        h.oldest_ms.map_or_else(|| "none open".into(), |ms| format!("oldest open for {}", ago(ms, now_ms)));
    let mut line = format!(
        "{}, {} open, {oldest}; {} in the last hour; {:.1} MiB",
        counted(h.letters, "letter", "letters"),
        thousands(h.open),
        thousands(h.arrived_hour),
        h.bytes as f64 / f64::from(1 << 20),
    );
    if share >= 0.7 {
        line.push_str(&format!(
            "\nwarning: the store is {:.0} % full (capacity {} letters); archive and purge letters, or raise the capacity",
            share * 100.0,
            thousands(h.capacity)
        ));
    }
    line
}

pub(super) fn export(args: &Export, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.filter(desk)?;
    let done = export::export(&mut desk.store, &filter, &desk.keys, &args.output)?;
    let detail = json!({ "verb": "export", "file": args.output.display().to_string(), "layers": done });
    desk.store.enter(AuditEvent::new(desk.now_ms, "reveal", detail))?;
    if desk.format == LetterFormat::Table {
        out::say(&format!(
            "{}: {} valid, {} invalid, {} defect points, {} without coordinates",
            args.output.display(),
            thousands(done.valid),
            thousands(done.invalid),
            thousands(done.defects),
            thousands(done.nowhere)
        ));
    } else {
        out::data(&format!("{}\n", json!(done)))?;
    }
    Ok(Exit::Done)
}
