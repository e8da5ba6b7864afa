//! The tasks of a queue as pages of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::Code;
use tidegate_core::call::CallPolicy;
use tidegate_geo::batch::Span;
use tidegate_geo::format::{Layer, Rejected};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Crs, Problem, Schema};
use tidegate_queue::{Delivery, Geotask, now_ms};
use tracing::warn;

use super::desk::{ClaimedTask, ReceivedTask, RunningTask, TaskDesk};
use super::feed::Feed;
use super::link::TaskLink;
use super::records::{self, PayloadRules};
use crate::lane::Clock;
use crate::manifest::{SourceSpec, TaskGeometry, TaskSource};
use crate::objects::{AllowedObjects, ObjectAddress};
use crate::run::source::{Page, Source};
use crate::run::{crash, patiently};
use crate::sink::{Claim, SinkError, TaskRow, TaskState};
use crate::source::IdentifierHash;
use crate::step::{self, StepError};

/// A delivery, and the task in it or why it is none.
type ReadTask = (Delivery, Result<Geotask, Problem>);

/// Downloads the object of a task, which is allowed, to a local file.
pub(crate) type FetchObject = Box<dyn FnMut(&ObjectAddress) -> Result<PathBuf, StepError> + Send>;

/// What holds for an object beside its host, if that is allowed.
const ASIDE: &str = "an object is not followed to another host or port, and a name may resolve to a private \
     address only with `allow_private: true` in `source.tasks.objects`";
/// How long a task waits that must come after others.
const AFTER: Duration = Duration::from_secs(2);
/// How often the ends of old tasks are deleted.
const FORGET: Duration = Duration::from_secs(3600);

/// The layer that the tasks of a manifest declare.
///
/// # Errors
/// When the manifest is incomplete, or its coordinate reference system unknown.
pub(crate) fn layer_of(form: &SourceSpec, tasks: &TaskSource, name: &str) -> Result<Layer, String> {
    let mut schema = Schema::new(tasks.fields.iter().map(|(name, cast)| (name.clone(), step::kind(*cast))));
    schema.shape = match tasks.geometry {
        TaskGeometry::Any => None,
        TaskGeometry::Point => Some(Shape::Point),
        TaskGeometry::Linestring => Some(Shape::LineString),
        TaskGeometry::Polygon => Some(Shape::Polygon),
        TaskGeometry::Multipoint => Some(Shape::MultiPoint),
        TaskGeometry::Multilinestring => Some(Shape::MultiLineString),
        TaskGeometry::Multipolygon => Some(Shape::MultiPolygon),
    };
    let crs = match form.crs.as_deref() {
        Some(name) => step::crs(name).map_err(|e| format!("source.crs: {e}"))?,
        None => Crs::wgs84(),
    };
    Ok(Layer { name: name.to_owned(), schema: Arc::new(schema), crs: Some(crs), records: None })
}

/// A queue as a source. Without a desk it only describes the layer.
pub(crate) struct QueueSource {
    layer: Layer,
    desk: Option<TaskLink>,
    rules: PayloadRules,
    /// What the object of a task may be.
    objects: AllowedObjects,
    crashes_max: u32,
    remember_ms: i64,
    /// When the ends of old tasks were deleted last.
    forgotten: Option<Instant>,
    policy: CallPolicy,
    stop: Arc<AtomicBool>,
    fetch: FetchObject,
    /// Whether the page in work must be committed before the next one.
    is_alone: bool,
}

