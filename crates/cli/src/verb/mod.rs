//! The verbs, one file each.
//!
//! To add one: a file with `Args` (what it takes) and `run` (what it does), a variant here.
//! `run` returns how the command ends; its only error is that the output cannot be written.

mod chaos;
mod completions;
mod demo;
mod geocode;
mod init;
mod man;
mod plan;
mod profiles;
mod run;
mod schema;
mod simulate;
mod store;
mod validate;

use std::io;

use clap::Subcommand;

use crate::exit::Exit;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    Init(init::Args),
    Validate(validate::Args),
    Plan(plan::Args),
    Run(run::Args),
    Schema(schema::Args),
    Simulate(simulate::Args),
    Geocode(Box<geocode::Args>),
    Demo(demo::Args),
    Store(Box<store::Args>),
    Chaos(Box<chaos::Args>),
    Profiles(profiles::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// Does it.
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Verb::Init(args) => init::run(args),
            Verb::Plan(args) => plan::run(args),
            Verb::Run(args) => run::run(args),
            Verb::Validate(args) => validate::run(args),
            Verb::Schema(args) => schema::run(args),
            Verb::Simulate(args) => simulate::run(args),
            Verb::Geocode(args) => geocode::run(args),
            Verb::Demo(args) => demo::run(args),
            Verb::Store(args) => store::run(args),
            Verb::Chaos(args) => chaos::run(args),
            Verb::Profiles(args) => profiles::run(args),
            Verb::Completions(args) => completions::run(args),
            Verb::Man(args) => man::run(args),
        }
    }
}
