//! `dlq replay`: replays letters, each once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::quote::shell;
use tidegate_ledger::letter::Letters;
use tidegate_ledger::letter::replay::{self, Pace, Rerun};
use tidegate_ledger::letter::store::{ReplayPlan, SqlDialect};
use tidegate_pipeline::run::StoredDefinition;

use super::filter::FilterArgs;
use super::named::{NamedArgs, NamedManifests, unnamed};
use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;
use crate::stop::listen;
use crate::verb::calls;

/// Replay letters, starting at the failed stage
///
/// The set of letters is fixed when the replay starts; the sink must be writable and the pipeline not
/// suspended. A replayed row overwrites its own row in the sink and is never duplicated. A letter that
/// fails again becomes a new letter, linked to its parent. Letters that are scheduled for later,
/// ambiguous or poison (unless selected by --class), or that have failed too often are skipped. Ctrl-C
/// and SIGTERM stop after the current batch; use --resume to continue.
///
/// Steps, services and sink come from the manifest that --manifest names; letters of other pipelines are
/// left out. What the store says of the pipeline is compared with it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate dlq replay --code TIMEOUT --dry-run
  tidegate dlq replay --manifest parcels.yaml
  tidegate dlq replay --manifest parcels.yaml --state validated --verify --rate 5/s
  tidegate geocode in.csv … --print-manifest | tidegate dlq replay --manifest - --max-generation 5
  tidegate dlq replay --into parcels.gpkg --state validated
  tidegate dlq replay --manifest parcels.yaml --resume 3
  tidegate dlq replay --cancel 3")]
pub(super) struct Args {
    #[command(flatten)]
    named: NamedArgs,
    /// File that `dlq capture` wrote into, for the letters of a capture
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only print the number of letters of each pipeline
    #[arg(long)]
    dry_run: bool,
    /// Maximum rate of letters and of calls to a service, such as 5/s
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Skip letters that have failed this often
    #[arg(long, value_name = "N", default_value_t = 3)]
    max_generation: u32,
    /// Read the sink back before marking a letter as resolved
    #[arg(long)]
    verify: bool,
    /// Letters per batch
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Select every letter
    #[arg(long)]
    all: bool,
    /// Continue this replay
    #[arg(long, value_name = "PLAN", conflicts_with = "dry_run")]
    resume: Option<i64>,
    /// Cancel this replay; its remaining letters return to their previous state
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["resume", "dry_run"])]
    cancel: Option<i64>,
    /// List unfinished replays
    #[arg(long, conflicts_with_all = ["resume", "cancel", "dry_run"])]
    list: bool,
}

impl Args {
    /// The options that continue a replay as it was started.
    fn resume_words(&self, plan: i64) -> String {
        let mut text = format!("replay --resume {plan}{}", self.named.words());
        if let Some(into) = &self.into {
            text.push_str(&format!(" --into {}", shell(&into.display().to_string())));
        }
        if let Some(rate) = &self.rate {
            text.push_str(&format!(" --rate {}", shell(rate)));
        }
        if self.verify {
            text.push_str(" --verify");
        }
        if self.batch != 1000 {
            text.push_str(&format!(" --batch {}", self.batch));
        }
        text
    }
}

