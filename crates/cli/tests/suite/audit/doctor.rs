//! What the doctor finds, and how it ends.

use serde_json::Value;
use tidegate_chaos::{Config, Dialect, FaultKind, spec};

use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::{Bench, point};

fn findings(bench: &Bench, code: i32, args: &[&str]) -> Vec<Value> {
    let ran = bench.tidegate(&[&["doctor", "--format", "json"], args].concat());
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
    ran.json().as_array().unwrap().clone()
}

fn health<'a>(findings: &'a [Value], check: &str) -> (&'a str, &'a str, &'a str) {
    let found =
        findings.iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("no {check}: {findings:#?}"));
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    (text("health"), text("found"), text("next"))
}

#[test]
fn a_machine_is_well_and_nothing_is_left_behind() {
    let bench = Bench::new();
    let found = findings(&bench, 0, &[]);
    for check in ["state", "dead letters", "projections"] {
        assert_eq!(health(&found, check).0, "ok");
    }
    assert_eq!(std::fs::read_dir(bench.root()).unwrap().count(), 0);
    let table = bench.tidegate(&["doctor"]);
    assert!(table.stdout.contains("3 ok, 0 warn, 0 fail"), "{}", table.stdout);
}

#[test]
fn a_pipeline_with_a_service_is_looked_at_wholly() {
    let server = chaos(Config::default());
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(16.0, 48.0, r#"{"id":1}"#));
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\nservices: {{ g: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - reproject: EPSG:31287\nsink: {{ file: out.gpkg }}",
        server.url()
    ));
    let found = findings(&bench, 0, &["m.yaml"]);
    for check in
        ["source", "sink", "service g: name", "service g: answer", "service g: clock", "service g: quota"]
    {
        assert_eq!(health(&found, check).0, "ok", "{check}");
    }
    assert!(health(&found, "systems").1.contains("EPSG:31287"));
    assert_eq!(server.stats().requests, 1, "a service is asked once");
}

#[test]
fn what_is_wrong_here_is_one_and_what_is_wrong_there_is_seventy_five() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(16.0, 48.0, r#"{"id":1}"#));
    let parts = |service: &str, sink: &str| {
        format!(
            "source: {{ file: in.geojsonl }}\nservices: {{ g: {{ {service} }} }}\nsink: {{ file: {sink} }}"
        )
    };
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.manifest(&parts(&format!("url: \"http://{free}\""), "out.gpkg"));
    let found = findings(&bench, 75, &["m.yaml"]);
    let (health_, _, next) = health(&found, "service g: answer");
    assert_eq!((health_, next.contains("that the service is running")), ("fail", true));
    let refuses = fault(FaultKind::Status(429), "1");
    let server = chaos(Config { faults: vec![refuses], ..Config::default() });
    bench.manifest(&parts(&format!("url: \"{}\"", server.url()), "out.gpkg"));
    assert_eq!(health(&findings(&bench, 75, &["m.yaml"]), "service g: answer").2, "try again later");
    bench.manifest(&parts(
        &format!("url: \"{}\", key: \"env:NO_SUCH_KEY_HERE\"", server.url()),
        "nowhere/out.gpkg",
    ));
    let found = findings(&bench, 1, &["m.yaml"]);
    assert_eq!(health(&found, "service g: key").0, "fail");
    assert!(health(&found, "sink").2.contains("create the directory"));
    bench.write("m.yaml", "pipeline: 1\n");
    assert_eq!(bench.tidegate(&["doctor", "m.yaml"]).code, 2);
}

#[test]
fn a_killed_run_and_a_touched_audit_are_found() {
    let bench = Bench::new();
    let input: String = (0..30).map(|n| point(16.0, 48.0, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &input);
    bench.manifest("source: { file: in.geojsonl, batch_size: 10 }\nsink: { file: out.gpkg, key: [id] }");
    bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:1").output().unwrap();
    let found = findings(&bench, 0, &["m.yaml"]);
    let (health_, what, next) = health(&found, "last run");
    assert_eq!((health_, what, next.contains("--resume")), ("warn", "was killed", true));
    assert_eq!(health(&found, "audit").0, "ok");
    let book = rusqlite::Connection::open(bench.path(".tidegate/test/audit.db")).unwrap();
    book.execute_batch("UPDATE audit SET who = 'nobody' WHERE n = 1").unwrap();
    assert!(health(&findings(&bench, 1, &["m.yaml"]), "audit").1.contains("entry 1 was edited"));
}

#[test]
fn a_service_that_is_the_source_is_asked_like_any_other() {
    let limit = spec::throttle("fixed:1000/1h").unwrap();
    let config =
        Config { limit, headers: Dialect::Ietf, skew: 60, features: 230, page_max: 50, ..Config::default() };
    let server = chaos(config);
    let bench = Bench::new();
    let manifest = |url: &str| {
        bench.manifest(&format!(
            "services: {{ far: {{ profile: geoserver-wfs, url: \"{url}/wfs\" }} }}\nsource: {{ service: far }}\nsink: {{ file: out.gpkg, mode: append }}"
        ));
    };
    manifest(&server.url());
    let found = findings(&bench, 0, &["m.yaml"]);
    assert_eq!(health(&found, "service far: answer").0, "ok");
    let (clock, said, _) = health(&found, "service far: clock");
    assert_eq!((clock, said.contains("s ahead of this machine")), ("warn", true), "{said}");
    let (quota, said, _) = health(&found, "service far: quota");
    assert_eq!((quota, said.contains("of 1000 calls left")), ("ok", true), "{said}");
    assert_eq!(health(&found, "source").1, "230 records of tide:parcels");
    // One that is not there is not asked for its layer, and nothing is tried again.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    manifest(&format!("http://{free}"));
    let found = findings(&bench, 75, &["m.yaml"]);
    assert_eq!(health(&found, "service far: answer").0, "fail");
    assert!(health(&found, "source").1.contains("its service does not respond"));
    assert!(!bench.path("out.gpkg").exists() && !bench.path(".tidegate").exists());
}

#[test]
fn a_file_and_a_bucket_elsewhere_are_asked_without_being_fetched() {
    let server = chaos(Config { features: 20, ..Config::default() });
    let bench = Bench::new();
    bench.manifest(&format!(
        "source: {{ file: \"{0}/file/parcels.geojson\" }}\nsink: {{ file: \"s3://tide/a.fgb\", store: {{ endpoint: \"{0}\" }} }}",
        server.url()
    ));
    let found = findings(&bench, 0, &["m.yaml"]);
    for check in
        ["source: name", "source: answer", "source: clock", "sink bucket: answer", "sink bucket: quota"]
    {
        assert_eq!(health(&found, check).0, "ok", "{check}");
    }
    assert_eq!(health(&found, "source").1, "20 records of file");
    assert!(!found.iter().any(|f| f["check"] == "sink"), "a bucket is no directory: {found:#?}");
}

/// Every file below a directory, with its content.
fn files(dir: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.clone(), std::fs::read(path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_store_of_letters_is_only_read() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &(point(16.0, 48.0, r#"{"id":1}"#) + &point(16.0, 48.0, r#"{"id":null}"#)));
    bench.manifest("dead_letters: {}\nsource: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [id] }");
    bench.runs(4);
    let store = bench.path(".tidegate/letters.db");
    // Of the version before: whoever writes to it next brings it up to date, and not who looks.
    let old = rusqlite::Connection::open(&store).unwrap();
    old.execute_batch("UPDATE meta SET value = '1' WHERE name = 'version'; PRAGMA journal_mode = delete")
        .unwrap();
    drop(old);
    std::fs::remove_file(bench.path(".tidegate/audit.key")).unwrap();
    let before = files(bench.root());
    let found = findings(&bench, 0, &[]);
    assert_eq!(health(&found, "dead letters").1, ".tidegate/letters.db holds 1 of 5000000 letters");
    assert!(files(bench.root()) == before, "nothing was made or changed");
    // While somebody else has it open, too.
    let other = rusqlite::Connection::open(&store).unwrap();
    other
        .execute_batch("PRAGMA journal_mode = wal; UPDATE meta SET value = '1' WHERE name = 'version'")
        .unwrap();
    let found = findings(&bench, 0, &[]);
    assert_eq!(health(&found, "dead letters").0, "ok");
    let version: String =
        other.query_row("SELECT value FROM meta WHERE name = 'version'", [], |row| row.get(0)).unwrap();
    assert_eq!(version, "1");
    other.execute_batch("UPDATE meta SET value = '9' WHERE name = 'version'").unwrap();
    assert!(health(&findings(&bench, 1, &[]), "dead letters").1.contains("version 9"));
}

#[test]
fn a_queue_is_looked_at_and_left_alone() {
    let bench = Bench::new();
    let parts = |sink: &str| {
        format!(
            "source:\n  queue: tasks.db\n  tasks: {{ fields: {{ id: int }} }}\nsink: {{ {sink} }}\ndead_letters: {{ also: 'tasks.db?queue=dead' }}"
        )
    };
    bench.manifest(&parts("file: out.gpkg, key: [id]"));
    let found = findings(&bench, 0, &["m.yaml"]);
    assert_eq!(health(&found, "queue").0, "ok");
    assert_eq!(health(&found, "tasks").0, "ok");
    assert!(!bench.root().join("tasks.db").exists() && !bench.root().join("out.gpkg").exists());

    bench.write("tasks.ndjson", "{\"key\":\"a\",\"payload\":{\"id\":1}}\n");
    assert_eq!(bench.tidegate(&["submit", "m.yaml", "--tasks", "tasks.ndjson"]).code, 0);
    let found = findings(&bench, 0, &["m.yaml"]);
    assert!(health(&found, "queue").1.contains("SQLite promises: order by key, priority"), "{found:#?}");
    assert!(health(&found, "queue: depth").1.starts_with("1 ready, 0 leased, 0 waiting"), "{found:#?}");
    assert_eq!(health(&found, "queue: settings").0, "ok");
    assert!(health(&found, "dead queue: depth").1.starts_with("0 ready"), "{found:#?}");

    bench.manifest(&parts("file: other.gpkg, mode: replace"));
    let found = findings(&bench, 1, &["m.yaml"]);
    let (word, what, next) = health(&found, "tasks");
    assert!(word == "fail" && what.contains("with a queue"), "{what}");
    assert!(next.contains("mode: upsert"), "{next}");
}

#[test]
fn a_queue_that_does_not_answer_is_theirs() {
    let bench = Bench::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.manifest(&format!(
        "source:\n  queue: redis://{closed}/geotasks\n  tasks: {{ fields: {{ id: int }} }}\nsink: {{ file: out.gpkg, key: [id] }}"
    ));
    let found = findings(&bench, 75, &["m.yaml"]);
    let (word, what, next) = health(&found, "queue");
    assert!(word == "fail" && what.contains("geotasks"), "{what}");
    assert!(next.contains("server is running"), "{next}");
}
