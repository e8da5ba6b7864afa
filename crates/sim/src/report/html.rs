//! The outcome as a self-contained HTML page: no scripts, fonts or images from outside.
//!
//! The content security policy allows only the page's own style, by hash, so that a report can
//! safely be attached to a ticket and opened. Every plot has its numbers in a table beside it.

use std::fmt::Write;

use super::plot;
use super::table::{CHECKS_MAX, TableRows, numbers};
use super::{escape, short};
use crate::outcome::{Plot, ScenarioOutcome};
use crate::scenario::expect::CheckedExpectation;

const STYLE: &str = include_str!("page.css");
/// SHA-256 of [`STYLE`] for the content security policy; a test verifies it.
const STYLE_HASH: &str = "xMDjktr4MQjW2AZ5t3wOji7OztodHmqCeX9RbTnd8l8=";
/// The most rows of a plot's table; longer lines are thinned.
const ROWS_MAX: usize = 40;

/// The content security policy: only the page's own style, and pictures that are in the page.
#[must_use]
pub fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
}

/// A page from its header, main part and footer. The title is escaped here, the rest is HTML.
#[must_use]
pub fn page(title: &str, header: &str, main: &str, footer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head>\
         <body><header>{header}</header><main>{main}</main><footer>{footer}</footer></body></html>\n",
        policy(),
        escape(title)
    )
}

/// The plots, each with its numbers; constant ones are omitted.
#[must_use]
pub fn plots(plots: &[Plot]) -> String {
    let mut out = String::from("<section class=\"plots\" aria-label=\"Plots\">");
    for (id, plot) in plots.iter().filter(|p| p.lines.iter().any(moves)).enumerate() {
        let _ = write!(
            out,
            "<figure><figcaption>{}</figcaption>{}{}<details><summary>Numbers</summary>\
             <div class=\"wide\">{}</div></details></figure>",
            escape(&plot.title),
            plot::legend(plot),
            plot::svg(plot, id),
            rows_html("", &points(plot)),
        );
    }
    out.push_str("</section>");
    out
}

/// The outcome as a page.
#[must_use]
pub fn html(outcome: &ScenarioOutcome) -> String {
    let name = escape(&outcome.name);
    let header =
        format!("<h1>{name}</h1><p class=\"reason\">{}</p>{}", escape(&outcome.reason), badge(outcome));
    let mut out = plots(&outcome.plots);
    out.push_str("<section><h2>Results</h2><div class=\"tables\">");
    for (title, rows) in numbers(&outcome.cases) {
        let _ = write!(out, "<div class=\"wide\">{}</div>", rows_html(&title, &rows));
    }
    out.push_str("</div></section>");
    if !outcome.checks.is_empty() {
        out.push_str("<section><h2>Expectations</h2>");
        let (held, broken): (Vec<&CheckedExpectation>, Vec<_>) = outcome.checks.iter().partition(|c| c.held);
        if !broken.is_empty() {
            let _ = write!(out, "<div class=\"wide\">{}</div>", checks(&broken));
        }
        let _ = match held.len() {
            0 => Ok(()),
            1..=CHECKS_MAX => write!(out, "<div class=\"wide\">{}</div>", checks(&held)),
            n => write!(
                out,
                "<details><summary>The {n} that hold</summary><div class=\"wide\">{}</div></details>",
                checks(&held)
            ),
        };
        out.push_str("</section>");
    }
    let footer = format!(
        "Seed {}, trials {}, events {}, trace <code>{:016x}</code>. The same seed gives the same trace.",
        outcome.seed, outcome.trials, outcome.events, outcome.trace
    );
    page(&format!("{} · Tidegate simulation", outcome.name), &header, &out, &footer)
}

fn moves(line: &crate::outcome::PlotLine) -> bool {
    line.points.iter().any(|p| p.1 != 0.0)
}

