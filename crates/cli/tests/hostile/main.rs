//! Attacks through the built binary. Files made to break the reader, of every format that is read:
//! each ends in an answer with its place, within the memory and the time that [`limits`] allows. And
//! what is not a file: a topic per module.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "a test starts programs and reaches databases in its own way")]

mod addresses_in_data;
mod blobs;
mod children;
mod columns;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod disclosure;
mod labels;
mod limits;
mod paths_in_data;
mod postgres_password;
mod rasters;
mod rebinding;
mod references;
mod secrets;
mod store_is_not_code;
mod strangers;
mod tables;
mod texts;
mod waits;
mod work;
mod zips;

use common::{canned, running, workdir};
use limits::Desk;

/// A file, and whether it is good. It lies on the disk: what this process holds would count for the
/// runs that it starts.
pub(crate) struct Case {
    name: String,
    file: tempfile::NamedTempFile,
    legal: bool,
}

fn case(name: &str, bytes: &[u8], legal: bool) -> Case {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Case { name: name.into(), file, legal }
}

/// A file that no verb may call good.
pub(crate) fn bad(name: &str, bytes: impl AsRef<[u8]>) -> Case {
    case(name, bytes.as_ref(), false)
}

/// A file that is odd and large, and good.
pub(crate) fn legal(name: &str, bytes: impl AsRef<[u8]>) -> Case {
    case(name, bytes.as_ref(), true)
}

/// Nests something deeper than any stack.
pub(crate) fn deep(open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(200_000), close.repeat(200_000))
}

/// Every verb over every case.
fn all(cases: Vec<Case>) {
    let desk = Desk::new();
    let mut faults = Vec::new();
    for case in cases {
        std::fs::copy(case.file.path(), desk.path().join(&case.name)).unwrap();
        // A file that is only invalid can be inspected and converted; 4: records were rejected.
        let (bad, odd): (&[i32], &[i32]) = if case.legal { (&[0], &[0]) } else { (&[1, 2], &[0, 1, 2, 4]) };
        faults.extend(desk.faults(&["check", &case.name, "--trust-crs"], bad));
        faults.extend(desk.faults(&["inspect", &case.name], odd));
        // Their numbers are odd, and that is not what they are about.
        let crs = ["--from-crs", "EPSG:4326", "--trust-crs"];
        faults.extend(
            desk.faults(&[&["convert", &case.name, "out.geojsonl", "--overwrite"], &crs[..]].concat(), odd),
        );
        desk.remove(&case.name);
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn geojson() {
    all(texts::geojson());
}

#[test]
fn rows_of_geojson() {
    all(texts::lines());
}

#[test]
fn csv() {
    all(texts::csv());
}

#[test]
fn gml() {
    all(texts::gml());
}

#[test]
fn esri_json() {
    all(texts::esri());
}

#[test]
fn flatgeobuf() {
    all(tables::flatgeobuf());
}

#[test]
fn shapefile() {
    all(tables::shapefile());
}

#[test]
fn geoparquet() {
    all(columns::geoparquet());
}

#[test]
fn geopackage() {
    all(blobs::geopackages());
}

#[test]
fn archives() {
    all(zips::archives());
}
