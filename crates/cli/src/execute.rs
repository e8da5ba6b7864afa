//! Executes one run of a manifest: from a file for `run`, built from options for `geocode` and
//! `fetch`.
//!
//! Everything that the user sees of a run is here: progress, stopping on a signal, the report, the
//! summary and the exit code.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_client::lane::Clock;
use tidegate_client::lock::lock;
use tidegate_core::Wall;
use tidegate_core::quote::shell;
use tidegate_pipeline::manifest::{Manifest, SourceSpec, human};
use tidegate_pipeline::run::source::Told;
use tidegate_pipeline::run::{End, RunError, RunOptions, RunReport, RunWatch, letters, run as go};
use tidegate_pipeline::telemetry::{Telemetry, together};

use crate::exit::Exit;
use crate::host;
use crate::observe::{self, Observer, Subject};
use crate::out::{self, OutputFormat};
use crate::outcome::{exit_of, failure_json, nobody_answered, result_json, with_extent};
use crate::pipes::{self, PipesResult};
use crate::progress::{EVERY, Progress, RecentRate, erase, line, span, thousands};
use crate::remedies::Remedies;
use crate::report;
use crate::stop::{AFTER_CALLS, listen};
use crate::summary::by_service;

/// A run to execute.
pub(crate) struct Execution<'a> {
    /// The manifest.
    pub(crate) manifest: &'a Manifest,
    /// The options of the run.
    pub(crate) options: RunOptions,
    /// The options for metrics and the report.
    pub(crate) observe: &'a observe::Args,
    /// Whether to print no progress and no summary.
    pub(crate) quiet: bool,
    /// The output format on standard output.
    pub(crate) format: OutputFormat,
    /// The name of the command, for metrics and traces.
    pub(crate) verb: &'static str,
    /// The prefix of error messages: the manifest file, if there is one.
    pub(crate) subject: String,
    /// The command line that continues an interrupted run.
    pub(crate) resume: String,
    /// Whether the run is only a part of what the command does: its result is not that of the command.
    pub(crate) is_part: bool,
}

