//! The list of a source `rasters`: one record per raster, in the order of their names.
//!
//! The list is written to the state directory once, so that a resumed run has the same records in the
//! same order, whatever has come to the directory or the bucket since. A list that names what the
//! manifest does not name is refused: it tells which rasters were there, not what may be opened.

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
use crate::manifest::objects::{self, RASTER_EXTENSIONS as EXTENSIONS};
use crate::objects::{AllowedObjects, ObjectAddress};
use crate::raster::{self, RasterReach};
use crate::source::glob;
use crate::step::StepError;

pub(super) const NAME: &str = "rasters.geojsonl";

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
        let allowed = objects::of_list(from, folder).map_err(|e| format!("source.rasters: {e}"))?;
        let mut text = String::new();
        for address in &all {
            text.push_str(&record(folder, address, &allowed).to_string());
            text.push('\n');
        }
        durable::replace(&path, text.as_bytes()).map_err(disk)?;
    }
    let text = fs::read_to_string(&path).map_err(disk)?;
    let count =
        judged(&path, &text, |address| from.rasters.iter().any(|name| is_named(folder, name, address)))?;
    Ok(Fetched { path, stamp: None, told: None, features: Some(count), extent: None })
}

/// The number of records of a list, all of whose addresses pass. A record may be without one.
///
/// # Errors
/// When one does not: somebody has changed the list.
pub(super) fn judged(list: &Path, text: &str, passes: impl Fn(&str) -> bool) -> Result<u64, StepError> {
    for (at, line) in text.lines().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        let address = record.pointer("/properties/path");
        if !address.is_some_and(|address| address.is_null() || address.as_str().is_some_and(&passes)) {
            let address = address.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            return Err(StepError::Broken(format!(
                "{}: line {} names {address}, which the manifest does not name or allow: the list was changed. Run without --resume",
                list.display(),
                at + 1
            )));
        }
    }
    Ok(text.lines().count() as u64)
}

/// Whether a name of the manifest stands for an address.
fn is_named(folder: &Path, name: &str, address: &str) -> bool {
    if raster::is_remote(name) || raster::is_remote(address) {
        let under = format!("{}/", name.trim_end_matches('/'));
        let is_prefix = BucketAddress::is_one(name) && !is_raster(name);
        return name == address || (is_prefix && address.starts_with(&under) && !address.contains("/../"));
    }
    let (named, path) = (PathBuf::from(objects::listed_path(folder, name)), Path::new(address));
    glob::names(&named, path) || (path.parent() == Some(named.as_path()) && path.file_name().is_some())
}

fn is_raster(key: &str) -> bool {
    EXTENSIONS.iter().any(|end| key.ends_with(end))
}

/// The rasters that a name stands for.
fn named(
    from: &manifest::SourceSpec,
    folder: &Path,
    name: &str,
    context: &RunContext,
) -> Result<Vec<String>, StepError> {
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

/// A raster as a record: where it is, and where it lies if a local header says so.
fn record(folder: &Path, address: &str, allowed: &AllowedObjects) -> Value {
    let name = address.rsplit('/').next().unwrap_or(address);
    let path = match raster::is_remote(address) {
        true => address.to_owned(),
        false => objects::listed_path(folder, address),
    };
    // A link in a directory may lead out of it; the step that reads the raster says so.
    let local = if raster::is_remote(address) { None } else { allowed.address(&path).ok() };
    let geometry = local.and_then(|local| footprint(&local));
    json!({
        "type": "Feature",
        "id": address,
        "properties": { "path": path, "name": name },
        "geometry": geometry,
    })
}

/// The outline of a raster in degrees; nothing if its header does not say.
fn footprint(address: &ObjectAddress) -> Option<Value> {
    let bytes = raster::bytes_of(address, &RasterReach::default()).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_only_what_the_manifest_names() {
        for (name, address, is) in [
            ("data", "/p/data/a.tif", true),
            ("data/", "/p/data/a.tif", true),
            ("data/*.tif", "/p/data/a.tif", true),
            ("data/a.tif", "/p/data/a.tif", true),
            ("data", "/p/other/a.tif", false),
            ("data", "/p/data/../a.tif", false),
            ("data", "/p/data/..", false),
            ("data", "http://127.0.0.1/a.tif", false),
            ("http://h/a.tif", "http://h/a.tif", true),
            ("http://h/a.tif", "http://h/b.tif", false),
            ("s3://b/x", "s3://b/x/y/a.tif", true),
            ("s3://b/x", "s3://b/xy/a.tif", false),
            ("s3://b/x/a.tif", "s3://b/x/b.tif", false),
            ("s3://b", "s3://c/a.tif", false),
        ] {
            assert_eq!(is_named(Path::new("/p"), name, address), is, "{name} {address}");
        }
        let line = |path: &str| format!("{{\"properties\":{{\"path\":{path}}}}}\n");
        let good = line("\"/a.tif\"") + &line("null");
        let all = |text: &str| judged(Path::new("list"), text, |address| address == "/a.tif");
        assert_eq!(all(&good).unwrap(), 2);
        for bad in [line("\"/b.tif\""), line("7"), "{}\n".into(), "{\n".into()] {
            assert!(all(&(good.clone() + &bad)).is_err(), "{bad}");
        }
    }
}
