//! Calls for which a run waits, as long as its patience lasts.
//!
//! The decisions are the core's ([`tidegate_core::patience`]); here is the waiting. Rows, pages,
//! objects and steps all come this way, so the same answer ends the same way for each of them.

use super::CallOutcome;
use crate::lane::LaneHandle;
use std::fmt;
use std::time::Duration;
use tidegate_core::patience::{After, LaneWatch, Patience, TryLater};
use tidegate_core::time::calendar::rfc3339;
use tidegate_core::{Code, Wall};

/// The other side wants more time than the run has: it ends with exit code 75.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The reason: `QUOTA_EXHAUSTED`, `CIRCUIT_OPEN`, or the code of the answer that asked for the wait.
    pub code: Code,
    /// The earliest time of the next call.
    pub until: Wall,
    /// The origin of the wait, in a sentence.
    pub said: String,
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl Later {
    /// What a lane's run is told.
    #[must_use]
    pub fn of(lane: &LaneHandle, later: TryLater) -> Later {
        let until = lane.clock().wall_of(later.until);
        Later { code: later.code, until, said: sentence(lane, later.code, until) }
    }
}

/// A time of today, or a date and time, in UTC.
fn when(until: Wall, now: Wall) -> String {
    let (text, today) = (rfc3339(until.millis()), rfc3339(now.millis()));
    match (text.split_once('T'), today.split_once('T')) {
        (Some((day, time)), Some((today, _))) => {
            let time = time.trim_end_matches('Z');
            if day == today { format!("{time} UTC") } else { format!("{day} {time} UTC") }
        }
        _ => text,
    }
}

fn sentence(lane: &LaneHandle, code: Code, until: Wall) -> String {
    let (host, at) = (lane.key().host(), when(until, lane.clock().wall()));
    if code == Code::CIRCUIT_OPEN {
        return format!("{host} is failing: no calls until {at}");
    }
    match lane.state().hint {
        Some(hint) if hint.retry_after => {
            format!("{host} asks for no calls until {at} (Retry-After: {})", hint.asked_seconds)
        }
        Some(hint) => format!("{host} asks for no calls until {at} ({} s)", hint.asked_seconds),
        None if code == Code::QUOTA_EXHAUSTED => {
            format!("{host}: the quota is spent and the service does not say until when; no calls until {at}")
        }
        None => format!("{host} asks for no calls until {at}"),
    }
}

/// Resolves when the lane is shut, or has been failing, for longer than patience allows. A lane
/// that is shut for too long already is told of at once.
pub async fn given_up(lane: &LaneHandle, limit: Duration) -> Later {
    let mut watch = LaneWatch::new(limit);
    loop {
        let (reading, now) = lane.with_core(|core, now| (core.reading(now), now));
        if let Some(later) = watch.look(&reading, now) {
            return Later::of(lane, later);
        }
        tokio::time::sleep(watch.interval()).await;
    }
}

/// Makes a call and, where the server asks for a wait within `limit`, waits and makes another.
/// `call` gets the number of the call, from 0.
///
/// # Errors
/// When the other side wants more time than there is.
pub async fn patient<T, F: Future<Output = CallOutcome<T>>>(
    lane: &LaneHandle,
    limit: Duration,
    mut call: impl FnMut(u32) -> F,
) -> Result<CallOutcome<T>, Later> {
    let clock = lane.clock();
    let mut patience = Patience::new(limit);
    let mut number = 0;
    loop {
        let outcome = tokio::select! {
            biased;
            outcome = call(number) => outcome,
            later = given_up(lane, limit) => return Err(later),
        };
        match patience.after(&outcome.verdict, &outcome.next, clock.mono()) {
            After::Settle => return Ok(outcome),
            After::Wait(until) => clock.sleep_until(until).await,
            After::TryLater(later) => return Err(Later::of(lane, later)),
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_today_needs_no_date() {
        let now = Wall::from_secs(1_794_700_000);
        assert_eq!(when(Wall::from_secs(1_794_700_799), now), "23:59:59 UTC");
        assert_eq!(when(Wall::from_secs(1_794_700_800), now), "2026-11-15 00:00:00 UTC");
    }
}
