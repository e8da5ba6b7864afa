//! A run has an identity: journeys that begin with a finished older run.
//!
//! What they hold: `--resume` continues the unfinished run and never an older one, starts a new one
//! if there is none, says which, and refuses a sink or a file of rejects that has lost what the run
//! wrote. The end is compared with the source, in the sink.

use std::fs;

use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, point};
use crate::pipeline::postgis::Db;

/// Where a test kills a run, from its first breath to its last.
const POINTS: [&str; 8] =
    ["started:0", "opened:0", "put:0", "rejects:0", "commit:0", "commit:2", "finishing:0", "finish:0"];

/// 60 records of one version; every tenth cannot be read as a number.
fn version(n: u32) -> String {
    (0..60)
        .map(|id| {
            let v = if id % 10 == 3 { "x".to_owned() } else { (id * 100 + n).to_string() };
            point(16.0, 48.123_456, &format!(r#"{{"id":{id},"v":"{v}"}}"#))
        })
        .collect()
}

/// The rows that a version leaves in a sink with a key.
fn rows(n: u32) -> Vec<String> {
    (0..60).filter(|id| id % 10 != 3).map(|id| format!("{id}|{}", id * 100 + n)).collect()
}

fn parts(sink: &str) -> String {
    format!(
        "source: {{ file: in.geojsonl, batch_size: 10 }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\n{sink}"
    )
}

fn kill(bench: &Bench, args: &[&str], at: &str) {
    let all = [&["run", "m.yaml"], args].concat();
    let output = bench.command(&all).env("TIDEGATE_CRASH", at).output().unwrap();
    assert_eq!(output.status.code(), None, "not killed at {at}: {}", String::from_utf8_lossy(&output.stderr));
}

fn geopackage(bench: &Bench) -> Vec<String> {
    bench.sql("out.gpkg", "SELECT id, v FROM out ORDER BY id, v")
}

fn lines(bench: &Bench) -> Vec<String> {
    bench.properties("out.geojsonl").iter().map(|row| format!("{}|{}", row["id"], row["v"])).collect()
}

fn table(db: &mut Db) -> Vec<String> {
    db.rows("SELECT id, v FROM {}.out ORDER BY id, v")
        .iter()
        .map(|row| row.trim_matches(['(', ')']).replace(',', "|"))
        .collect()
}

/// A finished run, a changed source, a second run killed at each point: the resumed one loads the
/// change, and ends like one that was not killed.
fn second_run_is_killed(bench: &Bench, args: &[&str], found: &mut dyn FnMut(&Bench) -> Vec<String>) {
    bench.write("in.geojsonl", &version(0));
    let first = bench.run(args);
    assert_eq!(first.code, 4, "{}", first.stderr);
    for (n, at) in (1..).zip(POINTS) {
        bench.write("in.geojsonl", &version(n));
        kill(bench, args, at);
        let ran = bench.run(&[args, &["--resume"]].concat());
        assert_eq!(ran.code, 4, "{at}: {}", ran.stderr);
        assert!(ran.stderr.contains("resuming run"), "{at}: {}", ran.stderr);
        let result = ran.json();
        assert_eq!((&result["written"], &result["rejected"]), (&54.into(), &6.into()), "{at}: {result}");
        assert_eq!(bench.rejects().len(), 6, "{at}");
        assert_eq!(found(bench), rows(n), "{at}");
        assert_eq!(result["resumed"], true, "{at}");
    }
}

#[test]
fn a_geopackage_after_a_finished_run() {
    for (sink, args) in [
        ("sink: { file: out.gpkg, key: [id] }", &[][..]),
        ("sink: { file: out.gpkg, key: [id] }", &["--atomic"][..]),
        ("sink: { file: out.gpkg }", &[][..]),
    ] {
        let bench = Bench::new();
        bench.manifest(&parts(sink));
        second_run_is_killed(&bench, args, &mut geopackage);
    }
}

#[test]
fn a_table_after_a_finished_run() {
    let mut db = Db::new("second");
    for (more, args) in
        [("key: [id]", &[][..]), ("key: [id]", &["--atomic"][..]), ("mode: replace, key: [id]", &[][..])]
    {
        let bench = Bench::new();
        bench.manifest(&parts(&db.sink(more)));
        second_run_is_killed(&bench, args, &mut |_| table(&mut db));
    }
}

#[test]
fn a_file_after_a_finished_run() {
    let bench = Bench::new();
    bench.manifest(&parts("sink: { file: out.geojsonl }"));
    second_run_is_killed(&bench, &[], &mut lines);
}

#[test]
fn appended_records_are_there_once_for_each_run() {
    let mut db = Db::new("appended");
    for args in [&[][..], &["--atomic"][..]] {
        let bench = Bench::new();
        let geopackages = Bench::new();
        bench.manifest(&parts(&db.sink("mode: append")));
        geopackages.manifest(&parts("sink: { file: out.gpkg, mode: append }"));
        db.rows("SELECT 1 WHERE to_regclass('{}.out') IS NULL");
        let mut expected = Vec::new();
        for (n, at) in (0..).zip(POINTS) {
            expected.extend(rows(n));
            expected.sort_by_key(|row| row.split('|').next().unwrap().parse::<u32>().unwrap());
            for bench in [&bench, &geopackages] {
                bench.write("in.geojsonl", &version(n));
                kill(bench, args, at);
                let ran = bench.run(&[args, &["--resume"]].concat());
                assert_eq!(ran.code, 4, "{args:?} {at}: {}", ran.stderr);
            }
            assert_eq!(table(&mut db), expected, "{args:?} {at}");
            assert_eq!(geopackage(&geopackages), expected, "{args:?} {at}");
        }
        db.rows("SELECT 1");
        db.execute("DROP TABLE {}.out");
    }
}

/// One line of cron: it starts, continues, and starts again.
#[test]
fn one_line_serves_for_ever() {
    let bench = Bench::new();
    bench.manifest(&parts("sink: { file: out.gpkg, key: [id] }"));
    bench.write("in.geojsonl", &version(0));
    let says = |ran: &Ran, words: &str| assert!(ran.stderr.contains(words), "{words:?}: {}", ran.stderr);
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4);
    says(&ran, "no earlier run");
    bench.write("in.geojsonl", &version(1));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4);
    says(&ran, "is complete");
    assert_eq!(geopackage(&bench), rows(1));
    // Killed, and then the source changed: a position in another file means nothing.
    bench.write("in.geojsonl", &version(2));
    kill(&bench, &[], "commit:2");
    bench.write("in.geojsonl", &version(3));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4);
    says(&ran, "the source has changed");
    assert_eq!(geopackage(&bench), rows(3));
    // The same for a changed manifest.
    bench.write("in.geojsonl", &version(4));
    kill(&bench, &[], "commit:2");
    let manifest = bench.read("m.yaml").replace("batch_size: 10", "batch_size: 15");
    bench.write("m.yaml", &manifest);
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4);
    says(&ran, "of the manifest have changed");
    assert_eq!(geopackage(&bench), rows(4));
}

