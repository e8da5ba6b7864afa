//! The manifest: the file that describes a pipeline.
//!
//! It is strict on purpose. A mistyped key that is silently ignored turns a policy into its
//! default, and nobody notices until the provider does. So an unknown or missing key, a value of
//! the wrong type or out of range, and a contradiction are errors, with line, column and advice,
//! before anything else is opened. All errors of a file are reported at once.
//!
//! The path of a manifest through the files: bytes → `tree` (YAML with positions, bounded against
//! bombs) → `include` (other files below it) → `env` (variables replaced) → `check` (against the
//! `schema` derived from the types in `form`) → `rules` and `parts` (conditions between keys) →
//! [`Manifest`] → [`Policy`] (the configuration of the core).
//!
//! Why a tree and a schema, and not only serde's `deny_unknown_fields`: serde stops at the first
//! error. Why annotate-snippets and not miette: the YAML parser already depends on it, and editors
//! make its `file:line:column` clickable.

mod check;
mod env;
mod expectation;
mod form;
mod include;
pub mod objects;
mod parts;
mod policy;
mod problem;
mod rules;
mod schema;
mod tree;
mod words;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use expectation::MetricBound;
pub use form::{
    Action, AlertName, AlertsSpec, Arrays, AuditSpec, AutoRemedy, AxisOrderSpec, Bucket, Cast, Check,
    CircuitBreaker, Coerce, CsvRows, DeadLetters, DeletedRows, EmptyBudget, ExpectSpec, FallbackCase,
    Flatten, FleetFallback, Gate, Geocode, HttpSpec, InputFormat, JitterSetting, LanesSpec, LimitsSpec,
    LonLat, Lookup, Manifest, MissingAnswer, MosaicStep, ObjectsSpec, OnLongWait, PageEncoding, Paging,
    PagingBy, Per, Pipeline, RasterCalc, RasterClipStep, RasterRepair, RasterStep, RasterWarp, RasterizeStep,
    RateLimit, RateScope, Remedy, RemedyRule, RetryBudget, RetryPolicy, ServiceRetry, ServiceSpec, Severity,
    SinceSpec, SinkSpec, SinkTable, SourceSpec, SourceTable, StepSpec, TaskGeometry, TaskSource,
    ToleranceSpec, WfsVersion, WriteMode, YamlScalar,
};
pub use policy::Policy;
pub use problem::{Diagnostic, Rejection};
pub use schema::published as schema;
pub use tidegate_client::duration::{self, human};

use problem::{ManifestProblem, Texts};

/// The largest manifest, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// Loads the manifest in a file.
///
/// # Errors
/// When the file cannot be read, or is not a valid manifest.
pub fn load(path: &Path) -> Result<Manifest, Rejection> {
    load_with(path, &BTreeMap::new())
}

/// Loads the manifest in a file. Its variables have these values; the others are those of the
/// environment.
///
/// # Errors
/// When the file cannot be read, or is not a valid manifest.
pub fn load_with(path: &Path, variables: &BTreeMap<String, String>) -> Result<Manifest, Rejection> {
    let name = path.display().to_string();
    let reject = |problem| Rejection::new(&name, "", vec![problem]);
    if path.is_dir() {
        let problem = ManifestProblem::whole("unreadable", "this is a directory, not a file");
        return Err(reject(problem.help("pass the manifest file in it")));
    }
    match File::open(path) {
        Ok(file) => from_reader_with(&name, file, variables),
        Err(error) => Err(reject(unreadable(&error))),
    }
}

/// Reads several files as one manifest: the keys of the first take precedence over those of the
/// next, as with `include`.
///
/// # Errors
/// When a file cannot be read, or they are not a valid manifest together.
pub fn load_merged(paths: &[&Path]) -> Result<Manifest, Rejection> {
    merged(paths, "")
}

/// Reads the policy of a manifest, or of a file with the policies that manifests include.
///
/// # Errors
/// When the file cannot be read, or is not valid.
pub fn load_policy(path: &Path) -> Result<Policy, Rejection> {
    let others =
        "pipeline: { id: policy, tolerance: { max_null_rate: 0, halt_on_geometry_invalid: true } }\n";
    merged(&[path], others).map(|manifest| Policy::from(&manifest))
}

fn merged(paths: &[&Path], others: &str) -> Result<Manifest, Rejection> {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    from_bytes("(merged)", format!("include: {}\n{others}", serde_json::json!(names)).as_bytes())
}

/// Reads a manifest, such as from standard input; `name` stands for it in messages.
///
/// # Errors
/// When reading fails, or the text is not a valid manifest.
pub fn from_reader(name: &str, reader: impl Read) -> Result<Manifest, Rejection> {
    from_reader_with(name, reader, &BTreeMap::new())
}