impl Execution<'_> {
    /// Runs to the end.
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let manifest = self.manifest;
        let telemetry = Arc::new(Telemetry::new(&manifest.pipeline.id));
        let watch = Arc::new(RunWatch { telemetry, ..RunWatch::default() });
        let host = host::current();
        if self.format == OutputFormat::Json || pipes::is_open() {
            watch.telemetry.places.want_extent();
        }
        if let (Some(_), Some(field)) = (&self.observe.report, report::rasters::field(manifest)) {
            watch.telemetry.rasters.want(field);
        }
        listen(&watch.stop, AFTER_CALLS);
        let subject = Subject {
            telemetry: &watch.telemetry,
            task: self.verb,
            alerts: manifest.pipeline.alerts.as_ref(),
            // If the location cannot be resolved, the run reports it.
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
        if let Some(host) = &host {
            host.watches(&watch);
        }
        // The run then writes what the source holds now over what a letter held.
        let mut remedies = Remedies::new(self.manifest, &self.options);
        remedies.before(&watch.stop);
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            if host.is_none() {
                scope.spawn(|| self.draw(&watch, &done));
            }
            let options = RunOptions { program: crate::program(), ..self.options.clone() };
            let result = go(manifest, &options, &watch);
            done.store(true, Ordering::Relaxed);
            result
        });
        if let (Some(_), Some(run), true) = (&host, watch.run.get(), self.options.resume && !self.quiet) {
            out::say(&run.to_string());
        }
        if let Ok(report) = &result {
            remedies.after(report, &watch);
        }
        let seen = match &result {
            Ok(report) => observer.end(report.status().word(), false),
            Err(_) => observer.end("failed", true),
        };
        if let Some(path) = &self.observe.report
            && let about = (manifest, self.options.folder.as_path())
            && let Err(e) = std::fs::write(path, report::pipeline(about, &result, &watch.telemetry, &seen))
        {
            out::say(&format!("tidegate: cannot write the report {}: {e}", path.display()));
        }
        let (json, exit) = match &result {
            Ok(report) => {
                let exit = exit_of(report, &watch.telemetry, &remedies).or_alerted(seen.exits);
                (result_json(report, &watch.telemetry, &remedies), exit)
            }
            Err(error) => (failure_json(&manifest.pipeline.id, error, &watch), Exit::from(error)),
        };
        let page = self.observe.report.as_deref().filter(|path| path.exists());
        let (report, gates) = (result.as_ref().ok(), watch.telemetry.gate_readings());
        if !self.is_part {
            let json = with_extent(&json, &watch, report);
            pipes::report(&PipesResult { report, gates, json, page, exit });
        }
        match &result {
            Ok(report) => self.say_end(report, &watch.telemetry, (&remedies, &json)),
            Err(error) => self.say_failed(error, &watch),
        }
        if self.format == OutputFormat::Json {
            out::data(&format!("{:#}\n", with_extent(&json, &watch, report)))?;
        }
        Ok(exit)
    }

    /// Reports why the run did not start, or was aborted.
    fn say_failed(&self, error: &RunError, watch: &RunWatch) {
        let told = lock(&watch.source).clone();
        let said = error.to_string();
        let subject = if self.subject.is_empty() { String::new() } else { format!("{}: ", self.subject) };
        out::say(&format!("tidegate: {subject}{said}"));
        if let RunError::Stopped | RunError::Service { .. } = error {
            if let Some(told) = &told {
                let (received, notes) = received(told);
                out::say(&format!("  received {} ({})", received, notes.join(", ")));
            }
            if let RunError::Service { until: Some(until), .. } = error
                && let Some(limit) = self.patience(*until)
            {
                out::say(&limit);
            }
            out::say(&format!("  received and committed data is kept; to continue: {}", self.resume));
        }
    }

    /// How long the run may wait, if it ended because a service asked for more.
    fn patience(&self, until: Wall) -> Option<String> {
        let left_ms = until.millis_since(Clock::system().wall());
        if left_ms <= 0 {
            return None;
        }
        let source = self.manifest.pipeline.source.as_ref();
        let seconds = source.map_or(SourceSpec::PATIENCE_SECONDS, |source| source.patience_seconds);
        if (left_ms as f64) < 1000.0 * seconds {
            return Some("  that is longer than its step or service waits (patience)".to_owned());
        }
        let set = if self.verb == "run" { "source.patience" } else { "--deadline, --patience" };
        Some(format!("  that is longer than the {} that this run waits ({set})", human(seconds)))
    }

    /// Draws the progress until the run is done.
    fn draw(&self, watch: &RunWatch, done: &AtomicBool) {
        let quiet = self.quiet;
        let terminal = io::stderr().is_terminal();
        let started = Instant::now();
        let mut rate = RecentRate::default();
        let mut last = Instant::now();
        // The length of the line on the terminal.
        let mut drawn = 0;
        // With --resume, say whether a run is continued or a new one is started.
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
            let pause = if terminal { EVERY } else { Duration::from_secs(10) };
            if quiet || crate::log::is_json() || last.elapsed() < pause {
                continue;
            }
            last = Instant::now();
            let recent = if watch.begun.load(Ordering::Relaxed) {
                rate.read(started.elapsed(), watch.done.load(Ordering::Relaxed))
            } else {
                0.0
            };
            let progress = Progress { started: started.elapsed(), rate: recent };
            // Asked each time, because a window may be resized. The last column stays free: some
            // terminals wrap a line that fills it.
            let width = if terminal { out::width() } else { usize::MAX };
            let (now, length) = line(watch, progress, width.saturating_sub(1), out::color());
            if !terminal {
                pipes::log("info", &now);
            }
            let mut err = io::stderr().lock();
            // If standard error is closed, nobody reads the progress.
            let _ = if terminal {
                let before = std::mem::replace(&mut drawn, length);
                write!(err, "{}{now}", erase(before, width)).and_then(|()| err.flush())
            } else {
                writeln!(err, "{now}")
            };
        }
        if drawn > 0 {
            let _ = write!(io::stderr().lock(), "{}", erase(drawn, out::width()));
        }
        announce();
    }

    /// Reports how the run ended.
    fn say_end(&self, report: &RunReport, telemetry: &Telemetry, (remedies, json): (&Remedies, &Value)) {
        if !self.quiet && crate::log::is_json() {
            let level = match &report.end {
                End::Done if report.counts.unsuccessful() == 0 => "info",
                End::Done => "warn",
                _ => "error",
            };
            crate::log::result(level, "run ended", json.clone());
        } else if !self.quiet {
            out::say(self.summary(report, telemetry).trim_end());
            if !remedies.done.is_nothing() {
                out::say(&format!("  remedies: {}", remedies.done));
            }
        }
    }

    fn summary(&self, report: &RunReport, telemetry: &Telemetry) -> String {
        let counts = &report.counts;
        let asked = calls(telemetry);
        let word = match &report.end {
            End::Done => "done".to_owned(),
            End::Halted(_) => "halted".to_owned(),
            End::Stopped => "stopped".to_owned(),
            End::TryLater(code, _) => format!("stopped by a service ({code})"),
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
        if let Some(scope) = &report.scope {
            add(format!("  {scope}"));
        }
        let mut row = |name: &str, n: u64, note: String| {
            let note = if note.is_empty() { note } else { format!("   {note}") };
            add(format!("  {name:<10}{:>12}{note}", thousands(n)));
        };
        if let Some(source) = &report.source {
            let (_, notes) = received(source);
            row("received", source.bytes.unwrap_or(source.received), notes.join(", "));
        }
        if counts.read > 0 || report.batches > 0 {
            row("read", counts.read, String::new());
            if counts.added > 0 {
                row("exploded", counts.added, "additional records from lists".into());
            }
            let parts =
                [(counts.inserted, "new"), (counts.updated, "changed"), (counts.unchanged, "unchanged")];
            let parts: Vec<_> = parts
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, word)| format!("{} {word}", thousands(*n)))
                .collect();
            row("written", counts.written(), parts.join(", "));
            if counts.deleted > 0 {
                row("deleted", counts.deleted, "no longer in the source".into());
            }
            let codes: Vec<_> =
                counts.rejected.iter().map(|(code, n)| format!("{code} {}", thousands(*n))).collect();
            row("rejected", counts.dead(), codes.join(", "));
            if counts.filtered > 0 {
                row("filtered", counts.filtered, String::new());
            }
            if counts.deduped > 0 {
                row("deduped", counts.deduped, String::new());
            }
            if !asked.is_empty() {
                let matched = counts.written().saturating_sub(counts.no_match + counts.failed);
                row("matched", matched, "of those written".into());
            }
            if counts.no_match > 0 {
                row("no match", counts.no_match, "of those written".into());
            }
            if counts.failed > 0 {
                row("failed", counts.failed, "of those written; see their error field".into());
            }
            if counts.repaired > 0 {
                row("repaired", counts.repaired, "geometries".into());
            }
            if report.end == End::Done {
                // The counts of the sink, not only our own counters.
                let holds =
                    report.sink_rows.map(|rows| format!("; the sink holds {}", counted(rows, "row", "rows")));
                add(format!(
                    "  all records accounted for: none lost, none duplicated{}",
                    holds.unwrap_or_default()
                ));
            }
        }
        asked.into_iter().for_each(&mut add);
        by_service(&report.services).into_iter().for_each(|line| add(format!("    {line}")));
        if report.end == End::Done && counts.read > 0 {
            add(format!("  written to {}, {}", report.sink, report.crs));
        }
        if report.end == End::Done && counts.unsuccessful() > 0 && nobody_answered(telemetry) {
            add("  the service refused every connection: it is down. Start this command again later".into());
        }
        if counts.unsuccessful() > 0 {
            let letters = !report.rejects.ends_with(".ndjson");
            if counts.dead() > 0 || letters {
                let what = if counts.dead() > 0 { "rejected records" } else { "dead letters" };
                add(format!("  {what} are in {}", report.rejects));
            }
            if letters {
                add(format!("  tidegate dlq stats --store {}", shell(&report.rejects)));
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
                add("  the batch with that record was not committed; fix the data or change the gate, then continue:".into());
                add(format!("  {}", self.resume));
            }
            End::Suspended(what) => add(format!("  {what}")),
            End::Stopped => add(format!("  to continue: {}", self.resume)),
            End::TryLater(_, until) => {
                self.patience(*until).into_iter().for_each(&mut add);
                add(format!("  nothing is lost; to continue: {}", self.resume));
            }
        }
        text
    }
}

