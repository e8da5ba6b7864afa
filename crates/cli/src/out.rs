//! Output: data to standard output, messages to standard error.

use std::io::{self, IsTerminal, Read, Write};

use tidegate_core::quote::shell;

use crate::host;

/// The output format of a command.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
}

/// This command line with `--resume`, to be pasted. Secrets are masked; those come from the
/// environment or a file and are not on it.
pub(crate) fn resume_command() -> String {
    if host::current().is_some() {
        return "call it again with resume=True".to_owned();
    }
    let words = crate::words().skip(1).map(|word| word.to_string_lossy().into_owned());
    let mut words: Vec<String> = words.collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".into());
    }
    let words: Vec<_> = words.iter().map(|word| shell(word)).collect();
    tidegate_client::secret::mask(&format!("tidegate {}", words.join(" "))).into_owned()
}

/// Writes data completely or returns an error. A closed pipe is an error of kind `BrokenPipe`, on
/// which the command exits quietly.
pub(crate) fn data(text: &str) -> io::Result<()> {
    if let Some(host) = host::current() {
        host.data(text);
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a message to standard error. If that is closed, nobody reads it.
pub(crate) fn say(text: &str) {
    let text = &*tidegate_client::secret::mask(text);
    if let Some(host) = host::current() {
        return host.say(text);
    }
    crate::pipes::log(if crate::log::is_error(text) { "error" } else { "info" }, text);
    if crate::log::is_json() {
        return crate::log::word(text);
    }
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Tells a host the code of the taxonomy for the failure of which a message speaks. On the command line the
/// message and the exit code are all.
pub(crate) fn failed(code: &str) {
    if let Some(host) = host::current() {
        host.failed(code);
    }
}

/// Standard input.
pub(crate) fn input() -> Box<dyn Read> {
    match host::current() {
        Some(host) => Box::new(io::Cursor::new(host.input())),
        None => Box::new(io::stdin().lock()),
    }
}

/// What messages call standard input.
pub(crate) fn input_name() -> &'static str {
    if host::current().is_some() { "<manifest>" } else { "<stdin>" }
}

/// Whether progress may be drawn on standard error.
pub(crate) fn draws() -> bool {
    io::stderr().is_terminal() && host::current().is_none()
}

/// Whether messages on standard error may be coloured.
pub(crate) fn color() -> bool {
    may_color(&io::stderr())
}

/// Whether data on standard output may be coloured.
pub(crate) fn data_color() -> bool {
    may_color(&io::stdout())
}

/// Whether the output is a terminal and `NO_COLOR` is not set.
fn may_color(to: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !set("NO_COLOR") && !dumb && to.is_terminal() && host::current().is_none()
}

/// The columns of the terminal on standard error; 80 if it does not say.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size_of(io::stderr())
        .map(|(width, _)| usize::from(width.0))
        .filter(|width| *width > 0)
        .unwrap_or(80)
}
