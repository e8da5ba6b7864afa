//! Checks whether a pipeline can run here and now.
//!
//! It changes nothing: a directory is tested with a file that is deleted at once, a store is opened
//! read-only and only if it exists, a service gets one request for its URL, a queue is asked for its
//! state. If the source is a
//! service and answers, it is then asked what a plan asks. Each finding says what was checked, the
//! result, and what to do next.
//!
//! | file | looks at |
//! |---|---|
//! | `local` | state, audit, dead letters, source, steps, sink, coordinate reference systems, secrets |
//! | `queue` | the queue of a worker: what it promises, its depth, settings that lose messages |
//! | `remote` | services, files and buckets elsewhere: name, address, certificate, clock, quota |

#[cfg(not(feature = "postgres"))]
#[path = "no_database.rs"]
mod database;
#[cfg(feature = "postgres")]
mod database;
mod local;
mod queue;
mod remote;

use std::path::Path;

use serde::Serialize;

use crate::manifest::Manifest;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthLevel {
    /// No problem.
    Ok,
    /// A run works, but perhaps not as intended.
    Warn,
    /// A run cannot work.
    Fail,
}

impl HealthLevel {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HealthLevel::Ok => "ok",
            HealthLevel::Warn => "warn",
            HealthLevel::Fail => "fail",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What was checked: `state`, `sink`, `service geo: clock`.
    pub check: String,
    /// The result.
    pub health: HealthLevel,
    /// What was found.
    pub found: String,
    /// What to do next; `None` if there is no problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether the cause is remote, so that it may pass with time.
    #[serde(skip)]
    pub theirs: bool,
}

impl Diagnosis {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Diagnosis {
        Diagnosis {
            check: check.into(),
            health: HealthLevel::Ok,
            found: found.into(),
            next: None,
            theirs: false,
        }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, next: impl Into<String>) -> Diagnosis {
        Diagnosis { health: HealthLevel::Warn, next: Some(next.into()), ..Diagnosis::ok(check, found) }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, next: impl Into<String>) -> Diagnosis {
        Diagnosis { health: HealthLevel::Fail, next: Some(next.into()), ..Diagnosis::ok(check, found) }
    }

    fn theirs(self) -> Diagnosis {
        Diagnosis { theirs: true, ..self }
    }
}

/// Checks this machine and, if there is one, a manifest and everything it names.
#[must_use]
pub fn examine(manifest: Option<(&Manifest, &Path)>, state: &Path, letters: &str) -> Vec<Diagnosis> {
    let mut found = local::machine(state, letters);
    if let Some((manifest, folder)) = manifest {
        let (services, answers) = remote::services(manifest);
        found.extend(local::pipeline(manifest, folder, state, answers));
        found.extend(database::connections(manifest));
        found.extend(queue::queue(manifest, folder));
        found.extend(services);
    }
    found
}
