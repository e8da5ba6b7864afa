//! `tidegate plan`: shows what a run would do.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::quote::shell;
use tidegate_geo::format::Format;
use tidegate_pipeline::manifest::{self, CheckedManifest, Manifest, ManifestOptions, Rejection, human};
use tidegate_pipeline::run::{PagePlan, Plan, RetryPlan, plan};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::predict::{Prediction, Terms, predict};
use crate::progress::{self, thousands};
use crate::summary::gate_effect;

/// Show what a run would do, without writing anything
///
/// Open the source, check every step, gate and the sink against its schema, and show what would be
/// read, changed, checked and written. A source service is asked for its description, its count and
/// its first page; steps make no calls. The calls of the whole run are simulated under the policy of
/// the manifest: how long they take, how many there are and how long a record waits if the services
/// respond normally, fail now and then, are down, or always fail.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate plan parcels.yaml
  tidegate plan --format json parcels.yaml
  tidegate plan --price 0.50 addresses.yaml
  tidegate plan --records 250000 addresses.yaml

Exit codes: 0 the run can start; 1 failure; 2 it cannot; 75 the source or the sink is down, try again
later.")]
pub(crate) struct Args {
    /// Manifest file; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    variables: VariableArgs,

    /// Price of 1,000 calls, for services without a price in the manifest
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price: Option<f64>,

    /// Number of records, if the source does not declare one; the rows of a local CSV are counted
    #[arg(long, value_name = "N")]
    records: Option<u64>,

    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn price(text: &str) -> Result<f64, String> {
    let price: f64 =
        text.parse().map_err(|_| format!("invalid price {text:?}; expected a number such as 0.50"))?;
    if (0.0..=1e9).contains(&price) {
        Ok(price)
    } else {
        Err(format!("invalid price {text:?}; expected 0 to 1e9"))
    }
}

/// Where a manifest may include files.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct IncludeArgs {
    /// Directory in which a manifest may include files, besides its repository or its own directory; may be
    /// repeated
    #[arg(long, value_name = "DIR")]
    allow_include: Vec<PathBuf>,
}

impl IncludeArgs {
    /// With no values for variables.
    pub(crate) fn options(&self) -> ManifestOptions {
        ManifestOptions { allow_include: self.allow_include.clone(), ..ManifestOptions::default() }
    }
}

/// A manifest that is a word of its own.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct ManifestArg {
    /// Manifest file
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,

    #[command(flatten)]
    include: IncludeArgs,
}

impl ManifestArg {
    /// Loads it; `None` after printing its problems.
    pub(crate) fn load(&self) -> Option<Manifest> {
        load(&self.manifest, &self.include.options())
    }
}

/// Values for the variables of a manifest, and where it may include files.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct VariableArgs {
    /// Value for ${NAME} in the manifest, before that of the environment; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,

    #[command(flatten)]
    include: IncludeArgs,
}

impl VariableArgs {
    pub(crate) fn options(&self) -> ManifestOptions {
        ManifestOptions { variables: self.variables.iter().cloned().collect(), ..self.include.options() }
    }

    /// Each as an option, to be pasted.
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.variables {
            text.push_str(&format!(" --var {}", shell(&format!("{name}={value}"))));
        }
        for dir in &self.include.allow_include {
            text.push_str(&format!(" --allow-include {}", shell(&dir.display().to_string())));
        }
        text
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, with letters, digits and `_` in the name".to_owned()),
    }
}

/// Checks a manifest in a file, or on standard input.
pub(crate) fn read(file: &Path, options: &ManifestOptions) -> Result<CheckedManifest, Rejection> {
    if file == Path::new("-") {
        manifest::check_reader(out::input_name(), out::input(), options)
    } else {
        manifest::check_file(file, options)
    }
}

/// Loads a manifest; `None` after printing its problems.
pub(crate) fn load(file: &Path, options: &ManifestOptions) -> Option<Manifest> {
    load_checked(file, options)?.manifest
}

/// Checks a manifest; `None` after printing its problems.
fn load_checked(file: &Path, options: &ManifestOptions) -> Option<CheckedManifest> {
    match read(file, options) {
        Ok(checked) => Some(checked),
        Err(_) if data_format(file).is_some() => {
            let (name, format) = (file.display().to_string(), data_format(file).unwrap_or_default());
            out::say(&format!(
                "tidegate: {name} is data ({format}), not a manifest; `tidegate init {} -o pipeline.yaml` writes a manifest for it",
                shell(&name)
            ));
            None
        }
        Err(rejection) => {
            let count = rejection.count();
            let plural = if count == 1 { "" } else { "s" };
            out::say(&format!("{}{count} problem{plural} found", rejection.render(out::color())));
            None
        }
    }
}

