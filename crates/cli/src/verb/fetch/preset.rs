//! Builds the manifest from the options.

use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate_client::profile::Profile;
use tidegate_geo::format::Format;
use tidegate_pipeline::preset::{self, CallOptions, to_yaml};
use tidegate_pipeline::source::{ServiceKind, file};

use super::{Args, DEADLINE, PageEncodingArg, PagingArg};

/// The name of the only service in the manifest.
const SERVICE: &str = "source";

/// The source, as detected from the options.
struct From {
    source: Map<String, Value>,
    service: Option<Map<String, Value>>,
    /// The profile of the service.
    profile: Profile,
}

/// The manifest as YAML.
///
/// # Errors
/// The reason why the options are invalid.
pub(super) fn manifest(args: &Args, to: &Path) -> Result<String, String> {
    let output = output(to)?;
    let From { mut source, service, profile } = match args.url.scheme() {
        "http" | "https" => remote(args)?,
        "s3" | "az" | "gs" => object(args)?,
        other => {
            return Err(format!("unsupported URL scheme {other}:; expected http:, https:, s3:, az: or gs:"));
        }
    };
    let calls = &args.calls;
    let id = id(to, &source, service.as_ref())?;
    source.insert("patience_seconds".into(), calls.patience().as_secs_f64().into());
    if args.tolerate != "0" {
        let number = args.tolerate.parse::<u32>().map(Value::from);
        source.insert("tolerate".into(), number.unwrap_or_else(|_| args.tolerate.clone().into()));
    }
    if args.trust_crs {
        source.insert("trust_crs".into(), true.into());
    }
    let mut sections = vec![("id", json!(id)), ("source", Value::Object(source))];
    if let Some(service) = service {
        sections.push(("services", json!({ SERVICE: service })));
    }
    // These formats require longitude and latitude.
    if matches!(Format::of_path(to), Some(Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq)) {
        sections.push(("steps", json!([{ "reproject": "EPSG:4326" }])));
    }
    // A download writes every feature: invalid geometries are only reported.
    let tolerance = json!({
        "max_null_rate": 1.0, "halt_on_geometry_invalid": false, "precision_decimal_threshold": 0,
    });
    sections.extend([
        ("gates", json!([{ "check": "is_valid", "severity": "warn" }])),
        ("tolerance", tolerance),
        ("sink", json!({ "file": output })),
    ]);
    if let Some(store) = &args.dead_letters {
        sections.push(("dead_letters", json!({ "store": store, "retention_days": args.retention })));
    }
    let calls = CallOptions {
        attempts: calls.attempts,
        timeout: calls.timeout.unwrap_or(profile.timeout()),
        deadline: calls.deadline.unwrap_or(DEADLINE),
        in_flight_max: None,
    };
    sections.extend(calls.sections());
    let pipeline: Map<String, Value> =
        sections.into_iter().map(|(name, section)| (name.to_owned(), section)).collect();
    Ok(to_yaml(&json!({ "pipeline": pipeline })))
}

/// Checks that the output can be written.
fn output(path: &Path) -> Result<&str, String> {
    let name = path.display();
    match Format::of_path(path) {
        None => {
            return Err(format!(
                "{name}: unknown file extension; expected one of .gpkg, .geojson, .geojsonl, .fgb, .csv"
            ));
        }
        Some(Format::Shapefile) => return Err("cannot write Shapefiles; use .gpkg".into()),
        Some(_) => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("directory {} does not exist", folder.display()));
    }
    path.to_str().ok_or_else(|| format!("{name}: the file name is not valid UTF-8"))
}

/// A readable pipeline name that is unique per source and output, so that another download does not
/// continue this one.
fn id(
    to: &Path,
    source: &Map<String, Value>,
    service: Option<&Map<String, Value>>,
) -> Result<String, String> {
    let path = std::path::absolute(to).map_err(|e| e.to_string())?;
    let mut source = source.clone();
    if let Some(Value::Object(paging)) = source.get_mut("paging") {
        paging.remove("at_once");
    }
    let service = service.map(|service| ["url", "profile"].map(|key| service.get(key).cloned()));
    let stem = to.file_stem().unwrap_or_default().to_string_lossy();
    Ok(preset::id("fetch", &stem, &json!([source, service, path.to_string_lossy()])))
}

