//! Alerts: conditions that need attention, evaluated over a sliding window.
//!
//! About once a second a driver passes its counters since the start. This module keeps the readings
//! of the window, computes differences, and reports which of nine conditions have started or
//! stopped. The same conditions with the same thresholds ship as Prometheus rules. With fewer than
//! [`AlertLimits::calls_min`] calls in the window, the conditions about calls never hold, because
//! the sample is too small; and they must hold for [`AlertLimits::time_min`], because a warning that
//! is over before anybody has read it is noise.

mod window;

#[cfg(test)]
mod tests;

use crate::quote::shell;
use crate::time::Mono;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use window::ReadingWindow;

/// The maximum number of buckets in the histogram of retries per call.
pub const BUCKETS: usize = 12;

/// One of the nine conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alert {
    /// The share of retries among the attempts is too high.
    RetryRatio,
    /// Too few first attempts get an answer.
    FirstAttemptSuccess,
    /// At least 1 % of the calls exhaust their retries.
    RetriesAtBound,
    /// Too much time is spent in backoff between attempts.
    BackoffShare,
    /// The store of dead letters is nearly full.
    LettersFull,
    /// The oldest open dead letter is too old.
    LetterAge,
    /// A breaker is open.
    BreakerOpen,
    /// The share of nulls is close to its limit.
    NullRate,
    /// Many responses are 503 (the service is overloaded) and few are 504 (a backend is slow).
    Spike503,
}

impl Alert {
    /// All alerts.
    pub const ALL: [Alert; 9] = [
        Alert::RetryRatio,
        Alert::FirstAttemptSuccess,
        Alert::RetriesAtBound,
        Alert::BackoffShare,
        Alert::LettersFull,
        Alert::LetterAge,
        Alert::BreakerOpen,
        Alert::NullRate,
        Alert::Spike503,
    ];

    /// The name in manifests, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Alert::RetryRatio => "retry_ratio",
            Alert::FirstAttemptSuccess => "first_attempt_success",
            Alert::RetriesAtBound => "retries_at_bound",
            Alert::BackoffShare => "backoff_share",
            Alert::LettersFull => "letters_full",
            Alert::LetterAge => "letter_age",
            Alert::BreakerOpen => "breaker_open",
            Alert::NullRate => "null_rate",
            Alert::Spike503 => "spike_503",
        }
    }

    /// Whether the condition is about a share of the calls, which needs enough calls and time.
    #[must_use]
    pub const fn is_about_calls(self) -> bool {
        match self {
            Alert::RetryRatio
            | Alert::FirstAttemptSuccess
            | Alert::RetriesAtBound
            | Alert::BackoffShare
            | Alert::Spike503 => true,
            Alert::LettersFull | Alert::LetterAge | Alert::BreakerOpen | Alert::NullRate => false,
        }
    }

    /// The recommended action, with the command that shows the letters of this store if it is about
    /// letters.
    #[must_use]
    pub fn advice_for(self, store: Option<&str>) -> String {
        match (self, store) {
            (Alert::LettersFull | Alert::LetterAge, Some(store)) => {
                format!("{}: `tidegate dlq stats --store {}`", self.advice(), shell(store))
            }
            _ => self.advice().to_owned(),
        }
    }

    /// The recommended action.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Alert::RetryRatio => {
                "the service rejects or fails too many calls; lower the rate or contact the provider"
            }
            Alert::FirstAttemptSuccess => {
                "check the status codes: lower the rate if calls are throttled, contact the provider if they fail"
            }
            Alert::RetriesAtBound => {
                "records are about to be rejected; find the cause before raising max_attempts"
            }
            Alert::BackoffShare => "the run spends most of its time waiting; a lower rate may finish sooner",
            Alert::LettersFull => {
                "replay, archive or purge letters before the store is full and the run stops"
            }
            Alert::LetterAge => "check the open letters; fix, replay or purge them",
            Alert::BreakerOpen => "the service is failing; calls wait until it responds again",
            Alert::NullRate => "the source has more nulls than usual; the gate is about to halt the run",
            Alert::Spike503 => "the service itself is overloaded, not a backend; lower the rate",
        }
    }
}

