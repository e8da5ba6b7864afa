//! The place of a picture, its system and its nodata value: what other files or a person may supply.
//!
//! Where a picture lies cannot be known from its pixels. So a lost place comes from a world file or an
//! `.aux.xml` beside the picture, a lost system from a `.prj`, an `.aux.xml` or a person, and from
//! nowhere else.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::Code;
use tidegate_geo::Crs;

use super::directory::RawDirectory;
use super::report::{FieldChange, RepairError, RepairRefusal, broken};

const SIDECAR_LEN_MAX: u64 = 1 << 20;
/// The keys that name a system.
const SYSTEM_KEYS: [u64; 6] = [1026, 2048, 2049, 3072, 3073, 3075];

/// Restores the place and the system.
pub(super) fn restore_place(
    directory: &mut RawDirectory,
    path: &Path,
    crs: Option<&Crs>,
    changes: &mut Vec<FieldChange>,
) -> Result<(), RepairError> {
    let scale = directory.doubles(33550);
    let is_scale_bad = scale.iter().take(2).any(|s| *s == 0.0 || !s.is_finite());
    if is_scale_bad || !has_place(directory) {
        let Some((transform, from)) = place_beside(path) else {
            if is_scale_bad {
                return Err(broken(format!(
                    "the pixel scale is {scale:?} and no world file (.tfw) or .aux.xml beside the file gives another"
                )));
            }
            return Err(RepairRefusal::new(
                Code::CRS_NOT_FOUND,
                "the file has no place on earth, and no world file (.tfw) or .aux.xml is beside it; --unplaced allows that",
            )
            .into());
        };
        set_place(directory, transform);
        let before = if is_scale_bad { format!("pixel scale {scale:?}") } else { "missing".to_owned() };
        changes.push(FieldChange::new("place", before, format!("{transform:?}"), from));
    }
    if let Some(crs) = crs {
        if !has_system(directory) {
            changes.push(FieldChange::new("system", "missing", crs, "a person said so"));
            return set_system(directory, crs);
        }
        return Ok(());
    }
    if has_system(directory) {
        return Ok(());
    }
    match system_beside(path) {
        Some((crs, from)) => {
            changes.push(FieldChange::new("system", "missing", &crs, from));
            set_system(directory, &crs)
        }
        None => Err(RepairRefusal::new(
            Code::CRS_NOT_FOUND,
            "the file names no coordinate reference system, and neither does a .prj or .aux.xml beside it; --crs EPSG:CODE says it",
        )
        .into()),
    }
}

fn has_place(directory: &RawDirectory) -> bool {
    let matrix = directory.doubles(34264);
    let is_matrix = matches!(matrix.as_slice(), [a, b, _, _, e, f, ..] if (a * f - b * e).is_finite() && a * f - b * e != 0.0);
    // Ties without a scale are ground control points; RPCs say the place in their own way.
    let ties = directory.doubles(33922).len();
    is_matrix
        || (directory.doubles(33550).len() >= 2 && ties >= 6)
        || ties >= 18
        || directory.tag(50844).is_some()
}

fn has_system(directory: &RawDirectory) -> bool {
    let keys = directory.numbers(34735).unwrap_or_default();
    keys.chunks_exact(4).skip(1).any(|key| key.first().is_some_and(|id| SYSTEM_KEYS.contains(id)))
}

