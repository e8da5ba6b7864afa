//! `tidegate run`: do what a manifest says.

use std::io;
use std::path::PathBuf;

use tidegate_pipeline::run::RunOptions;

use super::plan;
use crate::execute::Execution;
use crate::exit::Exit;
use crate::observe;
use crate::out::OutputFormat;

/// Run a pipeline
///
/// Takes every record from the source through steps and gates into the sink. Each batch is
/// committed together with the position after it, so a run that was cut off, by Ctrl-C or by
/// `kill -9`, continues exactly there with --resume. Each run has an id, which the sink's checkpoint
/// carries: --resume never continues an older run, and refuses a sink that was dropped, truncated
/// or restored since. A record that cannot be handled is rejected with
/// its reason, as a dead letter if the manifest has `dead_letters`; a gate that halts leaves its
/// batch uncommitted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate run parcels.yaml
  tidegate run parcels.yaml --resume     # continue, or start: the line for cron
  tidegate run parcels.yaml --atomic
  tidegate run parcels.yaml --dry-run
  tidegate run parcels.yaml --report run.html --metrics 127.0.0.1:9090
  tidegate run parcels.yaml --format json | jq .written

Exit codes: 0 all done; 1 failure or stopped; 2 the manifest, the source or the sink cannot be used;
3 a gate halted the run; 4 finished with rejected records; 5 finished, and an alert fired that the
manifest asks to report; 75 try later: a service asks for time, another run is under way, or an
incident suspends the pipeline.")]
pub(crate) struct Args {
    /// The manifest
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Continue the last run if it did not finish; otherwise start a new one
    #[arg(long)]
    resume: bool,

    /// Make the whole run visible at once, or nothing of it
    #[arg(long)]
    atomic: bool,

    /// Ask for every record, also when a service refuses one after the other and accepts none
    #[arg(long)]
    keep_going: bool,

    /// Only show what would happen, as `tidegate plan` does
    #[arg(long)]
    dry_run: bool,

    /// Where state is kept: lock, result, rejects, answers of services
    #[arg(long, value_name = "DIR", default_value = ".tidegate")]
    state: PathBuf,

    #[command(flatten)]
    observe: observe::Args,

    /// No progress and no summary
    #[arg(long, short)]
    quiet: bool,

    /// What goes to standard output: nothing, or the result as JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let Some(manifest) = plan::load(&args.file) else { return Ok(Exit::Usage) };
    if args.dry_run {
        return plan::print_plan(&manifest, &args.file, args.format, (None, None));
    }
    Execution {
        manifest: &manifest,
        options: RunOptions {
            folder: plan::folder(&args.file),
            state: args.state.clone(),
            resume: args.resume,
            atomic: args.atomic,
            keep_going: args.keep_going,
            from_options: false,
        },
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "run",
        subject: args.file.display().to_string(),
        resume: format!("tidegate run {} --resume", args.file.display()),
    }
    .run()
}
