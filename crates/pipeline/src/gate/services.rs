//! The tolerance of a service: `max_reject_rate`, the share of the records that may fail at the
//! steps that call it.
//!
//! It is a gate like the others: counted over the run, kept in the checkpoint, judged before each
//! commit.

use super::{GateTally, Halt, Reading};
use crate::manifest::{Manifest, StepSpec};
use crate::run::step_label;
use crate::step::{Aside, Reject};

/// The gate of one service.
pub(super) struct ServiceGate {
    /// The labels of the steps that call it.
    stages: Vec<String>,
    /// The highest failure rate allowed, from 0 to 1.
    pub(super) max_rate: f64,
    pub(super) tally: GateTally,
}

/// The service that a step calls.
fn called(step: &StepSpec) -> Option<&str> {
    let geocode = step.geocode.as_ref().map(|geocode| geocode.service.as_str());
    geocode.or(step.http.as_ref().map(|http| http.service.as_str()))
}

/// The gates of the services of a manifest that have a tolerance.
pub(super) fn of(manifest: &Manifest) -> Vec<ServiceGate> {
    let pipeline = &manifest.pipeline;
    let gate = |(name, form): (&String, &crate::manifest::ServiceSpec)| {
        let steps = pipeline.steps.iter().enumerate().filter(|(_, step)| called(step) == Some(name));
        let tally =
            GateTally { gate: format!("services.{name}"), severity: "reject".into(), ..GateTally::default() };
        Some(ServiceGate {
            stages: steps.map(|(at, step)| step_label(at, step)).collect(),
            max_rate: form.max_reject_rate?,
            tally,
        })
    };
    pipeline.services.iter().filter_map(gate).collect()
}

impl ServiceGate {
    /// Adds the records of a batch that failed at the steps of the service, and halts if there are
    /// too many. `read` is the number of records in the batch when it was read.
    pub(super) fn judge(&mut self, aside: &Aside, read: u64) -> Result<(), Halt> {
        let here = |reject: &&Reject| self.stages.contains(&reject.stage);
        let rejects = || aside.rejected.iter().chain(&aside.failed).filter(here);
        let failed = rejects().count() as u64;
        self.tally.looked += read;
        self.tally.failed += failed;
        if failed == 0 || self.tally.rate() <= self.max_rate {
            return Ok(());
        }
        let first = rejects().next();
        let why = first.and_then(|reject| reject.problems.first()).map_or_else(String::new, super::describe);
        let reason = format!(
            "{why}; {} of {} records in the run so far failed at this service, above `max_reject_rate`, which is {}",
            self.tally.failed, self.tally.looked, self.max_rate
        );
        Err(Halt { gate: self.tally.gate.clone(), record: first.map(|reject| reject.record), reason })
    }

    pub(super) fn reading(&self, halted: Option<&str>) -> Reading {
        Reading {
            tally: self.tally.clone(),
            limit: self.max_rate,
            nulls: false,
            spatial: false,
            halted: halted == Some(self.tally.gate.as_str()),
        }
    }
}
