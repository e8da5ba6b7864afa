//! The stages of remote steps: a record that waits for its service does not hold up the others.
//!
//! A run with remote steps is a chain of threads. Each thread takes batches through the local steps
//! up to a remote step, starts their calls, and passes them on at once; the next thread collects
//! the answers, in the order of the source, and continues. Between the two is the window of the
//! remote step, which bounds the number of records in flight. So while one record of a batch waits
//! for a minute, the following batches are read, sent and answered, and the order is kept.
//!
//! ```text
//!   pages ─▶ local steps ─▶ begin ═ window ═▶ collect ─▶ local steps ─▶ begin ═ window ═▶ collect ─▶ …
//!            └────────── thread ──────────┘   └─────────────── thread ─────────────┘   └─ transform
//! ```
//!
//! Why threads and not tasks: local steps are CPU work, and a step with state (dedupe) belongs to
//! one thread, which sees all batches in order and shares nothing. Without remote steps there is no
//! further thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use tidegate_geo::Batch;

use super::build::Named;
use super::crash;
use super::source::{self, Page};
use super::transform::{PageRead, TransformEnd, ended};
use crate::step::{Aside, BegunBatch, Reject, SeenKey, StepError};
use crate::telemetry::trace::{self, BatchSpan, Tracer};

/// A batch between steps, with the records that were set aside.
pub(super) struct InTransit {
    pub(super) records: BatchRecords,
    pub(super) aside: Aside,
    /// The number of records read from the source.
    pub(super) read: u64,
    /// Of those, the number of unreadable ones, which are the first rejects.
    pub(super) unreadable: usize,
    pub(super) span: Option<BatchSpan>,
    pub(super) position: String,
}

/// The records of a batch: available, or in flight to a service.
#[allow(clippy::large_enum_variant, reason = "one per batch, and most are the large one")]
pub(super) enum BatchRecords {
    Here(Batch),
    Begun(Box<dyn BegunBatch>),
}

/// A batch, the end of the source, or why there is none.
pub(super) type Passed = Result<Option<InTransit>, TransformEnd>;

/// The source of batches. `None` means stopped: the source has not ended.
pub(super) enum Upstream {
    Source(Receiver<PageRead>),
    Stage(Receiver<Passed>),
}

impl Upstream {
    pub(super) fn next(&self) -> Option<Passed> {
        match self {
            Upstream::Source(pages) => Some(match pages.recv().ok()? {
                Ok(page) => Ok(page.map(InTransit::new)),
                Err(why) => Err(ended(why, "source")),
            }),
            Upstream::Stage(batches) => batches.recv().ok(),
        }
    }
}

/// Starts a thread for each remote step. Returns the end of the chain, and the steps after the last
/// remote one.
pub(super) fn stages<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    pages: Receiver<PageRead>,
    mut steps: &'env mut [Named],
    is_over: &'env AtomicBool,
) -> (Upstream, &'env mut [Named]) {
    let mut from = Upstream::Source(pages);
    while let Some(at) = steps.iter_mut().position(|named| named.step.as_remote().is_some()) {
        let (own, behind) = std::mem::take(&mut steps).split_at_mut(at + 1);
        steps = behind;
        // The window bounds the number of batches, so the channel needs no bound.
        let (to, next) = channel();
        let before = std::mem::replace(&mut from, Upstream::Stage(next));
        scope.spawn(move || pass(&before, &to, own, is_over));
    }
    (from, steps)
}

fn pass(from: &Upstream, to: &Sender<Passed>, steps: &mut [Named], is_over: &AtomicBool) {
    while let Some(passed) = from.next() {
        let passed = match passed {
            Ok(Some(transit)) => transit.through(steps, is_over).map(Some),
            end => end,
        };
        let is_last = !matches!(passed, Ok(Some(_)));
        if to.send(passed).is_err() || is_last {
            return;
        }
    }
}

