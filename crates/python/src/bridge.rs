//! Answers for asyncio.
//!
//! An awaited call runs as a task of the runtime. Its answer is put into the queue of the event loop
//! that awaits it, and the loop is woken once for all that is in the queue: by a byte in a socket that
//! it watches. To wake a loop costs as much as half a call, so it is woken for a fifth of the calls that
//! it awaits, or for what has come within [`LINGER`]. Why not `call_soon_threadsafe`: it needs the
//! interpreter's lock, for which a thread of the runtime, and with it every timer and connection, would
//! wait while Python computes. So the threads of the runtime never take that lock, and an interpreter
//! that ends finds none of them in it.
//!
//! A future that is cancelled ends its task, which gives its permit back. Answers for a loop that is
//! closed are dropped with its queue.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tidegate_client::lock::lock;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::{errors, runtime};

/// How long an answer waits for others.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// What makes the Python value of an answer, in the thread of the loop.
type MakeValue = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// An answer and the future that waits for it.
struct LoopAnswer {
    future: Py<PyAny>,
    make: MakeValue,
}

/// The answers for one event loop.
struct LoopQueue {
    answers: Mutex<Vec<LoopAnswer>>,
    /// The calls under way for this loop.
    under_way: AtomicUsize,
    /// Whether the loop has been woken since it last looked.
    is_woken: AtomicBool,
    waker: UnixStream,
    runtime: &'static Runtime,
}

impl LoopQueue {
    fn push(self: &Arc<Self>, answer: LoopAnswer) {
        let ready = {
            let mut answers = lock(&self.answers);
            answers.push(answer);
            answers.len()
        };
        let under_way = self.under_way.fetch_sub(1, Ordering::AcqRel).saturating_sub(1);
        if ready * 4 >= under_way {
            self.wake();
        } else if ready == 1 {
            let queue = self.clone();
            self.runtime.spawn(async move {
                tokio::time::sleep(LINGER).await;
                if !lock(&queue.answers).is_empty() {
                    queue.wake();
                }
            });
        }
    }

    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // A loop that is closed needs no waking.
            let _ = (&self.waker).write(&[0]);
        }
    }
}

/// Gives the answers of a queue to their futures; called by the loop.
#[pyclass(frozen, module = "tidegate._core")]
struct LoopDrain {
    queue: Arc<LoopQueue>,
    woken: UnixStream,
}

#[pymethods]
impl LoopDrain {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 16];
        let _ = (&self.woken).read(&mut bytes);
        // Before the queue is taken: what comes later wakes the loop again.
        self.queue.is_woken.store(false, Ordering::Release);
        let answers = std::mem::take(&mut *lock(&self.queue.answers));
        for LoopAnswer { future, make } in answers {
            let future = future.bind(py);
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                continue;
            }
            match make(py) {
                Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
            };
        }
        Ok(())
    }
}

/// Ends the task of a future that was cancelled.
#[pyclass(frozen, module = "tidegate._core")]
struct TaskCancel {
    task: AbortHandle,
}

#[pymethods]
impl TaskCancel {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        self.task.abort();
    }
}

/// The loop of a thread, and its queue.
struct ThreadLoop {
    pid: u32,
    event_loop: Py<PyAny>,
    queue: Arc<LoopQueue>,
}

thread_local! {
    static LOOP: RefCell<Option<ThreadLoop>> = const { RefCell::new(None) };
}

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The running loop of this thread and its queue, which is made for its first call.
fn running<'py>(py: Python<'py>, runtime: &'static Runtime) -> PyResult<(Bound<'py, PyAny>, Arc<LoopQueue>)> {
    let event_loop = RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
    let pid = runtime::pid();
    let known = LOOP.with_borrow(|slot| {
        let slot = slot.as_ref().filter(|slot| slot.pid == pid && slot.event_loop.is(&event_loop))?;
        Some(slot.queue.clone())
    });
    if let Some(queue) = known {
        return Ok((event_loop, queue));
    }
    let pair = UnixStream::pair().and_then(|(waker, woken)| {
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok((waker, woken))
    });
    let (waker, woken) = pair.map_err(|why| errors::failure(py, format!("cannot open a socket: {why}")))?;
    let (answers, under_way, is_woken) = Default::default();
    let queue = Arc::new(LoopQueue { answers, under_way, is_woken, waker, runtime });
    let fd = woken.as_raw_fd();
    let drain = Bound::new(py, LoopDrain { queue: queue.clone(), woken })?;
    event_loop.call_method1(intern!(py, "add_reader"), (fd, drain))?;
    let slot = ThreadLoop { pid, event_loop: event_loop.clone().unbind(), queue: queue.clone() };
    let before = LOOP.with_borrow_mut(|known| known.replace(slot));
    drop(before);
    Ok((event_loop, queue))
}

/// Answers when it is dropped, so that a task that ends early leaves no future waiting.
struct LoopReply {
    queue: Arc<LoopQueue>,
    future: Option<Py<PyAny>>,
}

impl LoopReply {
    fn send(mut self, make: MakeValue) {
        if let Some(future) = self.future.take() {
            self.queue.push(LoopAnswer { future, make });
        }
    }
}

impl Drop for LoopReply {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            // A cancelled future has ended already; this is for one whose task panicked.
            let make: MakeValue =
                Box::new(|py| Err(errors::failure(py, "the call broke off: an internal error")));
            self.queue.push(LoopAnswer { future, make });
        }
    }
}

/// An `asyncio.Future` of the running loop for what `work` gives; `make` turns it into a Python value,
/// in the thread of the loop.
pub(crate) fn spawn<'py, F, M>(py: Python<'py>, work: F, make: M) -> PyResult<Bound<'py, PyAny>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    M: FnOnce(Python<'_>, F::Output) -> PyResult<Py<PyAny>> + Send + 'static,
{
    let runtime = runtime::runtime(py)?;
    let (event_loop, queue) = running(py, runtime)?;
    let future = event_loop.call_method0(intern!(py, "create_future"))?;
    queue.under_way.fetch_add(1, Ordering::AcqRel);
    let reply = LoopReply { queue, future: Some(future.clone().unbind()) };
    let task = runtime.spawn(async move {
        let output = work.await;
        reply.send(Box::new(move |py| make(py, output)));
    });
    let cancel = Bound::new(py, TaskCancel { task: task.abort_handle() })?;
    future.call_method1(intern!(py, "add_done_callback"), (cancel,))?;
    Ok(future)
}

/// A value that can be awaited and is already there.
#[pyclass(module = "tidegate._core")]
pub(crate) struct ReadyValue(Option<Py<PyAny>>);

impl ReadyValue {
    pub(crate) fn new(value: Py<PyAny>) -> ReadyValue {
        ReadyValue(Some(value))
    }
}

#[pymethods]
impl ReadyValue {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.0.take().unwrap_or_else(|| py.None()),)))
    }
}
