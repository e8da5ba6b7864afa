//! The report of a pipeline.

use crate::bench::Bench;

#[test]
fn a_report_says_what_the_run_did() {
    let bench = Bench::new();
    let mut lines = String::new();
    for i in 0..30 {
        let x = 10.0 + f64::from(i) / 10.0;
        // Every tenth ring crosses itself.
        let (a, b) = if i % 10 == 9 { ("0.1,0.1", "0.1,0") } else { ("0.1,0", "0.1,0.1") };
        let at = |offset: &str| {
            let (dx, dy) = offset.split_once(',').unwrap();
            format!("[{},{}]", x + dx.parse::<f64>().unwrap(), 47.0 + dy.parse::<f64>().unwrap())
        };
        let ring = ["0,0", a, b, "0,0.1", "0,0"].map(at).join(",");
        lines.push_str(&format!(
            "{{\"type\":\"Feature\",\"properties\":{{\"id\":{i},\"name\":\"a<b>&\\\"c\"}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[{ring}]]}}}}\n"
        ));
    }
    bench.write("in.geojsonl", &lines);
    bench.manifest("source: { file: in.geojsonl, batch_size: 7 }\ngates:\n  - { check: range, fields: [id], max: 27 }\nsink: { file: out.gpkg, key: [id] }");
    let ran = bench.run(&["run", "m.yaml", "--quiet", "--report", "run.html"], &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let page = bench.read("run.html");
    for part in [
        "<h1>parcels</h1>",
        "30 read = 26 committed + 4 dead",
        "All records accounted for: none lost, none duplicated",
        "class=\"dot\"",
        "class=\"cross\"",
        "<code>INVALID_GEOMETRY</code>",
        "tolerance.halt_on_geometry_invalid",
        "gates[0] range",
        "! rejected some",
        "None of the 9 alerts fired",
        "max_attempts",
        "retryable_status_codes",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
    // A run that halts has its report too.
    bench.manifest("source: { file: in.geojsonl, batch_size: 7 }\ngates:\n  - { check: range, fields: [id], max: 20, severity: halt }\nsink: { file: halted.gpkg, key: [id] }");
    let ran = bench.run(&["run", "m.yaml", "--quiet", "--report", "halt.html"], &[]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let page = bench.read("halt.html");
    assert!(
        page.contains("✗ halted the run") && page.contains("The run ended before all records were processed"),
        "{page}"
    );
}
