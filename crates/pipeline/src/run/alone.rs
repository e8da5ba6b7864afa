//! Tries the records that may have killed the process, each alone, in a process of its own.
//!
//! The child takes each record through steps and gates, and says on its standard output which one
//! it works on. It writes nothing, and the sink is not touched. If it dies, or works on one record
//! for longer than [`WORK_MAX`], the record that it named last is the cause: it is set aside, and a
//! new child goes on without it. A process that was killed from outside has no such record, so
//! nothing is given up for a kill.
//!
//! ```text
//!   parent ── spec as JSON ──▶ stdin    child      (the end of stdin ends the child)
//!          ◀── "work 17 steps[1] coerce" ── stdout
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_core::letter::poison::Suspects;
use tidegate_geo::{Batch, Problem};

use super::build::{Folders, Named, PipelineParts, RunContext, Start, build_from};
use super::described::Described;
use super::source::Page;
use super::stream::InTransit;
use super::transform::judge;
use crate::child;
use crate::gate::Gates;
use crate::manifest::Manifest;
use crate::step::{Aside, Flow, Step, StepError};
use crate::traffic::Traffic;

/// The longest that the local work on one record may take.
const WORK_MAX: Duration = Duration::from_secs(60);
/// The most records that are set aside for one crash.
const POISON_MAX: usize = 100;

/// A record that kills the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoisonRecord {
    /// Its number in the source, from 0.
    pub record: u64,
    /// The stage at which the process died.
    pub stage: String,
    /// How it died.
    pub how: String,
}

impl std::fmt::Display for PoisonRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}, alone in a process of its own: {}", self.stage, self.how)
    }
}

/// What the child needs.
#[derive(Serialize, Deserialize)]
pub(super) struct TrySpec {
    pub(super) manifest: Manifest,
    pub(super) folder: PathBuf,
    /// The state directory of the pipeline.
    pub(super) state: PathBuf,
    /// The state directory.
    pub(super) answers: PathBuf,
    pub(super) run: u64,
    pub(super) layer: Option<Described>,
    /// Where reading starts.
    pub(super) position: String,
    /// The number of records before it.
    pub(super) read: u64,
    /// The records to try, by their place in the source.
    pub(super) suspects: (u64, u64),
    /// The records that are not tried any more.
    pub(super) poison: Vec<PoisonRecord>,
}

/// Finds the records that kill the process.
///
/// # Errors
/// When reading kills the process: no record can be set aside then.
pub(super) fn find(
    program: &Path,
    mut spec: TrySpec,
    stop: &AtomicBool,
) -> Result<Vec<PoisonRecord>, String> {
    while spec.poison.len() < POISON_MAX && !stop.load(Ordering::Relaxed) {
        match trial(program, &spec, stop) {
            ChildEnd::Lived => break,
            ChildEnd::Died { at: Some((record, stage)), how } => {
                spec.poison.push(PoisonRecord { record, stage, how });
            }
            ChildEnd::Died { at: None, how } => {
                return Err(format!(
                    "the process died repeatedly, and reading the source after record {} kills it ({how}). Such a record cannot be set aside; repair or remove it in the source",
                    spec.read.max(spec.suspects.0)
                ));
            }
        }
    }
    Ok(spec.poison)
}

enum ChildEnd {
    /// It came to the end, or was not able to start.
    Lived,
    /// It died at a record, or while reading.
    Died { at: Option<(u64, String)>, how: String },
}

