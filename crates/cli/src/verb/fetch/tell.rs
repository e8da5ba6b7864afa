//! What a fetch says: the line while it runs, and the end in words or JSON.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_ledger::letter::now_ms;
use tidegate_pipeline::fetch::{End, Run, Seen};
use tidegate_pipeline::source::{Agreement, SourceError, Trouble};

use super::Args;
use crate::observe::Seen as Watched;
use crate::out;
use crate::progress::{span, thousands, waiting};
use crate::report::{self, Report, Tone};
use tidegate_core::time::calendar::rfc3339;

/// How fast it goes, about the last two seconds.
pub(super) struct Pace {
    began: Instant,
    last: (Instant, u64),
    rate: f64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { began: Instant::now(), last: (Instant::now(), 0), rate: 0.0 }
    }

    pub(super) fn look(&mut self, seen: &Seen) {
        let done = amount(seen).0.saturating_sub(seen.resumed);
        let since = self.last.0.elapsed().as_secs_f64();
        let lately = done.saturating_sub(self.last.1) as f64 / since.max(1e-3);
        self.rate += (lately - self.rate) * (since / 2.0).min(1.0);
        self.last = (Instant::now(), done);
    }
}

/// What is there, and how much it will be.
fn amount(seen: &Seen) -> (u64, u64) {
    if seen.bytes.0 > 0 { seen.bytes } else { (seen.tally.received, seen.tally.latest.unwrap_or(0)) }
}

/// The line.
pub(super) fn line(seen: &Seen, pace: &Pace, color: bool) -> String {
    let paint = |code: &str, text: String| if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text };
    let (had, all) = amount(seen);
    let mut parts = Vec::new();
    let share = (all > 0).then(|| (had as f64 / all as f64).min(1.0));
    if let Some(share) = share {
        let full = (share * 24.0).round() as usize;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(24 - full.min(24)));
        parts.push(format!("{} {:>3.0} %", paint("36", bar), (share * 100.0).floor()));
    }
    let noun = if seen.bytes.0 > 0 { "bytes" } else { "features" };
    parts.push(format!("{} {noun}", thousands(had)));
    if seen.writing {
        parts.push(paint("32", "writing the output".into()));
        return parts.join(" · ");
    }
    parts.push(format!("{}/s", thousands(pace.rate.round() as u64)));
    if let Some(share) = share.filter(|s| *s > 0.0 && *s < 1.0 && pace.rate > 0.0) {
        let left = all as f64 * (1.0 - share) / pace.rate;
        parts.push(format!("{} left", span(Duration::from_secs_f64(left.min(1e9)))));
    }
    if seen.tally.pages > 0 {
        parts.push(format!("{} pages", thousands(seen.tally.pages)));
    }
    if seen.tally.passes > 1 {
        parts.push(paint("33", format!("pass {}", seen.tally.passes)));
    }
    if let Some(wire) = &seen.wire {
        let lane = wire.lane().snapshot();
        if lane.counts.throttled > 0 {
            parts.push(paint("33", format!("{} throttled", thousands(lane.counts.throttled))));
        }
        if let Some((wait, why)) = waiting(&lane) {
            parts.push(paint("35", format!("waiting {}, {why}", span(wait))));
        }
    }
    parts.push(span(pace.began.elapsed()));
    parts.join(" · ")
}

fn agreed(agreement: Option<Agreement>) -> (&'static str, u64) {
    match agreement {
        None => ("unknown", 0),
        Some(Agreement::Exact) => ("exact", 0),
        Some(Agreement::Changed) => ("changed", 0),
        Some(Agreement::Undeclared) => ("undeclared", 0),
        Some(Agreement::Tolerated(off)) => ("tolerated", off),
        Some(Agreement::Mismatch(off)) => ("mismatch", off),
    }
}

/// The end as JSON.
pub(super) fn json(args: &Args, seen: &Seen, ended: &Result<End, SourceError>, took: Duration) -> String {
    let tally = &seen.tally;
    let (agreement, off) = agreed(seen.agreement);
    let (calls, retries, throttled) = calls(seen);
    let mut value = json!({
        "layer": seen.layer,
        "declared": tally.declared,
        "declared_last": tally.latest,
        "received": tally.received,
        "repeated": tally.repeated,
        "resumed": seen.resumed,
        "agreement": agreement,
        "difference": off,
        "pages": tally.pages,
        "passes": tally.passes,
        "steps_back": tally.steps_back,
        "bytes": seen.bytes.0,
        "calls": calls,
        "retries": retries,
        "throttled": throttled,
        "elapsed_seconds": took.as_secs_f64(),
        "output": args.output.display().to_string(),
    });
    match ended {
        Ok(End::Done(outcome)) => {
            value["ended"] = json!("done");
            value["written"] = json!(outcome.written);
            value["rejected"] = json!(outcome.rejected);
            value["rejects"] = json!(outcome.rejects.as_ref().map(|p| p.display().to_string()));
            value["crs"] = json!(outcome.crs);
        }
        Ok(End::Cancelled) => value["ended"] = json!("cancelled"),
        Ok(End::TryLater { code, until, said }) => {
            value["ended"] = json!("try_later");
            value["code"] = json!(code.as_str());
            value["try_again_at_ms"] = json!(until.millis());
            value["error"] = json!(said);
        }
        Err(error) => {
            value["ended"] = json!(if error.trouble == Trouble::Mismatch { "mismatch" } else { "failed" });
            value["code"] = json!(error.code.as_str());
            value["error"] = json!(error.message);
        }
    }
    format!("{value:#}\n")
}

