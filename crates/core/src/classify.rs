//! The classifier: maps a signal to a verdict.
//!
//! Without a list in the manifest, the statuses 408, 425, 429, 500, 502, 503, 504 and network errors
//! are transient, and all other errors are permanent. A list in the manifest is authoritative:
//! exactly the statuses of `retryable` are retried. 429 (and what a profile adds, such as S3's
//! SlowDown) is a throttle, which slows the lane and is not counted by the breaker. The finding of a
//! profile in the body takes precedence over the status, because a 200 can contain an error and an
//! error page can report an exhausted quota. A throttle with a wait longer than
//! [`Classifier::quota_after`] counts as an exhausted quota.

use crate::hint::{Hints, WAIT_MAX};
use crate::lane::LaneConfig;
use crate::signal::{Finding, Means, Network, Signal};
use crate::taxonomy::Code;
use crate::time::Mono;
use crate::verdict::{Verdict, VerdictKind};
use core::time::Duration;

/// A set of HTTP statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet([u64; 10]);

impl StatusSet {
    /// The set of these statuses; those from 640 on are ignored.
    #[must_use]
    pub const fn of(statuses: &[u16]) -> StatusSet {
        let mut set = StatusSet([0; 10]);
        let mut i = 0;
        while i < statuses.len() {
            let s = statuses[i] as usize;
            if s < 640 {
                set.0[s / 64] |= 1 << (s % 64);
            }
            i += 1;
        }
        set
    }

    /// Whether the set contains the status.
    #[must_use]
    pub const fn has(&self, status: u16) -> bool {
        let s = status as usize;
        s < 640 && self.0[s / 64] >> (s % 64) & 1 == 1
    }

    /// The statuses in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..640).filter(|&s| self.has(s))
    }

    /// The statuses of this set that are not in `other`.
    #[must_use]
    pub fn less(&self, other: &StatusSet) -> StatusSet {
        let mut out = *self;
        for (a, b) in out.0.iter_mut().zip(other.0) {
            *a &= !b;
        }
        out
    }
}

/// The statuses that are retried if the manifest has no list.
pub const RETRYABLE: StatusSet = StatusSet::of(&[408, 425, 429, 500, 502, 503, 504]);
/// The statuses that are terminal if the manifest has only a list of retryable ones.
pub const TERMINAL: StatusSet = StatusSet::of(&[400, 401, 403, 404, 500]);

/// Maps signals to verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// The statuses that are retried.
    pub retryable: StatusSet,
    /// The statuses that mean a throttle.
    pub throttle: StatusSet,
    /// The statuses that mean an exhausted quota.
    pub quota: StatusSet,
    /// The wait above which a throttle counts as an exhausted quota.
    pub quota_after: Duration,
    /// The wait after a host name could not be resolved.
    pub dns_wait: Duration,
    /// Whether a throttle without Retry-After waits for the reset of the exhausted quota. Off in a
    /// lane with an adaptive limiter, which tracks the server's counter and times calls itself.
    pub reset_is_wait: bool,
    /// The longest wait that a server is obeyed for; a longer one is cut to it ([`WAIT_MAX`]).
    pub wait_max: Duration,
}

impl Default for Classifier {
    fn default() -> Classifier {
        Classifier {
            retryable: RETRYABLE,
            throttle: StatusSet::of(&[429]),
            quota: StatusSet::of(&[402]),
            quota_after: Duration::from_secs(600),
            dns_wait: Duration::from_secs(5),
            reset_is_wait: true,
            wait_max: WAIT_MAX,
        }
    }
}

impl Classifier {
    /// The same for calls through a lane: what the lane does with waits is known here too.
    #[must_use]
    pub const fn for_lane(self, lane: &LaneConfig) -> Classifier {
        Classifier { reset_is_wait: !lane.limit.learn, wait_max: lane.wait_max, ..self }
    }