fn trial(program: &Path, spec: &TrySpec, stop: &AtomicBool) -> ChildEnd {
    // By way of a value, as everywhere: else a second writer and reader of the whole manifest are compiled.
    let Ok(spec) = serde_json::to_value(spec) else { return ChildEnd::Lived };
    let mut command = child::own(program, |name| refers(&spec, name));
    command.arg(TRY_VERB).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return ChildEnd::Lived };
    let text = spec.to_string();
    // Held open while the child lives: it ends when this process does.
    let mut stdin = child.stdin.take();
    let sent = stdin.as_mut().map(|to| to.write_all(text.as_bytes()).and_then(|()| to.write_all(b"\n")));
    let (Some(Ok(())), Some(out)) = (sent, child.stdout.take()) else { return ended(&mut child) };
    let (to, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    let last = follow(&lines, stop);
    if last.too_long {
        let _ = child.kill();
    }
    let how = match child.wait() {
        _ if last.too_long => format!("it worked for more than {} s", work_max().as_secs()),
        Ok(status) => status.to_string(),
        Err(e) => e.to_string(),
    };
    let mut words = last.line.splitn(3, ' ');
    match (words.next(), words.next().and_then(|n| n.parse().ok()), words.next()) {
        (Some("work" | "wait"), Some(record), Some(stage)) => {
            ChildEnd::Died { at: Some((record, stage.to_owned())), how }
        }
        (Some("read"), ..) => ChildEnd::Died { at: None, how },
        _ => ChildEnd::Lived,
    }
}

/// Whether a manifest refers to this variable of the environment, anywhere.
fn refers(value: &serde_json::Value, name: &str) -> bool {
    use serde_json::Value;
    match value {
        Value::String(text) => text.strip_prefix("env:") == Some(name),
        Value::Array(items) => items.iter().any(|item| refers(item, name)),
        Value::Object(map) => map.values().any(|item| refers(item, name)),
        _ => false,
    }
}

/// Ends a child that is not needed.
fn ended(child: &mut Child) -> ChildEnd {
    let _ = child.kill();
    let _ = child.wait();
    ChildEnd::Lived
}

/// The last line of a child.
struct LastLine {
    line: String,
    too_long: bool,
}

/// Reads until the child has ended, works for too long, or nobody wants to know any more.
fn follow(lines: &Receiver<String>, stop: &AtomicBool) -> LastLine {
    let mut line = String::new();
    let mut since = Instant::now();
    loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(next) => (line, since) = (next, Instant::now()),
            Err(RecvTimeoutError::Disconnected) => return LastLine { line, too_long: false },
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return LastLine { line: String::new(), too_long: true };
            }
            Err(RecvTimeoutError::Timeout) => {
                if line.starts_with("work") && since.elapsed() > work_max() {
                    return LastLine { line, too_long: true };
                }
            }
        }
    }
}

/// Tests cannot wait for a minute.
fn work_max() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(ms) = std::env::var("TIDEGATE_WORK_MAX_MS").ok().and_then(|ms| ms.parse().ok()) {
        return Duration::from_millis(ms);
    }
    WORK_MAX
}

/// The hidden command of the child.
pub const TRY_VERB: &str = "try-records";

/// The child: reads the spec from standard input, and tries its records.
///
/// # Errors
/// When the parent cannot be reached, or the pipeline cannot be built.
pub fn try_records() -> Result<(), String> {
    let mut input = BufReader::new(std::io::stdin());
    let mut text = String::new();
    input.read_line(&mut text).map_err(|e| e.to_string())?;
    let spec: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let spec: TrySpec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
    std::thread::spawn(move || {
        // It ends with the parent, even while it works on a record without end.
        let _ = input.read(&mut [0]);
        #[allow(clippy::exit, reason = "the parent is gone")]
        std::process::exit(1);
    });
    let traffic = Traffic::new(&spec.manifest, None, None).going_on(true);
    let context = RunContext { stop: Arc::default(), traffic, tasks: None };
    let folders = Folders {
        manifest: &spec.folder,
        state: Some(spec.state.clone()),
        answers: Some(spec.answers.clone()),
        run: spec.run,
    };
    let start = Start::Resumed(spec.layer.as_ref());
    let parts = build_from(&spec.manifest, folders, context, &start).map_err(String::from)?;
    try_parts(&spec, parts)?;
    say("end")
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| e.to_string())
}

