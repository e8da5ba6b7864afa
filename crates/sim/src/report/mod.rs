//! Formats an outcome for people and programs.

pub mod html;
pub mod plot;
pub mod table;

pub use html::html;
pub use table::table;

use crate::outcome::ScenarioOutcome;

/// The outcome as JSON.
///
/// # Errors
/// When a number cannot be serialized.
pub fn json(outcome: &ScenarioOutcome) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(outcome)
}

/// A number in few characters: integers exactly, others to four significant digits.
#[must_use]
pub fn short(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let magnitude = x.abs().log10().floor();
    if !magnitude.is_finite() {
        return x.to_string();
    }
    if x.fract() == 0.0 && magnitude < 9.0 {
        return format!("{x:.0}");
    }
    if !(-4.0..9.0).contains(&magnitude) {
        return format!("{x:.3e}");
    }
    let digits = (3.0 - magnitude).max(0.0) as usize;
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Escapes text for HTML elements and attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (x, text) in [
            (0.0, "0"),
            (1000.0, "1000"),
            (63_504.6, "63505"),
            (1.875, "1.875"),
            (0.062_512, "0.06251"),
            (0.000_15, "0.00015"),
            (2_048.27, "2048"),
            (-1.5, "-1.5"),
            (1e12, "1.000e12"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(short(x), text);
        }
    }
}
