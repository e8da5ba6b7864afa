//! A pipeline whose tasks and records a stranger writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_geo::Crs;
use tidegate_raster::{
    Affine, CogOptions, CogWriter, PixelWindow, RasterGrid, RasterSpec, SampleType, Samples,
};

const POLICIES: &str = "
  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
  dead_letters: { store: letters.db, incident_share: 1.0 }
";

/// A letter: its code and its message.
#[derive(Clone, Debug)]
pub(crate) struct SeenLetter {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) said: String,
}

/// A directory with a pipeline, and beside it what nobody should get at.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// With nothing but the directory `work`.
    pub(crate) fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        Bench { dir }
    }

    /// A path beside the directory of the pipeline.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path in the directory of the pipeline.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes `m.yaml` with these parts, each a line of `pipeline`.
    pub(crate) fn manifest(&self, parts: &[&str]) {
        let parts: String = parts.iter().map(|part| format!("  {part}\n")).collect();
        self.write("m.yaml", &format!("pipeline:\n  id: p{POLICIES}{parts}"));
    }

    /// Writes a manifest whose tasks may open this; `more` are keys of the source.
    pub(crate) fn queue(&self, objects: &str, more: &str) {
        let objects = if objects.is_empty() { String::new() } else { format!(", objects: {objects}") };
        let source =
            format!("source: {{ queue: tasks.db, tasks: {{ fields: {{ id: int }}{objects} }}{more} }}");
        self.manifest(&[&source, "sink: { file: out.gpkg, mode: append }"]);
    }

    /// Runs the binary in the directory of the pipeline.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(args)
            .current_dir(self.path(""))
            .env("AWS_ACCESS_KEY_ID", "AKIAOURKEY")
            .env("AWS_SECRET_ACCESS_KEY", "our secret")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended {
            code: output.status.code().unwrap_or(-1),
            said: format!("{}{}", text(&output.stdout), text(&output.stderr)),
        }
    }

    /// Submits tasks with these objects, and works until the queue is empty; the letters, in the order of the
    /// objects.
    pub(crate) fn work(&self, objects: &[&str]) -> Vec<Option<SeenLetter>> {
        let lines = objects.iter().enumerate().map(|(n, object)| {
            format!("{}\n", serde_json::json!({ "key": format!("t{n}"), "object": object }))
        });
        self.write("tasks.ndjson", &lines.collect::<String>());
        let ended = self.run(&["submit", "m.yaml", "--tasks", "tasks.ndjson"]);
        assert_eq!(ended.code, 0, "{}", ended.said);
        let ended = self.run(&["worker", "m.yaml", "--once"]);
        assert!([0, 4].contains(&ended.code), "{} {}", ended.code, ended.said);
        let letters = self.letters();
        let of = |n: usize| {
            let task = format!("task t{n}");
            letters.iter().find(|(name, _)| *name == task).map(|(_, letter)| letter.clone())
        };
        (0..objects.len()).map(of).collect()
    }

    /// The letters, by what they are about.
    pub(crate) fn letters(&self) -> Vec<(String, SeenLetter)> {
        let ended = self.run(&["dlq", "ls", "--store", "letters.db", "--format", "ndjson", "-n", "1000"]);
        let lines = ended.said.lines().filter(|line| line.starts_with('{'));
        let letter = |line: &str| {
            let letter: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let failure = &letter["failure"];
            let seen = SeenLetter { code: text(&failure["code"]), message: text(&failure["message"]) };
            (text(&letter["record"]), seen)
        };
        lines.map(letter).collect()
    }

    /// Forgets the runs so far, with all that they made.
    pub(crate) fn anew(&self) {
        for entry in fs::read_dir(self.path("")).unwrap().flatten() {
            let (name, path) = (entry.file_name().into_string().unwrap(), entry.path());
            if ["out", "letters.db", "tasks.db", ".tidegate"].iter().any(|made| name.starts_with(made)) {
                let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                removed.unwrap();
            }
        }
    }

    /// Whether any file of the pipeline holds these bytes.
    pub(crate) fn holds(&self, bytes: &[u8]) -> Option<PathBuf> {
        let mut dirs = vec![self.path("")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                let about = fs::symlink_metadata(&path).unwrap();
                if about.is_dir() {
                    dirs.push(path);
                } else if about.is_file()
                    && fs::read(&path).unwrap().windows(bytes.len()).any(|part| part == bytes)
                {
                    return Some(path);
                }
            }
        }
        None
    }

    /// The number of rows in the sink.
    pub(crate) fn rows(&self) -> i64 {
        let db = rusqlite::Connection::open(self.path("out.gpkg")).unwrap();
        db.query_row("SELECT count(*) FROM out", [], |row| row.get(0)).unwrap()
    }
}

/// One feature.
pub(crate) fn feature(id: u32) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"id":{id}}}}}"#
    )
}

/// Writes a small raster.
pub(crate) fn raster(path: &Path) {
    const SIDE: u32 = 64;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let grid = RasterGrid {
        width: SIDE,
        height: SIDE,
        transform: Affine([500_000.0, 10.0, 0.0, 5_000_000.0, 0.0, -10.0]),
        crs: Some(Crs::epsg(32633)),
    };
    let spec = RasterSpec {
        grid,
        is_placed: true,
        bands: 1,
        sample: SampleType::U8,
        nodata: None,
        alpha: None,
        is_premultiplied: false,
        has_mask: false,
        band_info: Vec::new(),
        metadata: Vec::new(),
        palette: None,
        is_point: false,
        photometric: 1,
    };
    let options = CogOptions { block: SIDE, ..CogOptions::default() };
    let writer = CogWriter::create(path, spec, &options).unwrap();
    for (column, row) in writer.tiles().collect::<Vec<_>>() {
        let window = PixelWindow::new(0, 0, SIDE, SIDE);
        let mut samples = Samples::zeros(SampleType::U8, window.width, window.height, 1);
        samples.band_mut::<u8>(0).unwrap().fill(7);
        writer.write_tile(column, row, samples).unwrap();
    }
    writer.finish().unwrap();
}
