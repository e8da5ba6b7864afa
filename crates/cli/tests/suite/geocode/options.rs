//! What can be said on the command line, and what is said back.

use crate::common::canned::Canned;
use crate::geocode::bench::{Bench, run};

#[test]
fn language_and_country_reach_the_service() {
    let server = Canned::matching();
    let bench = Bench::of_rows(1);
    let agent = "tidegate tests (ops@example.org)";
    let args = ["--language", "de", "--country", "at", "--user-agent", agent];
    let ran = bench.geocode(&server.url(), &args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let head = server.seen().remove(0);
    let line = head.lines().next().unwrap();
    assert!(line.contains("language=de") && line.contains("country=at"), "{line}");
    assert!(head.to_lowercase().contains(&format!("user-agent: {agent}")), "{head}");
    assert!(head.to_lowercase().contains("idempotency-key: "), "{head}");
}

#[test]
fn a_template_is_a_service_of_its_own() {
    let server = Canned::matching();
    let bench = Bench::of_rows(1);
    let ran = bench.geocode(&format!("{}/find?q={{address}}&n=1", server.url()), &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(server.seen()[0].starts_with("GET /find?q=1%20Harbour%20Road&n=1 "), "{:?}", server.seen());
}

#[test]
fn what_is_missing_is_said_before_anything_is_asked() {
    let server = Canned::matching();
    let bench = Bench::of_rows(1);
    let url = server.url();
    let cases: [(&[&str], &str); 9] = [
        (&["--profile", "nominatim"], "names your application"),
        (&["--profile", "nominatim", "--user-agent", "curl/8.0"], "names your application"),
        (&["--profile", "opencage"], "key"),
        (&["--profile", "opencage", "--key", "env:SURELY_NOT_SET_ANYWHERE"], "SURELY_NOT_SET_ANYWHERE"),
        (&["--profile", "opencage", "--key", "file:nowhere.txt"], "nowhere.txt"),
        (&["--profile", "nominatm"], "nominatim"),
        (&["--profile", "s3"], "s3"),
        (&["--metrics", "0.0.0.0:0"], "loopback"),
        (&["--rate", "fast"], "rate"),
    ];
    for (args, word) in cases {
        let ran = bench.geocode(&url, args);
        assert_eq!(ran.code, 2, "{args:?}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(server.connections(), 0);
    for args in [&["in.csv", "--address", "address", "-o", "o.csv"][..], &["in.csv", "-o", "o.csv"]] {
        let ran = run(&mut bench.bare(args));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
}

#[test]
fn an_address_inside_must_have_been_meant() {
    // A literal was written out; a name that leads inside was not meant.
    let bench = Bench::of_rows(1);
    let (_held, closed) = crate::common::canned::closed();
    let ran = bench.geocode(&format!("http://{closed}/"), &["--attempts", "1"]);
    assert_eq!((ran.code, bench.column("error_code")), (75, vec!["CONNECTION_REFUSED".into()]));
}

#[test]
fn a_rate_is_kept() {
    let server = Canned::matching();
    let bench = Bench::of_rows(12);
    let began = std::time::Instant::now();
    let ran = bench.geocode(&server.url(), &["--rate", "20/s"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // Waiting at least so long is the machine's promise, however busy it is.
    assert!(began.elapsed().as_millis() >= 450, "{:?}", began.elapsed());
}

#[test]
fn the_printed_manifest_is_the_same_pipeline() {
    let server = crate::geocode::bench::chaos(tidegate_chaos::Config {
        no_match: 0.2,
        ..tidegate_chaos::Config::default()
    });
    let bench =
        Bench::of("in.csv", b"id,lon,A b: ${c},outcome\n007,x,1 Harbour Road,y\n8,x,,y\n9,x,Quay 2,y\n10\n");
    let args = ["--address", "A b: ${c}"];
    let ran = bench.geocode(&server.url(), &args);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let geocoded = std::fs::read_to_string(bench.path("out.csv")).unwrap();
    assert!(geocoded.contains("\n007,x,"), "cells are as they were: {geocoded}");
    let calls = server.stats().requests;
    let printed = bench.geocode(&server.url(), &[&args[..], &["--print-manifest"]].concat());
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    bench.write("m.yaml", printed.stdout.as_bytes());
    std::fs::remove_file(bench.path("out.csv")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "m.yaml", "--quiet"]).current_dir(bench.path(""));
    let ran: crate::geocode::bench::Ran = command.output().unwrap().into();
    assert_eq!((ran.code, server.stats().requests), (4, calls), "answers are shared: {}", ran.stderr);
    let columns = |text: &str| {
        text.lines()
            .map(|line| line.split(',').take(6).map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let run = std::fs::read_to_string(bench.path("out.csv")).unwrap();
    assert_eq!(columns(&run), columns(&geocoded));
    let plan = bench.geocode(&server.url(), &[&args[..], &["--dry-run"]].concat());
    assert_eq!((plan.code, server.stats().requests), (0, calls), "{}", plan.stderr);
}
