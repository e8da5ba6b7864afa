//! Evaluates alerts, logs them and runs their actions.
//!
//! Actions never delay or end the run: a webhook that does not answer and a command that does not
//! end are given up after [`PATIENCE`], which is logged. Every alert is logged, whatever its
//! actions.

mod act;

pub use act::post;

use crate::error::SetupError;
use crate::manifest;
use crate::telemetry::Telemetry;
use act::PreparedAction;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Mono;
use tidegate_core::alert::{Alert, AlertChange, AlertLimits, Alerts};
use tidegate_core::time::seconds;
use tracing::{info, warn};

/// The most alerts that are kept; `serve` runs for months, and the latest are kept.
const FIRED_MAX: usize = 1000;

/// The timeout of a webhook or a command.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An alert that has fired.
#[derive(Clone, Debug, PartialEq)]
pub struct Fired {
    /// The alert.
    pub alert: Alert,
    /// Time at which it started to fire, since the watch began.
    pub at: Duration,
    /// Time at which it stopped, since the watch began; `None` if it still fires.
    pub ended: Option<Duration>,
    /// The message when it started.
    pub said: String,
    /// The recommended action.
    pub advice: String,
}

/// Evaluates the alerts of one run.
pub struct Watchman {
    telemetry: Arc<Telemetry>,
    alerts: Alerts,
    off: Vec<Alert>,
    actions: Arc<Actions>,
    fired: Vec<Fired>,
    store: Option<String>,
}

impl Watchman {
    /// Evaluates the alerts of a manifest, or those with the default limits.
    ///
    /// # Errors
    /// An action that cannot work: an invalid webhook URL, a missing key.
    pub fn new(
        telemetry: &Arc<Telemetry>,
        form: Option<&manifest::AlertsSpec>,
    ) -> Result<Watchman, SetupError> {
        let form = form.cloned().unwrap_or_default();
        let mut actions = Vec::new();
        for (at, action) in form.actions.iter().enumerate() {
            actions.push(PreparedAction::new(action).map_err(|e| format!("alerts.actions[{at}]: {e}"))?);
        }
        Ok(Watchman {
            telemetry: Arc::clone(telemetry),
            alerts: Alerts::new(limits(&form)),
            off: form.off.iter().map(|name| name.alert()).collect(),
            actions: Arc::new(Actions(actions)),
            fired: Vec::new(),
            store: None,
        })
    }

    /// Sets the dead-letter store that is monitored, for the log and the advice.
    #[must_use]
    pub fn of_store(self, store: &str) -> Watchman {
        Watchman { store: Some(store.to_owned()), ..self }
    }

    /// Evaluates the alerts: logs and returns those that started or stopped. [`Actions::act`] runs
    /// the actions.
    pub fn look(&mut self, at: Duration) -> Vec<AlertChange> {
        let mut changes = self.alerts.look(Mono::ZERO + at, self.telemetry.reading());
        changes.retain(|change| !self.off.contains(&change.alert));
        for change in &changes {
            self.note(change, at);
        }
        let firing = self.alerts.firing().filter(|(alert, _)| !self.off.contains(alert));
        self.telemetry.alerts(firing.map(|(alert, firing)| (alert.name(), firing)).collect());
        changes
    }

    fn note(&mut self, change: &AlertChange, at: Duration) {
        let (alert, said, store) = (change.alert.name(), change.said.as_str(), self.store.as_deref());
        if change.firing {
            let advice = change.alert.advice_for(store);
            warn!(target: "tidegate::alert", alert, store, "{said}: {advice}");
            let over = self.fired.iter().position(|fired| fired.ended.is_some());
            if let Some(over) = over.filter(|_| self.fired.len() >= FIRED_MAX) {
                self.fired.remove(over);
            }
            let said = said.to_owned();
            self.fired.push(Fired { alert: change.alert, at, ended: None, said, advice });
        } else {
            info!(target: "tidegate::alert", alert, store, "resolved: {said}");
            if let Some(fired) = self.fired.iter_mut().rev().find(|fired| fired.alert == change.alert) {
                fired.ended = Some(at);
            }
        }
    }

    /// The actions.
    #[must_use]
    pub fn actions(&self) -> Arc<Actions> {
        Arc::clone(&self.actions)
    }

    /// All alerts that have fired, in order.
    #[must_use]
    pub fn fired(&self) -> &[Fired] {
        &self.fired
    }

    /// Whether one of them sets the exit code.
    #[must_use]
    pub fn exits(&self) -> bool {
        self.fired.iter().any(|fired| self.actions.0.iter().any(|a| a.exit_code && a.wants(fired.alert)))
    }
}

/// The actions of alerts.
pub struct Actions(Vec<PreparedAction>);

impl Actions {
    /// Runs the actions for a change of the alerts of this pipeline and its dead-letter store,
    /// concurrently.
    pub async fn act(&self, change: &AlertChange, pipeline: &str, store: Option<&str>) {
        let doing = self.0.iter().filter(|action| action.wants(change.alert)).map(|action| async move {
            if let Err(why) = action.act(change, pipeline, store).await {
                warn!(target: "tidegate::alert", alert = change.alert.name(), "{why}");
            }
        });
        futures_util::future::join_all(doing).await;
    }
}

fn limits(form: &manifest::AlertsSpec) -> AlertLimits {
    AlertLimits {
        window: seconds(form.window_seconds),
        calls_min: form.minimum_calls.into(),
        time_min: seconds(form.minimum_time_seconds),
        retry_ratio: form.retry_ratio,
        first_attempt_success: form.first_attempt_success,
        backoff_share: form.backoff_share,
        letters_full: form.letters_full,
        letter_age: seconds(form.letter_age_seconds),
        null_rate: form.null_rate,
        spike_503: form.spike_503,
        ..AlertLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_s_defaults_are_the_core_s() {
        assert_eq!(limits(&manifest::AlertsSpec::default()), AlertLimits::default());
        let names: Vec<&str> = Alert::ALL.iter().map(|alert| alert.name()).collect();
        let forms: Vec<String> = Alert::ALL
            .iter()
            .map(|alert| serde_json::to_value(manifest::AlertName::of(*alert)).unwrap())
            .map(|name| name.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, forms);
    }

    #[test]
    fn an_alert_that_is_off_is_not_told() {
        let telemetry = Arc::new(Telemetry::new("p"));
        telemetry.letters(crate::letter::store::Health { letters: 9, capacity: 10, ..Default::default() });
        let mut usual = Watchman::new(&telemetry, None).unwrap();
        assert_eq!(usual.look(Duration::from_secs(1)).len(), 1);
        assert_eq!(usual.fired()[0].said, "the dead letter store is 90.0 % full, the limit is 70.0 %");
        assert!(
            telemetry
                .prometheus()
                .contains("tidegate_alert_firing{pipeline=\"p\",alert=\"letters_full\"} 1\n")
        );
        let off = manifest::AlertsSpec { off: vec![manifest::AlertName::LettersFull], ..Default::default() };
        let mut silent = Watchman::new(&telemetry, Some(&off)).unwrap();
        assert_eq!(silent.look(Duration::from_secs(1)).len(), 0);
        assert!(silent.fired().is_empty());
    }
}
