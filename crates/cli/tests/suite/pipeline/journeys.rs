//! Random journeys: run, change the source, kill, resume, halt, damage the sink, lose a state file,
//! in any order. Whatever the program claims at the end of a run is true, and nothing is lost.
//!
//! Each journey is drawn from a seed, so a failure names what to run again. After every run that
//! ends, its claims are held against the source and the sink:
//!
//! | it says | then |
//! |---|---|
//! | done (0 or 4) | the sink holds each good record of the source, exactly so; the counts are those of the source, the rejects are all in their file, and the sink has as many rows as it says |
//! | halted (3) | the source holds a record that must halt, and the sink does not |
//! | refused (1) | something was damaged since the last run that was done |
//!
//! A journey ends with a run that must be done.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::pipeline::bench::{Bench, point};
use crate::pipeline::postgis::Db;

const POINTS: [&str; 9] = [
    "started:0",
    "opened:0",
    "put:0",
    "rejects:1",
    "commit:0",
    "commit:1",
    "commit:3",
    "finishing:0",
    "finish:0",
];
const STEPS: u32 = 9;
const MODES: [&str; 3] = ["key: [id]", "mode: replace", "key: [id], mode: sync, max_deleted: 100%"];

/// How many journeys for each kind of sink; `TIDEGATE_JOURNEYS` asks for more.
fn journeys() -> u64 {
    std::env::var("TIDEGATE_JOURNEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(16)
}

/// A generator with a seed, so that a journey can be made again.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// What the source holds: values by id; a record without a value cannot be read.
#[derive(Clone, Default)]
struct World {
    records: BTreeMap<u64, Option<u64>>,
    /// Records go too, and none is rejected.
    shrinks: bool,
    halts: bool,
    version: u64,
}

impl World {
    fn change(&mut self, draw: &mut Draw) {
        self.version += 1;
        for id in 0..50 + draw.below(30) {
            if draw.below(3) > 0 {
                let value = (self.shrinks || id % 11 != 4).then_some(id * 1000 + self.version);
                self.records.insert(id, value);
            } else if self.shrinks {
                self.records.remove(&id);
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (id, value) in &self.records {
            let value = value.map_or("x".to_owned(), |value| value.to_string());
            text += &point(16.0, 48.123_456, &format!(r#"{{"id":{id},"v":"{value}"}}"#));
        }
        if self.halts {
            text += &point(16.0, 48.123_456, r#"{"id":9999,"v":"9999999"}"#);
        }
        text
    }

    fn good(&self) -> BTreeMap<u64, u64> {
        self.records.iter().filter_map(|(id, value)| Some((*id, (*value)?))).collect()
    }
}

/// A sink that can be asked and damaged.
trait Place {
    fn sink(&self) -> String;
    fn rows(&mut self, bench: &Bench) -> BTreeMap<u64, u64>;
    fn damage(&mut self, bench: &Bench, how: &str);
    fn backup(&mut self, bench: &Bench);
}

struct GeoPackage {
    mode: &'static str,
    backup: Option<Vec<u8>>,
}

impl Place for GeoPackage {
    fn sink(&self) -> String {
        format!("sink: {{ file: out.gpkg, {} }}", self.mode)
    }

    fn rows(&mut self, bench: &Bench) -> BTreeMap<u64, u64> {
        if !bench.path("out.gpkg").exists() {
            return BTreeMap::new();
        }
        let pair = |row: &String| {
            let (id, value) = row.split_once('|').unwrap();
            (id.parse().unwrap(), value.parse().unwrap())
        };
        let rows = bench.sql("out.gpkg", "SELECT id, v FROM out");
        let all: BTreeMap<u64, u64> = rows.iter().map(pair).collect();
        assert_eq!(all.len(), rows.len(), "a record is there twice");
        all
    }

    fn damage(&mut self, bench: &Bench, how: &str) {
        let place = bench.path("out.gpkg");
        match how {
            "restore" => match &self.backup {
                Some(bytes) => fs::write(&place, bytes).unwrap(),
                None => drop(fs::remove_file(&place)),
            },
            _ => {
                for entry in fs::read_dir(bench.root()).unwrap().map(Result::unwrap) {
                    if entry.file_name().to_str().unwrap().contains("out.gpkg") {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
            }
        }
    }

    fn backup(&mut self, bench: &Bench) {
        self.backup = fs::read(bench.path("out.gpkg")).ok();
    }
}

struct Table {
    db: Db,
    mode: &'static str,
    backed_up: bool,
}

impl Table {
    fn there(&mut self) -> bool {
        self.db.rows("SELECT to_regclass('{}.out') IS NOT NULL") == ["(t)"]
    }
}

impl Place for Table {
    fn sink(&self) -> String {
        self.db.sink(self.mode)
    }

    fn rows(&mut self, _: &Bench) -> BTreeMap<u64, u64> {
        if !self.there() {
            return BTreeMap::new();
        }
        let pair = |row: &String| {
            let (id, value) = row.trim_matches(['(', ')']).split_once(',').unwrap();
            (id.parse().unwrap(), value.parse().unwrap())
        };
        let rows = self.db.rows("SELECT id, v FROM {}.out");
        let all: BTreeMap<u64, u64> = rows.iter().map(pair).collect();
        assert_eq!(all.len(), rows.len(), "a record is there twice");
        all
    }

    fn damage(&mut self, _: &Bench, how: &str) {
        if !self.there() {
            return;
        }
        match how {
            "drop" => self.db.execute("DROP TABLE {}.out"),
            "truncate" => self.db.execute("DELETE FROM {}.out WHERE id % 3 = 0"),
            _ if self.backed_up => self.db.execute(
                "TRUNCATE {}.out, {}.tidegate_checkpoint; INSERT INTO {}.out SELECT * FROM {}.kept_rows;
                 INSERT INTO {}.tidegate_checkpoint SELECT * FROM {}.kept_checkpoint",
            ),
            _ => self.db.execute("TRUNCATE {}.out, {}.tidegate_checkpoint"),
        }
    }

    fn backup(&mut self, _: &Bench) {
        if self.there() {
            self.db.execute(
                "DROP TABLE IF EXISTS {}.kept_rows, {}.kept_checkpoint;
                 CREATE TABLE {}.kept_rows AS SELECT * FROM {}.out;
                 CREATE TABLE {}.kept_checkpoint AS SELECT * FROM {}.tidegate_checkpoint",
            );
            self.backed_up = true;
        }
    }
}

/// What was counted over all journeys, for whoever reads the output.
#[derive(Debug, Default)]
struct Tally {
    runs: u32,
    killed: u32,
    done: u32,
    halted: u32,
    refused: u32,
}

struct Journey<'a> {
    bench: Bench,
    place: &'a mut dyn Place,
    world: World,
    /// Something was damaged since a run was done.
    damaged: bool,
    replaces: bool,
    told: Vec<String>,
}

impl Journey<'_> {
    fn run(&mut self, args: &[&str], crash: Option<&str>, tally: &mut Tally) -> Option<i32> {
        self.told.push(format!("run {args:?} {crash:?}"));
        let mut command = self.bench.command(&[&["run", "m.yaml", "--format", "json"], args].concat());
        if let Some(at) = crash {
            command.env("TIDEGATE_CRASH", at);
        }
        let output = command.output().unwrap();
        tally.runs += 1;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let story = || format!("{}\n{stderr}", self.told.join("\n"));
        let Some(code) = output.status.code() else {
            tally.killed += 1;
            return None;
        };
        let rows = self.place.rows(&self.bench);
        match code {
            0 | 4 => {
                tally.done += 1;
                let result: Value = serde_json::from_slice(&output.stdout).unwrap();
                let good = self.world.good();
                let bad = self.world.records.len() - good.len();
                assert!(!self.world.halts, "done over a record that must halt: {}", story());
                assert_eq!(result["status"], "done", "{}", story());
                assert_eq!(code, if bad > 0 { 4 } else { 0 }, "{}", story());
                for (id, value) in &good {
                    assert_eq!(rows.get(id), Some(value), "record {id} of {result}: {}", story());
                }
                if self.replaces {
                    assert_eq!(rows, good, "{}", story());
                }
                assert_eq!(result["written"], good.len(), "{}", story());
                assert_eq!(result["rejected"], bad, "{}", story());
                assert_eq!(self.bench.rejects().len(), bad, "{}", story());
                assert_eq!(result["sink_rows"], rows.len(), "{}", story());
                self.damaged = false;
            }
            3 => {
                tally.halted += 1;
                assert!(self.world.halts, "{}", story());
                assert!(!rows.contains_key(&9999), "{}", story());
            }
            _ => {
                tally.refused += 1;
                assert_eq!(code, 1, "{}", story());
                assert!(self.damaged, "refused without a reason: {}", story());
                assert!(args.contains(&"--resume"), "a new run is never refused: {}", story());
            }
        }
        Some(code)
    }

    fn damage(&mut self, draw: &mut Draw) {
        let how = draw.one(&["drop", "truncate", "restore"]);
        self.place.damage(&self.bench, how);
        self.damaged = true;
        self.told.push(format!("{how} the sink"));
    }

    fn lose(&mut self, draw: &mut Draw) {
        let name = draw.one(&["run.json", "committed", "rejects.ndjson", "."]);
        let path = self.bench.path(".tidegate/test").join(name);
        drop(if name == "." { fs::remove_dir_all(path) } else { fs::remove_file(path) });
        self.damaged = true;
        self.told.push(format!("lose {name}"));
    }

    fn step(&mut self, draw: &mut Draw, tally: &mut Tally) {
        match draw.below(13) {
            0 | 1 => {
                self.world.change(draw);
                self.bench.write("in.geojsonl", &self.world.text());
                self.told.push("change the source".into());
            }
            2 => {
                self.world.halts = !self.world.halts;
                self.bench.write("in.geojsonl", &self.world.text());
                self.told.push(format!("a record that halts: {}", self.world.halts));
            }
            3 => self.damage(draw),
            4 => {
                self.place.backup(&self.bench);
                self.told.push("back up the sink".into());
            }
            5 => self.lose(draw),
            12 => {
                // The worst moment: between a kill behind a commit and its resume.
                if draw.below(2) == 0 {
                    self.place.backup(&self.bench);
                    self.told.push("back up the sink".into());
                }
                _ = self.run(&["--resume"], Some("commit:1"), tally);
                if draw.below(2) == 0 {
                    self.damage(draw);
                } else {
                    self.lose(draw);
                }
                _ = self.run(&["--resume"], None, tally);
            }
            6..=8 => _ = self.run(&["--resume"], Some(draw.one(&POINTS)), tally),
            9 => _ = self.run(&[], Some(draw.one(&POINTS)), tally),
            10 => _ = self.run(&["--resume"], None, tally),
            _ => _ = self.run(&[], None, tally),
        }
    }
}

fn travel(place: &mut dyn Place, seed: u64, tally: &mut Tally) {
    let bench = Bench::new();
    let sink = place.sink();
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl, batch_size: 10 }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\ngates:\n  - {{ check: range, fields: [v], max: 999999, severity: halt }}\n{sink}"
    ));
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let shrinks = sink.contains("sync");
    let mut world = World { shrinks, ..World::default() };
    world.change(&mut draw);
    bench.write("in.geojsonl", &world.text());
    let replaces = shrinks || sink.contains("replace");
    let told = vec![format!("seed {seed}, {sink}")];
    let mut journey = Journey { bench, place, world, damaged: false, replaces, told };
    for _ in 0..STEPS {
        journey.step(&mut draw, tally);
    }
    journey.world.halts = false;
    journey.bench.write("in.geojsonl", &journey.world.text());
    // One line of cron serves for ever, unless something was damaged; then a new run does.
    if journey.run(&["--resume"], None, tally) == Some(1) {
        let code = journey.run(&[], None, tally);
        assert!(matches!(code, Some(0 | 4)), "{}", journey.told.join("\n"));
    }
}

#[test]
fn every_claim_is_true_of_a_geopackage() {
    let mut tally = Tally::default();
    for seed in 0..journeys() {
        let mode = MODES[usize::try_from(seed % 3).unwrap()];
        travel(&mut GeoPackage { mode, backup: None }, seed, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.killed > 30 && tally.done > 30 && tally.halted > 3 && tally.refused > 1, "{tally:?}");
}

#[test]
fn every_claim_is_true_of_a_table() {
    let mut tally = Tally::default();
    for seed in 0..journeys() {
        let mode = MODES[usize::try_from(seed % 3).unwrap()];
        let db = Db::new(&format!("journey{seed}"));
        travel(&mut Table { db, mode, backed_up: false }, 1000 + seed, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.killed > 30 && tally.done > 30 && tally.halted > 3 && tally.refused > 1, "{tally:?}");
}
