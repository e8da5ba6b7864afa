//! `limits`: what one record, and what all messages in work, may cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_geo::limits::RecordLimits;

/// The largest number of steps, rows or bytes that can be set.
const COUNT_MAX: u64 = 1_000_000_000_000;

/// What one record may cost, and what is in memory of messages. All of it is counted, and nothing is measured by
/// a clock: a record that is past a limit is past it on every machine. It becomes a dead letter that says which
/// limit it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSpec {
    /// The largest record of a file, in bytes.
    ///
    /// Touch it upwards when single geometries are larger.
    #[schemars(range(min = 1024, max = 1_073_741_824_u64))]
    pub record_bytes: u64,

    /// The steps of work that checking or repairing one geometry may take, beside 100 for each of its edges: a
    /// comparison of two edges is a step, an edge that is made is 40.
    ///
    /// Touch it upwards to repair geometries that cross themselves more often than 250,000 times.
    #[schemars(range(min = 0, max = COUNT_MAX))]
    pub work_steps: u64,

    /// The instructions of SQLite between two rows of a GeoPackage.
    ///
    /// Touch it upwards when a view computes for long before it has its first row.
    #[schemars(range(min = 100_000, max = COUNT_MAX))]
    pub query_steps: u64,

    /// The rows of a view of a GeoPackage whose file has fewer bytes than that.
    ///
    /// Touch it upwards when a view makes its rows by itself.
    #[schemars(range(min = 1, max = COUNT_MAX))]
    pub view_rows: u64,

    /// The bytes of the rows of a view of a GeoPackage, if its file has less than a sixteenth of that.
    #[schemars(range(min = 1024, max = COUNT_MAX))]
    pub view_bytes: u64,

    /// The bytes of the messages of a queue that a worker holds: received, in work and not yet acknowledged. One
    /// message may be larger; then it is alone.
    ///
    /// Touch it downwards when a worker has little memory: it takes up to about four times as much.
    #[schemars(range(min = 65_536, max = 17_179_869_184_u64))]
    pub in_flight_bytes: u64,
}

impl Default for LimitsSpec {
    fn default() -> LimitsSpec {
        let record = RecordLimits::default();
        LimitsSpec {
            record_bytes: record.record_bytes_max as u64,
            work_steps: record.work_steps_max,
            query_steps: record.query_steps_max,
            view_rows: record.view_rows_max,
            view_bytes: record.view_bytes_max,
            in_flight_bytes: 8 << 20,
        }
    }
}

impl LimitsSpec {
    /// The limits of one record.
    #[must_use]
    pub fn record(&self) -> RecordLimits {
        RecordLimits {
            record_bytes_max: usize::try_from(self.record_bytes).unwrap_or(usize::MAX),
            work_steps_max: self.work_steps,
            query_steps_max: self.query_steps,
            view_rows_max: self.view_rows,
            view_bytes_max: self.view_bytes,
        }
    }
}
