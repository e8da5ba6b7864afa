//! The lanes of this process.
//!
//! There is one lane per host and credential, whoever asks for it: two `Lane` objects for the same
//! service share its limit. Lanes that are shared with other processes, or whose waits are kept in a
//! directory, are kept apart from those that are not. A forked child has its own; those of its parent
//! are never touched there (see `runtime`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use tidegate_client::lane::{Clock, Fleet, LaneScope, LaneStates, Lanes, WhenUnreachable};
use tidegate_client::lock::lock;
use tidegate_client::secret::fetch_given;
use tidegate_core::Rng;
use tidegate_core::lane::LaneConfig;

use crate::{errors, runtime};

/// The most time that leaving the lanes of a fleet may take at the end of the process.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// With whom lanes are shared, and where their waits are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneHome {
    /// `machine`, the URL of a server, or a reference to one; `None` for this process alone.
    pub(crate) shared: Option<String>,
    /// The directory with the waits that servers asked for.
    pub(crate) state: Option<PathBuf>,
}

/// The lanes of one process.
pub(crate) struct ProcessLanes {
    pid: u32,
    clock: Clock,
    by_sharing: Mutex<BTreeMap<LaneHome, Lanes>>,
    seed: u64,
    calls: AtomicU64,
}

// Locked only with the interpreter's lock, and never across Python code: a child never finds it locked.
static PROCESS: Mutex<Option<&'static ProcessLanes>> = Mutex::new(None);

impl ProcessLanes {
    /// Those of this process.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static ProcessLanes> {
        let pid = runtime::pid();
        let mut process = lock(&PROCESS);
        if let Some(lanes) = *process
            && lanes.pid == pid
        {
            return Ok(lanes);
        }
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|why| errors::failure(py, format!("the system gives no random numbers: {why}")))?;
        let lanes: &'static ProcessLanes = Box::leak(Box::new(ProcessLanes {
            pid,
            clock: Clock::system(),
            by_sharing: Mutex::default(),
            seed: u64::from_le_bytes(seed),
            calls: AtomicU64::new(0),
        }));
        *process = Some(lanes);
        Ok(lanes)
    }

    /// The lanes that are shared so; new ones get `config`.
    pub(crate) fn lanes(&self, sharing: &LaneHome, config: &LaneConfig) -> Result<Lanes, String> {
        let mut all = lock(&self.by_sharing);
        if let Some(lanes) = all.get(sharing) {
            return Ok(lanes.with(config));
        }
        let mut lanes = Lanes::new(config, self.clock);
        // The saved state identifies a lane to those that share it.
        let state = match (&sharing.state, &sharing.shared) {
            (Some(dir), _) => Some(dir.clone()),
            (None, Some(_)) => Some(state_dir()),
            (None, None) => None,
        };
        if let Some(dir) = state {
            lanes = lanes.keeping(LaneStates::open_within(&dir, self.clock, config.wait_max));
        }
        if let Some(shared) = &sharing.shared {
            lanes = lanes.sharing(scope(shared)?);
        }
        all.insert(sharing.clone(), lanes.clone());
        Ok(lanes)
    }

    /// The chance of the next call.
    pub(crate) fn chance(&self) -> Rng {
        Rng::fork(self.seed, self.calls.fetch_add(1, Ordering::Relaxed))
    }
}

fn scope(shared: &str) -> Result<LaneScope, String> {
    if shared == "machine" {
        return Ok(LaneScope::Machine(None));
    }
    let url = fetch_given(shared).map_err(|why| format!("shared: {why}"))?;
    let fleet = Fleet::new(&url, WhenUnreachable::default())
        .map_err(|why| format!("{why}; `shared` takes \"machine\", a URL, or env:NAME with a URL"))?;
    Ok(LaneScope::Fleet(fleet))
}

/// Where the system keeps the state of a user's programs.
fn state_dir() -> PathBuf {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("tidegate")
}

/// Whether the path is a directory, or can become one.
pub(crate) fn check_state(dir: &Path) -> Result<(), String> {
    if dir.exists() && !dir.is_dir() {
        return Err(format!("state: {} is not a directory", dir.display()));
    }
    Ok(())
}

/// Leaves all shared lanes, so that another process owns them at once, and writes what servers asked
/// for. Registered with `atexit`; does nothing in a process that has no lanes.
#[pyfunction]
fn _leave_lanes(py: Python<'_>) -> PyResult<()> {
    let pid = runtime::pid();
    let Some(process) = lock(&PROCESS).filter(|lanes| lanes.pid == pid) else { return Ok(()) };
    let all: Vec<Lanes> = lock(&process.by_sharing).values().cloned().collect();
    if all.is_empty() {
        return Ok(());
    }
    let leaving = async {
        for lanes in &all {
            lanes.leave().await;
            lanes.flush();
        }
    };
    // A server that does not answer must not hold the process.
    let _ = runtime::wait(py, async { tokio::time::timeout(LEAVE_MAX, leaving).await })?;
    Ok(())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_leave_lanes, module)?)
}
