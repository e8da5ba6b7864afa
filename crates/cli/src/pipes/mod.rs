//! Dagster Pipes: a run that Dagster started reports to it, without a library in between.
//!
//! Dagster sets two variables, each of them base64 of zlib of JSON: `DAGSTER_PIPES_CONTEXT` says what
//! the step is (assets, partition, extras), `DAGSTER_PIPES_MESSAGES` where messages go. A message is
//! one line of JSON. Without the variables, nothing here does anything.
//!
//! ```text
//!   opened ──▶ log … ──▶ report_asset_check per gate ──▶ report_asset_materialization
//!                        ──▶ report_custom_message: the result, as of --format json ──▶ closed
//! ```
//!
//! Why checks only by `extras.checks`: Dagster fails a step that reports a check which the asset does
//! not declare, and the context does not say what it declares. `PipesTidegateClient` of the Python
//! package fills the list in.

mod result;

pub(crate) use result::{PipesResult, check_name};

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidegate_client::lock::lock;
use tidegate_client::secret;

use crate::exit::Exit;

const CONTEXT: &str = "DAGSTER_PIPES_CONTEXT";
const MESSAGES: &str = "DAGSTER_PIPES_MESSAGES";
/// The version of the protocol.
const VERSION: &str = "0.1";
/// The most bytes of a context; Dagster's own are a few kilobytes.
const CONTEXT_MAX: u64 = 64 << 20;

static PIPES: OnceLock<Pipes> = OnceLock::new();

/// The connection to Dagster.
struct Pipes {
    step: PipesStep,
    channel: Mutex<PipesChannel>,
}

/// What Dagster says about the step.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PipesStep {
    asset_keys: Option<Vec<String>>,
    partition_key: Option<String>,
    extras: Option<Map<String, Value>>,
}

impl PipesStep {
    /// The asset that the run materialises: the only one of the step, or the one that the extras name.
    fn asset(&self) -> Option<&str> {
        let named = self.extras.as_ref().and_then(|extras| extras.get("asset_key")?.as_str());
        match self.asset_keys.as_deref() {
            Some([one]) => Some(named.unwrap_or(one)),
            _ => named,
        }
    }

    /// The names of the checks to report; empty if none was asked for.
    fn checks(&self) -> Vec<&str> {
        let listed = self.extras.as_ref().and_then(|extras| extras.get("checks")?.as_array());
        listed.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }
}

/// Where messages go.
struct PipesChannel {
    to: PipesTarget,
    /// The last error that was said, for the message that closes.
    error: Option<String>,
    /// Why a message could not be written. What follows is not written either.
    lost: Option<String>,
}

enum PipesTarget {
    File(File),
    Out,
    Err,
}

impl PipesChannel {
    fn send(&mut self, method: &str, params: Value) {
        if self.lost.is_some() {
            return;
        }
        let message = json!({ "__dagster_pipes_version": VERSION, "method": method, "params": params });
        let line = format!("{message}\n");
        let written = match &mut self.to {
            PipesTarget::File(file) => file.write_all(line.as_bytes()),
            PipesTarget::Out => io::stdout().lock().write_all(line.as_bytes()),
            PipesTarget::Err => io::stderr().lock().write_all(line.as_bytes()),
        };
        self.lost = written.err().map(|e| e.to_string());
    }
}

/// Connects to Dagster, if it started this process.
///
/// # Errors
/// When its variables cannot be used. Then the run does not start: Dagster would not learn its result.
pub(crate) fn open() -> Result<(), String> {
    let found = |name: &'static str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let (context, messages) = match (found(CONTEXT), found(MESSAGES)) {
        (None, None) => return Ok(()),
        (Some(context), Some(messages)) => (context, messages),
        (Some(_), None) => return Err(format!("Dagster Pipes: {CONTEXT} is set and {MESSAGES} is not")),
        (None, Some(_)) => return Err(format!("Dagster Pipes: {MESSAGES} is set and {CONTEXT} is not")),
    };
    let step = step(&context).map_err(|why| format!("Dagster Pipes: {CONTEXT}: {why}"))?;
    let to = target(&messages).map_err(|why| format!("Dagster Pipes: {MESSAGES}: {why}"))?;
    let mut channel = PipesChannel { to, error: None, lost: None };
    channel.send("opened", json!({ "extras": {} }));
    if let Some(why) = channel.lost {
        return Err(format!("Dagster Pipes: {MESSAGES}: {why}"));
    }
    // Called once per process.
    let _ = PIPES.set(Pipes { step, channel: Mutex::new(channel) });
    Ok(())
}

/// Reads a variable: base64 of zlib of JSON.
fn decode(text: &str) -> Result<Value, String> {
    let bytes = STANDARD.decode(text.trim()).map_err(|e| format!("it is not base64: {e}"))?;
    let mut json = Vec::new();
    ZlibDecoder::new(bytes.as_slice())
        .take(CONTEXT_MAX)
        .read_to_end(&mut json)
        .map_err(|e| format!("it is not compressed with zlib: {e}"))?;
    serde_json::from_slice(&json).map_err(|e| format!("it is not JSON: {e}"))
}

