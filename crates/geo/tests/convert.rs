//! From file to file.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use tidegate_geo::Crs;
use tidegate_geo::convert::{Steps, convert};

fn lines(text: &str, to: &str, steps: &Steps) -> Result<(String, tidegate_geo::convert::Converted), String> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.geojson"), dir.path().join(to));
    std::fs::write(&from, text).unwrap();
    let done = convert(&from, &to, steps).map_err(|e| e.to_string())?;
    Ok((std::fs::read_to_string(to).unwrap_or_default(), done))
}

const POINT: &str = r#"{"type":"Feature","id":5,"properties":{"a":1},"geometry":{"type":"Point","coordinates":[1113194.9079327343,0]}}"#;

#[test]
fn a_legacy_crs_is_brought_to_wgs84_and_the_way_is_told() {
    let crs = r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::3857"}}"#;
    let text = format!(r#"{{"type":"FeatureCollection",{crs},"features":[{POINT}]}}"#);
    let (out, done) = lines(&text, "out.geojsonl", &Steps::default()).unwrap();
    let operation = done.operation.unwrap();
    assert_eq!((operation.from, operation.to), (Crs::epsg(3857), Crs::wgs84()));
    assert!(
        out.starts_with(
            r#"{"type":"Feature","id":5,"properties":{"a":1},"geometry":{"type":"Point","coordinates":["#
        ),
        "{out}"
    );
    let x: f64 = out.split("[").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((x - 10.0).abs() < 1e-9, "{x}");

    let unknown = text.replace("EPSG::3857", "EPSG::99999");
    assert!(lines(&unknown, "out.geojsonl", &Steps::default()).unwrap_err().contains("CRS_NOT_FOUND"));
    let null = text.replace(crs, r#""crs":null"#);
    assert!(lines(&null, "out.geojsonl", &Steps::default()).unwrap_err().contains("names no system"));
}

#[test]
fn what_cannot_be_projected_or_repaired_is_set_aside() {
    let bowtie = r#"{"type":"Feature","properties":{"a":2},"geometry":{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}}"#;
    let pole = r#"{"type":"Feature","properties":{"a":3},"geometry":{"type":"Polygon","coordinates":[[[0,90],[1,80],[2,80],[0,90]]]}}"#;
    let text = format!("{bowtie}\n{pole}\n");
    let steps = Steps { make_valid: true, to_crs: Some(Crs::epsg(3857)), ..Steps::default() };
    let (out, done) = lines(&text, "out.csv", &steps).unwrap();
    assert_eq!((done.features, done.repaired, done.rejected.len()), (1, 1, 1));
    assert!(done.rejected[0].problems[0].message.contains("no place in EPSG:3857"));
    assert!(out.starts_with("a,wkt\n2,\"MULTIPOLYGON ((("), "{out}");
}
