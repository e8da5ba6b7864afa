//! The HTML report of a run: one self-contained file.
//!
//! Style, plots and the content security policy are those of the simulator's pages; only the map,
//! the timeline and the text about the run are defined here. `geocode`, `fetch` and `run` share the
//! page. Almost all of it is read from the registry, so the report agrees with the metrics.

mod bars;
pub(crate) mod map;
mod overlay;
mod pipeline;
pub(crate) mod rasters;
mod timeline;

pub(crate) use map::LAND;
pub(crate) use pipeline::pipeline;
pub(crate) use timeline::{Timeline, TimelineSample};

use std::fmt::Write;
use std::time::Duration;

pub(crate) use bars::percent_text;
use bars::{Bar, BarSegment};
use map::{MapArea, MarkerLayer, MarkerShape};
use tidegate_client::objects::AllowedObjects;
use tidegate_pipeline::gate::Reading;
use tidegate_pipeline::telemetry::{LimitSummary, PlaceKind, RecordEnd, Summary, Telemetry};
use tidegate_sim::report::{escape, html};

use crate::observe::Observation;
use crate::progress::{span, thousands};

/// How good an outcome is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Fair,
    Bad,
}

/// What the outcomes of records are called.
#[derive(Clone, Copy)]
pub(crate) struct OutcomeWords {
    pub(crate) written: &'static str,
    pub(crate) no_match: &'static str,
    pub(crate) failed: &'static str,
}

impl OutcomeWords {
    /// The words of a pipeline that geocodes: those of its column `outcome`.
    pub(crate) const GEOCODE: OutcomeWords =
        OutcomeWords { written: "matched", no_match: "no match", failed: "failed" };
    /// The words of other pipelines: those of the summary.
    pub(crate) const RUN: OutcomeWords =
        OutcomeWords { written: "written", no_match: "no match", failed: "rejected" };
}

/// The content of a report.
pub(crate) struct ReportPage<'a> {
    /// The kind of run.
    pub(crate) kind: &'a str,
    /// What the outcomes of its records are called.
    pub(crate) words: OutcomeWords,
    /// The title of the run.
    pub(crate) title: &'a str,
    /// One sentence on how it ended.
    pub(crate) ended: &'a str,
    /// How good the outcome is.
    pub(crate) tone: Tone,
    /// The time of the run, as text.
    pub(crate) when: &'a str,
    /// The metrics of the run.
    pub(crate) telemetry: &'a Telemetry,
    /// The number of records created by steps, beyond those read.
    pub(crate) added: u64,
    /// The observation of the run over time.
    pub(crate) seen: &'a Observation,
    /// Further notes.
    pub(crate) notes: &'a [String],
    /// The effective policy: names and values, by section.
    pub(crate) policy: &'a [(String, Vec<(String, String)>)],
    /// The rasters that may be looked at.
    pub(crate) objects: &'a AllowedObjects,
}

/// Renders the page.
pub(crate) fn page(report: &ReportPage<'_>) -> String {
    let summary = report.telemetry.summary();
    let mut main = tiles(report, &summary);
    main.push_str(&books(report));
    let (rasters, seen) = report.telemetry.rasters.all();
    let words = [report.words.written, report.words.no_match, report.words.failed];
    let (areas, pictures) = rasters::section(&rasters, seen, words, report.objects);
    main.push_str(&places(report, &areas));
    main.push_str(&pictures);
    if summary.calls > 0 {
        let plots = html::plots(&report.seen.timeline.plots(report.seen.took));
        let _ = write!(main, "<section class=\"three\"><h2>Timeline</h2>{plots}</section>");
        main.push_str(&calls(&summary));
    }
    main.push_str(&alerts(report.seen));
    main.push_str(&gates(&report.telemetry.gate_readings()));
    main.push_str(&letters(report.telemetry));
    main.push_str(&policy(report));
    let footer = format!("Tidegate {}. Land: Natural Earth, public domain.", env!("CARGO_PKG_VERSION"));
    html::page(&format!("{} · Tidegate", report.title), &header(report), &main, &footer)
}

fn header(report: &ReportPage<'_>) -> String {
    let (class, mark) = match report.tone {
        Tone::Good => ("good", "✓"),
        Tone::Fair => ("fair", "!"),
        Tone::Bad => ("bad", "✗"),
    };
    let mut out = format!(
        "<p class=\"kind\">{} · {}</p><h1>{}</h1><p class=\"badge {class}\">{mark} {}</p>",
        escape(report.kind),
        escape(report.when),
        escape(report.title),
        escape(report.ended),
    );
    if !report.notes.is_empty() {
        out.push_str("<ul class=\"notes\">");
        for note in report.notes {
            let _ = write!(out, "<li>{}</li>", escape(note));
        }
        out.push_str("</ul>");
    }
    out
}

