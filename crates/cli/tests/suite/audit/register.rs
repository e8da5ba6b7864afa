//! What must be there: logs that are gone, a key that was made anew, and anchors kept elsewhere.

use std::fs;

use crate::audit::trail;
use crate::common::canned::{Canned, json};
use crate::common::provider;
use crate::pipeline::bench::Bench;

/// A pipeline with letters, and another one, in one state directory.
fn state() -> Bench {
    let bench = trail::bench("file: out.gpkg, key: [id]");
    bench.write(
        "b.yaml",
        &bench.read("m.yaml").replace("id: test", "id: b\n  dead_letters: { store: .tidegate/letters.db }"),
    );
    bench.runs(4);
    let ran = bench.tidegate(&["run", "b.yaml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(verify(&bench, 0), "");
    bench
}

/// What the register says.
fn verify(bench: &Bench, code: i32) -> String {
    let ran = bench.tidegate(&["audit", "verify"]);
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
    ran.stdout.lines().filter(|line| line.contains("REGISTER: ")).map(|line| format!("{line}\n")).collect()
}

fn run_all(bench: &Bench) {
    assert_eq!(bench.run(&[]).code, 4);
    let ran = bench.tidegate(&["run", "b.yaml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
}

#[test]
fn a_log_that_is_gone_is_missed_also_after_the_next_run_has_made_it_anew() {
    type Removal = fn(&Bench);
    let cases: [(Removal, &str, &str); 3] = [
        (
            |bench| {
                for end in ["", "-wal", "-shm"] {
                    drop(fs::remove_file(bench.path(&format!(".tidegate/test/audit.db{end}"))));
                }
            },
            "test/audit.db is missing; the register knows 24 entries of it",
            "test/audit.checkpoints: the audit was truncated",
        ),
        (
            |bench| fs::remove_dir_all(bench.path(".tidegate/test")).unwrap(),
            "test/audit.db is missing; the register knows 24 entries of it",
            "",
        ),
        (
            |bench| {
                for end in ["", "-wal", "-shm", ".checkpoints"] {
                    drop(fs::remove_file(bench.path(&format!(".tidegate/letters.db{end}"))));
                }
            },
            "letters.db is missing; the register knows ",
            "",
        ),
    ];
    for (remove, says, refused) in cases {
        let bench = state();
        run_all(&bench);
        remove(&bench);
        let said = verify(&bench, 1);
        let says = says.replace("24", "48");
        assert!(said.contains(&says), "{says:?} is not in {said}");
        if !refused.is_empty() {
            continue;
        }
        // The next run makes it anew, with fewer entries.
        run_all(&bench);
        let said = verify(&bench, 1);
        assert!(said.contains("; it was deleted, replaced or restored"), "{said}");
        let ran = bench.tidegate(&["audit", "accept", "--why", "moved to another disk"]);
        assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
        assert_eq!(verify(&bench, 0), "");
        run_all(&bench);
        assert_eq!(verify(&bench, 0), "");
        let register = bench.read(".tidegate/audit.register");
        assert!(register.contains("moved to another disk"), "{register}");
    }
}

#[test]
fn a_lost_register_and_a_changed_one_are_missed() {
    let bench = state();
    let register = bench.read(".tidegate/audit.register");
    bench.write(".tidegate/audit.register", &register.replace("b/audit.db", "c/audit.db"));
    assert!(verify(&bench, 1).contains("it was changed"));
    fs::remove_file(bench.path(".tidegate/audit.register")).unwrap();
    assert!(verify(&bench, 1).contains("audit.register is missing"));
}

#[test]
fn a_key_that_was_made_anew_is_an_alarm_and_a_rotation_is_not() {
    let bench = state();
    let ran = bench.tidegate(&["keys", "rotate-audit"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    run_all(&bench);
    assert_eq!(verify(&bench, 0), "");
    // Only the secret key is lost.
    fs::remove_file(bench.path(".tidegate/audit.key")).unwrap();
    run_all(&bench);
    let said = verify(&bench, 1);
    assert!(said.contains(" was made without the key before it, which was lost or replaced"), "{said}");
    // The public keys are lost with it.
    let bench = state();
    for name in ["audit.key", "audit.pub"] {
        fs::remove_file(bench.path(&format!(".tidegate/{name}"))).unwrap();
    }
    run_all(&bench);
    let said = verify(&bench, 1);
    assert!(said.contains(", which signed here, is no longer in audit.pub"), "{said}");
    let ran = bench.tidegate(&["audit", "accept", "--why", "the disk of the key died"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(verify(&bench, 0), "");
}

/// Copies a directory.
fn copy(bench: &Bench, from: &str, to: &str) {
    let (from, to) = (bench.path(from), bench.path(to));
    let _ = fs::remove_dir_all(&to);
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_state_directory_that_is_restored_as_a_whole_is_seen_from_an_anchor_only() {
    let bench = state();
    let url = std::env::var("TIDEGATE_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned());
    let schema = format!("tidegate_anchor_{}", std::process::id());
    let mut db = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    db.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).unwrap();
    let table = format!("{url}?options=-c%20search_path%3D{schema}");
    let chaos = provider::chaos(tidegate_chaos::Config::default());
    let endpoint = format!("{}/s3", chaos.url());
    let hook = Canned::start(|_| json("200 OK", "{}"));
    fs::create_dir(bench.path("kept")).unwrap();
    let store = format!("file://{}", bench.path("kept").display());
    let places: [&[&str]; 3] = [&["anchors.txt"], &[&table], &[&store]];

    copy(&bench, ".tidegate", "older");
    run_all(&bench);
    let printed = bench.tidegate(&["audit", "anchor"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert_eq!(printed.stdout.lines().count(), 3, "{}", printed.stdout);
    bench.write("printed.txt", &printed.stdout);
    for place in places {
        let ran = bench.tidegate(&[&["audit", "anchor", "--to"], place].concat());
        assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    }
    // The store of chaos keeps sizes only.
    let ran = bench.tidegate(&["audit", "anchor", "--to", "s3://bucket/anchors", "--endpoint", &endpoint]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    let ran = bench.tidegate(&["store", "ls", "s3://bucket", "anchors", "--endpoint", &endpoint]);
    assert!(ran.stdout.contains("anchors/audit-anchor-20"), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(bench.tidegate(&["audit", "anchor", "--to", &hook.url()]).code, 0);
    assert!(hook.asked()[0].holds("tidegate-audit-anchor-1 ") && hook.asked()[0].holds("letters.db"));

    let check = |code: i32| {
        for place in places.iter().copied().chain([&["printed.txt"][..]]) {
            let ran = bench.tidegate(&[&["audit", "verify", "--anchor"], place].concat());
            assert_eq!(ran.code, code, "{place:?}\n{}\n{}", ran.stdout, ran.stderr);
            let says = if code == 0 {
                "the anchor is in the audits"
            } else {
                "it was deleted, replaced or restored"
            };
            assert!(ran.stdout.contains(says), "{place:?}: {}", ran.stdout);
        }
    };
    check(0);
    run_all(&bench);
    check(0);
    copy(&bench, "older", ".tidegate");
    assert_eq!(verify(&bench, 0), "", "from inside nothing can be seen");
    check(1);
    db.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).unwrap();
    // A place that holds nothing of these audits proves nothing.
    bench.write(
        "other.txt",
        &printed.stdout.replace("test/", "x/").replace("b/", "y/").replace("letters", "z"),
    );
    let ran = bench.tidegate(&["audit", "verify", "m.yaml", "--anchor", "other.txt"]);
    assert_eq!(ran.code, 2, "{}\n{}", ran.stdout, ran.stderr);
}
