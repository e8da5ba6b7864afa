//! `tidegate raster repair`: a new file from one whose header is broken.

use std::io;
use std::path::PathBuf;

use serde_json::json;
use tidegate_geo::Crs;
use tidegate_pipeline::raster::LocalCopy;
use tidegate_raster::repair::{RepairError, RepairOptions, RepairOutcome, RepairReport, diagnose, repair};

use super::reach;
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::out::{self, OutputFormat};

/// Repair a GeoTIFF whose header is broken
///
/// Write a new file with the same pixels and a header that tells the truth. The input is never
/// changed. A repair counts only when something proves it: the checksum of every block, sizes that fit
/// one reading only, or the block leaders of a COG. What cannot be proven is refused with the reason.
/// All changed fields are printed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster repair broken.tif repaired.tif
  tidegate raster repair broken.tif repaired.tif --crs EPSG:32633
  tidegate raster repair cut.tif rest.tif --partial
  tidegate raster repair broken.tif --dry-run --format json

Exit codes: 0 sound or repaired; 1 refused, or the disk fails; 2 usage error; 4 recovered in part; 75
the server is down or throttles, or the file is what a busy service answered: fetch it again.")]
pub(crate) struct RepairRaster {
    /// File to repair: a path, or an address on a web server or in an object store, without its sidecars
    input: RasterFile,

    /// New file; the input is copied if nothing is wrong with it
    #[arg(required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    /// Write what is left of a file with lost blocks, with a mask of the lost pixels
    #[arg(long)]
    partial: bool,

    /// Coordinate reference system to write if the file names none, such as EPSG:32633
    #[arg(long, value_name = "CRS")]
    crs: Option<Crs>,

    /// Accept a picture without a place and a coordinate reference system
    #[arg(long)]
    unplaced: bool,

    /// Most pixels that a file may claim [default: 2^36, and no more than 256 times the file's size]
    #[arg(long, value_name = "N")]
    max_pixels: Option<u64>,

    /// Print what a repair would do and write nothing
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,

    /// Output format of the report
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

pub(crate) fn run(args: &RepairRaster) -> io::Result<Exit> {
    let options = RepairOptions {
        partial: args.partial,
        crs: args.crs.clone(),
        unplaced: args.unplaced,
        max_pixels: args.max_pixels,
    };
    let copy = if super::is_elsewhere(&args.input) {
        let beside = match &args.output {
            Some(output) => output.clone(),
            None => std::env::temp_dir().join(format!("tidegate-repair-{}.tif", std::process::id())),
        };
        match reach::written(&args.input).and_then(|from| LocalCopy::new(&from, &beside, &reach::get())) {
            Ok(copy) => Some(copy),
            Err(error) => return Ok(super::give_up("repair", &args.input, &error)),
        }
    } else {
        None
    };
    let input = copy.as_ref().map_or(args.input.as_path(), LocalCopy::path);
    let done = match &args.output {
        Some(output) => repair(input, output, &options),
        None => diagnose(input, &options),
    };
    match done {
        Ok(report) => {
            told(args, &report)?;
            Ok(if report.outcome == RepairOutcome::Partial { Exit::DeadLetters } else { Exit::Done })
        }
        Err(error) => refused(args, &error),
    }
}

fn told(args: &RepairRaster, report: &RepairReport) -> io::Result<()> {
    if args.format == OutputFormat::Json {
        let mut said = serde_json::to_value(report).map_err(io::Error::other)?;
        if let Some(all) = said.as_object_mut() {
            all.insert("input".into(), super::named(&args.input).into());
            all.insert("output".into(), args.output.as_ref().map(|path| path.display().to_string()).into());
        }
        return out::data(&format!("{said:#}\n"));
    }
    let mut text = format!("{}: {}", super::named(&args.input), report.outcome.word());
    match report.outcome {
        RepairOutcome::Sound => {}
        RepairOutcome::Repaired => text.push_str(&format!(", proof: {}", report.proof.word())),
        RepairOutcome::Partial => text.push_str(&format!(
            ", {} % of the pixels, {} of {} blocks lost, proof: {}",
            report.percent_recovered(),
            report.blocks_lost_count,
            report.blocks,
            report.proof.word()
        )),
    }
    text.push('\n');
    for change in &report.changes {
        text.push_str(&format!("  {change}\n"));
    }
    for warning in &report.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    out::data(&text)
}

fn refused(args: &RepairRaster, error: &RepairError) -> io::Result<Exit> {
    if let (OutputFormat::Json, RepairError::Refused(refusal)) = (args.format, error) {
        let said = json!({
            "input": super::named(&args.input),
            "outcome": "refused",
            "code": refusal.code.as_str(),
            "reason": refusal.reason,
            "excerpt": refusal.excerpt,
            "transient": refusal.transient,
        });
        out::data(&format!("{said:#}\n"))?;
    }
    // Whoever named the file may see how it begins.
    let excerpt = match error {
        RepairError::Refused(refusal) => refusal.excerpt.as_ref().map(|said| format!(": {said}")),
        RepairError::Io(_) => None,
    };
    let excerpt = excerpt.unwrap_or_default();
    out::say(&format!("tidegate raster repair: {}: {error}{excerpt}", super::named(&args.input)));
    if let RepairError::Refused(refusal) = error {
        out::failed(refusal.code.as_str());
    }
    Ok(match error {
        RepairError::Refused(refusal) if refusal.transient => Exit::TryLater,
        RepairError::Io(error) if error.kind() == io::ErrorKind::NotFound => Exit::Usage,
        _ => Exit::Failure,
    })
}
