//! `tidegate queue`: looks at the queue of a pipeline and at its tasks.
//!
//! A queue knows which messages it holds, the sink knows what became of the tasks. Each command says
//! which of the two it asked; nothing is taken from counters of its own.

mod drain;
mod look;
pub(super) mod open;

use std::io;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_pipeline::sink::TaskState;

use crate::execute::counted;
use crate::exit::{CommandFailure, Exit, usage};
use crate::out;
use crate::verb::plan::ManifestArg;
use open::{OpenTaskQueue, QueueAccess};

/// Show and manage the queue of a pipeline and its tasks
///
/// MANIFEST is the manifest of a pipeline whose source is a queue. The queue holds messages; the
/// states of the tasks are in the sink: queued, running, done, dead, cancelled.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate queue ls parcels.yaml --state dead
  tidegate queue lag parcels.yaml --format json
  tidegate queue peek parcels.yaml -n 3
  tidegate queue drain parcels.yaml --timeout 10m
  tidegate queue cancel parcels.yaml 12/2200/1430
  tidegate queue purge parcels.yaml --yes

Exit codes: 0 success; 1 failure; 2 usage error, or the source is not a queue; 75 the queue or the
sink is down, or `drain` ran into its timeout: try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
    /// Output format
    #[arg(long, value_enum, default_value_t = TaskFormat::Table, global = true)]
    format: TaskFormat,
}

/// The output format of lists of tasks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::verb) enum TaskFormat {
    /// Text
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Ndjson,
}

#[derive(clap::Subcommand)]
enum Command {
    Ls(look::TaskList),
    Lag(look::Lag),
    Peek(look::Peek),
    Drain(drain::Drain),
    Cancel(Cancel),
    Purge(QueuePurge),
}

/// Cancel tasks that have not ended
///
/// A worker that holds one of them cannot commit it any more, and its message is dropped when it is
/// delivered. A task that was never seen is cancelled in advance. Tasks that have ended stay as they
/// are.
#[derive(clap::Args)]
struct Cancel {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Keys of tasks
    #[arg(value_name = "KEY", required_unless_present = "all")]
    keys: Vec<String>,
    /// Cancel all tasks that are queued
    #[arg(long, conflicts_with = "keys")]
    all: bool,
}

/// Delete all messages of the queue
///
/// The tasks stay queued in the sink. To have them done after all, submit them with --republish; to
/// give them up, use `queue cancel --all`.
#[derive(clap::Args)]
struct QueuePurge {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Delete without asking
    #[arg(short, long)]
    yes: bool,
}

type QueueDone = Result<Exit, CommandFailure>;

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let done = match &args.what {
        Command::Ls(ls) => look::ls(ls, args.format),
        Command::Lag(lag) => look::lag(lag, args.format),
        Command::Peek(peek) => look::peek(peek, args.format),
        Command::Drain(drain) => drain::run(drain, args.format),
        Command::Cancel(cancel) => run_cancel(cancel, args.format),
        Command::Purge(purge) => run_purge(purge, args.format),
    };
    match done {
        Ok(exit) => Ok(exit),
        // A reader that has gone.
        Err(CommandFailure(_, why)) if why.contains("Broken pipe") => Ok(Exit::Done),
        Err(CommandFailure(exit, why)) => {
            out::say(&format!("tidegate queue: {why}"));
            Ok(exit)
        }
    }
}

/// Prints one JSON document, or says a sentence.
fn print(format: TaskFormat, value: &Value, said: &str) -> Result<(), CommandFailure> {
    match format {
        TaskFormat::Table => out::say(said),
        TaskFormat::Json => out::data(&format!("{value:#}\n"))?,
        TaskFormat::Ndjson => out::data(&format!("{value}\n"))?,
    }
    Ok(())
}

fn run_cancel(args: &Cancel, format: TaskFormat) -> QueueDone {
    let mut tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Write)?;
    let mut were = [0; 6];
    let mut cancel = |tasks: &mut OpenTaskQueue, keys: &[String]| -> Result<(), CommandFailure> {
        for state in tasks.table(|table| table.cancel(keys))?.unwrap_or_default() {
            let at = state.and_then(|state| TaskState::ALL.iter().position(|other| *other == state));
            if let Some(count) = were.get_mut(at.unwrap_or(5)) {
                *count += 1;
            }
        }
        Ok(())
    };
    if args.all {
        // Those that are cancelled are not listed any more.
        loop {
            let rows = tasks.table(|table| table.list(Some(TaskState::Queued), None, 1000))?;
            let keys: Vec<String> = rows.unwrap_or_default().into_iter().map(|row| row.key).collect();
            if keys.is_empty() {
                break;
            }
            cancel(&mut tasks, &keys)?;
        }
    }
    for keys in args.keys.chunks(1000) {
        cancel(&mut tasks, keys)?;
    }
    let [queued, running, done, dead, before, unseen] = were;
    let cancelled = queued + running + unseen;
    let mut said = format!("cancelled {}", counted(cancelled, "task", "tasks"));
    let details = [(running, "was running", "were running"), (unseen, "was never seen", "were never seen")];
    let details: Vec<String> =
        details.iter().filter(|(n, ..)| *n > 0).map(|(n, one, more)| counted(*n, one, more)).collect();
    if !details.is_empty() {
        said.push_str(&format!(" ({})", details.join(", ")));
    }
    if done + dead + before > 0 {
        said.push_str(&format!(
            "; {} had ended before: {done} done, {dead} dead, {before} cancelled",
            counted(done + dead + before, "task", "tasks")
        ));
    }
    let value = json!({
        "cancelled": cancelled,
        "were": { "queued": queued, "running": running, "unseen": unseen,
                  "done": done, "dead": dead, "cancelled": before },
    });
    print(format, &value, &said)?;
    Ok(Exit::Done)
}

fn run_purge(args: &QueuePurge, format: TaskFormat) -> QueueDone {
    let mut tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Ask)?;
    let all = match tasks.depth() {
        Ok(depth) => counted(depth.lag(), "message", "messages"),
        // Some servers do not tell.
        Err(_) => "messages that it cannot count".to_owned(),
    };
    if !args.yes {
        let (stdin, mut stderr) = (io::stdin(), io::stderr());
        if !stdin.is_terminal() || !stderr.is_terminal() {
            return Err(usage(format!(
                "{} holds {all}. Nothing was deleted; pass --yes to delete them",
                tasks.queue.address
            )));
        }
        write!(stderr, "{} holds {all}. Delete them for good? [y/N] ", tasks.queue.address)?;
        stderr.flush()?;
        let mut answer = String::new();
        stdin.read_line(&mut answer)?;
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            out::say("nothing was deleted");
            return Ok(Exit::Failure);
        }
    }
    let deleted = tasks.ask(async |transport| transport.purge().await)?;
    let queued = tasks.counts()?[0];
    let mut said = match deleted {
        Some(n) => format!("deleted {}", counted(n, "message", "messages")),
        None => "deleted all messages; the server does not say how many".to_owned(),
    };
    if queued > 0 {
        said.push_str(&format!(
            "; {} still queued in the sink: submit them with --republish, or cancel them with `queue cancel --all`",
            counted(queued, "task is", "tasks are")
        ));
    }
    print(format, &json!({ "deleted": deleted, "queued_in_sink": queued }), &said)?;
    Ok(Exit::Done)
}
