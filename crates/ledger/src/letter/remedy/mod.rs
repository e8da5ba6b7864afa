//! Remedies: rules that repair letters, by the code of their failure.
//!
//! A rule is named and versioned, because the name goes into the key of the replay and into the
//! audit. It is a pure function of the letter and its settings; what it makes must pass the gates
//! ([`gate`]) before the letter may be replayed. A rule that would change more than it may is
//! refused, and the letter goes to a person.

mod apply;
mod geometry;
mod rules;

pub use apply::{Fixer, RemedyCounts, gate};

use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate_core::Code;

/// A repair rule with its settings. As YAML or JSON: `{rule: make_valid, tolerance: 0.05}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum RepairRule {
    /// Find the system by what the record says, else take this one.
    CrsLookup {
        /// The coordinate system of records that name none.
        #[serde(default)]
        default: Option<String>,
    },
    /// Make the geometry valid by its linework.
    MakeValid {
        /// The largest change of area, as a share (0 to 1); 0.05 by default.
        #[serde(default)]
        tolerance: Option<f64>,
    },
    /// Replay at the time that the server asked for.
    Wait {
        /// The wait where the server named none, in seconds; 3600 by default.
        #[serde(default)]
        seconds: Option<u64>,
    },
    /// Keep what lies in this box: west, south, east, north; the whole earth if not said.
    Clip {
        /// The bounding box: west, south, east, north, in the units of the record.
        #[serde(default)]
        bbox: Option<[f64; 4]>,
    },
    /// Swap latitude and longitude if only that is plausible.
    SwapAxes {
        /// The bounding box in which records should lie: west, south, east, north.
        #[serde(default)]
        area: Option<[f64; 4]>,
    },
    /// Close rings.
    CloseRings,
    /// Turn rings the right way round.
    Wind,
    /// Nothing can be done about a corrupted header: flag it, for the archive.
    Flag,
    /// Give fields other names.
    Remap {
        /// The new name of each field, by its old one.
        fields: std::collections::BTreeMap<String, String>,
    },
    /// A program of your own: the letter as JSON on its standard input, the payload on its output.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

/// The rules by name, for those without settings.
pub const NAMES: [&str; 10] = [
    "crs_lookup",
    "make_valid",
    "wait",
    "clip",
    "swap_axes",
    "close_rings",
    "wind",
    "flag",
    "remap",
    "command",
];

/// Why there is no such repair rule.
#[derive(Debug)]
pub enum RuleError {
    /// A setting is missing, or is not one of this rule.
    Settings(serde_json::Error),
    /// The rule of this name has settings that must be given.
    NeedsSettings(String),
    /// There is no rule of this name.
    Unknown(String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Settings(e) => e.fmt(f),
            RuleError::NeedsSettings(name) => write!(f, "the rule {name} needs settings; see --help"),
            RuleError::Unknown(name) => {
                write!(f, "there is no rule {name:?}; there are {}", NAMES.join(", "))
            }
        }
    }
}

impl std::error::Error for RuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RuleError::Settings(e) => Some(e),
            RuleError::NeedsSettings(_) | RuleError::Unknown(_) => None,
        }
    }
}

impl RepairRule {
    /// The rule that a manifest names.
    ///
    /// # Errors
    /// When a setting is missing, or is not one of this rule.
    pub fn of(form: &impl Serialize) -> Result<RepairRule, RuleError> {
        serde_json::to_value(form).and_then(serde_json::from_value).map_err(RuleError::Settings)
    }

    /// The rule of this name with its usual settings.
    ///
    /// # Errors
    /// When there is none, or it needs settings.
    pub fn named(name: &str) -> Result<RepairRule, RuleError> {
        let value = serde_json::json!({ "rule": name });
        serde_json::from_value(value).map_err(|_| match NAMES.contains(&name) {
            true => RuleError::NeedsSettings(name.to_owned()),
            false => RuleError::Unknown(name.to_owned()),
        })
    }

    /// Its name with its version.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            RepairRule::CrsLookup { .. } => "crs_lookup/1",
            RepairRule::MakeValid { .. } => "make_valid/1",
            RepairRule::Wait { .. } => "wait/1",
            RepairRule::Clip { .. } => "clip/1",
            RepairRule::SwapAxes { .. } => "swap_axes/1",
            RepairRule::CloseRings => "close_rings/1",
            RepairRule::Wind => "wind/1",
            RepairRule::Flag => "flag/1",
            RepairRule::Remap { .. } => "remap/1",
            RepairRule::Command { .. } => "command/1",
        }
    }

    /// The codes that it is for; empty for a rule that is for any.
    #[must_use]
    pub fn codes(&self) -> Vec<Code> {
        match self {
            RepairRule::CrsLookup { .. } => vec![Code::CRS_NOT_FOUND],
            RepairRule::MakeValid { .. } => vec![Code::INVALID_GEOMETRY],
            RepairRule::Wait { .. } => vec![Code::RATE_LIMITED, Code::QUOTA_EXHAUSTED],
            RepairRule::Clip { .. } => vec![Code::OUT_OF_BOUNDS],
            RepairRule::SwapAxes { .. } => vec![Code::AXIS_ORDER_SWAPPED, Code::OUT_OF_BOUNDS],
            RepairRule::CloseRings => vec![Code::UNCLOSED_RING, Code::INVALID_GEOMETRY],
            RepairRule::Wind => vec![Code::WRONG_WINDING],
            RepairRule::Flag => vec![Code::CORRUPTED_HEADER],
            RepairRule::Remap { .. } => vec![Code::SCHEMA_MISMATCH],
            RepairRule::Command { .. } => Vec::new(),
        }
    }
}
