//! The `tidegate` command.
//!
//! `main` parses the arguments, runs one command and returns its exit code. Each command is a file
//! in [`verb`]. Data goes to standard output, messages to standard error.
#![forbid(unsafe_code)]

mod complete;
mod deploy;
mod execute;
mod exit;
mod layer;
mod log;
mod metrics;
mod observe;
mod out;
mod predict;
mod progress;
mod remedies;
mod report;
mod stop;
mod summary;
mod verb;
mod web;

use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;

use clap::Parser;

use exit::Exit;
use verb::Verb;

/// Records are read, called, and written by different threads, which would contend for the locks of
/// the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

fn main() -> ExitCode {
    panic::set_hook(Box::new(apologise));
    if complete::answers() {
        return Exit::Done.into();
    }
    match Args::try_parse() {
        Ok(args) => panic::catch_unwind(|| run(&args)).unwrap_or(Exit::Failure).into(),
        Err(usage) => {
            // If this cannot be printed, nobody reads it.
            let _ = usage.print();
            if usage.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

/// Runs one command.
fn run(args: &Args) -> Exit {
    log::init(args.log, args.log_level);
    match args.verb.run() {
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
    if tidegate_geo::format::parquet::is_guarded() {
        return;
    }
    out::say(&format!(
        "tidegate {} hit an internal error. Please report this bug with the command that you ran and this line:\n  {info}",
        env!("CARGO_PKG_VERSION")
    ));
}
