//! A table in PostgreSQL, against a real server: `TIDEGATE_TEST_DATABASE`, or the one on this
//! machine's standard port. `make test` starts one if there is none.

use postgres::{Client, NoTls};
use serde_json::json;

use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, point, polygon};
use crate::pipeline::kill::{BATCHES, STEPS, books, chain, input};

pub(crate) fn url() -> String {
    std::env::var("TIDEGATE_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned())
}

/// A schema of its own, gone in the end.
pub(crate) struct Db {
    client: Client,
    pub(crate) schema: String,
}

impl Db {
    pub(crate) fn new(name: &str) -> Db {
        let mut client = Client::connect(&url(), NoTls).unwrap();
        let schema = format!("tidegate_{name}_{}", std::process::id());
        client
            .batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"))
            .unwrap();
        Db { client, schema }
    }

    pub(crate) fn sink(&self, more: &str) -> String {
        format!("sink: {{ postgis: {{ url: \"{}\", schema: {}, table: out }}, {more} }}", url(), self.schema)
    }

    /// The rows of a query, each as text; `{}` stands for the schema.
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<String> {
        let sql = sql.replace("{}", &self.schema);
        let rows = self.client.query(&format!("SELECT q::text FROM ({sql}) q"), &[]).unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect()
    }

    /// Runs statements; `{}` stands for the schema.
    pub(crate) fn execute(&mut self, sql: &str) {
        self.client.batch_execute(&sql.replace("{}", &self.schema)).unwrap();
    }

    pub(crate) fn has_postgis(&mut self) -> bool {
        !self.client.query("SELECT 1 FROM pg_extension WHERE extname = 'postgis'", &[]).unwrap().is_empty()
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let _ = self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
    }
}

fn features(ids: std::ops::Range<u32>, x: f64) -> String {
    ids.map(|n| {
        point(
            x + f64::from(n) / 1000.0,
            48.123_456,
            &format!(r#"{{"id":{n},"s":"a\\{n}\t\"","b":true,"x":0.5,"d":"2026-11-15","j":{{"k":[1]}}}}"#),
        )
    })
    .collect()
}

#[test]
fn an_upsert_replayed_changes_nothing() {
    let mut db = Db::new("upsert");
    let bench = Bench::new();
    bench.write("in.geojsonl", &features(0..100, 16.0));
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 30 }}\n{}", db.sink("key: [id]")));
    let first = bench.runs(0);
    assert_eq!(first["inserted"], 100);
    let told = first["warnings"].to_string().contains("holds WKB");
    assert_eq!(told, !db.has_postgis(), "{first}");
    let again = bench.runs(0);
    assert_eq!(
        (&again["inserted"], &again["updated"], &again["unchanged"]),
        (&json!(0), &json!(0), &json!(100))
    );
    bench.write("in.geojsonl", &(features(90..95, 17.0) + &features(95..110, 16.0)));
    let third = bench.runs(0);
    assert_eq!(
        (&third["inserted"], &third["updated"], &third["unchanged"]),
        (&json!(10), &json!(5), &json!(5))
    );
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT id) FROM {}.out"), ["(110,110)"]);
    let row = db.rows("SELECT s, b, x, d, j->'k'->>0 AS k FROM {}.out WHERE id = 7");
    assert_eq!(row, ["(\"a\\\\7\t\"\"\",t,0.5,2026-11-15,1)"]);
    if db.has_postgis() {
        assert_eq!(
            db.rows("SELECT ST_SRID(geom), round(ST_X(geom)::numeric, 3) AS x FROM {}.out WHERE id = 7"),
            ["(4326,16.007)"]
        );
    } else {
        assert_eq!(db.rows("SELECT length(geom) FROM {}.out WHERE id = 7"), ["(21)"]);
    }
}

#[test]
fn one_bad_row_does_not_take_the_others_with_it() {
    let mut db = Db::new("bisect");
    db.client
        .batch_execute(&format!(
            "CREATE TABLE {}.out (id bigint UNIQUE, n int CHECK (n < 50), geom bytea)",
            db.schema
        ))
        .unwrap();
    let bench = Bench::new();
    let rows: String = (0..100)
        .map(|n| {
            point(
                1.5,
                2.5,
                &format!(
                    r#"{{"id":{n},"n":{}}}"#,
                    if n == 13 {
                        60
                    } else if n == 77 {
                        9_999_999_999_i64
                    } else {
                        1
                    }
                ),
            )
        })
        .collect();
    bench.write("in.geojsonl", &(rows + &point(1.5, 2.5, r#"{"id":null,"n":1}"#)));
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{}", db.sink("key: [id]")));
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(98), &json!(3)));
    let told: Vec<_> =
        bench.rejects().into_iter().map(|(record, stage, code, _)| (record, stage, code)).collect();
    let word = |record: u64, code: &str| (record, "sink".to_owned(), code.to_owned());
    assert_eq!(
        told,
        [word(13, "CONSTRAINT_VIOLATION"), word(77, "DATA_EXCEPTION"), word(100, "CONSTRAINT_VIOLATION")]
    );
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(98)"]);
}

#[test]
fn a_table_that_does_not_fit_is_refused() {
    let db = Db::new("fits");
    let mut client = Client::connect(&url(), NoTls).unwrap();
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(1.5, 2.5, r#"{"id":1,"n":"x"}"#));
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{}", db.sink("key: [id]")));
    let mut with = |columns: &str, says: &str| {
        client
            .batch_execute(&format!(
                "DROP TABLE IF EXISTS {0}.out; CREATE TABLE {0}.out ({columns})",
                db.schema
            ))
            .unwrap();
        bench.refused(says);
    };
    with("id bigint UNIQUE, geom bytea", "has no column `n`");
    with(
        "id bigint UNIQUE, n bigint, geom bytea",
        "has type bigint, but the field is text; convert the field",
    );
    with("id bigint, n text, geom bytea", "no unique index on the key; CREATE UNIQUE INDEX");
    with("id bigint UNIQUE, n text", "has no column `geom`");
    with("id bigint UNIQUE, n text, geom text", "cannot hold geometries");
}

#[test]
fn append_replace_and_atomic() {
    let mut db = Db::new("modes");
    let bench = Bench::new();
    bench.write("in.geojsonl", &features(0..50, 16.0));
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 20 }}\n{}", db.sink("mode: append")));
    bench.runs(0);
    bench.runs(0);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(100)"]);
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 20 }}\n{}", db.sink("mode: replace")));
    bench.runs(0);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(50)"]);
    bench.write("in.geojsonl", &features(0..30, 17.0));
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl, batch_size: 20 }}\ngates:\n  - {{ check: count, min: 31 }}\n{}",
        db.sink("mode: replace")
    ));
    assert_eq!(bench.run(&["--atomic"]).code, 3);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(50)"], "nothing of the run shows");
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 20 }}\n{}", db.sink("mode: replace")));
    assert_eq!(bench.run(&["--atomic"]).code, 0);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(30)"]);
}

