//! Writes one file of every format that holds every shape, for `oracle/` to read with other
//! people's software.

use std::path::Path;
use std::sync::Arc;

use tidegate_geo::format::gpkg::{Store, Writing};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs, Kind, Schema, Value, format, wkt};

const GEOMETRIES: [&str; 12] = [
    "POINT (16.37 48.21)",
    "POINT Z (-0.1276 51.5072 11)",
    "LINESTRING (0 0, 1 1, 2 0.5)",
    "POLYGON ((0 0, 0 9, 9 9, 9 0, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))",
    "MULTIPOINT ((1 2), (3 4))",
    "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON (((0 0, 0 1, 1 1, 0 0)), ((5 5, 5 6, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
    "POLYGON Z ((0 0 1, 4 0 1, 4 4 1, 0 0 1))",
    "LINESTRING (-180 -90, 180 90)",
    "POLYGON EMPTY",
    "POINT (1e-9 -89.99999999999999)",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: samples FOLDER")?;
    let schema = Schema::new([
        ("wkt", Kind::Text),
        ("n", Kind::Int),
        ("x", Kind::Real),
        ("yes", Kind::Bool),
        ("day", Kind::Date),
        ("moment", Kind::DateTime),
        ("tree", Kind::Json),
    ]);
    for name in ["all.gpkg", "all.geojson", "all.geojsonl", "all.geojsons", "all.csv", "all.parquet"] {
        write(&Path::new(&folder).join(name), &Arc::new(schema.clone()), &Crs::wgs84(), &GEOMETRIES)?;
    }
    let flat: Vec<&str> = GEOMETRIES.into_iter().filter(|text| !text.contains('Z')).collect();
    write(&Path::new(&folder).join("flat.fgb"), &Arc::new(schema.clone()), &Crs::epsg(27700), &flat)?;
    let points = Arc::new(schema.of_shape(Shape::Point));
    for name in ["points.gpkg", "points.csv", "points.fgb"] {
        write(&Path::new(&folder).join(name), &points, &Crs::wgs84(), &GEOMETRIES[..1])?;
    }
    write(&Path::new(&folder).join("grid.parquet"), &points, &Crs::epsg(27700), &GEOMETRIES[..1])?;
    write(&Path::new(&folder).join("grid.gpkg"), &points, &Crs::epsg(27700), &GEOMETRIES[..1])?;
    let times = times(&points)?;
    let mut writer = format::create(
        &Path::new(&folder).join("times.gpkg"),
        &points,
        &Crs::wgs84(),
        &format::Options::default(),
    )?;
    writer.write(&times)?;
    writer.finish()?;
    store(&Path::new(&folder).join("store.gpkg"), &times)
}

/// Datetimes with and without a UTC offset, with and without a fraction of a second.
const MOMENTS: [&str; 6] = [
    "2026-11-15T04:05:06Z",
    "2026-11-15T04:05:06.789Z",
    "2026-11-15T06:05:06.5+02:00",
    "2026-11-15T04:05:06",
    "2026-11-15T04:05:06.789",
    "2026-11-15 04:05",
];

/// A row for each datetime, along a line.
fn times(schema: &Arc<Schema>) -> Result<Batch, Box<dyn std::error::Error>> {
    let mut batch = Batch::new(schema.clone());
    for (at, moment) in (0u8..).zip(MOMENTS) {
        let values = [Value::Text(moment), Value::Int(at.into()), Value::Null, Value::Null, Value::Null];
        let values = values.into_iter().chain([Value::Text(moment), Value::Null]);
        batch.push_point(f64::from(at) * 10.0, 45.0, values)?;
    }
    Ok(batch)
}

/// A sink of a pipeline: written batch by batch, with a table of state beside the layer.
fn store(path: &Path, batch: &Batch) -> Result<(), Box<dyn std::error::Error>> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let writing = Writing::upsert(vec!["n".into()]);
    let mut store = Store::open(path, "store", batch.schema(), &Crs::wgs84(), writing)?;
    store.db().execute_batch("CREATE TABLE tidegate_checkpoint (run TEXT PRIMARY KEY, position INTEGER)")?;
    for _ in 0..2 {
        store.begin()?;
        for row in 0..batch.len() {
            store.write(batch, row)?;
        }
        store.commit()?;
        store.finish()?;
    }
    Ok(store.close()?)
}

fn write(
    path: &Path,
    schema: &Arc<Schema>,
    crs: &Crs,
    geometries: &[&str],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut writer = format::create(path, schema, crs, &format::Options::default())?;
    let mut batch = Batch::new(schema.clone());
    for (at, text) in geometries.iter().enumerate() {
        let mut wkb = Vec::new();
        wkt::read(text, &mut wkb)?;
        let values = [
            Value::Text(text),
            Value::Int(i64::MIN + at as i64),
            Value::Real(1.0 / (at as f64 + 3.0)),
            Value::Bool(at % 2 == 0),
            Value::Text("2026-11-15"),
            Value::Text("2026-11-15T04:05:06.789Z"),
            Value::Json(r#"{"a":[1,2,{"b":null}]}"#),
        ];
        batch.push(Some(&wkb), values)?;
    }
    batch.push(None, [Value::Text("quote \" comma , line\nend ü"); 1].into_iter().chain([Value::Null; 6]))?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(())
}
