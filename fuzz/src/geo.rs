//! What must hold for the parsers of geo, whatever the bytes.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_geo::filter::Filter;
use tidegate_geo::format::geojson::{self, ReadOptions, Rules};
use tidegate_geo::format::{self, gpkg};
use tidegate_geo::repair::{self, Method, Outcome};
use tidegate_geo::validity::{Checker, is_simple};
use tidegate_geo::{Batch, Bounds, Crs, Kind, Schema, wkb, wkt};

/// Small limits, so that a round takes little.
fn options(rules: Rules) -> ReadOptions {
    ReadOptions { rules, record_len_max: 1 << 20, ..ReadOptions::default() }
}

/// Canonical bytes stay canonical, come back from text, and can be judged and repaired.
fn geometry(bytes: &[u8]) {
    let mut again = Vec::new();
    wkb::canonicalise(bytes, &mut again).expect("canonical bytes are canonical");
    assert_eq!(again, bytes);
    let _ = (Bounds::of_wkb(bytes), is_simple(bytes));
    if bytes.len() > 4000 {
        return;
    }
    let mut checker = Checker::default();
    for method in [Method::Linework, Method::Structure] {
        let mut out = Vec::new();
        if let Outcome::Repaired(_) = repair::make_valid_by(bytes, method, &mut checker, &mut out) {
            assert_eq!(checker.first_flaw(&out), None, "a repaired geometry is valid");
        }
    }
}

/// Any bytes as well-known binary.
pub fn wkb(data: &[u8]) {
    let mut out = Vec::new();
    if wkb::canonicalise(data, &mut out).is_ok() {
        geometry(&out);
        let text = wkt::to_string(&out);
        let mut back = Vec::new();
        wkt::read(&text, &mut back).expect("our own text is read");
    }
}

/// Any bytes as well-known text.
pub fn wkt(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut out = Vec::new();
    if wkt::read(text, &mut out).is_ok() {
        geometry(&out);
    }
}

/// Any bytes as GeoJSON, with and without the rules of the standard.
pub fn geojson(data: &[u8]) {
    for rules in [Rules::Refuse, Rules::Pass] {
        let Ok(inferred) = geojson::infer(data, 1 << 20) else { continue };
        let mut reader = geojson::GeoJsonReader::new(data, inferred.schema, options(rules));
        let mut rejected = Vec::new();
        while let Ok(Some(batch)) = reader.next_batch(&mut rejected) {
            for row in 0..batch.len() {
                batch.geometry(row).into_iter().for_each(geometry);
            }
        }
    }
}

/// Any bytes as GeoPackage binary.
pub fn gpkg_header(data: &[u8]) {
    if let Ok(body) = gpkg::body(data) {
        wkb(body);
    }
}

/// Any text as a coordinate reference system.
pub fn crs(data: &[u8]) {
    if let Ok(crs) = String::from_utf8_lossy(data).parse::<Crs>() {
        assert_eq!(crs.to_string().parse::<Crs>().ok(), Some(crs));
    }
}

/// Any text as a condition.
pub fn filter(data: &[u8]) {
    let schema = Arc::new(Schema::new([("a", Kind::Int), ("b", Kind::Text)]));
    let mut batch = Batch::new(schema.clone());
    let _ = batch.push_point(1.0, 2.0, [tidegate_geo::Value::Int(1), tidegate_geo::Value::Text("x")]);
    if let Ok(filter) = Filter::new(&String::from_utf8_lossy(data), &schema) {
        let _ = filter.keeps(&batch, 0);
    }
}

/// Any bytes as a grid of datum shifts.
pub fn grid(data: &[u8]) {
    if let Ok(grid) = tidegate_geo::crs::grid::Grid::read(&mut Cursor::new(data)) {
        let _ = (grid.forward(0.5, 51.5), grid.backward(0.5, 51.5));
    }
}

fn path(extension: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tidegate-fuzz-{}.{extension}", std::process::id()))
}

/// Any bytes as a GeoTIFF.
pub fn tiff(data: &[u8]) {
    let path = path("tif");
    if std::fs::write(&path, data).is_ok() {
        if let Ok(raster) = tidegate_geo::raster::Raster::open(&path) {
            let _ = raster.bounds();
        }
        let _ = std::fs::remove_file(&path);
    }
}

/// The fuzzer ends at any panic; those of the crate that reads Parquet become errors.
fn let_guarded_panics_pass() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !format::parquet::is_guarded() {
                before(info);
            }
        }));
    });
}

/// Any bytes as a file of this name.
pub fn file(extension: &str, data: &[u8]) {
    let_guarded_panics_pass();
    let path = path(extension);
    if std::fs::write(&path, data).is_err() {
        return;
    }
    if let Ok(mut reader) = format::open(&path, &options(Rules::Refuse)) {
        let mut rejected = Vec::new();
        while let Ok(Some(batch)) = reader.next_batch(&mut rejected) {
            for row in 0..batch.len() {
                batch.geometry(row).into_iter().for_each(geometry);
            }
        }
    }
    let _ = std::fs::remove_file(&path);
}
