//! `tidegate init`: a first manifest for a file.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_engine::run::source::{FileSource, Source};
use tidegate_geo::format::Format;
use tidegate_geo::validity::Checker;
use tidegate_geo::{Kind, Value};

use crate::exit::Exit;
use crate::out;

/// Write a working manifest for a file
///
/// Reads the file once: layer, fields, coordinate reference system, nulls, invalid geometry, and a
/// field that could be the key. The manifest that comes out runs as it is and says in comments
/// what was found.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate init parcels.geojson > parcels.yaml
  tidegate init parcels.csv -o parcels.yaml --sink parcels.gpkg
  tidegate init parcels.fgb -o parcels.yaml --sink env:DATABASE_URL --table parcels

Exit codes: 0 written; 2 the file cannot be read or the manifest exists.")]
pub(crate) struct Args {
    /// The file to read: GeoJSON, CSV, GeoPackage, FlatGeobuf or Shapefile
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where the manifest goes; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Where the features go: a file, or the address of a database (`env:NAME`, `postgres://…`)
    #[arg(long, value_name = "FILE|URL")]
    sink: Option<String>,

    /// The table, if the sink is a database
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    if args.file.to_str().is_some_and(|name| name.contains("://")) {
        out::say("tidegate: init reads files so far; fetch the layer into a file first, and name that");
        return Ok(Exit::Usage);
    }
    let text = match look(&args.file).and_then(|found| manifest(args, &found)) {
        Ok(text) => text,
        Err(what) => {
            out::say(&format!("tidegate: {what}"));
            return Ok(Exit::Usage);
        }
    };
    let Some(path) = &args.output else {
        out::data(&text)?;
        return Ok(Exit::Done);
    };
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    match written.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes())) {
        Ok(()) => {
            out::say(&format!("{} written; next: tidegate plan {}", path.display(), path.display()));
            Ok(Exit::Done)
        }
        Err(e) => {
            out::say(&format!("tidegate: {}: {e}", path.display()));
            Ok(Exit::Usage)
        }
    }
}

/// What one pass finds.
struct Found {
    name: String,
    crs: Option<String>,
    geographic: bool,
    records: u64,
    rejected: u64,
    invalid: u64,
    without: u64,
    fields: Vec<(String, Kind, u64)>,
    key: Option<String>,
    mixed: bool,
}

fn look(path: &Path) -> Result<Found, String> {
    let mut source = FileSource::open(path, None, 4096)?;
    let layer = source.layer().clone();
    let mut fields: Vec<(String, Kind, u64)> =
        layer.schema.fields().iter().map(|field| (field.name.clone(), field.kind, 0)).collect();
    let mut keys: Vec<Option<std::collections::HashSet<String>>> = fields
        .iter()
        .map(|(name, kind, _)| {
            (likely_key(name) && matches!(kind, Kind::Int | Kind::Text)).then(Default::default)
        })
        .collect();
    let mut found = Found {
        name: layer.name.clone(),
        crs: layer.crs.as_ref().map(ToString::to_string),
        geographic: layer.crs.as_ref().is_some_and(tidegate_geo::Crs::is_wgs84),
        records: 0,
        rejected: 0,
        invalid: 0,
        without: 0,
        fields: Vec::new(),
        key: None,
        mixed: layer.schema.shape.is_none(),
    };
    let mut checker = Checker::default();
    while let Some(page) = source.next()? {
        found.rejected += page.rejected.len() as u64;
        found.records += page.batch.len() as u64;
        for row in 0..page.batch.len() {
            match page.batch.geometry(row) {
                None => found.without += 1,
                Some(wkb) => found.invalid += u64::from(checker.first_flaw(wkb).is_some()),
            }
            for (at, (field, key)) in fields.iter_mut().zip(&mut keys).enumerate() {
                let value = page.batch.value(row, at);
                let fresh = match value {
                    Value::Null => {
                        field.2 += 1;
                        false
                    }
                    Value::Int(i) => key.as_mut().is_some_and(|seen| seen.insert(i.to_string())),
                    Value::Text(text) => key.as_mut().is_some_and(|seen| seen.insert(text.to_owned())),
                    _ => false,
                };
                if !fresh {
                    *key = None;
                }
            }
        }
    }
    found.key = fields.iter().zip(&keys).find(|(_, key)| key.is_some()).map(|((name, _, _), _)| name.clone());
    found.fields = fields;
    Ok(found)
}

