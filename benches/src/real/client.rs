//! The clients: processes that are given a server, rows and a time limit.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_sim::real_limiter::REQUESTS;

use crate::Args;

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Tidegate,
    Rust(&'static str),
    Python(&'static str),
}

/// The peers, by the name they are called with.
const PEERS: [Client; 3] = [Client::Rust("reqwest-retry"), Client::Rust("backon"), Client::Python("stamina")];

/// What the processes of one run came to.
pub(crate) struct RunEnd {
    /// Rows with an answer.
    pub(crate) answered: u64,
    pub(crate) timed_out: bool,
}

impl Client {
    /// The peers that were named.
    pub(crate) fn peers(names: &[String]) -> Result<Vec<Client>, String> {
        let mut chosen = Vec::new();
        for name in names {
            match PEERS.iter().find(|client| client.name() == name) {
                _ if name == "all" => chosen.extend(PEERS),
                Some(client) => chosen.push(*client),
                None => return Err(format!("no peer is called {name:?}")),
            }
        }
        Ok(chosen)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Tidegate => "Tidegate",
            Client::Rust(name) | Client::Python(name) => name,
        }
    }
}

/// Runs `count` processes at once, each with its part of the rows.
pub(crate) fn run(args: &Args, client: Client, count: u64, url: &str) -> Result<RunEnd, String> {
    let until = Instant::now() + args.programs.timeout;
    let rows = REQUESTS / count;
    let children: Result<Vec<Child>, String> =
        (0..count).map(|n| start(args, client, n, rows, url)).collect();
    let mut timed_out = false;
    for mut child in children? {
        while child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if Instant::now() >= until {
                timed_out = true;
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let answered = (0..count).map(|n| answered(client, &args.work.join(n.to_string()))).sum();
    Ok(RunEnd { answered, timed_out })
}

fn start(args: &Args, client: Client, n: u64, rows: u64, url: &str) -> Result<Child, String> {
    let work = args.work.join(n.to_string());
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let (count, workers) = (rows.to_string(), args.programs.workers.to_string());
    let mut command = match client {
        Client::Tidegate => {
            let lines = (n * rows..(n + 1) * rows).map(|row| format!("{row},{row} Harbour Street\n"));
            let text: String = std::iter::once("id,address\n".to_owned()).chain(lines).collect();
            fs::write(work.join("rows.csv"), text).map_err(|e| e.to_string())?;
            let mut command = Command::new(&args.programs.tidegate);
            command.arg("geocode").arg(work.join("rows.csv")).args(["--address", "address", "--url", url]);
            command.args(["--in-flight", &workers, "--quiet", "--format", "json", "--no-cache"]);
            command.arg("--state").arg(work.join("state")).arg("-o").arg(work.join("out.geojsonl"));
            command
        }
        Client::Rust(name) => {
            let mut command = Command::new(&args.programs.rust);
            command.args([name, "geocode", url, &count, &workers]);
            command
        }
        Client::Python(name) => {
            let mut command = Command::new(&args.programs.python);
            command.args(["benches/peers/peers.py", name, "geocode", url, &count, &workers]);
            command
        }
    };
    let file = |name: &str| File::create(work.join(name)).map_err(|e| format!("{name}: {e}"));
    command.stdin(Stdio::null()).stdout(file("stdout")?).stderr(file("stderr")?);
    command.spawn().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))
}

/// Rows with an answer, by the client's own account.
fn answered(client: Client, work: &Path) -> u64 {
    if client == Client::Tidegate {
        let text = fs::read_to_string(work.join("out.geojsonl")).unwrap_or_default();
        let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let outcome =
            |row: &Value| row.pointer("/properties/outcome").and_then(Value::as_str).map(str::to_owned);
        return rows.filter(|row| matches!(outcome(row).as_deref(), Some("matched" | "no_match"))).count()
            as u64;
    }
    let text = fs::read_to_string(work.join("stdout")).unwrap_or_default();
    let tally: Value =
        text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    tally.get("answered").and_then(Value::as_u64).unwrap_or(0)
}

/// Makes an empty directory.
pub(crate) fn empty(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}
