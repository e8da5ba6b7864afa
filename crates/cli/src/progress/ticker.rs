//! A line of progress of work that is not awaited: drawn on a terminal, at most five times a second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The time between two lines.
const TICK: Duration = Duration::from_millis(200);

/// Draws a line over the one before.
pub(crate) struct Ticker {
    is_terminal: bool,
    drawn: Option<Instant>,
}

impl Ticker {
    /// Draws nothing if standard error is not a terminal.
    pub(crate) fn new() -> Ticker {
        Ticker { is_terminal: crate::out::draws(), drawn: None }
    }

    /// Draws the line, unless the last one is too young.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        if self.is_terminal && self.drawn.is_none_or(|at| at.elapsed() >= TICK) {
            self.drawn = Some(Instant::now());
            let line: String = line().chars().take(crate::out::width().saturating_sub(1)).collect();
            // A terminal that has gone is no reason to stop.
            let _ = io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes());
        }
    }

    /// Erases the line, so that something else can be said.
    pub(crate) fn erase(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.erase();
    }
}
