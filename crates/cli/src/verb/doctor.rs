//! `tidegate doctor`: checks whether a run can work here and now.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use serde_json::json;
use tidegate_pipeline::doctor::{Diagnosis, HealthLevel, examine};

use super::plan;
use crate::exit::Exit;
use crate::given::GivenAddress;
use crate::out::{self, OutputFormat};

/// Check that everything a run needs is available
///
/// Check the state directory, the dead letter store and the projections, and with a MANIFEST also its
/// source, steps, sink, secrets, audit and services: host name, certificate, clock and quota.
/// Nothing is changed; each service is called once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate doctor
  tidegate doctor parcels.yaml
  tidegate doctor parcels.yaml --format json | jq '.[] | select(.health != \"ok\")'

Exit codes: 0 a run can start, possibly with warnings; 1 it cannot; 2 the manifest is invalid; 75 only a
remote service or a database is down, try again later.")]
pub(crate) struct Args {
    /// Manifest file
    #[arg(value_name = "MANIFEST")]
    file: Option<PathBuf>,

    #[command(flatten)]
    include: plan::IncludeArgs,

    /// State directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,

    /// Dead letter store: a file, postgres://…, or env:NAME and file:PATH that contain either
    #[arg(long, value_name = "STORE", default_value = ".tidegate/letters.db")]
    store: GivenAddress,

    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let manifest = match &args.file {
        Some(file) => match plan::load(file, &args.include.options()) {
            Some(manifest) => Some((manifest, plan::folder(file))),
            None => return Ok(Exit::Usage),
        },
        None => None,
    };
    let manifest = manifest.as_ref().map(|(manifest, folder)| (manifest, folder.as_path()));
    let findings = examine(manifest, &args.state, &args.store.to_string());
    match args.format {
        OutputFormat::Json => out::data(&format!("{:#}\n", json!(findings)))?,
        OutputFormat::Table => out::data(&table(&findings, out::data_color()))?,
    }
    Ok(exit(&findings))
}

/// A local problem is a failure; a remote one may go away.
fn exit(findings: &[Diagnosis]) -> Exit {
    let failed: Vec<_> = findings.iter().filter(|finding| finding.health == HealthLevel::Fail).collect();
    match failed.as_slice() {
        [] => Exit::Done,
        failed if failed.iter().all(|finding| finding.theirs) => Exit::TryLater,
        _ => Exit::Failure,
    }
}

fn table(findings: &[Diagnosis], colour: bool) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let word = finding.health.as_str();
        let code = match finding.health {
            HealthLevel::Ok => "32",
            HealthLevel::Warn => "33",
            HealthLevel::Fail => "31",
        };
        let pad = " ".repeat(4 - word.len().min(4));
        let word = if colour { format!("\x1b[{code}m{word}\x1b[0m{pad}") } else { format!("{word}{pad}") };
        let clean = |text: &str| -> String {
            text.chars().map(|c| if tidegate_core::quote::is_unsafe(c) { ' ' } else { c }).collect()
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word}  {:<width$}  {}", finding.check, clean(&finding.found));
        if let Some(next) = &finding.next {
            let _ = writeln!(text, "      {:<width$}  → {}", "", clean(next));
        }
    }
    let count = |health| findings.iter().filter(|finding| finding.health == health).count();
    let _ = writeln!(
        text,
        "\n{} ok, {} warn, {} fail",
        count(HealthLevel::Ok),
        count(HealthLevel::Warn),
        count(HealthLevel::Fail)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(health: HealthLevel, theirs: bool) -> Diagnosis {
        Diagnosis { check: "x".into(), health, found: "y\nz".into(), next: Some("do".into()), theirs }
    }

    #[test]
    fn what_is_theirs_may_be_well_later() {
        let (ok, warn) = (finding(HealthLevel::Ok, false), finding(HealthLevel::Warn, false));
        let (ours, theirs) = (finding(HealthLevel::Fail, false), finding(HealthLevel::Fail, true));
        assert_eq!(exit(&[ok, warn]), Exit::Done);
        assert_eq!(exit(std::slice::from_ref(&theirs)), Exit::TryLater);
        assert_eq!(exit(&[theirs, ours]), Exit::Failure);
    }

    #[test]
    fn each_finding_says_what_to_do() {
        let drawn = table(&[finding(HealthLevel::Warn, false)], false);
        assert_eq!(drawn, "warn  x  y z\n         → do\n\n0 ok, 1 warn, 0 fail\n");
    }
}
