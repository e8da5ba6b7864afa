//! Remedies: rules that repair letters, selected by the code of the failure.
//!
//! A rule has a name and a version; both are part of the replay's idempotency key and of the audit.
//! It is a pure function of the letter and its settings. Its result must pass the gates ([`gate`])
//! before the letter may be replayed, and the sink of its pipeline must be able to hold it
//! ([`SinkCheck`]). A rule that would change more than it may is refused, and the letter is marked for
//! review.

mod apply;
mod geometry;
mod rules;

pub use apply::{Fixer, RemedyCounts, SinkCheck, gate};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use tidegate_client::objects::AllowedObjects;
use tidegate_core::Code;

/// A repair rule with its settings. As YAML or JSON: `{rule: make_valid, tolerance: 0.05}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum RepairRule {
    /// Sets the coordinate reference system from what the record says, else to this one.
    CrsLookup {
        /// The coordinate reference system of records that name none.
        #[serde(default)]
        default: Option<String>,
    },
    /// Makes the geometry valid by its linework.
    MakeValid {
        /// The largest relative change of area, from 0 to 1; 0.05 by default.
        #[serde(default)]
        tolerance: Option<f64>,
    },
    /// Replays at the time that the server asked for.
    Wait {
        /// The wait in seconds if the server asked for none; 3600 by default.
        #[serde(default)]
        seconds: Option<u64>,
    },
    /// Clips to this bounding box; to the whole earth if there is none.
    Clip {
        /// The bounding box: west, south, east, north, in the units of the record.
        #[serde(default)]
        bbox: Option<[f64; 4]>,
    },
    /// Swaps latitude and longitude if only the swapped position is plausible.
    SwapAxes {
        /// The bounding box in which records should lie: west, south, east, north.
        #[serde(default)]
        area: Option<[f64; 4]>,
    },
    /// Closes rings.
    CloseRings,
    /// Corrects the winding order of rings.
    Wind,
    /// Marks a corrupted header as unrecoverable, for the archive.
    Flag,
    /// Renames fields.
    Remap {
        /// The new name of each field, by its old one.
        fields: std::collections::BTreeMap<String, String>,
    },
    /// Repairs the header of the raster that the record names in its field `path`, into a new file.
    RepairRaster {
        /// The coordinate reference system of rasters that name none.
        #[serde(default)]
        default: Option<String>,
        /// The directory of the new file; by default it is put beside the raster.
        #[serde(default)]
        output: Option<String>,
        /// The rasters that letters may name; by default none. A letter holds what a record said.
        #[serde(skip)]
        objects: Box<AllowedObjects>,
    },
    /// Runs a program: it reads the letter as JSON from standard input and writes the payload to
    /// standard output.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The variables of the environment that it gets besides the harmless ones.
        #[serde(default)]
        env: Vec<String>,
    },
}

/// The names of all rules.
pub const NAMES: [&str; 11] = [
    "crs_lookup",
    "make_valid",
    "wait",
    "clip",
    "swap_axes",
    "close_rings",
    "wind",
    "flag",
    "remap",
    "repair_raster",
    "command",
];

/// Why a repair rule cannot be used.
#[derive(Debug)]
pub enum RuleError {
    /// A setting is missing, or this rule does not have it.
    Settings(serde_json::Error),
    /// The rule of this name has required settings.
    NeedsSettings(String),
    /// There is no rule of this name.
    Unknown(String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Settings(e) => e.fmt(f),
            RuleError::NeedsSettings(name) => write!(f, "rule {name} requires settings; see --help"),
            RuleError::Unknown(name) => {
                write!(f, "unknown rule {name:?}; expected one of {}", NAMES.join(", "))
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
    /// The rule that a manifest describes.
    ///
    /// # Errors
    /// When a setting is missing, or the rule does not have it.
    pub fn of(form: &impl Serialize) -> Result<RepairRule, RuleError> {
        serde_json::to_value(form).and_then(serde_json::from_value).map_err(RuleError::Settings)
    }

    /// The rule of this name with its default settings.
    ///
    /// # Errors
    /// When there is no such rule, or it has required settings.
    pub fn named(name: &str) -> Result<RepairRule, RuleError> {
        let value = serde_json::json!({ "rule": name });
        serde_json::from_value(value).map_err(|_| match NAMES.contains(&name) {
            true => RuleError::NeedsSettings(name.to_owned()),
            false => RuleError::Unknown(name.to_owned()),
        })
    }

    /// Lets it open these objects, if it is one that opens what letters name. `base` is the directory that a
    /// relative directory of results starts at.
    #[must_use]
    pub fn opening(self, objects: &AllowedObjects, base: &Path) -> RepairRule {
        match self {
            RepairRule::RepairRaster { default, output, .. } => RepairRule::RepairRaster {
                default,
                output: output.map(|dir| base.join(dir).display().to_string()),
                objects: Box::new(objects.clone()),
            },
            other => other,
        }
    }

    /// Its name and version.
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
            RepairRule::RepairRaster { .. } => "repair_raster/1",
            RepairRule::Command { .. } => "command/1",
        }
    }

    /// The codes that it applies to; empty if it applies to any.
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
            RepairRule::RepairRaster { .. } => vec![Code::CORRUPTED_HEADER],
            RepairRule::Command { .. } => Vec::new(),
        }
    }
}
