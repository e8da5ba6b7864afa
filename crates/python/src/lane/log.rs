//! Events of the engine for Python's `logging`.
//!
//! An event is put into a bounded queue, which a thread of Python empties (`tidegate/_log.py`). Why not
//! straight into `logging`: that takes the interpreter's lock, while the engine may hold a lock of its
//! own for which a thread with the interpreter's lock waits. A full queue drops events and counts them.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;
use tidegate_client::secret;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most events that wait.
const EVENTS_MAX: usize = 1024;
/// How often the lock of the queue is tried.
const LOCK_TRIES: u32 = 10_000;
/// How long a reader waits before it looks at the level of its logger again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The level below which events are left out, as in `logging`.
static LEVEL: AtomicU8 = AtomicU8::new(30);
static QUEUE: Mutex<LogQueue> =
    Mutex::new(LogQueue { events: VecDeque::new(), dropped: 0, is_closed: false });
static CAME: Condvar = Condvar::new();

struct LogQueue {
    events: VecDeque<LogEvent>,
    dropped: u64,
    is_closed: bool,
}

/// The queue. It is held for moments only; in a forked child it may be held by a thread that is not there,
/// and there is no log then.
fn queue() -> Option<MutexGuard<'static, LogQueue>> {
    for _ in 0..LOCK_TRIES {
        match QUEUE.try_lock() {
            Ok(queue) => return Some(queue),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// The logger, the level as in `logging`, and the line.
type LogEvent = (String, u8, String);

const fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// Puts events into the queue.
struct QueueSubscriber;

impl Subscriber for QueueSubscriber {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        !about.is_span()
            && number(*about.level()) >= LEVEL.load(Ordering::Relaxed)
            && about.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LineFields::default();
        event.record(&mut line);
        let text = secret::mask(&format!("{}{}", line.message, line.fields)).into_owned();
        let about = event.metadata();
        let logger = about.target().replace("::", ".");
        let Some(mut queue) = queue() else { return };
        if queue.events.len() < EVENTS_MAX {
            queue.events.push_back((logger, number(*about.level()), text));
        } else {
            queue.dropped += 1;
        }
        drop(queue);
        CAME.notify_one();
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct LineFields {
    message: String,
    fields: String,
}

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}={value}", field.name());
    }
}

/// Starts to take events; the first caller wins.
#[pyfunction]
fn _log_start() -> bool {
    tracing::subscriber::set_global_default(QueueSubscriber).is_ok()
}

/// Waits up to a second for events, and returns them with the number of those that were dropped; `None`
/// after the end. `level` is that of the logger.
#[pyfunction]
fn _log_take(py: Python<'_>, level: u8) -> Option<(Vec<LogEvent>, u64)> {
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        tracing::callsite::rebuild_interest_cache();
    }
    py.detach(|| {
        let queue = queue()?;
        let waited =
            CAME.wait_timeout_while(queue, LOOK_EVERY, |queue| queue.events.is_empty() && !queue.is_closed);
        let mut queue = match waited {
            Ok((queue, _)) => queue,
            Err(poisoned) => poisoned.into_inner().0,
        };
        if queue.is_closed && queue.events.is_empty() {
            return None;
        }
        let dropped = std::mem::take(&mut queue.dropped);
        Some((queue.events.drain(..).collect(), dropped))
    })
}

/// The interpreter is ending: the reader takes what is there, and ends.
#[pyfunction]
fn _log_close() {
    if let Some(mut queue) = queue() {
        queue.is_closed = true;
    }
    CAME.notify_all();
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_log_start, module)?)?;
    module.add_function(wrap_pyfunction!(_log_take, module)?)?;
    module.add_function(wrap_pyfunction!(_log_close, module)?)
}
