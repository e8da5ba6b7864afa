//! The step `raster` of a pipeline beside the commands: the same result, byte for byte. And what becomes of
//! records outside, of two results of one name, and of a disk that is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use rusqlite::types::Value;
use tidegate_chaos::{Chaos, Config};
use tidegate_raster::Compression;

use crate::common::{Ran, tidegate};
use crate::raster::{POLICIES, write_cog, write_cog_of};

/// Two squares within the raster of `write_cog`, and one far from it.
const PARCELS: [(u32, f64, f64); 3] = [(1, 15.010, 45.140), (2, 15.020, 45.135), (3, 16.5, 45.140)];

fn parcel((number, x, y): (u32, f64, f64)) -> String {
    let (right, top) = (x + 0.005, y + 0.004);
    format!(
        r#"{{"type":"Feature","properties":{{"parcel_id":{number},"zone":{},"path":"scene.tif"}},"geometry":{{"type":"Polygon","coordinates":[[[{x},{y}],[{right},{y}],[{right},{top}],[{x},{top}],[{x},{y}]]]}}}}"#,
        number * 10
    )
}

/// A directory with a scene, the parcels, and each parcel alone.
fn workdir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_cog(&dir.path().join("scene.tif"), Compression::Deflate, 1);
    let all: Vec<String> = PARCELS.map(parcel).into();
    fs::write(dir.path().join("parcels.geojsonl"), all.join("\n")).unwrap();
    fs::write(dir.path().join("two.geojsonl"), all[..2].join("\n")).unwrap();
    for (parcel, text) in PARCELS.iter().zip(&all) {
        fs::write(dir.path().join(format!("{}.geojsonl", parcel.0)), text).unwrap();
    }
    dir
}

/// Runs a pipeline with this source and step.
fn run(dir: &Path, source: &str, step: &str, more: &[&str]) -> Ran {
    let path = dir.join("m.yaml");
    let key = if source.contains("rasters") { "name" } else { "parcel_id" };
    // The records name their raster.
    let step = step.replacen('{', "{ objects: { folder: . },", 1);
    let text = format!(
        "pipeline:\n  id: steps\n{POLICIES}  source: {{ {source}, batch_size: 1 }}\n  steps:\n    - raster: {step}\n  sink: {{ file: index.gpkg, key: [{key}] }}\n"
    );
    fs::write(&path, text).unwrap();
    let (path, state) = (path.display().to_string(), dir.join("state").display().to_string());
    let mut args = vec!["run", path.as_str(), "--state", state.as_str(), "--quiet"];
    args.extend(more);
    tidegate(&args)
}

/// Forgets the runs so far.
fn anew(dir: &Path) {
    let _ = fs::remove_dir_all(dir.join("state"));
    let _ = fs::remove_file(dir.join("index.gpkg"));
}

/// Runs `tidegate raster` on files of the directory.
fn command(dir: &Path, args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("raster")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn same(dir: &Path, one: &str, other: &str) {
    let read = |name: &str| fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read(one) == read(other), "{one} and {other} differ");
}

