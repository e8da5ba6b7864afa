//! `dlq put`: a letter from a program or a shell that is no pipeline.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_client::secret;
use tidegate_core::Code;
use tidegate_ledger::letter::{LetterDraft, LetterSource, Letters, Put};

use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::exit::Exit;
use crate::out;

/// Put one letter into the store, from your own program or shell
///
/// The same code for the same record is one letter while it is open: another call counts it, as a
/// pipeline that fails every night does. The store is created if it does not exist.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate dlq put --pipeline import --code SCHEMA_MISMATCH --record 17 --payload parcel.json
  curl -s https://geo.example/parcels/17 | tidegate dlq put --pipeline import --code INVALID_GEOMETRY \\
      --message 'the ring is open' --crs EPSG:31256 --payload -")]
pub(super) struct Args {
    /// Name of the pipeline, or of the program that takes its place
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pipeline: String,
    /// Code of the failure, such as SCHEMA_MISMATCH
    #[arg(long, value_name = "CODE", value_parser = code)]
    code: Code,
    /// File with the record: a GeoJSON feature or geometry, or any other JSON; `-` for standard input
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// Key of the record, unique in the pipeline [default: the content of the record]
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    record: Option<String>,
    /// Error message
    #[arg(long, value_name = "TEXT", default_value = "")]
    message: String,
    /// Service that refused the record, such as a host
    #[arg(long, value_name = "NAME", default_value = "")]
    service: String,
    /// Coordinate reference system of the feature [default: the one that it declares, else WGS 84]
    #[arg(long, value_name = "CRS")]
    crs: Option<String>,
    /// Days to keep the letter, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,
}

fn code(text: &str) -> Result<Code, String> {
    match text.parse() {
        Ok(Code::OK) => Err("OK is no failure".into()),
        Ok(code) => Ok(code),
        Err(_) => Err("expected capital letters, digits and _, such as SCHEMA_MISMATCH".into()),
    }
}

/// The bytes of the record, and its source.
fn payload(path: &Path) -> Result<(Vec<u8>, String), CommandFailure> {
    let at = |e: std::io::Error| usage(format!("--payload {}: {e}", path.display()));
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        out::input().read_to_end(&mut bytes).map_err(at)?;
        return Ok((bytes, "standard input".into()));
    }
    let bytes = std::fs::read(path).map_err(at)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((bytes, absolute.display().to_string()))
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    let (payload, uri) = payload(&args.payload)?;
    let draft = LetterDraft {
        pipeline: args.pipeline.clone(),
        key: args.record.clone(),
        code: args.code,
        message: secret::mask(&args.message).into_owned(),
        service: args.service.clone(),
        payload,
        crs: args.crs.clone(),
        source: LetterSource { uri, position: String::new() },
        retention_days: args.retention,
    };
    // Each call is a run of its own, so that it counts.
    let run = format!("put {} {}", std::process::id(), desk.now_ms);
    let letter =
        draft.letter(&run).map_err(|why| usage(format!("--payload {}: {why}", args.payload.display())))?;
    let letters = Letters::open(&desk.place)?;
    letters.warning().into_iter().for_each(out::say);
    let put = letters.put(&[letter]).wait()?;
    letters.close();
    let id = put.first().and_then(|put| match put {
        Put::New(id) => Some(id.to_string()),
        Put::Known => None,
    });
    match (desk.format, &id) {
        (LetterFormat::Table, Some(id)) => out::data(&format!("{id}\n"))?,
        (LetterFormat::Table, None) => out::say("counted: an open letter has this record and code"),
        _ => out::data(&format!("{}\n", json!({ "new": id.is_some(), "id": id })))?,
    }
    Ok(Exit::Done)
}
