//! Cut off at any moment, and gone on with.

use std::time::Duration;

use tidegate_chaos::{Config, Dialect, FaultKind, Unrest, spec};
use tidegate_core::{Chance, Rng};

use crate::fetch::bench::{Bench, chaos, counted, each_way, fault, layer, until_asked};

const N: u64 = 1200;

fn slow() -> Config {
    Config { service: spec::service_ms("3..9").unwrap(), ..layer(N, 40) }
}

#[test]
fn killed_at_any_moment_each_feature_is_there_once() {
    each_way(|name, path, args| {
        let mut chance = Rng::new(name.len() as u64);
        let server = chaos(slow());
        let url = format!("{}{path}", server.url());
        let bench = Bench::new();
        let args: Vec<&str> = args.iter().copied().chain(["--resume"]).collect();
        for _ in 0..4 {
            let asked = server.stats().requests + 4 + (chance.unit() * 8.0) as u64;
            let running = bench.start(&url, &args);
            until_asked(&server, asked);
            running.signal("KILL");
            // A run that was quicker than the kill has an output, and the next begins anew.
            running.end();
        }
        let ran = bench.fetch(&url, &args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
        assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{name}");
        assert_eq!(bench.files(), ["out.geojsonl"], "{name}");
    });
}

/// A server that answers the first requests and then keeps one waiting for good.
fn stuck_after(requests: u64) -> Config {
    let kind = FaultKind::Hang(Duration::from_secs(600));
    Config { faults: vec![fault(kind, &format!("@{}", requests + 1))], ..layer(N, 40) }
}

#[test]
fn stopped_or_killed_a_run_goes_on_without_asking_for_a_page_again() {
    for (signal, code) in [("INT", 1), ("TERM", 1), ("KILL", -1)] {
        each_way(|name, path, args| {
            let server = chaos(stuck_after(14));
            let url = format!("{}{path}", server.url());
            let bench = Bench::new();
            let more: Vec<&str> = args.iter().copied().chain(["--at-once", "1"]).collect();
            let running = bench.start(&url, &more);
            until_asked(&server, 15);
            running.signal(signal);
            let ran = running.end();
            assert_eq!(ran.code, code, "{signal}, {name}: {}", ran.stderr);
            if signal != "KILL" {
                assert_eq!(ran.word("status"), "stopped", "{signal}, {name}");
            }
            assert!(!bench.path("out.geojsonl").exists(), "{signal}, {name}");
            let again: Vec<&str> = more.iter().copied().chain(["--resume"]).collect();
            let ran = bench.fetch(&url, &again);
            assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
            assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{signal}, {name}");
            assert!(counted(&ran, "resumed") >= 10 * 39, "{signal}, {name}: {}", ran.stdout);
            // Pages are counted over both runs: none was needed twice.
            let whole = counted(&Bench::new().fetch(&url, &more), "pages");
            assert_eq!(counted(&ran, "pages"), whole, "{signal}, {name}: {}", ran.stdout);
        });
    }
}

#[test]
fn a_layer_that_changes_meanwhile_stays_whole() {
    each_way(|name, path, args| {
        let unrest = Unrest { delete_every: 3, ..Unrest::default() };
        let server = chaos(Config { unrest, ..slow() });
        let url = format!("{}{path}", server.url());
        let bench = Bench::new();
        let args: Vec<&str> = args.iter().copied().chain(["--resume"]).collect();
        let running = bench.start(&url, &args);
        until_asked(&server, 14);
        running.signal("KILL");
        running.end();
        let ran = bench.fetch(&url, &args);
        assert_eq!(ran.code, 0, "{name}: {} {}", ran.stdout, ran.stderr);
        let gone = server.layer();
        let gone = gone["deleted"].as_array().unwrap();
        let parcels = bench.parcels();
        let lost = (1..=N).filter(|id| !parcels.contains_key(id) && !gone.iter().any(|g| g == id)).count();
        assert_eq!((lost, parcels.values().filter(|n| **n > 1).count()), (0, 0), "{name}: {}", ran.stdout);
    });
}

#[test]
fn a_quota_that_is_spent_ends_with_75_and_goes_on_another_day() {
    let limit = spec::throttle("fixed:12/1h").unwrap();
    let server = chaos(Config { limit, headers: Dialect::RetryAfter, ..layer(N, 100) });
    let bench = Bench::new();
    let url = format!("{}/wfs", server.url());
    let ran = bench.fetch(&url, &["--at-once", "1"]);
    assert_eq!((ran.code, ran.word("status").as_str()), (75, "waiting"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(counted(&ran, "pages"), 9, "12 calls, 3 of them about the layer");
    server.reset();
    let ran = bench.fetch(&url, &["--at-once", "1", "--resume"]);
    assert_eq!((ran.code, server.stats().requests), (75, 0), "not before the time: {}", ran.stdout);
    std::fs::remove_file(bench.path(".tidegate/lanes.json")).unwrap();
    let ran = bench.fetch(&url, &["--at-once", "1", "--resume"]);
    assert_eq!((ran.code, ran.count("written"), counted(&ran, "resumed")), (0, N, 892), "{}", ran.stdout);
}

#[test]
fn one_spool_is_for_one_run() {
    let server = chaos(stuck_after(8));
    let url = format!("{}/wfs", server.url());
    let bench = Bench::new();
    let running = bench.start(&url, &["--at-once", "1"]);
    until_asked(&server, 9);
    for args in [&["--at-once", "1"][..], &["--at-once", "1", "--resume"]] {
        let ran = bench.fetch(&url, args);
        assert_eq!((ran.code, ran.word("status").as_str()), (75, "waiting"), "{}", ran.stdout);
        assert!(ran.word("error").contains("is active"), "{}", ran.stdout);
    }
    // The lock goes with its process, however that ends.
    running.signal("KILL");
    running.end();
    let ran = bench.fetch(&url, &["--at-once", "1", "--resume"]);
    assert_eq!((ran.code, ran.count("written")), (0, N), "{} {}", ran.stdout, ran.stderr);
}