/// Reads a manifest, such as from standard input, whose variables have these values; the others are
/// those of the environment.
///
/// # Errors
/// When reading fails, or the text is not a valid manifest.
pub fn from_reader_with(
    name: &str,
    reader: impl Read,
    variables: &BTreeMap<String, String>,
) -> Result<Manifest, Rejection> {
    let mut bytes = Vec::new();
    // One byte more than allowed distinguishes "just fits" from "too large" without reading the
    // rest.
    match reader.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) => from_bytes_with(name, &bytes, variables),
        Err(error) => Err(Rejection::new(name, "", vec![unreadable(&error)])),
    }
}

/// Parses a manifest; `name` stands for it in messages. Total: any bytes give a manifest or a
/// rejection, in bounded time.
///
/// # Errors
/// When the bytes are not a valid manifest.
pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Manifest, Rejection> {
    from_bytes_with(name, bytes, &BTreeMap::new())
}

fn from_bytes_with(
    name: &str,
    bytes: &[u8],
    variables: &BTreeMap<String, String>,
) -> Result<Manifest, Rejection> {
    if bytes.len() > BYTES_MAX {
        let problem =
            ManifestProblem::whole("too_large", format!("the file is larger than {BYTES_MAX} bytes"));
        let help = "a manifest is a few kilobytes; is this the right file?";
        return Err(Rejection::new(name, "", vec![problem.help(help)]));
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let problem =
                ManifestProblem::new("not_utf8", at..at + 1, "the file is not valid UTF-8 from here on");
            let text = String::from_utf8_lossy(bytes);
            return Err(Rejection::new(name, &text, vec![problem.help("save the file as UTF-8")]));
        }
    };
    let mut texts = Texts::of(name, text);
    read(name, text, variables, &mut texts).map_err(|problems| Rejection::of(texts, problems))
}

fn read(
    name: &str,
    text: &str,
    variables: &BTreeMap<String, String>,
    texts: &mut Texts,
) -> Result<Manifest, Vec<ManifestProblem>> {
    if let Some(problem) = lost_indentation(text) {
        return Err(vec![problem]);
    }
    let root = tree::parse(text).map_err(|problem| vec![problem])?;
    if matches!(root.value, tree::YamlValue::Null) {
        let problem = ManifestProblem::whole("empty", "the file is empty");
        return Err(vec![problem.help("start with `pipeline:`; `tidegate schema` lists all keys")]);
    }
    let schema = schema::bare();
    let mut problems = Vec::new();
    let mut root = include::resolve(root, name, texts, &mut problems);
    let find = |name: &str| variables.get(name).cloned().or_else(|| std::env::var(name).ok());
    env::expand(&mut root, &find, &mut problems);
    let json = check::check(&root, schema, &mut problems).unwrap_or_default();
    rules::check(&json, schema, &root, &mut problems);
    parts::check(&root, &mut problems);
    expectation::check(&root, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    serde_json::from_value(json).map_err(|error| {
        vec![ManifestProblem::whole("type", error.to_string()).help("compare with `tidegate schema`")]
    })
}

/// The problem of a manifest that came through a program which removes leading spaces: every key is
/// then one of the manifest itself, and each would be a problem of its own.
fn lost_indentation(text: &str) -> Option<ManifestProblem> {
    let mut at = 0;
    let mut lines = text.split_inclusive('\n').filter_map(|line| {
        let place = at..at + line.trim_end().len();
        at += line.len();
        let is_content = !line.trim().is_empty() && !line.trim_start().starts_with('#');
        is_content.then_some((place, line))
    });
    let is_section = |line: &str| {
        line.strip_prefix("pipeline:").is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.is_empty() || rest.starts_with('#')
        })
    };
    lines.by_ref().find(|(_, line)| is_section(line))?;
    let (place, line) = lines.next()?;
    let (key, _) = line.split_once(':')?;
    let is_key =
        key.starts_with(|c: char| c.is_ascii_lowercase()) && !["version", "include", "expect"].contains(&key);
    is_key.then(|| {
        let message = "the indentation is lost: this line is not inside `pipeline`";
        ManifestProblem::new("indentation", place, message)
            .help("indent what belongs to `pipeline` by two spaces, and what belongs to its sections by four")
    })
}

/// A read error as a problem.
fn unreadable(error: &io::Error) -> ManifestProblem {
    let (message, help) = match error.kind() {
        io::ErrorKind::NotFound => ("no such file".to_owned(), "check the path"),
        io::ErrorKind::PermissionDenied => {
            ("no permission to read the file".to_owned(), "check the permissions of the file")
        }
        _ => (format!("cannot read the file: {error}"), "check the path"),
    };
    ManifestProblem::whole("unreadable", message).help(help)
}
