//! Good files of every format, cut off and bent at many places.

use crate::limits::Desk;
use crate::zips;

const GOOD: &str = r#"{"type":"FeatureCollection","features":[
{"type":"Feature","id":1,"properties":{"n":1,"x":0.5,"name":"Wien","day":"2026-11-15"},"geometry":{"type":"MultiPolygon","coordinates":[[[[16,48],[17,48],[17,49],[16,48]]],[[[1,1],[9,1],[9,9],[1,1]],[[4,2],[5,2],[5,3],[4,2]]]]}},
{"type":"Feature","id":2,"properties":{"n":2,"x":null,"name":"Graz","day":null},"geometry":{"type":"MultiPolygon","coordinates":[[[[15,47],[16,47],[16,48],[15,47]]]]}},
{"type":"Feature","id":3,"properties":{"n":3,"x":1e300,"name":"","day":"2026-11-16"},"geometry":null}]}"#;

/// How many places of a file are tried.
const PLACES: usize = 24;

fn damaged(extension: &str) {
    let desk = Desk::new();
    desk.write("good.geojson", GOOD.as_bytes());
    let file = format!("good.{extension}");
    match extension {
        "geojson" => {}
        "zip" => desk.write(&file, &zips::zip(&[zips::plain("a.geojson", GOOD.as_bytes())])),
        _ => desk.run(&["convert", "good.geojson", &file], &[0]),
    }
    let good = desk.read(&file);
    for place in 0..PLACES {
        let at = good.len() * place / PLACES;
        let mut bent = good.clone();
        bent.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff);
        let mut turned = good.clone();
        turned.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x80);
        for (kind, bytes) in [("cut", &good[..at]), ("bent", &bent), ("turned", &turned)] {
            let name = format!("{kind}.{extension}");
            desk.write(&name, bytes);
            for companion in ["dbf", "shx", "prj", "cpg"] {
                let from = desk.path().join(format!("good.{companion}"));
                if extension == "shp" && from.exists() {
                    std::fs::copy(from, desk.path().join(format!("{kind}.{companion}"))).unwrap();
                }
            }
            // A file that says how long it is cannot be cut in silence.
            let says = matches!(
                extension,
                "gpkg" | "fgb" | "parquet" | "shp" | "zip" | "geojson" | "esrijson" | "gml"
            );
            if kind == "cut" && says {
                desk.run(&["check", &name], &[1, 2]);
                continue;
            }
            // One verb for each: they share the reader.
            match place % 3 {
                0 => desk.run(&["convert", &name, "out.geojsonl", "--overwrite"], &[0, 1, 2, 4]),
                1 => desk.run(&["inspect", &name], &[0, 1, 2]),
                _ => desk.run(&["check", &name], &[0, 1, 2]),
            }
        }
    }
}

/// A Shapefile's table is a file of its own.
#[test]
fn a_damaged_table() {
    let desk = Desk::new();
    desk.write("good.geojson", GOOD.as_bytes());
    desk.run(&["convert", "good.geojson", "good.shp"], &[0]);
    let good = desk.read("good.dbf");
    for at in (0..good.len()).step_by(good.len() / PLACES) {
        desk.write("good.dbf", &good[..at]);
        desk.run(&["check", "good.shp"], &[1, 2]);
        let mut bent = good.clone();
        bent.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff);
        desk.write("good.dbf", &bent);
        desk.run(&["check", "good.shp"], &[0, 1, 2]);
    }
}

macro_rules! of_every_format {
    ($($name:ident: $extension:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            damaged($extension);
        })*
    };
}

of_every_format! {
    damaged_geojson: "geojson",
    damaged_lines: "geojsonl",
    damaged_sequence: "geojsons",
    damaged_csv: "csv",
    damaged_geopackage: "gpkg",
    damaged_flatgeobuf: "fgb",
    damaged_geoparquet: "parquet",
    damaged_shapefile: "shp",
    damaged_gml: "gml",
    damaged_esri_json: "esrijson",
    damaged_archive: "zip",
}
