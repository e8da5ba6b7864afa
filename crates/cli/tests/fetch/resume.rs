//! Cut off at any moment, and gone on with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_cli::chaos::{Config, Dialect, Handle, Unrest, spec};
use tidegate_core::{Chance, Rng};

use crate::bench::{Bench, chaos, each_way, layer};

const N: u64 = 1200;

fn slow() -> Config {
    Config { service: spec::service_ms("3..9").unwrap(), ..layer(N, 40) }
}

fn until_asked(server: &Handle, requests: u64) {
    let began = Instant::now();
    while server.stats().requests < requests {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", server.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_at_any_moment_each_feature_is_there_once() {
    let resumed = AtomicU64::new(0);
    each_way(|name, path, args| {
        let mut chance = Rng::new(name.len() as u64);
        let server = chaos(slow());
        let url = format!("{}{path}", server.url());
        let bench = Bench::new();
        let args: Vec<&str> = args.iter().copied().chain(["--resume"]).collect();
        let mut kills = 0;
        for _ in 0..4 {
            let asked = server.stats().requests + 4 + (chance.unit() * 8.0) as u64;
            let running = bench.start(&url, &args);
            until_asked(&server, asked);
            running.signal("KILL");
            // A run that was quicker than the kill has an output, and the next begins anew.
            kills += u64::from(running.end().code == -1);
        }
        let ran = bench.fetch(&url, &args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
        assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{name}");
        assert!(kills >= 3, "{name}: {kills}");
        resumed.fetch_add(ran.count("resumed"), Ordering::Relaxed);
        assert_eq!(bench.files(), ["out.geojsonl"], "{name}");
    });
    assert!(resumed.into_inner() > 0, "the kills left nothing to resume");
}

#[test]
fn a_polite_stop_goes_on_without_asking_for_a_page_again() {
    each_way(|name, path, args| {
        let server = chaos(slow());
        let url = format!("{}{path}", server.url());
        let bench = Bench::new();
        let more: Vec<&str> = args.iter().copied().chain(["--at-once", "1"]).collect();
        let running = bench.start(&url, &more);
        until_asked(&server, 12);
        running.signal("INT");
        let ran = running.end();
        assert_eq!((ran.code, ran.word("ended").as_str()), (1, "cancelled"), "{name}: {}", ran.stderr);
        let had = ran.count("pages");
        assert!(had >= 2, "{name}");
        let more: Vec<&str> = more.into_iter().chain(["--resume"]).collect();
        let ran = bench.fetch(&url, &more);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
        assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{name}");
        // Pages are counted over both runs: none was needed twice.
        let whole = Bench::new().fetch(&url, args).count("pages");
        assert_eq!(ran.count("pages"), whole, "{name}: {}", ran.stdout);
    });
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
    assert_eq!((ran.code, ran.word("ended").as_str()), (75, "try_later"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.count("pages"), 9, "12 calls, 3 of them about the layer");
    server.reset();
    let ran = bench.fetch(&url, &["--at-once", "1", "--resume"]);
    assert_eq!((ran.code, ran.count("written"), ran.count("resumed")), (0, N, 892), "{}", ran.stdout);
}

#[test]
fn one_spool_is_for_one_run() {
    let server = chaos(slow());
    let url = format!("{}/wfs", server.url());
    let bench = Bench::new();
    let running = bench.start(&url, &[]);
    until_asked(&server, 6);
    let ran = bench.fetch(&url, &[]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.word("error").contains("under way"), "{}", ran.stdout);
    assert_eq!(running.end().code, 0);
}
