//! The manifests under `examples` do what they say.

use std::path::Path;

use serde_json::json;
use tidegate_chaos::{Config, Dialect, FaultKind, FaultRule, Handle, Unrest, spec};

use crate::common::provider::chaos;
use crate::common::running::Ran;
use crate::pipeline::bench::Bench;
use crate::pipeline::postgis::{Db, url};
use crate::pipeline::service::layer;

fn file(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    file.to_str().unwrap().to_owned()
}

fn example(bench: &Bench, name: &str, out: &str) -> Ran {
    let mut command = bench.command(&["run", &file(name), "--format", "json"]);
    command.env("OUT", bench.path(out)).output().unwrap().into()
}

/// The same against a provider.
fn against(bench: &Bench, server: &Handle, name: &str, out: &str) -> Ran {
    let mut command = bench.command(&["run", &file(name), "--format", "json"]);
    command.env("OUT", bench.path(out)).env("SERVICE", server.url()).output().unwrap().into()
}

#[test]
fn wfs_to_postgis() {
    // One in twenty calls fails and one in twenty is cut off: nothing of that shows.
    let fault = |kind| FaultRule { kind, when: spec::when("5%").unwrap() };
    let faults = vec![fault(FaultKind::Status(503)), fault(FaultKind::Cut)];
    let server = chaos(Config { faults, ..layer(500) });
    let mut db = Db::new("example");
    let bench = Bench::new();
    let run = |inserted: u64| {
        let mut command = bench.command(&["run", &file("wfs-to-postgis.yaml"), "--format", "json"]);
        command.env("SERVICE", server.url()).env("DATABASE_URL", url()).env("SCHEMA", &db.schema);
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let result = ran.json();
        assert_eq!((&result["written"], &result["inserted"]), (&json!(500), &json!(inserted)));
        assert_eq!(result["source"]["verdict"], "exact");
    };
    run(500);
    // The next night nothing has changed.
    run(0);
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT id) FROM {}.parcels"), ["(500,500)"]);
}

#[test]
fn arcgis_to_geopackage() {
    let unrest = Unrest { delete_every: 3, ..Unrest::default() };
    let server = chaos(Config { unrest, ..layer(500) });
    let bench = Bench::new();
    let ran = against(&bench, &server, "arcgis-to-geopackage.yaml", "city.gpkg");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = bench.sql("city.gpkg", "SELECT count(*), count(DISTINCT id) FROM parcels");
    let written = ran.json()["written"].as_u64().unwrap();
    assert_eq!(rows, [format!("{written}|{written}")]);
    let gone = server.layer()["deleted"].as_array().unwrap().len() as u64;
    assert!(gone > 0 && written >= 500 - gone, "{written} of 500 less {gone}");
}

#[test]
fn stac_to_geoparquet() {
    let server = chaos(layer(500));
    let bench = Bench::new();
    let ran = against(&bench, &server, "stac-to-geoparquet.yaml", "scenes.parquet");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["written"], 500);
    let seen = bench.tidegate(&["inspect", "scenes.parquet", "--format", "json"]);
    assert!(seen.stdout.contains("500"), "{}", seen.stdout);
}

#[test]
fn geocode_addresses() {
    let limit = spec::throttle("bucket:50/s,burst=5").unwrap();
    let server = chaos(Config { limit, headers: Dialect::RetryAfter, no_match: 0.2, ..Config::default() });
    let bench = Bench::new();
    let ran = against(&bench, &server, "geocode-addresses.yaml", "addresses.gpkg");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result = ran.json();
    let found = bench.sql("addresses.gpkg", "SELECT count(*) FROM addresses WHERE geom IS NOT NULL");
    let missed = result["no_match"].as_u64().unwrap();
    assert_eq!(found, [(result["written"].as_u64().unwrap() - missed).to_string()]);
}

#[test]
fn parcels() {
    let bench = Bench::new();
    for inserted in [39, 0] {
        let ran = example(&bench, "parcels.yaml", "out.gpkg");
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        let result = ran.json();
        assert_eq!(
            (&result["written"], &result["inserted"], &result["repaired"]),
            (&json!(39), &json!(inserted), &json!(1))
        );
    }
    assert_eq!(
        bench.sql("out.gpkg", "SELECT id, name, city FROM out WHERE id = 'W-007'"),
        ["W-007|Carla|Linz"]
    );
}

#[test]
fn large_parcels() {
    let bench = Bench::new();
    let ran = example(&bench, "large-parcels.yaml", "out.geojson");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result = ran.json();
    assert_eq!((&result["read"], &result["balanced"]), (&json!(40), &json!(true)));
    let page: serde_json::Value = serde_json::from_str(&bench.read("out.geojson")).unwrap();
    assert_eq!(page["features"].as_array().unwrap().len() as u64, result["written"].as_u64().unwrap());
}
