//! The `tidegate` command, as a library: the binary and the Python package are the same program.
//!
//! [`main_with`] parses the arguments, runs one command and returns its exit code. Each command is a
//! file in `verb`. Data goes to standard output, messages to standard error.
#![forbid(unsafe_code)]

mod complete;
mod deploy;
mod execute;
mod exit;
mod given;
mod host;
mod layer;
mod log;
mod metrics;
mod observe;
mod out;
mod outcome;
mod pipes;
mod predict;
mod progress;
mod remedies;
mod report;
mod stop;
mod summary;
mod verb;
mod web;

use std::ffi::OsString;
use std::io::Write;
use std::panic::{self, PanicHookInfo};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Parser;

use exit::Exit;
pub use host::{CommandOutput, Host, HostProgress, start_chaos};
use verb::Verb;

/// Move geospatial data through services that throttle, fail and return wrong answers, without losing records
#[derive(Parser)]
#[command(name = "tidegate", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = exit::HELP)]
struct Args {
    #[command(subcommand)]
    verb: Verb,

    /// Log format on standard error: human or json
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t = log::Form::Human)]
    #[arg(help_heading = "Logging", hide_possible_values = true)]
    log: log::Form,

    /// Log level: error, warn, info or debug [default: warn, or info with --log json]
    #[arg(long, global = true, value_enum, value_name = "LEVEL", help_heading = "Logging")]
    #[arg(hide_possible_values = true)]
    log_level: Option<log::LogLevel>,
}

/// The words of the command line, the name of the program first.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();
/// The program that starts this command again.
static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Runs the command with these words, the name of the program first, and returns its exit code.
/// `program` is what starts it again, for a run that tries records in a process of their own. To be
/// called once per process.
#[must_use]
pub fn main_with(words: Vec<OsString>, program: Option<PathBuf>) -> u8 {
    let words = WORDS.get_or_init(|| words);
    let _ = PROGRAM.set(program);
    panic::set_hook(Box::new(apologise));
    if complete::answers() {
        return Exit::Done as u8;
    }
    let exit = match given::parse::<Args>(words.clone()) {
        Ok(args) => pipes::close(panic::catch_unwind(|| run(&args)).unwrap_or(Exit::Failure)),
        Err(usage) => {
            // If this cannot be printed, nobody reads it.
            let _ = usage.print();
            if usage.use_stderr() { Exit::Usage } else { Exit::Done }
        }
    };
    // A host other than our own `main` does not flush it at the end.
    let _ = std::io::stdout().flush();
    exit as u8
}

/// The words of the command line, the name of the program first.
fn words() -> impl Iterator<Item = OsString> {
    WORDS.get().into_iter().flatten().cloned()
}

/// The program that starts this command again.
fn program() -> Option<PathBuf> {
    match host::current() {
        Some(host) => host.program(),
        None => PROGRAM.get().cloned().flatten(),
    }
}

/// Runs one command.
fn run(args: &Args) -> Exit {
    log::init(args.log, args.log_level);
    if args.verb.is_run()
        && let Err(why) = pipes::open()
    {
        out::say(&format!("tidegate: {why}"));
        return Exit::Usage;
    }
    perform(&args.verb)
}

/// Runs one command, with logging as it is.
fn perform(verb: &Verb) -> Exit {
    match verb.run() {
        Ok(exit) => exit,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            out::say(&format!("tidegate: cannot write the output: {error}"));
            Exit::Failure
        }
    }
}

/// Reports a panic as a bug, and what to include in the bug report.
fn apologise(info: &PanicHookInfo<'_>) {
    // A panic of a library on a damaged file is caught and reported as a file error.
    if tidegate_geo::guard::is_guarded() {
        return;
    }
    out::say(&format!(
        "tidegate {} hit an internal error. Please report this bug with the command that you ran and this line:\n  {info}",
        env!("CARGO_PKG_VERSION")
    ));
}
