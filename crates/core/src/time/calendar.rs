//! The proleptic Gregorian calendar: converts days since 1970-01-01 to dates and back.
//!
//! Why not a date crate: this crate needs it without `std` and without a clock, and it is forty
//! lines. The whole workspace formats and parses dates with them.

use alloc::format;
use alloc::string::String;

/// The number of days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Whether a year has 366 days.
#[must_use]
pub const fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The number of days in a month; 0 for a month outside 1 to 12.
#[must_use]
pub const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap_year(year) => 29,
        2 => 28,
        _ => 0,
    }
}

/// The number of days from 1970-01-01 to a date. The date must exist, within some billion years.
#[must_use]
pub const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // The year starts in March here, so that the leap day is the last day of a year.
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era.saturating_mul(ERA_DAYS).saturating_add(day_of_era - EPOCH_DAYS)
}

/// The year, month and day that is `days` days after 1970-01-01.
#[must_use]
pub const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(EPOCH_DAYS);
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (year_of_era + era * 400 + (month <= 2) as i64, month, day)
}

/// Formats a time in milliseconds since 1970 as RFC 3339 in UTC, in whole seconds, rounded down.
#[must_use]
pub fn rfc3339(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Formats a time in milliseconds since 1970 as RFC 3339 in UTC, with milliseconds.
#[must_use]
pub fn rfc3339_ms(ms: i64) -> String {
    let second = rfc3339(ms);
    format!("{}.{:03}Z", second.trim_end_matches('Z'), ms.rem_euclid(1000))
}

/// Parses a time of RFC 3339, such as `2026-11-17T18:00:00Z` or `2026-11-17T19:00:00.5+01:00`, in
/// milliseconds since 1970, rounded down. A leap second is the second after it.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0')))
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let exists = (1..=days_in_month(year, month)).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !exists {
        return None;
    }
    let mut rest = bytes.get(19..)?;
    let mut millis = 0;
    if let [b'.', fraction @ ..] = rest {
        let len = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = fraction.get(..len).filter(|digits| !digits.is_empty())?;
        let mut scale = 100;
        for digit in digits.iter().take(3) {
            millis += i64::from(digit - b'0') * scale;
            scale /= 10;
        }
        rest = fraction.get(len..)?;
    }
    let offset = match *rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let pair = |tens: u8, ones: u8| {
                (tens.is_ascii_digit() && ones.is_ascii_digit())
                    .then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
            };
            let (hours, minutes) = (pair(h1, h2)?, pair(m1, m2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let minutes = hours * 60 + minutes;
            if sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let minutes = (days_from_civil(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some((minutes * 60 + second) * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_are_known() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((2024, 2, 29), 19_782),
            ((2026, 11, 15), 20_772),
            ((1600, 2, 29), -135_081),
            ((2000, 3, 1), 11_017),
            ((1, 1, 1), -719_162),
        ] {
            assert_eq!(days_from_civil(date.0, date.1, date.2), days);
            assert_eq!(civil_from_days(days), date);
        }
        assert_eq!(rfc3339(1_794_700_799_999), "2026-11-14T23:59:59Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
        assert!(!rfc3339(i64::MIN).is_empty() && !rfc3339(i64::MAX).is_empty());
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-14T23:59:59.999Z", 1_794_700_799_999),
            ("2026-11-15t00:59:59.9999+01:00", 1_794_700_799_999),
            ("2026-11-14 18:29:59-05:30", 1_794_700_799_000),
            ("1969-12-31T23:59:59.5z", -500),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
            assert_eq!(parse_rfc3339(&rfc3339_ms(ms)), Some(ms), "{text}");
        }
        for bad in [
            "",
            "2026-11-14",
            "2026-11-14T23:59Z",
            "2026-11-14T23:59:59",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-14T24:00:00Z",
            "2026-11-14T23:59:61Z",
            "2026-11-14T23:59:59.Z",
            "2026-11-14T23:59:59+0100",
            "2026-11-14T23:59:59+24:00",
            "2026-11-14T23:59:59Z ",
            "+026-11-14T23:59:59Z",
            "2026-11-14T23:59:59ä",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1600, 1, 1);
        for days in days_from_civil(1600, 1, 1)..days_from_civil(2400, 1, 1) {
            assert_eq!(civil_from_days(days), (year, month, day));
            assert_eq!(days_from_civil(year, month, day), days);
            day += 1;
            if day > days_in_month(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
