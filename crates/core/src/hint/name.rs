//! Which header it is.
//!
//! A response carries a dozen headers and seldom one of ours, so the first bytes must decide
//! quickly. The `*RateLimit-*` family is a small grammar rather than a list of names: a prefix,
//! then a field (`limit`, `remaining`, `reset`, …) and a scope (`minute`, `requests`, …) in either
//! order, because one gateway writes `Remaining-Minute` and another `requests-remaining`. Scopes
//! that do not count calls (`tokens`) are none of our business.

use core::time::Duration;

use super::{HintProfile, Meaning, Unit};

/// A header that may hold a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Date,
    RetryAfter(Unit),
    /// The IETF `RateLimit` field, current or older.
    RateLimit,
    /// The IETF `RateLimit-Policy` field.
    Policy,
    /// `X-Esri-Org-Request-Units-Per-Min`.
    EsriUnits,
    Part(Family, Scope, Field),
}

/// Headers of one family and scope describe one quota together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Named policies of the current IETF draft.
    Ietf,
    /// Numbered policies of its older forms.
    Policy,
    RateLimit,
    XRateLimit,
    XRateHyphenLimit,
    Esri,
    Extra,
}

/// What the quota counts over, where the name of the header says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    #[default]
    Whole,
    Requests,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Scope {
    const WORDS: [(&[u8], Scope); 8] = [
        (b"requests", Scope::Requests),
        (b"second", Scope::Second),
        (b"minute", Scope::Minute),
        (b"hour", Scope::Hour),
        (b"day", Scope::Day),
        (b"week", Scope::Week),
        (b"month", Scope::Month),
        (b"year", Scope::Year),
    ];

    /// The window that the scope names; months and years are taken at their longest.
    pub(super) fn window(self) -> Option<Duration> {
        let seconds = match self {
            Scope::Whole | Scope::Requests => return None,
            Scope::Second => 1,
            Scope::Minute => 60,
            Scope::Hour => 3_600,
            Scope::Day => 86_400,
            Scope::Week => 7 * 86_400,
            Scope::Month => 31 * 86_400,
            Scope::Year => 366 * 86_400,
        };
        Some(Duration::from_secs(seconds))
    }
}

/// One statement about a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Limit,
    Remaining,
    Used,
    Reset,
    /// A reset that is a delta by its name, so no clock can spoil it.
    ResetAfter,
    Window,
}

impl Field {
    const WORDS: [(&[u8], Field); 5] = [
        (b"limit", Field::Limit),
        (b"remaining", Field::Remaining),
        (b"used", Field::Used),
        (b"reset", Field::Reset),
        (b"interval", Field::Window),
    ];
}

/// Names that stand for themselves.
const WHOLE: [(&[u8], Name); 7] = [
    (b"date", Name::Date),
    (b"retry-after-ms", Name::RetryAfter(Unit::Milliseconds)),
    (b"x-ms-retry-after-ms", Name::RetryAfter(Unit::Milliseconds)),
    (b"x-amz-retry-after", Name::RetryAfter(Unit::Milliseconds)),
    (b"ratelimit", Name::RateLimit),
    (b"ratelimit-policy", Name::Policy),
    (b"x-esri-org-request-units-per-min", Name::EsriUnits),
];

const PREFIXES: [(&[u8], Family); 3] = [
    (b"x-ratelimit-", Family::XRateLimit),
    (b"x-rate-limit-", Family::XRateHyphenLimit),
    (b"ratelimit-", Family::RateLimit),
];

fn find<T: Copy>(word: &[u8], words: &[(&[u8], T)]) -> Option<T> {
    words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, means)| *means)
}

/// The header's meaning, or nothing if it is none of ours.
pub(super) fn classify(name: &[u8], profile: &HintProfile) -> Option<Name> {
    if let Some((_, meaning)) = profile.extra.iter().find(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name)) {
        return extra(*meaning);
    }
    let &[a, b, c, _, ..] = name else { return None };
    let ours = match (a | 0x20, b | 0x20) {
        (b'd', b'a') | (b'r', b'e' | b'a') => true,
        (b'x', b'-') => matches!(c | 0x20, b'r' | b'a' | b'm' | b'e'),
        _ => false,
    };
    if ours { known(name, profile.retry_after_unit) } else { None }
}

