//! The window of a remote step: records enter in the order of the source, are answered in any
//! order, and leave in the order of the source.
//!
//! Why: a record can wait for a minute because its service asked for it, and must not hold up the
//! records behind it. So the questions of several batches are out at once. Each question is
//! answered in its own time ([`Replies`]); a batch is complete when the last of its questions is;
//! and because whoever collects batches does so one after another, the order of the output is that
//! of the source and no index has to restore it.
//!
//! ```text
//!   batches ──▶ admitted by the window ──▶ questions through the lane ──▶ replies, in any order
//!                      ▲                                                        │
//!                      └── room again ◀── collected, in order ◀── complete? ◀───┘
//! ```
//!
//! Why a window and not a queue of so many batches: batches are as large as their source makes
//! them, and memory is what is short. [`RecordWindow`] counts records and bytes. A batch that is
//! larger than the whole window is admitted alone.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_geo::{Batch, Problem};

use super::StepError;
use crate::audit::AuditEvent;
use crate::letter::LetterAttempt;
use crate::lock::lock;

/// Bytes of records in a window, at most.
const BYTES_MAX: usize = 64 << 20;
/// How often a wait looks whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

/// How much is between being admitted and being collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    batches: usize,
    records: usize,
    bytes: usize,
}

/// Bounds the records that are on their way through one remote step.
#[derive(Debug)]
pub(super) struct RecordWindow {
    records_max: usize,
    load: Mutex<Load>,
    freed: Condvar,
}

impl RecordWindow {
    pub(super) fn new(records_max: usize) -> Arc<RecordWindow> {
        Arc::new(RecordWindow { records_max, load: Mutex::default(), freed: Condvar::new() })
    }

    /// Waits until there is room for a batch; `None` if the run is over before.
    pub(super) fn admit(self: &Arc<Self>, batch: &Batch, is_over: &dyn Fn() -> bool) -> Option<Admission> {
        let (records, bytes) = (batch.len(), batch.full_len());
        let mut load = lock(&self.load);
        while load.batches > 0
            && (load.records + records > self.records_max || load.bytes + bytes > BYTES_MAX)
        {
            if is_over() {
                return None;
            }
            load = self.freed.wait_timeout(load, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *load =
            Load { batches: load.batches + 1, records: load.records + records, bytes: load.bytes + bytes };
        Some(Admission { window: self.clone(), records, bytes })
    }
}

/// The room of one batch in a window; it is given back on drop.
#[derive(Debug)]
pub(super) struct Admission {
    window: Arc<RecordWindow>,
    records: usize,
    bytes: usize,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut load = lock(&self.window.load);
        *load = Load {
            batches: load.batches - 1,
            records: load.records - self.records,
            bytes: load.bytes - self.bytes,
        };
        self.window.freed.notify_all();
    }
}

/// What became of one question: an answer, nothing found, or why the record is given up.
pub(super) type Reply<A> = Result<Option<A>, Problem>;

/// The attempts of a call that failed for good, as a dead letter tells them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallHistory {
    pub(super) attempts: Vec<LetterAttempt>,
    /// The time that the service named for the next call, in milliseconds since 1970.
    pub(super) not_before_ms: Option<i64>,
}

/// A reply, and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settled<A> {
    pub(super) reply: Reply<A>,
    /// Attempts made for it by this run.
    pub(super) attempts: u32,
    /// From the first attempt to the end.
    pub(super) elapsed: Duration,
    /// It cost no call of its own in this run.
    pub(super) cached: bool,
    /// Which service it is from: 0 is the one that the step names, the others are its fallbacks.
    pub(super) provider: u8,
    /// The attempts, if they failed.
    pub(super) history: CallHistory,
}

impl<A> Settled<A> {
    /// A reply that cost nothing.
    pub(super) fn known(reply: Reply<A>) -> Settled<A> {
        Settled {
            reply,
            attempts: 0,
            elapsed: Duration::ZERO,
            cached: true,
            provider: 0,
            history: CallHistory::default(),
        }
    }

    /// The same reply for whoever asked the same question.
    pub(super) fn shared(&self) -> Settled<A>
    where
        A: Clone,
    {
        let Settled { reply, elapsed, provider, history, .. } = self;
        Settled {
            reply: reply.clone(),
            attempts: 0,
            elapsed: *elapsed,
            cached: true,
            provider: *provider,
            history: history.clone(),
        }
    }
}

/// The replies to the questions of one batch, as they come.
#[derive(Debug)]
pub(super) struct Replies<A> {
    state: Mutex<WindowState<A>>,
    changed: Condvar,
}

#[derive(Debug)]
struct WindowState<A> {
    replies: Vec<Option<Settled<A>>>,
    /// Questions without a reply.
    open: usize,
    /// Why the run ends at this batch.
    failed: Option<StepError>,
    /// Calls for the audit, by question.
    acts: Vec<(usize, AuditEvent)>,
}

