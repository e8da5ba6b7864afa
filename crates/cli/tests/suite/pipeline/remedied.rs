//! Remedies that change the type of a geometry, and the sinks that take them or not.

use serde_json::json;

use crate::pipeline::bench::Bench;
use crate::pipeline::postgis::Db;
use crate::pipeline::replay::{MEND, bow_ties, dlq, open, payload};

#[test]
fn bow_ties_are_mended_into_a_layer_of_polygons_and_stay_resolved() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!("{MEND}sink: {{ file: out.gpkg, key: [id] }}"));
    assert_eq!(bench.runs(4)["rejected_by_code"], json!({"INVALID_GEOMETRY": 5}));
    let kind = "SELECT geometry_type_name FROM gpkg_geometry_columns";
    assert_eq!(bench.sql("out.gpkg", kind), ["POLYGON"]);
    let squares = "SELECT fid, id, hex(geom) FROM out WHERE id % 2 = 0 ORDER BY id";
    let before = bench.sql("out.gpkg", squares);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert!(replayed.stderr.contains("5 resolved, 0 failed again"), "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["10"]);
    assert_eq!(bench.sql("out.gpkg", squares), before, "the others are as they were");
    // Two triangles each: the layer holds any type now, and nothing of them is lost.
    assert_eq!(bench.sql("out.gpkg", kind), ["GEOMETRY"]);
    let mended = "SELECT DISTINCT substr(hex(geom), 81, 18) FROM out WHERE id % 2 = 1";
    assert_eq!(bench.sql("out.gpkg", mended), ["010600000002000000"], "MultiPolygons of two");
    // The source is unchanged: tomorrow nobody has to mend them again.
    let result = bench.runs(0);
    assert_eq!((&result["unchanged"], &result["rejected"]), (&json!(10), &json!(0)), "{result}");
    assert_eq!(open(&bench).len(), 0);
    // Nor when the letters are in an archive.
    assert_eq!(dlq(&bench, &["archive", "--state", "resolved", "--to", "archive"]).code, 0);
    assert_eq!(bench.runs(0)["rejected"], 0);
    // A row that somebody deleted is not there: its letter is a new one.
    let db = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    db.execute_batch("DROP TRIGGER IF EXISTS rtree_out_geom_delete; DELETE FROM out WHERE id = 3").unwrap();
    drop(db);
    let result = bench.runs(4);
    assert_eq!((&result["unchanged"], &result["rejected"]), (&json!(9), &json!(1)), "{result}");
    assert_eq!(open(&bench).len(), 1);
    // A record that changed in the source is another one.
    bench.write("in.geojsonl", &bow_ties().replace("5.5,", "5.25,"));
    let result = bench.runs(4);
    assert_eq!(result["rejected"], 2, "{result}");
}

#[test]
fn a_remedy_is_fitted_to_what_each_sink_holds() {
    for name in ["out.fgb", "out.geojson", "out.csv", "out.parquet", "out.gpkg"] {
        let bench = Bench::new();
        bench.write("in.geojsonl", &bow_ties());
        bench.manifest(&format!("{MEND}sink: {{ file: {name}, mode: replace, key: [id] }}"));
        bench.runs(4);
        assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
        let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.stderr);
        bench
            .manifest(&format!("source: {{ file: {name}, crs: EPSG:4326 }}\nsink: {{ file: all.geojsonl }}"));
        bench.write("m.yaml", &bench.read("m.yaml").replace("id: test", "id: all"));
        assert_eq!(bench.runs(0)["written"], 10, "{name}");
        let multi =
            bench.features("all.geojsonl").iter().filter(|f| f["geometry"]["type"] == "MultiPolygon").count();
        assert_eq!(multi, 5, "{name}");
        // With `replace` the next run writes the file from its source, without them: they are open again.
        if name == "out.gpkg" {
            bench.manifest(&format!("{MEND}sink: {{ file: {name}, mode: replace, key: [id] }}"));
            assert_eq!(bench.runs(4)["rejected"], 5, "{name}");
            assert_eq!(open(&bench).len(), 5, "{name}");
        }
    }
}

