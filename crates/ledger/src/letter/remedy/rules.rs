//! The effect of each repair rule on one letter.

use super::RepairRule;
use super::geometry::{clip, close_rings, swap_axes, wind};
use crate::letter::envelope::{Letter, Spatial};
use crate::letter::feature::{FeaturePayload, PayloadError, from_wkb};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use tidegate_client::child;
use tidegate_client::objects::AllowedObjects;
use tidegate_geo::Crs;
use tidegate_geo::repair::{Outcome, make_valid};
use tidegate_geo::validity::Checker;
use tidegate_geo::wkb::{Event, Shape};
use tidegate_raster::repair::{RepairOptions, repair};

/// The decision of a repair rule about one letter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RuleDecision {
    /// A new payload, and its location if the rule knows it better than the payload tells.
    Changed { payload: Vec<u8>, spatial: Option<Box<Spatial>>, note: String },
    /// Replay the letter later.
    Later { not_before_ms: i64, note: String },
    /// The letter cannot be repaired.
    Hopeless(String),
    /// The rule was refused: the letter needs review.
    Refused(String),
    /// The rule has nothing to change.
    Nothing,
}

/// The decision, or the reason why the rule was refused.
type RuleResult = Result<RuleDecision, Box<dyn Error>>;

const WORLD: [f64; 4] = [-180.0, -90.0, 180.0, 90.0];

pub(super) fn say(rule: &RepairRule, letter: &Letter, now_ms: i64) -> RuleDecision {
    let said = match rule {
        RepairRule::Wait { seconds } => {
            let wait = i64::try_from(seconds.unwrap_or(3600)).unwrap_or(i64::MAX).saturating_mul(1000);
            let at = letter.not_before_ms.unwrap_or_else(|| letter.failure.failed_ms.saturating_add(wait));
            Ok(RuleDecision::Later {
                not_before_ms: at.max(now_ms.min(at)),
                note: "the server's time".into(),
            })
        }
        RepairRule::Flag => Ok(RuleDecision::Hopeless("the header cannot be read; archive it".into())),
        RepairRule::Remap { fields } => remap(letter, fields),
        RepairRule::RepairRaster { default, output, objects } => {
            raster(letter, default.as_deref(), output.as_deref(), objects)
        }
        RepairRule::Command { command, env } => run(letter, command, env),
        RepairRule::CrsLookup { default } => crs(letter, default.as_deref()),
        RepairRule::MakeValid { tolerance } => valid(letter, tolerance.unwrap_or(0.05)),
        RepairRule::Clip { bbox } => clipped(letter, bbox.unwrap_or(WORLD)),
        RepairRule::SwapAxes { area } => swapped(letter, *area),
        RepairRule::CloseRings => counted(letter, "rings closed", close_rings),
        RepairRule::Wind => counted(letter, "rings reversed", wind),
    };
    said.unwrap_or_else(|why| RuleDecision::Refused(why.to_string()))
}

fn feature(letter: &Letter) -> Result<FeaturePayload, PayloadError> {
    FeaturePayload::parse(letter.payload.current())
}

fn changed(feature: &FeaturePayload, letter: &Letter, note: String) -> RuleDecision {
    let crs = letter.spatial.as_ref().map(|s| s.source_crs.as_str()).filter(|c| !c.is_empty());
    let spatial = feature.spatial(crs).map(Box::new);
    RuleDecision::Changed { payload: feature.to_bytes(), spatial, note }
}

fn crs(letter: &Letter, default: Option<&str>) -> RuleResult {
    let mut feature = feature(letter)?;
    let told = letter.spatial.as_ref().map(|s| s.source_crs.clone()).filter(|c| !c.is_empty());
    let candidates = [feature.said_crs(), told, default.map(str::to_owned)];
    for text in candidates.into_iter().flatten() {
        let Ok(found) = text.parse::<Crs>() else { continue };
        let Some(spatial) = feature.spatial(Some(&found.to_string())) else { continue };
        if spatial.bbox.is_none() {
            continue;
        }
        feature.json["crs"] =
            serde_json::json!({ "type": "name", "properties": { "name": found.to_string() } });
        let short: String = text.chars().take(60).collect();
        return Ok(RuleDecision::Changed {
            payload: feature.to_bytes(),
            spatial: Some(Box::new(spatial)),
            note: format!("{found}, from {short:?}"),
        });
    }
    Err("the record declares no coordinate reference system, and no default was given".into())
}