fn extra(meaning: Meaning) -> Option<Name> {
    let field = match meaning {
        Meaning::RetryAfter(unit) => return Some(Name::RetryAfter(unit)),
        Meaning::Limit => Field::Limit,
        Meaning::Remaining => Field::Remaining,
        Meaning::Used => Field::Used,
        Meaning::Reset => Field::Reset,
        Meaning::Window => Field::Window,
        Meaning::Nothing => return None,
    };
    Some(Name::Part(Family::Extra, Scope::Whole, field))
}

fn known(name: &[u8], unit: Unit) -> Option<Name> {
    if name.eq_ignore_ascii_case(b"retry-after") {
        return Some(Name::RetryAfter(unit));
    }
    if let Some(whole) = find(name, &WHOLE) {
        return Some(whole);
    }
    let (family, rest) = PREFIXES.iter().find_map(|(prefix, family)| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some((*family, rest))
    })?;
    let mut words = rest.split(|&b| b == b'-');
    let (first, second) = (words.next()?, words.next());
    let Some(second) = second else {
        return Some(Name::Part(family, Scope::Whole, find(first, &Field::WORDS)?));
    };
    if second.eq_ignore_ascii_case(b"after") {
        return after(family, rest);
    }
    if words.next().is_some() {
        return None;
    }
    let (field, scope) = match find(first, &Field::WORDS) {
        Some(field) => (field, find(second, &Scope::WORDS)?),
        None => (find(second, &Field::WORDS)?, find(first, &Scope::WORDS)?),
    };
    Some(Name::Part(family, scope, field))
}

fn after(family: Family, rest: &[u8]) -> Option<Name> {
    let seconds = Name::RetryAfter(Unit::Seconds);
    find(
        rest,
        &[
            (b"reset-after", Name::Part(family, Scope::Whole, Field::ResetAfter)),
            (b"retry-after", seconds),
            (b"retry-after-seconds", seconds),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn plain(name: &str) -> Option<Name> {
        classify(name.as_bytes(), &HintProfile::default())
    }

    #[test]
    fn names_in_any_case() {
        use Family::*;
        let part = |family, scope, field| Some(Name::Part(family, scope, field));
        assert_eq!(plain("Retry-After"), Some(Name::RetryAfter(Unit::Seconds)));
        assert_eq!(plain("RETRY-AFTER-MS"), Some(Name::RetryAfter(Unit::Milliseconds)));
        assert_eq!(plain("RateLimit"), Some(Name::RateLimit));
        assert_eq!(plain("ratelimit-policy"), Some(Name::Policy));
        assert_eq!(plain("RateLimit-Reset"), part(RateLimit, Scope::Whole, Field::Reset));
        assert_eq!(plain("X-Ratelimit-Remaining-Second"), part(XRateLimit, Scope::Second, Field::Remaining));
        assert_eq!(plain("x-ratelimit-requests-limit"), part(XRateLimit, Scope::Requests, Field::Limit));
        assert_eq!(plain("X-Rate-Limit-Interval"), part(XRateHyphenLimit, Scope::Whole, Field::Window));
        assert_eq!(plain("X-RateLimit-Reset-After"), part(XRateLimit, Scope::Whole, Field::ResetAfter));
    }

    #[test]
    fn strangers_are_not_ours() {
        for name in [
            "",
            "d",
            "x-",
            "Content-Type",
            "X-Request-Id",
            "X-RateLimit-Resource",
            "X-Rate-Limit-Action",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-limit-limit-minute",
            "x-ratelimit-",
            "ratelimit-policy-of-a-name-that-is-much-too-long-to-be-true",
        ] {
            assert_eq!(plain(name), None, "{name}");
        }
    }

    #[test]
    fn a_profile_goes_first() {
        let profile = HintProfile {
            retry_after_unit: Unit::Milliseconds,
            floor: Duration::ZERO,
            extra: vec![
                ("X-Quota-Left".to_string(), Meaning::Remaining),
                ("x-ratelimit-reset".to_string(), Meaning::Nothing),
            ],
        };
        assert_eq!(classify(b"retry-after", &profile), Some(Name::RetryAfter(Unit::Milliseconds)));
        assert_eq!(classify(b"X-RateLimit-Reset", &profile), None);
        assert_eq!(
            classify(b"x-quota-left", &profile),
            Some(Name::Part(Family::Extra, Scope::Whole, Field::Remaining))
        );
    }
}
