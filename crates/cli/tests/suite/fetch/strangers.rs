//! Links and redirects to where nobody was told to go.

use std::sync::{Arc, Mutex};

use tidegate_chaos::{Config, FaultKind};

use crate::common::canned::Canned;
use crate::fetch::bench::{Bench, chaos, counted, fault, layer};

/// Answers every request with what a function makes of its head, as GeoJSON that has not changed.
pub(crate) fn canned(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Canned {
    let head = "200 OK\r\nContent-Type: application/geo+json\r\nETag: \"1\"\r\n\
        Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT";
    Canned::start(move |asked| format!("{head}\r\n\r\n{}", answer(asked)))
}

/// One feature of this geometry, in this system.
pub(crate) fn shape(geometry: &str, crs: &str) -> String {
    format!(
        "{{\"type\":\"FeatureCollection\",\"crs\":{{\"type\":\"name\",\"properties\":{{\"name\":\"{crs}\"}}}},\
         \"features\":[{{\"type\":\"Feature\",\"id\":1,\"geometry\":{geometry},\"properties\":{{\"id\":1}}}}]}}"
    )
}

pub(crate) fn page(id: u32, next: &str) -> String {
    let link =
        if next.is_empty() { String::new() } else { format!("{{\"rel\":\"next\",\"href\":\"{next}\"}}") };
    format!(
        "{{\"type\":\"FeatureCollection\",\"features\":[{{\"type\":\"Feature\",\"id\":{id},\"geometry\":null,\
         \"properties\":{{\"id\":{id}}}}}],\"links\":[{link}]}}"
    )
}

#[test]
fn a_link_to_a_host_that_is_not_allowed_is_not_followed() {
    for link in [
        "http://evil.test/items",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "http://127.0.0.2:9/",
    ] {
        let server = canned(move |_| page(1, link));
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}/collections/a/items", server.url()), &[]);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "HOST_NOT_ALLOWED"), "{link}: {}", ran.stdout);
        assert!(!bench.path("out.geojsonl").exists());
        let pages = server.seen().into_iter().filter(|head| head.contains("/items"));
        assert_eq!(pages.count(), 1, "{link}");
    }
}

#[test]
fn a_key_stays_at_home() {
    let other = canned(|_| page(2, ""));
    let next = format!("{}/collections/a/items?page=2", other.url());
    let home = canned(move |_| page(1, &next));
    let bench = Bench::new();
    let key = bench.path("key");
    std::fs::write(&key, "top-secret").unwrap();
    let key = format!("file:{}", key.display());
    let ran = bench.fetch(&format!("{}/collections/a/items", home.url()), &["--key", &key]);
    assert_eq!(
        (ran.code, ran.word("code").as_str()),
        (1, "HOST_NOT_ALLOWED"),
        "another port: {}",
        ran.stdout
    );
    let there = format!("127.0.0.1:{}", other.port());
    let args = ["--key", &key, "--allow-host", &there];
    let ran = bench.fetch(&format!("{}/collections/a/items", home.url()), &args);
    assert_eq!((ran.code, ran.count("written")), (0, 2), "{} {}", ran.stdout, ran.stderr);
    assert!(home.seen().iter().all(|head| head.contains("Bearer top-secret")));
    let heads = other.seen();
    assert!(heads.len() == 1 && heads.iter().all(|head| !head.contains("top-secret")), "{heads:?}");
    assert!(!ran.stdout.contains("top-secret") && !ran.stderr.contains("top-secret"));
}

#[test]
fn a_redirect_to_a_host_that_is_not_allowed_is_not_followed() {
    let url = "http://evil.test/wfs".to_owned();
    let server = chaos(Config { faults: vec![fault(FaultKind::Redirect(url), "@5")], ..layer(500, 100) });
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--at-once", "1"]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "HOST_NOT_ALLOWED"), "{}", ran.stdout);
}

#[test]
fn a_link_that_a_service_has_forgotten_begins_anew_without_doubles() {
    // The second run finds its link refused, as when a search has expired.
    let seen = Arc::new(Mutex::new(0));
    let server = canned(move |head| {
        if !head.contains("/items") {
            return "{}".into();
        }
        let mut asked = seen.lock().unwrap();
        *asked += 1;
        match (head.contains("cursor=old"), head.contains("cursor=new"), *asked) {
            (false, false, 1) => page(1, "?cursor=old"),
            (false, false, _) => page(1, "?cursor=new"),
            (true, ..) => "{\"code\":\"InvalidParameterValue\",\"description\":\"no such cursor\"}".into(),
            (_, true, _) => page(2, ""),
        }
    });
    let bench = Bench::new();
    let url = format!("{}/collections/a/items", server.url());
    let ran = bench.fetch(&url, &[]);
    assert_eq!((ran.code, counted(&ran, "received")), (1, 1), "{}", ran.stdout);
    let ran = bench.fetch(&url, &["--resume"]);
    assert_eq!((ran.code, ran.count("written")), (0, 2), "{} {}", ran.stdout, ran.stderr);
    assert!(bench.parcels().into_iter().eq([(1, 1), (2, 1)]));
}

#[test]
fn an_object_of_a_store_is_a_file_too() {
    let server = canned(|_| page(7, ""));
    let bench = Bench::new();
    let ran = bench.fetch("s3://bucket/a/b.geojson", &["--endpoint", &server.url(), "--anonymous"]);
    assert_eq!((ran.code, ran.count("written")), (0, 1), "{} {}", ran.stdout, ran.stderr);
    assert!(server.seen()[0].starts_with("GET /bucket/a/b.geojson "));
    assert!(bench.parcels().into_iter().eq([(7, 1)]));
}

#[test]
fn a_feature_that_cannot_be_held_is_set_aside_with_its_reason() {
    let open = "{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,0],[1,1],[0,1]]]}";
    let server = canned(move |_| shape(open, "EPSG:4326"));
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/collections/a/items", server.url()), &["-o", "out.gpkg"]);
    assert_eq!(
        (ran.code, ran.count("written"), ran.count("rejected")),
        (4, 0, 1),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    let text = std::fs::read_to_string(bench.path(&ran.word("rejects"))).unwrap();
    let reject: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(reject["problems"][0]["code"], "INVALID_GEOMETRY");
    let raw: serde_json::Value = serde_json::from_str(reject["raw"].as_str().unwrap()).unwrap();
    assert_eq!(raw["geometry"]["coordinates"][0][2], serde_json::json!([1, 1]));
}

#[test]
fn the_system_that_a_page_names_is_kept_or_turned() {
    let point = "{\"type\":\"Point\",\"coordinates\":[1113194.9079327357,0]}";
    let server = canned(move |_| shape(point, "urn:ogc:def:crs:EPSG::3857"));
    let url = format!("{}/collections/a/items", server.url());
    let bench = Bench::new();
    assert_eq!(bench.fetch(&url, &["-o", "out.gpkg"]).word("crs"), "EPSG:3857");
    assert_eq!(bench.fetch(&url, &[]).word("crs"), "EPSG:4326");
    let lon = bench.features()[0]["geometry"]["coordinates"][0].as_f64().unwrap();
    assert!((lon - 10.0).abs() < 1e-9, "{lon}");
}
