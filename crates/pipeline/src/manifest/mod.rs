//! The manifest: the file that describes a pipeline.
//!
//! It is strict on purpose. A mistyped key that is silently ignored turns a policy into its
//! default, and nobody notices until the provider does. So an unknown or missing key, a value of
//! the wrong type or out of range, and a contradiction are errors, with line, column and advice,
//! before anything else is opened. All errors of a file are reported at once.
//!
//! The path of a manifest through the files: bytes → `tree` (YAML with positions, bounded against
//! bombs) → `include` (other files below it; `origin` says which) → `env` (variables replaced; `masked`
//! keeps their values out of messages) → `check` (against the
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
mod masked;
pub mod objects;
mod origin;
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
use std::path::{Path, PathBuf};

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
pub use origin::{has_flow_key, named};
pub use policy::Policy;
pub use problem::{Diagnostic, Rejection};
pub use schema::published as schema;
pub use tidegate_client::duration::{self, human};

use env::{OpenText, VariableLookup, VariablePlaceholder};
use include::Includer;
use problem::{ManifestProblem, Texts};
use tree::{ByteRange, YamlNode};

/// The largest manifest, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// What a manifest may use when it is read.
#[derive(Clone, Debug, Default)]
pub struct ManifestOptions {
    /// Values of variables, before those of the environment.
    pub variables: BTreeMap<String, String>,
    /// Whether no variable of the environment is read: those without a value of `variables` and without
    /// a default stay as they are written.
    pub no_env: bool,
    /// Directories below which files may be included, besides the repository or the folder of the
    /// manifest.
    pub allow_include: Vec<PathBuf>,
}

/// A value that is not known, or not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenValue {
    /// The variables that it is made of.
    pub variables: Vec<String>,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// A manifest that is valid, as far as its values are known.
#[derive(Clone, Debug)]
pub struct CheckedManifest {
    /// The manifest; `None` if it needs values that were not read.
    pub manifest: Option<Manifest>,
    /// The manifest to be shown, in which `${NAME}` stands for values of the environment; `None` if there
    /// are such values that are no text.
    pub shown: Option<Manifest>,
    /// The values that `shown` lacks.
    pub unshown: Vec<OpenValue>,
    /// The values that were not read, so that nothing is known of them.
    pub unchecked: Vec<OpenValue>,
    /// The variables of the environment that were put in, with their values.
    pub substituted: Vec<(String, String)>,
}

/// Loads the manifest in a file.
///
/// # Errors
/// When the file cannot be read, or is not a valid manifest.
pub fn load(path: &Path) -> Result<Manifest, Rejection> {
    check_file(path, &ManifestOptions::default())
        .and_then(|checked| whole(&path.display().to_string(), checked))
}

/// Checks the manifest in a file.
///
/// # Errors
/// When the file cannot be read, or is not a valid manifest.
pub fn check_file(path: &Path, options: &ManifestOptions) -> Result<CheckedManifest, Rejection> {
    let name = path.display().to_string();
    let reject = |problem| Rejection::new(&name, "", vec![problem]);
    if path.is_dir() {
        let problem = ManifestProblem::whole("unreadable", "this is a directory, not a file");
        return Err(reject(problem.help("pass the manifest file in it")));
    }
    if options.no_env
        && let Err(why) = named(path, &options.allow_include)
    {
        return Err(reject(ManifestProblem::whole("unreadable", why)));
    }
    match File::open(path) {
        Ok(file) => check_reader(&name, file, options),
        Err(error) => Err(reject(unreadable(&error))),
    }
}

/// Checks a manifest, such as from standard input; `name` stands for it in messages.
///
/// # Errors
/// When reading fails, or the text is not a valid manifest.
pub fn check_reader(
    name: &str,
    reader: impl Read,
    options: &ManifestOptions,
) -> Result<CheckedManifest, Rejection> {
    let mut bytes = Vec::new();
    // One byte more than allowed distinguishes "just fits" from "too large" without reading the
    // rest.
    match reader.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) => check_bytes(name, &bytes, options, Includer::Manifest),
        Err(error) => Err(Rejection::new(name, "", vec![unreadable(&error)])),
    }
}

/// Reads several files as one manifest: the keys of the first take precedence over those of the
/// next, as with `include`.
///
/// # Errors
/// When a file cannot be read, or they are not a valid manifest together.
pub fn check_merged(paths: &[&Path], options: &ManifestOptions) -> Result<CheckedManifest, Rejection> {
    merged(paths, "", options)
}

