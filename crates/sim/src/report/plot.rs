//! Plots as SVG: axes with round ticks, lines that differ in colour, dash and marker.
//!
//! Colours come from the style of the page, so that the same drawing works in light and dark mode.
//! The palette is safe for colour-blind readers, and dashes and markers carry the same distinction.

use std::fmt::Write;

use super::{escape, short};
use crate::outcome::{Axis, LINES_MAX, Plot, PlotLine};

/// Size of a plot, in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
/// Margins around its axes, in pixels.
const LEFT: f64 = 68.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 52.0;
/// The number of line styles; further lines start again with the first.
const KINDS: usize = LINES_MAX;
/// The most points of a line with markers.
const MARKS_MAX: usize = 40;

/// One axis, mapped to pixels.
struct Scale {
    log: bool,
    /// The smallest value on the axis.
    low: f64,
    /// The largest value on the axis.
    high: f64,
    /// The pixel of `low`.
    from: f64,
    /// The pixel of `high`.
    to: f64,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
        let usable = values.filter(|x| x.is_finite() && (!axis.log || *x > 0.0));
        let least = usable.clone().fold(f64::INFINITY, f64::min);
        let most = usable.fold(f64::NEG_INFINITY, f64::max);
        let (mut low, mut high) = if least > most { (0.0, 1.0) } else { (least, most) };
        if axis.log {
            low = low.max(1e-12);
            high = high.max(low * 1.001);
            (low, high) = (low.log10(), high.log10());
            let room = (high - low) * 0.03;
            (low, high) = (low - room, high + room);
        } else {
            low = low.min(0.0);
            high = if high > low { high + (high - low) * 0.03 } else { low + 1.0 };
        }
        Scale { log: axis.log, low, high, from, to }
    }

    fn pixel(&self, x: f64) -> f64 {
        let x = if self.log { x.max(1e-12).log10() } else { x };
        self.from + (x - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return round_ticks(self.low, self.high);
        }
        let multiples: &[f64] = if self.high - self.low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        decades
            .flat_map(|d| multiples.iter().map(move |m| m * 10f64.powi(d)))
            .filter(|t| (self.low..=self.high).contains(&t.log10()))
            .collect()
    }
}

/// About five ticks at 1, 2 or 5 times a power of ten.
fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw).unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 20)).map(|i| i as f64 * step).collect()
}

fn tick_text(x: f64) -> String {
    match x.abs() {
        a if a >= 1e6 => format!("{} M", short(x / 1e6)),
        a if a >= 1e4 => format!("{} k", short(x / 1e3)),
        _ => short(x),
    }
}

/// Draws the plot. `id` distinguishes several plots on a page.
#[must_use]
pub fn svg(plot: &Plot, id: usize) -> String {
    let points = plot.lines.iter().flat_map(|l| &l.points);
    let x = Scale::new(&plot.x, points.clone().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let y = Scale::new(&plot.y, points.map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let mut out = String::new();
    let names: Vec<&str> = plot.lines.iter().map(|l| l.name.as_str()).collect();
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"t{id} d{id}\">\
         <title id=\"t{id}\">{}</title><desc id=\"d{id}\">{} over {}: {}</desc>",
        escape(&plot.title),
        escape(&plot.y.label),
        escape(&plot.x.label),
        escape(&names.join(", ")),
    );
    for tick in y.ticks() {
        let at = y.pixel(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            tick_text(tick)
        );
    }
    let bottom = HEIGHT - BOTTOM;
    for tick in x.ticks() {
        let at = x.pixel(tick);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
             <text class=\"tick middle\" x=\"{at:.1}\" y=\"{}\">{}</text>",
            bottom + 5.0,
            bottom + 19.0,
            tick_text(tick)
        );
    }
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
         <text class=\"label middle\" x=\"{:.1}\" y=\"{}\">{}</text>\
         <text class=\"label middle\" transform=\"translate(15 {:.1}) rotate(-90)\">{}</text>",
        WIDTH - RIGHT,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 10.0,
        escape(&plot.x.label),
        f64::midpoint(TOP, bottom),
        escape(&plot.y.label),
    );
    for (index, line) in plot.lines.iter().enumerate() {
        draw(&mut out, line, index % KINDS, &x, &y);
    }
    out.push_str("</svg>");
    out
}

fn draw(out: &mut String, line: &PlotLine, kind: usize, x: &Scale, y: &Scale) {
    let usable = |p: &&(f64, f64)| (!x.log || p.0 > 0.0) && (!y.log || p.1 > 0.0);
    let _ = write!(out, "<polyline class=\"line k{kind}\" points=\"");
    for p in line.points.iter().filter(usable) {
        let _ = write!(out, "{:.1},{:.1} ", x.pixel(p.0), y.pixel(p.1));
    }
    out.push_str("\"/>");
    if line.points.len() <= MARKS_MAX {
        for p in line.points.iter().filter(usable) {
            out.push_str(&mark(kind, x.pixel(p.0), y.pixel(p.1)));
        }
    }
}

/// The marker of a line style: disc, square, triangle, diamond, ring, cross.
fn mark(kind: usize, x: f64, y: f64) -> String {
    let path = match kind {
        0 => return format!("<circle class=\"mark k{kind}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        1 => format!("M{:.1} {:.1}h6.4v6.4h-6.4z", x - 3.2, y - 3.2),
        2 => format!("M{x:.1} {:.1}l4.2 7.4h-8.4z", y - 4.8),
        3 => format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6z", y - 4.6),
        4 => return format!("<circle class=\"ring k{kind}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        _ => format!("M{:.1} {:.1}h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4z", x - 3.6, y - 1.2),
    };
    format!("<path class=\"mark k{kind}\" d=\"{path}\"/>")
}

/// The legend of a plot; nothing for a single line.
#[must_use]
pub fn legend(plot: &Plot) -> String {
    if plot.lines.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<ul class=\"legend\">");
    for (index, line) in plot.lines.iter().enumerate() {
        let kind = index % KINDS;
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
             <polyline class=\"line k{kind}\" points=\"1,6 33,6\"/>{}</svg>{}</li>",
            if line.points.len() <= MARKS_MAX { mark(kind, 17.0, 6.0) } else { String::new() },
            escape(&line.name)
        );
    }
    out.push_str("</ul>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_ticks(0.0, 103.0), [0.0, 50.0, 100.0]);
        assert_eq!(round_ticks(0.0, 1.03), [0.0, 0.5, 1.0]);
        let log = Scale { log: true, low: 1.0, high: 2.3, from: 0.0, to: 1.0 };
        assert_eq!(log.ticks(), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!([tick_text(104_999.0), tick_text(2e6), tick_text(0.5)], ["105 k", "2 M", "0.5"]);
    }

    #[test]
    fn strange_numbers_still_draw() {
        for points in
            [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)], vec![(5.0, -3.0)]]
        {
            for axis in [Axis::linear("<x>"), Axis::log("x")] {
                let line = PlotLine { name: "<b>".to_owned(), points: points.clone() };
                let plot =
                    Plot { title: "t".to_owned(), x: axis.clone(), y: axis.clone(), lines: vec![line] };
                let text = svg(&plot, 1);
                assert!(text.starts_with("<svg") && text.ends_with("</svg>"));
                assert!(!text.contains("<x>") && !text.contains("<b>"), "{text}");
            }
        }
    }
}
