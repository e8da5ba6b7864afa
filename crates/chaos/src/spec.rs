//! Parses the short notations of the command line: `bucket:500/s,burst=50`, `5s..10s,collapse=20`,
//! `1%`.
//!
//! Each parser is a small pure function from text to a value of `config`, with an error that says
//! what was expected.

use std::fmt;
use std::time::Duration;

use tidegate_sim::server::{LeakyBucketSpec, ServerLimit, StickTableSpec};

use super::config::{FaultKind, FaultRule, Outage, RangeFault, Service, When};
use super::preset::PRESETS;

/// The longest window, ten years in seconds; more would overflow the clock of a throttle.
const WINDOW_MAX: f64 = 3_650.0 * 86_400.0;

/// Why a value of the command line is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The text does not have the expected form.
    Malformed {
        /// The text.
        text: String,
        /// What is wrong with it, with an example of the expected form.
        flaw: &'static str,
    },
    /// The throttle or outage has no option of this name.
    UnknownOption {
        /// The kind of throttle, or `an outage`.
        of: String,
        /// The name of the option.
        option: String,
    },
    /// There is no preset of this name.
    UnknownPreset {
        /// The name.
        name: String,
    },
}

impl SpecError {
    fn malformed(text: &str, flaw: &'static str) -> SpecError {
        SpecError::Malformed { text: text.to_owned(), flaw }
    }

    fn unknown_option(of: &str, option: &str) -> SpecError {
        SpecError::UnknownOption { of: of.to_owned(), option: option.to_owned() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Malformed { text, flaw } => write!(f, "{text:?} {flaw}"),
            SpecError::UnknownOption { of, option } => write!(f, "{of} has no option {option:?}"),
            SpecError::UnknownPreset { name } => {
                let names = PRESETS.map(|preset| preset.name).join(", ");
                write!(f, "unknown preset {name:?}; expected one of {names}")
            }
        }
    }
}

impl std::error::Error for SpecError {}

/// Parses a duration: `250ms`, `5s`, `2m`, `1h`, or a bare number of seconds.
pub fn span(text: &str) -> Result<Duration, SpecError> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(SpecError::malformed(text, "is not a duration such as 250ms, 5s or 2m")),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if n >= 0.0 && n.is_finite() => Ok(tidegate_core::time::seconds(n * scale)),
        _ => Err(SpecError::malformed(text, "is not a duration such as 250ms, 5s or 2m")),
    }
}

/// Parses a fraction: `5%` or `0.05`.
pub fn share(text: &str) -> Result<f64, SpecError> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text.trim(), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if (0.0..=1.0).contains(&(n * scale)) => Ok(n * scale),
        _ => Err(SpecError::malformed(text, "is not a share such as 5% or 0.05")),
    }
}

/// `key=value` pairs after the first comma.
fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').skip(1).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(
    text: &str,
    flaw: &'static str,
) -> Result<T, SpecError> {
    match text.trim().parse::<T>() {
        Ok(n) if n > T::default() => Ok(n),
        _ => Err(SpecError::malformed(text, flaw)),
    }
}

/// Parses a throttle: `bucket:500/s,burst=50`, `fixed:5/100ms`, `sliding:100/10s`,
/// `counter:100/10s`, `leaky:100/s,burst=20,delay=0`, `stick:100/1s`, `concurrency:8`, `none`; of
/// several joined with `+`, all must accept.
pub fn throttle(text: &str) -> Result<ServerLimit, SpecError> {
    let parts: Vec<&str> = text.split('+').collect();
    match parts.as_slice() {
        [one] => one_throttle(one),
        many => Ok(ServerLimit::All(many.iter().map(|t| one_throttle(t)).collect::<Result<_, _>>()?)),
    }
}

/// A number of calls; none is one too.
fn calls(text: &str) -> Result<u64, SpecError> {
    match text.trim().parse::<u32>() {
        Ok(n) => Ok(u64::from(n)),
        Err(_) => Err(SpecError::malformed(text, "is not a number of calls")),
    }
}