    /// The verdict for `signal`. The waits of `hints` start at `now`.
    #[must_use]
    pub fn classify(&self, signal: &Signal<'_>, hints: &Hints, now: Mono) -> Verdict {
        let cut = if hints.exceed(self.wait_max) { Some(hints.within(self.wait_max)) } else { None };
        let hints = cut.as_ref().unwrap_or(hints);
        match *signal {
            Signal::Http { status, finding: Some(found) } => self.found(found, Some(status), hints, now),
            Signal::Http { status, finding: None } => self.status(status, hints, now),
            Signal::Network(failure) => self.network(failure, now),
            Signal::Sql(state) => sqlstate(state),
            Signal::Task(found) => self.found(found, None, hints, now),
        }
    }

    fn found(&self, found: Finding, status: Option<u16>, hints: &Hints, now: Mono) -> Verdict {
        let until = hints.retry_after.map(|wait| now + wait);
        let kind = match found.means {
            Means::Done => VerdictKind::Done,
            Means::NoMatch => VerdictKind::NoMatch,
            Means::Throttled => return self.throttled(found.code, status, hints, now),
            Means::QuotaSpent => VerdictKind::QuotaSpent { until },
            Means::Transient => VerdictKind::Transient { until },
            Means::Permanent => VerdictKind::Permanent,
        };
        Verdict { kind, code: found.code, status }
    }

    fn status(&self, status: u16, hints: &Hints, now: Mono) -> Verdict {
        let until = hints.retry_after.map(|wait| now + wait);
        let code = code_of(status);
        let kind = if (200..300).contains(&status) {
            VerdictKind::Done
        } else if self.quota.has(status) {
            return Verdict {
                kind: VerdictKind::QuotaSpent { until },
                code: Code::QUOTA_EXHAUSTED,
                status: Some(status),
            };
        } else if !self.retryable.has(status) {
            VerdictKind::Permanent
        } else if self.throttle.has(status) {
            return self.throttled(Code::RATE_LIMITED, Some(status), hints, now);
        } else {
            VerdictKind::Transient { until }
        };
        Verdict { kind, code, status: Some(status) }
    }

    fn throttled(&self, code: Code, status: Option<u16>, hints: &Hints, now: Mono) -> Verdict {
        let wait = hints.throttle_wait();
        if wait.is_some_and(|wait| wait > self.quota_after) {
            let until = wait.map(|wait| now + wait);
            return Verdict { kind: VerdictKind::QuotaSpent { until }, code: Code::QUOTA_EXHAUSTED, status };
        }
        let wait = if self.reset_is_wait { wait } else { hints.retry_after };
        Verdict { kind: VerdictKind::Throttled { until: wait.map(|wait| now + wait) }, code, status }
    }

    fn network(&self, failure: Network, now: Mono) -> Verdict {
        let healing = VerdictKind::Transient { until: None };
        let (kind, code) = match failure {
            Network::Timeout => (healing, Code::TIMEOUT),
            Network::Refused => (healing, Code::CONNECTION_REFUSED),
            Network::Reset => (healing, Code::CONNECTION_RESET),
            Network::Dns => (VerdictKind::Transient { until: Some(now + self.dns_wait) }, Code::DNS_FAILURE),
            Network::Tls => (VerdictKind::Permanent, Code::TLS_FAILURE),
            Network::Truncated => (healing, Code::TRUNCATED_BODY),
        };
        Verdict { kind, code, status: None }
    }
}

/// The code of a status.
#[must_use]
pub const fn code_of(status: u16) -> Code {
    match status {
        200..=299 => Code::OK,
        300..=399 => Code::UNEXPECTED_REDIRECT,
        400 => Code::BAD_REQUEST,
        401 => Code::UNAUTHORIZED,
        402 => Code::QUOTA_EXHAUSTED,
        403 => Code::FORBIDDEN,
        404 | 410 => Code::NOT_FOUND,
        408 => Code::TIMEOUT,
        409 | 412 => Code::CONFLICT,
        413 => Code::PAYLOAD_TOO_LARGE,
        422 => Code::UNPROCESSABLE,
        429 => Code::RATE_LIMITED,
        500 => Code::INTERNAL_ERROR,
        502 => Code::BAD_GATEWAY,
        503 => Code::SERVICE_UNAVAILABLE,
        504 => Code::GATEWAY_TIMEOUT,
        _ => Code::UNEXPECTED_STATUS,
    }
}

