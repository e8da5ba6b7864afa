//! Without `--reveal` no position is shown more exactly than documented, in projected systems too.

use crate::dlq::desk::Desk;

/// Bow ties in Gauß-Krüger coordinates, in metres.
fn bow_ties(count: u32, good: u32) -> String {
    (0..count + good)
        .map(|id| {
            let (w, s) = (12345.67 + f64::from(id), 341_234.56 + f64::from(id));
            let (e, n) = (w + 10.25, s + 10.25);
            let ring = if id < count {
                format!("[{w},{s}],[{e},{n}],[{e},{s}],[{w},{n}],[{w},{s}]")
            } else {
                format!("[{w},{s}],[{e},{s}],[{e},{n}],[{w},{n}],[{w},{s}]")
            };
            format!(
                "{{\"type\":\"Feature\",\"properties\":{{\"id\":{id}}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[{ring}]]}}}}\n"
            )
        })
        .collect()
}

fn desk(count: u32, good: u32) -> Desk {
    let desk = Desk::at(".tidegate/letters.db");
    desk.write("in.geojsonl", &bow_ties(count, good));
    desk.write(
        "m.yaml",
        "pipeline:
  id: metres
  dead_letters: {}
  source: { file: in.geojsonl, crs: EPSG:31256 }
  gates: [{ check: is_valid, severity: reject }]
  sink: { file: out.gpkg, key: [id] }
  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
",
    );
    desk
}

/// The whole metres of the first crossing are in no text.
fn is_coarse(text: &str) {
    for exact in ["12350", "12351", "341239", "341240", "12345", "341234"] {
        assert!(!text.contains(exact), "{exact} in {text}");
    }
}

#[test]
fn listings_and_pages_of_letters_in_metres_are_coarse() {
    let desk = desk(1, 3);
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 4);
    let id = desk.id("INVALID_GEOMETRY");
    let exact = desk.dlq(&["show", &id, "--reveal", "test"]).stdout;
    assert!(exact.contains("12350.") && exact.contains("341239."), "{exact}");
    for args in [
        &["ls"][..],
        &["ls", "--format", "json"],
        &["ls", "--format", "ndjson"],
        &["show", &id],
        &["show", &id, "--format", "json"],
        &["stats"],
        &["stats", "--format", "json"],
        &["map", "-o", "dead.html"],
        &["fix", "--rule", "make_valid", "--tolerance", "0", "--all", "--manifest", "m.yaml"],
        &["show", &id, "--format", "json"],
        &["audit", "--format", "json"],
    ] {
        let ran = desk.dlq(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        is_coarse(&ran.stdout);
        is_coarse(&ran.stderr);
    }
    is_coarse(&desk.read("dead.html"));
}

#[test]
fn an_incident_is_coarse_wherever_it_is_told() {
    let desk = desk(30, 2);
    let ran = desk.run(&["run", "m.yaml"]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert!(ran.stderr.contains("Self-intersection["), "{}", ran.stderr);
    is_coarse(&ran.stderr);
    is_coarse(&desk.run(&["run", "m.yaml"]).stderr);
    is_coarse(&desk.dlq(&["incidents"]).stdout);
    is_coarse(&desk.dlq(&["incidents", "--format", "json"]).stdout);
}