/// Reports that the options are invalid; nothing was started.
pub(crate) fn refused(why: &str, format: OutputFormat) -> io::Result<Exit> {
    out::say(&format!("tidegate: {why}"));
    if format == OutputFormat::Json {
        out::data(&format!("{:#}\n", json!({ "status": "failed", "error": why })))?;
    }
    Ok(Exit::Usage)
}

/// A count with its noun, such as `2 pages`.
pub(crate) fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", thousands(n), if n == 1 { one } else { more })
}

/// One summary line per service that was called.
fn calls(telemetry: &Telemetry) -> Vec<String> {
    let summary = telemetry.summary();
    let reused = summary.cache_hits + summary.shared;
    if summary.calls + reused == 0 {
        return Vec::new();
    }
    let mut notes = Vec::new();
    if reused > 0 {
        notes.push(format!("{} reused", counted(reused, "answer", "answers")));
    }
    notes.push(counted(summary.retry_count_total, "retry", "retries"));
    if summary.retry_count_total > 0 {
        notes.push(format!("{} throttled", thousands(summary.throttled)));
        let backoff = Duration::from_secs_f64(summary.seconds_in_backoff.clamp(0.0, 1e9));
        notes.push(format!("{} in backoff", span(backoff)));
    }
    let lanes = together(&telemetry.services());
    // Without throttling or rate-limit headers the lane has learned no limit.
    if let Some(rate) = lanes.rate.filter(|rate| rate.is_finite() && lanes.throttled + lanes.hinted > 0) {
        notes.push(format!("learned limit {rate:.1} calls/s"));
    }
    let notes = if notes.is_empty() { String::new() } else { format!("   {}", notes.join(", ")) };
    let mut lines = vec![format!("  {:<10}{:>12}{notes}", "calls", thousands(summary.calls))];
    for group in telemetry.groups() {
        lines.push(format!("    {} {}, for example {}", thousands(group.count), group.code, group.example));
    }
    lines
}

