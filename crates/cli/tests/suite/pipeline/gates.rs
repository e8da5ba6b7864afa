//! Each gate, with exact counts; what a halt leaves behind.

use serde_json::{Value, json};

use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, point, polygon, there};

const CLOCKWISE: &str = "[0,0],[0,4],[4,4],[4,0],[0,0]";

fn judged(input: &str, gates: &str, code: i32) -> (Bench, Value) {
    let bench = Bench::new();
    bench.write("in.geojsonl", input);
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\ngates:\n{gates}\nsink: {{ file: out.geojsonl }}"
    ));
    let result = bench.runs(code);
    (bench, result)
}

/// Records that a gate rejects.
fn rejected(input: &str, gate: &str) -> Vec<u64> {
    let (bench, result) = judged(input, gate, 4);
    assert_eq!(result["balanced"], true);
    bench
        .rejects()
        .iter()
        .map(|(record, stage, _, _)| {
            assert_eq!(stage, "gate");
            *record
        })
        .collect()
}

fn points(values: &[&str]) -> String {
    values.iter().map(|value| point(16.123456, 48.123456, &format!(r#"{{"v":{value}}}"#))).collect()
}

#[test]
fn gates_on_values_reject_exactly_what_fails() {
    assert_eq!(
        rejected(&points(&["1", "11", "5", "-1"]), "  - { check: range, fields: [v], min: 0, max: 10 }"),
        [1, 3]
    );
    assert_eq!(
        rejected(
            &points(&["\"a\"", "\"b\"", "null", "\"c\""]),
            "  - { check: one_of, fields: [v], values: [a, b] }"
        ),
        [3]
    );
    assert_eq!(
        rejected(&points(&["\"a\"", "\" \"", "null"]), "  - { check: not_null, fields: [v] }"),
        [1, 2]
    );
    assert_eq!(
        rejected(&points(&["\"1\"", "\"x\"", "\"2.5\""]), "  - { check: type, fields: [v], is: int }"),
        [1, 2]
    );
    assert_eq!(rejected(&points(&["1", "2", "1", "2", "3"]), "  - { check: unique, fields: [v] }"), [2, 3]);
}

#[test]
fn gates_on_geometries_reject_exactly_what_fails() {
    let two = polygon(SQUARE, "{}") + &polygon(CLOCKWISE, "{}");
    assert_eq!(rejected(&two, "  - { check: rfc7946 }"), [1]);
    let nowhere = format!("{}\n", r#"{"type":"Feature","properties":{},"geometry":null}"#);
    assert_eq!(rejected(&(point(1.0, 2.0, "{}") + &nowhere), "  - { check: not_empty }"), [1]);
    assert_eq!(
        rejected(
            &(point(16.123456, 48.0, "{}") + &point(16.12345, 48.0, "{}")),
            "  - { check: precision, decimals: 6 }"
        ),
        [1]
    );
    assert_eq!(
        rejected(
            &(point(5.0, 5.0, "{}") + &point(50.0, 5.0, "{}")),
            "  - { check: bbox, bbox: [0, 0, 10, 10] }"
        ),
        [1]
    );
    let crossing = r#"{"type":"Feature","properties":{},"geometry":{"type":"LineString","coordinates":[[0,0],[2,2],[2,0],[0,2]]}}"#;
    let straight = crossing.replace("[2,0],[0,2]", "[3,4]");
    assert_eq!(rejected(&format!("{straight}\n{crossing}\n"), "  - { check: is_simple }"), [1]);
}

#[test]
fn an_invalid_geometry_halts_or_is_rejected_as_tolerance_says() {
    let bench = Bench::new();
    // Three batches of two; the bow tie is in the second.
    let input: String =
        (0..6).map(|n| polygon(if n == 3 { BOW_TIE } else { SQUARE }, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &input);
    let with = |halt: bool| {
        format!(
            "source: {{ file: in.geojsonl, batch_size: 2 }}\ntolerance: {{ max_null_rate: 0, halt_on_geometry_invalid: {halt} }}\nsink: {{ file: out.gpkg, key: [id] }}"
        )
    };
    bench.manifest(&with(true));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("gate tolerance.halt_on_geometry_invalid: record 3: Self-intersection[1 1]"),
        "{}",
        ran.stderr
    );
    let result = ran.json();
    assert_eq!(
        (&result["status"], &result["written"], &result["read"]),
        (&json!("halted"), &json!(2), &json!(2))
    );
    assert_eq!(result["halt"]["record"], 3);
    assert!(!there(&bench.path("out.gpkg")), "a new file shows when it is whole");
    // The gate is relaxed and the run goes on where it halted.
    bench.manifest(&with(false));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let result = ran.json();
    assert_eq!(
        (&result["written"], &result["rejected"], &result["resumed_at"]),
        (&json!(5), &json!(1), &json!(2))
    );
    assert_eq!(bench.sql("out.gpkg", "SELECT id FROM out ORDER BY id"), ["0", "1", "2", "4", "5"]);
}

#[test]
fn what_cannot_be_read_halts_too() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &(polygon(SQUARE, "{}") + &polygon("[0,0],[1,1]", "{}")));
    bench.manifest("source: { file: in.geojsonl }\ntolerance: { max_null_rate: 0, halt_on_geometry_invalid: true }\nsink: { file: out.geojsonl }");
    let result = bench.runs(3);
    assert_eq!(result["halt"]["record"], 1);
    assert!(!there(&bench.path("out.geojsonl")));
}

#[test]
fn null_rates_halt_above_their_share() {
    let input = |nulls: usize| -> String {
        (0..100)
            .map(|n| {
                point(16.123456, 48.1, if n < nulls { r#"{"v":null,"w":1}"# } else { r#"{"v":1,"w":1}"# })
            })
            .collect()
    };
    let bench = Bench::new();
    let with = |rate: f64| {
        format!(
            "source: {{ file: in.geojsonl }}\ntolerance: {{ max_null_rate: {rate}, halt_on_geometry_invalid: true }}\nsink: {{ file: out.geojsonl }}"
        )
    };
    bench.write("in.geojsonl", &input(4));
    bench.manifest(&with(0.02));
    bench.runs(0);
    bench.write("in.geojsonl", &input(5));
    let result = bench.runs(3);
    assert_eq!(
        result["halt"]["reason"],
        "v is null; 5 of 200 in the run so far failed, above the limit of 2 %"
    );
    // One field alone has another share.
    bench.write("in.geojsonl", &input(4));
    bench.manifest("source: { file: in.geojsonl }\ngates:\n  - { check: null_rate, fields: [v], max_rate: 0.03 }\nsink: { file: out.geojsonl }");
    bench.runs(3);
}

#[test]
fn a_share_is_of_a_batch_or_of_the_run() {
    // Ten batches of ten; one of them has five failures.
    let input: String = (0..100)
        .map(|n| point(16.123456, 48.1, &format!(r#"{{"v":{}}}"#, i32::from((50..55).contains(&n)))))
        .collect();
    let gate = |per: &str, severity: &str| {
        format!(
            "  - {{ check: range, fields: [v], max: 0, severity: {severity}, max_rate: 0.1, per: {per} }}"
        )
    };
    let with = |gate: String| {
        let bench = Bench::new();
        bench.write("in.geojsonl", &input);
        bench.manifest(&format!(
            "source: {{ file: in.geojsonl, batch_size: 10 }}\ngates:\n{gate}\nsink: {{ file: out.gpkg }}"
        ));
        let ran = bench.run(&[]);
        (ran.code, ran.json())
    };
    let (code, result) = with(gate("batch", "halt"));
    assert_eq!((code, &result["written"]), (3, &json!(50)));
    let (code, result) = with(gate("run", "halt"));
    assert_eq!((code, &result["written"]), (0, &json!(100)), "5 of 60 are fewer than 10 %");
    let (code, result) = with(gate("batch", "reject"));
    assert_eq!((code, &result["written"]), (3, &json!(50)));
    let (code, result) = with(gate("run", "reject"));
    assert_eq!((code, &result["written"], &result["rejected"]), (4, &json!(95), &json!(5)));
    let (code, result) = with(gate("batch", "warn").replace("0.1", "0"));
    assert_eq!((code, &result["warnings"][0]), (0, &json!("gate gates[0] range: 5 of 100 failed")));
}

#[test]
fn the_count_is_judged_before_the_last_commit() {
    let input: String = (0..30).map(|n| point(16.123456, 48.1, &format!(r#"{{"id":{n}}}"#))).collect();
    let bench = Bench::new();
    bench.write("in.geojsonl", &input);
    bench.manifest("source: { file: in.geojsonl, batch_size: 10 }\ngates:\n  - { check: count, min: 31 }\nsink: { file: out.gpkg, key: [id] }");
    let result = bench.runs(3);
    assert_eq!(result["halt"]["reason"], "30 records would be committed, but at least 31 are expected");
    assert_eq!(&result["written"], &json!(20), "the last batch is not committed");
    bench.manifest("source: { file: in.geojsonl, batch_size: 10 }\ngates:\n  - { check: count, min: 30, max: 30 }\nsink: { file: out.gpkg, key: [id] }");
    bench.runs(0);
    let next = bench.run(&["--resume"]);
    assert!(next.stderr.contains("is complete"), "{}", next.stderr);
    assert_eq!((next.code, &next.json()["unchanged"]), (0, &json!(30)), "{}", next.stderr);
}

#[test]
fn precision_halts_where_it_is_written_out_and_warns_where_it_is_not() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(16.5, 48.5, "{}"));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.geojsonl }");
    let result = bench.runs(0);
    assert_eq!(result["warnings"][0], "gate tolerance.precision_decimal_threshold: 1 of 1 failed");
    bench.manifest("source: { file: in.geojsonl }\ntolerance: { max_null_rate: 0, halt_on_geometry_invalid: true, precision_decimal_threshold: 6 }\nsink: { file: out.geojsonl }");
    bench.runs(3);
}