impl InTransit {
    pub(super) fn new(page: Page) -> InTransit {
        let span = trace::tracer().map(Tracer::batch);
        let read = (page.batch.len() + page.rejected.len()) as u64;
        let mut aside = Aside { stage: "read".into(), ..Aside::default() };
        aside.seen.extend(page.marks.iter().map(|hash| SeenKey { scope: source::SCOPE, hash: *hash }));
        for rejected in page.rejected {
            aside.rejected.push(Reject {
                record: rejected.record,
                stage: "read".into(),
                problems: rejected.problems,
                feature: String::new(),
                raw: rejected.raw,
                call: None,
            });
        }
        let unreadable = aside.rejected.len();
        InTransit {
            records: BatchRecords::Here(page.batch),
            aside,
            read,
            unreadable,
            span,
            position: page.position,
        }
    }

    /// Takes the batch through some steps; if the last is remote, its calls are started and not
    /// collected.
    pub(super) fn through(
        self,
        steps: &mut [Named],
        is_over: &AtomicBool,
    ) -> Result<InTransit, TransformEnd> {
        let InTransit { records, mut aside, .. } = self;
        let mut batch = records.collect(&mut aside, is_over)?;
        for named in steps {
            aside.stage.clone_from(&named.label);
            let label = |why: StepError| ended(why, &named.label);
            if let Some(remote) = named.step.as_remote() {
                let begun = remote.begin(batch, self.span, &|| is_over.load(Ordering::Relaxed));
                return Ok(InTransit { records: BatchRecords::Begun(begun.map_err(label)?), aside, ..self });
            }
            batch = named.step.apply(batch, &mut aside).map_err(label)?;
            crash::record(&batch);
        }
        Ok(InTransit { records: BatchRecords::Here(batch), aside, ..self })
    }
}