fn valid(letter: &Letter, tolerance: f64) -> RuleResult {
    let mut feature = feature(letter)?;
    let wkb = feature.wkb()?;
    let mut out = Vec::new();
    match make_valid(&wkb, &mut Checker::default(), &mut out) {
        Outcome::Valid => Ok(RuleDecision::Nothing),
        Outcome::Hopeless(flaw) => {
            Err(format!("{}: cannot make the geometry valid: {flaw}", flaw.reason.code()).into())
        }
        Outcome::Repaired(repaired) => {
            let (before, after) = (meant(&wkb), repaired.area.1);
            let change = (after - before).abs() / before.max(after).max(f64::MIN_POSITIVE);
            let geometry = from_wkb(&out)?;
            let kind = |v: Option<&serde_json::Value>| {
                v.and_then(|v| v.get("type")).and_then(|v| v.as_str()).unwrap_or("?").to_owned()
            };
            let (was, is) = (kind(feature.geometry()), kind(Some(&geometry)));
            let percent = change * 100.0;
            let note = format!("linework: area {before:.6} to {after:.6} ({percent:.2} %), {was} to {is}");
            if change > tolerance {
                return Err(format!("{note}: more than the tolerance of {} %", tolerance * 100.0).into());
            }
            feature.set_geometry(geometry);
            Ok(changed(&feature, letter, note))
        }
    }
}

/// The intended area: the area enclosed by shells minus that enclosed by holes, regardless of
/// winding. Integrated over 1000 scan lines per ring, accurate to about 0.1 %.
fn meant(wkb: &[u8]) -> f64 {
    let mut cursor = tidegate_geo::wkb::Cursor::default();
    let (mut area, mut in_polygon, mut ring) = (0.0, false, 0);
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, .. } => (in_polygon, ring) = (shape == Shape::Polygon, 0),
            Event::Coords(run) if in_polygon => {
                let around = around(&run.xy(wkb).collect::<Vec<_>>());
                area += if ring == 0 { around } else { -around };
                ring += 1;
            }
            Event::Coords(_) | Event::End(_) => {}
        }
    }
    area.max(0.0)
}

/// The area that a ring encloses at least once.
fn around(ring: &[(f64, f64)]) -> f64 {
    const LINES: usize = 1000;
    let (low, high) =
        ring.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p.1), h.max(p.1)));
    let step = (high - low) / LINES as f64;
    if !(step.is_finite() && step > 0.0) {
        return 0.0;
    }
    let mut lines: Vec<Vec<(f64, i32)>> = vec![Vec::new(); LINES];
    let next = ring.iter().skip(1).chain(ring.first());
    for (a, b) in ring.iter().zip(next) {
        let turn = if a.1 < b.1 { 1 } else { -1 };
        let (from, to) = (a.1.min(b.1), a.1.max(b.1));
        let first = ((from - low) / step - 0.5).ceil().max(0.0) as usize;
        for (n, line) in lines.iter_mut().enumerate().skip(first) {
            let y = low + (n as f64 + 0.5) * step;
            if y >= to {
                break;
            }
            if y >= from {
                line.push((a.0 + (y - a.1) / (b.1 - a.1) * (b.0 - a.0), turn));
            }
        }
    }
    let width = |line: &mut Vec<(f64, i32)>| {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut sum, mut turns, mut since) = (0.0, 0, 0.0);
        for (x, turn) in line {
            if turns == 0 {
                since = *x;
            }
            turns += *turn;
            if turns == 0 {
                sum += *x - since;
            }
        }
        sum
    };
    lines.iter_mut().map(width).sum::<f64>() * step
}

fn clipped(letter: &Letter, bbox: [f64; 4]) -> RuleResult {
    let mut feature = feature(letter)?;
    let geometry = feature.geometry().ok_or("the payload has no geometry")?;
    let Some(mut cut) = clip(geometry, bbox) else {
        return Err("no part of the geometry is inside the area".into());
    };
    if cut == *geometry {
        return Ok(RuleDecision::Nothing);
    }
    let mut wkb = Vec::new();
    crate::letter::feature::to_wkb(&cut, &mut wkb)?;
    let mut out = Vec::new();
    if let Outcome::Repaired(_) = make_valid(&wkb, &mut Checker::default(), &mut out) {
        cut = from_wkb(&out)?;
    }
    feature.set_geometry(cut);
    Ok(changed(&feature, letter, format!("clipped to {bbox:?}")))
}

fn swapped(letter: &Letter, area: Option<[f64; 4]>) -> RuleResult {
    let mut feature = feature(letter)?;
    let inside = |feature: &FeaturePayload, area: [f64; 4]| {
        let bounds = feature.wkb().ok().and_then(|wkb| tidegate_geo::Bounds::of_wkb(&wkb));
        bounds.is_some_and(|b| {
            b.min_x >= area[0] && b.min_y >= area[1] && b.max_x <= area[2] && b.max_y <= area[3]
        })
    };
    let area = area.unwrap_or(WORLD);
    let before = inside(&feature, area);
    let mut geometry = feature.geometry().cloned().ok_or("the payload has no geometry")?;
    let count = swap_axes(&mut geometry);
    feature.set_geometry(geometry);
    match (before, inside(&feature, area)) {
        (false, true) => Ok(changed(&feature, letter, format!("{count} positions swapped"))),
        (true, _) => Err("the geometry is already inside the area; check the area".into()),
        (false, false) => Err("the geometry is outside the area even with swapped axes".into()),
    }
}

