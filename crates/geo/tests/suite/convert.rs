//! From file to file.

use tidegate_geo::Crs;
use tidegate_geo::check::{Checks, check};
use tidegate_geo::convert::{Outside, Steps, convert};
use tidegate_geo::mapping::Rule;
use tidegate_geo::repair::Method;

fn lines(text: &str, to: &str, steps: &Steps) -> Result<(String, tidegate_geo::convert::Converted), String> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.geojson"), dir.path().join(to));
    std::fs::write(&from, text).unwrap();
    let done = convert(&from, &to, steps).map_err(|e| e.to_string())?.remove(0);
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
    assert!(lines(&null, "out.geojsonl", &Steps::default()).unwrap_err().contains("--from-crs"));
    let steps = Steps { from_crs: Some(Crs::epsg(3857)), ..Steps::default() };
    assert_eq!(lines(&null, "out.geojsonl", &steps).unwrap().0, out, "unknown, and then told");
    let unsaid = text.replace(&format!("{crs},"), "");
    assert_eq!(lines(&unsaid, "out.geojsonl", &steps).unwrap().0, out, "not said, and then told");
    let steps = Steps { from_crs: Some(Crs::epsg(25832)), ..Steps::default() };
    let refused = lines(&text, "out.geojsonl", &steps).unwrap_err();
    assert!(refused.contains("EPSG:3857") && refused.contains("EPSG:25832"), "{refused}");
}

/// A table that calls its columns longitude and latitude does not say on which datum, or even in which unit.
#[test]
fn the_system_that_is_told_counts_for_columns_of_longitude_and_latitude() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.csv"), dir.path().join("out.geojsonl"));
    std::fs::write(&from, "name,lon,lat\na,3500000,5400000\n").unwrap();
    let steps = Steps { from_crs: Some(Crs::epsg(31467)), ..Steps::default() };
    let done = convert(&from, &to, &steps).unwrap();
    assert_eq!(done[0].operation.as_ref().unwrap().from, Crs::epsg(31467));
    let text = std::fs::read_to_string(&to).unwrap();
    assert!(text.contains("[8.99897"), "{text}");
}

#[test]
fn what_cannot_be_projected_or_repaired_is_set_aside() {
    let bowtie = r#"{"type":"Feature","properties":{"a":2},"geometry":{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}}"#;
    let pole = r#"{"type":"Feature","properties":{"a":3},"geometry":{"type":"Polygon","coordinates":[[[0,90],[1,80],[2,80],[0,90]]]}}"#;
    let text = format!("{bowtie}\n{pole}\n");
    let steps =
        Steps { make_valid: Some(Method::Linework), to_crs: Some(Crs::epsg(3857)), ..Steps::default() };
    let (out, done) = lines(&text, "out.csv", &steps).unwrap();
    assert_eq!((done.features, done.repaired.geometries, done.rejected), (1, 1, 1));
    assert!(done.first_rejected[0].problems[0].message.contains("cannot be projected to EPSG:3857"));
    assert!(out.starts_with("a,wkt\n2,\"MULTIPOLYGON ((("), "{out}");
}

#[test]
fn features_are_chosen_mapped_and_kept_within_the_area() {
    let point = |a: i32, lon: f64| {
        format!(
            r#"{{"type":"Feature","properties":{{"a":{a},"b":"x"}},"geometry":{{"type":"Point","coordinates":[{lon},51.5]}}}}"#
        )
    };
    let text = [point(1, -0.1), point(2, 2.35), point(3, -1.0)].join("\n");
    let steps = Steps {
        filter: Some("a <> 3".into()),
        fields: Some(vec![Rule::rename("a", "n")]),
        to_crs: Some(Crs::epsg(27700)),
        ..Steps::default()
    };
    let (out, done) = lines(&text, "out.csv", &steps).unwrap();
    assert!(out.starts_with("n,x,y\n1,531"), "{out}");
    assert_eq!((done.read, done.left_out, done.features, done.outside, done.rejected), (3, 1, 2, 1, 0));
    assert_eq!(done.operation.unwrap().accuracy, Some(2.0));
    let strict = Steps { outside: Outside::Refuse, ..steps.clone() };
    let (_, done) = lines(&text, "out.csv", &strict).unwrap();
    assert_eq!((done.features, done.rejected), (1, 1));
    assert!(done.first_rejected[0].problems[0].message.contains("area of use"));
    let accurate = Steps { accuracy_max: Some(1.0), ..steps.clone() };
    assert!(lines(&text, "out.csv", &accurate).unwrap_err().contains("accurate to 2 m"));
    let wrong = Steps { filter: Some("c = 1".into()), ..steps };
    assert!(lines(&text, "out.csv", &wrong).unwrap_err().contains("no field \"c\""));
}

#[test]
fn a_source_without_a_system_must_be_given_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.csv"), dir.path().join("out.geojson"));
    std::fs::write(&from, "name,wkt\na,POINT (1 2)\n").unwrap();
    let refused = convert(&from, &to, &Steps::default()).unwrap_err().to_string();
    assert!(refused.contains("--from-crs"), "{refused}");
    assert!(!to.exists());
    let steps = Steps { from_crs: Some(Crs::epsg(4326)), ..Steps::default() };
    assert_eq!(convert(&from, &to, &steps).unwrap()[0].features, 1);
}

#[test]
fn half_a_position_in_csv_is_rejected_by_convert_and_check() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.csv"), dir.path().join("out.geojsonl"));
    std::fs::write(&from, "name,lon,lat\na,16.37,\nb,16.37,48.21\nc,,\n").unwrap();
    let done = convert(&from, &to, &Steps::default()).unwrap().remove(0);
    assert_eq!((done.features, done.rejected), (2, 1));
    let problem = &done.first_rejected[0].problems[0];
    assert_eq!((problem.record, problem.path.as_str()), (Some(0), "lat"));
    assert!(problem.message.contains("lat is empty, and lon is 16.37; fill in both"), "{problem}");
    let report = check(&from, &Checks::default(), &mut ()).unwrap();
    assert_eq!((report.features, report.rejected, report.is_good()), (2, 1, false));
    // The system of a .prj file that is not understood is not WGS 84.
    std::fs::write(dir.path().join("in.prj"), "PROJCS[\"Atlantis\"]").unwrap();
    let refused = convert(&from, &to, &Steps::default()).unwrap_err().to_string();
    assert!(refused.contains(".prj file names none that is known; pass it"), "{refused}");
}