fn one_throttle(text: &str) -> Result<ServerLimit, SpecError> {
    let expected = || {
        SpecError::malformed(
            text,
            "is not a throttle; expected bucket:500/s,burst=50, fixed:5/100ms, \
             sliding:100/10s, counter:100/10s, leaky:100/s,burst=20, stick:100/1s, concurrency:8 or none",
        )
    };
    if text == "none" {
        return Ok(ServerLimit::Open);
    }
    let (kind, rest) = text.split_once(':').ok_or_else(expected)?;
    let amount = rest.split(',').next().unwrap_or_default();
    if kind == "concurrency" {
        return Ok(ServerLimit::Concurrency {
            limit: positive(amount, "is not a number of calls above zero")?,
        });
    }
    let (count, per) = amount.split_once('/').ok_or_else(expected)?;
    // `/s` and `/min` mean `/1s` and `/1min`.
    let window =
        if per.starts_with(|c: char| c.is_ascii_digit()) { span(per)? } else { span(&format!("1{per}"))? };
    let window = window.as_secs_f64();
    if window <= 0.0 || window > WINDOW_MAX {
        return Err(expected());
    }
    let mut burst = None;
    let mut delay = None;
    let mut phase = 0.0;
    for (key, value) in options(rest) {
        match (kind, key) {
            ("bucket", "burst") => burst = Some(positive::<f64>(value, "is not a burst above zero")?),
            ("leaky", "burst") => burst = Some(calls(value)? as f64),
            ("leaky", "delay") => delay = Some(calls(value)?),
            ("fixed" | "counter", "phase") => phase = span(value)?.as_secs_f64(),
            _ => return Err(SpecError::unknown_option(kind, key)),
        }
    }
    match kind {
        "bucket" => {
            let rate = positive::<f64>(count, "is not a rate above zero")? / window;
            let burst = burst.unwrap_or(rate).max(1.0);
            let sane = rate.is_finite() && burst.is_finite() && burst / rate <= WINDOW_MAX;
            if sane { Ok(ServerLimit::TokenBucket { rate, burst }) } else { Err(expected()) }
        }
        "leaky" => {
            let rate = positive::<f64>(count, "is not a rate above zero")? / window;
            // Counted in thousandths of a call.
            if !(0.001..=1e9).contains(&rate) {
                return Err(expected());
            }
            let burst = burst.unwrap_or(0.0) as u64;
            Ok(ServerLimit::LeakyBucket(LeakyBucketSpec { rate, burst, delay }))
        }
        "stick" => Ok(ServerLimit::StickTable(StickTableSpec {
            limit: positive(count, "is not a number of calls above zero")?,
            window,
        })),
        "fixed" => Ok(ServerLimit::FixedWindow {
            limit: positive(count, "is not a number of calls above zero")?,
            window,
            phase,
        }),
        "sliding" => Ok(ServerLimit::SlidingWindow {
            limit: positive(count, "is not a number of calls above zero")?,
            window,
        }),
        "counter" => Ok(ServerLimit::SlidingCounter {
            limit: positive(count, "is not a number of calls above zero")?,
            window,
            phase,
        }),
        _ => Err(expected()),
    }
}

/// Parses a service time in milliseconds: `3`, `2..5`, `exp:4`.
pub fn service_ms(text: &str) -> Result<Service, SpecError> {
    let ms = |t: &str| match t.trim().parse::<f64>() {
        Ok(n) if n >= 0.0 && n.is_finite() => Ok(n / 1e3),
        _ => Err(SpecError::malformed(text, "is not a service time such as 3, 2..5 or exp:4 (milliseconds)")),
    };
    if let Some(mean) = text.strip_prefix("exp:") {
        return Ok(Service::Exponential(ms(mean)?));
    }
    match text.split_once("..") {
        Some((lo, hi)) => {
            let (lo, hi) = (ms(lo)?, ms(hi)?);
            if hi < lo {
                Err(SpecError::malformed(text, "ends before it starts"))
            } else {
                Ok(Service::Uniform(lo, hi))
            }
        }
        None => Ok(Service::Uniform(ms(text)?, ms(text)?)),
    }
}

/// Parses an outage: `5s..10s`, with `collapse=20`, `within=100ms`, `again=2s`, `fragile=5s`,
/// `status=503` (0 resets the connection) and `hint`.
pub fn outage(text: &str) -> Result<Outage, SpecError> {
    let range = text.split(',').next().unwrap_or_default();
    let (from, to) = range
        .split_once("..")
        .ok_or_else(|| SpecError::malformed(text, "is not an outage such as 5s..10s"))?;
    let (from, to) = (span(from)?, span(to)?);
    if to <= from {
        return Err(SpecError::malformed(text, "ends before it starts"));
    }
    let mut outage = Outage {
        from,
        to,
        status: 503,
        hint: false,
        collapse: None,
        within: Duration::from_millis(100),
        again: Duration::from_secs(2),
        fragile: Duration::from_secs(5),
    };
    for (key, value) in options(text) {
        match key {
            "collapse" => outage.collapse = Some(positive(value, "is not a number of requests above zero")?),
            "within" => outage.within = span(value)?,
            "again" => outage.again = span(value)?,
            "fragile" => outage.fragile = span(value)?,
            "status" if value == "0" => outage.status = 0,
            "status" => outage.status = status(value)?,
            "hint" => outage.hint = true,
            _ => return Err(SpecError::unknown_option("an outage", key)),
        }
    }
    Ok(outage)
}

/// Parses an HTTP status.
pub fn status(text: &str) -> Result<u16, SpecError> {
    match text.trim().parse::<u16>() {
        Ok(code) if (200..=599).contains(&code) => Ok(code),
        _ => Err(SpecError::malformed(text, "is not a status from 200 to 599")),
    }
}

