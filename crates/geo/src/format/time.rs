//! Dates and datetimes as numbers and as text.

use tidegate_core::time::calendar::{civil_from_days, days_from_civil};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A date as days since 1970.
pub(in crate::format) fn day_of(text: &str) -> Option<i32> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    i32::try_from(days_from_civil(number(0, 4)?, number(5, 7)?, number(8, 10)?)).ok()
}

/// Days since 1970 as ISO 8601.
#[cfg(any(feature = "parquet", test))]
pub(in crate::format) fn day_text(day: i32) -> String {
    let (year, month, day) = civil_from_days(day.into());
    format!("{year:04}-{month:02}-{day:02}")
}

/// A datetime as microseconds since 1970, and whether it has a UTC offset. `None` if it is not a datetime,
/// or finer than a microsecond.
#[must_use]
pub fn moment_of(text: &str) -> Option<(i64, bool)> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let mut micros = i64::from(day_of(text)?) * MICROS_PER_DAY;
    micros += (number(11, 13)? * 60 + number(14, 16)?) * 60_000_000;
    let mut rest = text.get(16..)?;
    if let Some(seconds) = rest.strip_prefix(':') {
        micros += seconds.get(..2)?.parse::<i64>().ok()? * 1_000_000;
        rest = seconds.get(2..)?;
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let digits = fraction.get(..len)?.trim_end_matches('0');
        if digits.len() > 6 {
            return None;
        }
        micros += format!("{digits:0<6}").parse::<i64>().ok()?;
        rest = fraction.get(len..)?;
    }
    match rest.as_bytes() {
        [] => Some((micros, false)),
        [b'Z' | b'z'] => Some((micros, true)),
        [sign @ (b'+' | b'-'), hours @ ..] => {
            let digits: String =
                hours.iter().filter(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
            let hours: i64 = digits.get(..2)?.parse().ok()?;
            let minutes: i64 = digits.get(2..4).unwrap_or("0").parse().ok()?;
            let offset = (hours * 60 + minutes) * 60_000_000;
            Some((if *sign == b'+' { micros - offset } else { micros + offset }, true))
        }
        _ => None,
    }
}

/// Nanoseconds since 1970 as ISO 8601.
pub(in crate::format) fn moment_text(nanos: i128, utc: bool) -> String {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    let fraction = nanos.rem_euclid(1_000_000_000);
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        let digits = format!(".{fraction:09}");
        text.push_str(digits.trim_end_matches('0'));
    }
    if utc {
        text.push('Z');
    }
    text
}

/// Milliseconds since 1970 as ISO 8601, always with three decimals.
pub(in crate::format) fn millisecond_text(millis: i64, utc: bool) -> String {
    let seconds = moment_text(i128::from(millis.div_euclid(1000)) * 1_000_000_000, false);
    format!("{seconds}.{:03}{}", millis.rem_euclid(1000), if utc { "Z" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_moments_go_there_and_back() {
        for (text, day) in
            [("1970-01-01", 0), ("2026-11-15", 20_772), ("1600-02-29", -135_081), ("2000-03-01", 11_017)]
        {
            assert_eq!(day_of(text), Some(day));
            assert_eq!(day_text(day), text);
        }
        for day in (-1_000_000..1_000_000).step_by(37) {
            assert_eq!(
                day_of(&day_text(day)).filter(|_| day > -700_000),
                Some(day).filter(|_| day > -700_000)
            );
        }
        for (text, micros, utc) in [
            ("1970-01-01T00:00:01.5Z", 1_500_000, true),
            ("1970-01-01T01:00:00+01:00", 0, true),
            ("1969-12-31T23:59:59.999999", -1, false),
            ("1970-01-01 00:01", 60_000_000, false),
        ] {
            assert_eq!(moment_of(text), Some((micros, utc)), "{text}");
        }
        assert_eq!(moment_of("1970-01-01T00:00:01.1234567Z"), None);
        assert_eq!(moment_text(-1000, false), "1969-12-31T23:59:59.999999");
        assert_eq!(moment_text(1_500_000_000, true), "1970-01-01T00:00:01.5Z");
        assert_eq!(millisecond_text(-1, true), "1969-12-31T23:59:59.999Z");
        assert_eq!(millisecond_text(60_000, false), "1970-01-01T00:01:00.000");
    }
}
