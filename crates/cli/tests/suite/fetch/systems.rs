//! Services that leave open in which system their coordinates are, or say what is not so.

use tidegate_chaos::{Config, Handle, Quirk};

use crate::common::canned::Canned;
use crate::fetch::bench::{Bench, SEED, chaos, is_true, layer};
use crate::fetch::strangers::canned;

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
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_MISMATCH"), "{}", ran.stdout);
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
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_MISMATCH"), "{}", ran.stdout);
        assert!(ran.word("error").contains("Plant_Grid"), "{}", ran.stdout);
        assert!(!bench.path("out.geojsonl").exists());
    }
}

fn ogc(server: &Handle) -> String {
    format!("{}/ogc/collections/parcels/items", server.url())
}

#[test]
fn the_header_of_a_page_settles_its_system_before_the_page_does() {
    let server = server(&[Quirk::ContentCrs]);
    for args in [&[][..], &["--crs", "EPSG:3857"]] {
        let bench = Bench::new();
        let ran = bench.fetch(&ogc(&server), &[&["-o", "out.gpkg"], args].concat());
        assert_eq!((ran.code, ran.word("crs").as_str()), (0, "EPSG:3857"), "{} {}", ran.stdout, ran.stderr);
        // Back in degrees it is what the server has.
        let ran = bench.fetch(&ogc(&server), args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{} {}", ran.stdout, ran.stderr);
        let corner = &bench.features()[0]["geometry"]["coordinates"][0][0];
        let (lon, lat) = (corner[0].as_f64().unwrap(), corner[1].as_f64().unwrap());
        assert!((-5.01..-3.9).contains(&lon) && (39.99..50.1).contains(&lat), "{lon} {lat}");
    }
    // A system that was asked for and not given is no system to take instead.
    let bench = Bench::new();
    let ran = bench.fetch(&ogc(&server), &["--crs", "EPSG:25830"]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_MISMATCH"), "{}", ran.stdout);
    for part in ["EPSG:25830", "EPSG:3857", "Content-Crs"] {
        assert!(ran.word("error").contains(part), "{part}: {}", ran.stdout);
    }
    assert!(!bench.path("out.geojsonl").exists());
}

#[test]
fn a_page_whose_header_names_a_system_that_is_north_first_is_refused() {
    let uri = "<http://www.opengis.net/def/crs/EPSG/0/4326>";
    let body = r#"{"type":"FeatureCollection","features":[{"type":"Feature","id":1,"properties":{},"geometry":{"type":"Point","coordinates":[48.2,16.4]}}]}"#;
    let server = Canned::start(move |_| {
        format!("200 OK\r\nContent-Type: application/geo+json\r\nContent-Crs: {uri}\r\n\r\n{body}")
    });
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/collections/a/items", server.url()), &[]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_MISMATCH"), "{}", ran.stdout);
    assert!(ran.word("error").contains("north first"), "{}", ran.stdout);
}

#[test]
fn a_collection_is_held_against_the_extent_that_its_own_description_declares() {
    let swapped = server(&[Quirk::SwappedAxes]);
    // By its own address, by its name, and as the only one of a list.
    let url = format!("{}/ogc", swapped.url());
    let named = ["--profile", "ogcapi", "--layer", "parcels"];
    for (url, args) in [(ogc(&swapped), &[][..]), (url.clone(), &named[..]), (url, &named[..2])] {
        let bench = Bench::new();
        let ran = bench.fetch(&url, args);
        assert_eq!(
            (ran.code, ran.word("code").as_str()),
            (1, "CRS_MISMATCH"),
            "{url} {args:?}: {}",
            ran.stdout
        );
        assert!(ran.word("error").contains("swapped"), "{url}: {}", ran.stdout);
        assert!(!bench.path("out.geojsonl").exists());
        let trusting: Vec<&str> = args.iter().copied().chain(["--trust-crs"]).collect();
        assert_eq!(bench.fetch(&url, &trusting).code, 0, "{url}");
    }
    // Without a declared extent nothing contradicts.
    let silent = server(&[Quirk::SwappedAxes, Quirk::NoExtent]);
    assert_eq!(Bench::new().fetch(&ogc(&silent), &[]).code, 0);
}

#[test]
fn all_pages_are_in_one_system() {
    let page = |head: &str| {
        let (id, crs, next) = match head.contains("page=2") {
            false => (1, "EPSG:25832", r#"{"rel":"next","href":"?page=2"}"#),
            true => (2, "EPSG:25833", ""),
        };
        format!(
            r#"{{"type":"FeatureCollection","crs":{{"type":"name","properties":{{"name":"{crs}"}}}},"links":[{next}],"features":[{{"type":"Feature","id":{id},"properties":{{}},"geometry":{{"type":"Point","coordinates":[500000,5300000]}}}}]}}"#
        )
    };
    let server = canned(move |head| page(head));
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/collections/a/items", server.url()), &["-o", "out.gpkg"]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "CRS_MISMATCH"), "{}", ran.stdout);
    assert!(ran.word("error").contains("EPSG:25833"), "{}", ran.stdout);
}
