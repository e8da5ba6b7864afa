//! The audit of runs and of dead letters: what is entered, and that every touch is named.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};
use tidegate_chaos::{Config, FaultKind};

use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, addresses, polygon};

const BOOK: &str = ".tidegate/test/audit.db";

/// Forty records in batches of ten, one in four of them invalid.
pub(crate) fn bench(sink: &str) -> Bench {
    let bench = Bench::new();
    let input: String = (0..40)
        .map(|n| {
            polygon(if n % 4 == 3 { BOW_TIE } else { SQUARE }, &format!(r#"{{"id":{n},"owner":"Ann Onym"}}"#))
        })
        .collect();
    bench.write("in.geojsonl", &input);
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 10 }}\nsink: {{ {sink} }}"));
    bench
}

fn entries(bench: &Bench, more: &[&str]) -> Vec<Value> {
    let ran =
        bench.tidegate(&[&["audit", "show", "m.yaml", "-n", "1000", "--format", "json"], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.json().as_array().unwrap().clone()
}

fn words(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["act"].as_str().unwrap()).collect()
}

fn verified(bench: &Bench, code: i32, more: &[&str]) -> Value {
    let ran = bench.tidegate(&[&["audit", "verify", "m.yaml", "--format", "json"], more].concat());
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
    ran.json()[0].clone()
}

#[test]
fn every_decision_of_a_run_is_entered() {
    let bench = bench("file: out.gpkg, key: [id]");
    assert_eq!(bench.runs(4)["rejected"], 10);
    let all = entries(&bench, &[]);
    assert_eq!((all[0]["act"].as_str(), all.last().unwrap()["act"].as_str()), (Some("run"), Some("end")));
    let count = |act: &str| words(&all).iter().filter(|word| **word == act).count();
    assert_eq!((count("commit"), count("route"), count("gate"), count("halt")), (4, 10, 8, 0));
    let routed = entries(&bench, &["--act", "route", "--code", "INVALID_GEOMETRY", "--key", "record 7"]);
    assert_eq!(routed.len(), 1);
    let entry = &routed[0];
    assert!(entry["to"].as_str().unwrap().contains(".tidegate") && entry["who"].is_string(), "{entry}");
    assert_eq!(entry["detail"]["problems"][0]["code"], "INVALID_GEOMETRY");
    let last = &all.last().unwrap()["detail"];
    assert_eq!((&last["read"], &last["written"], &last["balanced"]), (&json!(40), &json!(30), &json!(true)));
    let whole = verified(&bench, 0, &[]);
    assert_eq!(
        (&whole["whole"], &whole["entries"], &whole["copied"]),
        (&json!(true), &json!(24), &json!(24))
    );
    assert!(whole["key"].is_string());
    // A second run goes on in the same book.
    assert_eq!(bench.run(&[]).code, 4);
    assert_eq!(verified(&bench, 0, &[])["entries"], 48);
    let table = bench.tidegate(&["audit", "show", "--act", "commit"]);
    assert!(table.stdout.contains("commit") && table.stdout.lines().count() == 9, "{}", table.stdout);
}

#[test]
fn a_halt_is_entered_and_quotes_nothing() {
    let bench = Bench::new();
    bench.write("in.csv", "id,secret\n1,a\n2,hush-hush\n");
    bench.manifest("source: { file: in.csv, crs: EPSG:4326 }\ngates:\n  - { check: one_of, fields: [secret], values: [a], severity: halt }\nsink: { file: out.gpkg }");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let reason = ran.json()["halt"]["reason"].as_str().unwrap().to_owned();
    let halts = entries(&bench, &["--act", "halt"]);
    assert_eq!(halts.len(), 1);
    assert_eq!((&halts[0]["code"], &halts[0]["to"]), (&json!("HALTED"), &json!("uncommitted")));
    let n = halts[0]["n"].to_string();
    let book = fs::read(bench.path(BOOK)).unwrap();
    let wal = fs::read(bench.path(&format!("{BOOK}-wal"))).unwrap_or_default();
    for bytes in [book, wal] {
        assert!(!String::from_utf8_lossy(&bytes).contains("hush"), "a value reached the audit");
    }
    let is = |value: &str| bench.tidegate(&["audit", "match", "m.yaml", &n, value]);
    assert_eq!((is(&reason).code, is("something else").code), (0, 1));
}

#[test]
fn a_sink_that_appears_whole_commits_once() {
    let bench = bench("file: out.geojsonl");
    bench.runs(4);
    let all = entries(&bench, &["--act", "stage,commit"]);
    assert_eq!(words(&all), ["stage", "stage", "stage", "stage", "commit"]);
    assert_eq!(verified(&bench, 0, &[])["whole"], true);
}

/// Copies everything of a state directory but what is not there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn every_touch_is_named() {
    let bench = bench("file: out.gpkg, key: [id]");
    bench.runs(4);
    let state = bench.path(".tidegate");
    let touch = |sql: &str| {
        let to = bench.path("touched");
        let _ = fs::remove_dir_all(&to);
        copy(&state, &to);
        Connection::open(to.join("test/audit.db")).unwrap().execute_batch(sql).unwrap();
        let found = verified(&bench, 1, &["--state", "touched"]);
        (found["entry"].as_i64().unwrap(), found["fault"].as_str().unwrap().to_owned())
    };
    let last = verified(&bench, 0, &[])["entries"].as_i64().unwrap();
    for n in [1, 7, 13, last] {
        let is = |fault: &str| (n, fault.to_owned());
        let gone = if n == last { "truncated" } else { "deleted" };
        assert_eq!(touch(&format!("UPDATE audit SET detail = '{{}}' WHERE n = {n}")), is("edited"));
        assert_eq!(touch(&format!("DELETE FROM audit WHERE n = {n}")), is(gone));
        assert_eq!(touch(&format!("DELETE FROM audit WHERE n >= {n}")), is("truncated"));
        if n < last {
            let swap = format!(
                "UPDATE audit SET n = 0 WHERE n = {n}; UPDATE audit SET n = {n} WHERE n = {last};
                 UPDATE audit SET n = {last} WHERE n = 0"
            );
            assert_eq!(touch(&swap), is("reordered"));
        }
    }
    let more = format!(
        "INSERT INTO audit SELECT n + 1, at_ms, who, 'commit', letter, detail, hash, key, code, dest FROM audit
         WHERE n = {last}"
    );
    assert_eq!(touch(&more), (last + 1, "forged".to_owned()));
    // All of it cut off, with head and checkpoints: the copies outside know better.
    let cut =
        "DELETE FROM audit WHERE n > 1; DELETE FROM audit_checkpoint WHERE k > 1; DELETE FROM audit_head";
    assert_eq!(touch(cut).1, "truncated");
}

