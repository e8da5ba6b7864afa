//! `tidegate submit`: adds tasks to the queue of a pipeline.
//!
//! Idempotent by key: the sink is asked which tasks it knows, and those are left alone. Files are
//! checked as a whole before anything is published; standard input cannot be, so what is wrong in it
//! is counted and decides the exit code.

mod cells;
mod deliver;
mod draft;

mod input;
mod wait;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::objects::{AllowedObjects, ObjectRefused};
use tidegate_core::Code;
use tidegate_geo::tile::TileCover;
use tidegate_pipeline::manifest::objects;
use tidegate_pipeline::sink::TaskState;
use tidegate_queue::{Geotask, now_ms};

use super::calls::time;
use super::fetch::{bbox, zooms};
use super::plan;
use super::queue::TaskFormat;
use super::queue::open::{OpenTaskQueue, QueueAccess, counts_json};
use crate::execute::counted;
use crate::exit::{CommandFailure, Exit, usage};
use crate::out;
use crate::progress::{Ticker, thousands};
use cells::CellCover;
use deliver::{KnownTasks, SubmitCounts, TaskPublisher};
use draft::{TaskDefaults, moment};
use input::TaskInput;
use wait::{KeySpool, TaskEnds};

/// The number of invalid tasks that are shown.
const SHOWN_MAX: u64 = 20;

/// Add tasks to the queue of a pipeline
///
/// Each feature of FILES becomes a task, or with --objects each file, or each row or line of --tasks,
/// or each tile of --tiles, or each cell of --h3. `-` reads tasks, features or CloudEvents from standard input, one per
/// line. A task is known by its key: what the sink knows as queued, running or ended is left alone, so
/// the same command can be repeated. If anything in a file is invalid, nothing is published.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate submit parcels.yaml parcels.geojson --key id
  tidegate submit parcels.yaml parcels.gpkg --key id --wait --timeout 30m
  tidegate submit scenes.yaml --objects 'scenes/*.tif' --priority 5
  tidegate submit parcels.yaml --tasks tasks.csv --dry-run
  tidegate submit tiles.yaml --tiles 16.1,48.1,16.6,48.4 --zoom 12
  tidegate submit cells.yaml --h3 16.1,48.1,16.6,48.4 --resolution 7
  jq -c '.features[]' parcels.geojson | tidegate submit parcels.yaml -

Exit codes: 0 all tasks are submitted or known, and with --wait done; 1 failure, or invalid lines on
standard input; 2 usage error, or invalid tasks in a file: nothing was published; 4 with --wait: some
are dead or cancelled; 75 the queue or the sink is down, or --wait ran into its timeout.")]
pub(crate) struct Args {
    #[command(flatten)]
    manifest: plan::ManifestArg,

    /// Files of features, or of any content with --objects; `*` and `?` are expanded; `-` is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Each file is one task, which refers to it
    #[arg(long)]
    objects: bool,

    /// List of tasks: a .csv with a header, or one JSON object per line
    #[arg(long, value_name = "FILE")]
    tasks: Vec<PathBuf>,

    /// Each tile of this box is a task: west,south,east,north in degrees
    #[arg(long, value_name = "W,S,E,N", value_parser = bbox, allow_hyphen_values = true, requires = "zoom")]
    tiles: Option<[f64; 4]>,

    /// Zoom levels of the tiles, such as 12 or 0..12
    #[arg(long, value_name = "ZOOM", value_parser = zooms, requires = "tiles")]
    zoom: Option<(u8, u8)>,

    /// Each H3 cell that touches this box is a task: west,south,east,north in degrees
    #[arg(long, value_name = "W,S,E,N", value_parser = bbox, allow_hyphen_values = true, requires = "resolution")]
    h3: Option<[f64; 4]>,

    /// Resolution of the H3 cells, 0 to 15
    #[arg(long, value_name = "N", requires = "h3", value_parser = clap::value_parser!(u8).range(0..=15))]
    resolution: Option<u8>,

    /// Layer of a file that holds several
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,

    /// Fields of a feature that make its key [default: a hash of its content]
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    key: Vec<String>,

    /// Kind of tasks that do not name one [default: that of the pipeline, if it has one]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// Priority, 0 to 9; a higher one comes first where the queue promises it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,