fn set_place(directory: &mut RawDirectory, [x0, xc, xr, y0, yc, yr]: [f64; 6]) {
    // What is written names the corner of a pixel; a file that named the middle must not shift it.
    let keys = directory.numbers(34735).unwrap_or_default();
    let is_point = keys.chunks_exact(4).skip(1).any(|key| matches!(key, [1025, 0, _, 2]));
    let (x0, y0) = if is_point { (x0 + (xc + xr) / 2.0, y0 + (yc + yr) / 2.0) } else { (x0, y0) };
    if xr == 0.0 && yc == 0.0 && yr < 0.0 {
        directory.unset(34264);
        directory.set_doubles(33550, &[xc, -yr, 0.0]);
        directory.set_doubles(33922, &[0.0, 0.0, 0.0, x0, y0, 0.0]);
    } else {
        directory.unset(33550);
        directory.unset(33922);
        let matrix = [xc, xr, 0.0, x0, yc, yr, 0.0, y0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        directory.set_doubles(34264, &matrix);
    }
}

fn set_system(directory: &mut RawDirectory, crs: &Crs) -> Result<(), RepairError> {
    let code = crs.epsg_code().filter(|code| *code < 32767);
    let (Some(code), Some(entry)) = (code, crs.entry()) else {
        return Err(RepairRefusal::new(
            Code::CRS_NOT_FOUND,
            format!("{crs} has no EPSG code that fits the keys of GeoTIFF"),
        )
        .into());
    };
    let (model, key) = if entry.geographic { (2, 2048) } else { (1, 3072) };
    let keys = [1, 1, 0, 3, 1024, 0, 1, model, 1025, 0, 1, 1, key, 0, 1, u64::from(code)];
    directory.set_numbers(34735, 3, &keys);
    directory.unset(34736);
    directory.unset(34737);
    Ok(())
}

/// The text of a small file beside the picture.
fn beside(path: &Path, extension: &str) -> Option<String> {
    let path = if extension == "aux.xml" {
        let mut name = path.as_os_str().to_owned();
        name.push(".aux.xml");
        PathBuf::from(name)
    } else {
        path.with_extension(extension)
    };
    let len = fs::metadata(&path).ok()?.len();
    if len > SIDECAR_LEN_MAX {
        return None;
    }
    fs::read_to_string(path).ok()
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let from = text.find(&format!("<{name}"))?;
    let open = text.get(from..)?;
    let inner = open.get(open.find('>')? + 1..)?;
    inner.get(..inner.find(&format!("</{name}>"))?)
}

/// The transform that a file beside the picture gives.
fn place_beside(path: &Path) -> Option<([f64; 6], &'static str)> {
    let is_good = |t: &[f64; 6]| {
        let [_, xc, xr, _, yc, yr] = t;
        t.iter().all(|x| x.is_finite()) && xc * yr - xr * yc != 0.0
    };
    for extension in ["tfw", "tifw", "wld", "TFW"] {
        let Some(text) = beside(path, extension) else { continue };
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [xc, yc, xr, yr, x, y] = numbers.as_slice() {
            let found = [x - (xc + xr) / 2.0, *xc, *xr, y - (yc + yr) / 2.0, *yc, *yr];
            if is_good(&found) {
                return Some((found, "the world file beside it"));
            }
        }
    }
    let text = beside(path, "aux.xml")?;
    let numbers: Vec<f64> =
        element(&text, "GeoTransform")?.split(',').filter_map(|word| word.trim().parse().ok()).collect();
    let found: [f64; 6] = numbers.try_into().ok()?;
    is_good(&found).then_some((found, "the .aux.xml beside it"))
}

/// The system that a file beside the picture names.
fn system_beside(path: &Path) -> Option<(Crs, &'static str)> {
    if let Some(crs) = beside(path, "prj").and_then(|text| text.trim().parse().ok()) {
        return Some((crs, "the .prj beside it"));
    }
    let text = beside(path, "aux.xml")?;
    let wkt = element(&text, "SRS")?.replace("&quot;", "\"").replace("&amp;", "&");
    Some((wkt.trim().parse().ok()?, "the .aux.xml beside it"))
}

/// Corrects the text of the nodata value, or drops a value that no pixel can have.
pub(super) fn restore_nodata(directory: &mut RawDirectory, changes: &mut Vec<FieldChange>) {
    let Some(text) = directory.text(42113) else { return };
    let said = text.trim();
    let with_point = said.replace(',', ".");
    let (value, is_respelled) = match (said.parse::<f64>(), with_point.parse::<f64>()) {
        (Ok(value), _) => (Some(value), false),
        (Err(_), Ok(value)) => (Some(value), true),
        _ => (None, false),
    };
    let Some(value) = value else {
        changes.push(FieldChange::new("nodata", format!("{said:?}"), "none", "it is no number"));
        directory.unset(42113);
        return;
    };
    let bits = directory.number(258).unwrap_or(1).clamp(1, 64) as i32;
    let range = match directory.number(339).unwrap_or(1) {
        1 => Some((0.0, 2f64.powi(bits) - 1.0)),
        2 => Some((-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0)),
        _ => None,
    };
    if range.is_some_and(|(low, high)| !(low..=high).contains(&value)) {
        changes.push(FieldChange::new("nodata", said, "none", "no pixel of this type can have it"));
        directory.unset(42113);
    } else if is_respelled {
        changes.push(FieldChange::new("nodata", said, value, "a decimal comma"));
        directory.set_text(42113, &value.to_string());
    }
}
