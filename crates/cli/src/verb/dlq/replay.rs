//! `dlq replay`: run letters again, each once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_ledger::letter::Letters;
use tidegate_ledger::letter::replay::{self, Pace};
use tidegate_ledger::letter::store::{ReplayPlan, SqlDialect};

use super::filter::FilterArgs;
use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, rerun, usage};
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;
use crate::verb::calls;

/// Run letters again, from the stage that failed
///
/// The members are frozen when the replay is made; its sink must be writable and its pipeline not
/// suspended before anything is tried. A replayed row overwrites its own row in the sink and
/// never doubles it. What dies again is a new letter, linked to its parent. Letters whose time has
/// not come, that are ambiguous or poisonous (unless --class asks for them), or that have died too
/// often are left out. Ctrl-C stops behind the batch; --resume goes on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate dlq replay --code TIMEOUT --dry-run
  tidegate dlq replay --state validated --verify
  tidegate dlq replay --pipeline geocode:addresses --rate 5/s --max-generation 5
  tidegate dlq replay --resume 3
  tidegate dlq replay --cancel 3")]
pub(super) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only say how many of which pipeline
    #[arg(long)]
    dry_run: bool,
    /// No more letters, and no more calls to a service, than this, such as 5/s
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Leave out what has died so often
    #[arg(long, value_name = "N", default_value_t = 3)]
    max_generation: u32,
    /// Read the sink back before a letter counts as resolved
    #[arg(long)]
    verify: bool,
    /// Letters at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Every letter
    #[arg(long)]
    all: bool,
    /// Go on with this replay
    #[arg(long, value_name = "PLAN", conflicts_with = "dry_run")]
    resume: Option<i64>,
    /// Give up this replay: what is not done goes back to where it was
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["resume", "dry_run"])]
    cancel: Option<i64>,
    /// List replays that are not over
    #[arg(long, conflicts_with_all = ["resume", "cancel", "dry_run"])]
    list: bool,
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    if args.list {
        let plans: Vec<_> = desk.store.plans_running()?.iter().map(plan_json).collect();
        out::data(&format!("{:#}\n", json!(plans)))?;
        return Ok(Exit::Done);
    }
    if let Some(plan) = args.cancel {
        let back = desk.store.plan_cancel(plan, desk.now_ms)?;
        out::say(&format!("replay {plan} is cancelled; {} letters are where they were", thousands(back)));
        return Ok(Exit::Done);
    }
    let plans = match args.resume {
        Some(plan) => {
            let found =
                desk.store.plan_get(plan)?.ok_or_else(|| usage(format!("there is no replay {plan}")))?;
            if found.state != "running" {
                return Err(usage(format!("replay {plan} is {}", found.state)));
            }
            vec![found]
        }
        None => {
            let filter = args.filter.bounded(desk, args.all)?;
            let by = desk.store.plan_dry(&filter, args.max_generation, desk.now_ms)?;
            let left_out = desk.store.count(&filter)? - by.iter().map(|(_, n)| n).sum::<u64>();
            if args.dry_run {
                let pipelines: Vec<_> =
                    by.iter().map(|(name, n)| json!({ "pipeline": name, "letters": n })).collect();
                let told = json!({ "dry_run": true, "replay": pipelines, "left_out": left_out });
                if desk.format == LetterFormat::Table {
                    by.iter().for_each(|(name, n)| {
                        out::say(&format!("would replay {} letters of {name}", thousands(*n)));
                    });
                    out::say(&format!("{} letters of the filter are left out", thousands(left_out)));
                } else {
                    out::data(&format!("{told}\n"))?;
                }
                return Ok(Exit::Done);
            }
            let spec = json!({ "rate": args.rate, "max_generation": args.max_generation }).to_string();
            let mut plans = Vec::new();
            for (pipeline, _) in by {
                // Before anything is taken: can it be done at all?
                preflight(args, desk, &pipeline)?;
                plans.push(desk.store.plan(&pipeline, &filter, args.max_generation, &spec, desk.now_ms)?);
            }
            plans
        }
    };
    let rate = args.rate.as_deref().map(calls::rate).transpose().map_err(usage)?;
    // A batch holds what may go at once.
    let batch = rate.map_or(args.batch, |rate| args.batch.min(rate.ceil().clamp(1.0, 1e4) as u32));
    let stop = Arc::new(AtomicBool::new(false));
    listen(Arc::clone(&stop))?;
    let letters = Letters::open(&desk.place)?;
    let mut told = Vec::new();
    for plan in plans {
        let mut runner = preflight(args, desk, &plan.pipeline)?;
        // On one machine whoever leased it before us is dead if a person resumes; a fleet waits.
        let takeover = args.resume.is_some() && desk.store.dialect() == SqlDialect::Sqlite;
        let pace = Pace { batch, verify: args.verify, takeover, ..Pace::default() };
        let number = plan.plan;
        let (began, mut before) = (Instant::now(), None);
        let done = replay::go(&mut desk.store, &letters, &desk.keys, number, runner.as_mut(), pace, |now| {
            if now.left > 0 && desk.format == LetterFormat::Table {
                out::say(&format!(
                    "replay {number}: {} of {}, {} died again",
                    thousands(now.members - now.left),
                    thousands(now.members),
                    thousands(now.dead)
                ));
            }
            let done = now.members.saturating_sub(now.left);
            let done = done.saturating_sub(*before.get_or_insert(done));
            if let Some(rate) = rate.filter(|_| now.left > 0) {
                wait(began + Duration::from_secs_f64((done as f64 / rate).min(1e9)), &stop);
            }
            !stop.load(Ordering::SeqCst)
        });
        let done = done.map_err(|e| {
            CommandFailure(Exit::TryLater, format!("{e}. `tidegate dlq replay --resume {number}` goes on"))
        })?;
        told.push(done);
    }
    letters.close();
    summary(desk, &told)
}

