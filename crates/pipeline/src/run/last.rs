//! The last run of each pipeline of a state directory, for whoever watches from outside.
//!
//! It only reads: no lock is taken, because asking for one could make a run that begins at that
//! moment believe that another is under way. So a run that was killed looks like one that runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;

use super::lifecycle::RunStatus;

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LastRun {
    /// The pipeline.
    pub pipeline: String,
    /// How it ended, if it has.
    pub status: RunStatus,
    /// When it ended, or began if it has not ended.
    #[serde(default)]
    pub at_ms: i64,
    /// Records read from the source.
    #[serde(default)]
    pub read: u64,
    /// Records beyond those, out of lists.
    #[serde(default)]
    pub added: u64,
    /// Records in the sink.
    #[serde(default)]
    pub written: u64,
    /// Of those, how many a service had nothing for.
    #[serde(default)]
    pub no_match: u64,
    /// Records given up.
    #[serde(default)]
    pub rejected: u64,
    /// The same by code.
    #[serde(default)]
    pub rejected_by_code: BTreeMap<String, u64>,
    /// Records let go by a filter.
    #[serde(default)]
    pub filtered: u64,
    /// Repeats.
    #[serde(default)]
    pub deduped: u64,
    /// How long it took.
    #[serde(default)]
    pub elapsed_seconds: f64,
    /// The gate that halted it.
    #[serde(default)]
    pub halt: Option<HaltedBy>,
}

/// The gate that halted a run. What it says about the record is not read: it may quote a position.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HaltedBy {
    /// Its name.
    pub gate: String,
}

impl LastRun {
    /// Records that were offered, those out of lists included.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.read + self.added
    }

    /// Records written with an answer: what had none is counted apart.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.written.saturating_sub(self.no_match)
    }
}

/// The last run of each pipeline, by name.
///
/// # Errors
/// When the directory cannot be read. A result that cannot be read is left out: it may be older
/// than this version.
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
