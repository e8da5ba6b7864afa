//! The gate `drift`: statistics against the last run that ended well.

use std::fs;
use std::path::Path;

use tidegate_raster::Compression;

use crate::common::{Ran, tidegate};
use crate::raster::{POLICIES, write_cog, write_cog_of};

const GATES: &str = "[{ check: drift, fields: [band_min, band_max, band_mean], tolerate: 10% }, { check: drift, fields: [nodata_share], tolerate: 0.02 }]";

fn manifest(dir: &Path, gates: &str) -> String {
    let path = dir.join("m.yaml");
    let text = format!(
        "pipeline:\n  id: scenes\n{POLICIES}  source: {{ rasters: [scenes], batch_size: 1 }}\n  steps:\n    - raster: {{ survey: true }}\n  gates: {gates}\n  sink: {{ file: index.gpkg, key: [name] }}\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run(dir: &Path, gates: &str, more: &[&str]) -> Ran {
    let (path, state) = (manifest(dir, gates), dir.join("state").display().to_string());
    let mut args = vec!["run", path.as_str(), "--state", state.as_str(), "--quiet"];
    args.extend(more);
    tidegate(&args)
}

fn scenes() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("scenes")).unwrap();
    for n in 0..3 {
        write_cog(&dir.path().join(format!("scenes/{n}.tif")), Compression::Deflate, n);
    }
    dir
}

/// Another raster under the same name, with other statistics.
fn change(dir: &Path) {
    write_cog_of(&dir.join("scenes/1.tif"), (600, 128), Compression::Deflate, 1);
}

#[test]
fn what_differs_from_the_last_run_is_rejected_until_a_person_replays_it() {
    let dir = scenes();
    let letters = dir.path().join("state/letters.db").display().to_string();
    for _ in 0..2 {
        let ran = run(dir.path(), GATES, &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    change(dir.path());
    // A run that rejects it does not move what the next one is compared with.
    for _ in 0..2 {
        let ran = run(dir.path(), GATES, &[]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        let said = tidegate(&["dlq", "--store", &letters, "ls", "--format", "json"]).stdout;
        assert!(said.contains("the number of the last run"), "{said}");
    }
    let path = manifest(dir.path(), GATES);
    let ran = tidegate(&["dlq", "--store", &letters, "replay", "--manifest", &path]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    let ran = run(dir.path(), GATES, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn a_run_that_halts_records_nothing_and_a_resumed_one_records_all() {
    let dir = scenes();
    let halting = GATES.replace("tolerate: 10%", "tolerate: 10%, severity: halt");
    // Killed in the middle and resumed: all three are recorded.
    let path = manifest(dir.path(), &halting);
    let state = dir.path().join("state").display().to_string();
    let killed = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", &path, "--state", &state, "--quiet"])
        .env("TIDEGATE_CRASH", "commit:1")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    assert_eq!(run(dir.path(), &halting, &["--resume"]).code, 0);
    let recorded = fs::read_to_string(dir.path().join("state/scenes/baseline.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let names: Vec<&String> = recorded.as_object().unwrap().keys().collect();
    assert_eq!(names, ["[\"0.tif\"]", "[\"1.tif\"]", "[\"2.tif\"]"]);
    let share = recorded["[\"1.tif\"]"]["nodata_share"][0].as_f64().unwrap();
    assert!((share - 20.0 / 300.0).abs() < 1e-12, "{share}");
    change(dir.path());
    for _ in 0..2 {
        let ran = run(dir.path(), &halting, &["--format", "json"]);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        let halt = &ran.json()["halt"];
        assert_eq!((&halt["gate"], &halt["record"]), (&"gates[0] drift".into(), &1.into()), "{halt}");
    }
}

#[test]
fn a_gate_that_cannot_work_is_refused() {
    let dir = scenes();
    for (gates, says) in [
        ("[{ check: drift, fields: [mean] }]", "requires `tolerate`"),
        ("[{ check: drift, tolerate: 5% }]", "requires `fields`"),
        ("[{ check: drift, fields: [mean], tolerate: much }]", "invalid tolerance"),
        ("[{ check: range, fields: [mean], min: 1, tolerate: 5% }]", "does not support `tolerate`"),
    ] {
        let ran = run(dir.path(), gates, &[]);
        assert!(ran.code == 2 && ran.stderr.contains(says), "{gates}: {} {}", ran.code, ran.stderr);
    }
}
