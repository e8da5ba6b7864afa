//! `mode: sync` and `history`: the sink becomes what the source is, in every journey. Each test runs
//! against a GeoPackage and a table.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::pipeline::bench::{Bench, point};
use crate::pipeline::postgis::Db;

/// The records of a source: key and value.
type Records = BTreeMap<u32, u32>;

fn records(ids: impl IntoIterator<Item = u32>, v: u32) -> Records {
    ids.into_iter().map(|id| (id, v)).collect()
}

fn source(records: &Records) -> String {
    let one = |(id, v): (&u32, &u32)| {
        point(16.0 + f64::from(*id) / 1000.0, 48.123_456, &format!(r#"{{"id":{id},"v":{v}}}"#))
    };
    records.iter().map(one).collect()
}

/// A sink of one kind.
struct SyncSink {
    bench: Bench,
    db: Option<Db>,
}

impl SyncSink {
    /// One of each kind.
    fn each(name: &str) -> [SyncSink; 2] {
        [
            SyncSink { bench: Bench::new(), db: None },
            SyncSink { bench: Bench::new(), db: Some(Db::new(name)) },
        ]
    }

    fn manifest(&self, more: &str) {
        self.manifest_of("", &format!("key: [id], {more}"));
    }

    fn manifest_of(&self, steps: &str, sink: &str) {
        let sink = match &self.db {
            Some(db) => db.sink(sink),
            None => format!("sink: {{ file: out.gpkg, {sink} }}"),
        };
        self.bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 10 }}\n{steps}\n{sink}"));
    }

    fn give(&self, records: &Records) {
        self.bench.write("in.geojsonl", &source(records));
    }

    fn rows(&mut self, columns: &str, rest: &str) -> Vec<String> {
        match &mut self.db {
            Some(db) => db
                .rows(&format!("SELECT {columns} FROM {{}}.out {rest}"))
                .iter()
                .map(|row| row.trim_matches(['(', ')']).replace(',', "|"))
                .collect(),
            None => self.bench.sql("out.gpkg", &format!("SELECT {columns} FROM out {rest}")),
        }
    }

    fn holds(&mut self, records: &Records, what: &str) {
        let expected: Vec<String> = records.iter().map(|(id, v)| format!("{id}|{v}")).collect();
        assert_eq!(self.rows("id, v", "ORDER BY id"), expected, "{what}");
    }

    /// Runs to the end; the counts of new, changed, unchanged and deleted rows.
    fn syncs(&self, code: i32) -> [u64; 4] {
        counts(&self.bench.runs(code))
    }

    /// The tables of a run are gone with its end.
    fn leaves_no_keys(&mut self) {
        let left = match &mut self.db {
            Some(db) => db.rows(
                "SELECT tablename FROM pg_tables WHERE schemaname = '{}' AND tablename LIKE 'tidegate_keys%'",
            ),
            None => self.bench.sql(
                "out.gpkg",
                "SELECT name FROM sqlite_master WHERE name LIKE 'tidegate%' AND type = 'table'",
            ),
        };
        assert_eq!(left, Vec::<String>::new());
    }
}

fn counts(result: &Value) -> [u64; 4] {
    ["inserted", "updated", "unchanged", "deleted"].map(|name| result[name].as_u64().unwrap())
}

