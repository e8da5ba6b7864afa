//! `tidegate profiles`: lists and shows provider profiles.

use std::io;
use std::path::PathBuf;

use tidegate_client::profile::Profiles;
use tidegate_client::profile::show::{self, ProfileOutputFormat};

use crate::complete;
use crate::exit::Exit;
use crate::out;
use clap_complete::ArgValueCandidates;

/// List or show provider profiles
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate profiles ls
  tidegate profiles show nominatim
  tidegate profiles show nominatim --format yaml > my-nominatim.yaml
  tidegate profiles ls --profiles my-profiles/")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

/// What to print.
#[derive(clap::Subcommand)]
enum Command {
    /// List all profiles
    Ls(ProfileArgs),
    /// Show one profile
    Show {
        /// Name of the profile
        #[arg(add = ArgValueCandidates::new(complete::profiles))]
        name: String,
        #[command(flatten)]
        how: ProfileArgs,
    },
}

/// Options of both commands.
#[derive(clap::Args)]
struct ProfileArgs {
    /// Additional profiles: a file or a directory; they replace built-in profiles of the same name
    #[arg(long, value_name = "PATH")]
    profiles: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    format: ProfileFormat,
}

/// Output format.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ProfileFormat {
    Table,
    Yaml,
    Json,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let (Command::Ls(how) | Command::Show { how, .. }) = &args.what;
    let view = match how.format {
        ProfileFormat::Table => ProfileOutputFormat::Table,
        ProfileFormat::Yaml => ProfileOutputFormat::Yaml,
        ProfileFormat::Json => ProfileOutputFormat::Json,
    };
    match print(&args.what, how, view) {
        Ok(text) => {
            out::data(&text)?;
            Ok(Exit::Done)
        }
        Err(problem) => {
            out::say(&format!("tidegate: {problem}"));
            Ok(Exit::Usage)
        }
    }
}

fn print(what: &Command, how: &ProfileArgs, view: ProfileOutputFormat) -> Result<String, String> {
    let mut all = Profiles::embedded().map_err(|problem| problem.to_string())?;
    for path in &how.profiles {
        all = all.with(path).map_err(|problem| problem.to_string())?;
    }
    match what {
        Command::Ls(_) => show::ls(&all, view),
        Command::Show { name, .. } => show::show(&all, name, view),
    }
    .map_err(|e| e.to_string())
}
