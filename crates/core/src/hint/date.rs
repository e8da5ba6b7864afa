//! Dates: the three formats of RFC 9110, and ISO 8601 because services send it too.
//!
//! The HTTP formats are parsed by token and not by column: a token is a weekday, a month, a time, a
//! zone or a number, and the first number is the day. One parser covers IMF-fixdate, RFC 850 and
//! asctime, and small deviations such as a missing weekday or an extra space; a strict parser would
//! reject these and cause an early retry. A weekday that contradicts the date is ignored. Years
//! after 9999 are valid.

use alloc::format;
use alloc::string::String;

use super::span::{integer, trim};
use crate::time::Wall;
use crate::time::calendar::{civil_from_days, days_from_civil, days_in_month};

const DAY_MS: i64 = 86_400_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Later years are clamped to this one, so that milliseconds fit in an `i64`.
const LAST_YEAR: i64 = 1_000_000;

/// Parses a date in any of the formats. A two-digit year is the latest year with these digits that
/// is at most fifty years after `now`.
#[must_use]
pub fn parse(text: &[u8], now: Wall) -> Option<Wall> {
    let text = trim(text);
    if let Some(wall) = text.try_into().ok().and_then(fixed) {
        return Some(wall);
    }
    if text.get(4) == Some(&b'-') { iso(text) } else { http(text, now) }
}

/// Whether the text is exactly the name of a weekday.
pub(super) fn is_weekday(text: &[u8]) -> bool {
    WEEKDAYS.iter().any(|day| {
        let day = day.as_bytes();
        day.eq_ignore_ascii_case(text) || day.get(..3).is_some_and(|d| d.eq_ignore_ascii_case(text))
    })
}