impl<A> Replies<A> {
    pub(super) fn new(questions: usize) -> Replies<A> {
        let replies = (0..questions).map(|_| None).collect();
        let state = WindowState { replies, open: questions, failed: None, acts: Vec::new() };
        Replies { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A question has its end. The first one counts.
    pub(super) fn put(&self, question: usize, reply: Result<Settled<A>, StepError>) {
        let mut state = lock(&self.state);
        match reply {
            Ok(reply) => {
                let Some(slot @ None) = state.replies.get_mut(question) else { return };
                *slot = Some(reply);
                state.open -= 1;
            }
            Err(why) => {
                state.failed.get_or_insert(why);
            }
        }
        if state.open == 0 || state.failed.is_some() {
            self.changed.notify_all();
        }
    }

    /// A call was made for a question.
    pub(super) fn note(&self, question: usize, act: AuditEvent) {
        lock(&self.state).acts.push((question, act));
    }

    /// The calls that were noted so far, by question.
    pub(super) fn acts(&self) -> Vec<(usize, AuditEvent)> {
        let mut acts = std::mem::take(&mut lock(&self.state).acts);
        acts.sort_by_key(|(question, _)| *question);
        acts
    }

    /// Waits until every question has its reply. What is complete is given out even if the run is
    /// over, because it can be committed.
    pub(super) fn wait(&self, is_over: &dyn Fn() -> bool) -> Result<Vec<Settled<A>>, StepError> {
        let mut state = lock(&self.state);
        loop {
            if let Some(why) = &state.failed {
                return Err(why.clone());
            }
            if state.open == 0 {
                return Ok(std::mem::take(&mut state.replies).into_iter().flatten().collect());
            }
            if is_over() {
                return Err(StepError::Cancelled);
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use tidegate_geo::{Kind, Schema, Value};

    fn batch(records: std::ops::Range<i64>) -> Batch {
        let mut batch = Batch::new(Arc::new(Schema::new([("n".to_owned(), Kind::Int)])));
        for n in records {
            batch.push(None, [Value::Int(n)]).unwrap();
        }
        batch
    }

    type Sent = (usize, Arc<Replies<usize>>);

    /// A lane that answers at once, but the first record only when all others that were admitted
    /// have been answered. It says how many those were.
    fn lane(questions: &Receiver<Sent>, others: usize) -> usize {
        let (mut slow, mut answered) = (None, 0);
        for (record, replies) in questions {
            if record == 0 {
                slow = Some(replies);
            } else {
                replies.put(record % 10, Ok(Settled::known(Ok(Some(record)))));
                answered += 1;
            }
            if answered == others
                && let Some(slow) = slow.take()
            {
                slow.put(0, Ok(Settled::known(Ok(Some(0)))));
            }
        }
        answered
    }

    #[test]
    fn one_slow_record_holds_up_nobody_within_the_window_and_order_is_kept() {
        const BATCHES: usize = 30;
        let window = RecordWindow::new(50);
        let (questions, incoming) = channel::<Sent>();
        let (begun, ready) = channel::<(Admission, Arc<Replies<usize>>)>();
        let most = Arc::new(AtomicUsize::new(0));
        // Nine of its own batch and forty of the next four: the window is full with them.
        let lane = std::thread::spawn(move || lane(&incoming, 49));
        let asking = std::thread::spawn({
            let (window, most) = (window.clone(), most.clone());
            move || {
                for n in 0..BATCHES {
                    let admission = window.admit(&batch(0..10), &|| false).unwrap();
                    most.fetch_max(lock(&window.load).records, Ordering::Relaxed);
                    let replies = Arc::new(Replies::new(10));
                    begun.send((admission, replies.clone())).unwrap();
                    for row in 0..10 {
                        questions.send((n * 10 + row, replies.clone())).unwrap();
                    }
                }
            }
        });
        let mut found = Vec::new();
        for (admission, replies) in ready {
            found.extend(
                replies.wait(&|| false).unwrap().into_iter().map(|settled| settled.reply.unwrap().unwrap()),
            );
            drop(admission);
        }
        asking.join().unwrap();
        assert_eq!(found, (0..BATCHES * 10).collect::<Vec<_>>());
        assert_eq!((lane.join().unwrap(), most.load(Ordering::Relaxed)), (BATCHES * 10 - 1, 50));
        assert_eq!(*lock(&window.load), Load::default());
    }

    #[test]
    fn a_batch_that_is_larger_than_the_window_goes_alone() {
        let window = RecordWindow::new(5);
        let first = window.admit(&batch(0..20), &|| true).unwrap();
        assert!(window.admit(&batch(0..1), &|| true).is_none(), "there is no room");
        assert!(window.admit(&batch(0..0), &|| true).is_none());
        drop(first);
        let small = [window.admit(&batch(0..2), &|| true), window.admit(&batch(0..3), &|| true)];
        assert!(small.iter().all(Option::is_some));
        assert!(window.admit(&batch(0..20), &|| true).is_none());
    }

    #[test]
    fn what_is_complete_is_given_out_when_the_run_is_over_and_nothing_else() {
        let replies = Replies::new(2);
        replies.put(1, Ok(Settled::known(Ok(Some('b')))));
        assert_eq!(replies.wait(&|| true), Err(StepError::Cancelled));
        replies.put(0, Ok(Settled::known(Ok(None))));
        replies.put(0, Ok(Settled::known(Ok(Some('x')))));
        assert_eq!(
            replies.wait(&|| true),
            Ok(vec![Settled::known(Ok(None)), Settled::known(Ok(Some('b')))]),
            "the first end counts"
        );
        let replies = Replies::<char>::new(2);
        replies.put(0, Err(StepError::Broken("no".into())));
        assert_eq!(replies.wait(&|| false), Err(StepError::Broken("no".into())), "the rest need not come");
        assert_eq!(Replies::<char>::new(0).wait(&|| false), Ok(vec![]));
    }
}
