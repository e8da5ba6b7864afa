//! What a server tells about its quota, as the hints that a client would read.

use std::time::Duration;

use tidegate_core::hint::{Hints, Quota};

use super::{QuotaHeaders, ServerHints};
use crate::server::{QuotaState, ThrottleAnswer};

/// The hints a client would read from the response.
pub(super) fn told(tells: ServerHints, answer: &ThrottleAnswer, now: u64) -> Hints {
    let mut hints = Hints::default();
    let wait = Duration::from_nanos(answer.wait).as_secs_f64().ceil().max(1.0);
    match tells {
        ServerHints::Nothing => {}
        ServerHints::RetryAfter => {
            if !answer.accepted {
                hints.retry_after = Some(Duration::from_secs_f64(wait));
            }
        }
        ServerHints::FixedRetryAfter(seconds) => {
            if !answer.accepted {
                hints.retry_after = Some(Duration::from_secs(seconds.into()));
            }
        }
        ServerHints::Quota(dialect) => {
            if !answer.accepted && dialect.retry_after {
                hints.retry_after = Some(Duration::from_secs_f64(wait));
            }
            if !answer.accepted || !dialect.only_refusals {
                hints.quotas[0] = answer.quota.map(|t| quota(&t, dialect, answer.accepted, now));
            }
        }
    }
    hints
}

fn quota(state: &QuotaState, dialect: QuotaHeaders, accepted: bool, now: u64) -> Quota {
    let second = Duration::from_secs(1);
    // A policy is written in whole seconds: 3/s with a burst of 1 is q=3;w=1.
    let whole = state.window.ceil().max(1.0);
    let (limit, window) = if dialect.window && state.steady {
        ((state.limit / state.window * whole).round(), Some(whole))
    } else {
        (state.limit, dialect.window.then_some(whole))
    };
    let window = window.filter(|w| state.steady || *w == state.window);
    let before = f64::from(u8::from(dialect.before && accepted));
    let reset = if dialect.epoch {
        let server_now = now as f64 / 1e9;
        (server_now + state.reset).ceil() - server_now
    } else {
        state.reset.ceil()
    };
    Quota {
        limit: Some(limit as u64),
        window: window.map(Duration::from_secs_f64),
        remaining: Some((state.remaining + before) as u64),
        reset: Some(Duration::from_secs_f64(reset.max(0.0))),
        reset_step: second,
    }
}
