//! One run from a manifest to its end, for whoever made the manifest: `run` from a file, `geocode`
//! and `fetch` from their options.
//!
//! Everything that a person meets while it goes on is here: progress, the stop by a signal, the
//! report, the summary and the exit code.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::run::{End, Options, Report, RunError, Watch, letters, run as go};
use tidegate_pipeline::telemetry::Telemetry;

use crate::exit::Exit;
use crate::observe::{self, Observer, Subject};
use crate::out::{self, Format};
use crate::progress::{Progress, span, thousands};
use crate::report;
use crate::stop::Stop;

/// A run that is to be made.
pub(crate) struct Execution<'a> {
    /// What is to be done.
    pub(crate) manifest: &'a Manifest,
    /// How.
    pub(crate) options: Options,
    /// Metrics and the report.
    pub(crate) observe: &'a observe::Args,
    /// No progress and no summary.
    pub(crate) quiet: bool,
    /// What goes to standard output.
    pub(crate) format: Format,
    /// The verb, in metrics and traces.
    pub(crate) verb: &'static str,
    /// Before the words of an error: the file of the manifest, or the input.
    pub(crate) subject: String,
    /// The command that continues a run that was cut off.
    pub(crate) resume: String,
}

impl Execution<'_> {
    /// Runs it to its end.
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let manifest = self.manifest;
        let watch = Watch { telemetry: Arc::new(Telemetry::new(&manifest.pipeline.id)), ..Watch::default() };
        let subject = Subject {
            telemetry: &watch.telemetry,
            task: self.verb,
            alerts: manifest.pipeline.alerts.as_ref(),
            // A place that cannot be told is told by the run itself.
            letters: manifest
                .pipeline
                .dead_letters
                .as_ref()
                .and_then(|form| letters::place(form, &self.options.folder, &self.options.state).ok()),
        };
        let observer = match Observer::start(subject, self.observe) {
            Ok(observer) => observer,
            Err(why) => {
                out::say(&format!("tidegate: {why}"));
                return Ok(Exit::Usage);
            }
        };
        listen(&watch.stop);
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| self.draw(&watch, &done));
            let result = go(manifest, &self.options, &watch);
            done.store(true, Ordering::Relaxed);
            result
        });
        let seen = match &result {
            Ok(report) => observer.end(report.status().word(), false),
            Err(_) => observer.end("failed", true),
        };
        if let Some(path) = &self.observe.report
            && let Err(e) = std::fs::write(path, report::pipeline(manifest, &result, &watch.telemetry, &seen))
        {
            out::say(&format!("tidegate: the report {} cannot be written: {e}", path.display()));
        }
        match result {
            Ok(report) => self.end(&report).map(|exit| exit.or_alerted(seen.exits)),
            Err(error) => self.failed(&error),
        }
    }

    /// Why it did not begin or broke off.
    fn failed(&self, error: &RunError) -> io::Result<Exit> {
        out::say(&format!("tidegate: {}: {error}", self.subject));
        let (mut code, mut not_before) = (None, None);
        let exit = match error {
            RunError::Setup(_) => Exit::Usage,
            RunError::Later(_) => Exit::TryLater,
            RunError::Service { code: why, until, .. } => {
                (code, not_before) = (Some(why.as_str()), until.map(|until| until.millis()));
                if until.is_some() { Exit::TryLater } else { Exit::Failure }
            }
            RunError::Broken(_) => Exit::Failure,
        };
        if self.format == Format::Json {
            let value = json!({
                "pipeline": self.manifest.pipeline.id,
                "status": error.status(),
                "error": error.to_string(),
                "code": code,
                "not_before_ms": not_before,
            });
            out::data(&format!("{value:#}\n"))?;
        }
        Ok(exit)
    }

    /// Draws what happens until it is done.
    fn draw(&self, watch: &Watch, done: &AtomicBool) {
        let quiet = self.quiet;
        let terminal = io::stderr().is_terminal();
        let mut began = Instant::now();
        let mut last = Instant::now();
        let mut drawn = false;
        // Whoever asked to resume is told which of the two it is.
        let mut told = quiet || !self.options.resume;
        let mut announce = || {
            if let Some(run) = watch.run.get().filter(|_| !told) {
                out::say(&run.to_string());
                told = true;
            }
        };
        while !done.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(20));
            announce();
            let pause = if terminal { Progress::EVERY } else { Duration::from_secs(10) };
            if quiet || crate::log::is_json() || last.elapsed() < pause {
                continue;
            }
            last = Instant::now();
            if !watch.begun.load(Ordering::Relaxed) {
                began = last;
            }
            let now = line(watch, began.elapsed(), out::color());
            let mut err = io::stderr().lock();
            // Nobody is left to tell if standard error is closed.
            let _ = if terminal {
                drawn = true;
                write!(err, "\r\x1b[2K{now}").and_then(|()| err.flush())
            } else {
                writeln!(err, "{now}")
            };
        }
        if drawn {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K");
        }
        announce();
    }

    /// Says how it ended.
    fn end(&self, report: &Report) -> io::Result<Exit> {
        if !self.quiet {
            out::say(self.summary(report).trim_end());
        }
        if self.format == Format::Json {
            out::data(&format!("{:#}\n", report.to_json(report.status())))?;
        }
        Ok(match &report.end {
            End::Done if report.counts.dead() > 0 => Exit::DeadLetters,
            End::Done => Exit::Done,
            End::Halted(_) => Exit::Halted,
            End::Stopped => Exit::Failure,
            End::TryLater(..) | End::Suspended(_) => Exit::TryLater,
        })
    }

    fn summary(&self, report: &Report) -> String {
        let counts = &report.counts;
        let word = match &report.end {
            End::Done => "done".to_owned(),
            End::Halted(_) => "halted".to_owned(),
            End::Stopped => "stopped".to_owned(),
            End::TryLater(code, _) => format!("waiting for a service ({code})"),
            End::Suspended(_) => "suspended".to_owned(),
        };
        let mut text = format!("{}: {word} in {}", report.pipeline, span(report.elapsed));
        let mut add = |line: String| {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{line}");
        };
        if report.resumed_at > 0 {
            add(format!("  resumed after record {}", thousands(report.resumed_at)));
        }
        let mut row = |name: &str, n: u64, note: String| {
            let note = if note.is_empty() { note } else { format!("   {note}") };
            add(format!("  {name:<10}{:>12}{note}", thousands(n)));
        };
        if let Some(source) = &report.source {
            let declared =
                source.declared.map_or("not declared".into(), |n| format!("{} declared", thousands(n)));
            let mut notes = vec![declared, format!("{} pages", thousands(source.pages))];
            if source.repeated > 0 {
                notes.push(format!("{} came twice and were left out", thousands(source.repeated)));
            }
            row("received", source.received, notes.join(", "));
        }
        if counts.read > 0 || report.batches > 0 {
            row("read", counts.read, String::new());
            if counts.added > 0 {
                row("exploded", counts.added, "more records, out of lists".into());
            }
            let parts =
                [(counts.inserted, "new"), (counts.updated, "changed"), (counts.unchanged, "unchanged")];
            let parts: Vec<_> = parts
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, word)| format!("{} {word}", thousands(*n)))
                .collect();
            row("written", counts.written(), parts.join(", "));
            let codes: Vec<_> =
                counts.rejected.iter().map(|(code, n)| format!("{code} {}", thousands(*n))).collect();
            row("rejected", counts.dead(), codes.join(", "));
            if counts.filtered > 0 {
                row("filtered", counts.filtered, String::new());
            }
            if counts.deduped > 0 {
                row("deduped", counts.deduped, String::new());
            }
            if counts.no_match > 0 {
                row("no match", counts.no_match, "of the written".into());
            }
            if counts.repaired > 0 {
                row("repaired", counts.repaired, "geometries".into());
            }
            if report.end == End::Done {
                // Asked of the sink, not only of our own counters.
                let holds = report.sink_rows.map(|rows| format!("; the sink holds {} rows", thousands(rows)));
                add(format!("  adds up: none lost, none doubled{}", holds.unwrap_or_default()));
            }
        }
        if report.end == End::Done && counts.read > 0 {
            add(format!("  written to {}", report.sink));
        }
        if counts.dead() > 0 {
            add(format!("  rejected records are in {}", report.rejects));
            if !report.rejects.ends_with(".ndjson") {
                add(format!("  tidegate dlq stats --store {}", report.rejects));
            }
        }
        for operation in &report.operations {
            add(format!("  {}", crate::layer::operation_words(operation)));
            for line in crate::layer::grid_words(operation, "`grids: [DIR]`") {
                add(format!("    {line}"));
            }
        }
        for warning in &report.warnings {
            add(format!("  warning: {warning}"));
        }
        match &report.end {
            End::Done => {}
            End::Halted(halt) => {
                add(format!("  {halt}"));
                add("  the batch with that record was not committed; look at it, change the data or the gate, then".into());
                add(format!("  {}", self.resume));
            }
            End::Suspended(what) => add(format!("  {what}")),
            End::Stopped | End::TryLater(..) => add(format!("  {}", self.resume)),
        }
        text
    }
}

