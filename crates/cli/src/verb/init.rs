//! `tidegate init`: generates a manifest for a file or a layer of a service.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_core::quote::shell;
use tidegate_geo::format::Format;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::validity::Checker;
use tidegate_geo::{Kind, Value};
use tidegate_pipeline::manifest;
use tidegate_pipeline::run as engine;
use tidegate_pipeline::run::source::{FileSource, Source};
use tidegate_pipeline::source::ServiceKind;

use crate::complete;
use crate::exit::Exit;
use crate::given::{GivenAddress, PlainAddress, Reference};
use crate::out;
use clap_complete::ArgValueCandidates;

/// Generate a manifest for a file or a service
///
/// Read a file once, or the description and the first page of a service, to find the layer, fields,
/// coordinate reference system, nulls, invalid geometries, and a field that can be the key. The
/// generated manifest runs unchanged and describes in comments what was found.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate init parcels.geojson > parcels.yaml
  tidegate init parcels.csv -o parcels.yaml --sink parcels.gpkg
  tidegate init parcels.fgb -o parcels.yaml --sink env:DATABASE_URL --table parcels
  tidegate init https://geo.example/geoserver/wfs --layer topp:parcels -o parcels.yaml
  tidegate init https://gis.example/arcgis/rest/services/parcels/FeatureServer/0 -o parcels.yaml
  tidegate init https://api.example/ogc --profile ogcapi --layer buildings --key env:API_KEY -o b.yaml

Exit codes: 0 success; 2 the source cannot be read, or the manifest already exists.")]
pub(crate) struct Args {
    /// File (GeoJSON, CSV, GeoPackage, FlatGeobuf, GeoParquet, GML or Shapefile), or URL of a WFS, an
    /// OGC API, an ArcGIS layer or a STAC API
    #[arg(value_name = "FILE|URL")]
    from: PlainAddress,

    /// Manifest file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Sink of the pipeline: a file, or a database URL (`env:NAME`, `postgres://…`)
    #[arg(long, value_name = "FILE|URL")]
    sink: Option<GivenAddress>,

    /// Table name, if the sink is a database
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// Layer or collection, if there are several
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    layer: Option<String>,

    /// Protocol of the service: geoserver-wfs, ogcapi, esri or stac [default: detected from the URL]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::profiles))]
    profile: Option<String>,

    /// Reference to the API key of the service: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<Reference>,

    /// Allow the host name of the service to resolve to a private address
    #[arg(long)]
    allow_private: bool,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let text = match look(args).and_then(|found| written(args, &found)) {
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
            out::say(&format!(
                "wrote {}; next: tidegate plan {}",
                path.display(),
                shell(&path.display().to_string())
            ));
            Ok(Exit::Done)
        }
        Err(e) => {
            out::say(&format!("tidegate: {}: {e}", path.display()));
            Ok(Exit::Usage)
        }
    }
}

/// Whether the source is a remote service.
fn is_afar(args: &Args) -> bool {
    args.from.contains("://")
}

/// The sections `services` and `source` for a service.
fn service(args: &Args) -> String {
    let mut text = format!("  services:\n    source:\n      url: {}\n", yaml(&args.from));
    let guessed =
        || url::Url::parse(&args.from).ok().and_then(|url| ServiceKind::of_url(&url)).map(ServiceKind::name);
    if let Some(profile) = args.profile.as_deref().or_else(guessed) {
        let _ = writeln!(text, "      profile: {}", yaml(profile));
    }
    if let Some(key) = &args.key {
        let _ = writeln!(text, "      key: {}", yaml(&key.to_string()));
    }
    if args.allow_private {
        text.push_str("      allow_private: true\n");
    }
    text.push_str("  source:\n    service: source\n");
    if let Some(layer) = &args.layer {
        let _ = writeln!(text, "    layer: {}", yaml(layer));
    }
    text
}

/// The policies of every generated manifest.
const POLICY: &str = "  retry_policy:
    max_attempts: 5
    base_delay: 1s
    retryable_status_codes: [408, 425, 429, 500, 502, 503, 504]
";

/// Opens the source to examine.
fn open(args: &Args) -> Result<Box<dyn Source>, String> {
    if !is_afar(args) {
        return Ok(Box::new(FileSource::open(
            Path::new(&*args.from),
            ReadOptions { layer: args.layer.clone(), ..ReadOptions::default() },
        )?));
    }
    let url = url::Url::parse(&args.from).map_err(|e| format!("{}: {e}", args.from))?;
    let file = args.profile.is_none() && matches!(ServiceKind::of_url(&url), Some(ServiceKind::File));
    if file || url.scheme() == "s3" {
        let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        let stem = last.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("data");
        let (from, to) = (shell(&args.from), format!("{stem}.gpkg"));
        let to = shell(&to);
        return Err(format!(
            "{url} is a file; download it and describe the download, then set `source.file` to the URL: \
             `tidegate fetch {from} -o {to} && tidegate init {to}`"
        ));
    }
    let text = format!(
        "pipeline:\n  id: init\n{}  sink: {{ file: init.gpkg }}\n{POLICY}  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\n",
        service(args)
    );
    let made = manifest::from_bytes("init", text.as_bytes()).map_err(|rejection| rejection.render(false))?;
    engine::look(&made, Path::new("")).map_err(String::from)
}

