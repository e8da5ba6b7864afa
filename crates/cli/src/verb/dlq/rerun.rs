//! How letters of each kind of pipeline are run again.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_core::Code;
use tidegate_geo::mapping::Owned;
use tidegate_ledger::letter::replay::{
    IntoFile, Rerun, RowSelector, Update, holds, merge, replay_failure, writable,
};
use tidegate_ledger::letter::store::ReplayOutcome;
use tidegate_ledger::letter::{Letter, feature, now_ms};
use tidegate_pipeline::geocode::{End, JobError};
use tidegate_pipeline::run::{Again, letters};

use crate::verb::{calls, geocode};

/// Who runs a pipeline again, by what was kept when it ran.
pub(super) fn of(spec: &str, rate: Option<&str>) -> Result<Box<dyn Rerun>, String> {
    let spec: Value = serde_json::from_str(spec).map_err(|e| e.to_string())?;
    match spec["kind"].as_str() {
        Some("geocode") => {
            let options = spec["options"].as_array().into_iter().flatten();
            let options = options.filter_map(|o| o.as_str().map(str::to_owned)).collect();
            Ok(Box::new(Geocode { options, rate: rate.map(str::to_owned) }))
        }
        Some("features") => {
            let output = spec["output"].as_str().ok_or("its output is not known")?;
            Ok(Box::new(IntoFile { output: output.into() }))
        }
        Some(letters::KIND) => {
            let rate_max = rate.map(calls::rate).transpose()?;
            Ok(Box::new(Again::new(spec, rate_max)?))
        }
        kind => Err(format!("this Tidegate cannot run pipelines of kind {kind:?} again")),
    }
}

/// Rows of a geocoded table: asked again, and put back into their rows of the output.
struct Geocode {
    options: Vec<String>,
    rate: Option<String>,
}

/// The output and the row that an effect key names.
fn place(letter: &Letter) -> Result<(PathBuf, u64), String> {
    let found =
        letter.effect_key.rsplit_once('#').and_then(|(path, row)| Some((path.into(), row.parse().ok()?)));
    found.ok_or_else(|| format!("the effect key {:?} names no row of a file", letter.effect_key))
}

impl Rerun for Geocode {
    fn preflight(&mut self) -> Result<(), String> {
        let dir = Scratch::new()?;
        // The options are read and the service is looked at, but nothing is asked: there are no rows.
        let input = dir.0.join("none.csv");
        let columns: Vec<&str> = self.columns();
        std::fs::write(&input, format!("{}\n", columns.join(","))).map_err(|e| e.to_string())?;
        match geocode::rerun(&self.options, &input, &dir.0.join("none.geojsonl"), None)? {
            Ok(End::Done) => Ok(()),
            Ok(_) => Err("the service asks for time: try later".into()),
            Err(why) => Err(why.to_string()),
        }
    }

