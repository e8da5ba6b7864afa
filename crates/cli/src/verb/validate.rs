//! `tidegate validate`: checks manifests and shows the effective policy.
//!
//! For a valid manifest it prints the policy with defaults, for an invalid one every problem with
//! its line and column.

use std::io;
use std::path::{Path, PathBuf};

use tidegate_pipeline::manifest::{self, Manifest, Rejection};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::summary::summary;

/// Check manifests and show the resulting policy
///
/// Read only the given files and the files they include. For a valid manifest, print its parts and
/// the effective policy with defaults; for an invalid one, print every problem with line and column.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate validate parcels.yaml
  tidegate validate pipelines/*.yaml
  tidegate validate --format json parcels.yaml
  generate-manifest | tidegate validate -

Exit codes: 0 all manifests are valid; 2 at least one is not.")]
pub(crate) struct Args {
    /// Manifest files; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output format; json prints a list of problems, empty if there are none
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let results: Vec<_> = args.files.iter().map(|file| read(file)).collect();
    match args.format {
        OutputFormat::Table => print_results(&results)?,
        OutputFormat::Json => {
            let problems: Vec<_> = results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .flat_map(Rejection::diagnostics)
                .collect();
            out::data(&format!("{:#}\n", serde_json::json!(problems)))?;
        }
    }
    Ok(if results.iter().all(Result::is_ok) { Exit::Done } else { Exit::Usage })
}

fn read(file: &Path) -> Result<Manifest, Rejection> {
    if file == Path::new("-") {
        manifest::from_reader("<stdin>", io::stdin().lock())
    } else {
        manifest::load(file)
    }
}

/// Prints summaries of valid manifests as data, problems of the others as messages.
fn print_results(results: &[Result<Manifest, Rejection>]) -> io::Result<()> {
    let mut first = true;
    for result in results {
        match result {
            Ok(manifest) => {
                let gap = if first { "" } else { "\n" };
                out::data(&format!("{gap}{}", summary(manifest)))?;
                first = false;
            }
            Err(rejection) => {
                let count = rejection.count();
                let plural = if count == 1 { "" } else { "s" };
                out::say(&format!("{}{count} problem{plural} found", rejection.render(out::color())));
            }
        }
    }
    Ok(())
}
