//! `tidegate lanes`: what lanes remember, and how to make them forget it.
//!
//! A wait that a server asked for outlives the process, so there must be a way to see it and to end it. The
//! verb shows what is stored as it is stored; lanes bound it when they read it. A process that runs knows its
//! waits by itself and writes them again, so that those of a lane in use are forgotten only when it has ended.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};
use tidegate_client::lane::{Fleet, LANE_FILE, StoredLane, WhenUnreachable, clear_stored, stored};
use tidegate_client::secret::SecretRef;
use tidegate_core::Wall;
use tidegate_core::hint::WAIT_MAX;
use tidegate_core::lane::LaneState;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::letter::now_ms;
use tokio::runtime::{Builder, Runtime};

use super::calls;
use super::dlq::table::table;
use crate::execute::counted;
use crate::exit::{CommandFailure, Exit, failure, usage};
use crate::given::GivenAddress;
use crate::out::{self, OutputFormat};

/// The variable with the URL of the server at which lanes are shared.
const VARIABLE: &str = "TIDEGATE_LANES";

/// Show and clear what lanes remember of servers
///
/// A lane remembers until when its server wants no calls: because of Retry-After, a spent quota or an open
/// breaker. Those of this machine are in the state directory, those of a fleet at its server.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate lanes ls
  tidegate lanes ls --shared env:LANES_URL --format json
  tidegate lanes clear geo.example
  tidegate lanes clear --all --state /var/lib/tidegate

Exit codes: 0 success; 1 failure, such as a damaged file; 2 usage error; 75 the server of the fleet cannot
be reached, try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the lanes: host, until when it is shut and why, learned limit, where that is kept
    Ls(List),
    /// Forget the waits of the lanes of a host, or of all
    ///
    /// A process that runs keeps what it knows and writes it again; stop it first.
    Clear(Clear),
}

/// Where lanes are kept.
#[derive(clap::Args)]
struct LanePlaces {
    /// State directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = calls::state_dir())]
    state: PathBuf,
    /// Server at which machines share lanes: env:NAME or file:PATH with its URL, or a URL without a password
    /// [default: TIDEGATE_LANES, if it is set]
    #[arg(long, value_name = "SERVER")]
    shared: Option<GivenAddress>,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    places: LanePlaces,
}

#[derive(clap::Args)]
struct Clear {
    /// Host as `lanes ls` shows it, with or without its port, or the id of a lane
    #[arg(value_name = "HOST", required_unless_present = "all")]
    host: Option<String>,
    /// Forget the waits of all lanes
    #[arg(long, conflicts_with = "host")]
    all: bool,
    #[command(flatten)]
    places: LanePlaces,
}

/// The lanes of one place.
struct PlacedLanes {
    place: LanePlace,
    lanes: Vec<StoredLane>,
}

/// Where lanes are kept.
enum LanePlace {
    File(PathBuf),
    Fleet(String),
}

impl LanePlace {
    fn to_json(&self) -> Value {
        match self {
            LanePlace::File(path) => json!({ "kind": "file", "place": path }),
            LanePlace::Fleet(server) => json!({ "kind": "fleet", "place": server }),
        }
    }

    fn shown(&self) -> String {
        match self {
            LanePlace::File(path) => path.display().to_string(),
            LanePlace::Fleet(server) => server.clone(),
        }
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let done = match &args.what {
        Command::Ls(list) => ls(list),
        Command::Clear(clear) => run_clear(clear),
    };
    match done {
        Ok(exit) => Ok(exit),
        Err(CommandFailure(exit, why)) => {
            out::say(&format!("tidegate lanes: {why}"));
            Ok(exit)
        }
    }
}

impl LanePlaces {
    fn file(&self) -> LanePlace {
        LanePlace::File(self.state.join(LANE_FILE))
    }