fn remote(args: &Args) -> Result<From, String> {
    let name = match &args.profile {
        Some(name) => name.as_str(),
        // Only a file has a format to be named.
        None if args.input_format.is_some() => ServiceKind::File.name(),
        None => ServiceKind::of_url(&args.url)
            .ok_or_else(|| {
                format!(
                    "cannot detect the protocol of {}; pass --profile with one of {}",
                    args.url,
                    ServiceKind::names()
                )
            })?
            .name(),
    };
    let mut service = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        service.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("key", args.key.as_ref().map(|key| key.to_string().into()));
    put("requests_per_second", args.calls.rate.map(Value::from));
    put("allow_private", args.reach.allow_private.then_some(true.into()));
    put("allow_hosts", (!args.reach.allow_host.is_empty()).then(|| json!(args.reach.allow_host)));
    if name == ServiceKind::File.name() {
        let profile = file::profile().map_err(|e| e.message)?;
        let mut source = Map::from_iter([("file".to_owned(), args.url.as_str().into())]);
        let file_name = file::file_name(&args.url);
        if args.input_format.is_none() && !file::is_untyped(&file_name) {
            file::local_name(&file_name, args.url.as_str()).map_err(|e| e.message)?;
        }
        if !service.is_empty() {
            source.insert("service".into(), SERVICE.into());
        }
        source.extend(args.layer.as_ref().map(|layer| ("layer".to_owned(), layer.as_str().into())));
        source.extend(input_format(args));
        return Ok(From { source, service: (!service.is_empty()).then_some(service), profile });
    }
    if args.input_format.is_some() {
        return Err("--input-format is for files; use --body for the pages of a service".into());
    }
    let profile = args.reach.profile(name)?;
    if ServiceKind::of_profile(&profile).is_none() {
        return Err(format!(
            "profile {name} does not serve features; expected one of {}",
            ServiceKind::names()
        ));
    }
    service.insert("url".into(), args.url.as_str().into());
    service.insert("profile".into(), name.into());
    if let Some(path) = &args.reach.profiles {
        let path = std::path::absolute(path).map_err(|e| e.to_string())?;
        service.insert("profiles".into(), path.to_string_lossy().into());
    }
    let mut source = Map::from_iter([
        ("service".to_owned(), SERVICE.into()),
        // Services often describe their fields incorrectly: read all pages before writing.
        ("spool".to_owned(), true.into()),
    ]);
    source.extend(args.layer.as_ref().map(|layer| ("layer".to_owned(), layer.as_str().into())));
    let paging = paging(args);
    if !paging.is_empty() {
        source.insert("paging".into(), Value::Object(paging));
    }
    Ok(From { source, service: Some(service), profile })
}

fn input_format(args: &Args) -> Option<(String, Value)> {
    args.input_format.map(|format| ("format".to_owned(), format.format().extension().into()))
}

fn paging(args: &Args) -> Map<String, Value> {
    let all = [
        ("size", args.page_size.map(Value::from)),
        ("at_once", args.at_once.map(Value::from)),
        ("by", (args.paging == PagingArg::Offset).then(|| "offset".into())),
        (
            "body",
            match args.body {
                PageEncodingArg::Auto => None,
                PageEncodingArg::Geojson => Some("geojson".into()),
                PageEncodingArg::Gml => Some("gml".into()),
            },
        ),
        ("sort_by", args.sort_by.as_deref().map(Value::from)),
        ("version", args.wfs_version.as_deref().map(Value::from)),
        ("crs", args.crs.as_ref().map(|crs| crs.to_string().into())),
        ("axis_order", args.axis_order.as_deref().map(Value::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn object(args: &Args) -> Result<From, String> {
    let store = args.cloud.section(args.reach.allow_private);
    let mut source = Map::from_iter([("file".to_owned(), args.url.as_str().into())]);
    if !store.is_empty() {
        source.insert("store".into(), Value::Object(store));
    }
    source.extend(args.layer.as_ref().map(|layer| ("layer".to_owned(), layer.as_str().into())));
    source.extend(input_format(args));
    Ok(From { source, service: None, profile: file::profile().map_err(|e| e.message)? })
}
