//! `tidegate man`: the manual pages, generated from the text of `--help`.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::exit::Exit;
use crate::out;

/// Print the manual page of the program or of one command
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate man | man -l -
  tidegate man validate > tidegate-validate.1")]
pub(crate) struct Args {
    /// Command [default: the manual page of the whole program]
    verb: Option<String>,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let Some(command) = page(args.verb.as_deref()) else {
        let verb = args.verb.as_deref().unwrap_or_default();
        out::say(&format!("tidegate man: unknown command {verb:?}; `tidegate --help` lists the commands"));
        return Ok(Exit::Usage);
    };
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    out::data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

/// The command that a page is about.
fn page(verb: Option<&str>) -> Option<Command> {
    let mut whole = crate::Args::command();
    whole.build();
    match verb {
        None => Some(whole),
        Some(verb) => whole.find_subcommand(verb).cloned(),
    }
}