/// The thresholds of the alerts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertLimits {
    /// The length of the sliding window in which calls are counted.
    pub window: Duration,
    /// The minimum number of attempts in the window for the conditions about calls.
    pub calls_min: u64,
    /// How long the conditions about calls must hold before they fire.
    pub time_min: Duration,
    /// [`Alert::RetryRatio`] holds if the share (0 to 1) of retries among the attempts is above this.
    pub retry_ratio: f64,
    /// [`Alert::FirstAttemptSuccess`] holds if the share (0 to 1) of answered first attempts is
    /// below this.
    pub first_attempt_success: f64,
    /// [`Alert::BackoffShare`] holds if the share (0 to 1) of time in backoff is above this.
    pub backoff_share: f64,
    /// [`Alert::LettersFull`] holds if this share (0 to 1) of the capacity is used.
    pub letters_full: f64,
    /// [`Alert::LetterAge`] holds if the oldest open letter is older than this.
    pub letter_age: Duration,
    /// [`Alert::NullRate`] holds if the nulls reach this share (0 to 1) of their limit.
    pub null_rate: f64,
    /// [`Alert::Spike503`] holds if the share (0 to 1) of responses with status 503 reaches this and
    /// there are more than [`AlertLimits::spike_factor`] times as many as with 504.
    pub spike_503: f64,
    /// The ratio of 503 to 504 responses that must be exceeded.
    pub spike_factor: f64,
}

impl AlertLimits {
    /// The default thresholds.
    pub const DEFAULT: AlertLimits = AlertLimits {
        window: Duration::from_secs(300),
        calls_min: 20,
        time_min: Duration::from_secs(60),
        retry_ratio: 0.15,
        first_attempt_success: 0.95,
        backoff_share: 0.10,
        letters_full: 0.70,
        letter_age: Duration::from_secs(86_400),
        null_rate: 0.80,
        spike_503: 0.05,
        spike_factor: 3.0,
    };
}

impl Default for AlertLimits {
    fn default() -> AlertLimits {
        AlertLimits::DEFAULT
    }
}

/// The counters of a run, since its start unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlertReading {
    /// The number of attempts sent.
    pub attempts: u64,
    /// The number of first attempts sent.
    pub first_sent: u64,
    /// The number of first attempts that got an answer.
    pub first_answered: u64,
    /// The number of retries sent.
    pub retries: u64,
    /// The number of calls by their retries. The driver defines the upper bounds of the buckets.
    pub by_retries: [u64; BUCKETS],
    /// The first bucket of calls that have exhausted their retries; `None` if it is not known.
    pub bound_bucket: Option<usize>,
    /// Time spent in calls, in seconds.
    pub call_seconds: f64,
    /// Time spent in backoff between attempts, in seconds.
    pub backoff_seconds: f64,
    /// The number of responses.
    pub responses: u64,
    /// The number of responses with status 503.
    pub status_503: u64,
    /// The number of responses with status 504.
    pub status_504: u64,
    /// The used share (0 to 1) of the capacity of the dead letter store, now; `None` without a store.
    pub letters_full: Option<f64>,
    /// The age of the oldest open letter, now.
    pub letter_age: Option<Duration>,
    /// Whether a breaker is open now.
    pub breaker_open: bool,
    /// The share of nulls divided by its limit, now; the highest of all gates.
    pub null_share: Option<f64>,
}

/// An alert that has started or stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertChange {
    /// The alert.
    pub alert: Alert,
    /// Whether it has started.
    pub firing: bool,
    /// The measured value and its threshold, as a sentence.
    pub said: String,
}

/// The alerts of a run.
#[derive(Clone, Debug)]
pub struct Alerts {
    limits: AlertLimits,
    window: ReadingWindow,
    /// Whether each alert of [`Alert::ALL`] fires.
    firing: [bool; 9],
    /// Since when the condition of each has held.
    held_since: [Option<Mono>; 9],
}

impl Alerts {
    /// Creates alerts without readings; none fires.
    #[must_use]
    pub fn new(limits: AlertLimits) -> Alerts {
        Alerts {
            limits,
            window: ReadingWindow::new(limits.window),
            firing: [false; 9],
            held_since: [None; 9],
        }
    }

