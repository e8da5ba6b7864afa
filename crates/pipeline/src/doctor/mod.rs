//! The doctor: whether a pipeline can work here and now, before it is run.
//!
//! It looks and changes nothing: a directory is tried with a file that is gone at once, a store is
//! opened for reading and only if it is there, a service is asked once for its address. One that is
//! the source and answers is then asked what a plan asks. Each finding says what was looked at, how
//! it is, and what to do next.
//!
//! | file | looks at |
//! |---|---|
//! | `local` | state, audit, dead letters, source, steps, sink, coordinate reference systems, secrets |
//! | `remote` | services, files and buckets elsewhere: name, address, certificate, clock, quota |

mod local;
mod remote;

use std::path::Path;

use serde::Serialize;

use crate::manifest::Manifest;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthLevel {
    /// As it should be.
    Ok,
    /// A run can work, and may not do what is wanted.
    Warn,
    /// A run cannot work.
    Fail,
}

impl HealthLevel {
    /// In a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HealthLevel::Ok => "ok",
            HealthLevel::Warn => "warn",
            HealthLevel::Fail => "fail",
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What was looked at: `state`, `sink`, `service geo: clock`.
    pub check: String,
    /// How it is.
    pub health: HealthLevel,
    /// What was found.
    pub found: String,
    /// What to do next; nothing if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The other side is to blame: it may be well later.
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

/// Looks at this machine, and at a manifest and everything it names if there is one.
#[must_use]
pub fn examine(manifest: Option<(&Manifest, &Path)>, state: &Path, letters: &str) -> Vec<Diagnosis> {
    let mut found = local::machine(state, letters);
    if let Some((manifest, folder)) = manifest {
        let (services, answers) = remote::services(manifest);
        found.extend(local::pipeline(manifest, folder, state, answers));
        found.extend(services);
    }
    found
}