#[test]
fn another_books_entries_are_forged() {
    let (ours, theirs) = (bench("file: out.gpkg, key: [id]"), bench("file: out.gpkg, key: [id]"));
    ours.runs(4);
    theirs.runs(4);
    fs::copy(ours.path(".tidegate/audit.pub"), ours.path("kept.pub")).unwrap();
    fs::copy(ours.path(".tidegate/test/audit.checkpoints"), ours.path("kept.checkpoints")).unwrap();
    let kept = ["--public-key", "kept.pub", "--copies", "kept.checkpoints"];
    assert_eq!(verified(&ours, 0, &kept)["whole"], true);
    fs::remove_dir_all(ours.path(".tidegate")).unwrap();
    copy(&theirs.path(".tidegate"), &ours.path(".tidegate"));
    assert_eq!(verified(&ours, 0, &[])["whole"], true, "whoever trusts what lies beside it is fooled");
    assert_eq!(verified(&ours, 1, &kept)["fault"], "forged");
}

#[test]
fn a_key_of_ones_own_signs_and_copies_go_elsewhere() {
    let bench = bench("file: out.gpkg, key: [id]");
    let made = bench.tidegate(&["keys", "audit", "--key", "audit.secret"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.write("auditor.pub", &made.stdout);
    assert_eq!(bench.tidegate(&["keys", "audit", "--key", "audit.secret"]).code, 2, "it is not replaced");
    let manifest = bench.read("m.yaml");
    let key = bench.path("audit.secret").display().to_string();
    bench.write(
        "m.yaml",
        &format!("{manifest}  audit: {{ key: \"file:{key}\", copy: elsewhere/copies.ndjson }}\n"),
    );
    bench.runs(4);
    let whole = verified(&bench, 0, &["--public-key", "auditor.pub"]);
    assert_eq!((&whole["whole"], &whole["copied"]), (&json!(true), &whole["entries"]));
    assert!(bench.path("elsewhere/copies.ndjson").exists());
    assert!(!bench.path(".tidegate/audit.key").exists());
}

#[test]
fn a_killed_run_enters_each_batch_once() {
    for point in ["put:1", "rejects:1", "commit:0", "commit:2", "finish:0"] {
        let bench = bench("file: out.gpkg, key: [id]");
        let kill = |args: &[&str]| {
            let output = bench.command(args).env("TIDEGATE_CRASH", point).output().unwrap();
            assert_eq!(output.status.code(), None, "it was not killed at {point}");
        };
        kill(&["run", "m.yaml"]);
        let ran = bench.run(&["--resume"]);
        assert_eq!(ran.code, 4, "{point}: {}", ran.stderr);
        let all = entries(&bench, &[]);
        let routes: Vec<_> = all.iter().filter(|e| e["act"] == "route").map(|e| e["key"].clone()).collect();
        let wanted: Vec<_> = (0..10).map(|n| json!(format!("record {}", 4 * n + 3))).collect();
        let last = |n: usize| routes[routes.len() - n..].to_vec();
        // A resume after the end of a new file begins again, as its sink has forgotten the run.
        assert_eq!(last(10), wanted, "{point}");
        assert!(routes.len() == 10 || (point == "finish:0" && routes.len() == 20), "{point}: {routes:?}");
        assert_eq!(verified(&bench, 0, &[])["whole"], true);
    }
}

#[test]
fn letters_have_the_same_audit() {
    let bench = Bench::new();
    let features: String = (0..3).map(|n| polygon(BOW_TIE, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &format!("{features}{}", polygon(SQUARE, r#"{"id":9}"#)));
    let put = bench.tidegate(&["dlq", "capture", "in.geojsonl", "--into", "out.geojson"]);
    assert_eq!(put.code, 4, "{}", put.stderr);
    assert_eq!(bench.tidegate(&["dlq", "hold", "--all", "--why", "court"]).code, 0);
    let ran = bench.tidegate(&[
        "audit",
        "show",
        "--act",
        "hold",
        "--code",
        "INVALID_GEOMETRY",
        "--format",
        "ndjson",
    ]);
    assert_eq!(ran.stdout.lines().count(), 3, "{}{}", ran.stdout, ran.stderr);
    let first: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert!(first["key"].is_string() && first["letter"].is_string(), "{first}");
    let verify =
        || bench.tidegate(&["audit", "verify", "--store", ".tidegate/letters.db", "--format", "json"]);
    let whole = verify();
    assert_eq!(whole.code, 0, "{}{}", whole.stdout, whole.stderr);
    assert_eq!(whole.json()[0]["entries"], whole.json()[0]["copied"]);
    Connection::open(bench.path(".tidegate/letters.db"))
        .unwrap()
        .execute_batch("UPDATE audit SET who = 'nobody' WHERE n = 2")
        .unwrap();
    let found = verify();
    assert_eq!(
        (found.code, &found.json()[0]["entry"], &found.json()[0]["fault"]),
        (1, &json!(2), &json!("edited"))
    );
    assert!(bench.tidegate(&["dlq", "audit", "--verify"]).stderr.contains("entry 2 was edited"));
}

#[test]
fn where_nothing_is_it_says_so() {
    let bench = Bench::new();
    let ran = bench.tidegate(&["audit", "verify"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("no audit in .tidegate"), "{}", ran.stderr);
    assert!(!bench.path(".tidegate").exists(), "looking makes nothing");
}

#[test]
fn calls_to_services_are_entered_with_their_attempts() {
    let transient = fault(FaultKind::Status(503), "0.2");
    let server = chaos(Config { faults: vec![transient], bad_rows: 0.1, ..Config::default() });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(50));
    let parts = |audit: &str| {
        format!(
            "source: {{ file: in.csv }}\nservices: {{ g: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - geocode: {{ service: g, address: [street] }}\nsink: {{ file: out.gpkg, key: [id] }}\ncircuit_breaker: {{ minimum_calls: 1000 }}\n{audit}",
            server.url()
        )
    };
    bench.manifest(&parts("audit: { attempts: true }"));
    let result = bench.runs(4);
    let calls = entries(&bench, &["--act", "attempt", "--to", "g"]);
    assert_eq!(calls.len(), 50, "one entry per question");
    let made: u64 = calls.iter().map(|e| e["detail"]["calls"].as_u64().unwrap()).sum();
    assert_eq!(json!(made), result["calls"]);
    let again = calls.iter().find(|e| e["detail"]["calls"] == 2).unwrap();
    assert_eq!(again["detail"]["attempts"][0]["status"], 503, "{again}");
    assert!(again["key"].as_str().unwrap().starts_with("record "));
    let text = calls.iter().map(ToString::to_string).collect::<String>();
    assert!(!text.contains("Harbour"), "what was asked is a value of a record");
    // Without it only what failed in the end is entered; answers come from the cache now.
    bench.manifest(&parts(""));
    let failed = bench.runs(4)["rejected"].as_u64().unwrap();
    let calls = entries(&bench, &["--act", "attempt", "--code", "BAD_REQUEST"]);
    assert_eq!(calls.len() as u64, 2 * failed);
}
