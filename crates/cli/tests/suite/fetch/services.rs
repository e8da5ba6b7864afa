//! Every service and every format: all features, each once, each true.

use std::fs;

use tidegate_chaos::{Config, Quirk};

use crate::fetch::bench::{Bench, SEED, WAYS, chaos, counted, is_true, layer, number, verdict};

const N: u64 = 1037;

#[test]
fn every_way_brings_every_feature_once_and_unharmed() {
    let server = chaos(layer(N, 100));
    for (name, path, args) in WAYS {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!(ran.code, 0, "{name}: {} {}", ran.stdout, ran.stderr);
        assert_eq!((ran.word("status"), verdict(&ran)), ("done".into(), "exact".into()), "{name}");
        assert_eq!(["read", "written", "rejected"].map(|c| ran.count(c)), [N, N, 0], "{name}");
        let counts = ["declared", "declared_last", "received", "repeated", "passes", "steps_back"];
        assert_eq!(counts.map(|c| counted(&ran, c)), [N, N, N, 0, 1, 0], "{name}");
        let features = bench.features();
        assert_eq!(features.iter().map(number).collect::<Vec<_>>(), (1..=N).collect::<Vec<_>>(), "{name}");
        for feature in &features {
            assert!(is_true(SEED, feature), "{name}: {feature}");
        }
        // The pages are swept up; what is left is the output, and what a run keeps of itself.
        assert_eq!(bench.files(), ["out.geojsonl"], "{name}");
    }
}

#[test]
fn stac_items_keep_what_is_not_a_property() {
    let server = chaos(layer(25, 10));
    for (path, args) in
        [("/stac", &["--layer", "parcels"][..]), ("/stac/collections/parcels/items", &["--profile", "stac"])]
    {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!((ran.code, ran.count("written")), (0, 25), "{path}: {} {}", ran.stdout, ran.stderr);
        let last = bench.features().pop().unwrap();
        assert_eq!(last["properties"]["collection"], "parcels");
        let assets = &last["properties"]["assets"];
        assert!(assets.to_string().contains("/stac/assets/25.tif"), "{assets}");
    }
}

#[test]
fn every_format_holds_them_all() {
    let server = chaos(layer(321, 100));
    let bench = Bench::new();
    for name in ["out.gpkg", "out.fgb", "out.geojson", "out.csv", "out.geojsons"] {
        let ran = bench.fetch(&format!("{}/wfs", server.url()), &["-o", name]);
        assert_eq!((ran.code, ran.count("written")), (0, 321), "{name}: {}", ran.stderr);
        assert!(fs::metadata(bench.path(name)).unwrap().len() > 20_000, "{name}");
    }
    let db = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    let sums: (i64, i64) =
        db.query_row("SELECT count(*), sum(id) FROM out", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(sums, (321, 321 * 322 / 2));
    let csv = fs::read_to_string(bench.path("out.csv")).unwrap();
    assert_eq!(csv.lines().count(), 322);
}

#[test]
fn an_empty_layer_and_a_layer_of_one_are_layers() {
    for n in [0, 1, 2] {
        let server = chaos(layer(n, 1));
        for (name, path, args) in WAYS {
            let bench = Bench::new();
            let ran = bench.fetch(&format!("{}{path}", server.url()), args);
            assert_eq!(
                (ran.code, ran.count("written")),
                (0, n),
                "{name} of {n}: {} {}",
                ran.stdout,
                ran.stderr
            );
        }
    }
}

#[test]
fn a_layer_that_is_not_there_is_said_before_anything_is_read() {
    let server = chaos(layer(10, 10));
    let bench = Bench::new();
    for (path, args, said) in [
        ("/wfs", &["--layer", "roads"][..], "expected one of tide:parcels"),
        ("/wfs", &["--sort-by", "nix"], "expected one of id, name, zone, area, updated"),
        ("/arcgis/rest/services/parcels/FeatureServer", &["--layer", "roads"], "expected one of 0 (parcels)"),
        ("/api", &[], "pass --profile"),
        ("/wfs", &["-o", "out.shp"], "use .gpkg"),
        ("/wfs", &["-o", "no/out.gpkg"], "does not exist"),
        ("/ogc", &["--profile", "ogcapi", "--crs", "EPSG:4326"], "north-first"),
    ] {
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!(ran.code, 2, "{path} {args:?}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.word("error").contains(said), "{}", ran.stdout);
    }
    let ran = bench.fetch(&format!("{}/ogc", server.url()), &["--profile", "ogcapi", "--layer", "roads"]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "NOT_FOUND"), "{}", ran.stdout);
}

#[test]
fn an_identifier_that_is_no_property_becomes_a_field() {
    let server = chaos(Config { quirks: vec![Quirk::HiddenKey], ..layer(230, 50) });
    for (path, args) in [("/ogc", &["--profile", "ogcapi"][..]), ("/stac", &[])] {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!((ran.code, ran.count("written")), (0, 230), "{path}: {} {}", ran.stdout, ran.stderr);
        let ids: std::collections::BTreeSet<String> =
            bench.features().iter().map(|f| f["properties"]["id"].as_str().unwrap().to_owned()).collect();
        assert!(ids.len() == 230 && ids.contains("parcels.17"), "{path}");
    }
}