/// A name that keys have.
fn likely_key(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["id", "fid", "gid", "oid", "objectid", "key", "code", "uuid"].contains(&lower.as_str())
        || lower.ends_with("_id")
        || lower.ends_with("id") && lower.len() <= 12
}

/// A text as YAML takes it.
fn yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn manifest(args: &Args, found: &Found) -> Result<String, String> {
    let mut out = String::new();
    let mut line = |text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    let nulls: u64 = found.fields.iter().map(|(_, _, n)| n).sum();
    let values = found.records * found.fields.len() as u64;
    let share = if values == 0 { 0.0 } else { nulls as f64 / values as f64 };
    // Rounded up to a tenth of a percent, so that the same file passes.
    let allowed = (share * 1000.0).ceil() / 1000.0;
    let csv = Format::of_path(&args.file) == Some(Format::Csv);
    let folder = args
        .output
        .as_ref()
        .and_then(|output| output.parent())
        .filter(|folder| !folder.as_os_str().is_empty());
    let file = match folder {
        Some(_) => std::path::absolute(&args.file).map_err(|e| e.to_string())?,
        None => args.file.clone(),
    };
    line("# yaml-language-server: $schema=tidegate.schema.json");
    line("# Made by `tidegate init`; `tidegate schema > tidegate.schema.json` lets an editor check it.");
    line(&format!(
        "# {}: {} records, {} unreadable, {} with invalid geometry, {} without geometry",
        found.name,
        found.records + found.rejected,
        found.rejected,
        found.invalid,
        found.without
    ));
    line("version: 1");
    line("pipeline:");
    line(&format!("  id: {}", yaml(&found.name)));
    line("  source:");
    line(&format!("    file: {}", yaml(&file.to_string_lossy())));
    match &found.crs {
        Some(crs) => line(&format!("    # The file says that it is in {crs}.")),
        None => {
            line("    # The file does not say its system; check this one.");
            line("    crs: EPSG:4326");
        }
    }
    line("    # Fields:");
    for (name, kind, nulls) in &found.fields {
        let nulls = if *nulls > 0 { format!(", {nulls} null") } else { String::new() };
        line(&format!("    #   {name}: {kind}{nulls}"));
    }
    if found.mixed || found.invalid > 0 || csv {
        line("  steps:");
        if csv {
            line("    # A CSV file holds texts; say what else they are:");
            line("    # - coerce: { fields: { area: float, built: date } }");
        }
        if found.invalid > 0 {
            line("    - make_valid: true");
        }
        line(if found.mixed && found.without < found.records {
            "    - promote_to_multi: true"
        } else {
            "    # - rename: { OLD: new }"
        });
    }
    if !(found.mixed || found.invalid > 0) && csv {
        out = out.replace("  steps:\n    # A CSV", "  # steps:\n    # A CSV");
    }
    let mut line = |text: &str| {
        let _ = writeln!(out, "{text}");
    };
    line("  sink:");
    match args.sink.as_deref() {
        Some(url) if url.starts_with("env:") || url.starts_with("file:") || url.contains("://") => {
            line("    postgis:");
            line(&format!("      url: {}", yaml(url)));
            line(&format!("      table: {}", yaml(args.table.as_deref().unwrap_or(&found.name))));
        }
        named => {
            let default = format!("{}.out.gpkg", found.name);
            line(&format!("    file: {}", yaml(named.unwrap_or(&default))));
        }
    }
    let upserts = args.sink.as_deref().is_none_or(|name| {
        name.contains(':') || Format::of_path(Path::new(name)) == Some(Format::GeoPackage)
    });
    match found.key.as_ref().filter(|_| upserts) {
        Some(key) => {
            line("    # No two records share it; running again changes nothing.");
            line(&format!("    key: [{}]", yaml(key)));
        }
        None => line("    mode: replace"),
    }
    line("  retry_policy:");
    line("    max_attempts: 5");
    line("    base_delay: 1s");
    line("    retryable_status_codes: [408, 425, 429, 500, 502, 503, 504]");
    line("  tolerance:");
    line(&format!("    # {nulls} of {values} values are null now."));
    line(&format!("    max_null_rate: {allowed}"));
    line(&format!("    halt_on_geometry_invalid: {}", found.invalid == 0 && found.rejected == 0));
    if !found.geographic {
        line("    # precision_decimal_threshold: 2");
    }
    Ok(out)
}
