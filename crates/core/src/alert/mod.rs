//! Alerts: when a person should look, decided from readings in a sliding window.
//!
//! A driver hands over what was counted since the start, every second or so; this module keeps as
//! many readings as the window needs, takes differences, and says which of nine conditions hold
//! and which have just begun or ended. The same conditions, with the same thresholds, are shipped
//! as rules for Prometheus. Few calls prove nothing: below [`AlertLimits::calls_min`] in the window, the
//! conditions about calls are silent.

mod window;

#[cfg(test)]
mod tests;

use crate::time::Mono;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use window::ReadingWindow;

/// Buckets of retries per call that a reading carries, at most.
pub const BUCKETS: usize = 12;

/// The nine conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alert {
    /// Too many of the calls are retries.
    RetryRatio,
    /// Too few calls are answered at the first attempt.
    FirstAttemptSuccess,
    /// One call in a hundred uses up its retries.
    RetriesAtBound,
    /// Too much of the time goes into waiting between attempts.
    BackoffShare,
    /// The store of dead letters fills up.
    LettersFull,
    /// A dead letter has waited too long.
    LetterAge,
    /// A breaker is open.
    BreakerOpen,
    /// The share of nulls comes near its limit.
    NullRate,
    /// Refusals (503) have come up, and they are not timeouts behind the service (504).
    Spike503,
}

impl Alert {
    /// All of them.
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

    /// The name, in manifests, logs and metrics.
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

    /// What to do about it.
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
            Alert::LetterAge => "check the open letters with `tidegate dlq stats`",
            Alert::BreakerOpen => "the service is failing; calls wait until it responds again",
            Alert::NullRate => "the source has more nulls than usual; the gate is about to halt the run",
            Alert::Spike503 => "the service itself is overloaded, not a backend; lower the rate",
        }
    }
}

/// Where the conditions begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertLimits {
    /// Length of the sliding window in which calls are counted.
    pub window: Duration,
    /// Calls that the window must hold before shares of them mean anything.
    pub calls_min: u64,
    /// Retries per call sent, above which [`Alert::RetryRatio`] holds.
    pub retry_ratio: f64,
    /// The share of first attempts answered, below which [`Alert::FirstAttemptSuccess`] holds.
    pub first_attempt_success: f64,
    /// The share of the time in backoff, above which [`Alert::BackoffShare`] holds.
    pub backoff_share: f64,
    /// The share of the letters' capacity, from which on [`Alert::LettersFull`] holds.
    pub letters_full: f64,
    /// The age of the oldest open letter, above which [`Alert::LetterAge`] holds.
    pub letter_age: Duration,
    /// The share of the limit on nulls, from which on [`Alert::NullRate`] holds.
    pub null_rate: f64,
    /// The share of the responses that are 503, from which on [`Alert::Spike503`] holds if there
    /// are [`AlertLimits::spike_factor`] times as many as 504.
    pub spike_503: f64,
    /// How many 503 there must be for each 504.
    pub spike_factor: f64,
}

impl Default for AlertLimits {
    fn default() -> AlertLimits {
        AlertLimits {
            window: Duration::from_secs(300),
            calls_min: 20,
            retry_ratio: 0.15,
            first_attempt_success: 0.95,
            backoff_share: 0.10,
            letters_full: 0.70,
            letter_age: Duration::from_secs(86_400),
            null_rate: 0.80,
            spike_503: 0.05,
            spike_factor: 3.0,
        }
    }
}

