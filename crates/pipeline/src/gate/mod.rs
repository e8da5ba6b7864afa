//! Gates: conditions that must hold before a batch is committed.
//!
//! A gate checks each record, or the batch as a whole, and counts failures. One rule decides what
//! follows:
//!
//! | severity | a record that fails | the failure rate exceeds `max_rate` |
//! |---|---|---|
//! | warn | continues | is reported at the end |
//! | reject | becomes a dead letter | halts the run (never, by default) |
//! | halt | continues, below the rate | halts the run (at the first failure, by default) |
//!
//! The rate is that of one batch or of the run so far, and is checked before each commit. A halt
//! leaves the batch uncommitted. `tolerance` is a short notation for three gates.
//!
//! The counts of the run are part of the checkpoint, so that a resumed run judges as if it had
//! never stopped.

mod check;
mod declared;
pub(crate) mod deletions;
pub(crate) mod drift;
mod live;
mod services;
mod tally;

use std::collections::HashSet;
use std::path::Path;

use tidegate_core::Code;
use tidegate_geo::{Batch, Problem};

use crate::error::SetupError;
use crate::manifest::{Check, Manifest, Severity};
use crate::run::step_label;
use crate::step::{Aside, Flow, Reject, SeenKey};
use check::BoundCheck;
pub use declared::{DeclaredGate, all_gates, declared};
use drift::{Baseline, DriftCheck};
use live::{GateFindings, Live};
use services::ServiceGate;
pub use tally::{GateTally, Halt, Reading};

/// The first scope of gates; those of steps are below.
pub const SCOPE: u16 = 1000;

/// All gates of a pipeline.
pub struct Gates {
    live: Vec<Live>,
    /// The tolerances of steps.
    steps: Vec<StepLimit>,
    /// The tolerances of services.
    services: Vec<ServiceGate>,
    /// The numbers of the last run, if there is a gate on them.
    baseline: Baseline,
    /// Whether numbers are taken as they are: a person has looked at them.
    accepts_drift: bool,
}

/// The highest share of records that a step may reject.
struct StepLimit {
    max_rate: f64,
    tally: GateTally,
}

impl Gates {
    /// The gates of a manifest, for records as they leave the last step.
    ///
    /// # Errors
    /// When the records do not have a field of a gate.
    pub fn new(manifest: &Manifest, flow: &Flow) -> Result<Gates, SetupError> {
        let mut live = Vec::new();
        let degrees = flow.crs.as_ref().is_some_and(tidegate_geo::Crs::is_wgs84);
        for (scope, DeclaredGate { form, label, severity, max_rate, .. }) in
            (SCOPE..).zip(declared(manifest, degrees))
        {
            let judge = BoundCheck::new(&form, flow).map_err(|e| format!("{label}: {e}"))?;
            let drift = match form.check {
                Check::Drift => {
                    Some(DriftCheck::new(&form, manifest, flow).map_err(|e| format!("{label}: {e}"))?)
                }
                _ => None,
            };
            let tally =
                GateTally { gate: label.clone(), severity: word(severity).into(), ..GateTally::default() };
            live.push(Live {
                form,
                label,
                scope,
                severity,
                max_rate,
                judge,
                drift,
                tally,
                seen: HashSet::new(),
            });
        }
        // Unique and drift checks run last, so that a record rejected for another reason does not count
        // as seen.
        live.sort_by_key(|gate| match gate.form.check {
            Check::Drift => 2,
            Check::Unique => 1,
            _ => 0,
        });
        let steps = manifest.pipeline.steps.iter().enumerate().filter_map(|(at, form)| {
            let gate = step_label(at, form);
            let tally = GateTally { gate, severity: word(Severity::Halt).into(), ..GateTally::default() };
            Some(StepLimit { max_rate: form.max_reject_rate?, tally })
        });
        Ok(Gates {
            live,
            steps: steps.collect(),
            services: services::of(manifest),
            baseline: Baseline::default(),
            accepts_drift: false,
        })
    }