#[test]
fn the_sink_becomes_what_the_source_is() {
    for mut sink in SyncSink::each("becomes") {
        sink.manifest("mode: sync");
        let mut now = records(0..50, 1);
        sink.give(&now);
        assert_eq!(sink.syncs(0), [50, 0, 0, 0]);
        assert_eq!(sink.syncs(0), [0, 0, 50, 0]);
        now.retain(|id, _| id % 20 != 3);
        now.extend(records([7, 60], 2));
        sink.give(&now);
        let ran = sink.bench.tidegate(&["run", "m.yaml", "--report", "r.html"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let page = std::fs::read_to_string(sink.bench.path("r.html")).unwrap();
        for note in ["1 new, 1 changed, 46 unchanged", "3 rows deleted: no longer in the source"] {
            assert!(page.contains(note), "{note}");
        }
        assert!(ran.stderr.contains("deleted              3   no longer in the source"), "{}", ran.stderr);
        assert!(ran.stderr.contains("the sink holds 48 rows"), "{}", ran.stderr);
        sink.holds(&now, "3 of 50 went, one came, one changed");
        sink.leaves_no_keys();
        assert_eq!(sink.syncs(0), [0, 0, 48, 0]);
        let atomic = records(0..48, 3);
        sink.give(&atomic);
        let ran = sink.bench.run(&["--atomic"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(counts(&ran.json()), [3, 45, 0, 3]);
        sink.holds(&atomic, "atomic");
    }
}

#[test]
fn too_many_deletions_halt_and_delete_nothing() {
    for mut sink in SyncSink::each("halts") {
        sink.manifest("mode: sync");
        let before = records(0..50, 1);
        sink.give(&before);
        sink.syncs(0);
        let few = records(0..44, 1);
        for source in [&few, &records([0], 1)] {
            sink.give(source);
            let ran = sink.bench.run(&[]);
            assert_eq!(ran.code, 3, "{}", ran.stderr);
            let gone = 50 - source.len();
            let says = format!("{gone} of 50 rows are no longer in the source, but at most 5 may be deleted");
            assert!(ran.json()["halt"]["reason"].as_str().unwrap().contains(&says), "{}", ran.stdout);
            sink.holds(&before, "nothing was deleted");
            // The same once more, and after a look at it.
            assert_eq!(sink.bench.run(&["--resume"]).code, 3);
        }
        sink.give(&few);
        sink.manifest("mode: sync, max_deleted: 6");
        assert_eq!(sink.bench.run(&["--resume"]).code, 0);
        sink.holds(&few, "6 may go");
        sink.give(&records([1], 1));
        sink.manifest("mode: sync, max_deleted: 100%");
        assert_eq!(sink.syncs(0), [0, 0, 1, 43]);
        sink.holds(&records([1], 1), "all may go");
    }
}

#[test]
fn a_run_that_is_killed_deletes_the_same() {
    for mut sink in SyncSink::each("killed") {
        sink.manifest("mode: sync");
        sink.give(&records(0..50, 0));
        sink.syncs(0);
        let points = [
            "started:0",
            "opened:0",
            "put:0",
            "commit:0",
            "commit:2",
            "put:4",
            "commit:4",
            "finishing:0",
            "finish:0",
        ];
        for (n, at) in (1..).zip(points) {
            let mut now = records(0..50, n);
            now.remove(&(n + 10));
            sink.give(&now);
            let killed = sink.bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", at).output().unwrap();
            assert_eq!(killed.status.code(), None, "not killed at {at}");
            let ran = sink.bench.run(&["--resume"]);
            assert_eq!(ran.code, 0, "{at}: {}", ran.stderr);
            assert_eq!(ran.json()["deleted"], 1, "{at}: {}", ran.stdout);
            sink.holds(&now, at);
            sink.leaves_no_keys();
        }
    }
}

/// The source still has a record that was rejected: its row stays.
#[test]
fn rows_of_rejected_records_stay() {
    for mut sink in SyncSink::each("spares") {
        let gate = "gates:\n  - { check: range, fields: [v], max: 5 }";
        sink.manifest_of(gate, "mode: sync, key: [id]");
        sink.give(&records(0..50, 1));
        sink.syncs(0);
        let mut now = records(0..49, 1);
        now.insert(7, 9);
        sink.give(&now);
        assert_eq!(sink.syncs(4), [0, 0, 48, 1], "49 went, 7 stays as it was");
        now.insert(7, 1);
        sink.holds(&now, "by its key");
        // A record that fails before its key is known may be any of them.
        sink.manifest_of(
            "steps:\n  - coerce: { fields: { id: string } }\n  - coerce: { fields: { id: int } }",
            "mode: sync, key: [id]",
        );
        sink.bench
            .write("in.geojsonl", &(source(&records(0..47, 1)) + &point(1.0, 2.0, r#"{"id":"x","v":1}"#)));
        let ran = sink.bench.run(&[]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert_eq!(counts(&ran.json()), [0, 0, 47, 0]);
        let says = "2 rows are not in the source, but nothing was deleted: 1 record was rejected before its key was known";
        assert!(ran.json()["warnings"].to_string().contains(says), "{}", ran.stdout);
        sink.holds(&now, "nothing was deleted");
        sink.leaves_no_keys();
    }
}

#[test]
fn a_deleted_row_can_be_marked() {
    for mut sink in SyncSink::each("marks") {
        sink.manifest("mode: sync, deleted: mark");
        let all = records(0..50, 1);
        sink.give(&all);
        sink.syncs(0);
        sink.give(&records(0..48, 1));
        assert_eq!(sink.syncs(0), [0, 0, 48, 2]);
        assert_eq!(sink.rows("id", "WHERE deleted_at IS NOT NULL ORDER BY id"), ["48", "49"]);
        assert_eq!(sink.syncs(0), [0, 0, 48, 0], "a marked row is not marked once more");
        sink.give(&records(0..49, 1));
        assert_eq!(sink.syncs(0), [0, 1, 48, 0], "48 is there once more");
        assert_eq!(sink.rows("id", "WHERE deleted_at IS NOT NULL"), ["49"]);
        sink.holds(&all, "every row is there");
    }
}

#[test]
fn every_version_of_a_record_stays_in_the_history() {
    for mut sink in SyncSink::each("history") {
        sink.manifest("mode: sync, history: true");
        sink.give(&records(0..20, 1));
        assert_eq!(sink.syncs(0), [20, 0, 0, 0]);
        let mut now = records(0..19, 1);
        now.insert(3, 2);
        sink.give(&now);
        assert_eq!(sink.syncs(0), [0, 1, 18, 1]);
        assert_eq!(sink.syncs(0), [0, 0, 19, 0]);
        now.extend(records([3, 19], 4));
        sink.give(&now);
        assert_eq!(sink.syncs(0), [1, 1, 18, 0]);
        let rows =
            sink.rows("id, v, valid_to IS NULL AS current", "WHERE id IN (3, 19) ORDER BY id, valid_from");
        let shown: Vec<String> = rows.iter().map(|row| row.replace("|f", "|0").replace("|t", "|1")).collect();
        assert_eq!(shown, ["3|1|0", "3|2|0", "3|4|1", "19|1|0", "19|4|1"]);
        // A version ends when the next one begins; that of a deleted record ends with its run.
        let joined = match &mut sink.db {
            Some(db) => db.rows("SELECT count(*) FROM {}.out a JOIN {}.out b ON a.id = b.id AND a.valid_to = b.valid_from"),
            None => sink.bench.sql("out.gpkg", "SELECT '(' || count(*) || ')' FROM out a JOIN out b ON a.id = b.id AND a.valid_to = b.valid_from"),
        };
        assert_eq!(joined, ["(2)"], "3 has three versions in a row");
        // A run that is killed and resumed writes each version once.
        now.insert(5, 6);
        sink.give(&now);
        let killed =
            sink.bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:0").output().unwrap();
        assert_eq!(killed.status.code(), None);
        assert_eq!(sink.bench.run(&["--resume"]).code, 0);
        assert_eq!(sink.rows("count(*)", "WHERE id = 5"), ["2"]);
        assert_eq!(sink.rows("count(*)", "WHERE valid_to IS NULL"), ["20"]);
    }
}

#[test]
fn keys_that_do_not_fit_together_are_refused() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &source(&records(0..1, 1)));
    let with = |sink: &str, says: &str| {
        bench.manifest(&format!("source: {{ file: in.geojsonl }}\nsink: {{ {sink} }}"));
        bench.refused(says);
    };
    with("file: out.gpkg, mode: sync", "`mode: sync` requires a `key`");
    with("file: out.gpkg, key: [id], deleted: mark", "`deleted` requires `mode: sync`");
    with("file: out.gpkg, key: [id], max_deleted: 5", "`max_deleted` requires `mode: sync`");
    with("file: out.gpkg, key: [id], mode: sync, max_deleted: many", "invalid tolerance");
    with("file: out.gpkg, history: true", "`history` requires rows written by key");
    with("file: out.geojson, key: [id], mode: sync", "this format can only be written as a whole");
    bench.write("in.geojsonl", &point(1.0, 2.0, r#"{"id":1,"valid_to":"x"}"#));
    with(
        "file: out.gpkg, key: [id], history: true",
        "the field `valid_to` has the name of a column that the sink writes",
    );
}

/// All differences at once, with the statements that remove them.
#[test]
fn an_existing_table_is_held_against_the_fields() {
    let mut db = Db::new("held");
    db.execute("CREATE TABLE {}.out (ID bigint, owner text NOT NULL, geom bytea)");
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(1.5, 2.5, r#"{"ID":1,"v":1}"#));
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\n{}",
        db.sink("key: [ID], mode: sync, deleted: mark")
    ));
    let says = [
        "has a column `id`, but the field is `ID`; rename the field with a step `rename: { ID: id }`",
        "has no column `v`; drop the field with a step, or ALTER TABLE",
        "ADD COLUMN \"v\" bigint;",
        "has no column `deleted_at`; ALTER TABLE",
        "column `owner` of",
        "has no unique index on the key; CREATE UNIQUE INDEX ON",
    ];
    for args in [&["run", "m.yaml"][..], &["plan", "m.yaml"], &["doctor", "m.yaml"]] {
        let ran = bench.tidegate(args);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        // The doctor puts what to do on a line of its own.
        let all = all.lines().map(str::trim).collect::<Vec<_>>().join("\n").replace("\n→ ", "; ");
        assert_ne!(ran.code, 0, "{args:?}: {all}");
        for says in says {
            assert!(all.contains(says), "{args:?}: {says:?} is not in\n{all}");
        }
    }
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(0)"]);
    let tables = db.rows("SELECT count(*) FROM pg_tables WHERE schemaname = '{}'");
    assert_eq!(tables, ["(1)"], "nothing was created");
}

/// A source table, of which only changes are read.
struct Changing {
    bench: Bench,
    db: Db,
}

impl Changing {
    fn new(name: &str) -> Changing {
        let mut db = Db::new(name);
        db.execute("CREATE TABLE {}.src (id bigint PRIMARY KEY, v bigint, edited timestamptz, geom bytea)");
        db.execute("INSERT INTO {}.src SELECT n, 1, '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 hour', NULL FROM generate_series(1, 40) n");
        let changing = Changing { bench: Bench::new(), db };
        changing.manifest("full_every: 100", "key: [id], mode: sync");
        changing
    }

    fn manifest(&self, since: &str, sink: &str) {
        self.bench.manifest(&format!(
            "source:\n  postgis: {{ url: \"{}\", schema: {}, table: src, key: id }}\n  crs: EPSG:4326\n  batch_size: 10\n  since: {{ field: edited, overlap: 10m, {since} }}\n{}",
            crate::pipeline::postgis::url(),
            self.db.schema,
            self.db.sink(sink)
        ));
    }

    /// Runs; how many records it read, what it says about that, and what the sink holds of id and v.
    fn reads(&mut self, args: &[&str]) -> (u64, String) {
        let ran = self.bench.run(args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let result = ran.json();
        (result["read"].as_u64().unwrap(), result["scope"].as_str().unwrap().to_owned())
    }

    fn agree(&mut self) -> bool {
        let all = |table: &str| format!("SELECT id, v FROM {{}}.{table} ORDER BY id");
        self.db.rows(&all("src")) == self.db.rows(&all("out"))
    }
}

#[test]
fn only_what_has_changed_is_read() {
    let mut world = Changing::new("since");
    assert_eq!(world.reads(&[]), (40, "read everything: the sink has no watermark yet".into()));
    // The last record and those within the overlap come once more.
    assert_eq!(world.reads(&[]), (1, "read only what has changed: edited >= 2026-01-02T15:50:00Z".into()));
    world.db.execute("UPDATE {}.src SET v = 2, edited = '2026-01-03' WHERE id IN (3, 7); INSERT INTO {}.src VALUES (41, 1, '2026-01-03T00:00:01Z', NULL)");
    assert_eq!(world.reads(&["--resume"]).0, 4);
    assert!(world.agree());
    // A deletion does not show, and is no reason to delete anything else.
    world.db.execute("DELETE FROM {}.src WHERE id = 5");
    assert_eq!(world.reads(&[]).0, 3);
    assert!(!world.agree());
    assert_eq!(world.reads(&["--full"]), (40, "read everything: --full was given".into()));
    assert!(world.agree());
    // A change that became visible late, within the overlap.
    world.db.execute("UPDATE {}.src SET v = 9, edited = '2026-01-02T23:55:00Z' WHERE id = 9");
    world.reads(&[]);
    assert!(world.agree());
    // A record from the future hides nothing.
    world.db.execute("UPDATE {}.src SET v = 4, edited = '2999-01-01' WHERE id = 1");
    world.reads(&[]);
    world.db.execute("UPDATE {}.src SET v = 5, edited = now() WHERE id = 2");
    world.reads(&[]);
    assert!(world.agree());
}

#[test]
fn everything_is_read_every_so_many_runs_and_after_a_loss() {
    let mut world = Changing::new("full");
    world.manifest("full_every: 3", "key: [id], mode: sync");
    let scopes: Vec<bool> = (0..7).map(|_| world.reads(&[]).1.starts_with("read everything")).collect();
    assert_eq!(scopes, [true, false, false, true, false, false, true]);
    let full = |world: &mut Changing, why: &str| {
        let (read, scope) = world.reads(&[]);
        assert!(scope.contains(why), "{scope}");
        assert_eq!(read, 40);
        assert!(world.agree());
    };
    world.db.execute("DELETE FROM {}.out WHERE id < 5");
    full(&mut world, "fewer rows than after the last run");
    world.db.execute("DROP TABLE {}.out");
    full(&mut world, "no watermark");
    world.db.execute(
        "DROP TABLE {}.out; CREATE TABLE {}.out (id bigint UNIQUE, v bigint, edited timestamptz, geom bytea)",
    );
    world.db.execute("INSERT INTO {}.out SELECT n, 0 FROM generate_series(1, 40) n");
    full(&mut world, "was recreated");
    std::fs::remove_dir_all(world.bench.path(".tidegate")).unwrap();
    full(&mut world, "the state directory does not have the fields of the last run");
}

/// A run that reads changes and is killed anywhere: the resumed one reads the same, and the next one
/// goes on from there.
#[test]
fn a_killed_increment_loses_no_change() {
    let mut world = Changing::new("increment");
    world.reads(&[]);
    for (n, at) in
        (1..).zip(["started:0", "opened:0", "put:0", "commit:0", "commit:1", "finishing:0", "finish:0"])
    {
        world.db.execute(&format!(
            "UPDATE {{}}.src SET v = v + 1, edited = '2026-02-01'::timestamptz + {n} * interval '1 day' + id * interval '1 second' WHERE id % 2 = {n} % 2"
        ));
        let killed = world.bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", at).output().unwrap();
        assert_eq!(killed.status.code(), None, "not killed at {at}");
        assert_eq!(world.bench.run(&["--resume"]).code, 0);
        assert!(world.agree(), "{at}");
        let (read, scope) = world.reads(&[]);
        assert!(read < 30 && scope.starts_with("read only"), "{at}: {read} {scope}");
        assert!(world.agree(), "{at}");
    }
}

#[test]
fn since_needs_a_key_and_a_field() {
    let world = Changing::new("needs");
    world.manifest("full_every: 2", "mode: append");
    world.bench.refused("the sink must be written by key");
    world.bench.manifest(&format!(
        "source: {{ postgis: {{ url: \"{}\", schema: {}, table: src, key: id }}, crs: EPSG:4326, since: {{ field: changed }} }}\n{}",
        crate::pipeline::postgis::url(),
        world.db.schema,
        world.db.sink("key: [id]")
    ));
    world.bench.refused("has no column `changed`");
    world
        .bench
        .manifest("source: { file: in.geojsonl, since: { field: x } }\nsink: { file: out.gpkg, key: [id] }");
    world.bench.refused("`since` requires a `service` or a table");
}
