//! `tidegate check`: reports every problem in a file of features.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_geo::check::{self, Checks, Outputs, Report, Watch};
use tidegate_geo::format::Rejected;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::validity::{Flaw, Limits, Warning};
use tidegate_geo::{Batch, format};

use crate::complete;
use crate::execute::counted;
use crate::exit::Exit;
use crate::layer::FormatArg;
use crate::progress::thousands;
use crate::{layer, out};
use clap_complete::ArgValueCandidates;

/// Check a file for unreadable records and invalid geometries
///
/// Report every unreadable record with its path and byte offset, and every invalid geometry with its
/// location and the reason in the words of GEOS. Valid but suspicious geometries (repeated points,
/// spikes, tiny rings, self-intersecting lines) are warnings.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate check parcels.geojson
  tidegate check parcels.gpkg --layer parcels --format json
  tidegate check parcels.geojson --valid good.gpkg --invalid bad.gpkg --defects where.geojson
  tidegate check places.csv --decimals 4
  tidegate check parcels.fgb --format ndjson | jq -r .reason | sort | uniq -c

Exit codes: 0 all records are valid, with or without warnings; 1 some are not, or the file cannot be
read; 2 no such file, layer or format.")]
pub(crate) struct Args {
    /// File to check
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format of FILE [default: decided by its extension, else by its first bytes]
    #[arg(long, value_name = "FORMAT", value_enum)]
    input_format: Option<FormatArg>,

    /// Layer to check [default: all]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    layer: Option<String>,

    /// Write the valid features to this file
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,

    /// Write the invalid features to this file
    #[arg(long, value_name = "FILE")]
    invalid: Option<PathBuf>,

    /// Write a point for each defect to this file, with record, severity and reason
    #[arg(long, value_name = "FILE")]
    defects: Option<PathBuf>,

    /// Warn about points whose coordinates both have fewer decimal places than this
    #[arg(long, value_name = "N")]
    decimals: Option<u8>,

    /// Warn about angles sharper than this
    #[arg(long, value_name = "DEGREES", default_value_t = 0.5)]
    spike: f64,

    /// Warn about rings with a smaller area, in square units [default: about 0.1 square metres]
    #[arg(long, value_name = "AREA")]
    tiny: Option<f64>,

    /// Report only invalid records, no warnings
    #[arg(long)]
    no_warnings: bool,

    /// Accept coordinates that cannot be in the declared coordinate reference system
    #[arg(long)]
    trust_crs: bool,

    /// Output format: a table, one JSON object, or one JSON object per finding and line
    #[arg(long, value_enum, default_value = "table")]
    format: CheckFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    Table,
    Json,
    Ndjson,
}

/// The most findings that the table and the JSON object list; all are counted.
const LISTED_MAX: usize = 1000;
const SHOWN_MAX: usize = 20;

