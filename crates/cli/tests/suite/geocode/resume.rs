//! Cut off at any moment, and gone on with: every row once, nothing paid for twice.

use tidegate_chaos::{Config, Handle, spec};
use tidegate_core::{Chance, Rng};

use crate::geocode::bench::{Bench, chaos, throttled, until_asked};

const ROWS: u64 = 300;

fn slow_server() -> Handle {
    let service = spec::service_ms("2..6").unwrap();
    chaos(Config { service, no_match: 0.1, ..throttled("bucket:300/s,burst=10") })
}

/// The output after the last run: every row once, in order.
fn is_whole(bench: &Bench) {
    let ids: Vec<String> = (1..=ROWS).map(|i| i.to_string()).collect();
    assert_eq!(bench.column("id"), ids);
    assert!(bench.column("outcome").iter().all(|o| o == "matched" || o == "no_match"));
}

#[test]
fn a_polite_stop_brings_calls_home_and_resuming_is_exact() {
    for (signal, resume) in [("INT", &["--resume"][..]), ("TERM", &[])] {
        let server = slow_server();
        let bench = Bench::of_rows(ROWS as usize);
        let running = bench.start(&server.url(), &[]);
        until_asked(&server, 80);
        running.signal(signal);
        let ran = running.end();
        // On a busy machine the run may be over before the signal comes.
        if ran.code != 0 {
            assert_eq!((ran.code, ran.json()["status"].as_str()), (1, Some("stopped")), "{}", ran.stderr);
            assert!(ran.stderr.contains("stopping"), "{}", ran.stderr);
            assert!(!bench.path("out.csv").exists());
        }
        let asked = server.stats();
        let ran = bench.geocode(&server.url(), resume);
        let stats = server.stats();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        is_whole(&bench);
        // Every call that was under way came home: not one answer was paid for twice.
        assert_eq!(ran.count("cache_hits"), asked.executed, "{signal}");
        assert_eq!((stats.executed, stats.duplicates_executed), (ROWS, 0), "{signal} {stats:?}");
    }
}

#[test]
fn a_stop_while_the_server_wants_no_calls() {
    let server = chaos(Config { headers: tidegate_chaos::Dialect::RetryAfter, ..throttled("fixed:20/10m") });
    let bench = Bench::of_rows(50);
    let running = bench.start(&server.url(), &["--patience", "1h", "--deadline", "1h"]);
    until_asked(&server, 21);
    running.signal("INT");
    let ran = running.end();
    assert_eq!((ran.code, ran.json()["status"].as_str()), (1, Some("stopped")), "{}", ran.stderr);
    assert_eq!(server.stats().executed, 20, "it waited for the server");
}

#[test]
fn killed_at_any_moment_nothing_is_lost_or_written_twice() {
    let mut chance = Rng::new(11);
    for _ in 0..4 {
        let server = slow_server();
        let bench = Bench::of_rows(ROWS as usize);
        let mut asked = 0;
        for _ in 0..3 {
            asked += 1 + (chance.unit() * 70.0) as u64;
            let running = bench.start(&server.url(), &["--resume"]);
            until_asked(&server, asked);
            running.signal("KILL");
            // On a busy machine the run may be over before the signal comes.
            if running.end().code == 0 {
                break;
            }
            assert!(!bench.path("out.csv").exists(), "an output that is not whole");
            asked = server.stats().requests;
        }
        let ran = bench.geocode(&server.url(), &["--resume"]);
        let stats = server.stats();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        is_whole(&bench);
        assert_eq!(ran.ends().iter().sum::<u64>(), ROWS);
        // What was on its way at a kill is asked for again, under its key: it costs nothing.
        assert_eq!((stats.executed, stats.duplicates_executed), (ROWS, 0), "{stats:?}");
        assert_eq!(stats.requests, ROWS + stats.replayed + stats.throttled, "{stats:?}");
        // The halves of killed runs are swept up.
        let left = bench.files().iter().filter(|(p, _)| p.to_string_lossy().contains("out.csv")).count();
        assert_eq!(left, 1, "{:?}", bench.files().iter().map(|(p, _)| p).collect::<Vec<_>>());
    }
}

#[test]
fn a_quota_that_comes_back_is_gone_on_with() {
    let limit = spec::throttle("fixed:40/1h").unwrap();
    let headers = tidegate_chaos::Dialect::RetryAfter;
    let first = chaos(Config { limit, headers, ..Config::default() });
    let bench = Bench::of_rows(100);
    let ran = bench.geocode(&first.url(), &[]);
    assert_eq!((ran.code, ran.json()["status"].as_str()), (75, Some("waiting")), "{}", ran.stderr);
    let paid = first.stats().executed;
    assert_eq!(paid, 40);
    // The same service, another day; and one more.
    for (ended, hits) in [(75, 40), (0, 80)] {
        first.reset();
        let ran = bench.geocode(&first.url(), &["--resume"]);
        assert_eq!((ran.code, first.stats().requests), (75, 0), "not before the time: {}", ran.stderr);
        std::fs::remove_file(bench.path(".tidegate/lanes.json")).unwrap();
        let ran = bench.geocode(&first.url(), &["--resume"]);
        assert_eq!((ran.code, ran.count("cache_hits")), (ended, hits), "{}", ran.stderr);
    }
    assert_eq!((first.stats().executed, bench.out().len()), (20, 100));
}
