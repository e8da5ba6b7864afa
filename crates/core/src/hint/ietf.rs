//! The IETF rate-limit fields, in the three formats in use.
//!
//! | draft | format |
//! |---|---|
//! | current | `RateLimit: "burst";r=50;t=30` with `RateLimit-Policy: "burst";q=100;w=60` |
//! | older | `RateLimit: limit=20, remaining=19, reset=1` with `RateLimit-Policy: 20;w=1, 4000;w=1800` |
//! | oldest | `RateLimit-Limit: 100, 100;w=60`, `RateLimit-Remaining`, `RateLimit-Reset` |
//!
//! In the older drafts only the limit relates a policy to its counter; `quota` merges the two if
//! their limits are equal. A reset does not guarantee a full refill, so none is inferred.

use super::field::{count, window};
use super::name::{HeaderFamily, QuotaScope};
use super::quota::{QuotaKey, QuotaPart, QuotaParts, both, push};
use super::sf::{self, Bare, Malformed, StructuredItem};
use super::span::{CoarseDuration, trim};

/// Parses `100`, or with the policies of an older draft `100, 100;w=60`.
pub(super) fn limit<'a>(
    value: &'a [u8],
    family: HeaderFamily,
    scope: QuotaScope,
    parts: &mut QuotaParts<'a>,
) -> bool {
    if let Some(limit) = count(value) {
        return push(parts, family, scope, Some(QuotaPart { limit: Some(limit), ..QuotaPart::default() }));
    }
    whole_field(value, parts, |value, parts| {
        let (mut bare, mut any, mut good) = (None, None, true);
        for item in sf::list(value) {
            let Ok((key, part)) = numbered_policy(&item?) else {
                good = false;
                continue;
            };
            any = both(any, part.limit, u64::min);
            if part.window.is_some() {
                parts.push((key, part));
            } else {
                bare = both(bare, part.limit, u64::min);
            }
        }
        let limit = bare.or(any);
        Ok(push(parts, family, scope, limit.map(|_| QuotaPart { limit, ..QuotaPart::default() })) && good)
    })
}

/// Parses a structured field and returns whether all of it is valid. After a syntax error the whole
/// field is ignored. A member that is well-formed but has no valid meaning (`read` returns false) is
/// ignored alone. An empty field is invalid.
fn whole_field<'a>(
    value: &'a [u8],
    parts: &mut QuotaParts<'a>,
    read: impl FnOnce(&'a [u8], &mut QuotaParts<'a>) -> Result<bool, Malformed>,
) -> bool {
    let before = parts.len();
    let good = read(trim(value), parts);
    if good.is_err() {
        parts.truncate(before);
    }
    good == Ok(true) && parts.len() > before
}

/// Parses `"burst";r=50;t=30`, or of an older draft `limit=20, remaining=19, reset=1`.
pub(super) fn rate_limit<'a>(value: &'a [u8], parts: &mut QuotaParts<'a>) -> bool {
    whole_field(value, parts, rate_limits)
}

fn rate_limits<'a>(value: &'a [u8], parts: &mut QuotaParts<'a>) -> Result<bool, Malformed> {
    let (before, mut good) = (parts.len(), true);
    for item in sf::list(value) {
        let Ok(item) = item else {
            parts.truncate(before);
            return older_rate_limit(value, parts);
        };
        let member = named_limit(&item);
        good &= member.is_ok();
        parts.extend(member);
    }
    Ok(good)
}

fn named_limit<'a>(item: &StructuredItem<'a>) -> Result<(QuotaKey<'a>, QuotaPart), Malformed> {
    let key = named(item)?;
    let mut part = QuotaPart::default();
    for (name, value) in item.params() {
        match name {
            b"r" => part.remaining = Some(natural(value)?),
            b"t" => part.reset = Some(seconds(value)?.into()),
            _ => {}
        }
    }
    if part.remaining.is_some() { Ok((key, part)) } else { Err(Malformed) }
}

fn older_rate_limit(value: &[u8], parts: &mut QuotaParts<'_>) -> Result<bool, Malformed> {
    let mut part = QuotaPart::default();
    for member in sf::dictionary(value) {
        let (name, item) = member?;
        match name {
            b"limit" => part.limit = Some(natural(item.bare)?),
            b"remaining" => part.remaining = Some(natural(item.bare)?),
            b"reset" => part.reset = Some(seconds(item.bare)?.into()),
            _ => {}
        }
    }
    if part == QuotaPart::default() {
        return Err(Malformed);
    }
    Ok(push(parts, HeaderFamily::RateLimit, QuotaScope::Whole, Some(part)))
}

/// Parses `"burst";q=100;w=60`, or of an older draft `100;w=60`.
pub(super) fn policies<'a>(value: &'a [u8], parts: &mut QuotaParts<'a>) -> bool {
    whole_field(value, parts, |value, parts| {
        let mut good = true;
        for item in sf::list(value) {
            let item = item?;
            let member = match item.bare {
                Bare::Integer(_) => numbered_policy(&item),
                _ => named_policy(&item),
            };
            good &= member.is_ok();
            parts.extend(member);
        }
        Ok(good)
    })
}

fn named_policy<'a>(item: &StructuredItem<'a>) -> Result<(QuotaKey<'a>, QuotaPart), Malformed> {
    let key = named(item)?;
    let mut part = QuotaPart::default();
    for (name, value) in item.params() {
        match (name, value) {
            (b"q", _) => part.limit = Some(natural(value)?),
            (b"w", _) => part.window = Some(window(seconds(value)?.ms).ok_or(Malformed)?),
            (b"qu", Bare::String(unit) | Bare::Token(unit)) => {
                part.other_unit = !matches!(unit, b"requests" | b"request");
            }
            (b"qu", _) => return Err(Malformed),
            _ => {}
        }
    }
    if part.limit.is_some() { Ok((key, part)) } else { Err(Malformed) }
}

fn numbered_policy<'a>(item: &StructuredItem<'a>) -> Result<(QuotaKey<'a>, QuotaPart), Malformed> {
    let mut part = QuotaPart { limit: Some(natural(item.bare)?), ..QuotaPart::default() };
    for (name, value) in item.params() {
        if name == b"w" {
            part.window = Some(window(seconds(value)?.ms).ok_or(Malformed)?);
        }
    }
    Ok((QuotaKey { family: HeaderFamily::Policy, scope: QuotaScope::Whole, name: Some(item.text) }, part))
}

fn named<'a>(item: &StructuredItem<'a>) -> Result<QuotaKey<'a>, Malformed> {
    match item.bare {
        Bare::String(name) | Bare::Token(name) => {
            Ok(QuotaKey { family: HeaderFamily::Ietf, scope: QuotaScope::Whole, name: Some(name) })
        }
        _ => Err(Malformed),
    }
}

fn natural(value: Bare<'_>) -> Result<u64, Malformed> {
    match value {
        Bare::Integer(n) => u64::try_from(n).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

fn seconds(value: Bare<'_>) -> Result<CoarseDuration, Malformed> {
    let (ms, step_ms) = match value {
        Bare::Integer(n) => (n.saturating_mul(1000), 1000),
        Bare::Decimal(thousandths) => (thousandths, 1),
        _ => return Err(Malformed),
    };
    Ok(CoarseDuration { ms: u64::try_from(ms).map_err(|_| Malformed)?, step_ms })
}