/// The findings of one pass over the source.
struct LayerScan {
    name: String,
    crs: Option<String>,
    geographic: bool,
    /// The number of records read.
    records: u64,
    /// The number of unreadable records.
    rejected: u64,
    /// The number of invalid geometries.
    invalid: u64,
    /// The number of records without a geometry.
    without: u64,
    fields: Vec<(String, Kind, u64)>,
    key: Option<String>,
    mixed: bool,
    /// Set if only the first page was read: the number of records that the service declares.
    partly: Option<Option<u64>>,
}

fn look(args: &Args) -> Result<LayerScan, String> {
    let mut source = open(args)?;
    let layer = source.layer().clone();
    let mut fields: Vec<(String, Kind, u64)> =
        layer.schema.fields().iter().map(|field| (field.name.clone(), field.kind, 0)).collect();
    let mut keys: Vec<Option<std::collections::HashSet<String>>> = fields
        .iter()
        .map(|(name, kind, _)| {
            (likely_key(name) && matches!(kind, Kind::Int | Kind::Text)).then(Default::default)
        })
        .collect();
    let mut found = LayerScan {
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
        partly: is_afar(args).then_some(layer.records),
    };
    let mut checker = Checker::default();
    while let Some(page) = source.next().map_err(String::from)? {
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
        if found.partly.is_some() {
            break;
        }
    }
    found.key = fields.iter().zip(&keys).find(|(_, key)| key.is_some()).map(|((name, _, _), _)| name.clone());
    found.fields = fields;
    Ok(found)
}

/// Whether a field name suggests a key.
fn likely_key(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["id", "fid", "gid", "oid", "objectid", "key", "code", "uuid"].contains(&lower.as_str())
        || lower.ends_with("_id")
        || lower.ends_with("id") && lower.len() <= 12
}

/// A text as a YAML scalar.
fn yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn written(args: &Args, found: &LayerScan) -> Result<String, String> {
    let mut out = String::new();
    let mut line = |text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    let nulls: u64 = found.fields.iter().map(|(_, _, n)| n).sum();
    let values = found.records * found.fields.len() as u64;
    let share = if values == 0 { 0.0 } else { nulls as f64 / values as f64 };
    // Rounded up to 0.1 %, so that the same file passes; a service was read only in part.
    let allowed = (share * 1000.0).ceil() / 1000.0;
    let allowed = if found.partly.is_some() { allowed.max(0.5) } else { allowed };
    let csv = Format::of_path(Path::new(&*args.from)) == Some(Format::Csv) && found.partly.is_none();
    let folder = args
        .output
        .as_ref()
        .and_then(|output| output.parent())
        .filter(|folder| !folder.as_os_str().is_empty());
    let file = match folder {
        Some(_) => std::path::absolute(&*args.from).map_err(|e| e.to_string())?,
        None => PathBuf::from(&*args.from),
    };
    line("# yaml-language-server: $schema=tidegate.schema.json");
    line("# Generated by `tidegate init`. For editor support: tidegate schema > tidegate.schema.json");
    let all = match found.partly {
        None => format!("{} records", found.records + found.rejected),
        Some(declared) => {
            let of = declared.map_or("an undeclared number of".into(), |n| n.to_string());
            format!("{of} records; of the first {}", found.records + found.rejected)
        }
    };
    line(&format!(
        "# {}: {all}, {} unreadable, {} with invalid geometry, {} without geometry",
        found.name, found.rejected, found.invalid, found.without
    ));
    line("version: 1");
    line("pipeline:");
    line(&format!("  id: {}", yaml(&found.name)));
    if found.partly.is_some() {
        line(service(args).trim_end());
    } else {
        line("  source:");
        line(&format!("    file: {}", yaml(&file.to_string_lossy())));
        if let Some(layer) = &args.layer {
            line(&format!("    layer: {}", yaml(layer)));
        }
    }
    match &found.crs {
        Some(crs) => line(&format!("    # Coordinate reference system of the source: {crs}")),
        None => {
            line("    # The source declares no coordinate reference system; check this one.");
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
            line("    # A CSV file holds text only; declare other types here:");
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
    match args.sink.as_ref().map(ToString::to_string).as_deref() {
        Some(url) if url.starts_with("env:") || url.starts_with("file:") || url.contains("://") => {
            line("    postgis:");
            line(&format!("      url: {}", yaml(url)));
            line(&format!("      table: {}", yaml(args.table.as_deref().unwrap_or(&found.name))));
        }
        named => {
            let default = format!("{}.out.gpkg", found.name.replace([':', '/', '\\'], "_"));
            line(&format!("    file: {}", yaml(named.unwrap_or(&default))));
        }
    }
    let upserts = args.sink.as_ref().map(ToString::to_string).is_none_or(|name| {
        name.contains(':') || Format::of_path(Path::new(&name)) == Some(Format::GeoPackage)
    });
    match found.key.as_ref().filter(|_| upserts) {
        Some(key) => {
            line("    # Unique in the records read; running again changes nothing.");
            line(&format!("    key: [{}]", yaml(key)));
        }
        None => line("    mode: replace"),
    }
    if found.partly.is_some() {
        line("  # Rejected records are stored; `tidegate dlq` shows, repairs and replays them.");
        line("  dead_letters: {}");
    }
    line(POLICY.trim_end());
    line("  tolerance:");
    line(&format!("    # {nulls} of {values} values read are null."));
    line(&format!("    max_null_rate: {allowed}"));
    line(&format!(
        "    halt_on_geometry_invalid: {}",
        found.partly.is_none() && found.invalid == 0 && found.rejected == 0
    ));
    if !found.geographic {
        line("    # precision_decimal_threshold: 2");
    }
    Ok(out)
}
