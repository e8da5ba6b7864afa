//! Lists of rasters as records: gates, dead letters, and a run that is killed and resumed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_raster::Compression;

use crate::common::tidegate;
use crate::raster::{POLICIES, write_cog};

const COUNT: u32 = 6;

fn scenes(dir: &Path) {
    fs::create_dir(dir.join("scenes")).unwrap();
    for n in 0..COUNT {
        write_cog(&dir.join(format!("scenes/{n}.tif")), Compression::Deflate, n);
    }
}

fn manifest(dir: &Path, steps: &str, gates: &str) -> String {
    let path = dir.join("m.yaml");
    let text = format!(
        "pipeline:\n  id: scenes\n{POLICIES}  source: {{ rasters: [scenes], batch_size: 1 }}\n  steps:\n    - raster: {steps}\n  gates: {gates}\n  sink: {{ file: index.gpkg, key: [name] }}\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn index(dir: &Path) -> Vec<(String, String)> {
    let db = rusqlite::Connection::open(dir.join("index.gpkg")).unwrap();
    let mut rows = db.prepare("SELECT name, sha256 FROM \"index\" ORDER BY name").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn broken_rasters_are_repaired_or_become_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    scenes(dir.path());
    let spoil = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = dir.path().join("scenes").join(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    spoil("1.tif", &|bytes| bytes[..4].fill(0));
    spoil("2.tif", &|bytes| bytes.truncate(bytes.len() / 2));
    let path = manifest(dir.path(), "{ repair: {}, output: repaired, survey: true }", "[]");
    let state = dir.path().join("state").display().to_string();
    let ran = tidegate(&["run", &path, "--state", &state, "--quiet"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let names: Vec<String> = index(dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.tif", "1.tif", "3.tif", "4.tif", "5.tif"]);
    assert!(!dir.path().join("repaired/2.tif").exists());
    let ran = tidegate(&["dlq", "--store", &format!("{state}/letters.db"), "ls", "--format", "json"]);
    assert!(ran.stdout.contains("CORRUPTED_BLOCK"), "{} {}", ran.stdout, ran.stderr);
}

/// A share of nodata above the limit of a gate.
#[test]
fn gates_judge_what_rasters_are() {
    let dir = tempfile::tempdir().unwrap();
    scenes(dir.path());
    let state = dir.path().join("state").display().to_string();
    let gate =
        |field: &str, rest: &str| format!("[{{ check: range, fields: [{field}], {rest}, severity: halt }}]");
    let steps = "{ survey: true }";
    for (gates, code) in [
        (gate("nodata_share", "max: 0.05"), 3),
        (gate("nodata_share", "max: 0.07"), 0),
        (gate("grid_offset", "max: 0.001"), 0),
        (gate("max", "max: 1500"), 3),
        ("[{ check: one_of, fields: [crs], values: [\"EPSG:3857\"], severity: halt }]".to_owned(), 3),
        ("[{ check: one_of, fields: [bands], values: [1], severity: halt }]".to_owned(), 0),
    ] {
        let _ = fs::remove_file(dir.path().join("index.gpkg"));
        let _ = fs::remove_dir_all(dir.path().join("state"));
        let path = manifest(dir.path(), steps, &gates);
        let ran = tidegate(&["run", &path, "--state", &state, "--quiet"]);
        assert_eq!(ran.code, code, "{gates}: {}", ran.stderr);
    }
}

#[test]
fn a_killed_run_goes_on_at_the_raster_it_was_at() {
    let wanted = tempfile::tempdir().unwrap();
    scenes(wanted.path());
    let steps = "{ warp: { to: \"EPSG:3857\", resampling: cubic }, output: out }";
    let path = manifest(wanted.path(), steps, "[]");
    let state = |dir: &Path| dir.join("state").display().to_string();
    assert_eq!(tidegate(&["run", &path, "--state", &state(wanted.path()), "--quiet"]).code, 0);

    let dir = tempfile::tempdir().unwrap();
    scenes(dir.path());
    let path = manifest(dir.path(), steps, "[]");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", &path, "--state", &state(dir.path()), "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Killed when the second result is there, or when all are: the end must be the same.
    let begun = Instant::now();
    while !dir.path().join("out/1.tif").exists()
        && child.try_wait().unwrap().is_none()
        && begun.elapsed() < Duration::from_secs(120)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    child.wait().unwrap();
    let ran = tidegate(&["run", &path, "--state", &state(dir.path()), "--resume", "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(index(dir.path()), index(wanted.path()));
    assert_eq!(index(dir.path()).len(), COUNT as usize);
    for n in 0..COUNT {
        let name = format!("out/{n}.tif");
        assert!(fs::read(dir.path().join(&name)).unwrap() == fs::read(wanted.path().join(&name)).unwrap());
    }
    let left: Vec<_> = fs::read_dir(dir.path().join("out")).unwrap().collect();
    assert_eq!(left.len(), COUNT as usize, "{left:?}");
}

/// A letter about a broken header is repaired by its remedy and replayed into the sink.
#[test]
fn a_dead_letter_is_repaired_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    scenes(dir.path());
    let broken = dir.path().join("scenes/1.tif");
    let mut bytes = fs::read(&broken).unwrap();
    bytes[..4].fill(0);
    fs::write(&broken, &bytes).unwrap();
    let path = manifest(dir.path(), "{ survey: true }", "[]");
    let state = dir.path().join("state").display().to_string();
    let ran = tidegate(&["run", &path, "--state", &state, "--quiet"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let store = format!("{state}/letters.db");
    let folder = dir.path().join("scenes").display().to_string();
    let rule = ["--rule", "repair_raster", "--folder", &folder, "--all"];
    let fixed = tidegate(&[&["dlq", "--store", &store, "fix"], &rule[..]].concat());
    assert_eq!(fixed.code, 0, "{} {}", fixed.stdout, fixed.stderr);
    assert_eq!(fs::read(&broken).unwrap(), bytes, "the original was touched");
    let replayed = tidegate(&["dlq", "--store", &store, "replay", "--manifest", &path]);
    assert_eq!(replayed.code, 0, "{} {}", replayed.stdout, replayed.stderr);
    assert_eq!(index(dir.path()).len(), COUNT as usize);
}
