//! Spans: one per run, batch, call and attempt, in one trace per run.
//!
//! Spans are not opened and closed around the work. A call keeps its history anyway, so its spans
//! are created from it at its end. So traces agree with the counters, and a call pays for one push
//! into a queue. The ids of its spans are generated before it starts, because the `traceparent`
//! header sends them to the service.
//!
//! The queue is bounded. When it fills up, calls that succeeded at once are dropped first, and
//! counted; those that were retried or failed are kept longest.
//!
//! There is one tracer per process, like one log: a process runs one pipeline.

use crate::call::{CallOutcome, Spans};
use crate::lane::LaneHandle;
use crate::lock::lock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_core::Mono;
use tidegate_core::call::Attempt;
use tidegate_core::hex::{hex, write_hex};

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// The tracer of this process, if one is installed.
#[must_use]
pub fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Installs the tracer. Only the first call has an effect.
pub fn install(tracer: Tracer) -> &'static Tracer {
    TRACER.get_or_init(|| tracer)
}

/// Collects the spans of one trace.
#[derive(Debug)]
pub struct Tracer {
    trace: [u8; 16],
    /// The `traceparent` header of all attempts, without the span id.
    told: Traceparent,
    /// The id of the span that started this process, from `TRACEPARENT`.
    parent: u64,
    /// The span id of the run.
    root: u64,
    /// The seed of the span ids.
    seed: u64,
    /// The number of span ids generated.
    drawn: AtomicU64,
    /// The span id of the current batch, the parent of new calls; 0 if there is none.
    batch: AtomicU64,
    queue: Mutex<Vec<TraceSpan>>,
    /// The number of spans in the queue.
    queued: AtomicUsize,
    /// The capacity of the queue, in spans.
    max: usize,
    /// The number of spans dropped since the last drain.
    dropped: AtomicU64,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceSpan {
    /// The run.
    Run {
        /// Start and end, in nanoseconds since 1970.
        at: (u64, u64),
        /// The outcome of the run.
        outcome: String,
        /// Whether the outcome is a failure.
        failed: bool,
    },
    /// A batch, from its first step to its commit.
    Batch {
        /// Its span id.
        id: u64,
        /// Start and end, in nanoseconds since 1970.
        at: (u64, u64),
        /// Records committed.
        records: u64,
        /// Records given up.
        dead: u64,
    },
    /// A call with its attempts.
    Call(Box<CallSpan>),
}

/// A call with its attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSpan {
    /// Its span id.
    pub id: u64,
    /// The id of its parent span.
    pub parent: u64,
    /// The host of the service.
    pub host: String,
    /// The HTTP method.
    pub method: &'static str,
    /// Start and end, in nanoseconds since 1970.
    pub at: (u64, u64),
    /// The outcome, in one word.
    pub outcome: String,
    /// Whether the outcome is a failure.
    pub failed: bool,
    /// The parts of its time.
    pub spans: Spans,
    /// Its attempts.
    pub attempts: Vec<Attempt>,
    /// The offset from the monotonic clock to nanoseconds since 1970, in nanoseconds.
    pub offset: i128,
}

impl CallSpan {
    /// A point of the monotonic clock, in nanoseconds since 1970.
    #[must_use]
    pub fn nanos(&self, at: Mono) -> u64 {
        (i128::from(at.nanos()) + self.offset).max(0) as u64
    }
}

/// The span ids of a call that has started.
#[derive(Clone, Copy, Debug)]
pub struct CallSpanIds {
    /// The span id of the call.
    id: u64,
    /// The span id of its batch or of the run.
    parent: u64,
}

/// A batch that has started.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchSpan {
    /// The span id.
    id: u64,
    /// Time of the start, in nanoseconds since 1970.
    began: u64,
}

tokio::task_local! {
    /// The span id of the batch that this task works for.
    static BATCH: u64;
}

impl BatchSpan {
    /// Runs `work` for this batch: its calls belong to it, even if another has started.
    pub fn within<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        BATCH.scope(self.id, work)
    }
}

/// The value of the header `traceparent`.
pub type Traceparent = [u8; 55];

/// The current time, in nanoseconds since 1970.
#[must_use]
pub fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

