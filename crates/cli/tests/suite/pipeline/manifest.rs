//! Manifests of pipelines: refused at the place, with variables and includes.

use crate::pipeline::bench::{Bench, point};

fn problems(bench: &Bench) -> Vec<(String, u64, String, String)> {
    let ran = bench.tidegate(&["validate", "--format", "json", "m.yaml"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    let list = ran.json();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    list.as_array()
        .unwrap()
        .iter()
        .map(|p| (word(&p["file"]), p["line"].as_u64().unwrap(), word(&p["code"]), word(&p["help"])))
        .collect()
}

#[test]
fn mistakes_are_refused_at_their_line_with_what_was_meant() {
    for (parts, line, code, help) in [
        ("source: { fiel: a.csv }\nsink: { file: b.gpkg }", 3, "unknown_key", "did you mean `file`?"),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - renam: { a: b }",
            6,
            "unknown_key",
            "did you mean `rename`?",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - drop: [a]\n    keep: [b]",
            7,
            "one_key",
            "start another list entry",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - filter: \"a >\"",
            6,
            "expression",
            "compare fields",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - reproject: EPSG:none",
            6,
            "range",
            "EPSG:25832",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - geocode: { service: cage }\nservices: { cages: { profile: opencage } }",
            6,
            "unknown_key",
            "did you mean `cages`?",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\ngates:\n  - { check: range, min: 1 }",
            6,
            "missing_key",
            "add",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\ngates:\n  - { check: is_valid, min: 1 }",
            6,
            "unknown_key",
            "remove it",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg, mode: upsert }",
            4,
            "missing_key",
            "add `key: [id]`",
        ),
        ("source: { file: a.csv }\nsink: { file: b.geojson, key: [id] }", 4, "range", "use `mode: replace`"),
        ("source: { file: a.csv }\nsink: { file: b.shp }", 4, "range", "GeoPackage"),
        ("source: { file: a.csv }", 3, "missing_key", "add `sink:`"),
        (
            "source: { file: a.csv }\nsink: { postgis: { url: \"postgres://u:secret@h/d\", table: t } }",
            4,
            "secret",
            "env:NAME",
        ),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nservices: { s: { key: abc } }",
            5,
            "secret",
            "env:NAME",
        ),
        ("source: { file: \"${NOT_SET_HERE}\" }\nsink: { file: b.gpkg }", 3, "variable", "add a default"),
        ("source: { file: a.csv, batch_size: 0 }\nsink: { file: b.gpkg }", 3, "range", "≥ 1"),
        (
            "source: { file: a.csv }\nsink: { file: b.gpkg }\nsteps:\n  - coerce: { fields: { a: integer } }",
            6,
            "type",
            "did you mean",
        ),
    ] {
        let bench = Bench::new();
        bench.manifest(parts);
        let found = problems(&bench);
        assert_eq!(found.len(), 1, "{parts}: {found:?}");
        assert_eq!((found[0].1, found[0].2.as_str()), (line, code), "{parts}: {found:?}");
        assert!(found[0].3.contains(help), "{parts}: {found:?}");
        assert!(!bench.tidegate(&["validate", "m.yaml"]).stderr.contains("secret@"), "a password is shown");
    }
}

#[test]
fn variables_take_the_kind_that_is_wanted() {
    let bench = Bench::new();
    bench.write("data.geojsonl", &point(1.5, 2.5, r#"{"id":1}"#));
    bench.manifest("source: { file: \"${TG_NAME:data}.geojsonl\", batch_size: \"${TG_BATCH:7}\" }\nsink: { file: out.gpkg, key: [id] }");
    assert_eq!(bench.run(&[]).code, 0);
    let ran = bench.command(&["validate", "m.yaml"]).env("TG_BATCH", "many").output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    let ran = bench.command(&["run", "m.yaml"]).env("TG_NAME", "none").output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stderr).contains("none.geojsonl: no such file"));
}

#[test]
fn includes_hold_where_the_manifest_does_not_say_otherwise() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("shared")).unwrap();
    bench.write("shared/policy.yaml", "include: [deeper.yaml]\npipeline:\n  retry_policy: { max_attempts: 9, base_delay: 1s, retryable_status_codes: [429] }\n");
    bench.write(
        "shared/deeper.yaml",
        "pipeline:\n  tolerance: { max_null_rate: 0.25, halt_on_geometry_invalid: true }\n",
    );
    bench.write(
        "m.yaml",
        "include: [shared/policy.yaml]\npipeline:\n  id: test\n  retry_policy: { base_delay_seconds: 3 }\n",
    );
    let ran = bench.tidegate(&["validate", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("at most 9, ")
            && ran.stdout.contains("at most 3s, 6s")
            && ran.stdout.contains("tolerance.max_null_rate: halts above 25 %"),
        "{}",
        ran.stdout
    );
    // A mistake in an included file is shown there.
    bench.write(
        "shared/deeper.yaml",
        "pipeline:\n  tolerance: { max_null_rate: 2, halt_on_geometry_invalid: true }\n",
    );
    let found = problems(&bench);
    assert_eq!((found[0].0.as_str(), found[0].1, found[0].2.as_str()), ("shared/deeper.yaml", 2, "range"));
    bench.write("shared/deeper.yaml", "include: [policy.yaml]\n");
    assert!(problems(&bench).iter().any(|p| p.2 == "include" && p.0 == "shared/deeper.yaml"));
    bench.write("m.yaml", "include: [none.yaml]\npipeline:\n  id: test\n");
    assert!(problems(&bench).iter().any(|p| p.2 == "include" && p.1 == 1));
}

#[test]
fn policies_alone_do_not_run() {
    let bench = Bench::new();
    bench.manifest("");
    bench.refused("add `source` and `sink`");
}
