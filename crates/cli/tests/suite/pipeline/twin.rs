//! A letter is replayed while another run commits the repaired twin of its record: one row, whoever
//! comes first. Who does is decided by holding one of the two at a named point.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::running::Ran;
use crate::pipeline::bench::Bench;
use crate::pipeline::postgis::Db;

const SQUARE: &str = "[16.3,48.1],[16.4,48.1],[16.4,48.2],[16.3,48.2],[16.3,48.1]";
const BOW_TIE: &str = "[16.1,48.1],[16.2,48.2],[16.2,48.1],[16.1,48.2],[16.1,48.1]";

/// Three parcels; the second is as given.
fn parcels(second: &str) -> String {
    [(1, SQUARE), (2, second), (3, SQUARE)]
        .iter()
        .map(|(id, ring)| crate::pipeline::bench::polygon(ring, &format!(r#"{{"id":{id},"v":"a"}}"#)))
        .collect()
}

/// One of the two, held at a point until the gate is opened.
pub(crate) struct Held {
    child: Child,
    gate: std::path::PathBuf,
}

impl Held {
    pub(crate) fn start(bench: &Bench, args: &[&str], point: &str) -> Held {
        let gate = bench.path(&format!("gate-{}", point.replace(':', "-")));
        let hold = format!("{point}={}", gate.display());
        let mut child = bench.command(args).env("TIDEGATE_HOLD", hold).spawn().unwrap();
        let here = gate.with_file_name(format!("{}.here", gate.file_name().unwrap().to_str().unwrap()));
        wait(&here, &mut child);
        Held { child, gate }
    }

    pub(crate) fn go(self) -> Ran {
        std::fs::write(&self.gate, "").unwrap();
        self.child.wait_with_output().unwrap().into()
    }
}

fn wait(here: &Path, child: &mut Child) {
    while !here.exists() {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("it ended before it came to {}: {status}", here.display());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

const REPLAY: [&str; 6] = ["dlq", "replay", "--manifest", "m.yaml", "--state", "validated"];

/// A run whose second record became a letter that is repaired, and a source that is repaired too.
fn prepared(sink: &str) -> Bench {
    let bench = Bench::new();
    bench.write("in.geojsonl", &parcels(BOW_TIE));
    bench.manifest(&format!(
        "tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\ndead_letters: {{ remedies: [{{ rule: make_valid, tolerance: 0.1 }}] }}\nsource: {{ file: in.geojsonl }}\nsteps:\n  - promote_to_multi: true\n{sink}"
    ));
    assert_eq!(bench.runs(4)["written"], 2);
    let fixed = bench.tidegate(&["dlq", "fix", "--manifest", "m.yaml"]);
    assert_eq!(fixed.code, 0, "{}", fixed.stderr);
    bench.write("in.geojsonl", &parcels(SQUARE));
    bench
}

fn resolved(bench: &Bench) {
    let ls = bench.tidegate(&["dlq", "ls", "--closed", "--format", "ndjson"]);
    let letters: Vec<Value> = ls.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<&Value> = letters.iter().map(|letter| &letter["state"]).collect();
    assert_eq!(states, [&json!("resolved")], "{}", ls.stdout);
}

/// The four orders. The other run keeps its state elsewhere, as on another machine: nothing but the
/// sink is between the two.
fn orders(bench: &Bench, order: usize) {
    let run = ["run", "m.yaml", "--state", "elsewhere", "--format", "json"];
    let (replayed, ran): (Ran, Ran) = match order {
        // The replay has put its row and not committed it.
        0 => {
            let replay = Held::start(bench, &REPLAY, "replay_put:0");
            let run = bench.command(&run).spawn().unwrap();
            let replayed = replay.go();
            (replayed, run.wait_with_output().unwrap().into())
        }
        // The run has put the twin and not committed it.
        1 => {
            let run = Held::start(bench, &run, "put:0");
            let replay = bench.command(&REPLAY).spawn().unwrap();
            let ran = run.go();
            (replay.wait_with_output().unwrap().into(), ran)
        }
        // The replay has opened the sink, and the whole run comes in between.
        2 => {
            let replay = Held::start(bench, &REPLAY, "replay:0");
            let ran = bench.tidegate(&run);
            (replay.go(), ran)
        }
        // The run has opened the sink, and the whole replay comes in between.
        _ => {
            let run = Held::start(bench, &run, "opened:0");
            let replayed = bench.tidegate(&REPLAY);
            (replayed, run.go())
        }
    };
    assert_eq!(replayed.code, 0, "order {order}, the replay: {}", replayed.stderr);
    assert_eq!(ran.code, 0, "order {order}, the run: {}", ran.stderr);
    let result = ran.json();
    assert_eq!((&result["written"], &result["balanced"]), (&json!(3), &json!(true)), "order {order}");
    resolved(bench);
}

#[test]
fn one_row_in_a_geopackage_whoever_comes_first() {
    for round in 0..12 {
        let bench = prepared("sink: { file: out.gpkg, key: [id] }");
        orders(&bench, round % 4);
        assert_eq!(
            bench.sql("out.gpkg", "SELECT id, count(*) FROM out GROUP BY id ORDER BY id"),
            ["1|1", "2|1", "3|1"],
            "order {}",
            round % 4
        );
        assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), ["3"]);
        assert_eq!(bench.sql("out.gpkg", "PRAGMA integrity_check"), ["ok"]);
        let left = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tidegate%' AND type = 'table'";
        assert_eq!(bench.sql("out.gpkg", left), ["0"], "no table of ours stays");
    }
}

#[test]
fn one_row_in_a_table_whoever_comes_first() {
    for round in 0..12 {
        let mut db = Db::new(&format!("twin{round}"));
        let bench = prepared(&db.sink("key: [id]"));
        orders(&bench, round % 4);
        assert_eq!(
            db.rows("SELECT id, count(*) FROM {}.out GROUP BY id ORDER BY id"),
            ["(1,1)", "(2,1)", "(3,1)"],
            "order {}",
            round % 4
        );
    }
}

#[test]
fn on_one_machine_the_second_is_told_to_wait() {
    let bench = prepared("sink: { file: out.gpkg, key: [id] }");
    let run = Held::start(&bench, &["run", "m.yaml", "--format", "json"], "put:0");
    let replayed = bench.tidegate(&REPLAY);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert_eq!(run.go().code, 0);
    let replay = Held::start(&bench, &REPLAY, "replay_put:0");
    let second = bench.run(&[]);
    assert_eq!(second.code, 75, "{}", second.stderr);
    let replayed = replay.go();
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(
        bench.sql("out.gpkg", "SELECT id, count(*) FROM out GROUP BY id ORDER BY id"),
        ["1|1", "2|1", "3|1"]
    );
    resolved(&bench);
}
