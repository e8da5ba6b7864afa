//! The list of a source `rasters`: one record per raster, in the order of their names.
//!
//! The list is written to the state directory once, so that a resumed run has the same records in the
//! same order, whatever has come to the directory or the bucket since.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_core::bucket::BucketAddress;
use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;
use tidegate_raster::{GeoTiff, RasterLimits};

use super::build::RunContext;
use super::fetched::Fetched;
use crate::durable;
use crate::manifest;
use crate::raster::{self, RasterReach};
use crate::source::glob;
use crate::step::StepError;

pub(super) const NAME: &str = "rasters.geojsonl";
const EXTENSIONS: [&str; 4] = [".tif", ".tiff", ".TIF", ".TIFF"];

/// Writes the list of a source, or finds the one of the run that is resumed.
pub(super) fn list(
    from: &manifest::SourceSpec,
    folder: &Path,
    dir: &Path,
    resume: bool,
    context: &RunContext,
) -> Result<Fetched, StepError> {
    let path = dir.join(NAME);
    let disk = |e: std::io::Error| StepError::Broken(format!("{}: {e}", path.display()));
    if !(resume && path.exists()) {
        durable::make_dir(dir).map_err(disk)?;
        let mut all = Vec::new();
        for name in &from.rasters {
            all.append(&mut named(from, folder, name, context)?);
        }
        all.dedup();
        if all.is_empty() {
            return Err(StepError::Broken(format!("no raster is named by {}", from.rasters.join(", "))));
        }
        let mut text = String::new();
        for address in &all {
            text.push_str(&record(folder, address).to_string());
            text.push('\n');
        }
        durable::replace(&path, text.as_bytes()).map_err(disk)?;
    }
    let text = fs::read_to_string(&path).map_err(disk)?;
    let count = text.lines().count() as u64;
    Ok(Fetched { path, stamp: None, told: None, features: Some(count), extent: None })
}

/// The rasters that a name stands for.
fn named(
    from: &manifest::SourceSpec,
    folder: &Path,
    name: &str,
    context: &RunContext,
) -> Result<Vec<String>, StepError> {
    let is_raster = |key: &str| EXTENSIONS.iter().any(|end| key.ends_with(end));
    if BucketAddress::is_one(name) && !is_raster(name) {
        return bucket(from, name, context);
    }
    if raster::is_remote(name) {
        return Ok(vec![name.to_owned()]);
    }
    let path = folder.join(name);
    let found = if path.is_dir() {
        let mut found = Vec::new();
        for entry in fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))? {
            let entry = entry.map_err(|e| format!("{}: {e}", path.display()))?.path();
            let hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if !hidden && is_raster(&entry.to_string_lossy()) {
                found.push(entry);
            }
        }
        found.sort();
        found
    } else {
        glob::expand(&[path])?
    };
    let relative = |path: PathBuf| path.strip_prefix(folder).unwrap_or(&path).display().to_string();
    Ok(found.into_iter().map(relative).collect())
}

/// The rasters under a prefix of a bucket.
#[cfg(feature = "object-store")]
fn bucket(from: &manifest::SourceSpec, name: &str, context: &RunContext) -> Result<Vec<String>, StepError> {
    use futures_util::TryStreamExt;
    let patience = tidegate_core::time::seconds(from.patience_seconds);
    let bare = name.trim_end_matches('/');
    let home_end = bare.find("://").map_or(0, |at| at + 3);
    let (bucket, prefix) = bare
        .get(home_end..)
        .unwrap_or_default()
        .split_once('/')
        .unwrap_or((bare.get(home_end..).unwrap_or_default(), ""));
    let home = format!("{}{bucket}", bare.get(..home_end).unwrap_or_default());
    let (store, _) =
        from.store.clone().unwrap_or_default().open(&format!("{home}/_"), patience, &context.traffic)?;
    let runtime = context.traffic.runtime()?;
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let listing = async {
        let mut found = Vec::new();
        let mut keys = std::pin::pin!(store.list(&prefix));
        while let Some(meta) = keys.try_next().await? {
            if EXTENSIONS.iter().any(|end| meta.key.ends_with(end)) {
                found.push(format!("{home}/{}", meta.key));
            }
        }
        Ok::<_, crate::store::StoreError>(found)
    };
    runtime.block_on(listing).map_err(|e| StepError::Broken(format!("{name}: {e}")))
}

#[cfg(not(feature = "object-store"))]
fn bucket(_: &manifest::SourceSpec, name: &str, _: &RunContext) -> Result<Vec<String>, StepError> {
    Err(StepError::Broken(format!("{name}: this build has no object stores")))
}

/// A raster as a record: where it is, and where it lies if a local header says so.
fn record(folder: &Path, address: &str) -> Value {
    let geometry = if raster::is_remote(address) { None } else { footprint(&folder.join(address)) };
    let name = address.rsplit('/').next().unwrap_or(address);
    // A dead letter must find its raster from any directory.
    let path = match raster::is_remote(address) {
        true => address.to_owned(),
        false => std::path::absolute(folder.join(address))
            .map_or_else(|_| address.to_owned(), |path| path.display().to_string()),
    };
    json!({
        "type": "Feature",
        "id": address,
        "properties": { "path": path, "name": name },
        "geometry": geometry,
    })
}

/// The outline of a raster in degrees; nothing if its header does not say.
fn footprint(path: &Path) -> Option<Value> {
    let bytes = raster::bytes_of(&path.display().to_string(), &RasterReach::default()).ok()?;
    let raster = GeoTiff::open(bytes, &RasterLimits::default()).ok()?;
    let head = raster.head();
    let crs = head.crs.as_ref()?.as_ref().ok()?;
    let (affine, way) = (head.transform?, Transform::new(crs, &Crs::wgs84()).ok()?);
    let (w, h) = (f64::from(head.width), f64::from(head.height));
    let mut ring = Vec::new();
    for (column, row) in [(0.0, 0.0), (0.0, h), (w, h), (w, 0.0), (0.0, 0.0)] {
        let (x, y) = affine.apply(column, row);
        let (x, y, _) = way.position(x, y, 0.0).ok()?;
        ring.push(json!([x, y]));
    }
    Some(json!({ "type": "Polygon", "coordinates": [ring] }))
}