pub(super) fn run(args: &Args, desk: &mut OpenLetterStore) -> Done {
    desk.store.plans_settle(desk.now_ms)?;
    if args.list {
        let plans: Vec<_> = desk.store.plans_running()?.iter().map(plan_json).collect();
        out::data(&format!("{:#}\n", json!(plans)))?;
        return Ok(Exit::Done);
    }
    if let Some(plan) = args.cancel {
        let back = desk.store.plan_cancel(plan, desk.now_ms)?;
        out::say(&format!("cancelled replay {plan}; {} restored", counted(back, "letter", "letters")));
        return Ok(Exit::Done);
    }
    let named = args.named.load()?.into_file(args.into.as_ref());
    let rate = args.rate.as_deref().map(calls::rate).transpose().map_err(usage)?;
    let stop = Arc::new(AtomicBool::new(false));
    if !args.dry_run {
        listen(&stop, "stopping after this batch");
    }
    let mut runners: BTreeMap<String, Box<dyn Rerun>> = BTreeMap::new();
    let plans = match args.resume {
        Some(plan) => {
            let list = desk.command("replay --list");
            let found = desk
                .store
                .plan_get(plan)?
                .ok_or_else(|| usage(format!("no replay {plan}; to list replays: {list}")))?;
            if found.state != "running" {
                return Err(usage(format!("replay {plan} is {}, not running", found.state)));
            }
            vec![found]
        }
        None => {
            let filter = args.filter.bounded(desk, args.all || !named.is_empty())?;
            let mut by = desk.store.plan_dry(&filter, args.max_generation, desk.now_ms)?;
            let left_out = desk.store.count(&filter)? - by.iter().map(|(_, n)| n).sum::<u64>();
            if !(args.dry_run && named.is_empty()) {
                // Letters that were pointed at are not left out in silence.
                let is_pointed = filter.pipeline.is_some() || !filter.ids.is_empty();
                by = only_named(by, (&named, is_pointed), desk)?;
            }
            if args.dry_run {
                let pipelines: Vec<_> =
                    by.iter().map(|(name, n)| json!({ "pipeline": name, "letters": n })).collect();
                let told = json!({ "dry_run": true, "replay": pipelines, "left_out": left_out });
                if desk.format == LetterFormat::Table {
                    by.iter().for_each(|(name, n)| {
                        out::say(&format!("would replay {} of {name}", counted(*n, "letter", "letters")));
                    });
                    out::say(&format!("would skip {}", counted(left_out, "letter", "letters")));
                } else {
                    out::data(&format!("{told}\n"))?;
                }
                return Ok(Exit::Done);
            }
            let spec = json!({ "rate": args.rate, "max_generation": args.max_generation }).to_string();
            let mut plans = Vec::new();
            for (pipeline, _) in by {
                // Check that a replay is possible before leasing letters.
                runners.insert(pipeline.clone(), preflight(&named, rate, desk, &pipeline)?);
                plans.push(desk.store.plan(&pipeline, &filter, args.max_generation, &spec, desk.now_ms)?);
            }
            plans
        }
    };
    // A batch is at most one second's worth at the given rate.
    let batch = rate.map_or(args.batch, |rate| args.batch.min(rate.ceil().clamp(1.0, 1e4) as u32));
    let letters = Letters::open(&desk.place)?;
    let mut told = Vec::new();
    for plan in plans {
        let mut runner = match runners.remove(&plan.pipeline) {
            Some(runner) => runner,
            None => preflight(&named, rate, desk, &plan.pipeline)?,
        };
        // With SQLite a resumed replay may take over leases, because their holder was on this
        // machine and has ended. With PostgreSQL it waits until they expire.
        let takeover = args.resume.is_some() && desk.store.dialect() == SqlDialect::Sqlite;
        let pace = Pace { batch, verify: args.verify, takeover, ..Pace::default() };
        let number = plan.plan;
        let (began, mut before) = (Instant::now(), None);
        let done = replay::go(&mut desk.store, &letters, &desk.keys, number, runner.as_mut(), pace, |now| {
            if now.left > 0 && desk.format == LetterFormat::Table {
                out::say(&format!(
                    "replay {number}: {} of {} done, {} failed again",
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
            let next = desk.command(&args.resume_words(number));
            CommandFailure(Exit::TryLater, format!("{e}; to continue: {next}"))
        })?;
        told.push(done);
    }
    letters.close();
    summary(args, desk, &told)
}

/// Sleeps until then, or until told to stop.
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
        "resolved": plan.resolved, "dead": plan.dead, "back": plan.back, "purged": plan.purged,
        "left": plan.left,
    })
}

fn summary(args: &Args, desk: &OpenLetterStore, plans: &[ReplayPlan]) -> Done {
    if desk.format == LetterFormat::Table {
        if plans.is_empty() {
            out::say("nothing to replay");
        }
        for p in plans.iter().filter(|p| p.left > 0) {
            out::say(&format!("to continue: {}", desk.command(&args.resume_words(p.plan))));
        }
        for p in plans {
            let purged = if p.purged > 0 { format!("{} purged, ", p.purged) } else { String::new() };
            out::say(&format!(
                "replay {} of {} is {}: {} resolved, {} failed again, {} returned, {purged}{} left of {}",
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

/// The pipelines that were named, of those that have letters. The others are left out, and said,
/// unless nothing else was meant.
fn only_named(
    by: Vec<(String, u64)>,
    (named, is_pointed): (&NamedManifests, bool),
    desk: &mut OpenLetterStore,
) -> Result<Vec<(String, u64)>, CommandFailure> {
    let mut kept = Vec::new();
    for (pipeline, letters) in by {
        let stored = StoredDefinition::read(&mut desk.store, &pipeline)?;
        if named.has(&pipeline, stored.as_ref()) {
            kept.push((pipeline, letters));
        } else if named.is_empty() || is_pointed {
            return Err(unnamed(&pipeline, stored.as_ref()));
        } else {
            let letters = counted(letters, "letter", "letters");
            out::say(&format!("tidegate dlq: {letters} of {pipeline} left out: its manifest was not named"));
        }
    }
    Ok(kept)
}

/// Checks whether a pipeline can be replayed now. Sends no calls.
fn preflight(
    named: &NamedManifests,
    rate_max: Option<f64>,
    desk: &mut OpenLetterStore,
    pipeline: &str,
) -> Result<Box<dyn Rerun>, CommandFailure> {
    if let Some(open) = desk.store.incidents(Some(pipeline))?.first() {
        let why = format!(
            "{pipeline} is suspended by incident {}; fix the cause, then close it: {}",
            open.incident,
            desk.command(&format!("incidents --close {}", open.incident))
        );
        return Err(CommandFailure(Exit::TryLater, why));
    }
    let stored = StoredDefinition::read(&mut desk.store, pipeline)?.ok_or_else(|| {
        usage(format!(
            "cannot replay {pipeline}: it has not run with this store, so the fields of its source are unknown"
        ))
    })?;
    let mut runner = named.replay(desk, pipeline, &stored, rate_max)?;
    runner
        .preflight()
        .map_err(|why| CommandFailure(Exit::TryLater, format!("{pipeline} is not ready: {why}")))?;
    Ok(runner)
}