fn rows(dir: &Path, sql: &str) -> Vec<Value> {
    let db = rusqlite::Connection::open(dir.join("index.gpkg")).unwrap();
    let mut rows = db.prepare(sql).unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn letters(dir: &Path) -> String {
    let store = dir.join("state/letters.db").display().to_string();
    tidegate(&["dlq", "--store", &store, "ls", "--format", "json"]).stdout
}

#[test]
fn each_record_clips_its_raster_into_a_file_of_its_own() {
    let dir = workdir();
    let step = "{ clip: { record: true }, name: \"parcel {parcel_id}.tif\", output: out }";
    let ran = run(dir.path(), "file: parcels.geojsonl", step, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    for n in ["1", "2"] {
        command(
            dir.path(),
            &["clip", "scene.tif", &format!("{n}.tif"), "--features", &format!("{n}.geojsonl")],
        );
        same(dir.path(), &format!("{n}.tif"), &format!("out/parcel {n}.tif"));
    }
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 2);
    let letters = letters(dir.path());
    assert!(
        letters.contains("OUT_OF_BOUNDS") && letters.contains("nothing of the raster lies within"),
        "{letters}"
    );

    // The record outside goes on without a raster, if the manifest says so.
    let _ = fs::remove_dir_all(dir.path().join("state"));
    let step = step.replace("record: true", "record: true, outside: keep");
    let ran = run(dir.path(), "file: parcels.geojsonl", &step, &["--format", "json"]);
    assert_eq!((ran.code, ran.count("no_match")), (0, 1), "{}", ran.stderr);
    let paths = rows(dir.path(), "SELECT path FROM \"index\" ORDER BY parcel_id");
    assert!(matches!(paths.as_slice(), [Value::Text(_), Value::Text(_), Value::Null]), "{paths:?}");
}

/// Records of a batch that name the same raster share it: its head and its blocks are asked for once.
#[test]
fn the_raster_of_a_batch_stays_open() {
    let dir = workdir();
    let config = Config { rasters: Some(dir.path().to_owned()), threads: 1, ..Config::default() };
    let server = Chaos::start(config).unwrap();
    let text = fs::read_to_string(dir.path().join("two.geojsonl")).unwrap();
    let twice = [1, 2, 3].map(|n| text.replace("\"parcel_id\":", &format!("\"parcel_id\":{n}"))).join("\n");
    let remote = twice.replace("scene.tif", &format!("{}/raster/scene.tif", server.url()));
    fs::write(dir.path().join("remote.geojsonl"), remote).unwrap();
    let host = server.addr();
    let manifest = format!(
        "pipeline:\n  id: held\n{POLICIES}  source: {{ file: remote.geojsonl, batch_size: 10 }}\n  steps:\n    - raster: {{ objects: {{ hosts: [\"{host}\"] }}, clip: {{ record: true }}, name: \"{{parcel_id}}.tif\", output: out }}\n  sink: {{ file: index.gpkg, key: [parcel_id] }}\n"
    );
    fs::write(dir.path().join("m.yaml"), manifest).unwrap();
    let (path, state) = (dir.path().join("m.yaml").display().to_string(), dir.path().join("state"));
    let ran = tidegate(&["run", &path, "--state", &state.display().to_string(), "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 6);
    for n in ["1", "2"] {
        let features = format!("{n}.geojsonl");
        command(dir.path(), &["clip", "scene.tif", &format!("{n}.tif"), "--features", &features]);
        same(dir.path(), &format!("{n}.tif"), &format!("out/3{n}.tif"));
    }
    // One for the head, and at most one for each of the nine blocks.
    assert!(server.stats().requests <= 10, "{} requests", server.stats().requests);
}

#[test]
fn two_records_do_not_share_a_result() {
    let dir = workdir();
    let step = "{ clip: { record: true }, name: \"same.tif\", output: out }";
    let ran = run(dir.path(), "file: two.geojsonl", step, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(letters(dir.path()).contains("two records would both become same.tif"));
    for (step, says) in [
        ("{ clip: { record: true }, output: out }", "needs `name`"),
        ("{ clip: { record: true, file: a.gpkg }, output: out }", "`file` or `record`"),
        ("{ clip: { bbox: [1, 2, 3, 4], outside: keep }, output: out }", "`outside` is for"),
        ("{ cog: true, mosaic: {}, output: out }", "does one thing"),
        ("{ cog: true, name: \"{nobody}\", output: out }", "no field `nobody`"),
        ("{ rasterize: { burn: 1, count: true, file: a.gpkg }, output: out }", "one of `burn`"),
        ("{ rasterize: { burn: 1 }, output: out }", "`like` or `bbox`"),
        ("{ rasterize: { burn: 1, file: a.gpkg, like: b.tif }, output: out }", "leave out `like`"),
    ] {
        let ran = run(dir.path(), "file: two.geojsonl", step, &[]);
        assert!(ran.code == 2 && ran.stderr.contains(says), "{step}: {} {}", ran.code, ran.stderr);
    }
}

#[test]
fn features_become_pixels() {
    let dir = workdir();
    // Onto the grid of each raster.
    let step = "{ rasterize: { file: two.geojsonl, attribute: zone, sample: uint8, nodata: 255 }, output: out, survey: true }";
    let ran = run(dir.path(), "rasters: [scene.tif]", step, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let how = ["--attribute", "zone", "--type", "uint8", "--nodata", "255", "--like", "scene.tif"];
    command(dir.path(), &[&["rasterize", "two.geojsonl", "zones.tif"], &how[..]].concat());
    same(dir.path(), "zones.tif", "out/scene.tif");
    let range = rows(dir.path(), "SELECT band_min || band_max FROM \"index\"");
    assert_eq!(range, [Value::Text("[10.0][20.0]".into())]);

    // Files of features, onto one grid.
    for (how, args) in [
        ("like: scene.tif, count: true", vec!["--count", "--like", "scene.tif"]),
        (
            "bbox: [15, 45.1, 15.1, 45.2], resolution: 0.001, burn: 7, all_touched: true, sample: uint16",
            vec![
                "--extent",
                "15,45.1,15.1,45.2",
                "--resolution",
                "0.001",
                "--burn",
                "7",
                "--all-touched",
                "--type",
                "uint16",
            ],
        ),
    ] {
        anew(dir.path());
        let step = format!("{{ rasterize: {{ {how} }}, output: out }}");
        let ran = run(dir.path(), "rasters: [two.geojsonl]", &step, &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let mut all = vec!["rasterize", "two.geojsonl", "wanted.tif", "--overwrite"];
        all.extend(args);
        command(dir.path(), &all);
        same(dir.path(), "wanted.tif", "out/two.tif");
    }

    // A feature that has no number is not left out in silence.
    anew(dir.path());
    let step = "{ rasterize: { like: scene.tif, attribute: path }, output: none }";
    let ran = run(dir.path(), "rasters: [two.geojsonl]", step, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(letters(dir.path()).contains("holds no number"), "{}", letters(dir.path()));
}

#[test]
fn a_list_of_rasters_becomes_one() {
    let dir = workdir();
    write_cog(&dir.path().join("other.tif"), Compression::Deflate, 9);
    let record =
        r#"{"type":"Feature","properties":{"parcel_id":1,"path":["scene.tif","other.tif"]},"geometry":null}"#;
    fs::write(dir.path().join("lists.geojsonl"), record).unwrap();
    let step = "{ mosaic: { priority: mean }, name: all.tif, output: out }";
    let ran = run(dir.path(), "file: lists.geojsonl", step, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    command(dir.path(), &["mosaic", "all.tif", "scene.tif", "other.tif", "--priority", "mean"]);
    same(dir.path(), "all.tif", "out/all.tif");
}

/// A file may not grow beyond a megabyte: no raster is to blame, and nothing is a dead letter.
#[test]
fn a_full_disk_ends_the_run_and_no_record() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("scenes")).unwrap();
    for n in 0..2 {
        write_cog_of(&dir.path().join(format!("scenes/{n}.tif")), (900, 256), Compression::Deflate, n);
    }
    let text = format!(
        "pipeline:\n  id: full\n{POLICIES}  source: {{ rasters: [scenes], batch_size: 1 }}\n  steps:\n    - raster: {{ cog: true, compression: none, output: out }}\n  sink: {{ file: index.gpkg, key: [name] }}\n"
    );
    fs::write(dir.path().join("m.yaml"), text).unwrap();
    let run = |before: &str, more: &str| -> Ran {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let script = format!("trap '' XFSZ; {before} exec {program} run m.yaml --state state --quiet {more}");
        Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap().into()
    };
    // In units of 512 bytes.
    let ran = run("ulimit -f 2048;", "");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("too large"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 0);
    assert!(!letters(dir.path()).contains("0.tif"), "{}", letters(dir.path()));
    let ran = run("", "--resume");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 2);
}
