//! A page is a record of its own: retried, classified, and never half.

use std::time::Duration;

use tidegate_chaos::{Config, Dialect, FaultKind, spec};

use crate::fetch::bench::{Bench, WAYS, chaos, counted, each_way, fault, layer};

const N: u64 = 430;

fn all_once(config: Config, what: &str) {
    each_way(|name, path, args| {
        let server = chaos(config.clone());
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!(ran.code, 0, "{what}, {name}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(ran.count("written"), N, "{what}, {name}");
        assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{what}, {name}");
    });
}

#[test]
fn the_first_attempt_at_everything_fails() {
    for (kind, what) in [
        (FaultKind::Status(503), "503"),
        (FaultKind::Reset, "reset"),
        (FaultKind::Cut, "cut"),
        (FaultKind::Error200, "an error in a 200"),
    ] {
        all_once(Config { faults: vec![fault(kind, "first:1")], ..layer(N, 100) }, what);
    }
}

#[test]
fn all_faults_at_once() {
    let faults = vec![
        fault(FaultKind::Status(500), "3%"),
        fault(FaultKind::Status(502), "3%"),
        fault(FaultKind::Reset, "3%"),
        fault(FaultKind::Cut, "3%"),
        fault(FaultKind::Error200, "3%"),
        fault(FaultKind::Slow(Duration::from_millis(50)), "3%"),
    ];
    all_once(Config { faults, ..layer(N, 60) }, "all faults");
}

#[test]
fn a_page_that_lost_its_half_is_no_page() {
    // Where the page says how many it holds it is asked for again; where it does not, the count or
    // the list of ids at the end tells.
    all_once(Config { faults: vec![fault(FaultKind::Short, "first:1")], ..layer(N, 100) }, "short");
}

#[test]
fn a_throttle_is_learned_and_obeyed() {
    let limit = spec::throttle("bucket:40/s,burst=4").unwrap();
    let config = Config { limit, headers: Dialect::RetryAfter, ..layer(N, 50) };
    let server = chaos(config);
    for (name, path, args) in WAYS {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
    }
    assert_eq!(server.stats().retry_after_violations_same_request, 0);
}

#[test]
fn a_page_that_never_comes_ends_the_run_and_leaves_no_output() {
    let server = chaos(Config { faults: vec![fault(FaultKind::Status(404), "@4")], ..layer(N, 100) });
    let bench = Bench::new();
    let url = format!("{}/ogc", server.url());
    let ran = bench.fetch(&url, &["--profile", "ogcapi"]);
    assert_eq!(
        (ran.code, ran.word("status").as_str(), ran.word("code").as_str()),
        (1, "failed", "NOT_FOUND")
    );
    assert_eq!((counted(&ran, "pages"), counted(&ran, "received")), (2, 200));
    assert!(!bench.path("out.geojsonl").exists());
    // Once the service is well the same command goes on where it was.
    let ran = bench.fetch(&url, &["--profile", "ogcapi", "--resume"]);
    assert_eq!((ran.code, ran.count("written"), counted(&ran, "resumed")), (0, N, 200), "{}", ran.stdout);
    assert_eq!(ran.count("calls"), 4, "the collections and three pages");
    assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))));
}
