//! `tidegate validate`: checks manifests and shows the effective policy.
//!
//! For a valid manifest it prints the policy with defaults, for an invalid one every problem with
//! its line and column.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_pipeline::gate::all_gates;
use tidegate_pipeline::manifest::{self, Manifest, Rejection, StepSpec};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::pipes::check_name;
use crate::summary::summary;
use crate::verb::plan;

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
  tidegate validate --parts parcels.yaml
  generate-manifest | tidegate validate -

Exit codes: 0 all manifests are valid; 2 at least one is not.")]
pub(crate) struct Args {
    /// Manifest files; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    variables: plan::VariableArgs,

    /// Output format; json prints a list of problems, empty if there are none
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Print the parts of each manifest as JSON instead: its name, steps, gates and dead letters
    #[arg(long, conflicts_with = "format")]
    parts: bool,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let results: Vec<_> = args.files.iter().map(|file| read(file, &args.variables.map())).collect();
    if args.parts && results.iter().all(Result::is_ok) {
        let valid = args.files.iter().zip(results.iter().flatten());
        let parts: Vec<_> = valid.map(|(file, manifest)| parts(file, manifest)).collect();
        out::data(&format!("{:#}\n", json!(parts)))?;
        return Ok(Exit::Done);
    }
    match args.format {
        OutputFormat::Table => print_results(&args.files, &results)?,
        OutputFormat::Json => {
            let problems: Vec<_> = results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .flat_map(Rejection::diagnostics)
                .collect();
            out::data(&format!("{:#}\n", json!(problems)))?;
        }
    }
    Ok(if results.iter().all(Result::is_ok) { Exit::Done } else { Exit::Usage })
}

fn read(file: &Path, variables: &BTreeMap<String, String>) -> Result<Manifest, Rejection> {
    if file == Path::new("-") {
        manifest::from_reader_with(out::input_name(), out::input(), variables)
    } else {
        manifest::load_with(file, variables)
    }
}

/// The parts of a manifest, for programs. `check` names the asset check of a gate in Dagster.
fn parts(file: &Path, manifest: &Manifest) -> Value {
    let pipeline = &manifest.pipeline;
    let gates = all_gates(manifest).into_iter().map(|(gate, severity, max_rate)| {
        json!({ "check": check_name(&gate), "gate": gate, "severity": severity, "max_rate": max_rate })
    });
    json!({
        "file": file,
        "pipeline": pipeline.id,
        "steps": pipeline.steps.iter().map(StepSpec::name).collect::<Vec<_>>(),
        "gates": gates.collect::<Vec<_>>(),
        "dead_letters": pipeline.dead_letters.as_ref().map(|form| form.store.as_deref().unwrap_or_default()),
    })
}

/// Prints summaries of valid manifests as data, problems of the others as messages.
fn print_results(files: &[PathBuf], results: &[Result<Manifest, Rejection>]) -> io::Result<()> {
    let mut first = true;
    for (file, result) in files.iter().zip(results) {
        match result {
            Ok(manifest) => {
                let gap = if first { "" } else { "\n" };
                out::data(&format!("{gap}{}", summary(manifest, &plan::folder(file))))?;
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