    /// Not worked on before this: a time such as 2026-11-17T18:00:00Z, or a duration from now
    #[arg(long, value_name = "TIME")]
    not_before: Option<String>,

    /// Not started later than this after --not-before, or after now
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttl: Option<Duration>,

    /// Key of a task that must be done first; may be given several times
    #[arg(long, value_name = "KEY")]
    after: Vec<String>,

    /// Field of a feature whose equal values are worked on in order where the queue promises it
    #[arg(long, value_name = "FIELD")]
    ordering_key: Option<String>,

    /// Who submits them
    #[arg(long, value_name = "NAME")]
    submitted_by: Option<String>,

    /// Also submit tasks that are done, dead or cancelled, to do them once more
    #[arg(long)]
    resubmit: bool,

    /// Also publish tasks that are queued, after the queue was purged or lost
    #[arg(long)]
    republish: bool,

    /// Only show what would be submitted
    #[arg(long)]
    dry_run: bool,

    /// Wait until all tasks of this command have ended
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,

    /// The longest time to wait
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time, requires = "wait")]
    timeout: Duration,

    /// Output format; ndjson prints a line for each task
    #[arg(long, value_enum, default_value_t = TaskFormat::Table)]
    format: TaskFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    match submit(args) {
        Ok(exit) => Ok(exit),
        // A reader that has gone.
        Err(CommandFailure(_, why)) if why.contains("Broken pipe") => Ok(Exit::Done),
        Err(CommandFailure(exit, why)) => {
            out::say(&format!("tidegate submit: {why}"));
            Ok(exit)
        }
    }
}

/// The invalid tasks of a command: shown as they come, up to a number, and counted.
#[derive(Default)]
struct InvalidTasks(u64);

impl InvalidTasks {
    fn report(&mut self, ticker: &mut Ticker, place: &str, why: &str) {
        self.0 += 1;
        ticker.erase();
        if self.0 <= SHOWN_MAX {
            out::say(&format!("{place}: {why}"));
        } else if self.0 == SHOWN_MAX + 1 {
            out::say("and more");
        }
    }
}

/// The tasks whose object the manifest does not allow. They are published, because the manifest of the worker
/// counts; if it is the same one, they become dead letters.
struct RefusedObjects {
    allowed: AllowedObjects,
    count: u64,
    first: Option<ObjectRefused>,
}

impl RefusedObjects {
    fn of(args: &Args, tasks: &OpenTaskQueue) -> Result<RefusedObjects, CommandFailure> {
        let allowed = objects::of_tasks(&tasks.queue.tasks, &plan::folder(&args.manifest.manifest));
        let allowed = allowed.map_err(|e| usage(format!("source.tasks.objects: {e}")))?;
        Ok(RefusedObjects { allowed, count: 0, first: None })
    }

    fn look(&mut self, task: &Result<Geotask, String>) {
        let object = task.as_ref().ok().and_then(|task| task.object.as_deref());
        let Some(Err(why)) = object.map(|object| self.allowed.address(object)) else { return };
        // What is missing here may be there where the worker is.
        if why.code() == Code::OBJECT_NOT_ALLOWED {
            self.count += 1;
            self.first.get_or_insert(why);
        }
    }

    fn say(&self) {
        let Some(first) = &self.first else { return };
        let tasks = counted(self.count, "task names an object", "tasks name objects");
        out::say(&format!(
            "tidegate submit: warning: {tasks} that this manifest does not allow; a worker makes dead letters of them: {first}"
        ));
    }
}

