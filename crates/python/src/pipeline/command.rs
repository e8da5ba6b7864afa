//! A command of the program, as a call that Python waits for.
//!
//! It has a thread of its own: a run blocks, and has its own runtimes. Nothing is kept between two
//! calls, so a child of a fork can make its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate_cli::{CommandOutput, Host};
use tidegate_client::lock::lock;

use crate::errors;

/// As much as the main thread of a process has.
const STACK: usize = 8 << 20;
/// The longest wait without a look at signals.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The output, once there is one.
#[derive(Default)]
struct CommandEnd {
    output: Mutex<Option<CommandOutput>>,
    ended: Condvar,
}

/// A command that was started: its words, such as `["run", "parcels.yaml"]`.
#[pyclass(name = "Command", frozen, module = "tidegate._core")]
pub(super) struct PyCommand {
    host: Arc<Host>,
    end: Arc<CommandEnd>,
}

#[pymethods]
impl PyCommand {
    #[new]
    #[pyo3(signature = (words, input=None, program=None))]
    fn new(
        py: Python<'_>,
        words: Vec<OsString>,
        input: Option<String>,
        program: Option<PathBuf>,
    ) -> PyResult<PyCommand> {
        let (host, end) = (Host::new(input, program), Arc::new(CommandEnd::default()));
        let (own_host, own_end) = (Arc::clone(&host), Arc::clone(&end));
        let work = move || {
            let output = own_host.command(words);
            *lock(&own_end.output) = Some(output);
            own_end.ended.notify_all();
        };
        thread::Builder::new()
            .name("tidegate".into())
            .stack_size(STACK)
            .spawn(work)
            .map_err(|why| errors::failure(py, format!("cannot start a thread: {why}")))?;
        Ok(PyCommand { host, end })
    }

    /// Waits for the end for at most so many seconds, without the interpreter's lock; returns whether
    /// it has ended.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        py.detach(|| {
            let until = Instant::now() + span;
            let mut output = lock(&self.end.output);
            while output.is_none() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                output = match self.end.ended.wait_timeout(output, left) {
                    Ok((output, _)) => output,
                    Err(poisoned) => poisoned.into_inner().0,
                };
            }
            true
        })
    }

    /// Asks it to stop: the current batch is committed.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.host.stop());
    }

    /// How far a run is, as a dict; `None` before it has started.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(now) = py.detach(|| self.host.progress()) else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("read", now.read)?;
        dict.set_item("written", now.written)?;
        dict.set_item("rejected", now.rejected)?;
        dict.set_item("done", now.done)?;
        dict.set_item("total", now.total)?;
        dict.set_item("message", now.words)?;
        Ok(Some(dict))
    }

    /// Its exit code, data, messages and the code of its failure; `None` before its end.
    fn output(&self) -> Option<(u8, String, String, Option<String>)> {
        let end = lock(&self.end.output);
        end.as_ref().map(|o| (o.exit, o.data.clone(), o.messages.clone(), o.code.clone()))
    }
}