#[test]
fn a_table_is_a_source_too() {
    let db = Db::new("source");
    let bench = Bench::new();
    bench.write(
        "in.geojsonl",
        &(features(0..95, 16.0)
            + &polygon(SQUARE, r#"{"id":95,"s":null,"b":null,"x":null,"d":null,"j":null}"#)),
    );
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{}", db.sink("key: [id]")));
    bench.runs(0);
    let from = format!(
        "source: {{ postgis: {{ url: \"{}\", schema: {}, table: out, key: id }}, batch_size: 10, crs: EPSG:4326 }}",
        url(),
        db.schema
    );
    bench.manifest(&format!("{from}\nsink: {{ file: back.geojsonl }}"));
    let result = bench.runs(0);
    assert_eq!((&result["written"], &result["batches"]), (&json!(96), &json!(10)));
    let back = bench.features("back.geojsonl");
    assert_eq!(
        back[7]["properties"],
        json!({"id":7,"s":"a\\7\t\"","b":true,"x":0.5,"d":"2026-11-15","j":{"k":[1]}})
    );
    assert_eq!(
        (&back[95]["geometry"]["type"], &back[95]["properties"]["x"]),
        (&json!("Polygon"), &json!(null))
    );
}

fn killed(name: &str, more: &str) {
    let mut whole = Db::new(&format!("{name}_whole"));
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{STEPS}\n{}", whole.sink(more)));
    let expected = bench.runs(4);
    let mut db = Db::new(&format!("{name}_killed"));
    let again = Bench::new();
    again.write("in.geojsonl", &input());
    again.manifest(&format!("{STEPS}\n{}", db.sink(more)));
    let (result, kills) = chain(&again);
    assert_eq!(kills, BATCHES * 3 + 1);
    assert_eq!(books(&result), books(&expected));
    let rows = "SELECT id, v, u, encode(geom::bytea, 'hex') AS g FROM {}.out ORDER BY id, u";
    assert_eq!(db.rows(rows), whole.rows(rows));
    assert_eq!(again.rejects(), bench.rejects());
}

#[test]
fn sixty_one_kills_of_an_upsert() {
    killed("kill_upsert", "key: [id]");
}

#[test]
fn sixty_one_kills_of_an_append() {
    killed("kill_append", "mode: append");
}

#[test]
fn letters_in_the_database_are_mended_and_replayed_into_the_table() {
    let mut db = Db::new("letters");
    let bench = Bench::new();
    bench.write(
        "in.geojsonl",
        &(polygon(SQUARE, r#"{"id":1}"#)
            + &polygon(BOW_TIE, r#"{"id":2}"#)
            + &polygon(SQUARE, r#"{"id":null}"#)),
    );
    let store = format!("{}?schema={}", url(), db.schema);
    bench.manifest(&format!(
        "dead_letters: {{ store: \"{store}\", remedies: [{{ rule: make_valid }}] }}\nsource: {{ file: in.geojsonl }}\nsteps:\n  - promote_to_multi: true\n{}",
        db.sink("key: [id]")
    ));
    assert_eq!(bench.runs(4)["rejected"], 2);
    let dlq = |args: &[&str]| bench.tidegate(&[&["dlq", "--store", &store], args].concat());
    let fixed = dlq(&["fix", "--manifest", "m.yaml"]);
    assert_eq!(fixed.code, 0, "{}", fixed.stderr);
    let replayed = dlq(&["replay", "--manifest", "m.yaml", "--state", "validated", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(db.rows("SELECT id FROM {}.out ORDER BY id"), ["(1)", "(2)"]);
    // What the sink refused dies again, and says so.
    let replayed = dlq(&["replay", "--manifest", "m.yaml", "--stage", "sink"]);
    assert_eq!(replayed.code, 4, "{}", replayed.stderr);
    assert_eq!(db.rows("SELECT id FROM {}.out ORDER BY id"), ["(1)", "(2)"]);
}
