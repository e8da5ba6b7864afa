//! Each profile against the bodies of its service.

use tidegate_chaos::{Config, Dialect, FaultKind, spec};

use crate::common::canned::{Canned, json};
use crate::geocode::bench::{Bench, Ran, chaos, fault, faulty};

/// Profile, where chaos plays it, whether it wants a key, whether it can be asked what is at a place.
const PROFILES: [(&str, &str, bool, bool); 11] = [
    ("generic", "", false, true),
    ("csv2geo", "/csv2geo", true, true),
    ("esri", "/arcgis", false, true),
    ("google", "/google", true, true),
    ("here", "/here", true, true),
    ("mapbox", "/mapbox", true, true),
    ("nominatim", "/nominatim", false, true),
    ("opencage", "/opencage", true, true),
    ("pelias", "/pelias", false, true),
    ("photon", "/photon", false, true),
    ("us-census", "/census", false, false),
];

fn ask(bench: &Bench, url: &str, profile: &str, key: bool, args: &[&str]) -> Ran {
    let mut all = vec!["--profile", profile, "--user-agent", "tidegate tests (ops@example.org)"];
    if key {
        all.extend(["--key", "env:GEO_TEST_KEY"]);
    }
    all.extend(args);
    crate::geocode::bench::run(bench.command(url, &all).env("GEO_TEST_KEY", "k3y-of-the-tests"))
}

#[test]
fn matches_and_empty_answers() {
    let server = chaos(Config { no_match: 0.5, ..Config::default() });
    for (profile, path, key, _) in PROFILES {
        server.reset();
        let bench = Bench::of_rows(20);
        let ran = ask(&bench, &format!("{}{path}", server.url()), profile, key, &[]);
        let stats = server.stats();
        assert_eq!(ran.code, 0, "{profile}: {} {:?}", ran.stderr, bench.out());
        assert_eq!(ran.ends(), [20 - stats.no_match, stats.no_match, 0], "{profile}");
        assert!(stats.no_match > 2 && stats.no_match < 18, "{stats:?}");
        assert_eq!((stats.requests, stats.duplicates_executed), (20, 0), "{profile}");
        for row in bench.out() {
            let found = row["outcome"] == "matched";
            assert_eq!(row["label"].to_lowercase().contains("harbour"), found, "{profile} {row:?}");
            assert_eq!(row["lon"].is_empty(), !found, "{profile} {row:?}");
        }
    }
}

#[test]
fn what_is_at_a_place() {
    let server = chaos(Config::default());
    for (profile, path, key, reverse) in PROFILES {
        let bench = Bench::of("in.csv", b"id,x,y\n1,16.4,48.2\n2,-58.4,-34.6\n3,200,10\n4,x,1\n");
        let url = format!("{}{path}", server.url());
        let ran = ask(&bench, &url, profile, key, &["--lon", "x", "--lat", "y"]);
        if !reverse {
            assert_eq!(ran.code, 2, "{profile}: {}", ran.stderr);
            continue;
        }
        assert_eq!((ran.code, ran.ends()), (4, [2, 0, 2]), "{profile}: {} {:?}", ran.stderr, bench.out());
        let rows = bench.out();
        assert!(!rows[0]["label"].is_empty(), "{profile} {:?}", rows[0]);
        // The geometry is the place that was asked about.
        assert_eq!((rows[1]["lon"].as_str(), rows[1]["lat"].as_str()), ("-58.4", "-34.6"));
        assert!(rows[2]["error"].contains("200"), "{:?}", rows[2]);
        assert!(rows[3]["error"].contains("field \"x\": \"x\" is not a coordinate"));
    }
}

#[test]
fn errors_inside_a_200_are_tried_again() {
    for (profile, path, key, _) in PROFILES {
        let server = faulty(FaultKind::Error200, "@1..2");
        let bench = Bench::of_rows(6);
        let ran = ask(&bench, &format!("{}{path}", server.url()), profile, key, &[]);
        let stats = server.stats();
        assert_eq!((ran.code, ran.ends()), (0, [6, 0, 0]), "{profile}: {} {:?}", ran.stderr, bench.out());
        assert_eq!((stats.requests, stats.errors_in_200), (8, 2), "{profile}");
    }
}

#[test]
fn throttles_in_every_body_slow_the_lane() {
    for (profile, path, key, _) in PROFILES {
        let throttle_status = if profile == "google" { 200 } else { 429 };
        let limit = spec::throttle("bucket:200/s,burst=5").unwrap();
        let server = chaos(Config { limit, throttle_status, headers: Dialect::None, ..Config::default() });
        let bench = Bench::of_rows(40);
        let ran = ask(&bench, &format!("{}{path}", server.url()), profile, key, &[]);
        let stats = server.stats();
        assert_eq!((ran.code, ran.ends()), (0, [40, 0, 0]), "{profile}: {} {stats:?}", ran.stderr);
        assert_eq!((stats.executed, stats.duplicates_executed), (40, 0), "{profile}");
        assert_eq!(ran.count("throttled"), stats.throttled, "{profile}");
    }
}

#[test]
fn a_quota_that_is_spent_ends_the_run() {
    let bodies = [
        ("generic", "402 Payment Required", "{}"),
        ("generic", "200 OK", r#"{"error":"monthly quota exceeded"}"#),
        ("google", "200 OK", r#"{"results":[],"status":"OVER_DAILY_LIMIT"}"#),
        ("opencage", "402 Payment Required", r#"{"results":[],"status":{"code":402,"message":"quota"}}"#),
        ("nominatim", "403 Forbidden", "<html>blocked</html>"),
        ("csv2geo", "403 Forbidden", r#"{"error":{"code":"quota_exceeded"}}"#),
        ("generic", "429 Too Many Requests\r\nRetry-After: 86400", "{}"),
    ];
    for (profile, status, body) in bodies {
        let server = Canned::start(move |_| json(status, body));
        let bench = Bench::of_rows(1);
        let ran = ask(&bench, &server.url(), profile, true, &[]);
        assert_eq!(ran.code, 75, "{profile} {status} {body}: {} {}", ran.stdout, ran.stderr);
        assert_eq!((ran.json()["status"].as_str(), server.seen().len()), (Some("waiting"), 1));
        assert!(!bench.path("out.csv").exists());
    }
}

#[test]
fn a_ban_of_one_provider_is_an_error_of_another() {
    let server = chaos(Config { faults: vec![fault(FaultKind::Status(403), "100%")], ..Config::default() });
    for (profile, path, code) in [("nominatim", "/nominatim", 75), ("generic", "", 4)] {
        let bench = Bench::of_rows(1);
        let ran = ask(&bench, &format!("{}{path}", server.url()), profile, false, &[]);
        assert_eq!(ran.code, code, "{profile}: {}", ran.stderr);
    }
}