impl Args {
    fn read(&self, layer: Option<String>) -> ReadOptions {
        let format = self.input_format.map(FormatArg::format);
        ReadOptions { format, layer, ..ReadOptions::default() }
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let give_up = |error: &tidegate_geo::Error| Ok(layer::give_up("check", &args.file, error));
    let names = match (&args.layer, format::layers(&args.file, &args.read(None))) {
        (Some(name), Ok(_)) => vec![Some(name.clone())],
        (None, Ok(names)) if names.len() > 1 => names.into_iter().map(Some).collect(),
        (None, Ok(_)) => vec![None],
        (_, Err(error)) => return give_up(&error),
    };
    let outputs =
        Outputs { valid: args.valid.clone(), invalid: args.invalid.clone(), defects: args.defects.clone() };
    if names.len() > 1 && (args.valid.is_some() || args.invalid.is_some() || args.defects.is_some()) {
        out::say(
            "tidegate check: the file has several layers; select one with --layer to use --valid, --invalid or --defects",
        );
        return Ok(Exit::Usage);
    }
    let mut all = Vec::new();
    let mut good = true;
    for name in names {
        let read = args.read(name);
        let in_degrees = match format::open(&args.file, &read) {
            Ok(reader) => {
                reader.layer().crs.as_ref().and_then(tidegate_geo::Crs::entry).is_none_or(|e| e.geographic)
            }
            Err(error) => return give_up(&error),
        };
        let usual = Limits::usual(in_degrees);
        let limits = Limits {
            decimals_min: args.decimals,
            spike_degrees: args.spike,
            ring_area_min: args.tiny.unwrap_or(usual.ring_area_min),
            ..usual
        };
        let limits = (!args.no_warnings).then_some(limits);
        let checks = Checks { read, outputs: outputs.clone(), limits, trust_crs: args.trust_crs };
        let mut findings =
            Findings { stream: args.format == CheckFormat::Ndjson, listed: Vec::new(), count: 0 };
        let report = match check::check(&args.file, &checks, &mut findings) {
            Ok(report) => report,
            Err(tidegate_geo::Error::Io(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Err(e),
            Err(error) => {
                layer::give_up("check", &args.file, &error);
                return Ok(Exit::Failure);
            }
        };
        if let Some(problem) = &report.mismatch {
            findings.add(mismatch(problem))?;
        }
        good &= report.is_good();
        match args.format {
            CheckFormat::Table => out::data(&table(args, &report, &findings))?,
            CheckFormat::Json => {
                let mut said = layer::report(&report);
                said["findings"] = findings.listed.into();
                said["findings_total"] = findings.count.into();
                all.push(said);
            }
            CheckFormat::Ndjson => {}
        }
    }
    if args.format == CheckFormat::Json {
        let answer = json!({ "file": args.file.display().to_string(), "valid": good, "layers": all });
        out::data(&format!("{answer:#}\n"))?;
    }
    Ok(if good { Exit::Done } else { Exit::Failure })
}

/// The findings, streamed or collected.
struct Findings {
    stream: bool,
    listed: Vec<Value>,
    count: u64,
}

impl Findings {
    fn add(&mut self, finding: Value) -> io::Result<()> {
        self.count += 1;
        if self.stream {
            return writeln!(io::stdout().lock(), "{finding}");
        }
        if self.listed.len() < LISTED_MAX {
            self.listed.push(finding);
        }
        Ok(())
    }
}

impl Watch for Findings {
    fn feature(
        &mut self,
        batch: &Batch,
        row: usize,
        flaw: Option<&Flaw>,
        warnings: &[Warning],
    ) -> io::Result<()> {
        let place = |severity: &str, reason: String, x: f64, y: f64| {
            json!({
                "record": batch.record(row),
                "id": batch.id(row).and_then(|id| serde_json::from_str::<Value>(id).ok()),
                "severity": severity,
                "code": if severity == "error" { Some("INVALID_GEOMETRY") } else { None },
                "reason": reason,
                "x": x,
                "y": y,
            })
        };
        if let Some(flaw) = flaw {
            self.add(place("error", flaw.reason.to_string(), flaw.x, flaw.y))?;
        }
        for warning in warnings {
            self.add(place("warning", warning.concern.to_string(), warning.x, warning.y))?;
        }
        Ok(())
    }

    fn rejected(&mut self, rejected: &Rejected) -> io::Result<()> {
        for problem in &rejected.problems {
            self.add(json!({
                "record": rejected.record,
                "severity": "error",
                "code": problem.code.as_str(),
                "reason": problem.message,
                "path": Some(problem.path.as_str()).filter(|path| !path.is_empty()),
                "offset": problem.offset,
            }))?;
        }
        Ok(())
    }
}

fn mismatch(problem: &tidegate_geo::Problem) -> Value {
    json!({ "record": problem.record, "severity": "error", "code": problem.code.as_str(), "reason": problem.message })
}

fn table(args: &Args, report: &Report, findings: &Findings) -> String {
    let mut said = String::new();
    let mut line = |text: String| {
        said.push_str(&text);
        said.push('\n');
    };
    let name = layer::plain(&report.layer.name);
    let total = report.features + report.rejected;
    line(format!("{}: {name}: {}", args.file.display(), counted(total, "record", "records")));
    line(format!("  {:>9} valid", thousands(report.features - report.invalid())));
    if report.rejected > 0 {
        line(format!("  {:>9} unreadable", thousands(report.rejected)));
    }
    for (reason, count) in &report.reasons {
        line(format!("  {:>9} invalid: {reason}", thousands(*count)));
    }
    if let Some(problem) = &report.mismatch {
        line(format!("  {}", words(&mismatch(problem))));
    }
    for (concern, count) in &report.concerns {
        line(format!("  {:>9} warning: {concern}", thousands(*count)));
    }
    for finding in findings.listed.iter().take(SHOWN_MAX) {
        line(format!("  {}", words(finding)));
    }
    if findings.count > SHOWN_MAX as u64 {
        line(format!(
            "  and {} more; use --format ndjson to list all",
            thousands(findings.count - SHOWN_MAX as u64)
        ));
    }
    said
}

fn words(finding: &Value) -> String {
    let text = |name: &str| finding[name].as_str().map(layer::plain).unwrap_or_default();
    let mut said = format!("{} record {}: {}", text("severity"), finding["record"], text("reason"));
    match (finding["x"].as_f64(), finding["y"].as_f64()) {
        (Some(x), Some(y)) => said.push_str(&format!(" at {x} {y}")),
        _ => {
            if finding["path"].is_string() {
                said.push_str(&format!(" at {}", text("path")));
            }
            if let Some(offset) = finding["offset"].as_u64() {
                said.push_str(&format!(", byte {offset}"));
            }
        }
    }
    said
}
