//! Where words and data go: data to standard output, words to standard error.

use std::io::{self, IsTerminal, Write};

/// How a verb answers.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
}

/// Writes data, all of it or an error. A closed pipe is an error of kind `BrokenPipe`, which the
/// command ends on quietly: whoever reads has seen enough.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a word to the person at the terminal. If even that fails there is nobody to tell.
pub(crate) fn say(text: &str) {
    if crate::log::is_json() {
        return crate::log::word(text);
    }
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether words on standard error may carry colour.
pub(crate) fn color() -> bool {
    may_color(&io::stderr())
}

/// Whether data on standard output may carry colour.
pub(crate) fn data_color() -> bool {
    may_color(&io::stdout())
}

/// A terminal, and nobody objects.
fn may_color(to: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !set("NO_COLOR") && !dumb && to.is_terminal()
}