fn counted(letter: &Letter, what: &str, change: impl FnOnce(&mut serde_json::Value) -> u64) -> RuleResult {
    let mut feature = feature(letter)?;
    let mut geometry = feature.geometry().cloned().ok_or("the payload has no geometry")?;
    let count = change(&mut geometry);
    if count == 0 {
        return Ok(RuleDecision::Nothing);
    }
    feature.set_geometry(geometry);
    Ok(changed(&feature, letter, format!("{count} {what}")))
}

/// Repairs the raster that the record names, into a new file, which it names from then on. The name is
/// data, so the raster is opened only if a person allowed it.
fn raster(letter: &Letter, crs: Option<&str>, output: Option<&str>, objects: &AllowedObjects) -> RuleResult {
    let mut feature = feature(letter)?;
    let properties = feature.json.get_mut("properties").and_then(|o| o.as_object_mut());
    let properties = properties.ok_or("the payload has no fields")?;
    let named = properties.get("path").and_then(|path| path.as_str());
    let from = objects.file(named.ok_or("the record has no field `path` that names a raster")?)?;
    let stem = from.file_stem().ok_or("the field `path` names no file")?.to_string_lossy().into_owned();
    let name = format!("{stem}.repaired.tif");
    let to = output.map_or_else(|| from.with_file_name(&name), |dir| Path::new(dir).join(&name));
    let options = RepairOptions { crs: crs.map(str::parse).transpose()?, ..RepairOptions::default() };
    let report = repair(&from, &to, &options).map_err(|error| error.to_string())?;
    let changes: Vec<&str> = report.changes.iter().map(|change| change.field.as_str()).collect();
    let note = format!("{}, proof: {}; {}", report.outcome.word(), report.proof.word(), changes.join(", "));
    // Without `..`, which a replay would not follow.
    let to = std::fs::canonicalize(&to)?.display().to_string();
    properties.insert("path".into(), to.into());
    let spatial = letter.spatial.clone().map(Box::new);
    Ok(RuleDecision::Changed { payload: feature.to_bytes(), spatial, note })
}

fn remap(letter: &Letter, fields: &std::collections::BTreeMap<String, String>) -> RuleResult {
    let mut feature = feature(letter)?;
    let is_feature = feature.json.get("type").and_then(|t| t.as_str()) == Some("Feature");
    let object = if is_feature { feature.json.get_mut("properties") } else { Some(&mut feature.json) };
    let object = object.and_then(|o| o.as_object_mut()).ok_or("the payload has no fields")?;
    let mut count = 0;
    for (from, to) in fields {
        if let Some(value) = object.get(from).cloned() {
            if object.contains_key(to) {
                return Err(format!("field {to:?} already exists").into());
            }
            object.remove(from);
            object.insert(to.clone(), value);
            count += 1;
        }
    }
    if count == 0 {
        return Ok(RuleDecision::Nothing);
    }
    let spatial = letter.spatial.clone().map(Box::new);
    Ok(RuleDecision::Changed {
        payload: feature.to_bytes(),
        spatial,
        note: format!("{count} fields renamed"),
    })
}

fn run(letter: &Letter, command: &[String], env: &[String]) -> RuleResult {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let at = |e: std::io::Error| format!("{program}: {e}");
    let payload = String::from_utf8_lossy(letter.payload.current()).into_owned();
    let payload = serde_json::from_str(&payload).unwrap_or(serde_json::Value::String(payload));
    let input = serde_json::json!({ "letter": letter, "payload": payload });
    let mut child = child::command(program, env)?
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(at)?;
    // The program may exit without reading its input.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(format!("{input}\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(at)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed ({}): {}", output.status, said.trim()).into());
    }
    let made: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("the output of {program} is not JSON: {e}"))?;
    if made == input["payload"] {
        return Ok(RuleDecision::Nothing);
    }
    let payload = made.to_string().into_bytes();
    let feature = FeaturePayload::parse(&payload)?;
    Ok(changed(&feature, letter, format!("by {program}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_that_was_meant() {
        for (text, want) in [
            ("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))", 16.0),
            ("POLYGON ((0 0, 0 4, 4 4, 4 0, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))", 15.0),
            ("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", 2.0),
            ("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0, 4 0, 4 4, 0 4, 0 0))", 16.0),
            ("MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1)), ((5 5, 6 5, 6 6, 5 6, 5 5)))", 2.0),
            ("LINESTRING (0 0, 1 1)", 0.0),
        ] {
            let mut wkb = Vec::new();
            tidegate_geo::wkt::read(text, &mut wkb).unwrap();
            assert!((meant(&wkb) - want).abs() < 0.005, "{text}: {}", meant(&wkb));
        }
    }
}
