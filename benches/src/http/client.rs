//! The clients: processes that are given a server, rows and a time limit.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_chaos::{Chaos, Config, Handle, Stats};

use crate::scenario::{Job, Scenario};

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Tidegate,
    Rust(&'static str),
    Python(&'static str),
}

/// All peers, by the name they are called with.
const PEERS: [(Client, &str); 8] = [
    (Client::Rust("knows"), "knows the limit"),
    (Client::Rust("reqwest"), "bare reqwest"),
    (Client::Rust("reqwest-retry"), "reqwest-retry"),
    (Client::Rust("backon"), "reqwest + backon"),
    (Client::Rust("object_store"), "object_store"),
    (Client::Python("stamina"), "httpx + stamina (aio)"),
    (Client::Python("tenacity"), "httpx + tenacity (aio)"),
    (Client::Python("urllib3"), "urllib3 Retry (threads)"),
];

impl Client {
    /// Tidegate and the peers that were named.
    pub(crate) fn chosen(names: &[String]) -> Result<Vec<Client>, String> {
        let mut chosen = vec![Client::Tidegate];
        for name in names {
            if name == "all" {
                chosen.extend(PEERS.iter().map(|(client, _)| *client));
                continue;
            }
            match PEERS.iter().find(|(client, _)| client.name() == name) {
                Some((client, _)) => chosen.push(*client),
                None => return Err(format!("no peer is called {name:?}")),
            }
        }
        Ok(chosen)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Tidegate => "tidegate",
            Client::Rust(name) | Client::Python(name) => name,
        }
    }

    /// The name as people say it.
    pub(crate) fn words(self) -> &'static str {
        PEERS.iter().find(|(client, _)| *client == self).map_or("Tidegate", |(_, words)| words)
    }

    /// Whether this client can do this scenario's job and its figure would say something.
    pub(crate) fn takes(self, scenario: &Scenario) -> bool {
        let put = scenario.job == Job::Put;
        match self {
            Client::Tidegate => true,
            _ if scenario.job == Job::Fetch => self == Client::Rust("reqwest"),
            _ if scenario.kill || (scenario.cache && scenario.target.rows_per_second.is_some()) => false,
            Client::Rust("object_store") => put,
            Client::Rust("knows") => !scenario.told.is_empty(),
            Client::Rust(_) => true,
            Client::Python(_) => scenario.target.rows_per_second.is_none(),
        }
    }
}

/// Where things are and how long a run may take.
pub(crate) struct Place {
    pub(crate) tidegate: PathBuf,
    pub(crate) rust: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) workers: u64,
    pub(crate) timeout: Duration,
}

/// What one run came to.
pub(crate) struct Run {
    pub(crate) seed: u64,
    /// Rows with an answer; no match is one.
    pub(crate) answered: u64,
    /// Rows the server refused for good.
    pub(crate) refused: u64,
    /// Answers that were delivered twice; of a layer, features that were written twice.
    pub(crate) twice: u64,
    /// Of the process, from start to end.
    pub(crate) wall: Duration,
    /// Of the process, user and system.
    pub(crate) cpu: Duration,
    pub(crate) timed_out: bool,
    pub(crate) stats: Stats,
}

/// One run against a server of its own.
pub(crate) fn run(client: Client, scenario: &Scenario, seed: u64, place: &Place) -> Result<Run, String> {
    let server = Chaos::start(Config { seed, ..scenario.server.clone() }).map_err(|e| e.to_string())?;
    empty(&place.work)?;
    if client == Client::Tidegate {
        match scenario.job {
            Job::Put => write_files(&place.work.join("tiles"), scenario.rows)?,
            Job::Geocode => write_rows(&place.work.join("rows.csv"), scenario.rows)?,
            Job::Fetch => {}
        }
    }
    let (before, began) = (cpu_of_children(), Instant::now());
    let mut timed_out = false;
    for kill_at in kills(scenario) {
        let child = start(client, scenario, &server, place, kill_at.resumed)?;
        timed_out |=
            wait(child, place.timeout, || kill_at.requests.is_some_and(|n| server.stats().requests >= n))?;
    }
    let wall = began.elapsed();
    let cpu = cpu_of_children().saturating_sub(before);
    let stats = server.stats();
    let out = place.work.join(if client == Client::Tidegate { "out.geojsonl" } else { "stdout" });
    let mut twice = stats.duplicates_executed;
    let (answered, refused) = match (client, scenario.job) {
        (_, Job::Fetch) => {
            let (once, again) = features(&out);
            twice = again;
            (once, 0)
        }
        // It says nothing about what went well; the server knows what it has taken.
        (Client::Tidegate, Job::Put) => (stats.executed, 0),
        (Client::Tidegate, Job::Geocode) => rows_of_tidegate(&out),
        _ => rows_of_peer(&out),
    };
    Ok(Run { seed, answered, refused, twice, wall, cpu, timed_out, stats })
}

struct Leg {
    resumed: bool,
    /// The process is killed when the server has seen so many requests.
    requests: Option<u64>,
}

