//! Counts identical refusals over all calls to one service in a run.
//!
//! The decision to stop is made in [`tidegate_core::refusal`]; this module shares the counter
//! between concurrent calls and formats the message.

use crate::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::Verdict;
use tidegate_core::quote;
use tidegate_core::refusal::{RefusalClass, RefusalLimit, RepeatedRefusal};

/// The counter of identical refusals of one service, shared by its calls.
pub struct RefusalCounter {
    /// Whether refusals still count, readable without the lock.
    open: AtomicBool,
    limit: Mutex<RefusalLimit>,
}

impl RefusalCounter {
    /// A counter for a new run; with `keep_going` it never stops the run.
    #[must_use]
    pub fn new(keep_going: bool) -> RefusalCounter {
        let limit = if keep_going { RefusalLimit::off() } else { RefusalLimit::new() };
        RefusalCounter { open: AtomicBool::new(limit.is_open()), limit: Mutex::new(limit) }
    }

    /// Counts the verdict of a finished call. Returns the refusal if it stops the run.
    pub fn count(&self, verdict: &Verdict) -> Option<RepeatedRefusal> {
        if !self.is_open() {
            return None;
        }
        let mut limit = lock(&self.limit);
        let stop = limit.count(verdict);
        self.open.store(limit.is_open(), Ordering::Relaxed);
        stop
    }

    /// An earlier run got an answer, so a refused request is the fault of its record.
    pub fn answered_before(&self) {
        if self.is_open() {
            lock(&self.limit).answered_before();
        }
    }

    /// Whether the service has accepted no call so far.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

/// Where the settings behind a refusal are.
#[derive(Clone, Debug)]
pub enum SettingsOf<'a> {
    /// Command-line options.
    Options,
    /// This service in the manifest.
    Service(&'a str),
}

/// The message: what was refused, what the service said, and which setting to check.
#[must_use]
pub fn refused(why: &RepeatedRefusal, host: &str, said: &str, settings: &SettingsOf<'_>) -> String {
    let with = match why.status {
        Some(status) => format!("{status} {}", why.code),
        None => why.code.to_string(),
    };
    let said = if said.is_empty() { String::new() } else { format!(" and said {}", quote::said(said)) };
    format!(
        "{host} rejected {} calls in a row with {with}{said}, and accepted none. {}; \
         use --keep-going to continue anyway",
        why.count,
        advice(why.class, settings)
    )
}

/// Which setting to check after a refusal of this class.
#[must_use]
pub fn advice(class: RefusalClass, settings: &SettingsOf<'_>) -> String {
    match (class, settings) {
        (RefusalClass::Credential, SettingsOf::Options) => "Check the key (--key)".into(),
        (RefusalClass::Credential, SettingsOf::Service(name)) => {
            format!("Check the key (services.{name}.key)")
        }
        (RefusalClass::Quota, SettingsOf::Options) => "Check the quota of the key (--key)".into(),
        (RefusalClass::Quota, SettingsOf::Service(name)) => {
            format!("Check the quota of the key (services.{name}.key)")
        }
        (RefusalClass::Request, SettingsOf::Options) => {
            "Check --profile, --url and the selected columns".into()
        }
        (RefusalClass::Request, SettingsOf::Service(name)) => {
            format!("Check services.{name}.profile, services.{name}.url and the step that calls it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Code, VerdictKind};

    #[test]
    fn it_says_what_was_said_and_where_to_look() {
        let denied = Verdict { kind: VerdictKind::Permanent, code: Code::UNAUTHORIZED, status: Some(401) };
        let refusals = RefusalCounter::new(false);
        let why = (0..10).find_map(|_| refusals.count(&denied)).unwrap();
        let text = refused(&why, "geo.example", "bad key", &SettingsOf::Options);
        assert!(
            text.starts_with(
                "geo.example rejected 10 calls in a row with 401 UNAUTHORIZED and said “bad key”"
            )
        );
        assert!(text.contains("--key") && text.contains("--keep-going"));
        assert!(refused(&why, "h", "", &SettingsOf::Service("g")).contains("services.g.key"));
        assert!(refusals.is_open());
        let kept = RefusalCounter::new(true);
        assert!((0..99).all(|_| kept.count(&denied).is_none()) && !kept.is_open());
    }
}
