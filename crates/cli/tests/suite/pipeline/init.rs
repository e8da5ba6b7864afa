//! `init` makes manifests that run as they are.

use tidegate_chaos::{Config, Handle, Quirk};

use crate::common::provider::chaos;
use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, point, polygon};
use crate::pipeline::service::layer;

#[test]
fn what_init_writes_runs() {
    let bench = Bench::new();
    bench.write(
        "a.geojsonl",
        &(polygon(SQUARE, r#"{"parcel_id":1,"s":null}"#) + &polygon(BOW_TIE, r#"{"parcel_id":2,"s":"x"}"#)),
    );
    let made = bench.tidegate(&["init", "a.geojsonl", "-o", "m.yaml"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = bench.read("m.yaml");
    assert!(text.starts_with("# yaml-language-server: $schema=tidegate.schema.json\n"));
    assert!(text.contains("key: [\"parcel_id\"]") && text.contains("make_valid: true"), "{text}");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 0, "{text}\n{}", ran.stderr);
    assert_eq!(bench.sql("a.out.gpkg", "SELECT count(*) FROM \"a.out\""), ["2"]);
    let again = bench.tidegate(&["init", "a.geojsonl", "-o", "m.yaml"]);
    assert_eq!(again.code, 2, "it overwrites nothing");
}

#[test]
fn other_sources_and_sinks() {
    let bench = Bench::new();
    bench.write("b.csv", "name,lon,lat\na,1.5,2.5\nb,3.5,4.5\n");
    let made = bench.tidegate(&["init", "b.csv", "--sink", "b.fgb"]);
    bench.write("m.yaml", &made.stdout);
    assert_eq!(bench.run(&[]).code, 0, "{}", made.stdout);
    bench.write(
        "c.geojson",
        &format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, point(1.5, 2.5, r#"{"id":7}"#).trim()),
    );
    let made = bench.tidegate(&["init", "c.geojson", "--sink", "env:DATABASE_URL", "--table", "c"]);
    assert!(
        made.stdout.contains("url: \"env:DATABASE_URL\"") && made.stdout.contains("table: \"c\""),
        "{}",
        made.stdout
    );
    bench.write("m.yaml", &made.stdout);
    assert_eq!(bench.tidegate(&["validate", "m.yaml"]).code, 0);
    assert_eq!(bench.tidegate(&["init", "none.geojson"]).code, 2);
}

#[test]
fn a_service_becomes_a_manifest_that_runs() {
    let server = chaos(layer(120));
    for (path, more, key) in [
        ("/wfs", &[][..], "key: [\"id\"]"),
        ("/ogc", &["--profile", "ogcapi"], "key: [\"id\"]"),
        ("/ogc/collections/parcels/items", &[], "key: [\"id\"]"),
        ("/arcgis/rest/services/parcels/FeatureServer", &[], "key: [\"OBJECTID\"]"),
        ("/stac", &["--layer", "parcels"], "sink:"),
    ] {
        let bench = Bench::new();
        let url = format!("{}{path}", server.url());
        let made = bench.tidegate(&[&["init", &url, "-o", "m.yaml", "--sink", "out.gpkg"], more].concat());
        assert_eq!(made.code, 0, "{path}: {}", made.stderr);
        let text = bench.read("m.yaml");
        assert!(text.contains("120 records; of the first 50") && text.contains(key), "{path}: {text}");
        assert!(
            text.contains("area: real") && text.contains("Coordinate reference system of the source: "),
            "{path}: {text}"
        );
        let ran = bench.run(&[]);
        assert_eq!(ran.code, 0, "{path}: {text}\n{}", ran.stderr);
        assert_eq!(ran.json()["written"], 120, "{path}");
    }
    let bench = Bench::new();
    let refused = bench.tidegate(&["init", &format!("{}/nothing", server.url())]);
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("cannot detect the protocol"), "{}", refused.stderr);
}

#[test]
fn a_layer_in_a_system_that_nobody_knows_is_not_said_to_be_in_wgs84() {
    let quirks = vec![Quirk::UnknownSystem];
    let server = chaos(Config { quirks, ..layer(20) });
    let bench = Bench::new();
    let arcgis = |server: &Handle| format!("{}/arcgis/rest/services/parcels/FeatureServer/0", server.url());
    // It is asked for degrees, and says what it was asked for.
    let made = bench.tidegate(&["init", &arcgis(&server)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(
        made.stdout.contains("Coordinate reference system of the source: EPSG:4326\n"),
        "{}",
        made.stdout
    );
    assert!(!made.stdout.contains("CRS84"), "{}", made.stdout);
    // A server that does not answer in degrees has no manifest.
    let quirks = vec![Quirk::UnknownSystem, Quirk::IgnoredSystem];
    let server = chaos(Config { quirks, ..layer(20) });
    let made = bench.tidegate(&["init", &arcgis(&server)]);
    assert_eq!((made.code, made.stdout.as_str()), (2, ""), "{}", made.stderr);
    assert!(made.stderr.contains("Plant_Grid") && !made.stderr.contains("CRS84"), "{}", made.stderr);
}
