//! A record that kills the process becomes a letter after two deaths; a kill from outside does not.

use serde_json::json;

use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, point};

const RECORDS: u32 = 300;

fn bench(sink: &str) -> Bench {
    let bench = Bench::new();
    let lines = (0..RECORDS).map(|n| point(16.0, 48.123_456, &format!(r#"{{"id":{n},"v":"{n}"}}"#)));
    bench.write("in.geojsonl", &lines.collect::<String>());
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl, batch_size: 20 }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\n  - round: 6\n{sink}\ndead_letters: {{}}"
    ));
    bench
}

const GPKG: &str = "sink: { file: out.gpkg, key: [id] }";

fn dies(bench: &Bench, args: &[&str], at: &str) {
    let output = bench.command(args).env("TIDEGATE_CRASH", at).output().unwrap();
    assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
}

fn resumes(bench: &Bench, at: &str) -> Ran {
    let mut command = bench.command(&["run", "m.yaml", "--format", "json", "--resume"]);
    command.env("TIDEGATE_CRASH", at).output().unwrap().into()
}

#[test]
fn a_record_that_aborts_is_a_letter_after_two_crashes() {
    let bench = bench(GPKG);
    dies(&bench, &["run", "m.yaml"], "record:137");
    dies(&bench, &["run", "m.yaml", "--resume"], "record:137");
    let ran = resumes(&bench, "record:137");
    assert_eq!(ran.code, 4, "{}\n{}", ran.stdout, ran.stderr);
    let result = ran.json();
    assert_eq!(
        (&result["read"], &result["written"], &result["rejected_by_code"]),
        (&json!(300), &json!(299), &json!({ "PROCESS_CRASHED": 1 }))
    );
    assert_eq!(
        bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id), sum(id = 137) FROM out"),
        ["299|299|0"]
    );
    let letters = bench.tidegate(&["dlq", "ls", "--format", "json"]).json();
    let letter = &letters[0];
    assert_eq!(
        (letters.as_array().unwrap().len(), &letter["failure"]["code"]),
        (1, &json!("PROCESS_CRASHED"))
    );
    assert_eq!(letter["failure"]["class"], "poison");
    let message = letter["failure"]["message"].as_str().unwrap();
    assert!(message.contains("steps[0] coerce") && message.contains("SIGABRT"), "{message}");
    // It is not replayed unasked; once the program can stand it, it is.
    let replayed = bench.tidegate(&["dlq", "replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["299"]);
    let replayed = bench.tidegate(&["dlq", "replay", "--manifest", "m.yaml", "--class", "poison"]);
    assert_eq!(replayed.code, 0, "{}\n{}", replayed.stdout, replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), sum(id = 137) FROM out"), ["300|1"]);
}

/// Works on record 90 without end, and is killed from outside.
fn hangs(bench: &Bench, args: &[&str]) {
    let here = bench.path("never.here");
    let _ = std::fs::remove_file(&here);
    let hold = format!("record:90={}", bench.path("never").display());
    let mut child = bench.command(args).env("TIDEGATE_HOLD", hold).spawn().unwrap();
    while !here.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it did not come to the record");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_record_without_end_is_a_letter_after_two_kills_with_a_file_as_sink_too() {
    let bench = bench("sink: { file: out.geojsonl }");
    hangs(&bench, &["run", "m.yaml", "--quiet"]);
    hangs(&bench, &["run", "m.yaml", "--quiet", "--resume"]);
    let hold = format!("record:90={}", bench.path("never").display());
    let mut command = bench.command(&["run", "m.yaml", "--format", "json", "--resume"]);
    command.env("TIDEGATE_HOLD", hold).env("TIDEGATE_WORK_MAX_MS", "300");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, 4, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.json()["rejected_by_code"], json!({ "PROCESS_CRASHED": 1 }));
    let ids: Vec<u64> = bench.properties("out.geojsonl").iter().map(|p| p["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..300).filter(|id| *id != 90).collect::<Vec<_>>());
}

#[test]
fn kills_from_outside_accuse_nobody() {
    let bench = bench(GPKG);
    hangs(&bench, &["run", "m.yaml", "--quiet"]);
    hangs(&bench, &["run", "m.yaml", "--quiet", "--resume"]);
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, &ran.json()["written"]), (0, &json!(300)), "{}", ran.stderr);
}

#[test]
fn what_was_found_is_known_after_another_kill_and_forgotten_by_the_next_run() {
    let bench = bench(GPKG);
    dies(&bench, &["run", "m.yaml"], "record:137");
    dies(&bench, &["run", "m.yaml", "--resume"], "record:137");
    dies(&bench, &["run", "m.yaml", "--resume"], "record:137,put:5");
    dies(&bench, &["run", "m.yaml", "--resume"], "record:137,finishing:0");
    let ran = resumes(&bench, "record:137");
    assert_eq!(ran.code, 4, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.json()["rejected_by_code"], json!({ "PROCESS_CRASHED": 1 }));
    // The cause is repaired: the next run takes all records.
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, &ran.json()["written"]), (0, &json!(300)), "{}", ran.stderr);
}
