//! A hint that names a command can be pasted as it is.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::canned::{Canned, MATCH, json};
use crate::common::running::Ran;
use crate::common::workdir::Workdir;
use crate::daily::{POLICY, addresses, run};

/// The commands in what a run said: from `tidegate ` to the end of the line or of the quotation.
fn hints(stderr: &str) -> Vec<String> {
    let lines = stderr.lines().filter_map(|line| {
        // A message begins with the name of the program and a colon, or the command and a colon.
        let at = line.rfind("tidegate ")?;
        let text = line.get(at..)?;
        let text = text.split('`').next().unwrap_or(text).trim();
        let named = text.split_whitespace().nth(1)?;
        (!named.ends_with(':')).then(|| text.to_owned())
    });
    lines.collect()
}

/// Runs a hint in a shell, as a person who pastes it.
fn paste(dir: &Workdir, hint: &str) -> Ran {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", hint]).current_dir(dir.root()).env("PATH", path);
    shell.output().unwrap().into()
}

fn only(ran: &Ran) -> String {
    let found = hints(&ran.stderr);
    assert_eq!(found.len(), 1, "{}", ran.stderr);
    found.into_iter().next().unwrap()
}

const MANIFEST: &str = "pipeline:
  id: test
  dead_letters: { store: my letters.db, incident_least: 2, incident_share: SHARE }
  source: { file: in.csv, crs: EPSG:4326 }
  steps:
    - coerce: { fields: { address: int } }
  sink: { file: out.gpkg, key: [id] }
";

fn manifest(share: &str) -> String {
    format!("{}{POLICY}", MANIFEST.replace("SHARE", share))
}