/// Reads the policy of a manifest, or of a file with the policies that manifests include.
///
/// # Errors
/// When the file cannot be read, or is not valid.
pub fn load_policy(path: &Path) -> Result<Policy, Rejection> {
    let checked = merged(&[path], POLICIES, &ManifestOptions::default())?;
    whole(&path.display().to_string(), checked).map(|manifest| Policy::from(&manifest))
}

/// Reads the policy that `file` includes by this path. It must be where `file` may include others.
///
/// # Errors
/// When the file cannot be read, or is not valid.
pub fn load_included_policy(file: &Path, path: &str, options: &ManifestOptions) -> Result<Policy, Rejection> {
    let name = file.display().to_string();
    let text = format!("include: {}\n{POLICIES}", serde_json::json!([path]));
    let checked = check_bytes(&name, text.as_bytes(), options, Includer::Manifest)?;
    whole(&name, checked).map(|manifest| Policy::from(&manifest))
}

/// What a file with policies has not.
const POLICIES: &str =
    "pipeline: { id: policy, tolerance: { max_null_rate: 0, halt_on_geometry_invalid: true } }\n";

fn merged(paths: &[&Path], others: &str, options: &ManifestOptions) -> Result<CheckedManifest, Rejection> {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let text = format!("include: {}\n{others}", serde_json::json!(names));
    check_bytes("(merged)", text.as_bytes(), options, Includer::Person)
}

/// Reads a manifest, such as from standard input; `name` stands for it in messages.
///
/// # Errors
/// When reading fails, or the text is not a valid manifest.
pub fn from_reader(name: &str, reader: impl Read) -> Result<Manifest, Rejection> {
    check_reader(name, reader, &ManifestOptions::default()).and_then(|checked| whole(name, checked))
}

/// Parses a manifest; `name` stands for it in messages. Total: any bytes give a manifest or a
/// rejection, in bounded time.
///
/// # Errors
/// When the bytes are not a valid manifest.
pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Manifest, Rejection> {
    check_bytes(name, bytes, &ManifestOptions::default(), Includer::Manifest)
        .and_then(|checked| whole(name, checked))
}

/// The manifest, if all its values are known.
fn whole(name: &str, checked: CheckedManifest) -> Result<Manifest, Rejection> {
    checked.whole().map_err(|message| {
        let problem = ManifestProblem::whole("variable", message).help("give the values with `--var`");
        Rejection::new(name, "", vec![problem])
    })
}

impl CheckedManifest {
    /// The manifest.
    ///
    /// # Errors
    /// When values are missing; the names of their variables.
    pub fn whole(self) -> Result<Manifest, String> {
        let names: Vec<String> = self.unshown.iter().flat_map(|value| value.variables.clone()).collect();
        self.manifest.ok_or_else(|| format!("the values of these variables are needed: {}", names.join(", ")))
    }
}

fn check_bytes(
    name: &str,
    bytes: &[u8],
    options: &ManifestOptions,
    includer: Includer,
) -> Result<CheckedManifest, Rejection> {
    let reject = |problem| Err(Rejection::new(name, "", vec![problem]));
    if bytes.len() > BYTES_MAX {
        let problem =
            ManifestProblem::whole("too_large", format!("the file is larger than {BYTES_MAX} bytes"));
        return reject(problem.help("a manifest is a few kilobytes; is this the right file?"));
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let (text, help) = (String::from_utf8_lossy(bytes), "save the file as UTF-8");
            if !origin::is_manifest(&text) {
                let problem = ManifestProblem::whole("not_utf8", "the file is not valid UTF-8");
                return reject(problem.help(help));
            }
            let at = error.valid_up_to();
            let problem =
                ManifestProblem::new("not_utf8", at..at + 1, "the file is not valid UTF-8 from here on");
            return Err(Rejection::new(name, &text, vec![problem.help(help)]));
        }
    };
    let help = "start with `pipeline:`; `tidegate schema` lists all keys";
    if origin::is_empty(text) {
        return reject(ManifestProblem::whole("empty", "the file is empty").help(help));
    }
    if !origin::is_manifest(text) {
        let message = format!("this is no manifest: {}", origin::NO_KEY);
        return reject(ManifestProblem::whole("no_manifest", message).help(help));
    }
    let mut texts = Texts::of(name, text);
    read(name, text, options, includer, &mut texts).map_err(|problems| Rejection::of(texts, problems))
}

/// What the checks make of a tree.
struct ExaminedManifest {
    json: serde_json::Value,
    problems: Vec<ManifestProblem>,
    /// The places of open values that are no text.
    missing: Vec<ByteRange>,
}

