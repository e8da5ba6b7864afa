//! Every format, every row, names that clash.

use serde_json::Value;
use tidegate_chaos::Config;

use crate::geocode::bench::{Bench, chaos};

const CLASH: &[u8] =
    b"ID,id2,Score,lon,LAT,geom,fid,geometry,outcome,geocode_outcome,geocode_score,input_lon,address,\n\
    1,2,3,4,5,6,7,8,9,10,11,12,A Street,x\n";

#[test]
fn names_that_clash_are_told_apart_in_every_format() {
    let server = chaos(Config::default());
    for out in ["out.csv", "out.geojson", "out.geojsonl", "out.gpkg"] {
        let bench = Bench::of("in.csv", CLASH);
        let ran = bench.geocode(&server.url(), &["-o", out]);
        assert_eq!(ran.code, 0, "{out}: {}", ran.stderr);
        if out == "out.csv" {
            let row = &bench.out()[0];
            assert_eq!(row.len(), 14 + 9 + 2, "{row:?}");
            assert_eq!((row["Score"].as_str(), row["outcome"].as_str()), ("3", "9"));
        }
    }
}

#[test]
fn columns_that_differ_only_in_case_survive_a_geopackage() {
    let server = chaos(Config::default());
    let bench = Bench::of("in.csv", b"id,ID,address\n1,2,A\n");
    let ran = bench.geocode(&server.url(), &["-o", "out.gpkg"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn a_geopackage_opens() {
    let server = chaos(Config { no_match: 0.2, bad_rows: 0.2, ..Config::default() });
    let bench = Bench::of_rows(2_500);
    let ran = bench.geocode(&server.url(), &["-o", "out.gpkg", "--no-cache", "--report", "r.html"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let page = std::fs::read_to_string(bench.path("r.html")).unwrap();
    assert!(page.contains("failed, see their error field"), "a failure is no success");
    let [matched, no_match, failed] = ran.ends();
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(bench.path("out.gpkg"), flags).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    assert_eq!(one("SELECT count(*) FROM out"), 2_500);
    assert_eq!(one("SELECT count(*) FROM out WHERE outcome = 'matched' AND geom IS NOT NULL"), matched);
    assert_eq!(one("SELECT count(*) FROM out WHERE outcome = 'no_match' AND geom IS NULL"), no_match);
    assert_eq!(one("SELECT count(*) FROM out WHERE error_code = 'BAD_REQUEST' AND geom IS NULL"), failed);
    assert_eq!(one("SELECT srs_id FROM gpkg_contents WHERE table_name = 'out'"), 4326);
    assert_eq!(one("SELECT count(*) FROM gpkg_geometry_columns WHERE geometry_type_name = 'POINT'"), 1);
    let magic: Vec<u8> =
        db.query_row("SELECT substr(geom, 1, 2) FROM out WHERE geom NOTNULL", [], |row| row.get(0)).unwrap();
    assert_eq!(magic, b"GP");
    let order: String = db
        .query_row("SELECT group_concat(id) FROM (SELECT id FROM out ORDER BY rowid LIMIT 3)", [], |r| {
            r.get(0)
        })
        .unwrap();
    assert_eq!(order, "1,2,3");
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn geojson_holds_every_row_also_those_without_a_place() {
    let server = chaos(Config { no_match: 0.3, ..Config::default() });
    let bench = Bench::of_rows(50);
    let ran = bench.geocode(&server.url(), &["-o", "out.geojson"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let whole: Value = serde_json::from_slice(&std::fs::read(bench.path("out.geojson")).unwrap()).unwrap();
    let features = whole["features"].as_array().unwrap();
    assert_eq!(features.len(), 50);
    let placed = features.iter().filter(|f| f["geometry"]["type"] == "Point").count() as u64;
    assert_eq!(placed, ran.ends()[0]);
    assert_eq!(features[4]["properties"]["id"], "5");
    bench.geocode(&server.url(), &["-o", "out.geojsonl"]);
    let lines = std::fs::read_to_string(bench.path("out.geojsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 50);
    assert_eq!(lines[4]["properties"]["outcome"], features[4]["properties"]["outcome"]);
}

#[test]
fn an_old_output_stays_until_the_new_one_is_whole() {
    let server = chaos(Config {
        faults: vec![crate::geocode::bench::fault(tidegate_chaos::FaultKind::Status(402), "@3")],
        ..Config::default()
    });
    let bench = Bench::of_rows(5);
    bench.write("out.csv", b"old\n");
    assert_eq!(bench.geocode(&server.url(), &["--in-flight", "1"]).code, 75);
    assert_eq!(std::fs::read(bench.path("out.csv")).unwrap(), b"old\n");
    assert_eq!(bench.geocode(&server.url(), &["--resume"]).code, 0);
    assert_eq!(bench.out().len(), 5);
}