    fn run(&mut self, letters: &[Letter]) -> Result<Vec<ReplayOutcome>, String> {
        let outputs = letters.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        if let Some((path, _)) = outputs.first() {
            writable(path)?;
        }
        let dir = Scratch::new()?;
        let (input, output) = (dir.0.join("again.csv"), dir.0.join("again.geojsonl"));
        std::fs::write(&input, csv(letters)?).map_err(|e| e.to_string())?;
        match geocode::rerun(&self.options, &input, &output, self.rate.as_deref())? {
            Ok(End::Done) => {}
            Ok(End::TryLater { code, until, .. }) => {
                let back = |_: &Letter| ReplayOutcome::Back {
                    not_before_ms: Some(until.millis()),
                    note: code.to_string(),
                };
                return Ok(letters.iter().map(back).collect());
            }
            Ok(End::Cancelled) => return Err("it was stopped".into()),
            Ok(End::Refused { said, .. }) => return Err(said),
            Err(JobError::Setup(why) | JobError::Broken(why)) => return Err(why),
        }
        let text = std::fs::read_to_string(&output).map_err(|e| e.to_string())?;
        let rows: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if rows.len() != letters.len() {
            return Err(format!(
                "{} letters were asked and {} came back; nothing was written",
                letters.len(),
                rows.len()
            ));
        }
        let mut ended = Vec::with_capacity(letters.len());
        let mut updates: Vec<(PathBuf, Update)> = Vec::new();
        for ((letter, row), (path, number)) in letters.iter().zip(&rows).zip(outputs) {
            let said = |name: &str| {
                let own =
                    row["properties"].get(format!("geocode_{name}")).or_else(|| row["properties"].get(name));
                own.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            if said("outcome") == "failed" {
                let code = said("error_code").parse().unwrap_or(Code::UNKNOWN);
                ended.push(ReplayOutcome::Dead(Box::new(replay_failure(
                    letter,
                    code,
                    said("error"),
                    now_ms(),
                ))));
                continue;
            }
            updates.push((path.clone(), update(row, number)));
            ended.push(ReplayOutcome::Resolved {
                note: format!("{}: row {number} of {}", said("outcome"), path.display()),
            });
        }
        let mut files: Vec<&PathBuf> = updates.iter().map(|(path, _)| path).collect();
        files.sort();
        files.dedup();
        for file in files {
            let of: Vec<Update> =
                updates.iter().filter(|(path, _)| path == file).map(|(_, u)| u.clone()).collect();
            merge(file, &of)?;
        }
        Ok(ended)
    }

    fn verify(&mut self, letters: &[Letter]) -> Result<Vec<bool>, String> {
        letters
            .iter()
            .map(|letter| {
                let (path, number) = place(letter)?;
                Ok(holds(&path, &[RowSelector::Row(number)])?.first() == Some(&true))
            })
            .collect()
    }
}

impl Geocode {
    fn columns(&self) -> Vec<&str> {
        let value = |name: &str| self.options.iter().find_map(|o| o.strip_prefix(name));
        let address = value("--address=").into_iter().flat_map(|columns| columns.split(','));
        address.chain(value("--lon=")).chain(value("--lat=")).collect()
    }
}

fn update(row: &Value, number: u64) -> Update {
    let owned = |value: &Value| match value {
        Value::Bool(b) => Owned::Bool(*b),
        Value::Number(n) => {
            n.as_i64().map_or_else(|| Owned::Real(n.as_f64().unwrap_or_default()), Owned::Int)
        }
        Value::String(text) => Owned::Text(text.clone()),
        Value::Null => Owned::Null,
        other => Owned::Json(other.to_string()),
    };
    let properties = row["properties"].as_object();
    let values = properties.into_iter().flatten().map(|(name, value)| (name.clone(), owned(value))).collect();
    let mut wkb = Vec::new();
    let placed = feature::to_wkb(&row["geometry"], &mut wkb).is_ok();
    Update { at: RowSelector::Row(number), wkb: placed.then_some(wkb), crs: None, values }
}

/// The payloads as a table: one row each, the columns of all of them.
fn csv(letters: &[Letter]) -> Result<String, String> {
    let rows: Vec<serde_json::Map<String, Value>> = letters
        .iter()
        .map(|letter| {
            serde_json::from_slice(letter.payload.current())
                .map_err(|e| format!("the payload of letter {} is no row: {e}", letter.id))
        })
        .collect::<Result<_, _>>()?;
    let mut columns: Vec<&String> = rows.iter().flat_map(serde_json::Map::keys).collect();
    columns.sort();
    columns.dedup();
    let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    let head = line(columns.iter().map(|name| cell(name)).collect());
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let lines = rows.iter().map(|row| line(columns.iter().map(|name| cell(&text(row.get(*name)))).collect()));
    Ok([head].into_iter().chain(lines).collect())
}

/// A directory that goes when it is done with.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        let base = std::env::temp_dir();
        (0..1000)
            .map(|n| base.join(format!("tidegate-replay-{}-{n}", std::process::id())))
            .find(|path| private(path))
            .map(Scratch)
            .ok_or_else(|| format!("no directory can be made in {}", base.display()))
    }
}

fn private(path: &Path) -> bool {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).is_ok()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
