//! Records that cost more than they weigh: geometries whose edges all cross, views without an end, messages that
//! grow when they are read. Each ends, within the processor time and the memory of [`Desk`], as a record that
//! says which limit it met; what lies beside it passes.

use std::fmt::Write;

use crate::limits::Desk;

const POLICIES: &str = "
  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
  dead_letters: { store: letters.db, incident_share: 1.0 }
";

fn feature(id: u32, geometry: &str) -> String {
    format!("{{\"type\":\"Feature\",\"properties\":{{\"id\":{id}}},\"geometry\":{geometry}}}\n")
}

fn polygon(corners: impl Iterator<Item = [f64; 2]>) -> String {
    let mut corners: Vec<[f64; 2]> = corners.collect();
    corners.extend(corners.first().copied());
    serde_json::json!({ "type": "Polygon", "coordinates": [corners] }).to_string()
}

/// Corners without any order: each edge crosses a third of all others.
fn scribble(corners: u64) -> String {
    let mut state = corners;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1_u32 << 24) * 10.0
    };
    polygon((0..corners).map(move |_| [number(), number()]))
}

/// A star whose edges all cross.
fn star(corners: u32) -> String {
    polygon((0..corners).map(|i| {
        let turn = f64::from(i * (corners / 2) % corners) / f64::from(corners) * std::f64::consts::TAU;
        [turn.cos() * 10.0, turn.sin() * 10.0]
    }))
}

/// Two combs of narrow teeth, one upon the other: a grid of crossings.
fn combs(teeth: u32) -> String {
    let side = |i: u32| f64::from(i / 2) * 0.01 + f64::from(i % 2) * 0.005;
    let ring = |turned: bool| -> Vec<[f64; 2]> {
        let mut ring: Vec<[f64; 2]> = vec![[0.0, -1.0]];
        for i in 0..teeth * 2 {
            let (low, high) = if i % 2 == 0 { (0.0, 10.0) } else { (10.0, 0.0) };
            ring.extend([[side(i), low], [side(i), high]]);
        }
        ring.extend([[side(teeth * 2), -1.0], [0.0, -1.0]]);
        if turned {
            ring.iter_mut().for_each(|corner| corner.reverse());
        }
        ring
    };
    serde_json::json!({ "type": "MultiPolygon", "coordinates": [[ring(false)], [ring(true)]] }).to_string()
}

fn manifest(desk: &Desk, parts: &str) {
    desk.write("m.yaml", format!("pipeline:\n  id: p{POLICIES}{parts}").as_bytes());
}

fn text(desk: &Desk, name: &str) -> String {
    String::from_utf8(desk.read(name)).unwrap()
}

