//! The progress line: what a person wants to know while it runs.
//!
//! On a terminal one line is redrawn ten times a second; elsewhere a plain line is written every
//! ten seconds, so that a log stays readable. The line is made by a pure function of what is
//! known, so that it can be tested; drawing is all that this module does besides.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use tidegate_client::lane::Snapshot;

/// What a person should know about a wait: only those that can be felt.
pub(crate) fn waiting(lane: &Snapshot) -> Option<(Duration, &'static str)> {
    let told = lane.gate.since(lane.now);
    let (wait, why) = match lane.due {
        // Those who were refused wait on their own, and the lane has nobody to wait for.
        None if lane.in_flight == 0 => (told, "the server asked for it"),
        None => return None,
        Some(due) => {
            let why = match due.shut {
                Some(code) if code == tidegate_core::Code::QUOTA_EXHAUSTED => "the quota is spent",
                Some(_) => "the service is failing",
                None if !told.is_zero() => "the server asked for it",
                None => "to keep the pace",
            };
            (due.at.since(lane.now), why)
        }
    };
    (wait >= Duration::from_millis(800)).then_some((wait, why))
}

/// `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A span as a person says it: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`.
pub(crate) fn span(d: Duration) -> String {
    let s = d.as_secs_f64();
    if s < 9.95 {
        return format!("{s:.1} s");
    }
    let s = s.round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// Draws the line.
pub(crate) struct Progress {
    terminal: bool,
    color: bool,
    drawn: bool,
    last: Option<Instant>,
}

impl Progress {
    /// Draws on standard error, unless `quiet`.
    pub(crate) fn new(quiet: bool, color: bool) -> Option<Progress> {
        let terminal = io::stderr().is_terminal();
        (!quiet && !crate::log::is_json()).then_some(Progress { terminal, color, drawn: false, last: None })
    }

    /// How long to wait between two looks.
    pub(crate) const EVERY: Duration = Duration::from_millis(100);

    /// Draws a line, if it is time.
    pub(crate) fn draw_line(&mut self, line: impl Fn(bool) -> String) {
        let pause = if self.terminal { Duration::ZERO } else { Duration::from_secs(10) };
        let at = Instant::now();
        if self.last.get_or_insert(at).elapsed() < pause {
            return;
        }
        self.last = Some(at);
        let mut out = io::stderr().lock();
        // Nobody is left to tell if standard error is closed.
        let _ = if self.terminal {
            self.drawn = true;
            write!(out, "\r\x1b[2K{}", line(self.color)).and_then(|()| out.flush())
        } else {
            writeln!(out, "{}", line(false))
        };
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K");
            self.drawn = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(span(Duration::from_millis(430)), "0.4 s");
        assert_eq!(span(Duration::from_secs(185)), "3 min 5 s");
        assert_eq!(span(Duration::from_secs(7830)), "2 h 10 min");
    }
}
