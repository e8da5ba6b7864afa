//! The `tidegate` command.
//!
//! `main` is thin: it reads the arguments, runs one verb and turns its outcome into an exit code.
//! Each verb is a file in [`verb`]. Data goes to standard output, words to standard error.
#![forbid(unsafe_code)]

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

/// Rows are read by one thread, asked by others and written by a fourth: the system's allocator would
/// have them wait for each other.
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
    match Args::try_parse() {
        Ok(args) => panic::catch_unwind(|| run(&args)).unwrap_or(Exit::Failure).into(),
        Err(usage) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = usage.print();
            if usage.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

/// Runs one verb.
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

/// Says that the fault is ours, and what to report.
fn apologise(info: &PanicHookInfo<'_>) {
    // A damaged file that a library stumbles over is told as such.
    if tidegate_geo::format::parquet::is_guarded() {
        return;
    }
    out::say(&format!(
        "tidegate {} hit an internal error. Please report this bug with the command that you ran and this line:\n  {info}",
        env!("CARGO_PKG_VERSION")
    ));
}
