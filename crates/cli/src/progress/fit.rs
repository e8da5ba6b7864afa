//! Fits the progress line into a terminal of any width, and erases the line before.
//!
//! A line that is longer than the terminal wraps, and `\r` then erases only its last row. So a line
//! is never longer than the terminal, and if the terminal has become narrower since, as many rows
//! are erased as the old line now takes.

/// The narrowest bar that is still worth its room.
const BAR_MIN: usize = 8;
const BAR_MAX: usize = 24;
const BETWEEN: &str = " · ";

/// A part of the progress line.
pub(super) enum LinePart {
    /// A bar, by the share that is done, from 0 to 1.
    Bar(f64),
    /// A text, the number of its colour, and its rank: where room is short, the highest goes first.
    Text { text: String, color: &'static str, rank: u8 },
}

impl LinePart {
    pub(super) fn text(text: String, rank: u8) -> LinePart {
        LinePart::Text { text, color: "", rank }
    }

    fn rank(&self) -> u8 {
        match self {
            // A bar says nothing that its percentage does not.
            LinePart::Bar(_) => u8::MAX,
            LinePart::Text { rank, .. } => *rank,
        }
    }
}

/// The line in at most `width` columns, and its length without colours.
pub(super) fn fit(mut parts: Vec<LinePart>, width: usize, color: bool) -> (String, usize) {
    let taken = |parts: &[LinePart], bar: usize| {
        let each = parts.iter().map(|part| match part {
            LinePart::Bar(_) => bar + " 100 %".len(),
            LinePart::Text { text, .. } => text.chars().count(),
        });
        each.sum::<usize>() + BETWEEN.chars().count() * parts.len().saturating_sub(1)
    };
    let has_bar = |parts: &[LinePart]| parts.iter().any(|part| matches!(part, LinePart::Bar(_)));
    // The bar gives way first, then its length is what the texts leave.
    let mut bar = BAR_MAX;
    while taken(&parts, bar) > width {
        if has_bar(&parts) && bar > BAR_MIN {
            bar -= 1;
        } else if has_bar(&parts) && bar > 0 {
            bar = 0;
        } else if parts.len() > 1 {
            let last = parts.iter().enumerate().max_by_key(|(at, part)| (part.rank(), *at));
            let Some((at, _)) = last else { break };
            parts.remove(at);
        } else {
            break;
        }
    }
    let (mut line, mut length) = (String::new(), 0);
    for (at, part) in parts.iter().enumerate() {
        let (text, code) = match part {
            LinePart::Bar(share) => (drawn(*share, bar), "36"),
            LinePart::Text { text, color, .. } => (text.clone(), *color),
        };
        let text = if at == 0 { text } else { format!("{BETWEEN}{text}") };
        let text = cut(text, width.saturating_sub(length));
        length += text.chars().count();
        line.push_str(&if color && !code.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text });
    }
    (line, length)
}

fn drawn(share: f64, bar: usize) -> String {
    let share = share.clamp(0.0, 1.0);
    let full = (share * bar as f64).round() as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(bar.saturating_sub(full)));
    format!("{bar} {:>3.0} %", (share * 100.0).floor()).trim_start().to_owned()
}

/// The text in at most `width` columns.
fn cut(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// What erases a line of this length on a terminal that now has this width.
pub(crate) fn erase(length: usize, width: usize) -> String {
    match length.saturating_sub(1) / width.max(1) {
        0 => "\r\x1b[2K".to_owned(),
        above => format!("\r\x1b[{above}A\x1b[J"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<LinePart> {
        let red = LinePart::Text { text: "10 rejected".into(), color: "31", rank: 1 };
        let text = |text: &str, rank| LinePart::text(text.into(), rank);
        vec![LinePart::Bar(0.4), text("600 read", 4), red, text("100/s", 5), text("6.0 s left", 0)]
    }

    #[test]
    fn the_line_is_never_wider_than_the_terminal() {
        for color in [false, true] {
            for width in 1..120 {
                let (line, length) = fit(parts(), width, color);
                assert!(length <= width, "{width}: {line:?}");
                assert_eq!(line.contains('\x1b'), color && (line.contains('%') || line.contains("rejected")));
            }
        }
    }

    #[test]
    fn what_matters_most_stays_longest() {
        let at = |width| fit(parts(), width, false).0;
        assert_eq!(at(80), "██████████░░░░░░░░░░░░░░  40 % · 600 read · 10 rejected · 100/s · 6.0 s left");
        assert_eq!(at(60), "███░░░░░  40 % · 600 read · 10 rejected · 100/s · 6.0 s left");
        assert_eq!(at(54), "40 % · 600 read · 10 rejected · 100/s · 6.0 s left");
        assert_eq!(at(24), "10 rejected · 6.0 s left");
        assert_eq!(at(12), "6.0 s left");
        assert_eq!(at(5), "6.0 …");
    }

    #[test]
    fn a_line_that_wraps_after_a_resize_is_erased_whole() {
        assert_eq!(erase(70, 80), "\r\x1b[2K");
        assert_eq!(erase(80, 80), "\r\x1b[2K");
        assert_eq!(erase(79, 40), "\r\x1b[1A\x1b[J");
        assert_eq!(erase(81, 40), "\r\x1b[2A\x1b[J");
        assert_eq!(erase(0, 0), "\r\x1b[2K");
    }
}
