//! Connections that break, answers that stop, services that go away.

use std::time::Duration;

use tidegate_chaos::{Config, FaultKind, spec};

use crate::common::canned::{Canned, MATCH, json};
use crate::geocode::bench::{Bench, chaos, fault, faulty};

#[test]
fn resets_and_cut_bodies_lose_nothing() {
    for kind in [FaultKind::Reset, FaultKind::Cut] {
        let server = faulty(kind.clone(), "first:1");
        let bench = Bench::of_rows(8);
        let ran = bench.geocode(&server.url(), &[]);
        let stats = server.stats();
        assert_eq!((ran.code, ran.ends()), (0, [8, 0, 0]), "{kind:?}: {} {:?}", ran.stderr, bench.out());
        assert_eq!((stats.requests, stats.duplicates_executed), (16, 0), "{kind:?}");
        assert_eq!(stats.resets + stats.cuts, 8);
        assert!(bench.column("attempts").iter().all(|n| n == "2"));
    }
}

#[test]
fn a_row_that_only_breaks_fails_with_the_reason() {
    let hour = Duration::from_secs(3600);
    for (kind, timeout, codes) in [
        (FaultKind::Reset, "60s", &["CONNECTION_RESET", "TRUNCATED_BODY"][..]),
        (FaultKind::Cut, "60s", &["TRUNCATED_BODY"]),
        (FaultKind::Hang(hour), "300ms", &["TIMEOUT"]),
        (FaultKind::Slow(hour), "300ms", &["TIMEOUT"]),
    ] {
        let server = faulty(kind.clone(), "100%");
        let bench = Bench::of_rows(1);
        let ran = bench.geocode(&server.url(), &["--attempts", "2", "--timeout", timeout]);
        assert_eq!((ran.code, ran.count("calls")), (4, 2), "{kind:?}: {}", ran.stderr);
        let row = &bench.out()[0];
        assert!(codes.contains(&row["error_code"].as_str()), "{kind:?}: {row:?}");
    }
}

#[test]
fn a_slow_body_is_waited_for() {
    let server = faulty(FaultKind::Slow(Duration::from_millis(300)), "100%");
    let bench = Bench::of_rows(5);
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, ran.ends(), server.stats().requests), (0, [5, 0, 0], 5), "{}", ran.stderr);
}

#[test]
fn hangs_do_not_hold_up_the_others() {
    let server = faulty(FaultKind::Hang(Duration::from_secs(3600)), "first:1");
    let bench = Bench::of_rows(10);
    // On a busy machine an answer may take longer than the timeout too; it is asked for again.
    let ran = bench.geocode(&server.url(), &["--timeout", "1s", "--attempts", "50"]);
    assert_eq!((ran.code, ran.ends()), (0, [10, 0, 0]), "{} {:?}", ran.stderr, bench.out());
    assert_eq!(server.stats().hangs, 10);
}

#[test]
fn a_gateway_page_in_a_200_is_no_answer() {
    let page = "<html><body><h1>502 Bad Gateway</h1></body></html>";
    let server = Canned::start(move |_| format!("200 OK\r\nContent-Type: text/html\r\n\r\n{page}"));
    for profile in ["generic", "pelias", "photon"] {
        let bench = Bench::of_rows(1);
        let ran = bench.geocode(&server.url(), &["--attempts", "2", "--profile", profile]);
        assert_eq!((ran.code, ran.ends()), (4, [0, 0, 1]), "{profile}: {}", ran.stderr);
        let row = &bench.out()[0];
        assert!(row["error_code"] != "NO_MATCH" && row["error"].contains("502 Bad Gateway"), "{row:?}");
    }
}

#[test]
fn nobody_is_at_home() {
    let bench = Bench::of_rows(1);
    let (_held, closed) = crate::common::canned::closed();
    let ran = bench.geocode(&format!("http://{closed}"), &["--attempts", "2"]);
    assert_eq!((ran.code, ran.ends()), (75, [0, 0, 1]), "{}", ran.stderr);
    assert_eq!(bench.column("error_code"), ["CONNECTION_REFUSED"]);
    assert_eq!(ran.json()["statuses"]["none"], 2);
}