#[test]
fn a_remedy_that_the_sink_cannot_hold_is_refused_with_the_reason() {
    let bench = Bench::new();
    // Points in the columns lon and lat.
    bench.write("in.csv", "id,n,lon,lat\n1,1,16.123456,48.123456\n2,x,16.2,48.2\n");
    bench.manifest("dead_letters: {}\nsource: { file: in.csv }\nsteps:\n  - coerce: { fields: { n: int } }\nsink: { file: out.csv, mode: replace, key: [id] }");
    bench.runs(4);
    let before = bench.read("out.csv");
    assert_eq!(before, "id,n,lon,lat\n1,1,16.123456,48.123456\n");
    let letters = open(&bench);
    let id = letters[0]["id"].as_str().unwrap();
    let mut feature = payload(&bench, &letters[0]);
    feature["properties"]["n"] = json!("2");
    feature["geometry"] = json!({"type": "LineString", "coordinates": [[16.2, 48.2], [16.3, 48.3]]});
    bench.write("edited.json", &feature.to_string());
    let refused = dlq(&bench, &["edit", id, "--from", "edited.json", "--manifest", "m.yaml"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("holds Point and cannot hold a LineString"), "{}", refused.stderr);
    // Two points do not fit either; one point in a multi does.
    feature["geometry"] = json!({"type": "MultiPoint", "coordinates": [[16.2, 48.2], [16.3, 48.3]]});
    bench.write("edited.json", &feature.to_string());
    let refused = dlq(&bench, &["edit", id, "--from", "edited.json", "--manifest", "m.yaml"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("its columns hold points only"), "{}", refused.stderr);
    feature["geometry"] = json!({"type": "MultiPoint", "coordinates": [[16.2, 48.2]]});
    bench.write("edited.json", &feature.to_string());
    assert_eq!(dlq(&bench, &["edit", id, "--from", "edited.json", "--manifest", "m.yaml"]).code, 0);
    assert_eq!(dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]).code, 0);
    assert_eq!(bench.read("out.csv"), before + "2,2,16.2,48.2\n");
}

#[test]
fn a_column_of_one_type_refuses_the_remedy_and_a_table_of_bytes_takes_it() {
    let mut db = Db::new("remedied");
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!("{MEND}{}", db.sink("key: [id]")));
    bench.runs(4);
    let fixed = dlq(&bench, &["fix", "--manifest", "m.yaml", "--format", "json"]).json();
    if db.has_postgis() {
        assert_eq!(fixed[0]["count"]["review"], 5, "{fixed}");
        let id = open(&bench)[0]["id"].as_str().unwrap().to_owned();
        let shown = dlq(&bench, &["show", &id]);
        assert!(shown.stdout.contains("ALTER TABLE"), "{}", shown.stdout);
        db.execute("ALTER TABLE {}.out ALTER COLUMN geom TYPE geometry(Geometry, 4326)");
        let fixed = dlq(&bench, &["fix", "--manifest", "m.yaml", "--format", "json"]).json();
        assert_eq!(fixed[0]["count"]["validated"], 5, "{fixed}");
    } else {
        assert_eq!(fixed[0]["count"]["validated"], 5, "{fixed}");
    }
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(10)"]);
    // The source is unchanged, and the rows are in the table: asked there, not remembered.
    let result = bench.runs(0);
    assert_eq!((&result["unchanged"], &result["rejected"]), (&json!(10), &json!(0)), "{result}");
    db.execute("DELETE FROM {}.out WHERE id = 7");
    assert_eq!(bench.runs(4)["rejected"], 1);
    assert_eq!(open(&bench).len(), 1);
}

#[test]
fn a_table_that_is_appended_to_needs_no_unique_index_for_a_replay() {
    let mut db = Db::new("appended");
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!(
        "{MEND}steps:\n  - promote_to_multi: true\n{}",
        db.sink("mode: append, key: [id]")
    ));
    bench.runs(4);
    bench.runs(4);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT id) FROM {}.out"), ["(15,10)"]);
}

#[test]
fn a_sink_that_cannot_be_asked_leaves_the_letter_as_it_is() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!("{MEND}sink: {{ file: out.gpkg, key: [id] }}"));
    bench.runs(4);
    bench.write("out.gpkg", "no database");
    let fixed = dlq(&bench, &["fix", "--manifest", "m.yaml"]);
    assert_eq!(fixed.code, 75, "{}", fixed.stderr);
    assert!(fixed.stderr.contains("cannot ask the sink of test"), "{}", fixed.stderr);
    assert!(open(&bench).iter().all(|letter| letter["state"] == "captured"));
}
