//! What was paid for once is not paid for again.

use tidegate_chaos::{Config, FaultKind};

use crate::geocode::bench::{Bench, chaos, fault, faulty};

#[test]
fn equal_addresses_are_asked_once() {
    let rows: String = (0..300).map(|i| format!("{i},Street {}\n", i % 7)).collect();
    for cache in [&[][..], &["--no-cache"]] {
        let server = chaos(Config::default());
        let bench = Bench::of("in.csv", format!("id,address\n{rows}").as_bytes());
        let ran = bench.geocode(&server.url(), cache);
        assert_eq!((ran.code, ran.ends()), (0, [300, 0, 0]), "{}", ran.stderr);
        assert_eq!((server.stats().requests, ran.count("calls")), (7, 7));
        assert_eq!(ran.count("shared") + ran.count("cache_hits"), 293);
        assert_eq!(bench.column("cache_hit").iter().filter(|hit| *hit == "false").count(), 7);
        let labels = bench.column("label");
        assert!(labels.iter().enumerate().all(|(i, label)| *label == format!("Street {}", i % 7)));
    }
}

#[test]
fn a_second_run_costs_nothing_and_says_the_same() {
    let server = chaos(Config { no_match: 0.2, ..Config::default() });
    let bench = Bench::of_rows(50);
    let first = bench.geocode(&server.url(), &[]);
    let before = bench.out();
    let second = bench.geocode(&server.url(), &[]);
    assert_eq!((first.code, second.code), (0, 0));
    assert_eq!((server.stats().requests, second.count("calls"), second.count("cache_hits")), (50, 0, 50));
    for (a, b) in before.iter().zip(bench.out()) {
        for name in ["id", "outcome", "label", "score", "lon", "lat"] {
            assert_eq!(a[name], b[name]);
        }
        assert_eq!((b["attempts"].as_str(), b["cache_hit"].as_str()), ("0", "true"));
    }
    // Another question, another answer.
    let third = bench.geocode(&server.url(), &["--language", "de"]);
    assert_eq!(third.count("calls"), 50);
}

#[test]
fn answers_that_are_too_old_are_asked_for_again() {
    let server = chaos(Config::default());
    let bench = Bench::of_rows(20);
    bench.geocode(&server.url(), &[]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(bench.geocode(&server.url(), &["--cache-ttl", "0s"]).count("calls"), 20);
    assert_eq!(bench.geocode(&server.url(), &["--cache-ttl", "1h"]).count("calls"), 0);
    assert_eq!(server.stats().requests, 40);
}

#[test]
fn nothing_is_kept_if_nothing_shall_be() {
    let server = chaos(Config::default());
    let bench = Bench::of_rows(20);
    for _ in 0..2 {
        assert_eq!(bench.geocode(&server.url(), &["--no-cache"]).count("calls"), 20);
    }
    assert!(!bench.path(".tidegate/responses.db").exists());
    assert_eq!(bench.geocode(&server.url(), &["--no-cache", "--resume"]).code, 2);
}

#[test]
fn failures_are_asked_again_by_the_next_run_and_not_by_the_resumed_one() {
    // One row is answered, five are refused, then the quota is spent.
    let faults = vec![fault(FaultKind::Status(422), "@2..6"), fault(FaultKind::Status(402), "@7")];
    let server = chaos(Config { faults, ..Config::default() });
    let bench = Bench::of_rows(10);
    let ran = bench.geocode(&server.url(), &["--in-flight", "1"]);
    assert_eq!((ran.code, server.stats().requests), (75, 7), "{}", ran.stderr);
    let ran = bench.geocode(&server.url(), &["--resume"]);
    assert_eq!((ran.code, ran.ends(), ran.count("calls")), (4, [5, 0, 5], 4), "{}", ran.stderr);
    assert!(bench.column("error_code")[1] == "UNPROCESSABLE", "the reason is kept");
    // That run is complete: the next one asks for what failed, resumed or not, and so does another.
    for (args, calls) in [(&["--resume"][..], 5), (&[], 0)] {
        let ran = bench.geocode(&server.url(), args);
        assert_eq!((ran.code, ran.ends(), ran.count("calls")), (0, [10, 0, 0], calls), "{}", ran.stderr);
    }
}

#[test]
fn a_failure_that_is_shared_names_no_other_row() {
    let server = faulty(FaultKind::Status(422), "100%");
    let bench = Bench::of("in.csv", b"id,address\n1,A\n2,A\n3,B\n");
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, ran.ends(), ran.count("calls")), (4, [0, 0, 3], 2));
    let errors = bench.column("error");
    assert_eq!(errors[0], errors[1]);
    assert!(errors.iter().all(|e| !e.contains("row")), "{errors:?}");
}

#[test]
fn a_state_that_is_no_database_is_refused_and_kept() {
    let server = chaos(Config::default());
    let bench = Bench::of_rows(2);
    std::fs::create_dir(bench.path(".tidegate")).unwrap();
    bench.write(".tidegate/responses.db", &[b'x'; 9000]);
    let ran = bench.geocode(&server.url(), &[]);
    assert!(ran.code == 2 && ran.stderr.contains("not a database"), "{}", ran.stderr);
    assert_eq!(std::fs::read(bench.path(".tidegate/responses.db")).unwrap(), [b'x'; 9000]);
}

#[test]
fn rows_that_stay_bad_do_not_stop_the_next_run() {
    let server = chaos(Config { bad_rows: 0.3, ..Config::default() });
    let bench = Bench::of_rows(100);
    let first = bench.geocode(&server.url(), &[]);
    assert_eq!(first.code, 4, "{}", first.stderr);
    let failed = first.ends()[2];
    assert!(failed > 20);
    // The good answers are known; what is asked is refused, row after row.
    for args in [&[][..], &["--resume"]] {
        let next = bench.geocode(&server.url(), args);
        assert_eq!(
            (next.code, next.ends(), next.count("calls")),
            (4, first.ends(), failed),
            "{}",
            next.stderr
        );
    }
}

#[test]
fn an_answer_with_a_flipped_bit_is_asked_for_anew() {
    let server = chaos(Config::default());
    let bench = Bench::of_rows(30);
    assert_eq!(bench.geocode(&server.url(), &[]).code, 0);
    let before = bench.out();
    let path = walk(bench.root()).into_iter().find(|path| path.ends_with("responses.db")).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    // A digit of a coordinate or of a score: the answer stays valid JSON.
    let rows: Vec<(i64, Vec<u8>)> = db
        .prepare("SELECT id, answer FROM answer ORDER BY id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows.len(), 30);
    for (id, mut answer) in rows.into_iter().take(10) {
        let at = answer.iter().rposition(u8::is_ascii_digit).unwrap();
        answer[at] ^= 1;
        db.execute("UPDATE answer SET answer = ?1 WHERE id = ?2", (answer, id)).unwrap();
    }
    // Rows of an older version have no checksum.
    db.execute("UPDATE answer SET sum = NULL WHERE id > 20", []).unwrap();
    drop(db);
    let ran = bench.geocode(&server.url(), &["--log-level", "warn"]);
    assert_eq!((ran.code, ran.count("calls"), ran.count("cache_hits")), (0, 10, 20), "{}", ran.stderr);
    assert!(ran.stderr.contains("does not match its checksum; it is asked for anew"), "{}", ran.stderr);
    for (a, b) in before.iter().zip(bench.out()) {
        for name in ["id", "outcome", "label", "score", "lon", "lat"] {
            assert_eq!(a[name], b[name]);
        }
    }
    // What was asked for anew is what is found now.
    assert_eq!(bench.geocode(&server.url(), &[]).count("calls"), 0);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
