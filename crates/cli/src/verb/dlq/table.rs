//! Tables for a terminal.

use std::io::IsTerminal;

use tidegate_core::quote::is_unsafe;

/// Rows as aligned columns; the last column is cut to the width of the terminal.
pub(in crate::verb) fn table(head: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = head.len();
    let clean = |cell: &str| -> String { cell.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect() };
    let all: Vec<Vec<String>> = [head.iter().map(ToString::to_string).collect()]
        .into_iter()
        .chain(rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()))
        .collect();
    let width = |i: usize| {
        all.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let before: usize = widths.iter().take(columns.saturating_sub(1)).map(|w| w + 2).sum();
    let room = line_width().map(|line| line.saturating_sub(before).max(16));
    let mut out = String::new();
    for row in &all {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let last = i + 1 == columns;
            let cell = match room {
                Some(room) if last && cell.chars().count() > room => {
                    cell.chars().take(room - 1).chain(['…']).collect()
                }
                _ => cell.clone(),
            };
            let pad = " ".repeat(widths.get(i).map_or(0, |w| w.saturating_sub(cell.chars().count())));
            if right.contains(&i) {
                line.push_str(&pad);
                line.push_str(&cell);
            } else {
                line.push_str(&cell);
                line.push_str(if last { "" } else { &pad });
            }
            line.push_str(if last { "" } else { "  " });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The width of a line in characters: `COLUMNS`, else 140 on a terminal.
fn line_width() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok()).filter(|n| *n >= 40);
    if std::io::stdout().is_terminal() { Some(set.unwrap_or(140)) } else { set }
}

/// The time since then, in one unit.
pub(in crate::verb) fn ago(then_ms: i64, now_ms: i64) -> String {
    let s = (now_ms - then_ms).max(0) / 1000;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let rows =
            [vec!["1".into(), "a".into(), "x\ny".into()], vec!["200".into(), "bcd".into(), "z".into()]];
        let drawn = table(&["n", "code", "message"], &rows, &[0]);
        assert_eq!(drawn, "  n  code  message\n  1  a     x y\n200  bcd   z\n");
        assert_eq!(
            [0, 59_000, 3_600_000, 86_400_000, 200_000_000].map(|ms| ago(0, ms)),
            ["0 s", "59 s", "1 h", "24 h", "2 d"]
        );
    }
}