/// The most important figures.
fn tiles(report: &ReportPage<'_>, s: &Summary) -> String {
    let records = &report.telemetry.records;
    let dead = records.ended_so(RecordEnd::Failed);
    let took = report.seen.took;
    let rate = records.all() as f64 / took.as_secs_f64().max(1e-9);
    let of_calls = |share: f64| format!("retries, {} of the calls", percent_text(share * 100.0));
    let retries = s.retry_count_total as f64 / s.calls.max(1) as f64;
    let retries_name = of_calls(retries);
    let mut all = vec![
        (thousands(records.all()), "records processed", ""),
        (span(took), "total time", ""),
        (thousands(rate.round() as u64), "records per second", ""),
        (thousands(dead), report.words.failed, if dead > 0 { "bad" } else { "" }),
    ];
    if s.calls > 0 {
        let first = s.by_attempt.first().map_or(1.0, |a| a.success_rate);
        let waited = s.seconds_in_backoff / (s.seconds_in_backoff + s.seconds_in_calls).max(1e-9);
        let warn = |bad: bool| if bad { "bad" } else { "" };
        all.extend([
            (thousands(s.calls), "calls", ""),
            (percent_text(first * 100.0), "succeeded at the first attempt", warn(first < 0.95)),
            (thousands(s.retry_count_total), retries_name.as_str(), warn(retries > 0.15)),
            (percent_text(waited * 100.0), "of time in backoff", warn(waited > 0.10)),
        ]);
    }
    let mut out = String::from("<section aria-label=\"Summary\"><dl class=\"tiles\">");
    for (value, name, class) in all {
        let _ = write!(out, "<div><dt>{name}</dt><dd class=\"{class}\">{}</dd></div>", escape(&value));
    }
    out.push_str("</dl></section>");
    out
}

/// The balance of records: those read equal the sum of their outcomes.
fn books(report: &ReportPage<'_>) -> String {
    let (r, words) = (&report.telemetry.records, report.words);
    let offered = r.offered() + report.added;
    let part = |name, how, class| BarSegment { name, count: r.ended_so(how), class };
    let ended = r.all();
    let parts = [
        part(words.written, RecordEnd::Matched, "c-ok"),
        part(words.no_match, RecordEnd::NoMatch, "c-none"),
        part(words.failed, RecordEnd::Failed, "c-dead"),
        part("filtered", RecordEnd::Filtered, "c-aside"),
        part("duplicates", RecordEnd::Deduped, "c-twice"),
        BarSegment { name: "unfinished", count: offered.saturating_sub(ended), class: "c-open" },
    ];
    let sum: Vec<String> = parts
        .iter()
        .filter(|part| part.count > 0)
        .map(|part| format!("{} {}", thousands(part.count), part.name))
        .collect();
    let added =
        if report.added > 0 { format!(" + {} from lists", thousands(report.added)) } else { String::new() };
    let verdict = match offered {
        0 if ended == 0 => "<p class=\"fair\">The source had no records.</p>",
        n if n == ended => "<p class=\"good\">✓ All records accounted for: none lost, none duplicated.</p>",
        n if n > ended => "<p class=\"fair\">! The run ended before all records were processed.</p>",
        _ => "<p class=\"bad\">✗ The totals do not match.</p>",
    };
    format!(
        "<section><h2>Reconciliation</h2>{}<p class=\"sum\">{} read{added} = {}</p>{verdict}</section>",
        bars::whole(&parts),
        thousands(r.offered()),
        if sum.is_empty() { "0".to_owned() } else { sum.join(" + ") },
    )
}

fn places(report: &ReportPage<'_>, areas: &[MapArea]) -> String {
    let (telemetry, words) = (report.telemetry, report.words);
    let kinds = [
        (PlaceKind::Committed, MarkerShape::Dot, words.written),
        (PlaceKind::NoMatch, MarkerShape::Ring, words.no_match),
        (PlaceKind::Dead, MarkerShape::Cross, words.failed),
    ];
    let kinds = kinds.map(|(mark, shape, name)| (shape, name, telemetry.places.of(mark)));
    let has_areas = areas.iter().any(|area| !area.ring.is_empty());
    if !has_areas && kinds.iter().all(|(_, _, (places, _))| places.is_empty()) {
        return String::new();
    }
    let layers: Vec<MarkerLayer<'_>> = kinds
        .iter()
        .map(|(mark, name, (places, seen))| MarkerLayer { mark: *mark, name, places, records: *seen })
        .collect();
    let mut legend = String::from("<ul class=\"legend\">");
    for (mark, name, (_, seen)) in kinds.iter().filter(|(_, _, (places, _))| !places.is_empty()) {
        let _ = write!(
            legend,
            "<li><svg viewBox=\"0 0 14 14\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
             <path class=\"{}\" d=\"{}\"/></svg><b>{}</b> {name}</li>",
            mark.class(),
            mark.path(7.0, 7.0, 4.0),
            thousands(*seen),
        );
    }
    if has_areas {
        legend.push_str(
            "<li><svg viewBox=\"0 0 14 14\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
             <path class=\"area\" d=\"M2 3h10v8h-10z\"/></svg>extents of rasters</li>",
        );
    }
    let map = map::svg(&layers, areas);
    if map.contains("class=\"counts\"") {
        legend.push_str("<li><b>n</b> records at one point</li>");
    }
    legend.push_str("</ul>");
    format!("<section><h2>Map of the records</h2><figure>{legend}{map}</figure></section>")
}