    /// Compares with the numbers of the last run in this state directory, and notes those of this one.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn open_baseline(&mut self, dir: &Path, resumed: bool) -> Result<(), String> {
        if self.live.iter().any(|gate| gate.drift.is_some()) {
            self.baseline = Baseline::open(dir, resumed)?;
        }
        Ok(())
    }

    /// Writes the numbers of the batches that were judged to the disk, before they are committed.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn write_notes(&mut self) -> Result<(), String> {
        self.baseline.write()
    }

    /// The same gates for single replayed records: rates are ignored, and a failure that would halt
    /// a run only rejects the record. Gates on the whole run do not apply.
    #[must_use]
    pub fn one_by_one(mut self) -> Gates {
        self.steps.clear();
        self.services.clear();
        self.accepts_drift = true;
        self.live.retain(|gate| !matches!(gate.form.check, Check::NullRate | Check::Count | Check::Unique));
        for gate in &mut self.live {
            gate.max_rate = 1.0;
            if gate.severity == Severity::Halt {
                gate.severity = Severity::Reject;
            }
        }
        self
    }

    /// The name, severity and highest failure rate of each gate, for a plan.
    pub fn list(&self) -> impl Iterator<Item = (&str, &'static str, f64)> {
        let steps =
            self.steps.iter().map(|step| (step.tally.gate.as_str(), word(Severity::Halt), step.max_rate));
        let services = self.services.iter().map(|gate| (gate.tally.gate.as_str(), "reject", gate.max_rate));
        let live = self.live.iter().map(|gate| (gate.label.as_str(), word(gate.severity), gate.max_rate));
        live.chain(steps).chain(services)
    }

    /// The counts so far.
    #[must_use]
    pub fn tallies(&self) -> Vec<GateTally> {
        let steps = self.steps.iter().map(|step| &step.tally);
        let services = self.services.iter().map(|gate| &gate.tally);
        self.live.iter().map(|gate| &gate.tally).chain(steps).chain(services).cloned().collect()
    }

    /// The state of all gates, and which of them halted the run.
    #[must_use]
    pub fn readings(&self, halted: Option<&str>) -> Vec<Reading> {
        let read = |gate: &Live| Reading {
            tally: gate.tally.clone(),
            limit: gate.max_rate,
            nulls: gate.form.check == Check::NullRate,
            spatial: gate.form.check.is_spatial(),
            halted: halted == Some(gate.label.as_str()),
        };
        let of_step = |step: &StepLimit| Reading {
            tally: step.tally.clone(),
            limit: step.max_rate,
            nulls: false,
            spatial: false,
            halted: halted == Some(step.tally.gate.as_str()),
        };
        let steps = self.steps.iter().map(of_step);
        let services = self.services.iter().map(|gate| gate.reading(halted));
        self.live.iter().map(read).chain(steps).chain(services).collect()
    }

    /// Continues with the counts of an earlier run. A gate added since then starts at zero.
    pub fn restore(&mut self, tallies: &[GateTally]) {
        let own = self.live.iter_mut().map(|gate| &mut gate.tally);
        let steps = self.steps.iter_mut().map(|step| &mut step.tally);
        let services = self.services.iter_mut().map(|gate| &mut gate.tally);
        for tally in own.chain(steps).chain(services) {
            if let Some(known) = tallies.iter().find(|known| known.gate == tally.gate) {
                (tally.looked, tally.failed) = (known.looked, known.failed);
            }
        }
    }

    /// Adds, before a resume, a key that was committed.
    pub fn remember(&mut self, seen: &SeenKey) {
        for gate in self.live.iter_mut().filter(|gate| gate.scope == seen.scope) {
            gate.seen.insert(seen.hash);
        }
    }

    /// Counts unreadable records as invalid if their geometry is the cause.
    ///
    /// # Errors
    /// When a gate halts the run.
    pub fn unreadable(&mut self, rejects: &[Reject]) -> Result<(), Halt> {
        for gate in self.live.iter_mut().filter(|gate| gate.form.check == Check::IsValid) {
            let broken = rejects.iter().filter_map(|reject| {
                let problem =
                    reject.problems.iter().find(|problem| problem.code == Code::INVALID_GEOMETRY)?;
                Some((reject.record, problem.message.clone()))
            });
            let broken: Vec<_> = broken.collect();
            let count = broken.len() as u64;
            gate.settle(GateFindings { looked: count, failed: count, first: broken.into_iter().next() })?;
        }
        Ok(())
    }

    /// Counts the records of a batch that steps rejected, of all that were read.
    ///
    /// # Errors
    /// When a step has rejected more than it may. Then nothing of the batch may be committed.
    pub fn step_rejects(&mut self, read: u64, rejects: &[Reject]) -> Result<(), Halt> {
        for StepLimit { max_rate, tally } in &mut self.steps {
            let own: Vec<_> = rejects.iter().filter(|reject| reject.stage == tally.gate).collect();
            tally.looked += read;
            tally.failed += own.len() as u64;
            let Some(last) = own.last().filter(|_| tally.rate() > *max_rate) else { continue };
            let said = last.problems.first().map_or_else(String::new, describe);
            let limit = (*max_rate * 1e8).round() / 1e6;
            let reason = format!(
                "{said}; {} of {} in the run so far were rejected, above the limit of {limit} %",
                tally.failed, tally.looked
            );
            return Err(Halt { gate: tally.gate.clone(), record: Some(last.record), reason });
        }
        Ok(())
    }

    /// Judges what became of a batch of `read` records at the steps that call services.
    ///
    /// # Errors
    /// When more failed than a service may. Then nothing of the batch may be committed.
    pub fn called(&mut self, aside: &Aside, read: u64) -> Result<(), Halt> {
        self.services.iter_mut().try_for_each(|gate| gate.judge(aside, read))
    }

    /// Judges a batch; returns what may be committed.
    ///
    /// # Errors
    /// When a gate halts the run. Then nothing of the batch may be committed.
    pub fn judge(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, Halt> {
        let mut refused: Vec<(usize, Problem)> = Vec::new();
        let (baseline, accepts_drift) = (&mut self.baseline, self.accepts_drift);
        for gate in &mut self.live {
            let mut found = GateFindings::default();
            match gate.form.check {
                Check::Count => continue,
                Check::NullRate => gate.judge.nulls(&batch, &mut found),
                _ => {
                    found.looked = batch.len() as u64;
                    for row in 0..batch.len() {
                        let gone = || refused.iter().any(|(other, _)| *other == row);
                        let is_last = matches!(gate.form.check, Check::Unique | Check::Drift);
                        if is_last && !refused.is_empty() && gone() {
                            continue;
                        }
                        let found_wrong = match gate.drift {
                            Some(_) => gate.drifted(&batch, row, (&mut *baseline, accepts_drift)),
                            None => gate.record(&batch, row, aside),
                        };
                        let Some(problem) = found_wrong else { continue };
                        found.failed += 1;
                        if found.first.is_none() {
                            found.first = Some((batch.record(row), describe(&problem)));
                        }
                        if gate.severity == Severity::Reject {
                            let message = format!("{}: {}", gate.label, problem.message);
                            refused.push((row, Problem { message, ..problem }));
                        }
                    }
                }
            }
            gate.settle(found)?;
        }
        refused.sort_by_key(|(row, _)| *row);
        aside.stage = "gate".into();
        Ok(aside.set_aside(batch, refused))
    }

    /// Judges the run as a whole before its last batch is committed. `committed` is the number of
    /// records including it.
    ///
    /// # Errors
    /// When a gate halts the run. Then the last batch may not be committed.
    pub fn end(&mut self, committed: u64) -> Result<(), Halt> {
        for gate in self.live.iter_mut().filter(|gate| gate.form.check == Check::Count) {
            let (min, max) = (gate.form.min, gate.form.max);
            let fits = min.is_none_or(|min| committed as f64 >= min)
                && max.is_none_or(|max| committed as f64 <= max);
            let wanted = match (min, max) {
                (Some(min), Some(max)) if min == max => format!("exactly {min}"),
                (Some(min), Some(max)) => format!("{min} to {max}"),
                (Some(min), None) => format!("at least {min}"),
                (None, Some(max)) => format!("at most {max}"),
                (None, None) => "any number of".into(),
            };
            gate.tally.looked = 1;
            gate.tally.failed = u64::from(!fits);
            if !fits && gate.severity == Severity::Halt {
                let reason = format!("{committed} records would be committed, but {wanted} are expected");
                return Err(Halt { gate: gate.label.clone(), record: None, reason });
            }
        }
        Ok(())
    }

    /// The warnings of gates that only warn.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warns = |gate: &&Live| gate.severity == Severity::Warn && gate.tally.rate() > gate.max_rate;
        let told = |gate: &Live| {
            format!("gate {}: {} of {} failed", gate.label, gate.tally.failed, gate.tally.looked)
        };
        self.live.iter().filter(warns).map(told).collect()
    }
}

fn describe(problem: &Problem) -> String {
    if problem.path.is_empty() {
        problem.message.clone()
    } else {
        format!("{}: {}", problem.path, problem.message)
    }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warn => "warn",
        Severity::Reject => "reject",
        Severity::Halt => "halt",
    }
}