#[test]
fn a_halt_after_a_finished_run_halts_again() {
    let bench = Bench::new();
    let mut db = Db::new("halts");
    let gate = "gates:\n  - { check: range, fields: [v], max: 100000, severity: halt }";
    bench.manifest(&format!("{}\n{gate}", parts(&db.sink("key: [id]"))));
    bench.write("in.geojsonl", &version(0));
    bench.runs(4);
    bench.write("in.geojsonl", &(version(1) + &point(16.0, 48.123_456, r#"{"id":99,"v":"100001"}"#)));
    for args in [&[][..], &["--resume"][..], &["--resume"][..]] {
        let ran = bench.run(args);
        assert_eq!((ran.code, &ran.json()["status"]), (3, &"halted".into()), "{args:?}: {}", ran.stderr);
    }
    bench.write("in.geojsonl", &version(2));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(table(&mut db), rows(2));
}

/// Refused, with what to do; and that does it.
fn refused(bench: &Bench, words: &str) {
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 1, "{words}: {}", ran.stderr);
    assert!(ran.stderr.contains(words), "{words:?} is not in {}", ran.stderr);
    assert!(ran.stderr.contains("without --resume"), "{}", ran.stderr);
    let again = bench.run(&["--resume"]);
    assert_eq!(again.code, 1, "the same answer to the same question: {}", again.stderr);
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 4, "{words}: {}", ran.stderr);
}

#[test]
fn a_table_that_lost_rows_is_refused() {
    let mut db = Db::new("lost");
    for (damage, words) in [
        ("DROP TABLE {}.out", "no longer exists"),
        (
            "CREATE TABLE {}.copy (LIKE {}.out INCLUDING ALL); INSERT INTO {}.copy SELECT * FROM {}.out; DROP TABLE {}.out; ALTER TABLE {}.copy RENAME TO out",
            "dropped and recreated",
        ),
        ("TRUNCATE {}.out", "truncated, or rows were deleted"),
        ("DELETE FROM {}.out WHERE id = 7", "holds 17 rows, but the run wrote 18"),
        ("DELETE FROM {}.tidegate_checkpoint", "has no record of them"),
    ] {
        let bench = Bench::new();
        bench.manifest(&parts(&db.sink("key: [id]")));
        bench.write("in.geojsonl", &version(1));
        kill(&bench, &[], "commit:1");
        db.execute(damage);
        refused(&bench, words);
        assert_eq!(table(&mut db), rows(1), "{damage}");
        db.execute("DROP TABLE {}.out; DELETE FROM {}.tidegate_checkpoint");
    }
}

#[test]
fn a_table_that_was_restored_from_a_backup_is_refused() {
    let mut db = Db::new("restored");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("key: [id]")));
    bench.write("in.geojsonl", &version(1));
    kill(&bench, &[], "commit:1");
    db.execute("CREATE TABLE {}.b1 AS SELECT * FROM {}.out; CREATE TABLE {}.b2 AS SELECT * FROM {}.tidegate_checkpoint");
    kill(&bench, &["--resume"], "commit:1");
    db.execute("TRUNCATE {}.out, {}.tidegate_checkpoint; INSERT INTO {}.out SELECT * FROM {}.b1; INSERT INTO {}.tidegate_checkpoint SELECT * FROM {}.b2");
    refused(&bench, "restored from a backup");
    assert_eq!(table(&mut db), rows(1));
}

