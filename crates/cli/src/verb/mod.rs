//! The commands, one file each.
//!
//! To add one, write a file with `Args` and `run`, and add a variant here. `run` returns the exit
//! code; its only error is that the output cannot be written.

pub(crate) mod audit;
mod calls;
pub(crate) mod chaos;
mod check;
mod cloud;
mod completions;
mod convert;
mod demo;
mod deploy;
mod dlq;
mod doctor;
mod fetch;
mod geocode;
mod init;
mod inspect;
mod keys;
mod lanes;
mod man;
mod plan;
mod profiles;
mod queue;
mod raster;
mod run;
mod schema;
mod serve;
mod simulate;
mod store;
mod submit;
mod validate;
mod worker;

use std::io;

use clap::Subcommand;
use tidegate_pipeline::run::try_records;

use crate::exit::Exit;

/// A command.
#[derive(Subcommand)]
pub(crate) enum Verb {
    Init(init::Args),
    Validate(validate::Args),
    Plan(plan::Args),
    Run(run::Args),
    Serve(Box<serve::Args>),
    Worker(worker::Args),
    Submit(Box<submit::Args>),
    Queue(queue::Args),
    Schema(schema::Args),
    Simulate(simulate::Args),
    Fetch(Box<fetch::Args>),
    Geocode(Box<geocode::Args>),
    Convert(Box<convert::Args>),
    Inspect(inspect::Args),
    Check(check::Args),
    Raster(Box<raster::Args>),
    Demo(demo::Args),
    Deploy(deploy::Args),
    Store(Box<store::Args>),
    Dlq(dlq::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Keys(keys::Args),
    Lanes(lanes::Args),
    Chaos(Box<chaos::Args>),
    Profiles(profiles::Args),
    Completions(completions::Args),
    Man(man::Args),
    /// Try records alone: started by a run after the process died twice
    #[command(hide = true)]
    TryRecords,
}

impl Verb {
    /// Whether it runs a pipeline, which reports to Dagster if that started it.
    pub(crate) fn is_run(&self) -> bool {
        matches!(self, Verb::Run(_) | Verb::Geocode(_) | Verb::Fetch(_))
    }

    /// Runs the command.
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Verb::Init(args) => init::run(args),
            Verb::Plan(args) => plan::run(args),
            Verb::Run(args) => run::run(args),
            Verb::Serve(args) => serve::run(args),
            Verb::Worker(args) => worker::run(args),
            Verb::Validate(args) => validate::run(args),
            Verb::Submit(args) => submit::run(args),
            Verb::Queue(args) => queue::run(args),
            Verb::Schema(args) => schema::run(args),
            Verb::Simulate(args) => simulate::run(args),
            Verb::Fetch(args) => fetch::run(args),
            Verb::Geocode(args) => geocode::run(args),
            Verb::Convert(args) => convert::run(args),
            Verb::Inspect(args) => inspect::run(args),
            Verb::Check(args) => check::run(args),
            Verb::Raster(args) => raster::run(args),
            Verb::Demo(args) => demo::run(args),
            Verb::Deploy(args) => deploy::run(args),
            Verb::Store(args) => store::run(args),
            Verb::Dlq(args) => dlq::run(args),
            Verb::Audit(args) => audit::run(args),
            Verb::Doctor(args) => doctor::run(args),
            Verb::Keys(args) => keys::run(args),
            Verb::Lanes(args) => lanes::run(args),
            Verb::Chaos(args) => chaos::run(args),
            Verb::Profiles(args) => profiles::run(args),
            Verb::Completions(args) => completions::run(args),
            Verb::Man(args) => man::run(args),
            // The run that started it learns what it needs from its last line.
            Verb::TryRecords => Ok(if try_records().is_ok() { Exit::Done } else { Exit::Failure }),
        }
    }
}

/// Whether two paths are the same existing file.
fn same_file(a: &std::path::Path, b: &std::path::Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
