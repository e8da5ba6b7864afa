//! `queue ls`, `queue lag`, `queue peek`: what the sink and the queue know.

use serde_json::{Value, json};
use tidegate_core::time::calendar::rfc3339;
use tidegate_pipeline::sink::{TaskRow, TaskState};
use tidegate_queue::{Geotask, Message, now_ms};

use super::open::{OpenTaskQueue, QueueAccess, counts_json};
use super::{QueueDone, TaskFormat};
use crate::exit::{CommandFailure, Exit};
use crate::out;
use crate::progress::{span, thousands};
use crate::verb::dlq::table::{ago, table};
use crate::verb::plan::ManifestArg;

/// The number of rows that are asked for at once.
const PAGE: usize = 1000;

/// List tasks by their keys, and count them by state
///
/// Asks the sink. Tasks that were submitted by another program and that no worker has received yet are
/// only in the queue; see `queue lag` and `queue peek`.
#[derive(clap::Args)]
pub(super) struct TaskList {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Only tasks in this state: queued, running, done, dead or cancelled
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<TaskState>,
    /// Only tasks whose keys come after this one, to go on with the next page
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    /// Maximum number of tasks; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u64,
}

/// Show how many messages wait, and for how long
///
/// Asks the queue for its messages and the sink for its tasks. What the server of the queue does not
/// report is shown as `-`.
#[derive(clap::Args)]
pub(super) struct Lag {
    #[command(flatten)]
    manifest: ManifestArg,
}

/// Show the next messages and leave them in the queue
#[derive(clap::Args)]
pub(super) struct Peek {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Maximum number of messages
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    limit: u16,
}

fn state(word: &str) -> Result<TaskState, String> {
    let words = TaskState::ALL.map(TaskState::word).join(", ");
    TaskState::of_word(word).ok_or_else(|| format!("unknown state {word:?}; expected one of {words}"))
}

fn row_json(row: &TaskRow) -> Value {
    json!({
        "key": row.key,
        "state": row.state.word(),
        "attempts": row.attempts,
        "worker": (!row.worker.is_empty()).then_some(&row.worker),
        "reason": row.reason,
        "changed": rfc3339(row.changed_ms),
    })
}

pub(super) fn ls(args: &TaskList, format: TaskFormat) -> QueueDone {
    let mut tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Look)?;
    let counts = tasks.counts()?;
    let most = if args.limit == 0 { u64::MAX } else { args.limit };
    let (mut after, mut shown) = (args.after.clone(), 0);
    let mut cells: Vec<Vec<String>> = Vec::new();
    let mut first = true;
    if format == TaskFormat::Json {
        // Written page by page, so that a long list needs no memory.
        out::data(&format!("{{\n  \"tasks_by_state\": {},\n  \"tasks\": [", counts_json(&counts)))?;
    }
    let more = loop {
        let page = usize::try_from(most - shown).unwrap_or(PAGE).min(PAGE);
        // One more than is shown tells whether there are more.
        let rows = tasks.table(|table| table.list(args.state, after.as_deref(), page + 1))?;
        let mut rows = rows.unwrap_or_default();
        let more = rows.len() > page;
        rows.truncate(page);
        shown += rows.len() as u64;
        after = rows.last().map(|row| row.key.clone()).or(after);
        let mut text = String::new();
        for row in &rows {
            match format {
                TaskFormat::Table => cells.push(row_cells(row)),
                TaskFormat::Json => {
                    text.push_str(if first { "\n    " } else { ",\n    " });
                    text.push_str(&row_json(row).to_string());
                }
                TaskFormat::Ndjson => text.push_str(&format!("{}\n", row_json(row))),
            }
            first = false;
        }
        out::data(&text)?;
        if format == TaskFormat::Table && cells.len() >= PAGE && more && shown < most {
            print_cells(&std::mem::take(&mut cells))?;
        }
        if !more || shown >= most {
            break more;
        }
    };
    let next = after.filter(|_| more);
    match format {
        TaskFormat::Json => {
            out::data(&format!("\n  ],\n  \"next\": {}\n}}\n", json!(next)))?;
        }
        TaskFormat::Ndjson => {}
        TaskFormat::Table => {
            if !cells.is_empty() {
                print_cells(&cells)?;
            }
            let words: Vec<String> = TaskState::ALL
                .iter()
                .zip(counts)
                .map(|(state, n)| format!("{} {}", thousands(n), state.word()))
                .collect();
            out::say(&words.join(", "));
        }
    }
    if let (Some(key), true) = (next, format != TaskFormat::Json) {
        out::say(&format!("there are more; go on with --after {}", tidegate_core::quote::shell(&key)));
    }
    Ok(Exit::Done)
}