impl Tracer {
    /// A tracer with a queue of `max` spans. `parent` is a `traceparent` to continue; `chance`
    /// determines the ids.
    #[must_use]
    pub fn new(parent: Option<&str>, chance: [u8; 24], max: usize) -> Tracer {
        let (mut trace, mut seed) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&chance[..16]);
        seed.copy_from_slice(&chance[16..]);
        let mut from = 0;
        if let Some((known, span)) = parent.and_then(read_parent) {
            (trace, from) = (known, span);
        }
        // A trace id of all zeros is invalid.
        trace[0] |= u8::from(trace == [0; 16]);
        let seed = u64::from_le_bytes(seed);
        let mut told = *b"00-________________________________-________________-01";
        write_hex(&trace, &mut told[3..35]);
        Tracer {
            trace,
            told,
            parent: from,
            root: mix(seed),
            seed,
            drawn: AtomicU64::new(1),
            batch: AtomicU64::new(0),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            max: max.max(16),
            dropped: AtomicU64::new(0),
        }
    }

    /// The trace id.
    #[must_use]
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The same in hexadecimal.
    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// The span ids of the run and of its parent (0 for none).
    #[must_use]
    pub fn root(&self) -> (u64, u64) {
        (self.root, self.parent)
    }

    fn draw(&self) -> u64 {
        mix(self.seed.wrapping_add(self.drawn.fetch_add(1, Ordering::Relaxed)))
    }

    /// Starts a call.
    #[must_use]
    pub fn call(&self) -> CallSpanIds {
        let batch = BATCH.try_with(|id| *id).unwrap_or_else(|_| self.batch.load(Ordering::Relaxed));
        CallSpanIds { id: self.draw(), parent: if batch == 0 { self.root } else { batch } }
    }

    /// The `traceparent` header of an attempt.
    #[must_use]
    pub fn traceparent(&self, call: CallSpanIds, attempt: u32) -> Traceparent {
        let mut told = self.told;
        write_hex(&attempt_id(call.id, attempt).to_be_bytes(), &mut told[36..52]);
        told
    }

    /// Records a call that has ended.
    pub fn called<T>(
        &self,
        begun: CallSpanIds,
        lane: &LaneHandle,
        method: &http::Method,
        outcome: &CallOutcome<T>,
    ) {
        let failed = !outcome.is_accepted();
        let plain = !failed && outcome.attempts() <= 1;
        let room = if plain { self.max / 2 } else { self.max };
        if self.queued.load(Ordering::Relaxed) >= room {
            self.dropped.fetch_add(1 + u64::from(outcome.attempts()), Ordering::Relaxed);
            return;
        }
        let (mono, now) = (lane.clock().mono(), now_nanos());
        let span = CallSpan {
            id: begun.id,
            parent: begun.parent,
            host: lane.key().host(),
            method: word(method),
            at: (now.saturating_sub(nanos(outcome.elapsed)), now),
            outcome: outcome.word(),
            failed,
            spans: outcome.spans,
            attempts: outcome.history().to_vec(),
            offset: i128::from(now) - i128::from(mono.nanos()),
        };
        self.push(TraceSpan::Call(Box::new(span)));
    }

    /// Starts a batch: new calls belong to it until the next batch starts.
    #[must_use]
    pub fn batch(&self) -> BatchSpan {
        let id = self.draw();
        self.batch.store(id, Ordering::Relaxed);
        BatchSpan { id, began: now_nanos() }
    }

    /// Records a batch that was committed.
    pub fn committed(&self, batch: BatchSpan, records: u64, dead: u64) {
        self.push(TraceSpan::Batch { id: batch.id, at: (batch.began, now_nanos()), records, dead });
    }

    /// Records rows that were written without a batch of calls.
    pub fn written(&self, took: Duration, records: u64) {
        let now = now_nanos();
        let at = (now.saturating_sub(nanos(took)), now);
        self.push(TraceSpan::Batch { id: self.draw(), at, records, dead: 0 });
    }

    /// Records the end of the run.
    pub fn ended(&self, began: u64, outcome: &str, failed: bool) {
        self.push(TraceSpan::Run { at: (began, now_nanos()), outcome: outcome.to_owned(), failed });
    }

    fn push(&self, span: TraceSpan) {
        let mut queue = self.lock();
        queue.push(span);
        self.queued.store(queue.len(), Ordering::Relaxed);
    }

    /// Takes the finished spans, and the number of dropped ones.
    pub fn drain(&self) -> (Vec<TraceSpan>, u64) {
        let spans = std::mem::take(&mut *self.lock());
        self.queued.store(0, Ordering::Relaxed);
        (spans, self.dropped.swap(0, Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TraceSpan>> {
        lock(&self.queue)
    }
}

/// The span id of an attempt.
#[must_use]
pub fn attempt_id(call: u64, attempt: u32) -> u64 {
    mix(call ^ (u64::from(attempt) << 32))
}

/// Mixes the bits of a number; never zero, which is not a valid span id.
fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).max(1)
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

fn word(method: &http::Method) -> &'static str {
    match *method {
        http::Method::GET => "GET",
        http::Method::POST => "POST",
        http::Method::HEAD => "HEAD",
        http::Method::PUT => "PUT",
        http::Method::DELETE => "DELETE",
        _ => "_OTHER",
    }
}

/// The trace id and span id of a `traceparent`.
fn read_parent(text: &str) -> Option<([u8; 16], u64)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let lower = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 {
        return None;
    }
    if ![version, trace, span].into_iter().all(lower) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|n| *n != 0)?.to_be_bytes();
    let span = u64::from_str_radix(span, 16).ok().filter(|n| *n != 0)?;
    Some((trace, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_as_the_standard_says() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let tracer = Tracer::new(Some(good), [7; 24], 100);
        assert_eq!(tracer.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(tracer.root().1, 0x00f0_67aa_0ba9_02b7);
        for bad in [
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f-00f067aa0ba902b7-01",
        ] {
            let tracer = Tracer::new(Some(bad), [7; 24], 100);
            assert_eq!((tracer.trace(), tracer.root().1), ([7; 16], 0), "{bad}");
        }
        let none = Tracer::new(None, [0; 24], 100);
        assert_ne!(none.trace(), [0; 16]);
    }

    #[test]
    fn what_is_sent_along_names_the_attempt() {
        let tracer = Tracer::new(None, [7; 24], 100);
        let call = tracer.call();
        assert_eq!(call.parent, tracer.root().0);
        let (one, two) = (tracer.traceparent(call, 1), tracer.traceparent(call, 2));
        assert_ne!(one, two);
        let one = std::str::from_utf8(&one).unwrap();
        assert_eq!(one.split('-').next_back(), Some("01"));
        assert_eq!(read_parent(one), Some(([7; 16], attempt_id(call.id, 1))));
        let batch = tracer.batch();
        assert_eq!(tracer.call().parent, batch.id);
    }
}
