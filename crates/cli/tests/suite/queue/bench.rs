//! A directory with a pipeline whose source is a queue.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::running::{Ran, Running};
use crate::common::workdir::Workdir;

pub(crate) struct Bench(pub(crate) Workdir);

/// The manifest, with further keys of `tasks`.
fn manifest(tasks: &str) -> String {
    format!(
        "pipeline:
  id: parcels
  source: {{ queue: tasks.db, tasks: {{ fields: {{ id: int, name: string, z: int, x: int, y: int }}{tasks} }} }}
  sink: {{ file: out.gpkg, key: [id] }}
  retry_policy: {{ max_attempts: 3, base_delay: 1s, retryable_status_codes: [429, 503] }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
"
    )
}

/// A feature at a point.
pub(crate) fn feature(id: u64, name: &str) -> Value {
    let x = 16.0 + id as f64 / 1000.0;
    json!({
        "type": "Feature", "properties": { "id": id, "name": name },
        "geometry": { "type": "Point", "coordinates": [x, 48.5] },
    })
}

impl Bench {
    /// A pipeline with a queue and nothing in it.
    pub(crate) fn new() -> Bench {
        Bench::with("")
    }

    /// A pipeline with further keys of `tasks`, such as `, kinds: [a, b]`.
    pub(crate) fn with(tasks: &str) -> Bench {
        let dir = Workdir::new();
        dir.write("parcels.yaml", &manifest(tasks));
        Bench(dir)
    }

    /// Writes features with ids from 1 to n to `parcels.geojson`.
    pub(crate) fn features(&self, n: u64) -> &'static str {
        let all: Vec<Value> = (1..=n).map(|id| feature(id, "a")).collect();
        self.0.write("parcels.geojson", &json!({ "type": "FeatureCollection", "features": all }).to_string());
        "parcels.geojson"
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.0.command(args).output().unwrap().into()
    }

    pub(crate) fn submit(&self, args: &[&str]) -> Ran {
        self.run(&[&["submit", "parcels.yaml"], args].concat())
    }

    /// `submit --format json`, which must end with this code.
    pub(crate) fn submitted(&self, args: &[&str], code: i32) -> Value {
        let ran = self.submit(&[args, &["--format", "json"]].concat());
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        ran.json()
    }

    /// Submits what is on standard input.
    pub(crate) fn pipe(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.0.command(&[&["submit", "parcels.yaml", "-"], args].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // The command may refuse before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// A verb of `queue` with `--format json`.
    pub(crate) fn queue(&self, verb: &str, args: &[&str]) -> Value {
        let ran = self.run(&[&["queue", verb, "parcels.yaml"], args, &["--format", "json"]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        ran.json()
    }

    /// Queued, running, done, dead and cancelled tasks, as the sink knows them.
    pub(crate) fn states(&self) -> [u64; 5] {
        let lag = self.queue("lag", &[]);
        ["queued", "running", "done", "dead", "cancelled"]
            .map(|state| lag["tasks_by_state"][state].as_u64().unwrap())
    }

    /// The messages in the queue.
    pub(crate) fn lag(&self) -> u64 {
        self.queue("lag", &[])["lag"].as_u64().unwrap()
    }

    /// The tasks of the next messages.
    pub(crate) fn tasks(&self) -> Vec<Value> {
        let messages = self.queue("peek", &["-n", "1000"]);
        messages.as_array().unwrap().iter().map(|message| message["task"].clone()).collect()
    }

    /// A worker that runs until it is dropped.
    pub(crate) fn worker(&self) -> Running {
        let mut command = self.0.command(&["worker", "parcels.yaml", "--quiet"]);
        Running::of(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Works on all tasks.
    pub(crate) fn work(&self) -> Ran {
        self.run(&["worker", "parcels.yaml", "--once"])
    }
}
