//! Recognises header names.
//!
//! A response has a dozen headers and few of them are relevant, so the first bytes decide. The
//! `*RateLimit-*` family is a small grammar and not a list of names: a prefix, then a field
//! (`limit`, `remaining`, `reset`, …) and a scope (`minute`, `requests`, …) in either order, because
//! one gateway sends `Remaining-Minute` and another `requests-remaining`. Scopes that do not count
//! calls (`tokens`) are ignored.

use core::time::Duration;

use super::{HintProfile, Meaning, TimeUnit};

/// A header that may contain a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderName {
    Date,
    RetryAfter(TimeUnit),
    /// The IETF `RateLimit` field, current or older.
    RateLimit,
    /// The IETF `RateLimit-Policy` field.
    Policy,
    /// `X-Esri-Org-Request-Units-Per-Min`.
    EsriUnits,
    Part(HeaderFamily, QuotaScope, QuotaField),
}

/// A family of headers. Those of one family and scope describe one quota together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeaderFamily {
    /// Named policies of the current IETF draft.
    Ietf,
    /// Numbered policies of the older drafts.
    Policy,
    RateLimit,
    XRateLimit,
    XRateHyphenLimit,
    Esri,
    Extra,
}

/// The unit or window of a quota, if it is part of the header name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QuotaScope {
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

impl QuotaScope {
    const WORDS: [(&[u8], QuotaScope); 8] = [
        (b"requests", QuotaScope::Requests),
        (b"second", QuotaScope::Second),
        (b"minute", QuotaScope::Minute),
        (b"hour", QuotaScope::Hour),
        (b"day", QuotaScope::Day),
        (b"week", QuotaScope::Week),
        (b"month", QuotaScope::Month),
        (b"year", QuotaScope::Year),
    ];

    /// The window of the scope; 31 days for a month, 366 for a year.
    pub(super) fn window(self) -> Option<Duration> {
        let seconds = match self {
            QuotaScope::Whole | QuotaScope::Requests => return None,
            QuotaScope::Second => 1,
            QuotaScope::Minute => 60,
            QuotaScope::Hour => 3_600,
            QuotaScope::Day => 86_400,
            QuotaScope::Week => 7 * 86_400,
            QuotaScope::Month => 31 * 86_400,
            QuotaScope::Year => 366 * 86_400,
        };
        Some(Duration::from_secs(seconds))
    }
}

/// A property of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaField {
    Limit,
    Remaining,
    Used,
    Reset,
    /// A reset that is always a delta, so it does not depend on a clock.
    ResetAfter,
    Window,
}

impl QuotaField {
    const WORDS: [(&[u8], QuotaField); 5] = [
        (b"limit", QuotaField::Limit),
        (b"remaining", QuotaField::Remaining),
        (b"used", QuotaField::Used),
        (b"reset", QuotaField::Reset),
        (b"interval", QuotaField::Window),
    ];
}

/// Names that are matched as a whole.
const WHOLE: [(&[u8], HeaderName); 7] = [
    (b"date", HeaderName::Date),
    (b"retry-after-ms", HeaderName::RetryAfter(TimeUnit::Milliseconds)),
    (b"x-ms-retry-after-ms", HeaderName::RetryAfter(TimeUnit::Milliseconds)),
    (b"x-amz-retry-after", HeaderName::RetryAfter(TimeUnit::Milliseconds)),
    (b"ratelimit", HeaderName::RateLimit),
    (b"ratelimit-policy", HeaderName::Policy),
    (b"x-esri-org-request-units-per-min", HeaderName::EsriUnits),
];

const PREFIXES: [(&[u8], HeaderFamily); 3] = [
    (b"x-ratelimit-", HeaderFamily::XRateLimit),
    (b"x-rate-limit-", HeaderFamily::XRateHyphenLimit),
    (b"ratelimit-", HeaderFamily::RateLimit),
];

fn find<T: Copy>(word: &[u8], words: &[(&[u8], T)]) -> Option<T> {
    words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, means)| *means)
}

