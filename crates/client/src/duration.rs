//! Durations with units: `500ms`, `30s`, `1m30s`, `2h`, `1.5s`.
//!
//! Why not a bare number: `deadline: 30` leaves the unit open, which the suffix `_seconds` of the
//! other spelling prevents. So a unit is required. Units go from large to small, each at most once,
//! so that a typo (`1s30m`) is not read as half an hour.

use std::time::Duration;

/// The units, largest first, with their length in seconds.
const UNITS: [(&str, f64); 5] = [("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];

/// The pattern of such a duration, for the JSON Schema.
pub const PATTERN: &str = concat!(
    r"^(?=\d)(\d+(\.\d+)?d)? *(\d+(\.\d+)?h)? *(\d+(\.\d+)?m)?",
    r" *(\d+(\.\d+)?s)? *(\d+(\.\d+)?ms)?$"
);

/// Parses a duration; returns seconds.
///
/// # Errors
/// The reason why the text is not a duration.
pub fn seconds(text: &str) -> Result<f64, &'static str> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("it is empty");
    }
    let mut units = UNITS.iter();
    let mut total = 0.0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
        if number.is_empty() {
            return Err("expected a number before each unit");
        }
        if unit.is_empty() {
            return Err("missing unit");
        }
        if number.starts_with('.') || number.ends_with('.') {
            return Err("expected digits on both sides of the decimal point");
        }
        let number: f64 = number.parse().map_err(|_| "invalid number")?;
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err("unknown unit; expected one of d, h, m, s, ms");
        }
        let Some((_, length)) = units.find(|(name, _)| *name == unit) else {
            return Err("units must be in order from large to small, each once");
        };
        total += number * length;
        rest = after.trim_start();
    }
    if total.is_finite() { Ok(total) } else { Err("it is too long") }
}

/// Parses a duration.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    seconds(text).ok().and_then(|s| Duration::try_from_secs_f64(s).ok())
}

/// Formats a duration in seconds: `1m30s`, `2.5s`, `500ms`.
#[must_use]
pub fn human(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 1.0 {
        return format!("{}ms", round(seconds * 1000.0));
    }
    if seconds.is_nan() || seconds < 60.0 {
        return format!("{}s", round(seconds));
    }
    let mut rest = seconds.round();
    let mut text = String::new();
    for (unit, length) in UNITS.iter().take(4) {
        let count = (rest / length).floor();
        if count > 0.0 {
            text.push_str(&format!("{count}{unit}"));
            rest -= count * length;
        }
    }
    text
}

/// Rounds to three decimal places.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Splits `text` after its longest prefix of characters that satisfy `is`.
fn split(text: &str, is: fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !is(c)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, expected) in [
            ("500ms", 0.5),
            ("30s", 30.0),
            ("1m30s", 90.0),
            ("1m 30s", 90.0),
            (" 2h ", 7200.0),
            ("1.5s", 1.5),
            ("1d1h1m1s1ms", 90_061.001),
            ("0s", 0.0),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong =
            ["", " ", "30", "s", "30x", "-5s", "1s30m", "1s1s", "1e3s", ".5s", "5.s", "1.2.3s", "1 m", "٣s"];
        for text in wrong {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(seconds(&format!("{}d", "9".repeat(400))).is_err());
    }

    #[test]
    fn durations_are_written_as_people_do() {
        for (value, expected) in [
            (0.0, "0s"),
            (0.0005, "0.5ms"),
            (0.25, "250ms"),
            (2.0, "2s"),
            (2.5, "2.5s"),
            (90.0, "1m30s"),
            (3600.0, "1h"),
            (86_461.0, "1d1m1s"),
        ] {
            assert_eq!(human(value), expected);
        }
    }
}
