//! `dead_letters`: where rejected records are stored.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::YEAR;

/// Where rejected records are stored. Without this section they are written to a file in the state
/// directory, which can be read but not replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetters {
    /// The store: a SQLite file, `env:NAME` or `file:PATH` that contains the URL of a PostgreSQL
    /// database, or such a URL without a password. A relative path starts at the manifest's
    /// directory. By default `letters.db` in the state directory, where `tidegate dlq` looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"letters.db")]
    pub store: Option<String>,

    /// A queue to which every dead letter of a task is published, too, with the reason in its
    /// headers: a URL as in `source.queue`, or `env:NAME` or `file:PATH` that contains it. The letter is in the
    /// store first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"amqp://localhost/geotasks.dead")]
    pub also: Option<String>,

    /// The secret key of a sealed store: `env:NAME` or `file:PATH` with what `tidegate keys` has written.
    /// With it, a run uses the cached answers of earlier runs, which are sealed like the letters; the
    /// letters themselves are opened by `tidegate dlq --key` only.
    ///
    /// Touch it when the letters are sealed and answers cost money.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"file:letters.key")]
    pub key: Option<String>,

    /// How many days letters are kept.
    #[schemars(range(min = 30, max = 90))]
    pub retention_days: u32,

    /// Where open letters of the pipeline are archived before they are deleted at the end of their
    /// retention, by a run and by `tidegate serve --manifest`: a directory, which starts at the
    /// manifest's, or a bucket (`s3://`, `az://`, `gs://`). Without it, open letters stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"s3://cold/letters")]
    pub archive: Option<String>,

    /// If more than this share of the records of a batch fail in the same way, an incident is
    /// opened: no letters are written, the run ends and the pipeline is suspended.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub incident_share: f64,

    /// The minimum number of failed records of an incident.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub incident_least: u64,

    /// The rules that `tidegate dlq fix --manifest` applies, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,

    /// Rules that run unasked: at the start and at the end of a run, and by `tidegate serve --manifest`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub auto: Vec<AutoRemedy>,

    /// Whether letters with a time before which they must not be replayed are replayed when it has
    /// passed: at the start of a run, and by `tidegate serve --manifest`.
    pub replay_parked: bool,
}

impl Default for DeadLetters {
    fn default() -> DeadLetters {
        DeadLetters {
            store: None,
            also: None,
            key: None,
            retention_days: 60,
            archive: None,
            incident_share: 0.5,
            incident_least: 20,
            remedies: Vec::new(),
            auto: Vec::new(),
            replay_parked: true,
        }
    }
}

/// A rule that repairs and replays letters unasked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AutoRemedy {
    /// The code of the letters.
    #[schemars(length(min = 1, max = 100), example = &"INVALID_GEOMETRY")]
    pub code: String,

    /// The rule that repairs them, with its settings from `remedies`, if they are there. Without it,
    /// they are replayed as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RemedyRule")]
    pub remedy: Option<RemedyRule>,

    /// Whether they are replayed.
    #[serde(default = "yes")]
    pub replay: bool,

    /// The most letters that are replayed in a time: a number, `/`, and one of `s`, `min`, `h`, `d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 3, max = 30), example = &"100/h")]
    pub at_most: Option<String>,

    /// The time between a failure and the replay. It doubles each time that the record fails again,
    /// up to a week, and the record is replayed up to ten times instead of three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1.0, max = YEAR))]
    pub retry_after_seconds: Option<f64>,
}

fn yes() -> bool {
    true
}

/// A rule that repairs letters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remedy {
    /// The rule.
    #[schemars(example = &"make_valid")]
    pub rule: RemedyRule,

    /// For `crs_lookup` and `repair_raster`: the coordinate reference system of records that declare none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub default: Option<String>,

    /// For `make_valid`: the maximum relative change of the area.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub tolerance: Option<f64>,

    /// For `wait`: the seconds to wait if the server gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 0, max = 31_536_000))]
    pub seconds: Option<u64>,

    /// For `clip`: the area to keep: west, south, east, north.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<f64>", inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub bbox: Option<[f64; 4]>,

    /// For `swap_axes`: the area in which records are valid: west, south, east, north.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<f64>", inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub area: Option<[f64; 4]>,

    /// For `remap`: old and new names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,

    /// For `repair_raster`: the directory of the repaired rasters. By default beside each raster. A relative
    /// path starts at the manifest's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub output: Option<String>,

    /// For `command`: the program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)))]
    pub command: Vec<String>,

    /// For `command`: the environment variables that the program gets besides `PATH`, `HOME` and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 255)), extend("uniqueItems" = true))]
    pub env: Vec<String>,
}

/// A rule that repairs letters; docs/replay.md says what each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemedyRule {
    /// Finds the coordinate reference system from what the record says.
    CrsLookup,
    /// Makes the geometry valid by its linework.
    MakeValid,
    /// Replays at the time that the server asked for.
    Wait,
    /// Clips to a bounding box.
    Clip,
    /// Swaps latitude and longitude if only that is plausible.
    SwapAxes,
    /// Closes rings.
    CloseRings,
    /// Corrects the winding order of rings.
    Wind,
    /// Marks as unrecoverable.
    Flag,
    /// Renames fields.
    Remap,
    /// Repairs the header of the raster that the record names.
    RepairRaster,
    /// Runs a program.
    Command,
}

impl RemedyRule {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RemedyRule::CrsLookup => "crs_lookup",
            RemedyRule::MakeValid => "make_valid",
            RemedyRule::Wait => "wait",
            RemedyRule::Clip => "clip",
            RemedyRule::SwapAxes => "swap_axes",
            RemedyRule::CloseRings => "close_rings",
            RemedyRule::Wind => "wind",
            RemedyRule::Flag => "flag",
            RemedyRule::Remap => "remap",
            RemedyRule::RepairRaster => "repair_raster",
            RemedyRule::Command => "command",
        }
    }
}
