//! Each row of the status table: how many calls it costs, how the row ends, what the run says.

use std::thread;

use tidegate_chaos::FaultKind;

use crate::geocode::bench::{Bench, Cells, Ran, faulty};

fn run(status: u16, when: &str, args: &[&str]) -> (Bench, Ran, u64) {
    let server = faulty(FaultKind::Status(status), when);
    let bench = Bench::of_rows(1);
    let ran = bench.geocode(&server.url(), args);
    (bench, ran, server.stats().requests)
}

fn only(bench: &Bench) -> Cells {
    let mut rows = bench.out();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn what_cannot_heal_costs_one_call() {
    let table = [
        (400, "BAD_REQUEST"),
        (401, "UNAUTHORIZED"),
        (403, "FORBIDDEN"),
        (404, "NOT_FOUND"),
        (409, "CONFLICT"),
        (422, "UNPROCESSABLE"),
    ];
    for (status, code) in table {
        let (bench, ran, calls) = run(status, "100%", &[]);
        assert_eq!((ran.code, calls, ran.count("calls")), (4, 1, 1), "{status}: {}", ran.stderr);
        assert_eq!(ran.ends(), [0, 0, 1], "{status}");
        assert_eq!(ran.json()["statuses"][status.to_string()], 1);
        let row = only(&bench);
        let cell = |name: &str| row[name].as_str();
        assert_eq!((cell("outcome"), cell("error_code"), cell("attempts")), ("failed", code, "1"));
        assert!(cell("error").contains(&format!("permanent_{status}")), "{row:?}");
        assert_eq!((cell("lon"), cell("lat")), ("", ""));
    }
}

#[test]
fn what_can_heal_is_tried_again_and_given_up_at_the_bound() {
    let table = [
        (408, "TIMEOUT"),
        (425, "UNEXPECTED_STATUS"),
        (500, "INTERNAL_ERROR"),
        (502, "BAD_GATEWAY"),
        (503, "SERVICE_UNAVAILABLE"),
        (504, "GATEWAY_TIMEOUT"),
    ];
    // They spend their time waiting, so they wait together.
    thread::scope(|scope| {
        for (status, code) in table {
            scope.spawn(move || {
                let (bench, ran, calls) = run(status, "first:1", &[]);
                assert_eq!((ran.code, calls), (0, 2), "{status}: {}", ran.stderr);
                assert_eq!(only(&bench)["attempts"], "2");
                assert_eq!(ran.count("retry_count_total"), 1);
                let (bench, ran, calls) = run(status, "100%", &["--attempts", "2"]);
                assert_eq!((ran.code, calls), (4, 2), "{status}: {}", ran.stderr);
                let row = only(&bench);
                assert_eq!((row["outcome"].as_str(), row["error_code"].as_str()), ("failed", code));
                assert!(row["error"].contains(&format!("transient_{status}_exhausted")), "{row:?}");
            });
        }
    });
}

#[test]
fn an_answer_is_an_answer() {
    let (bench, ran, calls) = run(500, "@9", &[]);
    assert_eq!((ran.code, calls, ran.ends()), (0, 1, [1, 0, 0]));
    assert_eq!(only(&bench)["outcome"], "matched");
    // No content is an empty answer.
    let (bench, ran, calls) = run(204, "100%", &[]);
    assert_eq!((ran.code, calls, ran.ends()), (0, 1, [0, 1, 0]), "{:?}", bench.out());
    assert_eq!(only(&bench)["error_code"], "");
}

#[test]
fn a_throttle_costs_no_attempt() {
    let (bench, ran, calls) = run(429, "first:3", &["--attempts", "1"]);
    assert_eq!((ran.code, calls, ran.count("throttled")), (0, 4, 3), "{}", ran.stderr);
    assert_eq!(only(&bench)["attempts"], "4");
    // But it does not go on for ever.
    let (bench, ran, _) = run(429, "100%", &["--attempts", "1", "--deadline", "4s"]);
    assert_eq!((ran.code, ran.ends()), (4, [0, 0, 1]), "{}", ran.stderr);
    let row = only(&bench);
    assert_eq!(row["error_code"], "RATE_LIMITED");
    assert!(row["error"].contains("deadline"), "{row:?}");
}

#[test]
fn a_spent_quota_ends_the_run_until_later() {
    let (bench, ran, calls) = run(402, "100%", &[]);
    assert_eq!((ran.code, calls), (75, 1), "{}", ran.stderr);
    let json = ran.json();
    assert_eq!((json["status"].as_str(), json["written"].as_u64()), (Some("waiting"), Some(0)));
    assert!(json["not_before_ms"].as_u64().is_some());
    assert!(!bench.path("out.csv").exists(), "no output that looks whole");
}