/// The step, from the variable itself or from the file that it names.
fn step(text: &str) -> Result<PipesStep, String> {
    let value = decode(text)?;
    let data = match (value.get("data"), value.get("path").and_then(Value::as_str)) {
        (Some(data), _) => data.clone(),
        (None, Some(path)) => {
            let mut bytes = Vec::new();
            File::open(path)
                .and_then(|file| file.take(CONTEXT_MAX).read_to_end(&mut bytes))
                .map_err(|e| format!("{path}: {e}"))?;
            serde_json::from_slice(&bytes).map_err(|e| format!("{path}: {e}"))?
        }
        (None, None) => return Err(unknown(&value, "`data` and `path`")),
    };
    serde_json::from_value(data).map_err(|e| e.to_string())
}

/// Where messages go.
fn target(text: &str) -> Result<PipesTarget, String> {
    let value = decode(text)?;
    if let Some(path) = value.get("path").and_then(Value::as_str) {
        let file = OpenOptions::new().create(true).append(true).open(PathBuf::from(path));
        return file.map(PipesTarget::File).map_err(|e| format!("{path}: {e}"));
    }
    match value.get("stdio").or_else(|| value.get("buffered_stdio")).and_then(Value::as_str) {
        Some("stdout") => Ok(PipesTarget::Out),
        Some("stderr") => Ok(PipesTarget::Err),
        _ => Err(unknown(&value, "`path`, `stdio` and `buffered_stdio`")),
    }
}

fn unknown(value: &Value, known: &str) -> String {
    let names: Vec<_> = value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    format!("it has {:?}, but only {known} are understood", names.join(", "))
}

/// Passes a line of the log on. The level is one of error, warn, info, debug.
pub(crate) fn log(level: &str, message: &str) {
    let (Some(pipes), false) = (PIPES.get(), message.trim().is_empty()) else { return };
    let level = match level {
        "error" => "ERROR",
        "warn" => "WARNING",
        "debug" => "DEBUG",
        _ => "INFO",
    };
    let message = secret::mask(message.trim_end()).into_owned();
    let mut channel = lock(&pipes.channel);
    if level == "ERROR" {
        channel.error = Some(message.clone());
    }
    channel.send("log", json!({ "message": message, "level": level }));
}

/// Whether Dagster wants to know the result.
pub(crate) fn is_open() -> bool {
    PIPES.get().is_some()
}

/// Reports how a run ended.
pub(crate) fn report(result: &PipesResult<'_>) {
    let Some(pipes) = PIPES.get() else { return };
    let messages = result.messages(&pipes.step);
    let mut channel = lock(&pipes.channel);
    for (method, params) in messages {
        channel.send(method, params);
    }
}

/// Says goodbye, and returns the exit code of the process: a failure if Dagster did not learn of a
/// success.
pub(crate) fn close(exit: Exit) -> Exit {
    let Some(pipes) = PIPES.get() else { return exit };
    let mut channel = lock(&pipes.channel);
    let finished = matches!(exit, Exit::Done | Exit::DeadLetters | Exit::Alerted);
    let params = if finished {
        json!({})
    } else {
        let message = channel.error.clone().unwrap_or_else(|| format!("tidegate ended with {}", exit as u8));
        json!({ "exception": {
            "message": message, "stack": [], "name": format!("{exit:?}"), "cause": null, "context": null,
        }})
    };
    channel.send("closed", params);
    let Some(why) = &channel.lost else { return exit };
    // Not `out::say`, which would write to the channel.
    let _ = writeln!(io::stderr().lock(), "tidegate: Dagster Pipes: the result could not be reported: {why}");
    if finished { Exit::Failure } else { exit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_protocol_is_read() {
        // base64(zlib('{"path": "/dev/null"}')), as Python writes it.
        let text = "eJyrVipILMlQslJQ0k9JLdPPK83JUaoFAEmRBuA=";
        assert_eq!(decode(text).unwrap(), json!({ "path": "/dev/null" }));
        assert!(matches!(target(text), Ok(PipesTarget::File(_))));
        assert!(decode("§").unwrap_err().contains("base64"));
        assert!(decode("AAAA").unwrap_err().contains("zlib"));
    }

    #[test]
    fn one_asset_is_the_asset_and_of_several_the_extras_name_one() {
        let step = |json: Value| serde_json::from_value::<PipesStep>(json).unwrap();
        assert_eq!(step(json!({ "asset_keys": ["a"] })).asset(), Some("a"));
        assert_eq!(step(json!({ "asset_keys": ["a", "b"] })).asset(), None);
        let named =
            step(json!({ "asset_keys": ["a", "b"], "extras": { "asset_key": "b", "checks": ["c", 1] } }));
        assert_eq!((named.asset(), named.checks()), (Some("b"), vec!["c"]));
        assert_eq!(step(json!({ "asset_keys": null })).asset(), None);
    }
}
