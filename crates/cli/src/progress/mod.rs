//! The progress line of a run, and the formatting of numbers and durations.
//!
//! The line is a pure function of the state of the run, so that it can be tested; `execute` draws
//! it.

mod fit;
mod recent;
mod ticker;
mod watch;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_client::lane::Snapshot;
use tidegate_client::lock::lock;
use tidegate_pipeline::run::RunWatch;
use tidegate_pipeline::run::source::Told;

pub(crate) use fit::erase;
use fit::{LinePart, fit};
pub(crate) use recent::RecentRate;
pub(crate) use ticker::Ticker;
pub(crate) use watch::watched;

/// The ranks of the parts of the line: where room is short, the highest goes first.
mod rank {
    pub(super) const WAIT: u8 = 0;
    pub(super) const LEFT: u8 = 1;
    pub(super) const TROUBLE: u8 = 2;
    pub(super) const WRITTEN: u8 = 3;
    pub(super) const READ: u8 = 4;
    pub(super) const RATE: u8 = 5;
    pub(super) const DETAIL: u8 = 6;
}

fn painted(color: &'static str, rank: u8, text: String) -> LinePart {
    LinePart::Text { text, color, rank }
}

/// A progress bar, if the total is known.
fn bar(done: u64, total: u64) -> Option<LinePart> {
    (total > 0).then(|| LinePart::Bar(done as f64 / total as f64))
}

/// The time that is left at this rate.
fn left(todo: u64, rate: f64) -> LinePart {
    let time = Duration::from_secs_f64((todo as f64 / rate).min(1e9));
    LinePart::text(format!("{} left", span(time)), rank::LEFT)
}

/// What a source has received so far, if it is spooled before it is read.
fn keeping(told: &Told, elapsed: Duration) -> Vec<LinePart> {
    let (had, all, noun) = match told.bytes {
        Some(bytes) => (bytes, told.bytes_declared, "bytes"),
        None => (told.received, told.declared_last, "features"),
    };
    let all = all.unwrap_or(0);
    let mut parts: Vec<LinePart> = bar(had, all).into_iter().collect();
    parts.push(LinePart::text(format!("{} {noun}", thousands(had)), rank::READ));
    let whole = told.verdict.is_some() || (told.bytes.is_some() && had == all);
    if whole {
        parts.push(LinePart::text("reading the schema".to_owned(), rank::LEFT));
        return parts;
    }
    let rate = had.saturating_sub(told.resumed) as f64 / elapsed.as_secs_f64().max(0.001);
    parts.push(LinePart::text(format!("{}/s", thousands(rate.round() as u64)), rank::RATE));
    if all > had && rate > 0.0 {
        parts.push(left(all - had, rate));
    }
    parts
}

/// The state of page requests and of the services that are called.
fn services(watch: &RunWatch) -> Vec<LinePart> {
    let mut parts = Vec::new();
    if let Some(told) = &*lock(&watch.source) {
        if told.pages > 0 {
            parts.push(LinePart::text(format!("{} pages", thousands(told.pages)), rank::DETAIL));
        }
        if told.passes > 1 {
            parts.push(painted("33", rank::DETAIL, format!("pass {}", told.passes)));
        }
    }
    let services = watch.telemetry.services();
    let mut lanes: Vec<Snapshot> = services.iter().flat_map(|service| service.lanes.snapshots()).collect();
    // Services may share lanes: show each lane once.
    lanes.sort_by(|a, b| a.key.cmp(&b.key));
    lanes.dedup_by(|a, b| a.key == b.key);
    if !lanes.is_empty() {
        let in_flight = lanes.iter().map(|lane| lane.in_flight).sum::<u32>();
        parts.push(LinePart::text(format!("{in_flight} in flight"), rank::DETAIL));
    }
    let throttled: u64 = lanes.iter().map(|lane| lane.counts.throttled).sum();
    if throttled > 0 {
        parts.push(painted("33", rank::TROUBLE, format!("{} throttled", thousands(throttled))));
    }
    if let Some((wait, why)) = lanes.iter().filter_map(waiting).max() {
        parts.push(painted("35", rank::WAIT, format!("waiting {}: {why}", span(wait))));
    }
    parts
}