fn try_parts(spec: &TrySpec, parts: PipelineParts) -> Result<(), String> {
    let PipelineParts { mut source, mut steps, flow, .. } = parts;
    let mut gates = Gates::new(&spec.manifest, &flow).map_err(String::from)?.one_by_one();
    if !spec.position.is_empty() {
        source.seek(&spec.position, Vec::new()).map_err(String::from)?;
    }
    let mut read = spec.read;
    loop {
        say("read")?;
        // An error of the source ends a run in the usual way.
        let Ok(Some(page)) = source.next() else { return Ok(()) };
        // The first page behind the suspects was perhaps being read.
        if read >= spec.suspects.1 {
            return Ok(());
        }
        let records = (page.batch.len() + page.rejected.len()) as u64;
        read += records;
        if read <= spec.suspects.0 {
            continue;
        }
        for row in 0..page.batch.len() {
            let record = page.batch.record(row);
            if !spec.poison.iter().any(|known| known.record == record) {
                try_alone(single(&page.batch, row), &mut steps, &mut gates)?;
            }
        }
    }
}

fn single(batch: &Batch, row: usize) -> Page {
    let mut one = Batch::new(batch.schema().clone());
    one.copy_row(batch, row);
    Page { batch: one, rejected: Vec::new(), position: String::new(), marks: Vec::new() }
}

/// Takes a record as far as it goes. What becomes of it does not matter.
fn try_alone(page: Page, steps: &mut [Named], gates: &mut Gates) -> Result<(), String> {
    let record = page.batch.record(0);
    let mut transit = InTransit::new(page);
    let is_over = AtomicBool::new(false);
    let mut waits = false;
    for named in steps {
        let word = if waits || named.step.as_remote().is_some() { "wait" } else { "work" };
        say(&format!("{word} {record} {}", named.label))?;
        waits = named.step.as_remote().is_some();
        match transit.through(std::slice::from_mut(named), &is_over) {
            Ok(next) => transit = next,
            Err(_) => return Ok(()),
        }
    }
    say(&format!("{} {record} gate", if waits { "wait" } else { "work" }))?;
    let _ = judge(transit, gates, &is_over);
    Ok(())
}

/// Sets the records aside that kill the process, before the first step.
struct SetPoisonAside(Vec<PoisonRecord>);

impl Step for SetPoisonAside {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let found = (0..batch.len()).filter_map(|row| {
            let known = self.0.iter().find(|known| known.record == batch.record(row))?;
            let what = format!("the process dies when it works on this record ({known})");
            Some((row, Problem::new(Code::PROCESS_CRASHED, what)))
        });
        let refused = found.collect();
        Ok(aside.set_aside(batch, refused))
    }
}

/// Puts a step that sets these records aside before the others. Their letters are replayed from the
/// first step on.
pub(super) fn guard(steps: &mut Vec<Named>, start: &Flow, poison: &[PoisonRecord]) {
    if poison.is_empty() {
        return;
    }
    let label = steps.first().map_or_else(|| "gate".to_owned(), |first| first.label.clone());
    let step = Box::new(SetPoisonAside(poison.to_vec()));
    steps.insert(0, Named { label, before: start.clone(), step, crs: start.crs.clone() });
}

/// The suspects of a run, as its record keeps them: first, end, deaths.
pub(super) type SuspectEntry = (u64, u64, u32);

/// The suspects after the death of a process, from those before it.
pub(super) fn after_death(
    before: Option<SuspectEntry>,
    (landed, reached): (u64, u64),
) -> Option<SuspectEntry> {
    let known = before.map(|(from, to, deaths)| Suspects { from, to, deaths });
    Suspects::after(known, landed, reached).map(|known| (known.from, known.to, known.deaths))
}

/// Whether they are to be tried alone.
pub(super) fn are_tried((from, to, deaths): SuspectEntry) -> bool {
    Suspects { from, to, deaths }.are_tried()
}