fn badge(outcome: &ScenarioOutcome) -> String {
    let all = outcome.checks.len();
    match outcome.checks.iter().filter(|c| !c.held).count() {
        _ if all == 0 => String::new(),
        0 => format!("<span class=\"badge good\">✓ all {all} expectations hold</span>"),
        n => format!("<span class=\"badge bad\">✗ {n} of {all} expectations fail</span>"),
    }
}

fn checks(checks: &[&CheckedExpectation]) -> String {
    let mut out = String::from(
        "<table><thead><tr><th scope=\"col\">Case</th><th scope=\"col\">Metric</th>\
         <th scope=\"col\">Expected</th><th scope=\"col\">Got</th><th scope=\"col\"></th></tr></thead><tbody>",
    );
    for check in checks {
        let (class, mark) = if check.held { ("good", "✓ holds") } else { ("bad", "✗ fails") };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"word\">{}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{mark}</td></tr>",
            escape(&check.case),
            escape(&check.metric),
            escape(&check.wanted),
            check.got.map_or_else(|| "no such metric".to_owned(), short),
        );
    }
    out.push_str("</tbody></table>");
    out
}

/// The points of a plot as a table: x down, lines across.
fn points(plot: &Plot) -> TableRows {
    let mut rows: TableRows =
        vec![core::iter::once(&plot.x.label).chain(plot.lines.iter().map(|l| &l.name)).cloned().collect()];
    let longest = plot.lines.iter().map(|l| &l.points).max_by_key(|p| p.len());
    let Some(longest) = longest else { return rows };
    let step = longest.len().div_ceil(ROWS_MAX).max(1);
    for &(x, _) in longest.iter().step_by(step) {
        let at = |line: &crate::outcome::PlotLine| {
            // The last value not after x, because lines of different runs have different bins.
            let after = line.points.partition_point(|p| p.0 <= x);
            after.checked_sub(1).and_then(|i| line.points.get(i)).map_or_else(String::new, |p| short(p.1))
        };
        rows.push(core::iter::once(short(x)).chain(plot.lines.iter().map(at)).collect());
    }
    rows
}

/// An HTML table: the first row is the header, the first cell of a row is its heading.
#[must_use]
pub fn rows_html(title: &str, rows: &[Vec<String>]) -> String {
    let mut out = String::from("<table>");
    if !title.is_empty() {
        let _ = write!(out, "<caption>{}</caption>", escape(title));
    }
    for (index, row) in rows.iter().enumerate() {
        out.push_str(if index == 0 { "<thead><tr>" } else { "<tr>" });
        for (column, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match (index, column) {
                (0, _) => write!(out, "<th scope=\"col\">{cell}</th>"),
                (_, 0) => write!(out, "<th scope=\"row\">{cell}</th>"),
                _ => write!(out, "<td>{cell}</td>"),
            };
        }
        out.push_str(if index == 0 { "</tr></thead><tbody>" } else { "</tr>" });
    }
    out.push_str("</tbody></table>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, ScenarioOptions};
    use sha2::{Digest, Sha256};

    #[test]
    fn the_policy_allows_exactly_the_style() {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digest = Sha256::digest(STYLE.as_bytes());
        let text: String = digest
            .chunks(3)
            .flat_map(|chunk| {
                let n = chunk.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
                let digit = move |i: usize| DIGITS[(n >> (18 - 6 * i)) as usize & 63] as char;
                (0..4).map(move |i| if i <= chunk.len() { digit(i) } else { '=' })
            })
            .collect();
        assert_eq!(STYLE_HASH, text, "the style changed: put the new hash here");
    }

    #[test]
    fn a_page_is_whole_and_escapes_what_it_quotes() {
        let scenario = Scenario::parse(
            "{name: '<script>', reason: 'a \"quoted\" & <b>bold</b> one',
              contention: {clients: [1, 2]}, expect: {full/1: {calls: {equals: 2}}}}",
        )
        .unwrap();
        let page = html(&scenario.run(&ScenarioOptions::default()).unwrap());
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://"));
        assert!(page.contains("1 of 1 expectations fail"));
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