fn calls(seen: &Seen) -> (u64, u64, u64) {
    let Some(wire) = &seen.wire else { return (0, 0, 0) };
    let counts = wire.lane().snapshot().counts;
    (counts.sent, wire.line().calls.retries(), counts.throttled)
}

/// Writes the report, if one is wanted.
pub(super) fn report(args: &Args, run: &Run, ended: &Result<End, SourceError>, seen: &Watched) {
    let Some(path) = &args.observe.report else { return };
    let known = run.seen();
    let (said, tone) = match ended {
        Ok(End::Done(outcome)) if outcome.rejected > 0 => (
            format!("done; {} features cannot be held by the output", thousands(outcome.rejected)),
            Tone::Fair,
        ),
        Ok(End::Done(_)) => ("done: every feature is there, once".to_owned(), Tone::Good),
        Ok(End::Cancelled) => ("stopped from outside; --resume goes on".to_owned(), Tone::Fair),
        Ok(End::TryLater { code, said, .. }) => (format!("{said} ({code})"), Tone::Bad),
        Err(error) => (error.to_string(), Tone::Bad),
    };
    let (verdict, _) = agreed(known.agreement);
    let policy = [
        ("attempts per page", args.calls.attempts.to_string()),
        ("declared and received", verdict.to_owned()),
        ("rate", args.calls.pace()),
    ];
    let policy = policy.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let page = report::page(&Report {
        kind: "Fetch",
        title: &known.layer,
        ended: &said,
        tone,
        when: &rfc3339(now_ms()),
        telemetry: &run.telemetry,
        added: 0,
        seen,
        notes: &[],
        policy: &[("Options".to_owned(), policy)],
    });
    if let Err(e) = std::fs::write(path, page) {
        out::say(&format!("tidegate: the report {} cannot be written: {e}", path.display()));
    }
}

/// The end in words.
pub(super) fn words(args: &Args, seen: &Seen, ended: &Result<End, SourceError>, took: Duration) -> String {
    let row = |name: &str, value: String| format!("  {name:<12} {value}");
    let tally = &seen.tally;
    let mut lines = Vec::new();
    let goes_on = format!(
        "what was received is kept in {}; the same command with --resume goes on",
        args.state.display()
    );
    match ended {
        Ok(End::Done(outcome)) => {
            lines.push(format!(
                "{}: {} features, {}",
                args.output.display(),
                thousands(outcome.written),
                outcome.crs
            ));
        }
        Ok(End::Cancelled) => lines.push(format!("stopped; {goes_on}")),
        Ok(End::TryLater { code, said, .. }) => lines.push(format!("{said} ({code}); {goes_on}")),
        Err(error) if error.trouble == Trouble::Setup => return format!("tidegate: {error}"),
        Err(error) => {
            lines.push(format!("tidegate: {error}"));
            if tally.pages > 0 && error.trouble != Trouble::Mismatch {
                lines.push(goes_on);
            }
        }
    }
    if seen.bytes.0 > 0 {
        lines.push(row("received", format!("{} bytes", thousands(seen.bytes.0))));
    } else if tally.pages > 0 {
        let declared = match (tally.declared, tally.latest) {
            (Some(first), Some(last)) if first != last => {
                format!("{}, then {}", thousands(first), thousands(last))
            }
            (Some(first), _) => thousands(first),
            (None, _) => "not said".into(),
        };
        lines.push(row("declared", declared));
        let mut received = thousands(tally.received);
        if seen.resumed > 0 {
            received.push_str(&format!(", {} of them by an earlier run", thousands(seen.resumed)));
        }
        if tally.repeated > 0 {
            received.push_str(&format!("; {} more came twice and were left out", thousands(tally.repeated)));
        }
        lines.push(row("received", received));
        let verdict = match agreed(seen.agreement) {
            ("exact", _) => "declared and received agree".to_owned(),
            ("changed", _) => "the layer changed while it was read; nothing that stayed is missing".into(),
            ("undeclared", _) => "the service does not say how many there are".into(),
            ("tolerated", off) => format!("{} off, which is tolerated", thousands(off)),
            ("mismatch", off) => format!("{} off", thousands(off)),
            _ => "not known yet".into(),
        };
        lines.push(row("verdict", verdict));
    }
    if let Ok(End::Done(outcome)) = ended
        && let Some(place) = &outcome.rejects
    {
        lines.push(row("rejected", format!("{}, see {}", thousands(outcome.rejected), place.display())));
    }
    if seen.wire.is_some() {
        let (calls, retries, throttled) = calls(seen);
        let mut text = format!("{} pages, {} calls", thousands(tally.pages), thousands(calls));
        if retries + throttled > 0 {
            text.push_str(&format!("; {} retries, {} throttled", thousands(retries), thousands(throttled)));
        }
        if tally.passes > 1 || tally.steps_back > 0 {
            text.push_str(&format!("; {} passes, {} steps back", tally.passes, tally.steps_back));
        }
        lines.push(row("calls", text));
    }
    lines.push(row("time", span(took)));
    lines.join("\n")
}
