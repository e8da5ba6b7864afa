//! Bar charts: a table with a bar per row, and a stacked bar.
//!
//! Every bar stands beside its number, so that nothing depends on length or colour alone.

use std::fmt::Write;

use tidegate_sim::report::escape;

use crate::progress::thousands;

/// One row: its name, its number as text, and the length relative to the longest bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) text: String,
    /// The length relative to the longest bar, from 0 to 1.
    pub(super) share: f64,
    pub(super) class: &'static str,
}

/// A table of bars. `head` holds the titles of its two columns.
pub(super) fn table(title: &str, head: [&str; 2], bars: &[Bar]) -> String {
    let mut out = format!(
        "<table class=\"bars\"><caption>{}</caption><thead><tr><th scope=\"col\">{}</th>\
         <th scope=\"col\">{}</th><td class=\"run\"></td></tr></thead><tbody>",
        escape(title),
        escape(head[0]),
        escape(head[1])
    );
    for bar in bars {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"run\">\
             <svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
             <rect class=\"rail\" width=\"100\" height=\"8\"/>\
             <rect class=\"{}\" width=\"{:.2}\" height=\"8\"/></svg></td></tr>",
            escape(&bar.name),
            escape(&bar.text),
            bar.class,
            (bar.share * 100.0).clamp(0.0, 100.0),
        );
    }
    out.push_str("</tbody></table>");
    out
}

/// A segment of a stacked bar.
pub(super) struct BarSegment {
    pub(super) name: &'static str,
    pub(super) count: u64,
    pub(super) class: &'static str,
}

/// A stacked bar with a legend below. Empty segments are omitted; small ones have a minimum width.
pub(super) fn whole(parts: &[BarSegment]) -> String {
    const WIDTH: f64 = 1000.0;
    let parts: Vec<&BarSegment> = parts.iter().filter(|part| part.count > 0).collect();
    let sum: u64 = parts.iter().map(|part| part.count).sum();
    if sum == 0 {
        return String::new();
    }
    let least = 4.0;
    let wide = |part: &BarSegment| (part.count as f64 / sum as f64 * WIDTH).max(least);
    let scale = WIDTH / parts.iter().map(|part| wide(part)).sum::<f64>();
    let mut out = String::from(
        "<svg class=\"whole\" viewBox=\"0 0 1000 30\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
    );
    let mut x = 0.0;
    for part in &parts {
        let width = wide(part) * scale;
        let _ = write!(
            out,
            "<rect class=\"{}\" x=\"{x:.2}\" width=\"{:.2}\" height=\"30\"/>",
            part.class,
            (width - 2.0).max(1.0)
        );
        x += width;
    }
    out.push_str("</svg><ul class=\"legend\">");
    for part in &parts {
        let percent = part.count as f64 / sum as f64 * 100.0;
        let _ = write!(
            out,
            "<li><svg class=\"chip\" viewBox=\"0 0 12 12\" width=\"12\" height=\"12\" aria-hidden=\"true\">\
             <rect class=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/></svg>\
             <b>{}</b> {} <span class=\"soft\">{}</span></li>",
            part.class,
            thousands(part.count),
            escape(part.name),
            percent_text(percent),
        );
    }
    out.push_str("</ul>");
    out
}

/// A percentage that shows 100 % or 0 % only if it is exact.
pub(crate) fn percent_text(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_owned(),
        p if p >= 100.0 => "100 %".to_owned(),
        p if p > 99.9 => "> 99.9 %".to_owned(),
        p if p < 0.1 => "< 0.1 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_lie() {
        let said = [0.0, 0.0001, 5.25, 99.99, 100.0].map(percent_text);
        assert_eq!(said, ["0 %", "< 0.1 %", "5.2 %", "> 99.9 %", "100 %"]);
    }

    #[test]
    fn a_part_of_little_is_still_seen() {
        let part = |name, count| BarSegment { name, count, class: "c-ok" };
        let text = whole(&[part("many", 1_000_000), part("one", 1), part("none", 0)]);
        assert_eq!(text.matches("<rect class=\"c-ok\" x=").count(), 2);
        assert!(text.contains("width=\"1.98\"") || text.contains("width=\"1.99\""), "{text}");
        assert!(text.contains("1,000,000") && !text.contains("</b> none"));
        assert_eq!(whole(&[]), "");
    }
}
