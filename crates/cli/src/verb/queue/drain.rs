//! `queue drain`: waits until nothing is left to do.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_queue::QueueDepth;

use super::open::{OpenTaskQueue, QueueAccess, StateCounts, counts_json};
use super::{QueueDone, TaskFormat, print};
use crate::exit::Exit;
use crate::progress::{Ticker, span, thousands};
use crate::verb::calls::time;
use crate::verb::plan::ManifestArg;

/// The time between two questions.
const POLL: Duration = Duration::from_millis(500);

/// Wait until the queue is empty and no task is running
///
/// The queue is empty when no message is ready, leased or waiting for its time, as far as its server
/// reports. This command only waits: start workers to do the tasks.
#[derive(clap::Args)]
pub(super) struct Drain {
    #[command(flatten)]
    manifest: ManifestArg,
    /// Give up after this time, with exit code 75
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    timeout: Duration,
}

pub(super) fn run(args: &Drain, format: TaskFormat) -> QueueDone {
    let mut tasks = OpenTaskQueue::open(&args.manifest, QueueAccess::Ask)?;
    let (began, mut ticker) = (Instant::now(), Ticker::new());
    loop {
        let (depth, counts) = (tasks.depth()?, tasks.counts()?);
        let [_, running, ..] = counts;
        let is_empty = depth.lag() == 0 && running == 0;
        if is_empty || began.elapsed() >= args.timeout {
            ticker.erase();
            let value = json!({
                "empty": is_empty,
                "lag": depth.lag(),
                "seconds": began.elapsed().as_secs_f64(),
                "tasks_by_state": counts_json(&counts),
            });
            let lead = if is_empty { "the queue is empty: " } else { "gave up: " };
            print(format, &value, &format!("{lead}{}", words(&depth, &counts)))?;
            return Ok(if is_empty { Exit::Done } else { Exit::TryLater });
        }
        ticker.show(|| format!("{} · {}", words(&depth, &counts), span(began.elapsed())));
        std::thread::sleep(POLL.min(args.timeout.saturating_sub(began.elapsed())));
    }
}

fn words(depth: &QueueDepth, counts: &StateCounts) -> String {
    let [_, running, done, dead, cancelled] = counts;
    format!(
        "{} in the queue, {} running; {} done, {} dead, {} cancelled",
        thousands(depth.lag()),
        thousands(*running),
        thousands(*done),
        thousands(*dead),
        thousands(*cancelled)
    )
}