impl BatchRecords {
    /// Waits until each record has an outcome; returns the records.
    pub(super) fn collect(self, aside: &mut Aside, is_over: &AtomicBool) -> Result<Batch, TransformEnd> {
        match self {
            BatchRecords::Here(batch) => Ok(batch),
            BatchRecords::Begun(begun) => {
                let collected = begun.collect(aside, &|| is_over.load(Ordering::Relaxed));
                collected.map_err(|why| ended(why, &aside.stage))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Flow, RemoteStep, Step};
    use std::sync::{Arc, Condvar, Mutex};
    use tidegate_geo::{Kind, Schema, Value};

    /// A service that answers a batch when the test says so.
    #[derive(Default)]
    struct Service {
        /// The batches that were started, and those that may be collected.
        state: Mutex<(Vec<u64>, Vec<u64>)>,
        changed: Condvar,
    }

    impl Service {
        fn begun(&self, batches: usize) {
            let state = self.state.lock().unwrap();
            let _enough = self.changed.wait_while(state, |(begun, _)| begun.len() < batches).unwrap();
        }

        fn answer(&self, batch: u64) {
            self.state.lock().unwrap().1.push(batch);
            self.changed.notify_all();
        }
    }

    struct Asking(Arc<Service>);
    struct Begun(Arc<Service>, Batch);

    impl Step for Asking {
        fn apply(&mut self, batch: Batch, _: &mut Aside) -> Result<Batch, StepError> {
            Ok(batch)
        }

        fn as_remote(&mut self) -> Option<&mut dyn RemoteStep> {
            Some(self)
        }
    }

    impl RemoteStep for Asking {
        fn begin(
            &mut self,
            batch: Batch,
            _: Option<BatchSpan>,
            _: &dyn Fn() -> bool,
        ) -> Result<Box<dyn BegunBatch>, StepError> {
            self.0.state.lock().unwrap().0.push(batch.record(0));
            self.0.changed.notify_all();
            Ok(Box::new(Begun(self.0.clone(), batch)))
        }

        fn preview(&self, _: &Batch, _: usize) -> Result<String, tidegate_geo::Problem> {
            Ok(String::new())
        }
    }

    impl BegunBatch for Begun {
        fn collect(self: Box<Self>, _: &mut Aside, is_over: &dyn Fn() -> bool) -> Result<Batch, StepError> {
            let Begun(service, batch) = *self;
            let mut state = service.state.lock().unwrap();
            while !state.1.contains(&batch.record(0)) {
                if is_over() {
                    return Err(StepError::Cancelled);
                }
                state = service.changed.wait_timeout(state, std::time::Duration::from_millis(5)).unwrap().0;
            }
            drop(state);
            Ok(batch)
        }
    }

    /// Records the order of batches.
    struct Order(Arc<Mutex<Vec<u64>>>);

    impl Step for Order {
        fn apply(&mut self, batch: Batch, _: &mut Aside) -> Result<Batch, StepError> {
            self.0.lock().unwrap().push(batch.record(0));
            Ok(batch)
        }
    }

    fn named(label: &str, step: impl Step + 'static) -> Named {
        let before = Flow::new(Arc::new(Schema::new([("n".to_owned(), Kind::Int)])), None);
        Named { label: label.into(), before, step: Box::new(step), crs: None }
    }

    fn page(record: u64) -> PageRead {
        let mut batch = Batch::new(Arc::new(Schema::new([("n".to_owned(), Kind::Int)])));
        batch.go_to_record(record);
        batch.push(None, [Value::Int(record.cast_signed())]).unwrap();
        Ok(Some(Page { batch, rejected: Vec::new(), position: record.to_string(), marks: Vec::new() }))
    }

    fn positions(from: &Upstream, steps: &mut [Named], is_over: &AtomicBool) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        loop {
            let transit = match from.next() {
                Some(Ok(Some(transit))) => transit,
                end => return (found, matches!(end, Some(Ok(None)))),
            };
            match transit.through(steps, is_over) {
                Ok(transit) => found.push(transit.position),
                Err(_) => return (found, false),
            }
        }
    }

    /// The output of a chain of two services with local steps around them.
    fn chain(
        pages: Vec<PageRead>,
        (first, second): (&Arc<Service>, &Arc<Service>),
        meanwhile: impl FnOnce(&AtomicBool) + Send,
    ) -> ((Vec<String>, bool), [Vec<u64>; 3]) {
        let seen: [Arc<Mutex<Vec<u64>>>; 3] = Default::default();
        let order = |at: usize| Order(seen[at].clone());
        let mut steps = vec![
            named("a", order(0)),
            named("b", Asking(first.clone())),
            named("c", order(1)),
            named("d", Asking(second.clone())),
            named("e", order(2)),
        ];
        let (to, incoming) = channel();
        for page in pages {
            to.send(page).unwrap();
        }
        drop(to);
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let (from, last) = stages(scope, incoming, &mut steps, &is_over);
            scope.spawn(|| meanwhile(&is_over));
            let found = positions(&from, last, &is_over);
            is_over.store(true, Ordering::Relaxed);
            found
        });
        (found, seen.map(|seen| seen.lock().unwrap().clone()))
    }

    #[test]
    fn batches_are_begun_while_the_first_waits_and_leave_in_order() {
        let (first, second): (Arc<Service>, Arc<Service>) = Default::default();
        let pages = (0..6).map(page).chain([Ok(None)]).collect();
        let (found, seen) = chain(pages, (&first, &second), |_| {
            // All batches are in flight to the first service while its first batch waits.
            first.begun(6);
            (1..6).for_each(|n| first.answer(n));
            assert_eq!(second.state.lock().unwrap().0, [0; 0], "nobody overtakes");
            first.answer(0);
            second.begun(6);
            (0..6).rev().for_each(|n| second.answer(n));
        });
        assert_eq!(found, (["0", "1", "2", "3", "4", "5"].map(str::to_owned).to_vec(), true));
        assert_eq!(seen, [(); 3].map(|()| (0..6).collect::<Vec<u64>>()), "steps see them in order");
    }

    #[test]
    fn a_stop_lets_the_complete_prefix_through_and_nothing_else() {
        let (first, second): (Arc<Service>, Arc<Service>) = Default::default();
        // Without the end of the source.
        let pages = (0..6).map(page).collect();
        let (found, _) = chain(pages, (&first, &second), |is_over| {
            [0, 1, 2, 4, 5].iter().for_each(|n| first.answer(*n));
            (0..6).for_each(|n| second.answer(n));
            second.begun(3);
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(found, (["0", "1", "2"].map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn a_source_that_breaks_off_says_so_after_the_batches_before() {
        let (first, second): (Arc<Service>, Arc<Service>) = Default::default();
        (0..3).for_each(|n| first.answer(n));
        (0..3).for_each(|n| second.answer(n));
        let broken = Err(StepError::Broken("gone".into()));
        let (found, _) = chain((0..3).map(page).chain([broken]).collect(), (&first, &second), |_| {});
        assert_eq!(found, (["0", "1", "2"].map(str::to_owned).to_vec(), false));
    }
}