/// The verdict for a SQLSTATE: by its class, with exceptions for single states.
#[must_use]
pub fn sqlstate(state: &str) -> Verdict {
    let healing = VerdictKind::Transient { until: None };
    let class = state.get(..2).unwrap_or("");
    let (kind, code) = match (class, state) {
        (_, "40001" | "40P01") => (healing, Code::SERIALIZATION_FAILURE),
        (_, "55P03" | "55006") => (healing, Code::CONFLICT),
        (_, "57014") => (healing, Code::TIMEOUT),
        ("08" | "53" | "57" | "58", _) => (healing, Code::DATABASE_UNAVAILABLE),
        ("23", _) => (VerdictKind::Permanent, Code::CONSTRAINT_VIOLATION),
        ("22", _) => (VerdictKind::Permanent, Code::DATA_EXCEPTION),
        ("28", _) => (VerdictKind::Permanent, Code::UNAUTHORIZED),
        (_, "42501") => (VerdictKind::Permanent, Code::FORBIDDEN),
        (_, "42P01" | "42703" | "42804") => (VerdictKind::Permanent, Code::SCHEMA_MISMATCH),
        (_, "3D000" | "3F000") => (VerdictKind::Permanent, Code::NOT_FOUND),
        _ => (VerdictKind::Permanent, Code::DATABASE_ERROR),
    };
    Verdict { kind, code, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono::from_millis(s * 1000)
    }

    fn http(c: &Classifier, status: u16) -> Verdict {
        c.classify(&Signal::Http { status, finding: None }, &Hints::default(), at(0))
    }

    #[test]
    fn the_status_table() {
        let c = Classifier::default();
        let retried: alloc::vec::Vec<u16> =
            (100..600).filter(|&s| !http(&c, s).is_answer()).filter(|&s| s != 402).collect();
        assert_eq!(retried, [408, 425, 429, 500, 502, 503, 504]);
        assert_eq!(http(&c, 204).kind, VerdictKind::Done);
        assert_eq!(http(&c, 429).kind, VerdictKind::Throttled { until: None });
        assert_eq!(http(&c, 402).kind, VerdictKind::QuotaSpent { until: None });
        for (status, code) in [
            (400, "BAD_REQUEST"),
            (401, "UNAUTHORIZED"),
            (403, "FORBIDDEN"),
            (404, "NOT_FOUND"),
            (422, "UNPROCESSABLE"),
            (503, "SERVICE_UNAVAILABLE"),
            (504, "GATEWAY_TIMEOUT"),
            (599, "UNEXPECTED_STATUS"),
            (65535, "UNEXPECTED_STATUS"),
        ] {
            assert_eq!(http(&c, status).code.as_str(), code);
        }
    }

    #[test]
    fn a_list_is_authoritative() {
        let c = Classifier { retryable: StatusSet::of(&[429, 502, 404]), ..Default::default() };
        assert_eq!(http(&c, 503).kind, VerdictKind::Permanent);
        assert_eq!(http(&c, 404).kind, VerdictKind::Transient { until: None });
        assert_eq!(TERMINAL.less(&c.retryable).iter().collect::<alloc::vec::Vec<_>>(), [400, 401, 403, 500]);
        let strict = Classifier { retryable: StatusSet::of(&[]), ..Default::default() };
        assert_eq!(http(&strict, 429).kind, VerdictKind::Permanent);
    }

    #[test]
    fn a_body_outranks_its_status() {
        let c = Classifier::default();
        let signal = |status, means, code| Signal::Http { status, finding: Some(Finding { means, code }) };
        let h = Hints::default();
        let over = signal(200, Means::Throttled, Code::RATE_LIMITED);
        assert_eq!(c.classify(&over, &h, at(0)).kind, VerdictKind::Throttled { until: None });
        let empty = signal(200, Means::NoMatch, Code::NO_MATCH);
        assert_eq!(c.classify(&empty, &h, at(0)).kind, VerdictKind::NoMatch);
        let quota = signal(403, Means::QuotaSpent, Code::QUOTA_EXHAUSTED);
        assert_eq!(c.classify(&quota, &h, at(0)).kind, VerdictKind::QuotaSpent { until: None });
    }

    #[test]
    fn a_long_wait_is_a_quota() {
        let c = Classifier::default();
        let hints = |s| Hints { retry_after: Some(Duration::from_secs(s)), ..Default::default() };
        let signal = Signal::Http { status: 429, finding: None };
        assert_eq!(
            c.classify(&signal, &hints(600), at(7)).kind,
            VerdictKind::Throttled { until: Some(at(607)) }
        );
        let v = c.classify(&signal, &hints(601), at(7));
        assert_eq!(
            (v.kind, v.code),
            (VerdictKind::QuotaSpent { until: Some(at(608)) }, Code::QUOTA_EXHAUSTED)
        );
        // No wait is longer than a day, whatever the header says, unless that is set.
        let v = c.classify(&signal, &hints(999_999_999), at(7));
        assert_eq!(v.kind, VerdictKind::QuotaSpent { until: Some(at(7 + 86_400)) });
        let patient = Classifier { wait_max: Duration::MAX, ..c };
        let v = patient.classify(&signal, &hints(999_999_999), at(7));
        assert_eq!(v.kind, VerdictKind::QuotaSpent { until: Some(at(1_000_000_006)) });
        // Any status may carry the hint.
        let v = c.classify(&Signal::Http { status: 500, finding: None }, &hints(3), at(0));
        assert_eq!(v.kind, VerdictKind::Transient { until: Some(at(3)) });
    }

    #[test]
    fn a_spent_quota_without_retry_after_waits_for_its_reset() {
        use crate::hint::Quota;
        let quota = Quota { remaining: Some(0), reset: Some(Duration::from_secs(9)), ..Quota::default() };
        let mut hints = Hints { quotas: [Some(quota), None, None, None], ..Hints::default() };
        let signal = Signal::Http { status: 429, finding: None };
        let c = Classifier::default();
        assert_eq!(c.classify(&signal, &hints, at(1)).kind, VerdictKind::Throttled { until: Some(at(10)) });
        let learns = Classifier { reset_is_wait: false, ..c };
        assert_eq!(learns.classify(&signal, &hints, at(1)).kind, VerdictKind::Throttled { until: None });
        hints.quotas[0] = Some(Quota { reset: Some(Duration::from_secs(3600)), ..quota });
        assert_eq!(
            learns.classify(&signal, &hints, at(1)).kind,
            VerdictKind::QuotaSpent { until: Some(at(3601)) }
        );
    }

    #[test]
    fn network_and_sql() {
        let c = Classifier::default();
        let kind = |s| c.classify(&s, &Hints::default(), at(1)).kind;
        let healing = VerdictKind::Transient { until: None };
        assert_eq!(kind(Signal::Network(Network::Reset)), healing);
        assert_eq!(kind(Signal::Network(Network::Truncated)), healing);
        assert_eq!(kind(Signal::Network(Network::Dns)), VerdictKind::Transient { until: Some(at(6)) });
        assert_eq!(kind(Signal::Network(Network::Tls)), VerdictKind::Permanent);
        for (state, want, code) in [
            ("40001", healing, "SERIALIZATION_FAILURE"),
            ("08006", healing, "DATABASE_UNAVAILABLE"),
            ("53300", healing, "DATABASE_UNAVAILABLE"),
            ("57P03", healing, "DATABASE_UNAVAILABLE"),
            ("57014", healing, "TIMEOUT"),
            ("23505", VerdictKind::Permanent, "CONSTRAINT_VIOLATION"),
            ("22P02", VerdictKind::Permanent, "DATA_EXCEPTION"),
            ("28P01", VerdictKind::Permanent, "UNAUTHORIZED"),
            ("42P01", VerdictKind::Permanent, "SCHEMA_MISMATCH"),
            ("XX000", VerdictKind::Permanent, "DATABASE_ERROR"),
            ("", VerdictKind::Permanent, "DATABASE_ERROR"),
            ("é", VerdictKind::Permanent, "DATABASE_ERROR"),
        ] {
            let v = c.classify(&Signal::Sql(state), &Hints::default(), at(0));
            assert_eq!((v.kind, v.code.as_str()), (want, code), "{state}");
        }
    }
}