fn submit(args: &Args) -> Result<Exit, CommandFailure> {
    let inputs = inputs(args)?;
    let mut tasks = OpenTaskQueue::open(
        &args.manifest,
        if args.dry_run { QueueAccess::Look } else { QueueAccess::Write },
    )?;
    let defaults = defaults(args, &tasks)?;
    fields_are_known(&inputs, &tasks)?;
    let (body_max, mut ticker, mut invalid) = (tasks.body_max(), Ticker::new(), InvalidTasks::default());

    let mut checked = 0;
    for input in inputs.iter().filter(|input| input.is_repeatable()) {
        input.each(&defaults, &mut |place, task| {
            checked += 1;
            ticker.show(|| format!("{} checked", thousands(checked)));
            if let Err(why) = task.and_then(|task| TaskPublisher::message(&task, body_max)) {
                invalid.report(&mut ticker, &place(), &why);
            }
            Ok(())
        })?;
    }
    if invalid.0 > 0 {
        let invalid = counted(invalid.0, "task is", "tasks are");
        return Err(usage(format!("{invalid} invalid; nothing was published")));
    }

    let known = KnownTasks {
        resubmit: args.resubmit,
        republish: args.republish,
        dry_run: args.dry_run,
        lines: args.format == TaskFormat::Ndjson,
    };
    let mut refused = RefusedObjects::of(args, &tasks)?;
    let spool = args.wait.then(KeySpool::new).transpose()?;
    let mut publisher = TaskPublisher::new(&mut tasks, known, spool);
    let mut published = Ok(());
    for input in &inputs {
        published = input.each(&defaults, &mut |place, task| {
            refused.look(&task);
            let ready = task.and_then(|task| {
                let message = TaskPublisher::message(&task, body_max)?;
                Ok((task.key, message))
            });
            match ready {
                Ok((key, message)) => publisher.add(key, message)?,
                Err(why) => invalid.report(&mut ticker, &place(), &why),
            }
            ticker.show(|| format!("{} submitted", thousands(publisher.counts.published())));
            Ok(())
        });
        if published.is_err() {
            break;
        }
    }
    let published = published.and_then(|()| publisher.flush());
    let (counts, spool) = (publisher.counts.clone(), publisher.spool.take());
    ticker.erase();
    refused.say();
    if let Err(CommandFailure(exit, why)) = published {
        let before = counted(counts.published(), "task was", "tasks were");
        let what = format!("{why}; about {before} submitted before. The same command goes on where it ended");
        return Err(CommandFailure(exit, what));
    }
    if args.format == TaskFormat::Table {
        out::say(&said(args, &tasks, &counts));
    }
    let ends = spool.map(|spool| wait::wait(&mut tasks, spool, args.timeout)).transpose()?;
    report(args, &mut tasks, &counts, invalid.0, ends.as_ref())?;
    let exit = ends.map_or(Exit::Done, |ends| ends.exit());
    if invalid.0 > 0 {
        out::say(&format!(
            "tidegate submit: {} invalid and not published",
            counted(invalid.0, "task is", "tasks are")
        ));
        return Ok(Exit::Failure);
    }
    Ok(exit)
}

/// The inputs that the options name.
fn inputs(args: &Args) -> Result<Vec<TaskInput>, CommandFailure> {
    let mut inputs = Vec::new();
    let (stdin, files): (Vec<_>, Vec<_>) =
        args.files.iter().cloned().partition(|file| file == Path::new("-"));
    let files = tidegate_pipeline::source::glob::expand(&files).map_err(usage)?;
    if args.objects {
        if files.is_empty() {
            return Err(usage("--objects needs files"));
        }
        inputs.push(TaskInput::Objects(input::objects(&files)?));
    } else {
        inputs.extend(files.into_iter().map(|file| TaskInput::Features(file, args.layer.clone())));
    }
    for file in &args.tasks {
        let is_csv = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        inputs.push(match file {
            file if file == Path::new("-") => TaskInput::Lines(None),
            file if is_csv => TaskInput::Rows(file.clone()),
            file => TaskInput::Lines(Some(file.clone())),
        });
    }
    if let (Some(bbox), Some((from, to))) = (args.tiles, args.zoom) {
        let cover = TileCover::new(bbox, from..=to).map_err(|problem| usage(problem.message))?;
        inputs.push(TaskInput::Tiles(cover));
    }
    if let (Some(bbox), Some(resolution)) = (args.h3, args.resolution) {
        inputs.push(TaskInput::Cells(CellCover::new(bbox, resolution).map_err(usage)?));
    }
    inputs.extend(stdin.first().map(|_| TaskInput::Lines(None)));
    if inputs.is_empty() {
        return Err(usage("nothing to submit; give files, --tasks, --tiles, --h3, or - for standard input"));
    }
    Ok(inputs)
}