/// What was counted, since the start unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlertReading {
    /// Attempts sent.
    pub attempts: u64,
    /// Of those, first ones.
    pub first_sent: u64,
    /// First ones that were answered.
    pub first_answered: u64,
    /// Retries.
    pub retries: u64,
    /// Calls by their retries: the upper ends of the buckets are the driver's.
    pub by_retries: [u64; BUCKETS],
    /// The first bucket in which calls have used up their retries; none if it is not known.
    pub bound_bucket: Option<usize>,
    /// Time spent in calls, in seconds.
    pub call_seconds: f64,
    /// Time spent in backoff between attempts, in seconds.
    pub backoff_seconds: f64,
    /// Responses.
    pub responses: u64,
    /// Of those, 503.
    pub status_503: u64,
    /// Of those, 504.
    pub status_504: u64,
    /// How full the store of letters is now; none if there is none.
    pub letters_full: Option<f64>,
    /// How old its oldest open letter is now.
    pub letter_age: Option<Duration>,
    /// Whether a breaker is open now.
    pub breaker_open: bool,
    /// The share of nulls over its limit now, the worst of all gates.
    pub null_share: Option<f64>,
}

/// An alert that has begun or ended.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertChange {
    /// Which.
    pub alert: Alert,
    /// Whether it has begun.
    pub firing: bool,
    /// What was read, in words, with the limit.
    pub said: String,
}

/// The alerts of a run.
#[derive(Clone, Debug)]
pub struct Alerts {
    limits: AlertLimits,
    window: ReadingWindow,
    /// Whether each of [`Alert::ALL`] fires.
    firing: [bool; 9],
}

impl Alerts {
    /// Nothing has been read yet.
    #[must_use]
    pub fn new(limits: AlertLimits) -> Alerts {
        Alerts { limits, window: ReadingWindow::new(limits.window), firing: [false; 9] }
    }

    /// Takes a reading in: what has begun, and what has ended.
    pub fn look(&mut self, now: Mono, reading: AlertReading) -> Vec<AlertChange> {
        let since = self.window.push(now, reading);
        let mut changes = Vec::new();
        for (alert, was) in Alert::ALL.into_iter().zip(&mut self.firing) {
            let (firing, said) = judge(alert, &self.limits, &reading, &since);
            if firing != *was {
                *was = firing;
                changes.push(AlertChange { alert, firing, said });
            }
        }
        changes
    }

    /// Which alerts fire now.
    pub fn firing(&self) -> impl Iterator<Item = (Alert, bool)> + '_ {
        Alert::ALL.into_iter().zip(self.firing.iter().copied())
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Whether a condition holds, and what was read. `since` is what the window holds.
fn judge(alert: Alert, limits: &AlertLimits, now: &AlertReading, since: &AlertReading) -> (bool, String) {
    let enough = since.attempts >= limits.calls_min;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    match alert {
        Alert::RetryRatio => {
            let ratio = share(since.retries as f64, since.attempts as f64);
            let said = format!(
                "{} of the calls are retries, the limit is {}",
                percent(ratio),
                percent(limits.retry_ratio)
            );
            (enough && ratio > limits.retry_ratio, said)
        }
        Alert::FirstAttemptSuccess => {
            let ratio = share(since.first_answered as f64, since.first_sent as f64);
            let said = format!(
                "{} of the calls succeed at the first attempt, the target is {}",
                percent(ratio),
                percent(limits.first_attempt_success)
            );
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
            let said = format!(
                "{} of the time is spent in backoff, the limit is {}",
                percent(ratio),
                percent(limits.backoff_share)
            );
            (enough && ratio > limits.backoff_share, said)
        }
        Alert::LettersFull => {
            let full = now.letters_full.unwrap_or(0.0);
            let said = format!(
                "the dead letter store is {} full, the limit is {}",
                percent(full),
                percent(limits.letters_full)
            );
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
            let said = format!(
                "nulls are at {} of the limit of a gate, the alert threshold is {}",
                percent(near),
                percent(limits.null_rate)
            );
            (near >= limits.null_rate, said)
        }
        Alert::Spike503 => {
            let (n, other) = (since.status_503, since.status_504);
            let ratio = share(n as f64, since.responses as f64);
            let said = format!(
                "{} of the responses have status 503 ({n}, compared with {other} with status 504)",
                percent(ratio)
            );
            let spike = ratio >= limits.spike_503 && n as f64 > limits.spike_factor * other as f64;
            (enough && spike, said)
        }
    }
}
