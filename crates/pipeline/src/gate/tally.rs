//! What gates counted, and why one ended the run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a gate ended the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Halt {
    /// The name of the gate.
    pub gate: String,
    /// The first record of the batch that failed, from 0; `None` for a gate on counts.
    pub record: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.record {
            Some(record) => write!(f, "gate {}: record {record}: {}", self.gate, self.reason),
            None => write!(f, "gate {}: {}", self.gate, self.reason),
        }
    }
}

/// The counts of a gate over the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateTally {
    /// The name of the gate.
    pub gate: String,
    /// What happens to records that fail.
    pub severity: String,
    /// The number of records or values checked.
    pub looked: u64,
    /// The number that failed.
    pub failed: u64,
}

/// The state of a gate for metrics and reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its counts.
    pub tally: GateTally,
    /// The highest failure rate allowed, from 0 to 1.
    pub limit: f64,
    /// Whether it counts values that are null.
    pub nulls: bool,
    /// Whether it checks geometries.
    pub spatial: bool,
    /// Whether it halted the run.
    pub halted: bool,
}

impl GateTally {
    /// The failure rate, from 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.looked == 0 { 0.0 } else { self.failed as f64 / self.looked as f64 }
    }
}