/// Finished, the table dropped and the state removed: what is claimed is read anew.
#[test]
fn a_dropped_table_without_state_is_written_anew() {
    let mut db = Db::new("anew");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("key: [id]")));
    bench.write("in.geojsonl", &version(1));
    bench.runs(4);
    db.execute("DROP TABLE {}.out");
    fs::remove_dir_all(bench.path(".tidegate")).unwrap();
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, &ran.json()["sink_rows"]), (4, &54.into()), "{}", ran.stderr);
    assert_eq!(table(&mut db), rows(1));
}

#[test]
fn rows_that_vanish_while_a_run_writes_are_noticed() {
    let mut db = Db::new("vanish");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("key: [id]")));
    bench.write("in.geojsonl", &version(1));
    let gate = bench.path("gate");
    let child = bench
        .command(&["run", "m.yaml", "--format", "json"])
        .env("TIDEGATE_HOLD", format!("commit:4={}", gate.display()))
        .spawn()
        .unwrap();
    while !bench.path("gate.here").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    db.execute("DELETE FROM {}.out WHERE id < 10");
    fs::write(&gate, "").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("the sink holds 45 rows, but at least 54 were expected"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("all records accounted for"), "{}", ran.stderr);
}

#[test]
fn rows_that_a_trigger_drops_are_not_called_written() {
    let mut db = Db::new("trigger");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("key: [id]")));
    bench.write("in.geojsonl", &version(1));
    bench.runs(4);
    db.execute(
        "TRUNCATE {}.out;
         CREATE FUNCTION {}.drop_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id < 5 THEN RETURN NULL; END IF; RETURN NEW; END $$;
         CREATE TRIGGER drop_some BEFORE INSERT ON {}.out FOR EACH ROW EXECUTE FUNCTION {}.drop_some()",
    );
    let ran = bench.run(&[]);
    let result = ran.json();
    assert_eq!(
        (&result["written"], &result["rejected"], &result["sink_rows"]),
        (&50.into(), &10.into(), &50.into())
    );
    assert_eq!(result["rejected_by_code"]["CONSTRAINT_VIOLATION"], 4, "{result}");
}

#[test]
fn a_geopackage_that_lost_rows_is_refused() {
    // A new file is written beside its place, one that is there is written in place.
    for (before, file) in [(false, ".out.gpkg.stage"), (true, "out.gpkg")] {
        for damage in ["remove", "empty", "older"] {
            let bench = Bench::new();
            bench.manifest(&parts("sink: { file: out.gpkg, key: [id] }"));
            if before {
                bench.write("in.geojsonl", &version(0));
                bench.runs(4);
            }
            bench.write("in.geojsonl", &version(1));
            kill(&bench, &[], "commit:0");
            let place = fs::read_dir(bench.root())
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .find(|path| {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    name.starts_with(file) && !name.ends_with("-journal")
                })
                .unwrap();
            let older = fs::read(&place).unwrap();
            kill(&bench, &["--resume"], "commit:1");
            match damage {
                "remove" => fs::remove_file(&place).unwrap(),
                "older" => fs::write(&place, older).unwrap(),
                _ => {
                    let db = rusqlite::Connection::open(&place).unwrap();
                    // Triggers of the index want functions that only a GIS brings.
                    db.execute_batch("PRAGMA foreign_keys = 0; DROP TABLE IF EXISTS rtree_out_geom").unwrap();
                    let triggers: Vec<String> = db
                        .prepare("SELECT name FROM sqlite_master WHERE type = 'trigger'")
                        .unwrap()
                        .query_map([], |row| row.get(0))
                        .unwrap()
                        .map(Result::unwrap)
                        .collect();
                    for name in triggers {
                        db.execute_batch(&format!("DROP TRIGGER \"{name}\"")).unwrap();
                    }
                    db.execute_batch("DELETE FROM out WHERE id < 5; DELETE FROM gpkg_extensions").unwrap();
                }
            }
            let words = match damage {
                "remove" => "no longer exists",
                "older" => "restored from a backup",
                _ => "rows were deleted",
            };
            refused(&bench, words);
            assert_eq!(geopackage(&bench), rows(1), "{file} {damage}");
        }
    }
}

