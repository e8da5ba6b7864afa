//! The report of a run: one page that needs nothing else and can be attached to a ticket.
//!
//! Style, plots and the content policy are those of the simulator's pages; here are only the
//! map, the timeline and what is said about a run.

pub(crate) mod map;
mod timeline;

pub(crate) use map::LAND;
pub(crate) use timeline::{Sample, Timeline};

use std::fmt::Write;
use std::time::Duration;

use tidegate_engine::telemetry::Summary;
use tidegate_sim::report::{escape, html, short};

use crate::progress::{span, thousands};

/// What a report is about.
pub(crate) struct Report<'a> {
    /// What was run, in a few words.
    pub(crate) title: &'a str,
    /// One sentence on how it ended.
    pub(crate) ended: &'a str,
    /// Whether that is good.
    pub(crate) good: bool,
    /// What was counted.
    pub(crate) summary: &'a Summary,
    /// How long it took.
    pub(crate) took: Duration,
    /// What happened when.
    pub(crate) timeline: &'a Timeline,
    /// Where the matches are: longitude, latitude.
    pub(crate) points: &'a [(f64, f64)],
    /// The policy in force: names and values.
    pub(crate) policy: &'a [(String, String)],
    /// Failures: code, count, an example.
    pub(crate) failures: &'a [(String, u64, String)],
}

/// The page.
pub(crate) fn page(report: &Report<'_>) -> String {
    let s = report.summary;
    let (class, mark) = if report.good { ("good", "✓") } else { ("bad", "✗") };
    let header = format!(
        "<h1>{}</h1><p class=\"reason\">{} rows in {}: {} matched, {} without a match, {} failed.</p>\
         <span class=\"badge {class}\">{mark} {}</span>",
        escape(report.title),
        thousands(s.records),
        span(report.took),
        thousands(s.matched),
        thousands(s.no_match),
        thousands(s.failed),
        escape(report.ended),
    );
    let mut main = String::new();
    if !report.points.is_empty() {
        let _ = write!(
            main,
            "<section><h2>Where the matches are</h2><figure>{}</figure></section>",
            map::svg(report.points)
        );
    }
    let _ = write!(
        main,
        "<section><h2>What happened when</h2></section>{}",
        html::plots(&report.timeline.plots(report.took))
    );
    main.push_str("<section><h2>In numbers</h2><div class=\"tables\">");
    for (title, rows) in tables(report) {
        let _ = write!(main, "<div class=\"wide\">{}</div>", html::rows_html(title, &rows));
    }
    main.push_str("</div></section>");
    if !report.failures.is_empty() {
        let head = ["code", "rows", "for example"].map(String::from).to_vec();
        let rows = report
            .failures
            .iter()
            .map(|(code, n, example)| vec![code.clone(), thousands(*n), example.clone()]);
        let rows: Vec<_> = [head].into_iter().chain(rows).collect();
        let _ = write!(
            main,
            "<section><h2>Failures</h2><div class=\"wide\">{}</div></section>",
            html::rows_html("", &rows)
        );
    }
    let footer = format!("Tidegate {}. Land: Natural Earth, public domain.", env!("CARGO_PKG_VERSION"));
    html::page(&format!("{} · Tidegate", report.title), &header, &main, &footer)
}

type Table = (&'static str, Vec<Vec<String>>);

fn tables(report: &Report<'_>) -> Vec<Table> {
    let s = report.summary;
    let pair = |name: &str, value: String| vec![name.to_string(), value];
    let percent = |share: f64| format!("{} %", short(share * 100.0));
    let reconciliation = vec![
        pair("rows", "count".into()),
        pair("offered", thousands(s.records)),
        pair("matched", thousands(s.matched)),
        pair("no match", thousands(s.no_match)),
        pair("failed", thousands(s.failed)),
        pair("from the cache", thousands(s.cache_hits)),
        pair("shared with an equal row", thousands(s.shared)),
    ];
    let calls = vec![
        pair("calls", "value".into()),
        pair("sent", thousands(s.calls)),
        pair("throttled", thousands(s.throttled)),
        pair("retries", thousands(s.retry_count_total)),
        pair(
            "retries per call, p50 / p99",
            format!("{} / {}", s.retries_per_call_p50, s.retries_per_call_p99),
        ),
        pair("time in calls", span(Duration::from_secs_f64(s.seconds_in_calls))),
        pair("time between attempts", span(Duration::from_secs_f64(s.seconds_in_backoff))),
        pair("responses with rate-limit headers", percent(s.rate_limit_header_present)),
    ];
    let mut attempts = vec![vec!["attempt".to_string(), "sent".to_string(), "answered".to_string()]];
    attempts.extend(
        s.by_attempt.iter().map(|a| vec![a.attempt.to_string(), thousands(a.sent), percent(a.success_rate)]),
    );
    let mut statuses = vec![pair("status", "responses".into())];
    statuses.extend(s.statuses.iter().map(|(status, n)| pair(status, thousands(*n))));
    let mut policy = vec![pair("policy", "in force".into())];
    policy.extend(report.policy.iter().map(|(name, value)| pair(name, value.clone())));
    vec![
        ("Reconciliation", reconciliation),
        ("Calls", calls),
        ("By attempt", attempts),
        ("Statuses", statuses),
        ("Policy", policy),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_engine::telemetry::Meter;

    #[test]
    fn a_page_is_whole_and_escapes_what_it_quotes() {
        let summary = Meter::default().summary(&Default::default());
        let failures = [("BAD_REQUEST".to_string(), 2, "row 3: <script>alert(1)</script>".to_string())];
        let page = page(&Report {
            title: "a & b <i>",
            ended: "all rows are there",
            good: true,
            summary: &summary,
            took: Duration::from_secs(3),
            timeline: &Timeline::default(),
            points: &[(16.4, 48.2), (16.5, 48.3)],
            policy: &[("attempts".into(), "5".into())],
            failures: &failures,
        });
        assert!(!page.contains("<script") && !page.contains("<i>"));
        assert!(page.contains("a &amp; b &lt;i&gt;") && page.contains("&lt;script&gt;"));
        assert!(page.contains("<svg") && page.ends_with("</html>\n"));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing comes from outside");
    }
}
