//! Kills at named points and at random moments: nothing lost, nothing doubled, resume exact.
//!
//! A chain of kills crashes a run at each batch three times: after the rows were put, after the
//! rejects were made durable, and after the commit. Only the last makes progress. What is there in
//! the end is compared with what one undisturbed run makes of the same input.

use serde_json::{Value, json};

use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, point};

pub(crate) const BATCHES: u32 = 20;
const PER_BATCH: u32 = 25;

/// Records with repeats, values that cannot be coerced, and keys that collide.
pub(crate) fn input() -> String {
    (0..BATCHES * PER_BATCH)
        .map(|n| {
            let id = if n % 50 == 49 { n - 40 } else { n };
            let value = if n % 40 == 7 { "x".to_owned() } else { n.to_string() };
            let unique = if n % 60 == 31 { n - 30 } else { n };
            point(
                16.0 + f64::from(n) / 1000.0,
                48.123_456,
                &format!(r#"{{"id":{id},"v":"{value}","u":{unique}}}"#),
            )
        })
        .collect()
}

pub(crate) const STEPS: &str = "
source: { file: in.geojsonl, batch_size: 25 }
steps:
  - dedupe: [id]
  - coerce: { fields: { v: int } }
gates:
  - { check: unique, fields: [u] }
";

/// What the numbers of a run come to, without those that depend on the kills.
pub(crate) fn books(result: &Value) -> Value {
    let keys = ["status", "read", "written", "rejected", "rejected_by_code", "deduped", "balanced", "gates"];
    keys.iter().map(|key| ((*key).to_owned(), result[*key].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Kills a run at every point of every batch, resuming each time; the result of the last resume
/// and how many kills there were.
pub(crate) fn chain(bench: &Bench) -> (Value, u32) {
    let mut kills = 0;
    let mut resume = false;
    for _ in 0..BATCHES {
        for point in ["put:0", "rejects:0", "commit:0"] {
            let args: &[&str] = if resume { &["run", "m.yaml", "--resume"] } else { &["run", "m.yaml"] };
            let output = bench.command(args).env("TIDEGATE_CRASH", point).output().unwrap();
            assert_eq!(
                output.status.code(),
                None,
                "it was not killed at {point}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            kills += 1;
            resume = true;
        }
    }
    let output =
        bench.command(&["run", "m.yaml", "--resume"]).env("TIDEGATE_CRASH", "finish:0").output().unwrap();
    assert_eq!(output.status.code(), None, "it was not killed at the end");
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    (ran.json(), kills + 1)
}

fn undisturbed(sink: &str) -> (Bench, Value) {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{STEPS}\n{sink}"));
    let result = bench.runs(4);
    (bench, result)
}

const ROWS: &str = "SELECT id, v, u, hex(geom) FROM out ORDER BY id, u";

/// The same rows, rejects and numbers, however often it was killed.
fn same(sink: &str, before: &str) {
    let (whole, expected) = undisturbed(sink);
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    if !before.is_empty() {
        // A file that is there already is written in place.
        bench.write("in.geojsonl", &point(0.5, 0.5, before));
        bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{sink}"));
        bench.runs(0);
        bench.write("in.geojsonl", &input());
    }
    bench.manifest(&format!("{STEPS}\n{sink}"));
    let (result, kills) = chain(&bench);
    assert_eq!(kills, 61);
    let mut rows = whole.sql("out.gpkg", ROWS);
    if before.is_empty() {
        assert_eq!(books(&result), books(&expected));
        assert_eq!(bench.sql("out.gpkg", ROWS), rows);
        assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), [rows.len().to_string()]);
    } else {
        rows.retain(|row| !row.starts_with("1000000|"));
        let mut found = bench.sql("out.gpkg", ROWS);
        found.retain(|row| !row.starts_with("1000000|"));
        assert_eq!(found, rows);
    }
    assert_eq!(bench.rejects(), whole.rejects());
    assert_eq!(bench.sql("out.gpkg", "PRAGMA integrity_check"), ["ok"]);
}

#[test]
fn sixty_one_kills_of_a_new_geopackage() {
    same("sink: { file: out.gpkg, key: [id] }", "");
}

#[test]
fn sixty_one_kills_of_an_upsert_in_place() {
    same("sink: { file: out.gpkg, key: [id] }", r#"{"id":1000000,"v":1,"u":1000000}"#);
}

#[test]
fn sixty_one_kills_of_an_append_in_place() {
    same("sink: { file: out.gpkg, mode: append }", r#"{"id":1000000,"v":1,"u":1000000}"#);
}

#[test]
fn an_unfinished_append_is_not_begun_again() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{STEPS}\nsink: {{ file: out.gpkg, mode: append }}"));
    let output = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:3").output().unwrap();
    assert_eq!(output.status.code(), None);
    bench.refused("`mode: append` would add its records again; use --resume");
    assert_eq!(bench.run(&["--resume"]).code, 4);
}

/// Records that are appended are not begun again where the manifest or the source is another.
#[test]
fn an_unfinished_append_refuses_another_manifest_and_another_source() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    let sink = "sink: { file: out.gpkg, mode: append }";
    bench.manifest(&format!("{STEPS}\n{sink}"));
    let output = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:3").output().unwrap();
    assert_eq!(output.status.code(), None);
    bench.manifest(&format!("{}\n{sink}", STEPS.replace("dedupe: [id]", "dedupe: [u]")));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("source, steps or sink of the manifest have changed"), "{}", ran.stderr);
    bench.manifest(&format!("{STEPS}\n{sink}"));
    bench.write("in.geojsonl", &(input() + &point(1.0, 1.0, r#"{"id":9999,"v":"1","u":9999}"#)));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("the source has changed"), "{}", ran.stderr);
    assert_eq!(bench.run(&[]).code, 2, "and is not begun anew either");
}

/// Whatever moment the kill falls on, the end is the same.
#[test]
fn kills_at_random_moments_change_nothing() {
    let sink = "sink: { file: out.gpkg, key: [id] }";
    let (whole, expected) = undisturbed(sink);
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{STEPS}\n{sink}"));
    let mut wait: u64 = 17;
    let mut args = vec!["run", "m.yaml", "--quiet"];
    for _ in 0..30 {
        let mut child = bench.command(&args).spawn().unwrap();
        wait = (wait * 7919 + 13) % 60;
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        args = vec!["run", "m.yaml", "--quiet", "--resume"];
    }
    // It may have been complete before the last kill; then this is a second run.
    let last = bench.run(&["--resume"]);
    assert_eq!(last.code, 4, "{}", last.stderr);
    assert_eq!(books(&last.json()), books(&expected));
    assert_eq!(bench.sql("out.gpkg", ROWS), whole.sql("out.gpkg", ROWS));
    assert_eq!(bench.rejects(), whole.rejects());
}

#[test]
fn a_file_sink_shows_nothing_of_a_killed_run() {
    let (whole, expected) = undisturbed("sink: { file: out.geojsonl }");
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{STEPS}\nsink: {{ file: out.geojsonl }}"));
    for at in [0, 7, 19] {
        let output = bench
            .command(&["run", "m.yaml", "--resume"])
            .env("TIDEGATE_CRASH", format!("commit:{at}"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), None);
        assert!(!bench.path("out.geojsonl").exists());
    }
    let ran = bench.run(&["--resume"]);
    assert_eq!(books(&ran.json()), books(&expected));
    assert_eq!(bench.read("out.geojsonl"), whole.read("out.geojsonl"));
    assert_eq!(bench.rejects(), whole.rejects());
}

#[test]
#[cfg(unix)]
fn a_polite_kill_drains_and_can_be_resumed() {
    let bench = Bench::new();
    // Large enough that it is still running when the signal comes; if it is not, it is done, and
    // that is right too.
    bench.write(
        "in.geojsonl",
        &(0..40_000).map(|n| point(16.0, 48.123_456, &format!(r#"{{"id":{n}}}"#))).collect::<String>(),
    );
    bench.manifest("source: { file: in.geojsonl, batch_size: 100 }\nsink: { file: out.gpkg, key: [id] }");
    let child = bench.command(&["run", "m.yaml", "--format", "json"]).spawn().unwrap();
    while !bench.path(".tidegate/test/run.json").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let killed = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(matches!(ran.code, 0 | 1), "the signal ended the process with {}: {}", ran.code, ran.stderr);
    if ran.code == 1 {
        assert_eq!(ran.json()["status"], "stopped");
        assert!(ran.stderr.contains("tidegate run m.yaml --format json --resume"), "{}", ran.stderr);
        assert_eq!(bench.run(&["--resume"]).code, 0);
    }
    assert_eq!(
        bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id) FROM out"),
        [json!(40_000).to_string() + "|40000"]
    );
}
