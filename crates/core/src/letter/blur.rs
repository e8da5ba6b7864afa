//! Makes positions in a text as coarse as the documented rounding.
//!
//! Messages quote positions: `Self-intersection[16.3712 48.2081]`, or in a projected system
//! `[612345.67 5341234.5]`. Nothing says which numbers are positions, so all that may be are rounded:
//!
//! | numbers | become |
//! |---|---|
//! | side by side, such as `16.3712 48.2081`, one of them beyond 360 | multiples of 50,000 metres or feet |
//! | with decimals and of 1,000 or more | multiples of 50,000 |
//! | other decimals | one decimal: a tenth of a degree is about ten kilometres |
//! | single whole numbers, versions, names with digits | themselves |

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// The grid for projected systems, in their units: 50 km, or 15 km in feet.
const GRID: f64 = 50_000.0;
/// No degree is beyond it.
const DEGREES_MAX: f64 = 360.0;
/// Decimals from here on are hardly degrees, seconds or shares.
const LONE_MIN: f64 = 1000.0;

/// A number in a text.
struct QuotedNumber {
    start: usize,
    end: usize,
    value: f64,
    decimals: bool,
}

/// The text with rounded positions.
#[must_use]
pub fn blur(text: &str) -> String {
    let numbers = numbers(text);
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while at < numbers.len() {
        let run = run_from(text, &numbers, at);
        let Some(members) = numbers.get(at..at + run) else { break };
        let projected = run > 1 && members.iter().any(|n| n.value > DEGREES_MAX);
        for number in members {
            out.push_str(text.get(copied..number.start).unwrap_or_default());
            let own = text.get(number.start..number.end).unwrap_or_default();
            round(&mut out, own, number, projected);
            copied = number.end;
        }
        at += run;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out
}

fn round(out: &mut String, own: &str, number: &QuotedNumber, projected: bool) {
    if projected || (number.decimals && number.value >= LONE_MIN) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{}", libm::round(number.value / GRID) * GRID);
        return;
    }
    match own.split_once('.') {
        Some((whole, decimals)) => {
            out.push_str(whole);
            out.push('.');
            out.extend(decimals.chars().take(1));
            // An exponent belongs to the value.
            out.push_str(decimals.find(['e', 'E']).and_then(|at| decimals.get(at..)).unwrap_or_default());
        }
        None => out.push_str(own),
    }
}

/// How many numbers from here on are side by side.
fn run_from(text: &str, numbers: &[QuotedNumber], at: usize) -> usize {
    let mut run = 1;
    while let Some([a, b]) = numbers.get(at + run - 1..=at + run) {
        let between = text.get(a.end..b.start).unwrap_or_default();
        let separator = between.strip_suffix('-').unwrap_or(between);
        let opened =
            text.get(..a.start).is_some_and(|before| before.trim_end_matches('-').ends_with(['[', '(']));
        let listed = a.decimals || b.decimals || opened || run > 1;
        match separator {
            " " => {}
            "," | ", " | "; " if listed => {}
            _ => break,
        }
        run += 1;
    }
    run
}

fn numbers(text: &str) -> Vec<QuotedNumber> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !digit(at) {
            at += 1;
            continue;
        }
        let start = at;
        let named = start > 0
            && bytes
                .get(start - 1)
                .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_' || *b == b'.' || *b >= 0x80);
        while digit(at) {
            at += 1;
        }
        let mut decimals = false;
        if bytes.get(at) == Some(&b'.') && digit(at + 1) {
            decimals = true;
            at += 1;
            while digit(at) {
                at += 1;
            }
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            if digit(at + 1 + sign) {
                at += 1 + sign;
                while digit(at) {
                    at += 1;
                }
                decimals = true;
            }
        }
        // A version, a date or an address: 1.2.3.
        let dotted = bytes.get(at) == Some(&b'.') && digit(at + 1);
        if named || dotted {
            while digit(at) || (bytes.get(at) == Some(&b'.') && digit(at + 1)) {
                at += 1;
            }
            continue;
        }
        if let Some(value) = text.get(start..at).and_then(|own| own.parse().ok()) {
            found.push(QuotedNumber { start, end: at, value, decimals });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_as_coarse_as_documented() {
        for (exact, coarse) in [
            ("Self-intersection[16.3712 48.2081]", "Self-intersection[16.3 48.2]"),
            ("row 17, 30.25 s, v1.2.3456", "row 17, 30.2 s, v1.2.3456"),
            ("nothing. 5", "nothing. 5"),
            ("Self-intersection[612345.67 5341234.5]", "Self-intersection[600000 5350000]"),
            ("Self-intersection[612345 5341234]", "Self-intersection[600000 5350000]"),
            ("(123.4, -5341234.5)", "(0, -5350000)"),
            ("POINT (1984321.25 412345.5)", "POINT (2000000 400000)"),
            ("x 612345.67 is outside", "x 600000 is outside"),
            ("6.1234567e5 5.3e6", "600000 5300000"),
            ("ring 2 of 1234 has 3 positions", "ring 2 of 1234 has 3 positions"),
            ("EPSG:31256 at 10.0.0.1, record 4711", "EPSG:31256 at 10.0.0.1, record 4711"),
            ("?lat=48.2081&lon=16.3712", "?lat=48.2&lon=16.3"),
            ("1,234,567 records", "1,234,567 records"),
            ("Größe 12.345 m²", "Größe 12.3 m²"),
        ] {
            assert_eq!(blur(exact), coarse);
            assert_eq!(blur(coarse), coarse, "it is as coarse as it gets");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_projected_position_is_never_closer_than_the_grid(x in 1000.0..9e6f64, y in 1000.0..9e6f64) {
            let text = alloc::format!("at [{x} {y}]");
            let blurred = blur(&text);
            for number in numbers(&blurred) {
                proptest::prop_assert_eq!(number.value % GRID, 0.0);
            }
        }

        #[test]
        fn every_text_is_taken(text: String) {
            let _ = blur(&text);
        }
    }
}
