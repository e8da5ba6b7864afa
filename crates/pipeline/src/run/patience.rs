//! Waits for a database that is down when a run begins.
//!
//! A database that restarts is away for seconds. A run that starts in these seconds need not fail:
//! it has as much patience as with a commit, and then asks to be started later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::Code;
use tidegate_core::call::CallPolicy;
use tidegate_core::chance::Rng;
use tidegate_core::retry::{CommitNext, CommitRetry};
use tidegate_ledger::letter::LetterError;
use tracing::{info, warn};

use crate::sink::SinkError;
use crate::step::StepError;

/// An error that may say that a database is down.
pub(crate) trait SaysDown {
    /// What it says then.
    fn says_down(&self) -> Option<String>;
}

impl SaysDown for SinkError {
    fn says_down(&self) -> Option<String> {
        // Not a lock that another run holds: that one was waited for.
        let down = matches!(self, SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, .. });
        down.then(|| self.to_string())
    }
}

impl SaysDown for LetterError {
    fn says_down(&self) -> Option<String> {
        matches!(self, LetterError::Unreachable(_)).then(|| self.to_string())
    }
}

impl SaysDown for StepError {
    fn says_down(&self) -> Option<String> {
        match self {
            StepError::TryLater { code: Code::DATABASE_UNAVAILABLE, said, .. } => Some(said.clone()),
            _ => None,
        }
    }
}

/// How long a stop may have to wait for us.
const SLICE: Duration = Duration::from_millis(100);

/// Opens something in a database, again and again while the database is down and the policy allows
/// another attempt.
pub(crate) fn patiently<T, E: SaysDown>(
    policy: &CallPolicy,
    stop: &AtomicBool,
    mut open: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let (mut retry, mut rng) = (CommitRetry::new(policy, true), Rng::new(0));
    loop {
        let done = open();
        let Some(said) = done.as_ref().err().and_then(SaysDown::says_down) else { return done };
        let attempt = retry.failed_attempts() + 1;
        let code = Code::DATABASE_UNAVAILABLE.as_str();
        match retry.failed(&mut rng) {
            CommitNext::RetryAfter(wait) => {
                let wait_ms = wait.as_millis() as u64;
                info!(target: "tidegate::start", attempt, code, wait_ms, asked_by = "backoff", "retry: {said}");
                let mut left = wait;
                while !left.is_zero() && !stop.load(Ordering::Relaxed) {
                    let slice = left.min(SLICE);
                    std::thread::sleep(slice);
                    left -= slice;
                }
                if stop.load(Ordering::Relaxed) {
                    return done;
                }
            }
            CommitNext::GiveUp { attempts } => {
                warn!(target: "tidegate::start", attempts, code, "gave up: {said}");
                return done;
            }
        }
    }
}
