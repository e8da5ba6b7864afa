//! `tidegate completions`: shell completion scripts.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::out;

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Args::command(), "tidegate", &mut script);
    out::data(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