impl QueueSource {
    pub(crate) fn new(
        tasks: &TaskSource,
        layer: Layer,
        desk: Option<TaskLink>,
        (objects, policy, stop): (AllowedObjects, CallPolicy, Arc<AtomicBool>),
        (fetch, trusted): (FetchObject, Option<Crs>),
    ) -> QueueSource {
        let crs = layer.crs.clone();
        let rules = PayloadRules { bytes_max: tasks.bytes_max, crs, plausible: trusted };
        QueueSource {
            layer,
            desk,
            rules,
            objects,
            crashes_max: tasks.crashes_max,
            remember_ms: i64::from(tasks.remember_days) * 86_400_000,
            forgotten: None,
            policy,
            stop,
            fetch,
            is_alone: false,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until everything in work is committed.
    fn wait_until_idle(&self, desk: &TaskDesk) -> Result<(), StepError> {
        while !desk.is_idle() {
            if self.is_stopped() {
                return Err(StepError::Cancelled);
            }
        }
        Ok(())
    }

    /// Uses the table of tasks, patiently while the sink is down.
    fn in_table<T>(
        &self,
        desk: &TaskDesk,
        mut work: impl FnMut(&mut dyn crate::sink::TaskTable) -> Result<T, SinkError>,
    ) -> Result<T, StepError> {
        let missing = || SinkError::Fatal("the table of tasks is not open; please report this bug".into());
        let done = patiently(&self.policy, &self.stop, || {
            desk.with_table(&mut work).unwrap_or_else(|| Err(missing()))
        });
        done.map_err(|error| match error {
            SinkError::Transient { code, message } => StepError::TryLater {
                code,
                until: Clock::system().wall(),
                said: format!("the sink: {message}"),
            },
            SinkError::Fatal(what) => StepError::Broken(format!("the sink: {what}")),
        })
    }

    /// Deletes the ends of old tasks, now and then.
    fn forget(&mut self, desk: &TaskDesk) {
        if self.forgotten.is_some_and(|at| at.elapsed() < FORGET) {
            return;
        }
        self.forgotten = Some(Instant::now());
        let before = now_ms().saturating_sub(self.remember_ms);
        if let Some(Err(e)) = desk.with_table(|table| table.forget(before)) {
            warn!(target: "tidegate::queue", "cannot delete the ends of old tasks, it is tried again in an hour: {e}");
        }
    }

    /// Claims tasks. Those on which a worker has died are put aside, unless they are claimed alone.
    fn claim(
        &self,
        (desk, feed): (&TaskDesk, &Feed),
        received: Vec<ReadTask>,
        is_alone: bool,
    ) -> Result<Vec<ClaimedTask>, StepError> {
        let keys: Vec<String> = received.iter().map(|(delivery, _)| delivery.message.key.clone()).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        desk.release(&[]);
        let claims = self.in_table(desk, |table| table.claim(&keys, &desk.worker));
        let claims = match claims {
            Ok(claims) => claims,
            Err(error) => {
                feed.requeue(
                    desk,
                    received.into_iter().map(|(delivery, _)| delivery).collect(),
                    Duration::ZERO,
                );
                return Err(error);
            }
        };
        let (mut ended, mut claimed, mut suspects) = (Vec::new(), Vec::new(), Vec::new());
        let mut repeated = Vec::new();
        for ((delivery, content), claim) in received.into_iter().zip(claims) {
            match claim {
                Claim::Ended(state) => ended.push((delivery, state)),
                // The first message of a task that came twice is the one that counts. The other comes again,
                // and is acknowledged when the task has ended.
                Claim::Repeated => repeated.push(delivery),
                Claim::Granted { token, attempts } => {
                    let crashes = attempts.saturating_sub(1);
                    let content = if crashes >= self.crashes_max {
                        let what = format!("{crashes} workers died while they worked on this task");
                        Err(Problem::new(Code::PROCESS_CRASHED, what))
                    } else {
                        content
                    };
                    match content {
                        Ok(task) if crashes > 0 && crashes + 1 >= self.crashes_max && !is_alone => {
                            suspects.push((delivery, token, task));
                        }
                        content => claimed.push(ClaimedTask { delivery, token, content }),
                    }
                }
            }
        }
        feed.requeue(desk, repeated, AFTER);
        if !ended.is_empty() {
            let reasons = self.reasons(desk, &ended)?;
            let reason = |key: &String| reasons.get(key).cloned();
            let known = ended.into_iter().map(|(delivery, _)| {
                let reason = reason(&delivery.message.key);
                (delivery, reason)
            });
            desk.ended_before(known.collect());
        }
        if !suspects.is_empty() {
            desk.suspect(suspects);
        }
        Ok(claimed)
    }

    /// Why tasks that had ended before are dead.
    fn reasons(
        &self,
        desk: &TaskDesk,
        ended: &[(Delivery, TaskState)],
    ) -> Result<BTreeMap<String, String>, StepError> {
        let dead = ended.iter().filter(|(_, state)| *state == TaskState::Dead);
        let keys: Vec<String> = dead.map(|(delivery, _)| delivery.message.key.clone()).collect();
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let rows = self.in_table(desk, |table| table.rows(&keys))?;
        let reason = |row: Option<TaskRow>| row.and_then(|row| row.reason);
        Ok(keys
            .into_iter()
            .zip(rows.into_iter().map(reason))
            .filter_map(|(key, why)| Some((key, why?)))
            .collect())
    }

    /// Returns tasks to the queue that must come after others which are not done; a task is dead if one
    /// of those is, and if its time is over.
    fn after_others(
        &self,
        desk: &TaskDesk,
        feed: &Feed,
        received: Vec<ReceivedTask>,
    ) -> Result<Vec<ReadTask>, StepError> {
        let mut needed: Vec<String> = received
            .iter()
            .filter_map(|one| one.task.as_ref().ok())
            .flat_map(|task| task.after.clone())
            .collect();
        needed.sort_unstable();
        needed.dedup();
        let mut states: BTreeMap<String, Option<TaskState>> = BTreeMap::new();
        if !needed.is_empty() {
            let rows = match self.in_table(desk, |table| table.rows(&needed)) {
                Ok(rows) => rows,
                Err(error) => {
                    let all = received.into_iter().map(|task| task.delivery).collect();
                    feed.requeue(desk, all, Duration::ZERO);
                    return Err(error);
                }
            };
            states = needed.into_iter().zip(rows.into_iter().map(|row| row.map(|row| row.state))).collect();
        }
        let (mut ready, mut early) = (Vec::new(), Vec::new());
        for ReceivedTask { delivery, task } in received {
            let task = match task {
                Ok(task) => task,
                Err(not) => {
                    ready.push((delivery, Err(Problem::new(not.code, not.message))));
                    continue;
                }
            };
            let state = |key: &String| states.get(key).copied().flatten();
            let failed = task
                .after
                .iter()
                .find(|key| matches!(state(key), Some(TaskState::Dead | TaskState::Cancelled)));
            if let Some(key) = failed {
                let what = format!("the task {key}, which must be done before, is dead or cancelled");
                ready.push((delivery, Err(Problem::new(Code::TASK_BLOCKED, what))));
            } else if task.expires_ms().is_some_and(|at| at < now_ms()) {
                let what = format!("the task expired at {}", task.expires.as_deref().unwrap_or_default());
                ready.push((delivery, Err(Problem::new(Code::TASK_EXPIRED, what))));
            } else if task.after.iter().all(|key| state(key) == Some(TaskState::Done)) {
                ready.push((delivery, Ok(task)));
            } else {
                early.push(delivery);
            }
        }
        if !early.is_empty() {
            feed.requeue(desk, early, AFTER);
        }
        Ok(ready)
    }

    /// Makes a page of tasks, and puts them into work.
    fn page(&mut self, (desk, feed): (&TaskDesk, &Feed), tasks: Vec<ClaimedTask>) -> Result<Page, StepError> {
        let (mut readable, mut dead) = (Vec::new(), Vec::new());
        let mut tasks = tasks.into_iter();
        while let Some(ClaimedTask { delivery, token, content }) = tasks.next() {
            if content.is_ok() {
                crash::task(&delivery.message.key);
            }
            let mut text = Vec::new();
            match content.map_err(NoRecords::Dead).and_then(|task| self.append(&task, &mut text)) {
                Ok(count) => readable.push((delivery, token, text, count)),
                Err(NoRecords::Dead(problem)) => dead.push((delivery, token, problem)),
                Err(NoRecords::Later(wait)) => {
                    desk.release(&[(delivery.message.key.clone(), token)]);
                    feed.requeue(desk, vec![delivery], wait);
                }
                Err(NoRecords::Broken(what)) => {
                    // None of the page is in work yet.
                    let readable = readable.into_iter().map(|(delivery, token, ..)| (delivery, token));
                    let dead = dead.into_iter().map(|(delivery, token, _)| (delivery, token));
                    let rest = tasks.map(|task| (task.delivery, task.token));
                    let all = readable.chain(dead).chain([(delivery, token)]).chain(rest);
                    requeue_claimed((desk, feed), all.collect());
                    return Err(StepError::Broken(what));
                }
            }
        }
        let (schema, first) = (self.layer.schema.clone(), desk.next_record());
        let read = |texts: &[&[u8]], count: u64| {
            let (batch, rejected) = records::read(&texts.concat(), &schema, first)?;
            let found = (batch.len() + rejected.len()) as u64;
            if found == count {
                Ok((batch, rejected))
            } else {
                Err(format!("{found} records instead of {count}"))
            }
        };
        let texts: Vec<&[u8]> = readable.iter().map(|(_, _, text, _)| text.as_slice()).collect();
        let all = read(&texts, readable.iter().map(|(.., count)| count).sum());
        let (batch, mut rejected) = match all {
            Ok(all) => all,
            // One of them cannot be read. The others must not pay for it.
            Err(_) => {
                let mut good = Vec::new();
                for (delivery, token, text, count) in std::mem::take(&mut readable) {
                    match read(&[&text], count) {
                        Ok(_) => good.push((delivery, token, text, count)),
                        Err(what) => {
                            let what = format!("the payload cannot be read: {what}");
                            dead.push((delivery, token, Problem::new(Code::UNEXPECTED_BODY, what)));
                        }
                    }
                }
                readable = good;
                let texts: Vec<&[u8]> = readable.iter().map(|(_, _, text, _)| text.as_slice()).collect();
                read(&texts, readable.iter().map(|(.., count)| count).sum()).map_err(StepError::Broken)?
            }
        };
        let batch = self.rules.plausible(batch, &mut rejected);
        let (mut running, mut next) = (Vec::new(), first);
        for (delivery, token, _, count) in readable {
            running.push(RunningTask { delivery, token, records: next..next + count });
            next += count;
        }
        for (delivery, token, problem) in dead {
            let problems = vec![Problem { record: Some(next), ..problem }];
            let raw = delivery.message.body.clone();
            rejected.push(Rejected { record: next, span: Span::default(), raw, problems });
            running.push(RunningTask { delivery, token, records: next..next + 1 });
            next += 1;
        }
        let position = desk.begin(running);
        Ok(Page { batch, rejected, position, marks: Vec::new() })
    }

    /// Appends the records of a task.
    fn append(&mut self, task: &Geotask, text: &mut Vec<u8>) -> Result<u64, NoRecords> {
        let dead = |code, what: String| Err(NoRecords::Dead(Problem::new(code, what)));
        // Whoever wrote the task chose the object; the manifest says what may be opened.
        let object = match task.object.as_deref().map(|object| self.objects.address(object)).transpose() {
            Ok(object) => object,
            Err(refused) => return dead(refused.code(), refused.to_string()),
        };
        let remote = object.as_ref().filter(|object| object.path().is_none());
        let fetched = match remote.map(|address| (self.fetch)(address)).transpose() {
            Ok(local) => local,
            Err(StepError::Failed { code: Code::HOST_NOT_ALLOWED, said }) => {
                return dead(Code::HOST_NOT_ALLOWED, format!("{said}; {ASIDE}"));
            }
            Err(StepError::Failed { code, said }) => return dead(code, said),
            // A full disk, for example: no task is to blame for it.
            Err(StepError::Broken(what)) => return Err(NoRecords::Broken(what)),
            Err(StepError::TryLater { until, .. }) => {
                let wait = until.millis().saturating_sub(now_ms()).max(1000);
                return Err(NoRecords::Later(Duration::from_millis(wait.unsigned_abs())));
            }
            Err(StepError::Cancelled) => return Err(NoRecords::Later(Duration::ZERO)),
        };
        let local = fetched.as_deref().or(object.as_ref().and_then(ObjectAddress::path));
        let added = records::append(task, &self.rules, local, text);
        if let Some(path) = fetched {
            // It is downloaded again if it is needed.
            let _unused = std::fs::remove_file(path);
        }
        match added {
            Ok(0) => dead(Code::SCHEMA_MISMATCH, "the payload has no features".into()),
            Ok(count) => Ok(count),
            Err(problem) => dead(problem.code, problem.message),
        }
    }
}

/// Returns claimed tasks to the queue; the attempt does not count.
fn requeue_claimed((desk, feed): (&TaskDesk, &Feed), tasks: Vec<(Delivery, i64)>) {
    let claims = tasks.iter().map(|(delivery, token)| (delivery.message.key.clone(), *token));
    desk.release(&claims.collect::<Vec<_>>());
    feed.requeue(desk, tasks.into_iter().map(|(delivery, _)| delivery).collect(), Duration::ZERO);
}

/// Why a task has no records.
enum NoRecords {
    /// It never will have any.
    Dead(Problem),
    /// Its object cannot be had now.
    Later(Duration),
    /// This machine cannot work on it, nor on others.
    Broken(String),
}

impl Source for QueueSource {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn stamp(&self) -> String {
        "queue".to_owned()
    }

    fn seek(&mut self, _: &str, _: Vec<IdentifierHash>) -> Result<(), StepError> {
        Ok(())
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        let Some(TaskLink { desk, feed }) = self.desk.clone() else { return Ok(None) };
        if std::mem::take(&mut self.is_alone) {
            self.wait_until_idle(&desk)?;
        }
        loop {
            if self.is_stopped() {
                return Err(StepError::Cancelled);
            }
            if desk.has_suspects() {
                // Whoever dies now, dies of this one.
                self.wait_until_idle(&desk)?;
                let Some((delivery, task)) = desk.next_suspect() else { continue };
                let claimed = self.claim((&desk, &feed), vec![(delivery, Ok(task))], true)?;
                if claimed.is_empty() {
                    continue;
                }
                self.is_alone = true;
                return self.page((&desk, &feed), claimed).map(Some);
            }
            let Some(received) = desk.take() else { return Ok(None) };
            if received.is_empty() {
                continue;
            }
            self.forget(&desk);
            let received = self.after_others(&desk, &feed, received)?;
            let claimed = self.claim((&desk, &feed), received, false)?;
            if !claimed.is_empty() {
                return self.page((&desk, &feed), claimed).map(Some);
            }
        }
    }
}