impl ExaminedManifest {
    fn of(root: &YamlNode) -> ExaminedManifest {
        let schema = schema::bare();
        let (mut problems, mut missing) = (Vec::new(), Vec::new());
        let json = check::check(root, schema, &mut problems, &mut missing).unwrap_or_default();
        rules::check(&json, schema, root, &mut problems);
        parts::check(root, &mut problems);
        expectation::check(root, &mut problems);
        ExaminedManifest { json, problems, missing }
    }

    fn manifest(&self) -> Option<Manifest> {
        let is_whole = self.problems.is_empty() && self.missing.is_empty();
        is_whole.then(|| serde_json::from_value(self.json.clone()).ok()).flatten()
    }
}

fn read(
    name: &str,
    text: &str,
    options: &ManifestOptions,
    includer: Includer,
    texts: &mut Texts,
) -> Result<CheckedManifest, Vec<ManifestProblem>> {
    if let Some(problem) = lost_indentation(text) {
        return Err(vec![problem]);
    }
    let root = tree::parse(text).map_err(|problem| vec![problem])?;
    if matches!(root.value, tree::YamlValue::Null) {
        let problem = ManifestProblem::whole("empty", "the file is empty");
        return Err(vec![problem.help("start with `pipeline:`; `tidegate schema` lists all keys")]);
    }
    let mut problems = Vec::new();
    let root = include::resolve(root, name, (includer, &options.allow_include), texts, &mut problems);
    let given = |name: &str| options.variables.get(name).cloned();
    let set = |name: &str| if options.no_env { None } else { std::env::var(name).ok() };
    let none = if options.no_env { VariableLookup::Unread } else { VariableLookup::Unset };
    // With all values that there are.
    let mut full = root.clone();
    let known = |name: &str| given(name).or_else(|| set(name)).map_or(none.clone(), VariableLookup::Value);
    let unchecked = env::expand(&mut full, &known, VariablePlaceholder::Open, &mut problems);
    let examined = ExaminedManifest::of(&full);
    // As it is shown: without the values of the environment.
    let mut shown = root.clone();
    let of_others = |name: &str| match given(name) {
        None if set(name).is_some() => VariableLookup::Stays,
        None => none.clone(),
        Some(value) => VariableLookup::Value(value),
    };
    let open = env::expand(&mut shown, &of_others, VariablePlaceholder::Open, &mut Vec::new());
    if !examined.problems.is_empty() || !problems.is_empty() {
        problems.extend(said_without_values(examined.problems, &root, &|name| {
            given(name).or_else(|| set(name)).is_some()
        }));
        return Err(problems);
    }
    let at = |open: &OpenText| {
        let (file, line, column) = texts.position(&open.place);
        OpenValue { variables: open.names.clone(), file, line, column }
    };
    let (manifest, mut unshown) = (examined.manifest(), Vec::new());
    if manifest.is_none() && examined.missing.is_empty() {
        let why = serde_json::from_value::<Manifest>(examined.json).err().map(|error| error.to_string());
        let why = why.filter(|_| open.is_empty()).unwrap_or_else(|| "a value cannot be used".to_owned());
        return Err(vec![ManifestProblem::whole("type", why).help("compare with `tidegate schema`")]);
    }
    let shown = if open.is_empty() {
        manifest.clone()
    } else {
        let examined = ExaminedManifest::of(&shown);
        unshown.extend(open.iter().filter(|text| examined.missing.contains(&text.place)).map(at));
        examined.manifest()
    };
    let mut names: Vec<&String> = open.iter().flat_map(|text| &text.names).collect();
    names.sort();
    names.dedup();
    let substituted = names.into_iter().filter_map(|name| Some((name.clone(), set(name)?))).collect();
    Ok(CheckedManifest {
        manifest,
        shown,
        unshown,
        unchecked: unchecked.iter().map(at).collect(),
        substituted,
    })
}

/// The problems of a tree whose variables have values, without these.
fn said_without_values(
    found: Vec<ManifestProblem>,
    root: &YamlNode,
    has_value: &dyn Fn(&str) -> bool,
) -> Vec<ManifestProblem> {
    let without = |placeholder| {
        let mut tree = root.clone();
        let stays = |name: &str| if has_value(name) { VariableLookup::Stays } else { VariableLookup::Unset };
        let open = env::expand(&mut tree, &stays, placeholder, &mut Vec::new());
        (ExaminedManifest::of(&tree).problems, open)
    };
    let (free, open) = without(VariablePlaceholder::Open);
    if open.is_empty() {
        return found;
    }
    let (written, _) = without(VariablePlaceholder::Text);
    masked::masked(found, &free, &written, &open)
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