/// Parses when a fault occurs: `1%`, `@7`, `@10..20`, `every:7`, `first:2`.
pub fn when(text: &str) -> Result<When, SpecError> {
    let expected =
        || SpecError::malformed(text, "is not a valid WHEN; expected 1%, @7, @10..20, every:7 or first:2");
    let number = |t: &str| positive::<u64>(t, "is not a number above zero").map_err(|_| expected());
    if let Some(range) = text.strip_prefix('@') {
        return match range.split_once("..") {
            Some((lo, hi)) => Ok(When::Numbers(number(lo)?, number(hi)?)),
            None => Ok(When::Numbers(number(range)?, number(range)?)),
        };
    }
    if let Some(n) = text.strip_prefix("every:") {
        return Ok(When::Every(number(n)?));
    }
    if let Some(n) = text.strip_prefix("first:") {
        return Ok(When::First(number(n)?));
    }
    share(text).map(When::Chance).map_err(|_| expected())
}

/// Parses a status fault: `500=1%`.
pub fn status_fault(text: &str) -> Result<FaultRule, SpecError> {
    let (code, rest) =
        text.split_once('=').ok_or_else(|| SpecError::malformed(text, "is not of the form 500=1%"))?;
    Ok(FaultRule { kind: FaultKind::Status(status(code)?), when: when(rest)? })
}

/// Parses a fault of ranges: `zeros=10%`.
pub fn range_fault(text: &str) -> Result<FaultRule, SpecError> {
    let (name, rest) =
        text.split_once('=').ok_or_else(|| SpecError::malformed(text, "is not of the form zeros=10%"))?;
    let flaw = "is not a fault of ranges; expected one of length, etag, whole, shifted, swapped, zeros";
    let found = RangeFault::ALL.iter().find(|(known, _)| *known == name);
    let (_, fault) = found.ok_or_else(|| SpecError::malformed(name, flaw))?;
    Ok(FaultRule { kind: FaultKind::Range(*fault), when: when(rest)? })
}

/// Parses a redirect fault: `1%=http://127.0.0.1:1/`.
pub fn redirect(text: &str) -> Result<FaultRule, SpecError> {
    let (rest, url) =
        text.split_once('=').ok_or_else(|| SpecError::malformed(text, "is not of the form 1%=URL"))?;
    if url.is_empty() || url.bytes().any(|b| b.is_ascii_control()) {
        return Err(SpecError::malformed(url, "is not allowed in a Location header"));
    }
    Ok(FaultRule { kind: FaultKind::Redirect(url.to_owned()), when: when(rest)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttles_read_as_written() {
        assert_eq!(
            throttle("bucket:500/s,burst=50"),
            Ok(ServerLimit::TokenBucket { rate: 500.0, burst: 50.0 })
        );
        assert_eq!(throttle("bucket:30/min"), Ok(ServerLimit::TokenBucket { rate: 0.5, burst: 1.0 }));
        assert_eq!(
            throttle("fixed:5/100ms"),
            Ok(ServerLimit::FixedWindow { limit: 5, window: 0.1, phase: 0.0 })
        );
        assert_eq!(throttle("sliding:100/10s"), Ok(ServerLimit::SlidingWindow { limit: 100, window: 10.0 }));
        assert_eq!(
            throttle("leaky:100/s,burst=20,delay=0"),
            Ok(ServerLimit::LeakyBucket(LeakyBucketSpec { rate: 100.0, burst: 20, delay: Some(0) }))
        );
        assert_eq!(
            throttle("stick:1000/10s"),
            Ok(ServerLimit::StickTable(StickTableSpec { limit: 1000, window: 10.0 }))
        );
        assert_eq!(throttle("concurrency:8"), Ok(ServerLimit::Concurrency { limit: 8 }));
        assert!(
            matches!(throttle("bucket:5/s+concurrency:2"), Ok(ServerLimit::All(both)) if both.len() == 2)
        );
        for wrong in [
            "",
            "bucket",
            "bucket:0/s",
            "fixed:5",
            "sliding:5/0s",
            "sliding:5/99999d",
            "bucket:inf/s",
            "bucket:1/s,burst=1e99",
            "bucket:5/s,bust=1",
            "leaky:0/s",
            "leaky:1/s,burst=-1",
            "stick:0/1s",
            "stick:1/1s,burst=1",
        ] {
            assert!(throttle(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_other_forms_read_as_written() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(when("@10..20"), Ok(When::Numbers(10, 20)));
        assert_eq!(when("every:7"), Ok(When::Every(7)));
        assert_eq!(when("first:2"), Ok(When::First(2)));
        assert_eq!(service_ms("2..5"), Ok(Service::Uniform(0.002, 0.005)));
        let outage = outage("5s..10s,collapse=20,again=3s,hint").unwrap();
        assert_eq!((outage.collapse, outage.again, outage.hint), (Some(20), Duration::from_secs(3), true));
        for wrong in ["101%", "-1", "x", "@0", "every:0", "NaN"] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
        assert!(super::outage("10s..5s").is_err());
        assert!(status_fault("99=1%").is_err());
        assert!(redirect("1%=http://a/\r\nX: y").is_err());
    }
}
