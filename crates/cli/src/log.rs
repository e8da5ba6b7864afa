//! Logging: text for a terminal, or one JSON object per line.
//!
//! Events of `tracing` are formatted here. Spans are exported separately (`telemetry::trace`).
//! Every line passes through the redactor, which knows the secrets of this process. Coordinates are
//! logged only at `debug`; the call sites choose that level.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::sync::{OnceLock, RwLock};

use serde_json::{Map, Value as Json, json};
use tidegate_client::secret;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::letter::now_ms;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// Plain text
    Human,
    /// One JSON object per line
    Json,
}

/// The least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    /// Failures
    Error,
    /// Also warnings
    Warn,
    /// Also completed operations
    Info,
    /// Also every call that was not answered at once, with coordinates
    Debug,
}

static FORM: OnceLock<Form> = OnceLock::new();
static ABOUT: RwLock<Vec<(&'static str, String)>> = RwLock::new(Vec::new());

/// Starts logging. The default level is `warn` for text and `info` for JSON.
pub(crate) fn init(form: Form, level: Option<LogLevel>) {
    let usual = if form == Form::Json { LogLevel::Info } else { LogLevel::Warn };
    let chosen = level.is_some();
    let level = match level.unwrap_or(usual) {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    // Called once; later calls would have no effect.
    let _ = FORM.set(form);
    let calls = form == Form::Json || chosen;
    let _ = tracing::subscriber::set_global_default(Logger { form, level, calls });
}

/// Whether lines are JSON: then nothing else may be written to standard error.
pub(crate) fn is_json() -> bool {
    FORM.get() == Some(&Form::Json)
}

/// Sets the fields that every following line has: the pipeline, the task, the trace.
pub(crate) fn about(fields: Vec<(&'static str, String)>) {
    if let Ok(mut about) = ABOUT.write() {
        *about = fields;
    }
}

/// Logs a plain message. One that begins with the name of the program, or with a problem of a manifest,
/// is an error.
pub(crate) fn word(text: &str) {
    let mut fields = Map::new();
    fields.insert("message".into(), text.trim().into());
    write(&line_json(if is_error(text) { "error" } else { "info" }, "tidegate", fields));
}

/// Whether a plain message reports an error.
pub(crate) fn is_error(text: &str) -> bool {
    text.starts_with("tidegate") || text.starts_with("error[")
}

/// Logs the result of a run as fields.
pub(crate) fn result(level: &str, message: &str, result: Json) {
    let mut fields = Map::new();
    fields.insert("message".into(), message.into());
    if let Json::Object(result) = result {
        fields.extend(result.into_iter().filter(|(_, value)| !value.is_null()));
    }
    write(&line_json(level, "tidegate::run", fields));
}

struct Logger {
    form: Form,
    level: tracing::Level,
    /// Whether single calls are logged. Without being asked, a text for people leaves them out: the
    /// result counts them, and the dead letters have their reasons.
    calls: bool,
}

impl Subscriber for Logger {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        let is_call = matches!(about.target(), "tidegate::call" | "tidegate::sink");
        !about.is_span()
            && *about.level() <= self.level
            && about.target().starts_with("tidegate")
            && (self.calls || !is_call)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventFields(Map::new());
        event.record(&mut fields);
        let about = event.metadata();
        let level = match *about.level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            _ => "debug",
        };
        if crate::pipes::is_open() {
            let line = line_human(level, fields.0.clone());
            crate::pipes::log(level, line.trim_start_matches("tidegate: "));
        }
        write(&match self.form {
            Form::Json => line_json(level, about.target(), fields.0),
            Form::Human => line_human(level, fields.0),
        });
    }
}

/// The fields of an event.
struct EventFields(Map<String, Json>);

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), json!(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

fn line_json(level: &str, target: &str, fields: Map<String, Json>) -> String {
    let now = now_ms();
    let time = format!("{}.{:03}Z", rfc3339(now).trim_end_matches('Z'), now.rem_euclid(1000));
    let mut line = Map::new();
    line.insert("time".into(), time.into());
    line.insert("level".into(), level.into());
    line.insert("target".into(), target.into());
    if let Ok(about) = ABOUT.read() {
        for (name, value) in about.iter() {
            line.insert((*name).into(), value.clone().into());
        }
    }
    line.extend(fields);
    format!("{}\n", Json::Object(line))
}

fn line_human(level: &str, mut fields: Map<String, Json>) -> String {
    let said = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let message = fields.remove("message").map(|m| said(&m)).unwrap_or_default();
    let mut line = format!("tidegate: {level}: ");
    if let Some(alert) = fields.remove("alert") {
        let _ = write!(line, "{}: ", said(&alert));
    }
    line.push_str(&message);
    for (name, value) in &fields {
        let _ = write!(line, " {name}={}", said(value));
    }
    line.push('\n');
    line
}

/// Writes a line, replacing a progress line if there is one. If standard error is closed, nobody
/// reads it.
fn write(line: &str) {
    let mut err = io::stderr().lock();
    let clear = if !is_json() && err.is_terminal() { "\r\x1b[2K" } else { "" };
    let _ = write!(err, "{clear}{}", secret::mask(line));
}
