//! `submit --wait`: asks the sink until all tasks of the command have ended.
//!
//! The keys are in a temporary file, in the order in which they came. They are asked for in chunks,
//! and a chunk is left when all its tasks have ended. So a million keys need no memory, and the sink
//! is not asked about all of them again and again.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_pipeline::sink::{TaskRow, TaskState};

use crate::exit::{CommandFailure, Exit};
use crate::progress::{Ticker, span, thousands};
use crate::verb::queue::open::OpenTaskQueue;

/// The number of tasks that are asked for at once.
const CHUNK: usize = 500;
/// The time between two questions.
const POLL: Duration = Duration::from_millis(250);
/// How long the rest is still asked for when the time is over.
const LATE_MAX: Duration = Duration::from_secs(5);
/// The number of reasons that are shown.
const REASONS_MAX: usize = 10;

/// The keys of a command, in a file without a name. A key has no line break.
pub(super) struct KeySpool {
    file: BufWriter<File>,
    count: u64,
}

impl KeySpool {
    pub(super) fn new() -> io::Result<KeySpool> {
        Ok(KeySpool { file: BufWriter::new(tempfile::tempfile()?), count: 0 })
    }

    pub(super) fn add(&mut self, key: &str) -> io::Result<()> {
        self.count += 1;
        writeln!(self.file, "{key}")
    }

    /// The keys, from the first.
    fn lines(self) -> io::Result<io::Lines<BufReader<File>>> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::new(file).lines())
    }
}

/// How the tasks of a command ended.
#[derive(Default)]
pub(super) struct TaskEnds {
    /// All of them; those that are not in the other counts were not seen to end.
    pub(super) tasks: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
    /// The first reasons, with their keys.
    reasons: Vec<(String, String)>,
    /// Whether the time was over before.
    is_late: bool,
}

impl TaskEnds {
    fn ended(&self) -> u64 {
        self.done + self.dead + self.cancelled
    }

    fn add(&mut self, row: &TaskRow) {
        match row.state {
            TaskState::Done => self.done += 1,
            TaskState::Cancelled => self.cancelled += 1,
            TaskState::Dead => {
                self.dead += 1;
                if self.reasons.len() < REASONS_MAX {
                    self.reasons.push((row.key.clone(), row.reason.clone().unwrap_or_default()));
                }
            }
            TaskState::Queued | TaskState::Running => {}
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            TaskEnds { is_late: true, .. } => Exit::TryLater,
            TaskEnds { dead: 0, cancelled: 0, .. } => Exit::Done,
            _ => Exit::DeadLetters,
        }
    }

    pub(super) fn json(&self) -> Value {
        let reasons: Vec<Value> =
            self.reasons.iter().map(|(key, reason)| json!({ "key": key, "reason": reason })).collect();
        json!({
            "tasks": self.tasks, "done": self.done, "dead": self.dead, "cancelled": self.cancelled,
            "unfinished": self.tasks - self.ended(), "timeout": self.is_late, "reasons": reasons,
        })
    }
}

impl std::fmt::Display for TaskEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} done, {} dead, {} cancelled, of {}",
            thousands(self.done),
            thousands(self.dead),
            thousands(self.cancelled),
            thousands(self.tasks)
        )?;
        if self.is_late {
            f.write_str("; the time is over, the others were not seen to end")?;
        }
        for (key, reason) in &self.reasons {
            write!(f, "\n  {key}: {reason}")?;
        }
        let more = self.dead - self.reasons.len() as u64;
        if more > 0 { write!(f, "\n  and {} more", thousands(more)) } else { Ok(()) }
    }
}

/// Waits until all tasks have ended, or the time is over.
pub(super) fn wait(
    tasks: &mut OpenTaskQueue,
    spool: KeySpool,
    timeout: Duration,
) -> Result<TaskEnds, CommandFailure> {
    let (began, mut ticker) = (Instant::now(), Ticker::new());
    let mut ends = TaskEnds { tasks: spool.count, ..TaskEnds::default() };
    let mut lines = spool.lines()?;
    loop {
        let mut open: Vec<String> = lines.by_ref().take(CHUNK).collect::<io::Result<_>>()?;
        // What has ended further on in the list counts as well, if it can be asked for in time.
        if open.is_empty() || (ends.is_late && began.elapsed() >= timeout + LATE_MAX) {
            return Ok(ends);
        }
        loop {
            let rows = tasks.table(|table| table.rows(&open))?.unwrap_or_default();
            let has_ended = |row: &Option<TaskRow>| row.as_ref().is_some_and(|row| row.state.is_end());
            rows.iter().filter(|row| has_ended(row)).flatten().for_each(|row| ends.add(row));
            let mut rows = rows.iter();
            open.retain(|_| !rows.next().is_some_and(has_ended));
            if open.is_empty() {
                break;
            }
            if began.elapsed() >= timeout {
                ends.is_late = true;
                break;
            }
            if io::IsTerminal::is_terminal(&io::stderr()) {
                let [queued, running, ..] = tasks.counts()?;
                ticker.show(|| {
                    let (ended, tasks) = (thousands(ends.ended()), thousands(ends.tasks));
                    let (queued, running) = (thousands(queued), thousands(running));
                    let (dead, time) = (thousands(ends.dead), span(began.elapsed()));
                    format!(
                        "{ended} of {tasks} ended, {dead} dead · {queued} queued, {running} running · {time}"
                    )
                });
            }
            std::thread::sleep(POLL.min(timeout.saturating_sub(began.elapsed())));
        }
    }
}
