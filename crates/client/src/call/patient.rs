//! Calls that wait and try again as long as the patience of the run allows.
//!
//! The decisions are made in [`tidegate_core::patience`]; this module waits. Rows, pages, objects
//! and steps all use it, so the same answer has the same consequence for each.

use super::CallOutcome;
use crate::duration;
use crate::lane::LaneHandle;
use std::fmt;
use std::time::Duration;
use tidegate_core::patience::{After, LaneWatch, Patience, TryLater};
use tidegate_core::time::calendar::rfc3339;
use tidegate_core::{Code, Wall};

/// The service asks for a longer wait than the run allows: the run ends with exit code 75.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The reason: `QUOTA_EXHAUSTED`, `CIRCUIT_OPEN`, or the code of the answer that asked for the
    /// wait.
    pub code: Code,
    /// The earliest time of the next call.
    pub until: Wall,
    /// One sentence on who asked for the wait.
    pub said: String,
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl Later {
    /// The message for a run that uses this lane.
    #[must_use]
    pub fn of(lane: &LaneHandle, later: TryLater) -> Later {
        let until = lane.clock().wall_of(later.until);
        Later { code: later.code, until, said: sentence(lane, later.code, until) }
    }
}

/// A time today, or a date and time, in UTC.
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
    if let Some(server) = lane.unreachable() {
        return format!(
            "the limit of {host} is shared at {server}, which cannot be reached; next try at {at}"
        );
    }
    if code == Code::CIRCUIT_OPEN {
        return format!("{host} is failing; next call at {at}");
    }
    let hint = lane.state().hint;
    if let Some(hint) = hint.filter(|hint| Duration::from_secs(hint.asked_seconds) > lane.wait_max()) {
        let (asked, cut) = (hint.asked_seconds, duration::human(lane.wait_max().as_secs_f64()));
        return format!(
            "{host} asked to wait {asked} s, which is cut to {cut} (`retry_policy.wait_max`); next call at {at}; \
             `tidegate lanes clear {host}` forgets it"
        );
    }
    match hint {
        Some(hint) if hint.retry_after => {
            format!("{host} asked to wait until {at} (Retry-After: {})", hint.asked_seconds)
        }
        Some(hint) => format!("{host} asked to wait until {at} ({} s)", hint.asked_seconds),
        None if code == Code::QUOTA_EXHAUSTED => {
            format!("{host}: quota exhausted, reset time unknown; next call at {at}")
        }
        None => format!("{host} asked to wait until {at}"),
    }
}

/// Resolves when the lane is shut, or has been failing, for longer than `limit`; at once if it
/// already is.
pub async fn given_up(lane: &LaneHandle, limit: Duration) -> Later {
    let mut watch = LaneWatch::new(limit);
    loop {
        let (reading, now) = lane.reading();
        if let Some(later) = watch.look(&reading, now) {
            return Later::of(lane, later);
        }
        tokio::time::sleep(watch.interval()).await;
    }
}

/// Makes a call. If the server asks for a wait within `limit`, waits and makes another. `call` gets
/// the number of the call, from 0.
///
/// # Errors
/// When the service asks for a longer wait than `limit`.
pub async fn patient<T, F: Future<Output = CallOutcome<T>>>(
    lane: &LaneHandle,
    limit: Duration,
    mut call: impl FnMut(u32) -> F,
) -> Result<CallOutcome<T>, Later> {
    let watched = |number| {
        let calling = call(number);
        async move {
            tokio::select! {
                biased;
                outcome = calling => Ok(outcome),
                later = given_up(lane, limit) => Err(later),
            }
        }
    };
    unwatched(lane, limit, watched, |_| false).await
}

/// As [`patient`], for a caller that watches the lane itself: one [`given_up`] for all its calls
/// saves each of them a timer. An outcome that `settles` is returned whatever wait it asks for.
///
/// # Errors
/// When the service asks for a longer wait than `limit`, or those of `call`.
pub async fn unwatched<T, F: Future<Output = Result<CallOutcome<T>, Later>>>(
    lane: &LaneHandle,
    limit: Duration,
    mut call: impl FnMut(u32) -> F,
    settles: impl Fn(&CallOutcome<T>) -> bool,
) -> Result<CallOutcome<T>, Later> {
    let clock = lane.clock();
    let mut patience = Patience::new(limit);
    let mut number = 0;
    loop {
        let outcome = call(number).await?;
        if settles(&outcome) {
            return Ok(outcome);
        }
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
