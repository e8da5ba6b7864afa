//! The progress line: what a person wants to know while it runs.
//!
//! On a terminal one line is redrawn ten times a second; elsewhere a plain line is written every
//! ten seconds, so that a log stays readable. The line is made by a pure function of what is
//! known, so that it can be tested; drawing is all that this module does besides.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// What is known now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Now {
    /// Records that have ended.
    pub(crate) done: u64,
    /// Which share of the input that is, if it can be told.
    pub(crate) share: Option<f64>,
    /// Records ended per second, lately.
    pub(crate) rate: f64,
    /// Time since the start.
    pub(crate) elapsed: Duration,
    /// Calls out.
    pub(crate) in_flight: u32,
    /// Answers "too many".
    pub(crate) throttled: u64,
    /// Records that failed.
    pub(crate) failed: u64,
    /// Nothing is sent for this long, and why.
    pub(crate) waiting: Option<(Duration, &'static str)>,
}

const BAR: usize = 24;

/// The line, without colour when `color` is off.
pub(crate) fn line(now: &Now, color: bool) -> String {
    let paint = |code: &str, text: String| if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text };
    let mut parts = Vec::new();
    if let Some(share) = now.share {
        let share = share.clamp(0.0, 1.0);
        let full = (share * BAR as f64).round() as usize;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
        parts.push(format!("{} {:>3.0} %", paint("36", bar), (share * 100.0).floor()));
    }
    parts.push(format!("{} rows", thousands(now.done)));
    parts.push(format!("{}/s", thousands(now.rate.round() as u64)));
    if let Some(share) = now.share.filter(|s| *s > 0.0 && *s < 1.0) {
        let wait = now.waiting.map_or(0.0, |(wait, _)| wait.as_secs_f64());
        let left = now.elapsed.as_secs_f64() * (1.0 - share) / share + wait;
        parts.push(format!("{} left", span(Duration::from_secs_f64(left.min(1e9)))));
    }
    parts.push(format!("{} in flight", now.in_flight));
    if now.throttled > 0 {
        parts.push(paint("33", format!("{} throttled", thousands(now.throttled))));
    }
    if now.failed > 0 {
        parts.push(paint("31", format!("{} failed", thousands(now.failed))));
    }
    if let Some((wait, why)) = now.waiting {
        parts.push(paint("35", format!("waiting {}, {why}", span(wait))));
    }
    parts.join(" · ")
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

    /// Draws, if it is time.
    pub(crate) fn draw(&mut self, now: &Now) {
        self.draw_line(|color| line(now, color));
    }

    /// Draws another line, if it is time.
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
    fn the_line_says_what_happens() {
        let now = Now {
            done: 4213,
            share: Some(0.42),
            rate: 498.3,
            elapsed: Duration::from_secs(9),
            in_flight: 37,
            throttled: 12,
            failed: 0,
            waiting: Some((Duration::from_secs(12), "the server said so")),
        };
        assert_eq!(
            line(&now, false),
            "██████████░░░░░░░░░░░░░░  42 % · 4,213 rows · 498/s · 24 s left · 37 in flight · 12 throttled · \
             waiting 12 s, the server said so"
        );
        assert_eq!(line(&Now::default(), false), "0 rows · 0/s · 0 in flight");
        assert!(line(&now, true).contains("\x1b[33m12 throttled\x1b[0m"));
    }

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
