//! `tidegate profiles`: which services are known, and what is known about each.

use std::io;
use std::path::PathBuf;

use tidegate_client::profile::Profiles;
use tidegate_client::profile::show::{self, ProfileOutputFormat};

use crate::exit::Exit;
use crate::out;

/// List the provider profiles, or show one
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate profiles ls
  tidegate profiles show nominatim
  tidegate profiles show nominatim --format yaml > my-nominatim.yaml
  tidegate profiles ls --profiles my-profiles/")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to print.
#[derive(clap::Subcommand)]
enum What {
    /// All profiles, one line each
    Ls(How),
    /// One profile in full
    Show {
        /// The profile
        name: String,
        #[command(flatten)]
        how: How,
    },
}

/// How to print it.
#[derive(clap::Args)]
struct How {
    /// Own profiles, a file or a directory; they win over those of the same name
    #[arg(long, value_name = "PATH")]
    profiles: Vec<PathBuf>,
    /// The form of the output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// The form of the output.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Table,
    Yaml,
    Json,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let (What::Ls(how) | What::Show { how, .. }) = &args.what;
    let view = match how.format {
        Format::Table => ProfileOutputFormat::Table,
        Format::Yaml => ProfileOutputFormat::Yaml,
        Format::Json => ProfileOutputFormat::Json,
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

fn print(what: &What, how: &How, view: ProfileOutputFormat) -> Result<String, String> {
    let mut all = Profiles::embedded().map_err(|problem| problem.to_string())?;
    for path in &how.profiles {
        all = all.with(path).map_err(|problem| problem.to_string())?;
    }
    match what {
        What::Ls(_) => show::ls(&all, view),
        What::Show { name, .. } => show::show(&all, name, view),
    }
    .map_err(|e| e.to_string())
}