#[test]
fn a_service_that_stays_away_ends_the_run_until_later() {
    let server = faulty(FaultKind::Status(503), "100%");
    let bench = Bench::of_rows(200);
    let ran = bench.geocode(&server.url(), &["--patience", "2s"]);
    assert_eq!((ran.code, ran.json()["status"].as_str()), (75, Some("waiting")), "{}", ran.stderr);
    assert!(server.stats().requests < 200, "{:?}", server.stats());
    assert!(!bench.path("out.csv").exists());
}

#[test]
fn an_outage_after_many_good_calls_costs_no_row() {
    let outage = spec::outage("1s..11s,collapse=20").unwrap();
    let server =
        chaos(Config { outages: vec![outage], ..crate::geocode::bench::throttled("bucket:1000/s,burst=50") });
    let bench = Bench::of_rows(3000);
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, ran.ends()), (0, [3000, 0, 0]), "{}", ran.stderr);
    assert_eq!((server.stats().executed, server.stats().duplicates_executed), (3000, 0));
}

#[test]
fn an_outage_with_a_fragile_recovery_loses_nothing() {
    let outage = spec::outage("300ms..1500ms,collapse=20,again=500ms,fragile=1s").unwrap();
    let service = spec::service_ms("3").unwrap();
    let server = chaos(Config {
        outages: vec![outage],
        service,
        ..crate::geocode::bench::throttled("bucket:400/s,burst=20")
    });
    let bench = Bench::of_rows(400);
    let ran = bench.geocode(&server.url(), &[]);
    let stats = server.stats();
    assert_eq!((ran.code, ran.ends()), (0, [400, 0, 0]), "{} {stats:?}", ran.stderr);
    assert_eq!((stats.executed, stats.duplicates_executed), (400, 0), "{stats:?}");
}

#[test]
fn everything_at_once() {
    let kinds = [
        (FaultKind::Status(500), "2%"),
        (FaultKind::Status(502), "2%"),
        (FaultKind::Reset, "3%"),
        (FaultKind::Cut, "3%"),
        (FaultKind::Error200, "2%"),
    ];
    let faults = kinds.map(|(kind, when)| fault(kind, when)).to_vec();
    let server = chaos(Config {
        faults,
        bad_rows: 0.05,
        no_match: 0.05,
        ..crate::geocode::bench::throttled("bucket:400/s,burst=20")
    });
    let bench = Bench::of_rows(400);
    // A machine that is busy may be refused a row often.
    let ran = bench.geocode(&server.url(), &["--attempts", "20"]);
    let stats = server.stats();
    // A bad row may meet another fault first, but it ends bad.
    let bad = bench.column("error_code").iter().filter(|code| *code == "BAD_REQUEST").count() as u64;
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(ran.ends()[2], bad, "{:?}", bench.column("error"));
    assert_eq!(ran.ends().iter().sum::<u64>(), 400);
    assert_eq!(stats.duplicates_executed, 0, "{stats:?}");
    let ids: Vec<String> = (1..=400).map(|i| i.to_string()).collect();
    assert_eq!(bench.column("id"), ids);
}

#[test]
fn a_body_of_another_world_is_an_error_that_quotes_it() {
    for (body, code) in [("[1,2", "TRUNCATED_BODY"), ("{\"x\":1}", "UNEXPECTED_BODY"), (MATCH, "")] {
        let server = Canned::start(move |_| json("200 OK", body));
        let bench = Bench::of_rows(1);
        let ran = bench.geocode(&server.url(), &["--attempts", "1"]);
        let row = &bench.out()[0];
        assert_eq!(row["error_code"], code, "{row:?} {}", ran.stderr);
    }
}
