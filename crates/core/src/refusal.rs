//! Stops a run after consecutive identical refusals.
//!
//! With a wrong credential, a wrong profile or an exhausted quota, a service refuses every record,
//! and each refusal costs a call. So the verdicts of a lane are counted from the start of the run:
//! after [`RefusalLimit::MAX`] consecutive refusals without an accepted answer, the run stops.
//!
//! | class | what counts | identical if equal in |
//! |---|---|---|
//! | credential | permanent 401, 403, 407, or a code with this meaning (`REQUEST_DENIED` in a 200) | class |
//! | quota | an exhausted quota without an end, permanent `QUOTA_EXHAUSTED` or `RATE_LIMITED` | class |
//! | request | any other permanent refusal with a status below 500 | code *and* status, because it may concern single records |
//!
//! After the first accepted answer, which may be empty, nothing is counted: from then on a refusal
//! concerns its record. An answer of an earlier run, from the response cache, has this effect on the
//! class `request`, because a second run over a table requests only the rows that were refused.
//! Transient failures are not counted and do not reset the count.
//!
//! A refusal before the first accepted answer may not be the fault of its record. So while
//! [`RefusalLimit::is_open`], a driver does not store a refusal as the result of a record, and a
//! later run with the right credential requests it again.

use crate::taxonomy::Code;
use crate::verdict::{Verdict, VerdictKind};

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// The credential is missing, wrong, or has no permission.
    Credential,
    /// The quota is exhausted, without a time when it is restored.
    Quota,
    /// The request is invalid.
    Request,
}

impl RefusalClass {
    /// The class of a verdict; `None` if it is not a refusal.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Option<RefusalClass> {
        match verdict.kind {
            VerdictKind::QuotaSpent { until: None } => Some(RefusalClass::Quota),
            VerdictKind::Permanent => Some(match (verdict.code, verdict.status) {
                (Code::QUOTA_EXHAUSTED | Code::RATE_LIMITED, _) => RefusalClass::Quota,
                (Code::UNAUTHORIZED | Code::FORBIDDEN, _) | (_, Some(401 | 403 | 407)) => {
                    RefusalClass::Credential
                }
                // The service failed; that is not a refusal, even if the manifest makes it permanent.
                (_, Some(500..)) => return None,
                _ => RefusalClass::Request,
            }),
            VerdictKind::Done
            | VerdictKind::NoMatch
            | VerdictKind::Throttled { .. }
            | VerdictKind::Transient { .. }
            | VerdictKind::QuotaSpent { until: Some(_) } => None,
        }
    }

    /// Whether a later run may succeed without a change by the user (exit code 75, otherwise 1).
    #[must_use]
    pub const fn is_later(self) -> bool {
        matches!(self, RefusalClass::Quota)
    }
}

/// A sequence of identical refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedRefusal {
    /// The class of the refusals.
    pub class: RefusalClass,
    /// The code of the last refusal.
    pub code: Code,
    /// The HTTP status of the last refusal.
    pub status: Option<u16>,
    /// The number of consecutive refusals.
    pub count: u32,
}

/// Counts the refusals of one lane from the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct RefusalLimit {
    /// Whether refusals are still counted.
    open: bool,
    /// Whether the service has answered an earlier run.
    answered_before: bool,
    /// The current sequence of refusals.
    last: Option<RepeatedRefusal>,
}

impl Default for RefusalLimit {
    fn default() -> RefusalLimit {
        RefusalLimit::new()
    }
}

impl RefusalLimit {
    /// The number of consecutive refusals that stops a run.
    pub const MAX: u32 = 10;

    /// Starts to count.
    #[must_use]
    pub const fn new() -> RefusalLimit {
        RefusalLimit { open: true, answered_before: false, last: None }
    }

    /// A limit that never stops a run (`--keep-going`).
    #[must_use]
    pub const fn off() -> RefusalLimit {
        RefusalLimit { open: false, answered_before: false, last: None }
    }

