//! `tidegate run`: runs a manifest.

use std::io;
use std::path::PathBuf;

use tidegate_pipeline::run::RunOptions;

use super::plan;
use crate::execute::Execution;
use crate::exit::Exit;
use crate::observe;
use crate::out::{self, OutputFormat};

/// Run a pipeline
///
/// Move every record from the source through the steps and gates into the sink. Each batch is
/// committed together with its checkpoint, so a run interrupted by Ctrl-C or `kill -9` continues
/// exactly there with --resume. The checkpoint in the sink carries the id of the run: --resume
/// never continues an older run, and rejects a sink that has since been dropped, truncated or
/// restored. A record that cannot be processed is rejected with a reason, and becomes a dead
/// letter if the manifest has `dead_letters`. A gate that halts leaves its batch uncommitted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate run parcels.yaml
  tidegate run parcels.yaml --resume     # continue or start; use this in cron
  tidegate run parcels.yaml --atomic
  tidegate run parcels.yaml --dry-run
  tidegate run parcels.yaml --report run.html --metrics 127.0.0.1:9090
  tidegate run parcels.yaml --format json | jq .written

Exit codes: 0 success; 1 failure or interrupted; 2 the manifest, source or sink cannot be used;
3 halted by a gate; 4 finished with rejected records; 5 finished, but an alert with an exit action
fired; 75 try again later: a service is down or asked to wait, another run is active, or an incident
suspended the pipeline.")]
pub(crate) struct Args {
    /// The manifest; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    variables: plan::VariableArgs,

    /// Continue the last run if it did not finish; otherwise start a new one
    #[arg(long)]
    resume: bool,

    /// Commit the whole run in one step, or nothing at all
    #[arg(long)]
    atomic: bool,

    /// Keep calling a service that rejects every record and has accepted none
    #[arg(long)]
    keep_going: bool,

    /// Read everything, although `source.since` asks only for changes
    #[arg(long)]
    full: bool,

    /// Show what the run would do and exit, as `tidegate plan` does
    #[arg(long)]
    dry_run: bool,

    /// State directory: lock, results, rejected records, cached responses
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,

    #[command(flatten)]
    observe: observe::Args,

    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,

    /// Output on standard output: none (table) or the result as JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let Some(manifest) = plan::load(&args.file, &args.variables.options()) else { return Ok(Exit::Usage) };
    if args.dry_run {
        return plan::print_plan(&manifest, &args.file, args.format, plan::Estimate::default());
    }
    Execution {
        manifest: &manifest,
        options: RunOptions {
            folder: plan::folder(&args.file),
            state: args.state.clone(),
            resume: args.resume,
            atomic: args.atomic,
            keep_going: args.keep_going,
            full: args.full,
            from_options: false,
            program: None,
            tasks: None,
        },
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "run",
        subject: args.file.display().to_string(),
        resume: out::resume_command(),
        is_part: false,
    }
    .run()
}
