//! `$key` as the key of a sink, and the share of records that a step may reject.

use serde_json::json;

use crate::pipeline::bench::{Bench, point};

#[test]
fn the_content_of_a_record_can_be_its_key() {
    let bench = Bench::new();
    let ring = |ring: &str, more: &str| {
        format!(
            "{{\"type\":\"Feature\",\"properties\":{{{more}}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[{ring}]}}}}\n"
        )
    };
    let first = ring("[[0,0],[1,0],[1,1],[0,0]]", r#""a":1,"b":"x""#);
    bench.write(
        "in.geojsonl",
        &(first.clone() + &ring("[[0,0],[1,0],[1,1],[0,0]]", r#""a":2,"b":"x""#) + &first),
    );
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [$key] }");
    let result = bench.runs(0);
    assert_eq!((&result["read"], &result["written"]), (&json!(3), &json!(3)));
    let rows = bench.sql("out.gpkg", "SELECT record_key, a FROM out ORDER BY a");
    assert_eq!(rows.len(), 2, "equal records are one row: {rows:?}");
    assert!(rows.iter().all(|row| row.find('|') == Some(64)), "SHA-256 in hexadecimal: {rows:?}");
    // Spelled in another way it is the same record; a changed one is another.
    let same = ring("[[1,0],[1,1],[0,0],[1,0]]", r#""b":"x","a":1"#);
    let other = ring("[[0,0],[1,0],[1,1],[0,0]]", r#""a":3,"b":"x""#);
    bench.write("in.geojsonl", &(same + &other));
    let result = bench.runs(0);
    assert_eq!(
        (&result["unchanged"], &result["updated"], &result["inserted"]),
        (&json!(0), &json!(1), &json!(1)),
        "{result:#}"
    );
    let now = bench.sql("out.gpkg", "SELECT record_key, a FROM out ORDER BY a");
    assert_eq!((now.len(), &now[..2]), (3, &rows[..]));
}

#[test]
fn a_field_of_the_name_of_the_key_is_refused() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(1.0, 1.0, r#"{"record_key":"mine"}"#));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [$key] }");
    bench.refused("which the records have already; rename it with a step");
}

fn bounded(rate: f64) -> Bench {
    let bench = Bench::new();
    let lines = (0..200).map(|n| {
        let v = if n % 20 == 19 { "x".to_owned() } else { n.to_string() };
        point(16.0, 48.123_456, &format!(r#"{{"id":{n},"v":"{v}"}}"#))
    });
    bench.write("in.geojsonl", &lines.collect::<String>());
    limit(&bench, rate);
    bench
}

fn limit(bench: &Bench, rate: f64) {
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl, batch_size: 50 }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\n    max_reject_rate: {rate}\nsink: {{ file: out.gpkg, key: [id] }}"
    ));
}

#[test]
fn a_step_that_rejects_too_many_records_halts_the_run() {
    let bench = bounded(0.04);
    // Two of the first fifty are 4 %; five of a hundred are 5 %.
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let said = "5 of 100 in the run so far were rejected, above the limit of 4 %";
    assert!(ran.stderr.contains(said) && ran.stderr.contains("steps[0] coerce"), "{}", ran.stderr);
    assert_eq!(ran.json()["written"], 48, "the second batch is not committed");
    // The counts go on where they were.
    assert_eq!(bench.run(&["--resume"]).code, 3);
    limit(&bench, 0.05);
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["190"]);
}

#[test]
fn a_step_is_named_by_one_key() {
    let bench = bounded(0.5);
    let text = bench.read("m.yaml").replace("- coerce: { fields: { v: int } }\n      max", "- max");
    bench.write("m.yaml", &text);
    let ran = bench.tidegate(&["validate", "m.yaml"]);
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    assert!((ran.stdout + &ran.stderr).contains("must have exactly one key, not 0"));
}
