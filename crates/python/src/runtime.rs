//! The tokio runtime of this process, and waits that Ctrl-C ends.
//!
//! Nothing that waits holds the interpreter's lock. A wait comes back every [`SLICE`] to ask whether a
//! signal came; if Python then raises, the future is dropped, which gives its permits back.
//!
//! # Forks
//!
//! The threads of a runtime do not exist in a forked child, so a call there would wait for ever. The
//! runtime is therefore noted with the process that made it, and a child makes its own. The one of the
//! parent is left alone: nothing of it is dropped, locked or asked in the child. The lock of [`STATE`]
//! is held only with the interpreter's lock and never across Python code, so a child of `os.fork` never
//! finds it locked.
//!
//! To ask the system for the id of the process took more than half of the time of a decorated call. So
//! [`pid`] notes it, and `os.register_at_fork` has it noted anew in a child: every fork after which Python
//! goes on runs these hooks.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate_client::lock::lock;
use tokio::runtime::{Builder, Runtime};

use crate::errors;

/// The longest time for which a wait does not look for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// The threads that drive connections and timers. A second one would be woken for every connection that has
/// something to do (docs/decisions/python.md).
const THREADS: usize = 1;

static STATE: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The id of this process.
pub(crate) fn pid() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => note_process(),
        pid => pid,
    }
}

/// Notes the id of this process; called at first, and in a child.
#[pyfunction]
fn note_process() -> u32 {
    let pid = std::process::id();
    PROCESS.store(pid, Ordering::Relaxed);
    pid
}

/// Asks to be called in every forked child.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hooks = PyDict::new(module.py());
    hooks.set_item("after_in_child", wrap_pyfunction!(note_process, module)?)?;
    module.py().import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// The runtime of this process, made by the first call.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    let pid = pid();
    let mut state = lock(&STATE);
    if let Some((owner, runtime)) = *state
        && owner == pid
    {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("tidegate")
        .enable_all()
        .build()
        .map_err(|why| errors::failure(py, format!("cannot start the threads of the runtime: {why}")))?;
    // It lives as long as the process; that of a parent must not be dropped here.
    let runtime: &'static Runtime = Box::leak(Box::new(made));
    *state = Some((pid, runtime));
    Ok(runtime)
}

/// Waits for a future without the interpreter's lock. A signal whose handler raises ends it within
/// [`SLICE`]; the future is dropped then. Not to be called by a thread of the runtime.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    // What an interrupted future gives back may start a timer.
    let _inside = runtime.enter();
    let mut future = pin!(future);
    loop {
        let turn = future.as_mut();
        let done = py.detach(|| runtime.block_on(async { tokio::time::timeout(SLICE, turn).await }));
        match done {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Polls a future once. For those that are mostly ready, such as permits of a lane that is not busy: no
/// thread changes and the interpreter's lock stays.
pub(crate) fn poll_once<F: Future>(runtime: &Runtime, future: F) -> Option<F::Output> {
    let _inside = runtime.enter();
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// As [`wait`], for a future that is mostly ready.
pub(crate) fn wait_ready<F>(py: Python<'_>, runtime: &Runtime, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let _inside = runtime.enter();
    let mut future = pin!(future);
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(output);
    }
    wait(py, future)
}