/// Another program's layer is not overwritten by the copy that an atomic run made before.
#[test]
fn a_file_that_another_program_changed_is_not_replaced() {
    let bench = Bench::new();
    bench.manifest(&parts("sink: { file: out.gpkg, key: [id] }"));
    bench.write("in.geojsonl", &version(0));
    bench.runs(4);
    bench.write("in.geojsonl", &version(1));
    kill(&bench, &["--atomic"], "commit:1");
    let db = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    db.execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')").unwrap();
    drop(db);
    let ran = bench.run(&["--resume", "--atomic"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT text FROM notes"), ["mine"]);
    assert_eq!(bench.run(&["--atomic"]).code, 4);
    assert_eq!(bench.sql("out.gpkg", "SELECT text FROM notes"), ["mine"]);
    assert_eq!(geopackage(&bench), rows(1));
}

#[test]
fn rejects_that_were_lost_are_noticed() {
    for damage in ["remove", "shorten"] {
        let bench = Bench::new();
        bench.manifest(&parts("sink: { file: out.gpkg, key: [id] }"));
        bench.write("in.geojsonl", &version(1));
        kill(&bench, &[], "commit:2");
        let path = bench.path(".tidegate/test/rejects.ndjson");
        match damage {
            "remove" => fs::remove_file(&path).unwrap(),
            _ => {
                let text = fs::read_to_string(&path).unwrap();
                fs::write(&path, &text[..text.len() / 2]).unwrap();
            }
        }
        refused(&bench, "rejected records were lost");
        assert_eq!(bench.rejects().len(), 6, "{damage}");
    }
}

#[test]
fn dead_letters_that_were_lost_are_noticed() {
    let bench = Bench::new();
    bench.manifest(&format!("dead_letters: {{}}\n{}", parts("sink: { file: out.gpkg, key: [id] }")));
    bench.write("in.geojsonl", &version(1));
    kill(&bench, &[], "commit:2");
    for entry in fs::read_dir(bench.path(".tidegate")).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().starts_with("letters.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    refused(&bench, "its dead letters are no longer in");
}

#[test]
fn an_unfinished_append_is_not_added_to_without_its_state() {
    let mut db = Db::new("stray");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("mode: append")));
    bench.write("in.geojsonl", &version(1));
    kill(&bench, &[], "commit:1");
    fs::remove_dir_all(bench.path(".tidegate")).unwrap();
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("which did not finish and is not in this state directory"), "{}", ran.stderr);
    assert_eq!(table(&mut db).len(), 18);
    db.execute("TRUNCATE {}.out, {}.tidegate_checkpoint");
    assert_eq!(bench.run(&["--resume"]).code, 4);
    assert_eq!(table(&mut db), rows(1));
}

/// A table that is replaced by nothing is empty, and a run over nothing says so.
#[test]
fn a_source_without_records_empties_what_it_replaces() {
    let mut db = Db::new("nothing");
    let bench = Bench::new();
    bench.manifest(&parts(&db.sink("mode: replace")));
    bench.write("in.geojsonl", &version(1));
    bench.runs(4);
    bench.write(
        "in.geojsonl",
        &point(16.0, 48.123_456, r#"{"id":1,"v":"1"}"#).replace("\"Feature\"", "\"Nothing\""),
    );
    let ran = bench.run(&["--report", "r.html"]);
    if ran.code == 0 || ran.code == 4 {
        assert_eq!(ran.json()["sink_rows"], 0, "{}", ran.stderr);
        assert_eq!(table(&mut db), Vec::<String>::new());
    }
}

#[test]
fn a_state_that_cannot_be_read_is_said() {
    let bench = Bench::new();
    bench.manifest(&parts("sink: { file: out.gpkg, key: [id] }"));
    bench.write("in.geojsonl", &version(1));
    bench.runs(4);
    bench.write(".tidegate/test/run.json", "{\"run\":");
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("so the state of the last run is unknown"), "{}", ran.stderr);
    fs::remove_file(bench.path(".tidegate/test/run.json")).unwrap();
    assert_eq!(bench.run(&["--resume"]).code, 4);
}