#[test]
fn the_letters_of_a_run_are_found_by_the_command_that_it_names() {
    let dir = addresses();
    dir.write("my run.yaml", &manifest("1"));
    let ran = run(&dir, &["run", "my run.yaml", "--state", "the state"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let stats = paste(&dir, &only(&ran));
    assert_eq!(stats.code, 0, "{}", stats.stderr);
    assert!(stats.stdout.contains("steps[0]") || stats.stdout.contains("3"), "{}", stats.stdout);
}

#[test]
fn a_suspended_pipeline_names_the_command_that_lets_it_run() {
    let dir = addresses();
    dir.write("my run.yaml", &manifest("0.1"));
    for _ in 0..2 {
        let ran = run(&dir, &["run", "my run.yaml", "--state", "the state"]);
        assert_eq!(ran.code, 75, "{}", ran.stderr);
        let closed = paste(&dir, &only(&ran));
        assert_eq!(closed.code, 0, "{}", closed.stderr);
        assert!(closed.stderr.contains("closed incident"), "{}", closed.stderr);
        // Once more while it is suspended.
        assert_eq!(run(&dir, &["run", "my run.yaml", "--state", "the state"]).code, 75);
        let again = run(&dir, &["run", "my run.yaml", "--state", "the state"]);
        assert!(again.stderr.contains("is suspended by incident"), "{}", again.stderr);
        assert_eq!(paste(&dir, &only(&again)).code, 0);
    }
}

#[test]
fn a_halted_run_names_the_command_that_continues_it() {
    let dir = addresses();
    let gates = "  gates:\n    - { check: not_null, fields: [extra], severity: halt }\n";
    let body = manifest("1").replace("  steps:\n    - coerce: { fields: { address: int } }\n", gates);
    dir.write("my run.yaml", &body);
    dir.write("in.csv", "id,address,extra\n1,Ring 1,\n2,Ring 2,x\n");
    let ran = run(&dir, &["run", "my run.yaml", "--state", "the state", "--keep-going"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let hint = only(&ran);
    assert_eq!(hint, "tidegate run 'my run.yaml' --state 'the state' --keep-going --resume");
    dir.write("my run.yaml", &body.replace("severity: halt", "severity: warn"));
    let resumed = paste(&dir, &hint);
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    assert!(!dir.path(".tidegate").exists(), "everything is in the state directory that was named");
}

#[test]
fn a_geocode_and_its_replay_name_whole_commands() {
    let down = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&down);
    let server = Canned::start(move |_| {
        if told.load(Ordering::SeqCst) {
            json("429 Too Many Requests\r\nRetry-After: 9000", "{}")
        } else {
            json("200 OK", MATCH)
        }
    });
    let dir = addresses();
    let url = server.url();
    let ran = run(
        &dir,
        &[
            "geocode",
            "in.csv",
            "--address",
            "address",
            "--url",
            &url,
            "-o",
            "the out.csv",
            "--state",
            "s t",
            "--deadline",
            "1s",
        ],
    );
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    let hint = only(&ran);
    assert!(hint.contains("-o 'the out.csv' --state 's t'") && hint.ends_with("--resume"), "{hint}");
    down.store(false, Ordering::SeqCst);
    std::fs::remove_file(dir.path("s t/lanes.json")).unwrap();
    let resumed = paste(&dir, &hint);
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
}

#[test]
fn keys_and_replays_name_the_store_that_was_given() {
    let dir = addresses();
    let generate = ["keys", "generate", "--key", "the key", "--store", "my letters.db"];
    let missing = run(&dir, &["keys", "rotate", "--key", "the key", "--store", "my letters.db"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    let made = paste(&dir, &only(&missing));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let twice = run(&dir, &generate);
    assert_eq!(twice.code, 2, "{}", twice.stderr);
    assert_eq!(paste(&dir, &only(&twice)).code, 0);
    let none = run(&dir, &["dlq", "replay", "--resume", "7", "--store", "my letters.db", "--key", "the key"]);
    assert_eq!(none.code, 2, "{}", none.stderr);
    let listed = paste(&dir, &only(&none));
    assert_eq!((listed.code, listed.stdout.trim()), (0, "[]"), "{}", listed.stderr);
}

#[test]
fn what_a_provider_said_is_readable_and_cannot_command_the_terminal() {
    let server = Canned::start(|_| {
        json(
            "403 Forbidden",
            "{\"message\":\"key \\\"abc\\\" is \u{1b}[2Jexpired\",\"hint\":\"Schlüssel erneuern\"}",
        )
    });
    let dir = addresses();
    let rows: String = (1..=20).map(|n| format!("{n},Ring {n}\n")).collect();
    dir.write("in.csv", &format!("id,address\n{rows}"));
    let url = server.url();
    let ran = run(&dir, &["geocode", "in.csv", "--address", "address", "--url", &url, "-o", "out.csv"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("and said “{\"message\":"), "{}", ran.stderr);
    assert!(ran.stderr.contains("Schlüssel erneuern") && !ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
}

/// Restores a database as it was, as from a backup.
fn restore(dir: &Workdir, file: &str, was: &[u8]) {
    for end in ["-wal", "-shm"] {
        // There is none if the last connection was closed.
        let _ = std::fs::remove_file(dir.path(&format!("{file}{end}")));
    }
    std::fs::write(dir.path(file), was).unwrap();
}

#[test]
fn an_audit_that_was_restored_names_the_command_that_verifies_it() {
    let dir = addresses();
    let args = ["run", "my run.yaml", "--state", "the state"];
    for copy in ["", "  audit: { copy: the copies }\n"] {
        dir.write("my run.yaml", &(manifest("1") + copy));
        let _ = std::fs::remove_dir_all(dir.path("the state"));
        assert_eq!(run(&dir, &args).code, 4);
        let file = "the state/test/audit.db";
        let was = std::fs::read(dir.path(file)).unwrap();
        assert_eq!(run(&dir, &args).code, 4);
        restore(&dir, file, &was);
        let refused = run(&dir, &args);
        assert!(refused.stderr.contains("truncated or restored"), "{}", refused.stderr);
        let verified = paste(&dir, &only(&refused));
        assert_eq!(verified.code, 1, "{}{}", verified.stdout, verified.stderr);
    }
}

#[test]
fn a_store_whose_audit_was_restored_names_the_command_that_verifies_it() {
    let dir = addresses();
    dir.write("my run.yaml", &manifest("1"));
    assert_eq!(run(&dir, &["run", "my run.yaml"]).code, 4);
    let was = std::fs::read(dir.path("my letters.db")).unwrap();
    let hold = ["dlq", "hold", "--all", "--why", "x", "--store", "my letters.db"];
    assert_eq!(run(&dir, &hold).code, 0);
    restore(&dir, "my letters.db", &was);
    let refused = run(&dir, &hold);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    let verified = paste(&dir, &only(&refused));
    assert_eq!(verified.code, 1, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn an_alert_about_letters_names_the_command_that_shows_them() {
    let dir = addresses();
    dir.write("my run.yaml", &(manifest("1") + "  alerts: { actions: [{ command: [tee, told.json] }] }\n"));
    let args = ["run", "my run.yaml", "--report", "report.html"];
    assert_eq!(run(&dir, &args).code, 4);
    assert_eq!(run(&dir, &["dlq", "capacity", "4", "--store", "my letters.db"]).code, 0);
    let ran = run(&dir, &args);
    let alert = ran.stderr.lines().find(|line| line.contains("letters_full") || line.contains("% full"));
    let hint = hints(alert.unwrap_or_else(|| panic!("{}", ran.stderr)));
    assert_eq!(hint, ["tidegate dlq stats --store 'my letters.db'"]);
    assert_eq!(paste(&dir, &hint[0]).code, 0);
    assert!(dir.read("told.json").contains("tidegate dlq stats --store "), "{}", dir.read("told.json"));
    assert!(dir.read("report.html").contains("<code>tidegate dlq stats --store "));
}

#[test]
fn a_file_at_a_url_is_downloaded_and_described_by_the_command_that_init_names() {
    let body = r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"a":1},"geometry":{"type":"Point","coordinates":[16.1,48.1]}}]}"#;
    let server = Canned::start(move |_| json("200 OK", body));
    let dir = addresses();
    let refused = run(&dir, &["init", &format!("{}/my.roads.geojson?a=1&b=2", server.url())]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let both = refused.stderr.split('`').find(|part| part.starts_with("tidegate fetch"));
    let made = paste(&dir, both.unwrap_or_else(|| panic!("{}", refused.stderr)));
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("my.gpkg"), "{}", made.stdout);
}