    /// Records that the service has answered an earlier run. The form of the request is then valid,
    /// so refusals of the class `request` concern their records and are not counted. The other
    /// classes are still counted.
    pub const fn answered_before(&mut self) {
        self.answered_before = true;
    }

    /// Whether refusals are still counted, because no answer has been accepted yet.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Counts the verdict of a call. Returns the refusals if the run must stop.
    pub fn count(&mut self, verdict: &Verdict) -> Option<RepeatedRefusal> {
        if !self.open {
            return None;
        }
        if matches!(verdict.kind, VerdictKind::Done | VerdictKind::NoMatch) {
            (self.open, self.last) = (false, None);
            return None;
        }
        let class = RefusalClass::of(verdict)?;
        if class == RefusalClass::Request && self.answered_before {
            self.last = None;
            return None;
        }
        let (code, status) = (verdict.code, verdict.status);
        let before = match self.last {
            Some(last) if last.class != class => 0,
            Some(last) if class == RefusalClass::Request && (last.code, last.status) != (code, status) => 0,
            Some(last) => last.count,
            None => 0,
        };
        let now = RepeatedRefusal { class, code, status, count: before.saturating_add(1) };
        self.last = Some(now);
        (now.count >= RefusalLimit::MAX).then_some(now)
    }
}

