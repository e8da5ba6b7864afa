//! Rasters as geotasks: submitted to a queue in a file, worked on by workers, one of which is killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate_raster::Compression;

use crate::common::Ran;
use crate::raster::{POLICIES, write_cog};

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).current_dir(dir);
    command
}

fn tidegate(dir: &Path, args: &[&str]) -> Ran {
    command(dir, args).output().unwrap().into()
}

/// Three tasks with a raster each, a step that clips by the task's own polygon, and a sink that would show a
/// task that had two effects.
fn bench(step: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = String::new();
    for n in 0..3 {
        write_cog(&dir.path().join(format!("{n}.tif")), Compression::Deflate, n);
        let (x, y) = (15.01 + 0.005 * f64::from(n), 45.14);
        let (right, top) = (x + 0.005, y + 0.004);
        tasks.push_str(&format!(
            "{{\"type\":\"Feature\",\"properties\":{{\"id\":{n},\"path\":\"{n}.tif\"}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[[{x},{y}],[{right},{y}],[{right},{top}],[{x},{top}],[{x},{y}]]]}}}}\n"
        ));
    }
    fs::write(dir.path().join("tasks.ndjson"), tasks).unwrap();
    let manifest = format!(
        "pipeline:\n  id: clips\n{}  source:\n    queue: tasks.db\n    tasks: {{ fields: {{ id: int, path: string }}, geometry: polygon, lease: 2s }}\n  steps:\n    - raster: {step}\n  sink: {{ file: clips.gpkg, mode: append }}\n  dead_letters: {{ store: letters.db }}\n",
        POLICIES.replace("  dead_letters: {}\n", "")
    );
    fs::write(dir.path().join("clips.yaml"), manifest).unwrap();
    let ran = tidegate(dir.path(), &["submit", "clips.yaml", "--tasks", "tasks.ndjson", "--key", "id"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    dir
}

fn ids(dir: &Path) -> Vec<(i64, String)> {
    let db = rusqlite::Connection::open(dir.join("clips.gpkg")).unwrap();
    let mut rows = db.prepare("SELECT id, sha256 FROM clips ORDER BY id").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn outputs(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = fs::read_dir(dir.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

/// Works until all three tasks have ended, also those of a worker that is gone.
fn until_done(dir: &Path) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let ran = tidegate(dir, &["worker", "clips.yaml", "--once", "--format", "json"]);
        let ended = tidegate(dir, &["queue", "ls", "clips.yaml", "--state", "done", "--format", "ndjson"]);
        if ended.stdout.matches("\"key\"").count() == 3 {
            return;
        }
        assert!(Instant::now() < end, "{} {}", ended.stdout, ran.stderr);
        std::thread::sleep(Duration::from_millis(100));
    }
}

const CLIP: &str =
    "{ objects: { folder: . }, clip: { record: true }, name: \"{id}.tif\", output: out, compression: zstd }";

#[test]
fn three_tasks_are_three_rasters() {
    for step in
        [CLIP, "{ objects: { folder: . }, warp: { to: \"EPSG:3857\", resampling: bilinear }, output: out }"]
    {
        let dir = bench(step);
        let ran = tidegate(dir.path(), &["worker", "clips.yaml", "--once"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let names: Vec<String> = outputs(dir.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["0.tif", "1.tif", "2.tif"]);
        let ids: Vec<i64> = ids(dir.path()).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, [0, 1, 2]);
    }
}

#[test]
fn the_task_of_a_killed_worker_is_done_once() {
    let wanted = bench(CLIP);
    until_done(wanted.path());
    let dir = bench(CLIP);
    // The rasters are written, and nothing is committed yet.
    let gate = dir.path().join("gate");
    let mut first = command(dir.path(), &["worker", "clips.yaml", "--once"])
        .env("TIDEGATE_HOLD", format!("put:0={}", gate.display()))
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    while !dir.path().join("gate.here").exists() {
        assert!(
            Instant::now() < end && first.try_wait().unwrap().is_none(),
            "the worker did not come so far"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    until_done(dir.path());
    assert_eq!(ids(dir.path()), ids(wanted.path()));
    assert_eq!(ids(dir.path()).len(), 3);
    assert!(outputs(dir.path()) == outputs(wanted.path()), "another result, or a part of one was left");
}