/// Formats a date as the IMF-fixdate of RFC 9110, in whole seconds, rounded down.
#[must_use]
pub fn imf_fixdate(wall: Wall) -> String {
    let seconds = wall.millis().div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let name = |names: &[&'static str], i: i64| {
        usize::try_from(i).ok().and_then(|i| names.get(i)).and_then(|n| n.get(..3)).unwrap_or_default()
    };
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        name(&WEEKDAYS, (days + 3).rem_euclid(7)),
        name(&MONTHS, month - 1),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT` by column. Nearly every response has one, and this is
/// eight times as fast as parsing by token. `None` for any other text.
fn fixed(text: &[u8; 29]) -> Option<Wall> {
    let &[
        _,
        _,
        _,
        b',',
        b' ',
        d1,
        d2,
        b' ',
        m1,
        m2,
        m3,
        b' ',
        y1,
        y2,
        y3,
        y4,
        b' ',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b' ',
        b'G',
        b'M',
        b'T',
    ] = text
    else {
        return None;
    };
    let month = match &[m1, m2, m3] {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    };
    let digits = [d1, d2, y1, y2, y3, y4, h1, h2, n1, n2, s1, s2];
    if !digits.iter().all(u8::is_ascii_digit) || !is_weekday(text.get(..3)?) {
        return None;
    }
    let two = |a: u8, b: u8| i64::from(a & 15) * 10 + i64::from(b & 15);
    let (hour, minute, second) = (two(h1, h2), two(n1, n2), two(s1, s2));
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    at(two(y1, y2) * 100 + two(y3, y4), month, two(d1, d2), ((hour * 60 + minute) * 60 + second) * 1000)
}

fn http(text: &[u8], now: Wall) -> Option<Wall> {
    let (mut day, mut month, mut year, mut time, mut zone) = (None, None, None, None, false);
    for word in text.split(|b| matches!(b, b' ' | b'\t' | b'-' | b',')).filter(|w| !w.is_empty()) {
        if word.iter().all(u8::is_ascii_digit) {
            match (day, year) {
                (None, _) if word.len() <= 2 => day = Some(i64::try_from(integer(word)).ok()?),
                (Some(_), None) if word.len() == 2 || word.len() >= 4 => year = Some(word),
                _ => return None,
            }
        } else if word.contains(&b':') {
            set(&mut time, clock(word)?)?;
        } else if let Some(at) = MONTHS.iter().position(|m| m.as_bytes().eq_ignore_ascii_case(word)) {
            set(&mut month, at)?;
        } else if [&b"GMT"[..], b"UTC", b"Z"].iter().any(|z| z.eq_ignore_ascii_case(word)) && !zone {
            zone = true;
        } else if !is_weekday(word) {
            return None;
        }
    }
    let (month, day, digits, time) = (i64::try_from(month?).ok()? + 1, day?, year?, time?);
    let year = i64::try_from(integer(digits)).unwrap_or(LAST_YEAR).min(LAST_YEAR);
    if digits.len() > 2 {
        return at(year, month, day, time);
    }
    let horizon = now.millis().saturating_add(18_262 * DAY_MS);
    let (last, _, _) = civil_from_days(horizon.div_euclid(DAY_MS));
    let year = last - (last - year).rem_euclid(100);
    at(year, month, day, time).filter(|w| w.millis() <= horizon).or_else(|| at(year - 100, month, day, time))
}

fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    match slot.replace(value) {
        None => Some(()),
        Some(_) => None,
    }
}

/// Parses `hh:mm:ss` into milliseconds since midnight.
fn clock(text: &[u8]) -> Option<i64> {
    let mut parts = text.split(|&b| b == b':');
    let mut next = |most: u64| {
        let part = parts.next()?;
        let good = (1..=2).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
        Some(integer(part)).filter(|&n| good && n <= most).and_then(|n| i64::try_from(n).ok())
    };
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    match parts.next() {
        None => Some(((hour * 60 + minute) * 60 + second) * 1000),
        Some(_) => None,
    }
}

/// Parses `2026-11-15T05:00:00.25+01:00`; a space may replace the T, and UTC is the default zone.
fn iso(text: &[u8]) -> Option<Wall> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|d| d.iter().all(u8::is_ascii_digit))?;
        i64::try_from(integer(digits)).ok()
    };
    let (date_end, rest) = (text.get(10)?, text.get(19..)?);
    if text.get(7) != Some(&b'-') || !matches!(date_end, b'T' | b't' | b' ') {
        return None;
    }
    let time = clock(text.get(11..19)?)?;
    let whole = at(number(0, 4)?, number(5, 7)?, number(8, 10)?, time)?;
    let digits = match rest {
        [b'.', fraction @ ..] => fraction.iter().take_while(|b| b.is_ascii_digit()).count(),
        _ => 0,
    };
    let zone = if digits > 0 { rest.get(digits + 1..)? } else { rest };
    let fraction = rest.get(1..=digits).unwrap_or_default();
    let thousandths = (0..3).fold(0, |n, i| n * 10 + fraction.get(i).map_or(0, |d| i64::from(d - b'0')));
    let up = i64::from(fraction.iter().skip(3).any(|&d| d != b'0'));
    let ahead = match zone {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let minutes = clock(&[*h1, *h2, b':', *m1, *m2, b':', b'0'])?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    Some(Wall::from_millis(whole.millis().saturating_add(thousandths + up - ahead)))
}

fn at(year: i64, month: i64, day: i64, time_ms: i64) -> Option<Wall> {
    if !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(Wall::from_millis(days.saturating_mul(DAY_MS).saturating_add(time_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall::from_secs(1_794_718_800); // Sun, 15 Nov 2026 05:00:00 GMT

    fn ms(text: &str) -> Option<i64> {
        parse(text.as_bytes(), NOW).map(Wall::millis)
    }

    #[test]
    fn every_form_of_one_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "06 Nov 1994 08:49:37 GMT",
            "sun, 6 nov 1994 08:49:37 utc",
            "1994-11-06T08:49:37Z",
            "1994-11-06 08:49:37",
            "1994-11-06T09:49:37+01:00",
            "1994-11-06T08:49:37.000-00:00",
        ] {
            assert_eq!(ms(text), Some(784_111_777_000), "{text}");
        }
        assert_eq!(ms("1994-11-06T08:49:37.0001Z"), Some(784_111_777_001));
        assert_eq!(ms("1994-11-06T08:49:37.25Z"), Some(784_111_777_250));
    }

    #[test]
    fn two_digit_years_reach_fifty_years_ahead() {
        let year = |text: &str| ms(text).map(|ms| civil_from_days(ms.div_euclid(DAY_MS)).0);
        assert_eq!(year("Sunday, 15-Nov-26 05:00:00 GMT"), Some(2026));
        assert_eq!(year("Sunday, 14-Nov-76 05:00:00 GMT"), Some(2076));
        assert_eq!(year("Sunday, 17-Nov-76 05:00:00 GMT"), Some(1976));
        assert_eq!(year("Sunday, 06-Nov-77 05:00:00 GMT"), Some(1977));
        assert_eq!(year("Sunday, 06-Nov-00 05:00:00 GMT"), Some(2000));
        let late = parse(b"06-Nov-01 05:00:00 GMT", Wall::from_secs(4_090_000_000)).unwrap();
        assert_eq!(civil_from_days(late.millis() / DAY_MS).0, 2101);
    }

    #[test]
    fn far_years_are_far_and_not_wrong() {
        assert_eq!(ms("Fri, 31 Dec 99999 23:59:59 GMT"), Some(3_093_527_980_799_000));
        assert!(ms(&format!("31 Dec {} 23:59:59 GMT", "9".repeat(5000))).unwrap() > 3_093_527_980_799_000);
    }

    #[test]
    fn not_dates() {
        for text in [
            "",
            "Sun",
            "Sun, 31 Feb 2026 00:00:00 GMT",
            "Sun, 29 Feb 2026 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1994 08:49:37 +0100",
            "Sun, 06 Nov 994 08:49:37 GMT",
            "06 Nov Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 08:49:37 GMT",
            "06 Nov 1994 GMT",
            "1994-13-06T08:49:37Z",
            "1994-11-06T08:49:37X",
            "1994-11-06T08:49:37+1:00",
            "1994-11-06",
            "1994-",
        ] {
            assert_eq!(ms(text), None, "{text}");
        }
    }

    #[test]
    fn written_dates_are_read_again() {
        for seconds in [0, 784_111_777, 951_782_400, 1_794_718_800, 4_107_542_399, 253_402_300_799, -1] {
            let wall = Wall::from_secs(seconds);
            let text = imf_fixdate(wall);
            assert_eq!(parse(text.as_bytes(), NOW), Some(wall), "{text}");
        }
        assert_eq!(imf_fixdate(Wall::from_secs(784_111_777)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(imf_fixdate(Wall::from_millis(1_794_718_800_999)), "Sun, 15 Nov 2026 05:00:00 GMT");
        assert!(!imf_fixdate(Wall::from_millis(i64::MAX)).is_empty());
        assert!(!imf_fixdate(Wall::from_millis(i64::MIN)).is_empty());
    }
}