fn calls(s: &Summary) -> String {
    let percent = |share: f64| percent_text(share * 100.0);
    let most = |all: &mut dyn Iterator<Item = u64>| all.max().unwrap_or(0).max(1) as f64;
    let attempts: Vec<Bar> = s
        .by_attempt
        .iter()
        .map(|a| Bar {
            name: format!("{} · {} sent", a.attempt, thousands(a.sent)),
            text: percent(a.success_rate),
            share: a.success_rate,
            class: "c-ok",
        })
        .collect();
    let longest = most(&mut s.retries_per_call.iter().map(|(_, n)| *n));
    let retries: Vec<Bar> = s
        .retries_per_call
        .iter()
        .map(|(name, n)| Bar {
            name: name.clone(),
            text: thousands(*n),
            share: *n as f64 / longest,
            class: if name == "0" { "c-ok" } else { "c-none" },
        })
        .collect();
    let longest = most(&mut s.statuses.values().copied());
    let statuses: Vec<Bar> = s
        .statuses
        .iter()
        .map(|(status, n)| Bar {
            name: if status == "none" { "no response".into() } else { status.clone() },
            text: thousands(*n),
            share: *n as f64 / longest,
            class: match status.as_bytes().first() {
                Some(b'2' | b'3') => "c-ok",
                _ if status == "429" => "c-none",
                _ => "c-dead",
            },
        })
        .collect();
    let pair = |name: &str, value: String| vec![name.to_string(), value];
    let numbers = vec![
        pair("calls", "value".into()),
        pair("sent", thousands(s.calls)),
        pair("throttled", thousands(s.throttled)),
        pair("retries", thousands(s.retry_count_total)),
        pair(
            "retries per call, p50 / p99",
            format!("{} / {}", s.retries_per_call_p50, s.retries_per_call_p99),
        ),
        pair("time in calls", span(Duration::from_secs_f64(s.seconds_in_calls))),
        pair("time in backoff", span(Duration::from_secs_f64(s.seconds_in_backoff))),
        pair("responses with rate-limit headers", percent(s.rate_limit_header_present)),
        pair("responses from the cache", thousands(s.cache_hits)),
        pair("responses shared by identical records", thousands(s.shared)),
    ];
    format!(
        "<section><h2>Calls</h2><div class=\"cards\"><div>{}</div><div>{}</div><div>{}</div><div>{}</div></div>{}</section>",
        bars::table("Success by attempt", ["attempt", "succeeded"], &attempts),
        bars::table("Retries per call", ["retries", "calls"], &retries),
        bars::table("Status codes", ["status", "responses"], &statuses),
        html::rows_html("Totals", &numbers),
        limits(&s.limits),
    )
}

