//! Replays into files: the rows of their letters change, and no other byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::canned::Canned;
use crate::pipeline::bench::Bench;
use crate::pipeline::replay::{MEND, bow_ties, dlq, open, service};

/// A geocoder that refuses addresses with `bad` in them, until it is kind; an output without a key.
fn geocoded(name: &str) -> (Bench, Canned, Arc<AtomicBool>) {
    let (server, kind) = service();
    let bench = Bench::new();
    let row =
        |i: usize| format!("{i},{} street {i}, 0{i}.50\n", if i.is_multiple_of(3) { "bad" } else { "good" });
    bench.write("in.csv", &format!("id,address,n\n{}", (1..=6).map(row).collect::<String>()));
    let url = server.url();
    let args = [
        "geocode",
        "in.csv",
        "--address",
        "address",
        "--url",
        &url,
        "-o",
        name,
        "--quiet",
        "--attempts",
        "1",
        "--dead-letters",
        ".tidegate/letters.db",
        "--no-cache",
    ];
    bench.write("m.yaml", &bench.tidegate(&[&args[..], &["--print-manifest"]].concat()).stdout);
    let ran = bench.tidegate(&args);
    assert_eq!(ran.code, 4, "{name}: {}", ran.stderr);
    (bench, server, kind)
}

#[test]
fn a_replay_into_a_geocoded_file_changes_its_rows_and_no_other_byte() {
    for name in ["out.csv", "out.geojson", "out.geojsonl", "out.geojsons"] {
        let (bench, _server, kind) = geocoded(name);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let first = lines(&bench.read(name));
        // Somebody spells a row in another way; it is not ours to change.
        let spelt = bench.read(name).replacen("good street 1", "good  street 1", 1);
        bench.write(name, &spelt);
        let before = lines(&spelt);
        assert_ne!(first, before, "{name}");
        kind.store(true, Ordering::SeqCst);
        let killed = bench
            .command(&["dlq", "replay", "--manifest", "m.yaml", "--all"])
            .env("TIDEGATE_CRASH", "replayed:0")
            .output()
            .unwrap();
        assert_eq!(killed.status.code(), None, "{name}");
        let once = bench.read(name);
        let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1", "--verify"]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.stderr);
        let after = lines(&bench.read(name));
        assert_eq!(
            bench.read(name).replace(char::is_numeric, ""),
            once.replace(char::is_numeric, ""),
            "{name}"
        );
        assert_eq!(before.len(), after.len(), "{name}");
        let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        // Behind a header, or the line of the collection.
        let head = usize::from(name == "out.csv" || name == "out.geojson");
        assert_eq!(changed, [2 + head, 5 + head], "{name}");
        assert!(changed.iter().all(|at| after[*at].contains("matched")), "{name}");
        if name == "out.csv" {
            assert!(after[0].ends_with(",lon,lat"), "{}", after[0]);
            assert!(after[3].ends_with(",16.25,48.5"), "{}", after[3]);
        }
    }
}

#[test]
fn a_replay_into_a_geocoded_geopackage_leaves_everything_else_in_it() {
    let (bench, _server, kind) = geocoded("out.gpkg");
    let db = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    db.execute_batch("CREATE TABLE notes (t TEXT); INSERT INTO notes VALUES ('mine')").unwrap();
    drop(db);
    let others = "SELECT fid, id, address, attempts, hex(geom) FROM out WHERE id % 3 <> 0 ORDER BY fid";
    let before = bench.sql("out.gpkg", others);
    kind.store(true, Ordering::SeqCst);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", others), before);
    assert_eq!(bench.sql("out.gpkg", "SELECT t FROM notes"), ["mine"]);
    let ours = "SELECT fid, id, outcome, geom IS NULL FROM out WHERE id % 3 = 0 ORDER BY fid";
    assert_eq!(bench.sql("out.gpkg", ours), ["3|3|matched|0", "6|6|matched|0"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), ["6"]);
}

#[test]
fn a_row_that_holds_another_record_now_is_left_alone() {
    let (bench, _server, kind) = geocoded("out.csv");
    // A row was added at the top, and the file written anew.
    let text = bench.read("in.csv").replace("id,address,n\n", "id,address,n\n0,good street 0,0\n");
    bench.write("in.csv", &text);
    let head = bench.read("out.csv").lines().next().unwrap().to_owned();
    let shifted = bench
        .read("out.csv")
        .replace(&head, &format!("{head}\n0,good street 0,0,matched,,,,1,1,false,,,16.25,48.5"));
    bench.write("out.csv", &shifted);
    kind.store(true, Ordering::SeqCst);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(replayed.stderr.contains("0 resolved, 0 failed again, 2 returned"), "{}", replayed.stderr);
    assert_eq!(bench.read("out.csv"), shifted);
    assert_eq!(open(&bench).len(), 2);
}

#[test]
fn rows_of_a_flatgeobuf_cannot_be_counted() {
    let (bench, _server, kind) = geocoded("out.fgb");
    let before = std::fs::read(bench.path("out.fgb")).unwrap();
    kind.store(true, Ordering::SeqCst);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(replayed.stderr.contains("in the order of places"), "{}", replayed.stderr);
    assert!(std::fs::read(bench.path("out.fgb")).unwrap() == before);
}

#[test]
fn a_replay_by_key_changes_its_rows_and_no_other_byte() {
    for name in ["out.csv", "out.geojson", "out.geojsonl", "out.geojsons"] {
        let bench = Bench::new();
        bench.write("in.geojsonl", &bow_ties());
        bench.manifest(&format!("{MEND}sink: {{ file: {name}, mode: replace, key: [id] }}"));
        bench.runs(4);
        // A spelling of our own, in a row that no letter has.
        let spelt = bench.read(name).replacen("48.123456", "48.1234560", 1);
        assert_ne!(spelt, bench.read(name), "{name}");
        bench.write(name, &spelt);
        assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
        let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.stderr);
        let after = bench.read(name);
        let old = spelt.trim_end().trim_end_matches("]}").trim_end();
        assert!(after.starts_with(old), "{name}: {after}");
        assert_eq!(
            after.matches("MultiPolygon").count() + after.matches("MULTIPOLYGON").count(),
            5,
            "{name}"
        );
    }
}