/// Runs a pipeline, whose letters name the records.
fn run(desk: &Desk, codes: &[i32]) {
    let mut faults = desk.faults(&["run", "m.yaml"], codes);
    faults.retain(|fault| !fault.starts_with("the record is not named"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The code and the message of each letter.
fn letters(desk: &Desk) -> Vec<(String, String)> {
    let args = ["dlq", "ls", "--store", "letters.db", "--format", "ndjson"];
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(desk.path())
        .output()
        .unwrap();
    let letter = |line: &str| {
        let failure = &serde_json::from_str::<serde_json::Value>(line).unwrap()["failure"];
        let text = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
        (text("code"), text("message"))
    };
    String::from_utf8(command.stdout).unwrap().lines().map(letter).collect()
}

#[test]
fn a_geometry_whose_edges_all_cross_is_one_bad_record() {
    for (name, geometry) in [
        ("scribble-2000.geojsonl", scribble(2_000)),
        ("scribble-20000.geojsonl", scribble(20_000)),
        ("star.geojsonl", star(3_001)),
        ("combs.geojsonl", combs(1_000)),
    ] {
        let desk = Desk::new();
        let lines = feature(1, &geometry) + &feature(2, r#"{"type":"Point","coordinates":[1,2]}"#);
        desk.write(name, lines.as_bytes());
        // Either of the two says that it is invalid: it is.
        desk.run(&["check", name], &[1]);
        for method in ["--make-valid=linework", "--make-valid=structure"] {
            desk.run(&["convert", name, "out.geojsonl", "--overwrite", method], &[4]);
            let out = text(&desk, "out.geojsonl");
            assert_eq!((out.lines().count(), out.contains("\"id\":2")), (1, true), "{name} {method}");
        }
        manifest(
            &desk,
            &format!(
                "  source: {{ file: {name} }}\n  steps: [{{ make_valid: true }}]\n  sink: {{ file: run.geojsonl }}\n"
            ),
        );
        run(&desk, &[4]);
        assert_eq!(text(&desk, "run.geojsonl").lines().count(), 1, "{name}");
        let told = letters(&desk);
        let [(code, message)] = told.as_slice() else { panic!("{told:?}") };
        assert!(code == "REPAIR_TOO_COSTLY" && message.contains("limits.work_steps"), "{name}: {message}");
    }
}

#[test]
fn the_manifest_sets_how_much_work_a_record_may_take() {
    let desk = Desk::new();
    desk.write("in.geojsonl", feature(1, &scribble(200)).as_bytes());
    for (limits, code) in [("work_steps: 0", 4), ("work_steps: 25000000", 0)] {
        manifest(
            &desk,
            &format!(
                "  limits: {{ {limits} }}\n  source: {{ file: in.geojsonl }}\n  steps: [{{ make_valid: true }}]\n  sink: {{ file: out.geojsonl }}\n"
            ),
        );
        run(&desk, &[code]);
    }
    assert_eq!(text(&desk, "out.geojsonl").lines().count(), 1);
}

/// A GeoPackage whose layer is a view.
fn view(desk: &Desk, name: &str, select: &str) {
    desk.write("seed.geojsonl", feature(1, r#"{"type":"Point","coordinates":[1,2]}"#).as_bytes());
    desk.run(&["convert", "seed.geojsonl", name, "--overwrite"], &[0]);
    let db = rusqlite::Connection::open(desk.path().join(name)).unwrap();
    let layer: String = db.query_row("SELECT table_name FROM gpkg_contents", [], |row| row.get(0)).unwrap();
    // The triggers of the spatial index belong to the table.
    db.execute_batch(&format!(
        "CREATE TABLE kept AS SELECT * FROM \"{layer}\"; DROP TABLE \"{layer}\"; CREATE VIEW \"{layer}\" AS {select};"
    ))
    .unwrap();
}

#[test]
fn a_view_without_end_ends() {
    const COUNT: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)";
    let desk = Desk::new();
    for (name, select) in [
        ("rows.gpkg", "SELECT n AS fid, geom, id FROM c, kept"),
        ("empty.gpkg", "SELECT n AS fid, NULL AS geom, NULL AS id FROM c"),
        ("first.gpkg", "SELECT max(n) AS fid, NULL AS geom, (SELECT id FROM kept) AS id FROM c"),
        ("none.gpkg", "SELECT n AS fid, NULL AS geom, (SELECT id FROM kept) AS id FROM c WHERE n < 0"),
        ("wide.gpkg", "SELECT n AS fid, NULL AS geom, hex(zeroblob(500000)) AS id FROM c"),
        ("blobs.gpkg", "SELECT n AS fid, zeroblob(900000000) AS geom, (SELECT id FROM kept) AS id FROM c"),
        ("same.gpkg", "SELECT 1 AS fid, geom, id FROM c, kept"),
    ] {
        view(&desk, name, &format!("{COUNT} {select}"));
        desk.run(&["inspect", name], &[0, 1, 2]);
        desk.run(&["check", name], &[1, 2]);
        desk.run(&["convert", name, "out.geojsonl", "--overwrite"], &[1, 2]);
        manifest(&desk, &format!("  source: {{ file: {name} }}\n  sink: {{ file: run.geojsonl }}\n"));
        run(&desk, &[1, 2]);
        assert!(!desk.path().join("out.geojsonl").exists(), "{name}");
    }
}

#[test]
fn a_view_that_makes_many_rows_is_read_when_the_manifest_says_so() {
    let desk = Desk::new();
    let count = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 250000)";
    view(&desk, "in.gpkg", &format!("{count} SELECT n AS fid, geom, id FROM c, kept"));
    for (rows, code) in [(200_000, 1), (250_000, 0)] {
        manifest(
            &desk,
            &format!(
                "  limits: {{ view_rows: {rows} }}\n  source: {{ file: in.gpkg }}\n  sink: {{ file: out.csv }}\n"
            ),
        );
        run(&desk, &[code]);
    }
    assert_eq!(text(&desk, "out.csv").lines().count(), 250_001);
}

/// Messages that nobody has checked, as somebody with rights on the queue writes them.
fn messages(desk: &Desk, bodies: impl Iterator<Item = String>) {
    desk.write("tasks.ndjson", b"{\"key\":\"good\",\"payload\":{\"type\":\"Feature\",\"geometry\":null,\"properties\":{\"id\":7}}}\n");
    desk.run(&["submit", "m.yaml", "--tasks", "tasks.ndjson"], &[0]);
    let db = rusqlite::Connection::open(desk.path().join("tasks.db")).unwrap();
    for (n, body) in bodies.enumerate() {
        let more = "SELECT queue, ?1, ?2, headers, priority, published, is_ready, visible_at FROM message WHERE key = 'good'";
        let columns = "(queue, key, body, headers, priority, published, is_ready, visible_at)";
        db.execute(&format!("INSERT INTO message {columns} {more}"), (format!("m{n}"), body.into_bytes()))
            .unwrap();
    }
}

#[test]
fn a_worker_stays_small_however_messages_grow() {
    let long = |start: &str, part: &str, end: &str| {
        let mut body = String::from(start);
        while body.len() < 1 << 20 {
            body.push_str(part);
        }
        let _ = write!(body, "{end}");
        body
    };
    let task = |inner: &str| format!(r#"{{"key":"k","payload":{{"type":"Feature","geometry":{inner}"#);
    // Each grows in its own way: numbers that are 16 times as large in memory, nesting, keys, escapes, a list of
    // rings of nothing, a word that is cut.
    let bodies = [
        long(&task(r#"null,"properties":{"id":[0"#), ",0", "]}}}"),
        long(&task(r#"null,"properties":{"id":"#), "[", "}}}"),
        long(&task(r#"null,"properties":{"id":1"#), r#","":0"#, "}}}"),
        long(&task(r#"null,"properties":{"id":""#), "\\u0000", "\"}}}"),
        long(&task(r#"{"type":"MultiPolygon","coordinates":[[]"#), ",[]", "]}}}"),
        long(&task(r#"{"type":"Polygon","coordinates":[[[0,0]"#), ",[0,0]", "]]},\"properties\":{}}}"),
        long("[", "{},", ""),
        long("", "\u{0}", ""),
    ];
    let desk = Desk::new();
    manifest(
        &desk,
        "  source: { queue: tasks.db, tasks: { fields: { id: int } } }\n  sink: { file: out.gpkg, mode: append }\n",
    );
    messages(&desk, bodies.iter().cycle().take(24).cloned());
    let mut faults = desk.faults(&["worker", "m.yaml", "--once"], &[4]);
    faults.retain(|fault| !fault.starts_with("the record is not named"));
    assert!(faults.is_empty(), "{faults:?}");
    let db = rusqlite::Connection::open(desk.path().join("out.gpkg")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM out WHERE id = 7", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}