fn kills(scenario: &Scenario) -> Vec<Leg> {
    let mut legs = Vec::new();
    if scenario.kill {
        legs.push(Leg { resumed: false, requests: Some(scenario.rows * 3 / 10) });
        legs.push(Leg { resumed: true, requests: Some(scenario.rows * 7 / 10) });
    }
    legs.push(Leg { resumed: scenario.kill, requests: None });
    legs
}

fn start(
    client: Client,
    scenario: &Scenario,
    server: &Handle,
    place: &Place,
    resumed: bool,
) -> Result<Child, String> {
    let (rows, workers) = (scenario.rows.to_string(), place.workers.to_string());
    let job = match scenario.job {
        Job::Geocode => "geocode",
        Job::Put => "put",
        Job::Fetch => "fetch",
    };
    let url = server.url();
    let mut command = match client {
        Client::Tidegate if scenario.job == Job::Fetch => {
            let mut command = Command::new(&place.tidegate);
            command.args(["fetch", &format!("{url}/ogc/collections/parcels"), "--profile", "ogcapi"]);
            command.args(["--quiet", "--format", "json"]);
            command.arg("--state").arg(place.work.join("state"));
            command.arg("-o").arg(place.work.join("out.geojsonl"));
            command
        }
        Client::Tidegate if scenario.job == Job::Put => {
            let mut command = Command::new(&place.tidegate);
            command.args(["store", "--endpoint", &format!("{url}/s3"), "--anonymous", "put", "s3://tiles/z"]);
            command.args((0..scenario.rows).map(|row| place.work.join(format!("tiles/{row}.txt"))));
            command
        }
        Client::Tidegate => {
            let mut command = Command::new(&place.tidegate);
            command.arg("geocode").arg(place.work.join("rows.csv")).args(["--address", "address"]);
            command.args(["--url", &url, "--in-flight", &workers, "--quiet", "--format", "json"]);
            command.arg("-o").arg(place.work.join("out.geojsonl"));
            if scenario.cache {
                command.arg("--state").arg(place.work.join("state"));
            } else {
                command.arg("--no-cache");
            }
            if resumed {
                command.arg("--resume");
            }
            command
        }
        Client::Rust(name) => {
            let mut command = Command::new(&place.rust);
            command.args([name, job, &url, &rows, &workers]).args(scenario.told);
            command
        }
        Client::Python(name) => {
            let mut command = Command::new(&place.python);
            command.args(["benches/peers/peers.py", name, job, &url, &rows, &workers]);
            command
        }
    };
    let file = |name: &str| File::create(place.work.join(name)).map_err(|e| format!("{name}: {e}"));
    command.stdin(Stdio::null()).stdout(file("stdout")?).stderr(file("stderr")?);
    command.spawn().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))
}

/// Waits for the end, kills when it is time, and says whether the time limit was what ended it.
fn wait(mut child: Child, timeout: Duration, mut enough: impl FnMut() -> bool) -> Result<bool, String> {
    let until = Instant::now() + timeout;
    loop {
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            return Ok(false);
        }
        let late = Instant::now() >= until;
        if late || enough() {
            child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
            return Ok(late);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn empty(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn write_rows(path: &Path, rows: u64) -> Result<(), String> {
    let lines = (0..rows).map(|row| format!("{row},{row} Harbour Street\n"));
    let text: String = std::iter::once("id,address\n".to_string()).chain(lines).collect();
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn write_files(dir: &Path, files: u64) -> Result<(), String> {
    empty(dir)?;
    (0..files).try_for_each(|row| {
        let path = dir.join(format!("{row}.txt"));
        fs::write(&path, format!("tile {row}")).map_err(|e| format!("{}: {e}", path.display()))
    })
}

/// Rows in Tidegate's own output, by what became of them. A row refused for good carries the
/// code of a request that the server will never take.
fn rows_of_tidegate(path: &Path) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let (mut answered, mut refused) = (0, 0);
    for row in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let outcome = row.pointer("/properties/outcome").and_then(Value::as_str);
        let code = row.pointer("/properties/error_code").and_then(Value::as_str);
        match (outcome, code) {
            (Some("matched" | "no_match"), _) => answered += 1,
            (Some("failed"), Some("BAD_REQUEST")) => refused += 1,
            _ => {}
        }
    }
    (answered, refused)
}

fn rows_of_peer(path: &Path) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let tally: Value =
        text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let count = |name| tally.get(name).and_then(Value::as_u64).unwrap_or(0);
    (count("answered"), count("refused"))
}

/// Features of a layer that was written: how many, and how many more than once.
fn features(path: &Path) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let id = |line| serde_json::from_str::<Value>(line).ok()?.pointer("/properties/id")?.as_u64();
    let mut seen = HashSet::new();
    let again = text.lines().filter_map(id).filter(|id| !seen.insert(*id)).count();
    (seen.len() as u64, again as u64)
}

/// CPU time of all children that have ended, in steps of 10 ms.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