/// The wait of a lane and its reason, if it is at least 0.8 s.
fn waiting(lane: &Snapshot) -> Option<(Duration, &'static str)> {
    let told = lane.gate.since(lane.now);
    let (wait, why) = match lane.due {
        // No call waits for this lane; refused calls wait for their own retry.
        None if lane.in_flight == 0 => (told, "requested by the server"),
        None => return None,
        Some(due) => {
            let why = match due.shut {
                Some(code) if code == tidegate_core::Code::QUOTA_EXHAUSTED => "quota exhausted",
                Some(_) => "the service is failing",
                None if !told.is_zero() => "requested by the server",
                None => "rate limit",
            };
            (due.at.since(lane.now), why)
        }
    };
    (wait >= Duration::from_millis(800)).then_some((wait, why))
}

/// The times of a run, for its progress line.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// The time since the source was opened.
    pub(crate) started: Duration,
    /// The recent rate of records.
    pub(crate) rate: f64,
}

/// The progress line in at most `width` columns, and its length without colours.
pub(crate) fn line(watch: &RunWatch, progress: Progress, width: usize, color: bool) -> (String, usize) {
    fit(parts(watch, progress), width, color)
}

/// The progress in words, without a bar.
pub(crate) fn words(watch: &RunWatch, progress: Progress) -> String {
    let mut parts = parts(watch, progress);
    parts.retain(|part| matches!(part, LinePart::Text { .. }));
    fit(parts, usize::MAX, false).0
}

fn parts(watch: &RunWatch, Progress { started, rate }: Progress) -> Vec<LinePart> {
    if !watch.begun.load(Ordering::Relaxed) {
        let told = lock(&watch.source).clone();
        let mut parts = match told {
            Some(told) => keeping(&told, started),
            None => vec![LinePart::text("opening the source and the sink".to_owned(), rank::READ)],
        };
        parts.extend(services(watch));
        return parts;
    }
    let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    let (done, written, dead, total) =
        (get(&watch.done), get(&watch.written), get(&watch.dead), get(&watch.total));
    let mut parts: Vec<LinePart> = bar(done, total).into_iter().collect();
    parts.push(LinePart::text(format!("{} read", thousands(get(&watch.read))), rank::READ));
    parts.push(LinePart::text(format!("{} written", thousands(written)), rank::WRITTEN));
    if dead > 0 {
        parts.push(painted("31", rank::TROUBLE, format!("{} rejected", thousands(dead))));
    }
    parts.push(LinePart::text(format!("{}/s", thousands(rate.round() as u64)), rank::RATE));
    if total > done && rate > 0.0 {
        parts.push(left(total - done, rate));
    } else if total > 0 && done >= total {
        parts.push(LinePart::text("completing".to_owned(), rank::LEFT));
    }
    parts.extend(services(watch));
    parts
}

/// A number with thousands separators: `1,234,567`.
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

/// A duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`.
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

/// The interval between redraws on a terminal.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

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

    #[test]
    fn the_line_says_what_happens() {
        let watch = RunWatch::default();
        let progress = Progress { started: Duration::from_secs(2), rate: 100.0 };
        let line = |watch: &RunWatch| line(watch, progress, 120, false).0;
        assert_eq!(line(&watch), "opening the source and the sink");
        let told =
            Told { received: 300, resumed: 100, declared_last: Some(600), pages: 3, ..Told::default() };
        *lock(&watch.source) = Some(told);
        assert_eq!(
            line(&watch),
            "████████████░░░░░░░░░░░░  50 % · 300 features · 100/s · 3.0 s left · 3 pages"
        );
        let told = Told { bytes: Some(1000), bytes_declared: Some(1000), ..Told::default() };
        *lock(&watch.source) = Some(told);
        assert!(line(&watch).ends_with("1,000 bytes · reading the schema"));
        *lock(&watch.source) = None;
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
        assert!(line(&watch).ends_with("100/s · completing"));
    }
}
