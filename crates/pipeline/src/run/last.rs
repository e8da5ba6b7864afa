//! The last run of each pipeline in a state directory, for monitoring.
//!
//! It only reads and takes no lock, because a run that starts at that moment would believe that
//! another is running. So a killed run looks like a running one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;

use super::lifecycle::RunStatus;

/// The record of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LastRun {
    /// The name of the pipeline.
    pub pipeline: String,
    /// Its status.
    pub status: RunStatus,
    /// Time of its end, or of its start if it has not ended, in milliseconds since 1970.
    #[serde(default)]
    pub at_ms: i64,
    /// Records read from the source.
    #[serde(default)]
    pub read: u64,
    /// Records created beyond those, from lists.
    #[serde(default)]
    pub added: u64,
    /// Records in the sink.
    #[serde(default)]
    pub written: u64,
    /// Of those, records without a match.
    #[serde(default)]
    pub no_match: u64,
    /// Records rejected.
    #[serde(default)]
    pub rejected: u64,
    /// Records rejected, by code.
    #[serde(default)]
    pub rejected_by_code: BTreeMap<String, u64>,
    /// Records removed by a filter.
    #[serde(default)]
    pub filtered: u64,
    /// Duplicates.
    #[serde(default)]
    pub deduped: u64,
    /// Its duration in seconds.
    #[serde(default)]
    pub elapsed_seconds: f64,
    /// The gate that halted it.
    #[serde(default)]
    pub halt: Option<HaltedBy>,
}

/// The gate that halted a run. Its message is not read, because it may quote a coordinate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HaltedBy {
    /// Its name.
    pub gate: String,
}

impl LastRun {
    /// The number of records offered, including those from lists.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.read + self.added
    }

    /// The number of records written with a match.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.written.saturating_sub(self.no_match)
    }
}

/// The last run of each pipeline, ordered by name.
///
/// # Errors
/// When the directory cannot be read. A result that cannot be parsed is skipped, because another
/// version may have written it.
pub fn last_runs(state: &Path) -> std::io::Result<Vec<LastRun>> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let file = entry?.path().join("run.json");
        let Ok(text) = std::fs::read(&file) else { continue };
        let Ok(mut run) = serde_json::from_slice::<LastRun>(&text) else { continue };
        if run.at_ms == 0 {
            let changed = file.metadata().and_then(|about| about.modified()).ok();
            let since = changed.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            run.at_ms = since.map_or(0, |since| since.as_millis() as i64);
        }
        runs.push(run);
    }
    runs.sort_by(|a, b| a.pipeline.cmp(&b.pipeline));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_and_what_is_not_a_run_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("run.json"), text).unwrap();
        };
        put("roads", r#"{"pipeline": "roads", "status": "running", "at_ms": 7}"#);
        put(
            "parcels",
            r#"{"pipeline": "parcels", "status": "halted", "at_ms": 9, "read": 10, "added": 2, "written": 8,
                "no_match": 3, "rejected": 4, "halt": {"gate": "nulls", "message": "at 16.37"}, "later": 1}"#,
        );
        put("broken", "{");
        put("old", r#"{"pipeline": "old", "status": "done"}"#);
        std::fs::create_dir_all(dir.path().join("cache")).unwrap();
        std::fs::write(dir.path().join("letters.db"), "").unwrap();
        let runs = last_runs(dir.path()).unwrap();
        let names: Vec<&str> = runs.iter().map(|run| run.pipeline.as_str()).collect();
        assert_eq!(names, ["old", "parcels", "roads"]);
        let (old, parcels, roads) = (&runs[0], &runs[1], &runs[2]);
        assert!(old.at_ms > 1_600_000_000_000, "the time of the file");
        assert_eq!((parcels.offered(), parcels.committed(), parcels.rejected), (12, 5, 4));
        assert_eq!(parcels.halt.as_ref().map(|halt| halt.gate.as_str()), Some("nulls"));
        assert_eq!((roads.status, roads.at_ms, roads.offered()), (RunStatus::Running, 7, 0));
        assert!(last_runs(&dir.path().join("nowhere")).is_err());
    }
}