/// Ctrl-C, or a polite kill, lets the batch under way be committed and ends the run.
fn listen(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let heard = move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { Stop::listen()?.asked().await })?;
        stop.store(true, Ordering::Relaxed);
        out::say("\nstopping: the batch under way is committed; --resume goes on after it");
        Ok(())
    };
    // Without a listener the run still ends, by the signal itself, and can be resumed.
    let _ = std::thread::Builder::new().name("signals".into()).spawn(heard);
}

const BAR: usize = 24;

fn line(watch: &Watch, elapsed: Duration, color: bool) -> String {
    if !watch.begun.load(Ordering::Relaxed) {
        return "looking at the source and the sink".to_owned();
    }
    let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    let (done, written, dead, total) =
        (get(&watch.done), get(&watch.written), get(&watch.dead), get(&watch.total));
    let paint = |code: &str, text: String| if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text };
    let mut parts = Vec::new();
    let rate = done.saturating_sub(get(&watch.resumed)) as f64 / elapsed.as_secs_f64().max(0.001);
    if total > 0 {
        let share = (done as f64 / total as f64).clamp(0.0, 1.0);
        let full = (share * BAR as f64).round() as usize;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
        parts.push(format!("{} {:>3.0} %", paint("36", bar), (share * 100.0).floor()));
    }
    parts.push(format!("{} read", thousands(get(&watch.read))));
    parts.push(format!("{} written", thousands(written)));
    if dead > 0 {
        parts.push(paint("31", format!("{} rejected", thousands(dead))));
    }
    parts.push(format!("{}/s", thousands(rate.round() as u64)));
    if total > done && rate > 0.0 {
        parts
            .push(format!("{} left", span(Duration::from_secs_f64(((total - done) as f64 / rate).min(1e9)))));
    } else if total > 0 && done >= total {
        parts.push("completing".to_owned());
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_happens() {
        let watch = Watch::default();
        let line = |watch: &Watch| line(watch, Duration::from_secs(2), false);
        assert_eq!(line(&watch), "looking at the source and the sink");
        watch.begun.store(true, Ordering::Relaxed);
        for (n, value) in [
            (&watch.total, 1000),
            (&watch.resumed, 200),
            (&watch.done, 400),
            (&watch.read, 600),
            (&watch.written, 390),
            (&watch.dead, 10),
        ] {
            n.store(value, Ordering::Relaxed);
        }
        assert_eq!(
            line(&watch),
            "██████████░░░░░░░░░░░░░░  40 % · 600 read · 390 written · 10 rejected · 100/s · 6.0 s left"
        );
        watch.done.store(1000, Ordering::Relaxed);
        assert!(line(&watch).ends_with("400/s · completing"));
    }
}
