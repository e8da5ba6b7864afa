//! The manifests under `examples` do what they say.

use std::path::Path;

use serde_json::json;

use crate::bench::Bench;

fn example(bench: &Bench, name: &str, out: &str) -> crate::bench::Ran {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut command = bench.command(&["run", file.to_str().unwrap(), "--format", "json"]);
    crate::bench::ran(command.env("OUT", bench.path(out)).output().unwrap())
}

#[test]
fn parcels() {
    let bench = Bench::new();
    for inserted in [39, 0] {
        let ran = example(&bench, "parcels.yaml", "out.gpkg");
        assert_eq!(ran.code, Some(4), "{}", ran.stderr);
        let result = ran.json();
        assert_eq!(
            (&result["written"], &result["inserted"], &result["repaired"]),
            (&json!(39), &json!(inserted), &json!(1))
        );
    }
    assert_eq!(
        bench.sql("out.gpkg", "SELECT id, name, city FROM out WHERE id = 'W-007'"),
        ["W-007|Carla|Linz"]
    );
}

#[test]
fn large_parcels() {
    let bench = Bench::new();
    let ran = example(&bench, "large-parcels.yaml", "out.geojson");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = ran.json();
    assert_eq!((&result["read"], &result["balanced"]), (&json!(40), &json!(true)));
    let page: serde_json::Value = serde_json::from_str(&bench.read("out.geojson")).unwrap();
    assert_eq!(page["features"].as_array().unwrap().len() as u64, result["written"].as_u64().unwrap());
}