/// Waits until then, or until told to stop.
fn wait(until: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

fn plan_json(plan: &ReplayPlan) -> serde_json::Value {
    json!({
        "plan": plan.plan, "pipeline": plan.pipeline, "state": plan.state, "members": plan.members,
        "resolved": plan.resolved, "dead": plan.dead, "back": plan.back, "left": plan.left,
    })
}

fn summary(desk: &OpenLetterStore, plans: &[ReplayPlan]) -> Done {
    if desk.format == LetterFormat::Table {
        if plans.is_empty() {
            out::say("nothing to replay");
        }
        for p in plans {
            out::say(&format!(
                "replay {} of {} is {}: {} resolved, {} died again, {} went back, {} left of {}",
                p.plan, p.pipeline, p.state, p.resolved, p.dead, p.back, p.left, p.members
            ));
        }
    } else {
        out::data(&format!("{:#}\n", json!(plans.iter().map(plan_json).collect::<Vec<_>>())))?;
    }
    let (dead, left) = plans.iter().fold((0, 0), |(d, l), p| (d + p.dead, l + p.left + p.back));
    Ok(match (dead, left) {
        (_, 1..) => Exit::TryLater,
        (1.., _) => Exit::DeadLetters,
        _ => Exit::Done,
    })
}

/// Whether a pipeline can be run again now. Spends nothing.
fn preflight(
    args: &Args,
    desk: &mut OpenLetterStore,
    pipeline: &str,
) -> Result<Box<dyn replay::Rerun>, CommandFailure> {
    if let Some(open) = desk.store.incidents(Some(pipeline))?.first() {
        let why = format!("{pipeline} is suspended by incident {}; close it first", open.incident);
        return Err(CommandFailure(Exit::TryLater, why));
    }
    let spec = desk
        .store
        .pipeline(pipeline)?
        .ok_or_else(|| usage(format!("how {pipeline} is run was not kept, so it cannot be replayed here")))?;
    let mut runner = rerun::of(&spec, args.rate.as_deref()).map_err(usage)?;
    runner
        .preflight()
        .map_err(|why| CommandFailure(Exit::TryLater, format!("{pipeline} is not ready: {why}")))?;
    Ok(runner)
}

/// Ctrl-C stops behind the batch.
fn listen(stop: Arc<AtomicBool>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("interrupts".into()).spawn(move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.store(true, Ordering::SeqCst);
                out::say("stopping behind this batch");
            }
        });
    })?;
    Ok(())
}
