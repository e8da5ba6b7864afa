//! Workers: journeys of tasks through a queue into a sink, with kills, stalls and two workers at once.

mod health;
mod kinds;
mod leases;
mod tasks;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::running::Ran;
use crate::common::workdir::Workdir;
use rusqlite::Connection;
use tidegate_queue::{Message, QueueAddress, QueueDepth, QueueOptions, open};

const POLICY: &str =
    "  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

/// A directory with a manifest whose tasks are points with two fields, appended to a GeoPackage: a task
/// that had two effects would be there twice.
fn parcels() -> Workdir {
    let dir = Workdir::new();
    dir.write("parcels.yaml", &manifest("parcels", "lease: 2s"));
    dir
}

fn manifest(id: &str, tasks: &str) -> String {
    format!(
        "pipeline:
  id: {id}
{POLICY}  source:
    queue: tasks.db
    group: workers
    tasks: {{ fields: {{ id: int, name: string }}, geometry: point, objects: {{ folder: . }}, {tasks} }}
  sink: {{ file: {id}.gpkg, mode: append }}
  dead_letters: {{ store: letters.db, incident_share: 1.0 }}
"
    )
}

/// A task with a point.
fn task(kind: &str, n: u64) -> Message {
    let body = format!(
        r#"{{"kind":"{kind}","key":"p{n}","payload":{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{},{}]}},"properties":{{"id":{n},"name":"n{n}"}}}}}}"#,
        n % 180,
        n % 90
    );
    Message::new(format!("p{n}"), body)
}

/// Uses the queue of a directory.
fn queue<T>(
    dir: &Workdir,
    work: impl AsyncFnOnce(std::sync::Arc<dyn tidegate_queue::Transport>) -> Result<T, tidegate_queue::QueueError>,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = QueueAddress::parse(dir.path("tasks.db").to_str().unwrap()).unwrap();
    runtime.block_on(async {
        let queue = open(&address, &QueueOptions::new("workers", "test")).await.unwrap();
        work(queue).await.unwrap()
    })
}

fn publish(dir: &Workdir, messages: &[Message]) -> u64 {
    queue(dir, async |queue| queue.publish(messages).await)
}

fn depth(dir: &Workdir) -> QueueDepth {
    queue(dir, async |queue| queue.depth().await)
}

/// Works until the queue is empty.
fn once(dir: &Workdir, more: &[&str]) -> Ran {
    let mut args = vec!["worker", "parcels.yaml", "--once", "--format", "json"];
    args.extend(more);
    dir.command(&args).output().unwrap().into()
}

/// Works until nothing is left in the queue, also what waits for the end of a lease.
fn until_empty(dir: &Workdir) -> Vec<Ran> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut all = Vec::new();
    loop {
        all.push(once(dir, &[]));
        if depth(dir).lag() == 0 {
            return all;
        }
        assert!(
            Instant::now() < end,
            "the queue is not empty: {:?} {}",
            depth(dir),
            all.last().unwrap().stderr
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The ids in a layer, each with its number of rows.
fn rows(dir: &Workdir, layer: &str) -> BTreeMap<i64, u64> {
    let sink = Connection::open(dir.path(&format!("{layer}.gpkg"))).unwrap();
    let mut ids = sink.prepare(&format!("SELECT id FROM {layer}")).unwrap();
    let mut counts = BTreeMap::new();
    for id in ids.query_map([], |row| row.get::<_, i64>(0)).unwrap() {
        *counts.entry(id.unwrap()).or_default() += 1;
    }
    counts
}

/// The states of tasks in the sink.
fn states(dir: &Workdir, layer: &str) -> BTreeMap<String, u64> {
    let sink = Connection::open(dir.path(&format!("{layer}.gpkg"))).unwrap();
    let mut states = sink.prepare("SELECT state, count(*) FROM tidegate_task GROUP BY state").unwrap();
    let found = states.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// The codes of the dead letters.
fn letters(dir: &Workdir) -> BTreeMap<String, u64> {
    let ran: Ran =
        dir.command(&["dlq", "ls", "--store", "letters.db", "--format", "ndjson"]).output().unwrap().into();
    let mut codes = BTreeMap::new();
    for line in ran.stdout.lines() {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        *codes.entry(letter["failure"]["code"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
    }
    codes
}

fn each_once(ids: std::ops::Range<i64>) -> BTreeMap<i64, u64> {
    ids.map(|id| (id, 1)).collect()
}