/// The shortest value of a variable that is masked in a plan. A shorter one is in too many words.
const MASKED_MIN: usize = 4;

/// Values of variables of the environment, which a plan does not show.
#[derive(Default)]
pub(crate) struct HiddenValues(Vec<(String, String)>);

impl HiddenValues {
    fn of(substituted: Vec<(String, String)>) -> HiddenValues {
        let mut values = substituted;
        values.retain(|(_, value)| value.len() >= MASKED_MIN);
        // A value may be a part of another.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        HiddenValues(values)
    }

    fn text(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(value, &format!("${{{name}}}")))
    }

    /// The texts of a document; its numbers and names stay as they are.
    fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.json(item)),
            _ => {}
        }
    }
}

/// The format of a file that holds data, by its name or its first bytes.
fn data_format(file: &Path) -> Option<String> {
    let named = Format::of_path(file).map(|format| format.name().to_owned());
    named.or_else(|| {
        let mut start = [0; 256];
        let len = File::open(file).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
        let text: String = String::from_utf8_lossy(start.get(..len)?).split_whitespace().collect();
        text.starts_with("{\"type\":\"Feature").then(|| "GeoJSON".to_owned())
    })
}

/// The directory that the paths of a manifest are relative to.
pub(crate) fn folder(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let Some(checked) = load_checked(&args.file, &args.variables.options()) else { return Ok(Exit::Usage) };
    let Some(manifest) = checked.manifest else { return Ok(Exit::Usage) };
    let estimate = Estimate { price: args.price, records: args.records };
    let hidden = HiddenValues::of(checked.substituted);
    print_hiding(&manifest, &args.file, args.format, estimate, &hidden)
}

/// Estimates from the command line, for what the services do not declare.
#[derive(Clone, Copy, Default)]
pub(crate) struct Estimate {
    /// The price of 1,000 calls.
    pub(crate) price: Option<f64>,
    /// The number of records of the source.
    pub(crate) records: Option<u64>,
}

/// Prints the plan; also for `run --dry-run`.
pub(crate) fn print_plan(
    manifest: &Manifest,
    file: &Path,
    format: OutputFormat,
    estimate: Estimate,
) -> io::Result<Exit> {
    print_hiding(manifest, file, format, estimate, &HiddenValues::default())
}

fn print_hiding(
    manifest: &Manifest,
    file: &Path,
    format: OutputFormat,
    Estimate { price, records }: Estimate,
    hidden: &HiddenValues,
) -> io::Result<Exit> {
    match plan(manifest, &folder(file)) {
        Ok(plan) => {
            let predictions: Vec<Prediction> = plan
                .asked
                .iter()
                .filter(|asked| !asked.is_fallback())
                .filter_map(|asked| {
                    let questions = asked.questions.or(records.map(|n| asked.for_records(n)))?;
                    let price = asked.price_per_thousand.or(price);
                    let terms = Terms { price, patience_seconds: plan.patience_seconds };
                    Some(predict(asked, questions, terms))
                })
                .flatten()
                .collect();
            match format {
                OutputFormat::Table => out::data(&hidden.text(&table(&plan, &predictions)))?,
                OutputFormat::Json => {
                    let mut value = serde_json::json!(plan);
                    value["predictions"] = serde_json::json!(predictions);
                    hidden.json(&mut value);
                    out::data(&format!("{value:#}\n"))?;
                }
            }
            Ok(match (plan.sink_problems.is_empty(), plan.sink_down) {
                (false, _) => Exit::Usage,
                (true, true) => Exit::TryLater,
                (true, false) => Exit::Done,
            })
        }
        Err(what) => {
            // A preset has no file.
            let about = if file == Path::new("") { String::new() } else { format!("{}: ", file.display()) };
            out::say(&format!("tidegate: {about}{}", hidden.text(&what.to_string())));
            Ok(Exit::from(&what))
        }
    }
}