/// What the lanes learned of the limits of their servers, and why.
fn limits(all: &[LimitSummary]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = ["host", "limit", "calls/s", "burst", "window", "at once", "changes", "reason"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
    rows.extend(all.iter().map(|limit| {
        vec![
            limit.host.clone(),
            limit.kind.to_owned(),
            number(limit.rate),
            number(limit.burst),
            limit.window_seconds.map_or_else(|| "–".to_owned(), |window| format!("{window:.1} s")),
            limit.in_flight.map_or_else(|| "–".to_owned(), |calls| calls.to_string()),
            limit.changes.to_string(),
            limit.reason.to_owned(),
        ]
    }));
    html::rows_html("Limits that were learned", &rows)
}

fn alerts(seen: &Observation) -> String {
    if seen.fired.is_empty() {
        let all = tidegate_core::alert::Alert::ALL.len();
        return format!(
            "<section><h2>Alerts</h2><p class=\"good\">✓ None of the {all} alerts fired.</p></section>"
        );
    }
    let mut out = String::from("<section><h2>Alerts</h2><ul class=\"alerts\">");
    for fired in &seen.fired {
        let until = fired.ended.map_or_else(|| "to the end".to_owned(), |at| format!("to {}", span(at)));
        let _ = write!(
            out,
            "<li><b class=\"fair\">! {}</b> <span class=\"soft\">from {} {until}</span><br>{}. {}</li>",
            fired.alert.name(),
            span(fired.at),
            escape(&capital(&fired.said)),
            advice(&capital(&fired.advice)),
        );
    }
    out.push_str("</ul></section>");
    out
}

/// Advice as HTML: what is in backquotes is code.
pub(crate) fn advice(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let html = parts.map(|(at, part)| match at % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    let html: String = html.collect();
    if text.ends_with('`') { html } else { format!("{html}.") }
}

/// The text with its first letter capitalized.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn gates(gates: &[Reading]) -> String {
    if gates.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section><h2>Gates</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Gates\"><table><thead><tr><th scope=\"col\">gate</th>\
         <th scope=\"col\">severity</th><th scope=\"col\">checked</th><th scope=\"col\">failed</th>\
         <th scope=\"col\">share</th><th scope=\"col\">tolerated</th><th scope=\"col\">result</th></tr></thead><tbody>",
    );
    for gate in gates {
        let (class, result) = match (gate.halted, gate.tally.failed) {
            (true, _) => ("bad", "✗ halted the run"),
            (false, 0) => ("good", "✓ passed"),
            _ if gate.tally.severity == "reject" => ("fair", "! rejected some"),
            _ if gate.tally.rate() > gate.limit => ("fair", "! warned"),
            _ => ("good", "✓ within its limit"),
        };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"word {class}\">{result}</td></tr>",
            escape(&gate.tally.gate),
            escape(&gate.tally.severity),
            thousands(gate.tally.looked),
            thousands(gate.tally.failed),
            percent_text(gate.tally.rate() * 100.0),
            percent_text(gate.limit * 100.0),
        );
    }
    out.push_str("</tbody></table></div></section>");
    out
}

fn letters(telemetry: &Telemetry) -> String {
    let groups = telemetry.groups();
    if groups.is_empty() {
        return String::new();
    }
    let staged = groups.iter().any(|group| !group.stage.is_empty());
    let mut out = String::from(
        "<section><h2>Dead letters</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Dead letters\"><table class=\"said\"><thead><tr><th scope=\"col\">code</th>",
    );
    if staged {
        out.push_str("<th scope=\"col\" class=\"word\">stage</th>");
    }
    out.push_str(
        "<th scope=\"col\">records</th><th scope=\"col\" class=\"word\">for example</th></tr></thead><tbody>",
    );
    for group in &groups {
        let _ = write!(out, "<tr><th scope=\"row\"><code>{}</code></th>", escape(&group.code));
        if staged {
            let _ = write!(out, "<td class=\"word\">{}</td>", escape(&group.stage));
        }
        let _ = write!(
            out,
            "<td>{}</td><td class=\"word long\">{}</td></tr>",
            thousands(group.count),
            escape(&group.example)
        );
    }
    out.push_str("</tbody></table></div></section>");
    out
}

fn policy(report: &ReportPage<'_>) -> String {
    let mut out = String::from("<section><h2>Effective policy</h2><div class=\"cards cols\">");
    for (section, rows) in report.policy {
        let head = vec!["key".to_owned(), "value".to_owned()];
        let rows = rows.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        let _ = write!(out, "<div>{}</div>", html::rows_html(section, &rows));
    }
    out.push_str("</div></section>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_escapes_what_it_quotes() {
        let telemetry = Telemetry::new("p");
        telemetry.places.want();
        telemetry.places.add(PlaceKind::Committed, (16.4, 48.2));
        telemetry.places.add(PlaceKind::Dead, (16.5, 48.3));
        telemetry.records.read(3);
        telemetry.records.ended(RecordEnd::Matched);
        telemetry.records.ended(RecordEnd::Failed);
        telemetry.dead("BAD_REQUEST", "steps[0]", || "record 3: <script>alert(1)</script>".to_owned());
        let page = page(&ReportPage {
            kind: "A run",
            words: OutcomeWords::GEOCODE,
            title: "a & b <i>",
            ended: "all rows are there",
            tone: Tone::Good,
            when: "today",
            telemetry: &telemetry,
            added: 0,
            seen: &Observation::default(),
            notes: &["<u>".to_owned()],
            policy: &[("retry_policy".into(), vec![("max_attempts".into(), "5".into())])],
            objects: &AllowedObjects::default(),
        });
        assert!(!page.contains("<script") && !page.contains("<i>") && !page.contains("<u>"));
        assert!(page.contains("a &amp; b &lt;i&gt;") && page.contains("&lt;script&gt;"));
        assert!(page.contains("3 read = 1 matched + 1 failed + 1 unfinished"), "{page}");
        assert!(page.contains("class=\"cross\"") && page.ends_with("</html>\n"));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing comes from outside");
    }
}
