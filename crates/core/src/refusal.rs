//! The stop after identical refusals.
//!
//! A wrong key, a wrong profile or a quota that nobody will refill is refused for record after
//! record, and each refusal costs a call. Nothing is learned from the thousandth that the tenth did
//! not say. So the verdicts of a lane are counted from the start of the run: after
//! [`RefusalLimit::MAX`] refusals in a row, and not one answer accepted before, the run stops.
//!
//! | class | what counts | what is "the same" |
//! |---|---|---|
//! | credential | permanent 401, 403, 407, or a code that says so (`REQUEST_DENIED` in a 200) | the class |
//! | quota | a spent quota without an end, permanent `QUOTA_EXHAUSTED` or `RATE_LIMITED` | the class |
//! | request | any other permanent refusal below 500 | code *and* status: these may be about single records |
//!
//! An accepted answer, an empty one included, ends the watch for good: from then on a refusal is
//! about its record. An answer of an earlier run, out of the response cache, does so for refusals of
//! the request: a second run over a table asks only for the rows that were refused. Failures that can heal count neither way.
//!
//! A refusal before the first accepted answer says nothing about its record yet, so a driver keeps
//! none as the end of one while [`RefusalLimit::is_open`]: a later run with the right key asks again.

use crate::taxonomy::Code;
use crate::verdict::{Verdict, VerdictKind};

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// The key is missing, wrong, or may not do this.
    Credential,
    /// The quota is spent and no date is given.
    Quota,
    /// The request itself.
    Request,
}

impl RefusalClass {
    /// The class of a verdict; `None` if it is no refusal.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Option<RefusalClass> {
        match verdict.kind {
            VerdictKind::QuotaSpent { until: None } => Some(RefusalClass::Quota),
            VerdictKind::Permanent => Some(match (verdict.code, verdict.status) {
                (Code::QUOTA_EXHAUSTED | Code::RATE_LIMITED, _) => RefusalClass::Quota,
                (Code::UNAUTHORIZED | Code::FORBIDDEN, _) | (_, Some(401 | 403 | 407)) => {
                    RefusalClass::Credential
                }
                // The service failed and refused nothing, even where a manifest says not to try again.
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

    /// Whether a later run may succeed with nothing changed on our side (exit code 75, else 1).
    #[must_use]
    pub const fn is_later(self) -> bool {
        matches!(self, RefusalClass::Quota)
    }
}

/// The refusal that was met again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedRefusal {
    /// The class of the refusals.
    pub class: RefusalClass,
    /// The code of the last refusal.
    pub code: Code,
    /// The HTTP status of the last refusal.
    pub status: Option<u16>,
    /// The number of refusals in a row.
    pub count: u32,
}

/// Counts the refusals of one lane from the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct RefusalLimit {
    /// Whether it still counts.
    open: bool,
    /// The same service has answered an earlier run.
    answered_before: bool,
    last: Option<RepeatedRefusal>,
}

impl Default for RefusalLimit {
    fn default() -> RefusalLimit {
        RefusalLimit::new()
    }
}

impl RefusalLimit {
    /// So many refusals in a row stop a run.
    pub const MAX: u32 = 10;

    /// Nothing was asked yet.
    #[must_use]
    pub const fn new() -> RefusalLimit {
        RefusalLimit { open: true, answered_before: false, last: None }
    }

    /// Never stops a run (`--keep-going`).
    #[must_use]
    pub const fn off() -> RefusalLimit {
        RefusalLimit { open: false, answered_before: false, last: None }
    }

    /// An answer to an earlier run is known, so that the form of the request is right: refusals of
    /// the request are then about their records. Those of key and quota still count.
    pub const fn answered_before(&mut self) {
        self.answered_before = true;
    }

    /// Whether refusals are still counted: nothing has been accepted so far.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// A call ended with this verdict. Returns the refusal that stops the run, if this is it.
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

    /// After how many verdicts the run stops.
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
        // Those of the credential need not: 401 and 403 say the same.
        let forbidden = refused(Code::FORBIDDEN, 403);
        let mixed = (0..20).map(|n| if n % 2 == 0 { forbidden } else { DENIED });
        assert_eq!(stops(mixed).map(|(after, _)| after), Some(10));
        // Another class begins anew.
        assert_eq!(stops((0..99).map(|n| if n % 9 == 8 { bad } else { DENIED })), None);
    }

    #[test]
    fn keep_going_never_stops() {
        let mut limit = RefusalLimit::off();
        assert!((0..99).all(|_| limit.count(&DENIED).is_none()));
    }
}
