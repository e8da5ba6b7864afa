//! Whole files over HTTP: piece by piece, never a mixture.

use tidegate_chaos::{Config, FaultKind, Unrest};

use crate::common::canned::Canned;
use crate::fetch::bench::{Bench, chaos, fault, get, layer};

/// A file of two pieces.
const N: u64 = 32_000;

#[test]
fn a_file_in_pieces_or_whole_is_the_same_file() {
    let server = chaos(layer(N, 100));
    for (path, calls) in [("/file/parcels.geojson", 2), ("/file/whole/parcels.geojson", 1)] {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), &[]);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{path}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(ran.count("calls"), calls, "{path}");
        assert_eq!(bench.parcels().len() as u64, N, "{path}");
        assert_eq!(bench.files(), ["out.geojsonl"]);
    }
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/file/none.geojson", server.url()), &[]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "NOT_FOUND"), "{}", ran.stdout);
    let ran = bench.fetch(&format!("{}/file/parcels.xyz", server.url()), &["--profile", "file"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.word("error").contains("no supported file extension"), "{}", ran.stdout);
}

#[test]
fn pieces_that_break_are_fetched_again_and_a_cut_run_goes_on() {
    let faults = vec![fault(FaultKind::Cut, "@1"), fault(FaultKind::Status(404), "@3")];
    let server = chaos(Config { faults, ..layer(N, 100) });
    let bench = Bench::new();
    let url = format!("{}/file/parcels.geojson", server.url());
    let ran = bench.fetch(&url, &[]);
    assert_eq!((ran.code, ran.word("code").as_str()), (1, "NOT_FOUND"), "{}", ran.stdout);
    assert!(!bench.path("out.geojsonl").exists());
    let ran = bench.fetch(&url, &["--resume"]);
    assert_eq!(
        (ran.code, ran.count("written"), ran.count("calls")),
        (0, N, 1),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    assert_eq!(bench.parcels().len() as u64, N);
}

#[test]
fn a_file_that_changes_between_two_pieces_is_begun_anew() {
    // The page of another client changes the layer, and with it the file.
    let unrest = Unrest { delete_every: 1, ..Unrest::default() };
    let faults = vec![fault(FaultKind::Status(404), "@2")];
    let server = chaos(Config { unrest, faults, ..layer(N, 10) });
    let bench = Bench::new();
    let url = format!("{}/file/parcels.geojson", server.url());
    assert_eq!(bench.fetch(&url, &[]).code, 1);
    get(&server, "/ogc/collections/parcels/items?limit=1");
    let ran = bench.fetch(&url, &["--resume"]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    let count = server.layer()["count"].as_u64().unwrap();
    assert_eq!(count, N - 1);
    assert_eq!((ran.count("written"), bench.parcels().len() as u64), (count, count));
}

#[test]
fn a_name_without_an_extension_is_read_as_the_server_calls_it() {
    let server = chaos(layer(200, 100));
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/file/parcels", server.url()), &["--profile", "file"]);
    assert_eq!((ran.code, ran.count("written")), (0, 200), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(bench.files(), ["out.geojsonl"]);
}

#[test]
fn a_format_that_nobody_tells_is_settled_by_an_option() {
    let body = r#"{"type":"Feature","properties":{"n":1},"geometry":{"type":"Point","coordinates":[1,2]}}"#;
    let server = Canned::start(move |_| {
        format!(
            "200 OK\r\nContent-Type: application/octet-stream\r\n\r\n{body}\n{}\n",
            body.replace(":1}", ":2}")
        )
    });
    for path in ["/download", "/parcels.dat"] {
        let bench = Bench::new();
        let url = format!("{}{path}", server.url());
        let ran = bench.fetch(&url, &["--profile", "file"]);
        assert_eq!(ran.code, 2, "{path}: {}", ran.stdout);
        assert!(ran.word("error").contains("--input-format"), "{}", ran.stdout);
        let ran = bench.fetch(&url, &["--input-format", "geojsonl"]);
        assert_eq!((ran.code, ran.count("written")), (0, 2), "{path}: {} {}", ran.stdout, ran.stderr);
    }
    // It is the same word in a manifest, and not for pages.
    let printed =
        Bench::new().fetch(&format!("{}/x", server.url()), &["--input-format", "fgb", "--print-manifest"]);
    assert!(printed.stdout.contains("format: fgb"), "{}", printed.stdout);
    let ran = Bench::new()
        .fetch(&format!("{}/wfs", server.url()), &["--profile", "geoserver-wfs", "--input-format", "gml"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.word("error").contains("--body"), "{}", ran.stdout);
}