/// The amount that a remote source has returned, and notes about it.
fn received(source: &Told) -> (String, Vec<String>) {
    let mut notes = Vec::new();
    let amount = match source.bytes {
        Some(bytes) => {
            notes.push("bytes".to_owned());
            format!("{} bytes", thousands(bytes))
        }
        None => thousands(source.received),
    };
    if source.bytes.is_none() {
        let mut declared =
            source.declared.map_or("not declared".into(), |n| format!("{} declared", thousands(n)));
        if let Some(last) = source.declared_last.filter(|last| Some(*last) != source.declared) {
            declared.push_str(&format!(", then {}", thousands(last)));
        }
        notes.extend([declared, counted(source.pages, "page", "pages")]);
    }
    if source.resumed > 0 {
        notes.push(format!("{} of them before the resume", thousands(source.resumed)));
    }
    if source.repeated > 0 {
        notes.push(format!("{} skipped", counted(source.repeated, "duplicate", "duplicates")));
    }
    if source.passes > 1 || source.steps_back > 0 {
        notes.push(format!("{} passes, {} steps back", source.passes, source.steps_back));
    }
    match source.verdict.as_deref() {
        Some("changed") => {
            notes.push("the layer changed during the read; no feature that remained is missing".into());
        }
        Some("tolerated") => {
            notes.push(format!("count differs by {} (tolerated)", thousands(source.difference)));
        }
        Some("mismatch") => notes.push(format!("count differs by {}", thousands(source.difference))),
        _ => {}
    }
    (amount, notes)
}
