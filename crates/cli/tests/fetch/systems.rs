//! Services that leave open in which system their coordinates are, or say what is not so.

use tidegate_chaos::{Config, Handle, Quirk};

use crate::bench::{Bench, SEED, chaos, is_true, layer};

const N: u64 = 300;

fn server(quirks: &[Quirk]) -> Handle {
    chaos(Config { quirks: quirks.to_vec(), ..layer(N, 100) })
}

/// Fetches, and holds every feature against the one that the server has.
fn exact(server: &Handle, args: &[&str]) {
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), args);
    assert_eq!((ran.code, ran.count("written")), (0, N), "{args:?}: {} {}", ran.stdout, ran.stderr);
    let wrong = bench.features().into_iter().find(|feature| !is_true(SEED, feature));
    assert_eq!(wrong, None, "{args:?}");
}

#[test]
fn geojson_is_asked_for_by_the_name_that_the_server_offers() {
    exact(&server(&[Quirk::JsonSubtype]), &[]);
}

#[test]
fn geojson_in_degrees_is_not_taken_for_the_system_that_was_asked_for() {
    let server = server(&[Quirk::JsonDegrees]);
    exact(&server, &[]);
    exact(&server, &["--body", "geojson", "--crs", "EPSG:3857"]);
    // GML keeps to what it is asked for.
    let bench = Bench::new();
    let url = format!("{}/wfs", server.url());
    let ran = bench.fetch(&url, &["--crs", "EPSG:3857", "-o", "out.gpkg"]);
    assert_eq!((ran.code, ran.word("crs").as_str()), (0, "EPSG:3857"), "{} {}", ran.stdout, ran.stderr);
    let ran = bench.fetch(&url, &["--crs", "EPSG:3857"]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    let corner = &bench.features()[0]["geometry"]["coordinates"][0][0];
    let (lon, lat) = (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap());
    assert!((-5.01..-3.9).contains(&lon) && (39.99..50.1).contains(&lat), "{lon} {lat}");
}

#[test]
fn a_short_name_is_read_where_the_layer_is_or_refused() {
    for version in ["1.1.0", "2.0.0"] {
        let args = ["--body", "gml", "--wfs-version", version];
        exact(&server(&[Quirk::NorthFirst]), &args);
        let silent = server(&[Quirk::NorthFirst, Quirk::NoExtent]);
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}/wfs", silent.url()), &args);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_NOT_FOUND"), "{}", ran.stdout);
        assert!(ran.word("error").contains("--axis-order xy"), "{}", ran.stdout);
        assert!(!bench.path("out.geojsonl").exists());
        let said: Vec<&str> = args.iter().copied().chain(["--axis-order", "yx"]).collect();
        exact(&silent, &said);
    }
}

#[test]
fn an_arcgis_layer_in_a_system_that_nobody_knows_is_asked_for_degrees_or_refused() {
    let arcgis = |server: &Handle| format!("{}/arcgis/rest/services/parcels/FeatureServer/0", server.url());
    let good = server(&[Quirk::UnknownSystem]);
    let bench = Bench::new();
    let ran = bench.fetch(&arcgis(&good), &[]);
    assert_eq!((ran.code, ran.count("written")), (0, N), "{} {}", ran.stdout, ran.stderr);
    assert!(bench.features().iter().all(|feature| is_true(SEED, feature)));
    let bad = server(&[Quirk::UnknownSystem, Quirk::IgnoredSystem]);
    for args in [&[][..], &["--paging", "offset"]] {
        let bench = Bench::new();
        let ran = bench.fetch(&arcgis(&bad), args);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_NOT_FOUND"), "{}", ran.stdout);
        assert!(ran.word("error").contains("Plant_Grid"), "{}", ran.stdout);
        assert!(!bench.path("out.geojsonl").exists());
    }
}
