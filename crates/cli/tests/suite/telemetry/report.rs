//! The report of a pipeline.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::canned::{Canned, json};
use crate::telemetry::bench::Bench;

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
        "30 read = 26 written + 4 rejected",
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

/// A geocoder that knows three places: six rows, of which two are at one place, one has no match and
/// one is refused, after one retry.
#[test]
fn the_report_of_a_geocoder_speaks_its_words() {
    let retried = AtomicBool::new(false);
    let server = Canned::start(move |head| {
        let found = |lat: &str| {
            let body =
                format!("{{\"results\":[{{\"lat\":{lat},\"lon\":16.37,\"label\":\"x\",\"score\":1}}]}}");
            json("200 OK", &body)
        };
        match head.split(' ').nth(1).unwrap_or_default() {
            path if path.contains("first") && !retried.swap(true, Ordering::SeqCst) => json("503 Busy", "{}"),
            path if path.contains("none") => json("200 OK", "{\"results\":[]}"),
            path if path.contains("bad") => json("400 Bad", "{}"),
            path if path.contains("far") => found("48.30"),
            _ => found("48.20"),
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", "id,q\n1,first\n2,second\n3,far\n4,none\n5,bad\n");
    let url = server.url();
    let args = ["geocode", "in.csv", "--address", "q", "--url", &url, "-o", "out.gpkg", "--report", "r.html"];
    let ran = bench.run(&args, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("  calls                6   1 retry,"), "{}", ran.stderr);
    let page = bench.read("r.html");
    for part in [
        "5 read = 3 matched + 1 no match + 1 failed",
        "<dt>failed</dt>",
        "<dt>calls</dt><dd class=\"\">6</dd>",
        "<dt>retries, 16.7 % of the calls</dt>",
        ">2</text>",
        "<b>n</b> records at one point",
        "class=\"inset\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("committed") && !page.contains(" dead"), "words of another verb");
    // The view is the data: a tenth of a degree, not a country.
    let view = page.split("class=\"map\" viewBox=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let width: f64 = view.split(' ').nth(2).unwrap().parse().unwrap();
    assert!((1.0..5.0).contains(&width), "{view}");
    // The same pipeline as a manifest: the same words.
    let manifest = bench.run(&[&args[..], &["--print-manifest"]].concat(), &[]).stdout;
    bench.write("g.yaml", &manifest);
    let ran = bench.run(&["run", "g.yaml", "--report", "run.html"], &[]);
    assert!(ran.stderr.contains("  calls "), "{}", ran.stderr);
    assert!(bench.read("run.html").contains("5 read = 3 matched + 1 no match + 1 failed"));
}