fn row_cells(row: &TaskRow) -> Vec<String> {
    vec![
        row.key.clone(),
        row.state.word().to_owned(),
        row.attempts.to_string(),
        ago(row.changed_ms, now_ms()),
        row.worker.clone(),
        row.reason.clone().unwrap_or_default(),
    ]
}

fn print_cells(cells: &[Vec<String>]) -> Result<(), CommandFailure> {
    let head = ["key", "state", "attempts", "changed", "worker", "reason"];
    Ok(out::data(&table(&head, cells, &[2, 3]))?)
}

pub(super) fn lag(args: &Lag, format: TaskFormat) -> QueueDone {
    let mut tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Ask)?;
    let depth = tasks.depth()?;
    let counts = tasks.counts()?;
    let value = json!({
        "queue": tasks.queue.address.to_string(),
        "group": tasks.queue.group,
        "lag": depth.lag(),
        "ready": depth.ready,
        "leased": depth.leased,
        "waiting": depth.waiting,
        "oldest_seconds": depth.oldest_ms.map(|ms| ms as f64 / 1000.0),
        "tasks_by_state": counts_json(&counts),
    });
    match format {
        TaskFormat::Json => out::data(&format!("{value:#}\n"))?,
        TaskFormat::Ndjson => out::data(&format!("{value}\n"))?,
        TaskFormat::Table => {
            let told = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), thousands);
            let oldest = depth
                .oldest_ms
                .map_or_else(|| "-".to_owned(), |ms| span(std::time::Duration::from_millis(ms)));
            let queue = [
                ("queue", tasks.queue.address.to_string()),
                ("ready", thousands(depth.ready)),
                ("leased", told(depth.leased)),
                ("waiting", told(depth.waiting)),
                ("oldest", oldest),
            ];
            let tasks = TaskState::ALL.iter().zip(counts).map(|(state, n)| (state.word(), thousands(n)));
            let mut text = String::new();
            for (name, value) in queue.into_iter().chain(tasks) {
                text.push_str(&format!("{name:<10}{value}\n"));
            }
            out::data(&text)?;
        }
    }
    Ok(Exit::Done)
}

fn message_json(message: &Message) -> Value {
    let mut value = json!({
        "key": message.key,
        "priority": message.priority,
        "bytes": message.body.len(),
    });
    if let Some(ms) = message.not_before {
        value["not_before"] = rfc3339(ms).into();
    }
    if let Some(key) = &message.ordering_key {
        value["ordering_key"] = key.as_str().into();
    }
    if !message.headers.is_empty() {
        value["headers"] = json!(message.headers);
    }
    match Geotask::read(message, u64::MAX) {
        Ok(task) => value["task"] = json!(task),
        Err(why) => value["error"] = json!({ "code": why.code.as_str(), "message": why.message }),
    }
    value
}

pub(super) fn peek(args: &Peek, format: TaskFormat) -> QueueDone {
    let tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Ask)?;
    let most = usize::from(args.limit);
    let messages = tasks.ask(async |transport| transport.peek(most).await)?;
    let values = messages.iter().map(message_json);
    match format {
        TaskFormat::Json => out::data(&format!("{:#}\n", json!(values.collect::<Vec<_>>())))?,
        TaskFormat::Ndjson => out::data(&values.map(|value| format!("{value}\n")).collect::<String>())?,
        TaskFormat::Table => {
            let cells: Vec<Vec<String>> = messages.iter().map(message_cells).collect();
            let head = ["key", "kind", "priority", "bytes", "not before", "what"];
            out::data(&table(&head, &cells, &[2, 3]))?;
        }
    }
    Ok(Exit::Done)
}

fn message_cells(message: &Message) -> Vec<String> {
    let task = Geotask::read(message, u64::MAX);
    let (kind, what) = match &task {
        Ok(task) => match &task.object {
            Some(object) => (task.kind.clone(), object.clone()),
            None => (task.kind.clone(), task.bbox.map_or_else(String::new, |bbox| format!("{bbox:?}"))),
        },
        Err(why) => (String::new(), format!("not a task: {why}")),
    };
    vec![
        message.key.clone(),
        kind,
        message.priority.to_string(),
        message.body.len().to_string(),
        message.not_before.map(rfc3339).unwrap_or_default(),
        what,
    ]
}
