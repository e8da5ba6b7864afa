//! Numbers and durations as servers write them: `120`, `1.5`, `1m30s`, `500ms`, `2 minutes`.
//!
//! Everything is rounded *up* to a whole millisecond, so that a wait is never shorter than the
//! header says, and saturates: five thousand digits are a very long wait, not an error or zero.

/// The number of nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// The number of nanoseconds in a millisecond.
pub(super) const MILLISECOND: u64 = 1_000_000;

/// A duration with the resolution of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoarseDuration {
    /// The duration in milliseconds, rounded up.
    pub(super) ms: u64,
    /// The resolution in milliseconds.
    pub(super) step_ms: u64,
}

/// A non-negative decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The whole part, saturating.
    pub(super) whole: u64,
    /// The fraction in billionths, rounded up; at most one billion.
    billionths: u64,
    /// The number of digits in the fraction.
    decimals: u32,
}

impl Number {
    /// The duration of this many units of `unit` nanoseconds.
    pub(super) fn of(self, unit: u64) -> CoarseDuration {
        // The common case: most numbers are whole, and 128-bit division is slow.
        if self.decimals == 0 && unit >= MILLISECOND {
            let step_ms = unit / MILLISECOND;
            return CoarseDuration { ms: self.whole.saturating_mul(step_ms), step_ms };
        }
        span(self.nanos(unit), self.step(unit))
    }

    fn nanos(self, unit: u64) -> u128 {
        let fraction = (u128::from(self.billionths) * u128::from(unit)).div_ceil(1_000_000_000);
        u128::from(self.whole) * u128::from(unit) + fraction
    }

    fn step(self, unit: u64) -> u64 {
        unit.checked_div(10_u64.saturating_pow(self.decimals)).unwrap_or(0)
    }
}

fn span(nanos: u128, step: u64) -> CoarseDuration {
    let ms = u64::try_from(nanos.div_ceil(u128::from(MILLISECOND))).unwrap_or(u64::MAX);
    CoarseDuration { ms, step_ms: step.div_ceil(MILLISECOND).max(1) }
}

/// The text without leading and trailing whitespace.
pub(super) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Parses the whole text as a number: digits and at most one point, no sign and no exponent.
pub(super) fn number(text: &[u8]) -> Option<Number> {
    match take_number(text)? {
        (number, []) => Some(number),
        _ => None,
    }
}

/// Parses the whole text as a duration: one number without a unit, in units of `bare` nanoseconds,
/// or numbers with a unit each.
pub(super) fn duration(text: &[u8], bare: u64) -> Option<CoarseDuration> {
    let (mut number, mut rest) = take_number(text)?;
    if rest.is_empty() {
        return Some(number.of(bare));
    }
    let mut total = 0_u128;
    loop {
        let (unit, after) = take_unit(rest.trim_ascii_start())?;
        total = total.saturating_add(number.nanos(unit));
        rest = after.trim_ascii_start();
        if rest.is_empty() {
            return Some(span(total, number.step(unit)));
        }
        (number, rest) = take_number(rest)?;
    }
}

fn take_number(text: &[u8]) -> Option<(Number, &[u8])> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest {
        [b'.', after @ ..] => digits(after),
        _ => (&[][..], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if fraction.is_empty() {
        return Some((Number { whole: integer(whole), billionths: 0, decimals: 0 }, rest));
    }
    let mut billionths = 0;
    for place in 0..9 {
        billionths = billionths * 10 + u64::from(fraction.get(place).map_or(0, |d| d - b'0'));
    }
    if fraction.iter().skip(9).any(|&d| d != b'0') {
        billionths += 1;
    }
    let decimals = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
    Some((Number { whole: integer(whole), billionths, decimals }, rest))
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Parses digits, saturating.
pub(super) fn integer(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n: u64, &d| n.saturating_mul(10).saturating_add(u64::from(d.wrapping_sub(b'0'))))
}

fn take_unit(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|b| b.is_ascii() && !b.is_ascii_alphabetic()).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end)?;
    let is = |names: &[&str]| names.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(word));
    let unit = if is(&["s", "sec", "secs", "second", "seconds"]) {
        SECOND
    } else if is(&["ms", "msec", "msecs", "millisecond", "milliseconds"]) {
        MILLISECOND
    } else if is(&["m", "min", "mins", "minute", "minutes"]) {
        60 * SECOND
    } else if is(&["h", "hr", "hrs", "hour", "hours"]) {
        3_600 * SECOND
    } else if is(&["d", "day", "days"]) {
        86_400 * SECOND
    } else if is(&["us", "\u{b5}s", "\u{3bc}s"]) {
        1_000
    } else if is(&["ns"]) {
        1
    } else {
        return None;
    };
    Some((unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_of_spans() {
        for (text, ms, step_ms) in [
            ("0", 0, 1000),
            ("120", 120_000, 1000),
            ("1.5", 1500, 100),
            (".5", 500, 100),
            ("5.", 5000, 1000),
            ("1.0001", 1001, 1),
            ("1.0000000001", 1001, 1),
            ("0.0000000000", 0, 1),
            ("1m0s", 60_000, 1000),
            ("1m30s", 90_000, 1000),
            ("90s", 90_000, 1000),
            ("500ms", 500, 1),
            ("1h", 3_600_000, 3_600_000),
            ("2 minutes", 120_000, 60_000),
            ("1 min 5 sec", 65_000, 1000),
            ("1d2h", 93_600_000, 3_600_000),
            ("1.5s", 1500, 100),
            ("1500us", 2, 1),
            ("1\u{b5}s", 1, 1),
            ("0ns", 0, 1),
            ("99999999999999999999d", u64::MAX, 86_400_000),
            ("18446744073709551615", u64::MAX, 1000),
        ] {
            assert_eq!(duration(text.as_bytes(), SECOND), Some(CoarseDuration { ms, step_ms }), "{text}");
        }
    }

    #[test]
    fn not_spans() {
        for text in ["", ".", "-1", "+1", "1e3", "1m30", "s", "1x", "1..2", "1 2", "0x10", "1s,", "\u{b5}"] {
            assert_eq!(duration(text.as_bytes(), SECOND), None, "{text}");
        }
    }
}