fn defaults(args: &Args, tasks: &OpenTaskQueue) -> Result<TaskDefaults, CommandFailure> {
    let now_ms = now_ms();
    let not_before = args.not_before.as_deref().map(|text| moment(text, now_ms)).transpose();
    Ok(TaskDefaults {
        kinds: tasks.queue.kinds.clone(),
        kind: args.kind.clone(),
        key: args.key.clone(),
        ordering_key: args.ordering_key.clone(),
        not_before_ms: not_before.map_err(|e| usage(format!("--not-before: {e}")))?,
        ttl_ms: args.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
        after: args.after.clone(),
        priority: args.priority,
        submitted_by: args.submitted_by.clone(),
        now_ms,
    })
}

/// Checks that the manifest has the fields of the features, because a worker makes a dead letter of
/// every other one.
fn fields_are_known(inputs: &[TaskInput], tasks: &OpenTaskQueue) -> Result<(), CommandFailure> {
    let known: Vec<&str> = tasks.queue.tasks.fields.keys().map(String::as_str).collect();
    for input in inputs {
        let (name, unknown) = match input {
            TaskInput::Features(path, layer) => {
                let reader = input::open(path, layer.clone())?;
                if let Some(crs) = &reader.layer().crs
                    && *crs != tasks.queue.crs
                    && !(crs.is_wgs84() && tasks.queue.crs.is_wgs84())
                {
                    return Err(usage(format!(
                        "{}: the file is in {crs}, but the pipeline takes {}; set `source.crs`, or convert the file",
                        path.display(),
                        tasks.queue.crs
                    )));
                }
                (path.display().to_string(), input::unknown_fields(reader.layer(), &known))
            }
            TaskInput::Tiles(_) => {
                let fields = ["z", "x", "y"].into_iter().filter(|name| !known.contains(name));
                ("--tiles".to_owned(), fields.map(ToOwned::to_owned).collect())
            }
            TaskInput::Cells(_) => {
                let fields = ["h3", "resolution"].into_iter().filter(|name| !known.contains(name));
                ("--h3".to_owned(), fields.map(ToOwned::to_owned).collect())
            }
            _ => continue,
        };
        if !unknown.is_empty() {
            return Err(usage(format!(
                "{name}: `source.tasks.fields` of the manifest does not have {}; add them there, or leave them out of the file",
                unknown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Ok(())
}

/// What was submitted and what was left alone, in a sentence.
fn said(args: &Args, tasks: &OpenTaskQueue, counts: &SubmitCounts) -> String {
    let lead = if args.dry_run { "would submit" } else { "submitted" };
    let mut text =
        format!("{lead} {} to {}", counted(counts.published(), "task", "tasks"), tasks.queue.address);
    let again = [(counts.resubmitted, "ended before"), (counts.republished, "queued before")];
    let again: Vec<String> =
        again.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{} {word}", thousands(*n))).collect();
    if !again.is_empty() {
        text.push_str(&format!(" ({})", again.join(", ")));
    }
    let known = TaskState::ALL.iter().map(|state| state.word()).zip(counts.known);
    let left: Vec<String> = known
        .chain([("with the key of another task of this command", counts.repeated)])
        .filter(|(_, n)| *n > 0)
        .map(|(word, n)| format!("{} {word}", thousands(n)))
        .collect();
    if !left.is_empty() {
        text.push_str(&format!("; left alone: {}", left.join(", ")));
    }
    text
}

/// Prints the result.
fn report(
    args: &Args,
    tasks: &mut OpenTaskQueue,
    counts: &SubmitCounts,
    invalid: u64,
    ends: Option<&TaskEnds>,
) -> Result<(), CommandFailure> {
    if args.format == TaskFormat::Table {
        if let Some(ends) = ends {
            out::say(&ends.to_string());
        }
        return Ok(());
    }
    let mut value = json!({
        "queue": tasks.queue.address.to_string(),
        "dry_run": args.dry_run,
        "tasks": counts.all(),
        "submitted": counts.submitted,
        "resubmitted": counts.resubmitted,
        "republished": counts.republished,
        "known": counts_json(&counts.known),
        "repeated": counts.repeated,
        "invalid": invalid,
        "lag": Value::Null,
        "tasks_by_state": counts_json(&tasks.counts()?),
    });
    if !args.dry_run {
        value["lag"] = json!(tasks.lag()?);
    }
    if let Some(ends) = ends {
        value["ends"] = ends.json();
    }
    match args.format {
        TaskFormat::Ndjson => out::data(&format!("{}\n", json!({ "summary": value })))?,
        _ => out::data(&format!("{value:#}\n"))?,
    }
    Ok(())
}
