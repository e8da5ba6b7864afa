//! `tidegate completions`: shell completion scripts.

use std::io;

use clap_complete::env::Shells;

use crate::complete::VARIABLE;
use crate::exit::Exit;
use crate::out;

/// Print a shell completion script
///
/// The script asks `tidegate` for what fits: commands, options, files, the names of profiles, the
/// layers of a file or of the pipelines in this directory, and the codes of dead letters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
pub(crate) struct Args {
    /// Shell
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&args.shell) {
        shell.write_registration(VARIABLE, "tidegate", "tidegate", "tidegate", &mut script)?;
    }
    out::data(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
