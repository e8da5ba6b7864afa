//! `geocode` as a manifest: a CSV file as rows of text, a step that asks, the same rows as output.
//!
//! The row's own cells come first, as text, then what became of it. Every row is in the output,
//! also one that failed. Where a name is taken by the file, ours gets `geocode_` in front.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_core::quote::shell;
use tidegate_core::suggest::nearest;
use tidegate_geo::format::Format;

use super::{CallOptions, PresetManifest};
use crate::error::SetupError;
use crate::manifest::{CsvRows, ServiceSpec};
use crate::run::{csv_fields, csv_header};

/// What is asked about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The place of the address in these columns.
    Address(Vec<String>),
    /// The address at the place in these columns.
    Place {
        /// The column of the longitude.
        lon: String,
        /// The column of the latitude.
        lat: String,
    },
}

/// What to geocode, with what, into what.
#[derive(Clone, Debug)]
pub struct GeocodeOptions {
    /// The name of the pipeline.
    pub id: String,
    /// The CSV file.
    pub input: PathBuf,
    /// How to read it.
    pub csv: CsvRows,
    /// What to ask.
    pub question: Question,
    /// Whom to ask.
    pub service: ServiceSpec,
    /// How.
    pub calls: CallOptions,
    /// If the service asks for a longer wait than this, the run ends.
    pub patience: Duration,
    /// The output; its name tells the format.
    pub output: PathBuf,
    /// Where rows that failed go as dead letters, and for how many days.
    pub dead_letters: Option<(String, u32)>,
}

/// Rows of a batch: small enough that a slow service shows progress.
const BATCH: u32 = 1000;

/// The fields that the step adds, in the order of the output.
const ADDED: [&str; 9] =
    ["outcome", "label", "score", "match_type", "attempts", "elapsed_ms", "cache_hit", "error_code", "error"];

/// The manifest that geocodes a file.
///
/// # Errors
/// If the file cannot be read or has no such column.
pub fn geocode(options: &GeocodeOptions) -> Result<PresetManifest, SetupError> {
    let at = |what: String| format!("{}: {what}", options.input.display());
    let header = csv_header(&options.input, &options.csv)?;
    let fields = csv_fields(&header);
    let names = output_names(&fields);
    let column = |name: &String| {
        let found = find(&header, name, &options.input).map_err(at)?;
        let name = fields.get(found).cloned().unwrap_or_default();
        Ok::<_, String>((name, names.get(found).cloned().unwrap_or_default()))
    };
    let (asked, what) = match &options.question {
        Question::Address(columns) => {
            let found = columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
            let (read, asked): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            (read, json!({ "address": asked }))
        }
        Question::Place { lon, lat } => {
            let (lon, lat) = (column(lon)?, column(lat)?);
            (vec![lon.0, lat.0], json!({ "place": { "lon": lon.1, "lat": lat.1 } }))
        }
    };
    let row_error = free("row_error".into(), |name| is_in(&fields, name) || is_in(&names, name));
    let mut csv = options.csv.clone();
    (csv.row_error, csv.required) = (Some(row_error.clone()), asked);
    let mut step = json!({
        "service": "geocoder",
        "row_error": row_error,
        "on_failure": "keep",
    });
    let mut taken = names.clone();
    merge(&mut step, what);
    for name in ADDED {
        let wanted = if is_in(&taken, name) { format!("geocode_{name}") } else { name.to_owned() };
        let own = free(wanted, |name| is_in(&taken, name));
        merge(&mut step, json!({ name: own }));
        taken.push(own);
    }
    let renamed: Map<String, Value> = fields
        .iter()
        .zip(&names)
        .filter(|(old, new)| old != new)
        .map(|(old, new)| (old.clone(), new.clone().into()))
        .collect();
    let mut steps = Vec::new();
    if !renamed.is_empty() {
        steps.push(json!({ "rename": renamed }));
    }
    steps.push(json!({ "geocode": step }));
    steps.push(json!({ "drop": [row_error] }));
    let mut pipeline = json!({
        "id": options.id,
        "source": {
            "file": options.input,
            "csv": csv,
            "batch_size": BATCH,
            "patience_seconds": options.patience.as_secs_f64(),
        },
        "services": { "geocoder": changed(&options.service) },
        "steps": steps,
        "sink": { "file": options.output, "mode": "replace" },
        // Every row belongs into the output, whatever it holds.
        "tolerance": {
            "max_null_rate": 1.0,
            "halt_on_geometry_invalid": false,
            "precision_decimal_threshold": 0,
        },
    });
    for (name, section) in options.calls.sections() {
        merge(&mut pipeline, json!({ name: section }));
    }
    if let Some((store, days)) = &options.dead_letters {
        merge(&mut pipeline, json!({ "dead_letters": { "store": store, "retention_days": days } }));
    }
    PresetManifest::new(json!({ "version": 1, "pipeline": pipeline }))
}

/// The keys of a service that are not as they would be anyway.
pub(super) fn changed(service: &ServiceSpec) -> Value {
    let (mut keys, usual) = (json!(service), json!(ServiceSpec::default()));
    if let (Some(keys), Some(usual)) = (keys.as_object_mut(), usual.as_object()) {
        keys.retain(|name, value| usual.get(name) != Some(value));
    }
    keys
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

fn is_in(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// The names of the columns in the output.
fn output_names(fields: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in fields {
        // What the output itself calls the geometry, in CSV and in a GeoPackage.
        let clash = ["lon", "lat", "geom", "fid"].iter().any(|own| name.eq_ignore_ascii_case(own));
        names.push(match clash {
            true => free(format!("input_{name}"), |name| is_in(fields, name) || is_in(&names, name)),
            false => name.clone(),
        });
    }
    names
}

/// The name, or the name with a number, that is not taken.
fn free(name: String, taken: impl Fn(&str) -> bool) -> String {
    if !taken(&name) {
        return name;
    }
    (2u64..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).unwrap_or(name)
}

/// The place of a column by its name, or what it may have been meant to be.
fn find(header: &[String], name: &str, input: &Path) -> Result<usize, String> {
    let exact = header.iter().position(|h| h == name);
    let loose = || header.iter().position(|h| h.eq_ignore_ascii_case(name));
    exact.or_else(loose).ok_or_else(|| {
        if header.first().is_some_and(|first| first.trim_start().starts_with(['{', '['])) {
            let named = Format::of_path(input).is_some_and(|format| format != Format::Csv);
            let word = |path: &Path| shell(&path.display().to_string()).into_owned();
            let (from, to) = (word(input), word(&input.with_extension("csv")));
            let how = if named { format!(": `tidegate convert {from} {to}`") } else { String::new() };
            return format!("this is JSON, not CSV; convert it first{how}");
        }
        let hint = match nearest(name, header.iter().map(String::as_str)) {
            Some(h) => format!("did you mean {h:?}?"),
            None => format!("expected one of {}", header.join(", ")),
        };
        format!("no column {name:?}; {hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_are_told_apart() {
        let fields = ["id", "score", "lon", "input_lon", "geocode_score"].map(String::from);
        assert_eq!(output_names(&fields), ["id", "score", "input_lon_2", "input_lon", "geocode_score"]);
    }

    #[test]
    fn columns_are_found_or_suggested() {
        let header = ["Street".to_string(), "city".to_string()];
        let find = |name: &str| find(&header, name, Path::new("in.csv"));
        assert_eq!(find("city"), Ok(1));
        assert_eq!(find("street"), Ok(0));
        assert!(find("citty").unwrap_err().contains("did you mean \"city\"?"));
        assert!(find("zip").unwrap_err().contains("expected one of Street, city"));
    }
}