    /// The server of the fleet, if one is named.
    fn fleet(&self) -> Result<Option<Fleet>, CommandFailure> {
        let (url, named) = match &self.shared {
            Some(given) => (given.fetch().map_err(|why| usage(format!("--shared: {why}")))?, "--shared"),
            None => match SecretRef::Env(VARIABLE.to_owned()).fetch() {
                Ok(url) => (url, VARIABLE),
                Err(_) => return Ok(None),
            },
        };
        let fleet = Fleet::new(&url, WhenUnreachable::default());
        fleet.map(Some).map_err(|why| usage(format!("{named}: {why}")))
    }
}

fn runtime() -> Result<Runtime, CommandFailure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn unreachable(fleet: &Fleet, why: &io::Error) -> CommandFailure {
    CommandFailure(Exit::TryLater, format!("{}: {why}", fleet.server()))
}

/// Why a lane is shut, and until when.
fn shut(state: &LaneState) -> Option<(Wall, String)> {
    let until = state.not_before()?;
    let why = match state.hint.filter(|hint| hint.until == until) {
        Some(hint) if hint.retry_after => format!("{} (Retry-After: {})", hint.code, hint.asked_seconds),
        Some(hint) => format!("{} ({} s)", hint.code, hint.asked_seconds),
        None if state.quota_until == Some(until) => "QUOTA_EXHAUSTED".to_owned(),
        None => "CIRCUIT_OPEN".to_owned(),
    };
    Some((until, why))
}

/// Whether a time is farther away than servers are obeyed for.
fn is_beyond(until: Wall, now: Wall) -> bool {
    i128::from(until.millis_since(now)) > i128::try_from(WAIT_MAX.as_millis()).unwrap_or(i128::MAX)
}

fn lane_json(place: &LanePlace, lane: &StoredLane, now: Wall) -> Value {
    let time = |at: Wall| rfc3339(at.millis());
    let state = lane.state.after(now);
    let shut = shut(&state);
    let hint = state.hint.map(|hint| {
        json!({
            "until": time(hint.until),
            "asked_seconds": hint.asked_seconds,
            "code": hint.code.as_str(),
            "retry_after": hint.retry_after,
        })
    });
    json!({
        "id": lane.id,
        "host": lane.host,
        "not_before": shut.as_ref().map(|(until, _)| time(*until)),
        "why": shut.as_ref().map(|(_, why)| why),
        "is_cut_when_read": shut.as_ref().is_some_and(|(until, _)| is_beyond(*until, now)),
        "hint": hint,
        "quota_until": state.quota_until.map(time),
        "breaker_until": state.breaker_until.map(time),
        "rate_per_second": lane.rate,
        "in_flight": lane.in_flight,
        "kept": place.to_json(),
        "is_in_use": lane.is_owned,
    })
}

fn cells(place: &LanePlace, lane: &StoredLane, now: Wall) -> Vec<String> {
    let state = lane.state.after(now);
    let (until, why) = match shut(&state) {
        Some((until, why)) if is_beyond(until, now) => {
            (rfc3339(until.millis()), format!("{why}, cut when it is read"))
        }
        Some((until, why)) => (rfc3339(until.millis()), why),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let limit = match (lane.rate, lane.in_flight) {
        (Some(rate), _) => format!("{rate:.2}/s"),
        (None, Some(calls)) => format!("{calls} at once"),
        (None, None) => "-".to_owned(),
    };
    let host = if lane.host.is_empty() { "?".to_owned() } else { lane.host.clone() };
    vec![host, until, why, limit, lane.id.clone(), place.shown()]
}

fn ls(args: &List) -> Result<Exit, CommandFailure> {
    let places = &args.places;
    let mut all = vec![PlacedLanes { place: places.file(), lanes: stored(&places.state).map_err(failure)? }];
    if let Some(fleet) = places.fleet()? {
        let lanes = runtime()?.block_on(fleet.stored()).map_err(|why| unreachable(&fleet, &why))?;
        all.push(PlacedLanes { place: LanePlace::Fleet(fleet.server().to_owned()), lanes });
    }
    let now = Wall::from_millis(now_ms());
    let each = || all.iter().flat_map(|kept| kept.lanes.iter().map(|lane| (&kept.place, lane)));
    match places.format {
        OutputFormat::Json => {
            let lanes: Vec<Value> = each().map(|(place, lane)| lane_json(place, lane, now)).collect();
            out::data(&format!("{:#}\n", json!({ "lanes": lanes })))?;
        }
        OutputFormat::Table if each().next().is_none() => {
            let shown: Vec<String> = all.iter().map(|kept| kept.place.shown()).collect();
            out::say(&format!("no lane remembers anything in {}", shown.join(" and ")));
        }
        OutputFormat::Table => {
            let rows: Vec<Vec<String>> = each().map(|(place, lane)| cells(place, lane, now)).collect();
            out::data(&table(&["host", "not before", "why", "limit", "id", "kept in"], &rows, &[]))?;
        }
    }
    Ok(Exit::Done)
}

fn run_clear(args: &Clear) -> Result<Exit, CommandFailure> {
    let (places, host) = (&args.places, args.host.as_deref());
    // A server that cannot be named must not leave half of the work done.
    let fleet = places.fleet()?;
    let lanes = clear_stored(&places.state, host)?;
    let mut all = vec![PlacedLanes { place: places.file(), lanes }];
    if let Some(fleet) = fleet {
        let cleared = runtime()?.block_on(fleet.clear_stored(host));
        let lanes = cleared.map_err(|why| unreachable(&fleet, &why))?;
        all.push(PlacedLanes { place: LanePlace::Fleet(fleet.server().to_owned()), lanes });
    }
    let now = Wall::from_millis(now_ms());
    let each = || all.iter().flat_map(|kept| kept.lanes.iter().map(|lane| (&kept.place, lane)));
    match places.format {
        OutputFormat::Json => {
            let lanes: Vec<Value> = each().map(|(place, lane)| lane_json(place, lane, now)).collect();
            out::data(&format!("{:#}\n", json!({ "cleared": lanes })))?;
        }
        OutputFormat::Table => {
            for kept in all.iter().filter(|kept| !kept.lanes.is_empty()) {
                let count = counted(kept.lanes.len() as u64, "lane", "lanes");
                out::say(&format!("forgot the waits of {count} in {}", kept.place.shown()));
            }
            if each().next().is_none() {
                let of = host.map(|host| format!(" of {host}")).unwrap_or_default();
                out::say(&format!("no lane{of} remembers anything"));
            }
        }
    }
    let in_use: Vec<&str> =
        each().filter(|(_, lane)| lane.is_owned == Some(true)).map(|(_, lane)| lane.host.as_str()).collect();
    if !in_use.is_empty() {
        out::say(&format!(
            "warning: processes use lanes of {} now; what they know they write again",
            in_use.join(", ")
        ));
    }
    Ok(Exit::Done)
}
