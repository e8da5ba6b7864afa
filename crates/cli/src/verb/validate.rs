//! `tidegate validate`: checks manifests and shows the effective policy.
//!
//! For a valid manifest it prints the policy with defaults, for an invalid one every problem with
//! its line and column.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_pipeline::gate::all_gates;
use tidegate_pipeline::manifest::{
    CheckedManifest, Manifest, ManifestOptions, OpenValue, Rejection, StepSpec,
};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::pipes::check_name;
use crate::summary::summary;
use crate::verb::plan;

/// Check manifests and show the resulting policy
///
/// Read only the given files and the files they include. For a valid manifest, print its parts and
/// the effective policy with defaults; for an invalid one, print every problem with line and column.
/// Values of environment variables are not shown. To run the manifest of a stranger is to run the code of
/// a stranger: to check one on a machine that holds secrets, use --no-env, and read it before you run it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate validate parcels.yaml
  tidegate validate pipelines/*.yaml
  tidegate validate --format json parcels.yaml
  tidegate validate --parts parcels.yaml
  tidegate validate --no-env pull-request/*.yaml
  generate-manifest | tidegate validate -

Exit codes: 0 all manifests are valid; 2 at least one is not.")]
pub(crate) struct Args {
    /// Manifest files; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    variables: plan::VariableArgs,

    #[command(flatten)]
    env: NoEnvArgs,

    /// Show values of environment variables too, of a manifest that you know
    #[arg(long, conflicts_with = "no_env")]
    reveal: bool,

    /// Output format; json prints a list of problems, empty if there are none
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Print the parts of each manifest as JSON instead: its name, steps, gates and dead letters
    #[arg(long, conflicts_with = "format")]
    parts: bool,
}

/// Whether the environment is read.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct NoEnvArgs {
    /// Read no environment variable: ${NAME} without a default stays as it is written, and what depends on it
    /// is not checked, which is said
    #[arg(long)]
    no_env: bool,
}

impl NoEnvArgs {
    /// These options, with or without the environment.
    pub(crate) fn options(&self, options: ManifestOptions) -> ManifestOptions {
        ManifestOptions { no_env: self.no_env, ..options }
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let options = args.env.options(args.variables.options());
    let read = |file: &PathBuf| {
        let mut checked = plan::read(file, &options)?;
        if args.reveal {
            checked.shown.clone_from(&checked.manifest);
        }
        Ok(checked)
    };
    let results: Vec<_> = args.files.iter().map(read).collect();
    for checked in results.iter().flatten() {
        for value in &checked.unchecked {
            let OpenValue { file, line, column, .. } = value;
            out::say(&format!("{file}:{line}:{column}: not checked: the value of {}", named([value])));
        }
    }
    if args.parts && results.iter().all(Result::is_ok) {
        let mut all = Vec::new();
        for (file, checked) in args.files.iter().zip(results.iter().flatten()) {
            let Some(manifest) = &checked.shown else {
                let names = named(&checked.unshown);
                out::say(&format!(
                    "tidegate validate: {}: the parts depend on {names}; give the values with --var, or add --reveal",
                    file.display()
                ));
                return Ok(Exit::Usage);
            };
            all.push(parts(file, manifest));
        }
        out::data(&format!("{:#}\n", json!(all)))?;
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

/// The variables of these values.
fn named<'a>(values: impl IntoIterator<Item = &'a OpenValue>) -> String {
    let mut names: Vec<String> =
        values.into_iter().flat_map(|value| &value.variables).map(|name| format!("${{{name}}}")).collect();
    names.sort();
    names.dedup();
    names.join(", ")
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
fn print_results(files: &[PathBuf], results: &[Result<CheckedManifest, Rejection>]) -> io::Result<()> {
    let mut first = true;
    for (file, result) in files.iter().zip(results) {
        match result {
            Ok(checked) => {
                let gap = if first { "" } else { "\n" };
                let text = match &checked.shown {
                    Some(manifest) => summary(manifest, &plan::folder(file)),
                    None => format!(
                        "{}: valid\n\n  not shown without --reveal, because numbers in it come from the environment: {}\n",
                        file.display(),
                        named(&checked.unshown)
                    ),
                };
                out::data(&format!("{gap}{text}"))?;
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