/// Whether a run met nobody: no call got a response, and every record that failed did so because
/// the connection was refused. Then the other side is down, and it is not the fault of the records.
#[must_use]
pub fn nobody_answered<'a>(responses: u64, failures: impl IntoIterator<Item = &'a str>) -> bool {
    let mut failures = failures.into_iter().peekable();
    responses == 0
        && failures.peek().is_some()
        && failures.all(|code| code == Code::CONNECTION_REFUSED.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Mono;

    fn refused(code: Code, status: u16) -> Verdict {
        Verdict { kind: VerdictKind::Permanent, code, status: Some(status) }
    }

    const DENIED: Verdict =
        Verdict { kind: VerdictKind::Permanent, code: Code::UNAUTHORIZED, status: Some(401) };
    const EMPTY: Verdict = Verdict { kind: VerdictKind::NoMatch, code: Code::NO_MATCH, status: Some(200) };
    const BUSY: Verdict = Verdict {
        kind: VerdictKind::Transient { until: None },
        code: Code::SERVICE_UNAVAILABLE,
        status: Some(503),
    };

    /// The number of verdicts after which the run stops, and the refusals.
    fn stops(verdicts: impl IntoIterator<Item = Verdict>) -> Option<(usize, RepeatedRefusal)> {
        let mut limit = RefusalLimit::new();
        for (n, verdict) in verdicts.into_iter().enumerate() {
            if let Some(why) = limit.count(&verdict) {
                return Some((n + 1, why));
            }
        }
        None
    }

    #[test]
    fn an_answer_of_an_earlier_run_speaks_for_the_request_and_not_for_the_key() {
        let mut limit = RefusalLimit::new();
        limit.answered_before();
        let bad = refused(Code::BAD_REQUEST, 400);
        assert!((0..100).all(|_| limit.count(&bad).is_none()));
        let stopped = (0..100).find_map(|n| limit.count(&DENIED).map(|why| (n + 1, why.class)));
        assert_eq!(stopped, Some((RefusalLimit::MAX, RefusalClass::Credential)));
    }

    #[test]
    fn each_class() {
        let class = |code, status| RefusalClass::of(&refused(code, status));
        for (code, status) in [
            (Code::UNAUTHORIZED, 401),
            (Code::FORBIDDEN, 403),
            (Code::FORBIDDEN, 200),
            (Code::UNEXPECTED_STATUS, 407),
        ] {
            assert_eq!(class(code, status), Some(RefusalClass::Credential), "{code} {status}");
        }
        assert_eq!(class(Code::QUOTA_EXHAUSTED, 200), Some(RefusalClass::Quota));
        assert_eq!(class(Code::RATE_LIMITED, 429), Some(RefusalClass::Quota));
        for (code, status) in [(Code::BAD_REQUEST, 400), (Code::NOT_FOUND, 404), (Code::UNEXPECTED_BODY, 200)]
        {
            assert_eq!(class(code, status), Some(RefusalClass::Request), "{code} {status}");
        }
        assert_eq!(class(Code::INTERNAL_ERROR, 500), None, "that is a failure");
        let spent = |until| Verdict {
            kind: VerdictKind::QuotaSpent { until },
            ..refused(Code::QUOTA_EXHAUSTED, 402)
        };
        assert_eq!(RefusalClass::of(&spent(None)), Some(RefusalClass::Quota));
        assert_eq!(RefusalClass::of(&spent(Some(Mono::FAR))), None, "that is a wait, and patience has it");
        for verdict in [Verdict::DONE, EMPTY, BUSY] {
            assert_eq!(RefusalClass::of(&verdict), None);
        }
        assert!(RefusalClass::Quota.is_later());
        assert!(!RefusalClass::Credential.is_later() && !RefusalClass::Request.is_later());
    }

    #[test]
    fn the_tenth_refusal_in_a_row_stops_the_run() {
        let (after, why) = stops([DENIED; 20]).unwrap();
        assert_eq!((after, why.count, why.class), (10, 10, RefusalClass::Credential));
        assert_eq!((why.code, why.status), (Code::UNAUTHORIZED, Some(401)));
        let mut limit = RefusalLimit::new();
        assert!((0..9).all(|_| limit.count(&DENIED).is_none()));
    }

    #[test]
    fn one_answer_before_is_enough_to_go_on() {
        for answer in [Verdict::DONE, EMPTY] {
            let mut limit = RefusalLimit::new();
            assert!((0..9).all(|_| limit.count(&DENIED).is_none()));
            assert_eq!(limit.count(&answer), None);
            assert!(!limit.is_open());
            assert!((0..99).all(|_| limit.count(&DENIED).is_none()));
        }
    }

    #[test]
    fn what_can_heal_counts_neither_way() {
        let mixed = (0..40).map(|n| if n % 2 == 0 { BUSY } else { DENIED });
        assert_eq!(stops(mixed).map(|(after, _)| after), Some(20));
        assert_eq!(stops([BUSY; 99]), None);
    }

    #[test]
    fn refusals_of_the_request_must_be_the_same() {
        let (bad, gone) = (refused(Code::BAD_REQUEST, 400), refused(Code::NOT_FOUND, 404));
        assert_eq!(stops([bad; 20]).map(|(after, _)| after), Some(10));
        assert_eq!(stops((0..99).map(|n| if n % 9 == 8 { gone } else { bad })), None);
        let other = refused(Code::BAD_REQUEST, 422);
        assert_eq!(stops((0..99).map(|n| if n % 9 == 8 { other } else { bad })), None, "another status");
        // Refusals of the credential need not: 401 and 403 are equivalent.
        let forbidden = refused(Code::FORBIDDEN, 403);
        let mixed = (0..20).map(|n| if n % 2 == 0 { forbidden } else { DENIED });
        assert_eq!(stops(mixed).map(|(after, _)| after), Some(10));
        // Another class resets the count.
        assert_eq!(stops((0..99).map(|n| if n % 9 == 8 { bad } else { DENIED })), None);
    }

    #[test]
    fn keep_going_never_stops() {
        let mut limit = RefusalLimit::off();
        assert!((0..99).all(|_| limit.count(&DENIED).is_none()));
    }

    #[test]
    fn a_service_that_refuses_every_connection_is_down() {
        assert!(nobody_answered(0, ["CONNECTION_REFUSED"]));
        assert!(!nobody_answered(0, []) && !nobody_answered(1, ["CONNECTION_REFUSED"]));
        assert!(!nobody_answered(0, ["CONNECTION_REFUSED", "INVALID_GEOMETRY"]));
    }
}