fn table(plan: &Plan, predictions: &[Prediction]) -> String {
    let mut text = format!("{}: plan, nothing was written\n\n", plan.pipeline);
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<9}{value}");
    };
    let crs = plan.source_crs.as_deref().unwrap_or("an undeclared coordinate reference system");
    let records = plan.records.map_or("an unknown number of records".to_owned(), |n| count(n, "record"));
    let batches = plan
        .batches
        .map(|n| format!(" in {}", count(n, if n == 1 { "batch" } else { "batche" })))
        .unwrap_or_default();
    row("read", format!("{records} of {}{batches}, in {crs}", plan.layer));
    row("fields", fields(&plan.fields_in));
    for (at, step) in plan.steps.iter().enumerate() {
        row(if at == 0 { "steps" } else { "" }, format!("{}. {step}", at + 1));
    }
    for (at, line) in plan.objects.iter().enumerate() {
        row(if at == 0 { "objects" } else { "" }, line.to_string());
    }
    if plan.fields_in != plan.fields_out {
        row("become", fields(&plan.fields_out));
    }
    for (at, (gate, severity, rate)) in plan.gates.iter().enumerate() {
        let what = gate_effect(severity, *rate);
        row(if at == 0 { "gates" } else { "" }, format!("{gate}: {what}"));
    }
    let key = if plan.key.is_empty() { String::new() } else { format!(" by {}", plan.key.join(", ")) };
    let shape = plan.shape.as_deref().unwrap_or("any geometry type");
    row("write", format!("{}, {}{key}, {shape} in {}", plan.sink, plan.mode, plan.sink_crs));
    for problem in &plan.sink_problems {
        row("", format!("cannot be written: {problem}"));
    }
    if let Some(why) = &plan.sink_unknown {
        row("", format!("not checked: {why}"));
    }
    row(
        "resume",
        if plan.resumable {
            "at the last committed batch"
        } else {
            "starts again: the file appears when it is complete"
        }
        .to_owned(),
    );
    if let (Some(calls), Some(most)) = (plan.calls, plan.calls_max) {
        let each = human(plan.record_seconds_max);
        row(
            "calls",
            format!(
                "{} without retries, at most {} if all are refused and fail; a record waits at most {each}",
                thousands(calls),
                thousands(most)
            ),
        );
    }
    for asked in &plan.asked {
        let own: Vec<&Prediction> = predictions.iter().filter(|p| p.service == asked.service).collect();
        let terms = match asked.allowed {
            Some((rate, burst)) => format!("limit {rate} calls/s, burst {burst} (from the profile)"),
            None => "limit unknown, none assumed".to_owned(),
        };
        let told = asked.rate_asked.map(|rate| format!("; {rate}/s asked for")).unwrap_or_default();
        row("service", format!("{}: {terms}{told}", asked.service));
        row("", retries(&asked.retry));
        if let Some(pages) = asked.source {
            row("", requests(&pages));
        }
        if asked.is_fallback() {
            row("", format!("fallback of {}", asked.fallback_of.join(", ")));
            continue;
        }
        if own.is_empty() {
            row("", "number of records unknown; pass it with --records".to_owned());
        }
        for p in own {
            row("", format!("{:<18}{}", p.case, outcome(p)));
        }
    }
    for (at, request) in plan.requests.iter().enumerate() {
        row(if at == 0 { "requests" } else { "" }, request.clone());
    }
    for warning in &plan.warnings {
        row("warning", warning.clone());
    }
    text
}

/// Describes the retry policy of a service, and where it is set.
fn retries(retry: &RetryPlan) -> String {
    let most = match retry.max_reject_rate {
        Some(rate) => format!("; halts above {} % failed", (rate * 1e8).round() / 1e6),
        None => String::new(),
    };
    let attempts = count(u64::from(retry.max_attempts), "attempt");
    format!("{attempts} within {} ({}){most}", human(retry.deadline_seconds), retry.set_by)
}

/// Describes the page requests of the source.
fn requests(pages: &PagePlan) -> String {
    let each = pages.page.map_or_else(String::new, |n| format!(", {} per page", count(n, "record")));
    match pages.requests {
        Some(n) => format!("{} for the source{each}", count(n, "request")),
        None => format!("number of pages unknown: the source declares no count{each}"),
    }
}

/// Describes a prediction.
fn outcome(p: &Prediction) -> String {
    let mut text = format!("{}, {}", span(p.seconds), count(p.calls, "call"));
    let mut add = |more: String| text.push_str(&format!(", {more}"));
    for (n, bound, word) in
        [(p.dead, p.dead_fewer_than, "given up"), (p.parked, p.parked_fewer_than, "postponed")]
    {
        match bound {
            Some(bound) => add(format!("fewer than {} {word}", thousands(bound))),
            None if n > 0 => add(format!("{} {word}", thousands(n))),
            None => {}
        }
    }
    add(format!("a record waits at most {}", span(p.wait_max_seconds)));
    if let Some(cost) = p.cost {
        add(format!("costs {cost:.2}"));
    }
    if let Some(note) = p.note {
        text.push_str(&format!("; {note}"));
    }
    text
}

fn span(seconds: f64) -> String {
    progress::span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}

fn fields(fields: &[(String, String)]) -> String {
    if fields.is_empty() {
        return "none".into();
    }
    fields.iter().map(|(name, kind)| format!("{name} {kind}")).collect::<Vec<_>>().join(", ")
}

fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", thousands(n), if n == 1 { "" } else { "s" })
}