    /// Adds a reading and returns the alerts that have started or stopped.
    pub fn look(&mut self, now: Mono, reading: AlertReading) -> Vec<AlertChange> {
        let since = self.window.push(now, reading);
        let mut changes = Vec::new();
        let states = self.firing.iter_mut().zip(&mut self.held_since);
        for (alert, (was, held_since)) in Alert::ALL.into_iter().zip(states) {
            let (holds, said) = judge(alert, &self.limits, &reading, &since);
            let from = *held_since.get_or_insert(now);
            if !holds {
                *held_since = None;
            }
            let time_min = if alert.is_about_calls() { self.limits.time_min } else { Duration::ZERO };
            let firing = holds && (*was || now.since(from) >= time_min);
            if firing != *was {
                *was = firing;
                changes.push(AlertChange { alert, firing, said });
            }
        }
        changes
    }

    /// Every alert, and whether it fires now.
    pub fn firing(&self) -> impl Iterator<Item = (Alert, bool)> + '_ {
        Alert::ALL.into_iter().zip(self.firing.iter().copied())
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A share and its threshold in percent, with as many decimals as it takes to see that they differ.
fn percents(share: f64, limit: f64) -> (String, String) {
    let text = |share: f64, decimals: usize| format!("{:.decimals$} %", share * 100.0);
    let decimals = (1..6).find(|n| text(share, *n) != text(limit, *n)).unwrap_or(1);
    (text(share, decimals), text(limit, decimals))
}

/// Returns whether a condition holds, and the measured value as a sentence. `since` has the counts
/// of the window.
fn judge(alert: Alert, limits: &AlertLimits, now: &AlertReading, since: &AlertReading) -> (bool, String) {
    let enough = since.attempts >= limits.calls_min;
    match alert {
        Alert::RetryRatio => {
            let ratio = share(since.retries as f64, since.attempts as f64);
            let (ratio_text, limit) = percents(ratio, limits.retry_ratio);
            let said = format!("{ratio_text} of the calls are retries, the limit is {limit}");
            (enough && ratio > limits.retry_ratio, said)
        }
        Alert::FirstAttemptSuccess => {
            let ratio = share(since.first_answered as f64, since.first_sent as f64);
            let (ratio_text, target) = percents(ratio, limits.first_attempt_success);
            let said =
                format!("{ratio_text} of the calls succeed at the first attempt, the target is {target}");
            (since.first_sent >= limits.calls_min && ratio < limits.first_attempt_success, said)
        }
        Alert::RetriesAtBound => {
            let calls: u64 = since.by_retries.iter().sum();
            let bound = now.bound_bucket.unwrap_or(BUCKETS);
            let used_up: u64 = since.by_retries.iter().skip(bound).sum();
            let said = format!("{used_up} of {calls} calls have exhausted their retries, 1 % or more");
            (enough && used_up > 0 && used_up * 100 >= calls, said)
        }
        Alert::BackoffShare => {
            let ratio = share(since.backoff_seconds, since.backoff_seconds + since.call_seconds);
            let (ratio_text, limit) = percents(ratio, limits.backoff_share);
            let said = format!("{ratio_text} of the time is spent in backoff, the limit is {limit}");
            (enough && ratio > limits.backoff_share, said)
        }
        Alert::LettersFull => {
            let full = now.letters_full.unwrap_or(0.0);
            let (full_text, limit) = percents(full, limits.letters_full);
            let said = format!("the dead letter store is {full_text} full, the limit is {limit}");
            (full >= limits.letters_full, said)
        }
        Alert::LetterAge => {
            let age = now.letter_age.unwrap_or_default();
            let hours = |span: Duration| span.as_secs_f64() / 3600.0;
            let said = format!(
                "the oldest open letter is {:.1} hours old, the limit is {:.1}",
                hours(age),
                hours(limits.letter_age)
            );
            (age > limits.letter_age, said)
        }
        Alert::BreakerOpen => (now.breaker_open, String::from("a circuit breaker is open")),
        Alert::NullRate => {
            let near = now.null_share.unwrap_or(0.0);
            let (near_text, limit) = percents(near, limits.null_rate);
            let said =
                format!("nulls are at {near_text} of the limit of a gate, the alert threshold is {limit}");
            (near >= limits.null_rate, said)
        }
        Alert::Spike503 => {
            let (n, other) = (since.status_503, since.status_504);
            let ratio = share(n as f64, since.responses as f64);
            let said = format!(
                "{:.1} % of the responses have status 503 ({n}, compared with {other} with status 504)",
                ratio * 100.0
            );
            let spike = ratio >= limits.spike_503 && n as f64 > limits.spike_factor * other as f64;
            (enough && spike, said)
        }
    }
}