/// Classifies a header; `None` if it is not relevant.
pub(super) fn classify(name: &[u8], profile: &HintProfile) -> Option<HeaderName> {
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

fn extra(meaning: Meaning) -> Option<HeaderName> {
    let field = match meaning {
        Meaning::RetryAfter(unit) => return Some(HeaderName::RetryAfter(unit)),
        Meaning::Limit => QuotaField::Limit,
        Meaning::Remaining => QuotaField::Remaining,
        Meaning::Used => QuotaField::Used,
        Meaning::Reset => QuotaField::Reset,
        Meaning::Window => QuotaField::Window,
        Meaning::Nothing => return None,
    };
    Some(HeaderName::Part(HeaderFamily::Extra, QuotaScope::Whole, field))
}

fn known(name: &[u8], unit: TimeUnit) -> Option<HeaderName> {
    if name.eq_ignore_ascii_case(b"retry-after") {
        return Some(HeaderName::RetryAfter(unit));
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
        return Some(HeaderName::Part(family, QuotaScope::Whole, find(first, &QuotaField::WORDS)?));
    };
    if second.eq_ignore_ascii_case(b"after") {
        return after(family, rest);
    }
    if words.next().is_some() {
        return None;
    }
    let (field, scope) = match find(first, &QuotaField::WORDS) {
        Some(field) => (field, find(second, &QuotaScope::WORDS)?),
        None => (find(second, &QuotaField::WORDS)?, find(first, &QuotaScope::WORDS)?),
    };
    Some(HeaderName::Part(family, scope, field))
}

fn after(family: HeaderFamily, rest: &[u8]) -> Option<HeaderName> {
    let seconds = HeaderName::RetryAfter(TimeUnit::Seconds);
    find(
        rest,
        &[
            (b"reset-after", HeaderName::Part(family, QuotaScope::Whole, QuotaField::ResetAfter)),
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

    fn plain(name: &str) -> Option<HeaderName> {
        classify(name.as_bytes(), &HintProfile::default())
    }

    #[test]
    fn names_in_any_case() {
        use HeaderFamily::*;
        let part = |family, scope, field| Some(HeaderName::Part(family, scope, field));
        assert_eq!(plain("Retry-After"), Some(HeaderName::RetryAfter(TimeUnit::Seconds)));
        assert_eq!(plain("RETRY-AFTER-MS"), Some(HeaderName::RetryAfter(TimeUnit::Milliseconds)));
        assert_eq!(plain("RateLimit"), Some(HeaderName::RateLimit));
        assert_eq!(plain("ratelimit-policy"), Some(HeaderName::Policy));
        assert_eq!(plain("RateLimit-Reset"), part(RateLimit, QuotaScope::Whole, QuotaField::Reset));
        assert_eq!(
            plain("X-Ratelimit-Remaining-Second"),
            part(XRateLimit, QuotaScope::Second, QuotaField::Remaining)
        );
        assert_eq!(
            plain("x-ratelimit-requests-limit"),
            part(XRateLimit, QuotaScope::Requests, QuotaField::Limit)
        );
        assert_eq!(
            plain("X-Rate-Limit-Interval"),
            part(XRateHyphenLimit, QuotaScope::Whole, QuotaField::Window)
        );
        assert_eq!(
            plain("X-RateLimit-Reset-After"),
            part(XRateLimit, QuotaScope::Whole, QuotaField::ResetAfter)
        );
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
            retry_after_unit: TimeUnit::Milliseconds,
            floor: Duration::ZERO,
            extra: vec![
                ("X-Quota-Left".to_string(), Meaning::Remaining),
                ("x-ratelimit-reset".to_string(), Meaning::Nothing),
            ],
        };
        assert_eq!(classify(b"retry-after", &profile), Some(HeaderName::RetryAfter(TimeUnit::Milliseconds)));
        assert_eq!(classify(b"X-RateLimit-Reset", &profile), None);
        assert_eq!(
            classify(b"x-quota-left", &profile),
            Some(HeaderName::Part(HeaderFamily::Extra, QuotaScope::Whole, QuotaField::Remaining))
        );
    }
}
