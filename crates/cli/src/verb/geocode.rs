//! `tidegate geocode`: a CSV of addresses in, the same rows with places out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use tidegate_client::lane::{Clock, Snapshot};
use tidegate_client::secret::SecretRef;
use tidegate_core::time::calendar::rfc3339;
use tidegate_geo::format::csv::CsvOptions;
use tidegate_ledger::letter::{LetterStoreLocation, now_ms};
use tidegate_pipeline::geocode::{self, By, End, Job, JobError, Prepared, Run};
use tidegate_pipeline::manifest::duration;
use tidegate_pipeline::telemetry::{Ended, Summary};

use super::calls::{Calls, Held, Reach, time};
use crate::exit::Exit;
use crate::observe::{self, Observer, Seen, Subject};
use crate::out::{self, Format};
use crate::progress::{Now, Progress, span, thousands};
use crate::report::{self, Report, Tone};

/// Geocode the rows of a CSV file
///
/// Every row comes out matched, no_match or failed with a reason; none is lost and none is paid
/// for twice. Answers are kept in the state directory: a run that was cut off goes on where it
/// was, and a second run asks nothing again. The calls are paced by what the service allows.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate geocode addresses.csv --address street,city --profile opencage --key env:OPENCAGE_KEY -o out.gpkg
  tidegate geocode addresses.csv --address full --profile nominatim --url http://localhost:8080 -o out.geojson
  tidegate geocode places.csv --lon x --lat y --profile pelias --url http://localhost:4000 -o out.csv
  tidegate geocode addresses.csv --address full --profile pelias --url http://localhost:4000 -o out.gpkg \\
      --dead-letters .tidegate/letters.db
  tidegate geocode addresses.csv --address full --profile generic \\
      --url 'https://geo.example/find?q={address}&token={key}' --key file:token.txt -o out.csv --resume

Columns added: outcome, label, score, match_type, attempts, elapsed_ms, cache_hit, error_code,
error; and the geometry (in CSV as lon and lat).

Exit codes: 0 no row failed; 4 some rows failed, the output says which and why; 75 the service
asks for time, run again later; 2 the job cannot work as given; 1 anything else.")]
pub(crate) struct Args {
    /// The CSV file; `-` is standard input
    #[arg(value_name = "FILE")]
    input: PathBuf,

    /// The columns that make up the address, joined by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', required_unless_present = "lon")]
    address: Vec<String>,

    /// The column of the longitude, for asking which address is at a place
    #[arg(long, value_name = "COLUMN", requires = "lat", conflicts_with = "address")]
    lon: Option<String>,

    /// The column of the latitude
    #[arg(long, value_name = "COLUMN", requires = "lon")]
    lat: Option<String>,

    /// The service's profile; `tidegate profiles ls` lists them
    #[arg(long, value_name = "NAME", default_value = "generic")]
    profile: String,

    /// The service's address, or a template with {address}, {lat}, {lon}, {key}
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The output; its name tells the format: .gpkg, .geojson, .geojsonl, .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The service's key, by reference: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<SecretRef>,

    /// Calls under way at once, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    in_flight: Option<u32>,

    #[command(flatten)]
    calls: Calls,

    /// Ask for every row, also when the service refuses one after the other and accepts none
    #[arg(long)]
    keep_going: bool,

    /// Go on with a run that was cut off: rows that failed for good are not asked again
    #[arg(long)]
    resume: bool,

    /// Where answers are kept
    #[arg(long, value_name = "DIR", default_value = ".tidegate")]
    state: PathBuf,

    /// Keep no answers; a run that is cut off then starts anew
    #[arg(long, conflicts_with = "resume")]
    no_cache: bool,

    /// Kept answers older than this are asked for again
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    cache_ttl: Duration,

    /// Language of the answers, such as `de`
    #[arg(long, value_name = "CODE")]
    language: Option<String>,

    /// Country of the addresses, such as `at`
    #[arg(long, value_name = "CODE")]
    country: Option<String>,

    /// Who asks; some services demand a name and a contact
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,

    #[command(flatten)]
    reach: Reach,

    /// Between the cells [default: guessed from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// Encoding of the file, such as windows-1252
    #[arg(long, value_name = "NAME", default_value = "utf-8", value_parser = encoding)]
    encoding: &'static encoding_rs::Encoding,

    #[command(flatten)]
    observe: observe::Args,

    /// How to say what happened: words on standard error, or JSON on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Draw no progress
    #[arg(short, long)]
    quiet: bool,

    /// Keep rows that failed as dead letters: a file, or postgres://…; see `tidegate dlq`
    #[arg(long, value_name = "STORE")]
    dead_letters: Option<String>,

    /// Keep dead letters so many days, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [b] if b.is_ascii() && !matches!(b, b'"' | b'\n' | b'\r') => Ok(*b),
            _ => Err("a delimiter is one ASCII character, or `tab`".into()),
        },
    }
}

fn encoding(text: &str) -> Result<&'static encoding_rs::Encoding, String> {
    match encoding_rs::Encoding::for_label(text.as_bytes()) {
        Some(e) if e.is_ascii_compatible() => Ok(e),
        Some(e) => Err(format!("{} must be converted to UTF-8 first", e.name())),
        None => Err(format!("{text:?} is no encoding that is known")),
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    match job(args).and_then(|job| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|e| JobError::Broken(e.to_string()))?;
        runtime.block_on(async {
            let prepared = job.prepare(Clock::system())?;
            let run = prepared.run();
            let subject = Subject {
                telemetry: &run.telemetry,
                task: "geocode",
                alerts: None,
                letters: args.dead_letters.as_deref().map(LetterStoreLocation::from),
            };
            let observer = Observer::start(subject, &args.observe).map_err(JobError::Setup)?;
            let end = watched(prepared, args).await;
            let word = match &end {
                Ok(End::Done) => "done",
                Ok(End::Cancelled) => "cancelled",
                Ok(End::TryLater { .. }) => "try_later",
                Ok(End::Refused { .. }) => "refused",
                Err(_) => "failed",
            };
            let seen = observer.end(word, end.is_err());
            Ok((run, end?, seen))
        })
    }) {
        Ok((run, end, seen)) => {
            if let Some(path) = &args.observe.report
                && let Err(e) = std::fs::write(path, page(args, &run, &end, &seen))
            {
                out::say(&format!("tidegate: the report {} cannot be written: {e}", path.display()));
            }
            tell(args, &run, &end, seen.took)
        }
        Err(error) => {
            out::say(&format!("tidegate: {error}"));
            Ok(match error {
                JobError::Setup(_) => Exit::Usage,
                JobError::Broken(_) => Exit::Failure,
            })
        }
    }
}

fn job(args: &Args) -> Result<Job, JobError> {
    let setup = JobError::Setup;
    let mut profile = args.reach.profile(&args.profile).map_err(setup)?;
    if let Some(url) = &args.url {
        profile = profile.at(url).map_err(|e| setup(format!("--url: {e}")))?;
    }
    if same_file(&args.input, &args.output) {
        return Err(setup(format!(
            "{} is both input and output; name another output",
            args.output.display()
        )));
    }
    let url = profile.base_url().map_err(setup)?;
    let Held { key, client, policy, mut lane, patience, seed } =
        args.calls.held(&args.reach, args.key.as_ref(), &profile, &url).map_err(setup)?;
    // The profile's limits are what its public service allows; elsewhere the lane learns.
    if args.url.is_none() {
        lane.limit.rate_max = args.calls.rate.or(Some(profile.rate_per_second()));
        lane.limit.burst = args.calls.rate.is_none().then(|| f64::from(profile.burst()));
    } else {
        lane.limit.in_flight_max = 256;
    }
    lane.limit.in_flight_max = args.in_flight.unwrap_or(lane.limit.in_flight_max);
    Ok(Job {
        pipeline: pipeline(args),
        input: args.input.clone(),
        csv: CsvOptions { delimiter: args.delimiter, encoding: args.encoding, ..CsvOptions::default() },
        by: match (&args.lon, &args.lat) {
            (Some(lon), Some(lat)) => By::Place { lon: lon.clone(), lat: lat.clone() },
            _ => By::Address(args.address.iter().map(|c| c.trim().to_string()).collect()),
        },
        client,
        profile,
        key,
        user_agent: args.user_agent.clone(),
        language: args.language.clone(),
        country: args.country.clone(),
        output: args.output.clone(),
        state: (!args.no_cache).then(|| args.state.clone()),
        ttl: args.cache_ttl,
        resume: args.resume,
        policy,
        lane,
        patience,
        keep_going: args.keep_going,
        lane_state: Some(args.state.clone()),
        seed,
        dead_letters: args.dead_letters.as_deref().map(|place| dead_letters(args, place)),
    })
}

/// The name of the job.
fn pipeline(args: &Args) -> String {
    let stem = args.input.file_stem().filter(|stem| *stem != "-");
    format!("geocode:{}", stem.map_or_else(|| "stdin".into(), |stem| stem.to_string_lossy()))
}

/// Where rows that failed go, and how they are run again.
fn dead_letters(args: &Args, place: &str) -> geocode::DeadLetters {
    geocode::DeadLetters {
        place: LetterStoreLocation::from(place),
        pipeline: pipeline(args),
        spec: json!({ "kind": "geocode", "options": again(args) }).to_string(),
        retention_days: args.retention,
        incident: Default::default(),
    }
}

/// The options that a replay of single rows needs. Keys are references, never values.
fn again(args: &Args) -> Vec<String> {
    let absolute =
        |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    let mut all: Vec<String> = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.push(format!("--{name}={value}"));
        }
    };
    say("address", (!args.address.is_empty()).then(|| args.address.join(",")));
    say("lon", args.lon.clone());
    say("lat", args.lat.clone());
    say("profile", Some(args.profile.clone()));
    say("url", args.url.clone());
    say("key", args.key.as_ref().map(ToString::to_string));
    say("rate", args.calls.rate.map(|rate| rate.to_string()));
    say("in-flight", args.in_flight.map(|n| n.to_string()));
    say("attempts", Some(args.calls.attempts.to_string()));
    say("timeout", args.calls.timeout.map(ms));
    say("deadline", Some(ms(args.calls.deadline)));
    say("patience", Some(ms(args.calls.patience)));
    say("state", (!args.no_cache).then(|| absolute(&args.state)));
    say("cache-ttl", Some(ms(args.cache_ttl)));
    say("language", args.language.clone());
    say("country", args.country.clone());
    say("user-agent", args.user_agent.clone());
    say("profiles", args.reach.profiles.as_deref().map(absolute));
    args.reach.allow_host.iter().for_each(|host| say("allow-host", Some(host.clone())));
    for (name, set) in [("--allow-private", args.reach.allow_private), ("--no-cache", args.no_cache)] {
        if set {
            all.push(name.into());
        }
    }
    all
}

/// Geocodes rows of a replay with the options of their run; the error says that it never began.
pub(super) fn rerun(
    options: &[String],
    input: &Path,
    output: &Path,
    rate: Option<&str>,
) -> Result<Result<End, JobError>, String> {
    let words =
        ["geocode".to_owned(), input.display().to_string(), "-o".into(), output.display().to_string()];
    let rate = rate.map(|rate| format!("--rate={rate}"));
    let slower = rate.is_some();
    let kept = options.iter().filter(|word| !slower || !word.starts_with("--rate=")).cloned();
    let mut args =
        Again::try_parse_from(words.into_iter().chain(kept).chain(rate)).map_err(|e| e.to_string())?.args;
    // Letters are rows that failed before: each is worth its own call.
    args.keep_going = true;
    let job = job(&args).map_err(|e| e.to_string())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    Ok(runtime.block_on(async { job.prepare(Clock::system())?.go().await }))
}

#[derive(clap::Parser)]
struct Again {
    #[command(flatten)]
    args: Args,
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Runs the job, drawing progress and listening for Ctrl-C.
async fn watched(prepared: Prepared, args: &Args) -> Result<End, JobError> {
    let run = prepared.run();
    let mut progress = Progress::new(args.quiet, out::color());
    let mut watch = Watch::new();
    // A task, so that it runs where the calls do.
    let mut going = tokio::spawn(prepared.go());
    let mut interrupts = Interrupts::new().map_err(|e| JobError::Setup(e.to_string()))?;
    let mut interrupted = false;
    loop {
        tokio::select! {
            end = &mut going => {
                if let Some(progress) = &mut progress {
                    progress.clear();
                }
                return end.unwrap_or_else(|e| Err(JobError::Broken(e.to_string())));
            }
            () = tokio::time::sleep(Progress::EVERY) => {
                if let Some(progress) = &mut progress {
                    progress.draw(&watch.look(&run));
                }
            }
            () = interrupts.next() => {
                if interrupted {
                    return Ok(End::Cancelled);
                }
                interrupted = true;
                run.stop();
                if let Some(progress) = &mut progress {
                    progress.clear();
                }
                out::say("stopping: waiting for calls in flight; press Ctrl-C again to stop at once");
            }
        }
    }
}

/// Ctrl-C, or a polite kill. Listens from the start, so that none is missed between two looks.
pub(super) struct Interrupts {
    #[cfg(unix)]
    int: tokio::signal::unix::Signal,
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
}

impl Interrupts {
    pub(super) fn new() -> io::Result<Interrupts> {
        #[cfg(unix)]
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Interrupts {
            #[cfg(unix)]
            int: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            term: signal(SignalKind::terminate())?,
        })
    }

    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Turns what the run counts into what the progress line shows.
struct Watch {
    began: Instant,
    last: (Instant, u64),
    rate: f64,
}

impl Watch {
    fn new() -> Watch {
        Watch { began: Instant::now(), last: (Instant::now(), 0), rate: 0.0 }
    }

    fn look(&mut self, run: &Run) -> Now {
        use std::sync::atomic::Ordering::Relaxed;
        let done = run.telemetry.records.all();
        let since = self.last.0.elapsed().as_secs_f64();
        let lately = (done - self.last.1) as f64 / since.max(1e-3);
        // About the last two seconds.
        self.rate += (lately - self.rate) * (since / 2.0).min(1.0);
        self.last = (Instant::now(), done);
        let offered = run.telemetry.records.offered();
        let (read, size) = (run.bytes.0.load(Relaxed), run.bytes.1.load(Relaxed));
        // What has ended, as a share of the rows that the read part of the file holds.
        let share = (size > 0 && offered > 0)
            .then(|| (read as f64 / size as f64).min(1.0) * done as f64 / offered as f64);
        let lane = run.lane.snapshot();
        Now {
            done,
            share,
            rate: self.rate,
            elapsed: self.began.elapsed(),
            in_flight: lane.in_flight,
            throttled: lane.counts.throttled,
            failed: run.telemetry.records.ended_so(Ended::Failed),
            waiting: waiting(&lane),
        }
    }
}

/// What a person should know about a wait: only those that can be felt.
pub(super) fn waiting(lane: &Snapshot) -> Option<(Duration, &'static str)> {
    let told = lane.gate.since(lane.now);
    let (wait, why) = match lane.due {
        // Those who were refused wait on their own, and the lane has nobody to wait for.
        None if lane.in_flight == 0 => (told, "the server said so"),
        None => return None,
        Some(due) => {
            let why = match due.shut {
                Some(code) if code == tidegate_core::Code::QUOTA_EXHAUSTED => "the quota is spent",
                Some(_) => "the service is failing",
                None if !told.is_zero() => "the server said so",
                None => "to keep the pace",
            };
            (due.at.since(lane.now), why)
        }
    };
    (wait >= Duration::from_millis(800)).then_some((wait, why))
}

fn tell(args: &Args, run: &Run, end: &End, took: Duration) -> io::Result<Exit> {
    let summary = run.summary();
    let exit = match end {
        End::Done if summary.failed > 0 => Exit::DeadLetters,
        End::Done => Exit::Done,
        End::Cancelled => Exit::Failure,
        End::TryLater { .. } => Exit::TryLater,
        End::Refused { why, .. } if why.class.is_later() => Exit::TryLater,
        End::Refused { .. } => Exit::Failure,
    };
    match args.format {
        Format::Table => out::say(&words(args, run, end, took, &summary)),
        Format::Json => {
            let (ended, until) = match end {
                End::Done => ("done", None),
                End::Cancelled => ("cancelled", None),
                End::TryLater { until, .. } => ("try_later", Some(until.millis())),
                End::Refused { .. } => ("refused", None),
            };
            let mut value = json!(summary);
            value["ended"] = json!(ended);
            value["try_again_at_ms"] = json!(until);
            if let End::TryLater { said, .. } | End::Refused { said, .. } = end {
                value["error"] = json!(said);
            }
            value["elapsed_seconds"] = json!(took.as_secs_f64());
            value["output"] = json!(args.output.display().to_string());
            out::data(&format!("{value:#}\n"))?;
        }
    }
    Ok(exit)
}

fn page(args: &Args, run: &Run, end: &End, seen: &Seen) -> String {
    let failed = run.telemetry.records.ended_so(Ended::Failed);
    let (ended, tone) = match end {
        End::Done if failed == 0 => ("every row is there and none failed".to_string(), Tone::Good),
        End::Done => (format!("every row is there; {} failed with a reason", thousands(failed)), Tone::Fair),
        End::Cancelled => ("stopped from outside; answers are kept".to_string(), Tone::Fair),
        End::TryLater { code, said, .. } => (format!("{said} ({code})"), Tone::Bad),
        End::Refused { said, .. } => (said.clone(), Tone::Bad),
    };
    let policy = [
        ("profile", args.profile.clone()),
        ("host", run.lane.key().host()),
        ("attempts per row", args.calls.attempts.to_string()),
        ("time per row", duration::human(args.calls.deadline.as_secs_f64())),
        ("patience", duration::human(args.calls.patience.as_secs_f64())),
        ("rate", args.calls.pace()),
        ("cache", if args.no_cache { "off".into() } else { args.state.display().to_string() }),
    ];
    let policy = policy.map(|(name, value)| (name.to_string(), value)).to_vec();
    report::page(&Report {
        kind: "Geocoding",
        title: &args.input.file_name().unwrap_or(args.input.as_os_str()).to_string_lossy(),
        ended: &ended,
        tone,
        when: &rfc3339(now_ms()),
        telemetry: &run.telemetry,
        added: 0,
        seen,
        notes: &[],
        policy: &[("Options".to_owned(), policy)],
    })
}

fn words(args: &Args, run: &Run, end: &End, took: Duration, s: &Summary) -> String {
    let mut lines = Vec::new();
    let row = |name: &str, value: String| format!("  {name:<12} {value}");
    match end {
        End::Done => lines.push(format!("{}: all {} rows are there", args.output.display(), thousands(s.records))),
        End::Cancelled => lines.push(format!(
            "stopped after {} of the rows read; answers are kept in {}; the same command with --resume goes on",
            thousands(s.records),
            args.state.display()
        )),
        End::TryLater { code, said, .. } => lines.push(format!(
            "{said} ({code}); answers are kept in {}; run the same command with --resume then",
            args.state.display()
        )),
        End::Refused { .. } => {}
    }
    if let End::Refused { said, .. } = end {
        lines.push(format!("tidegate: {said}"));
        lines.push("nothing was written; the rows are asked by the next run".into());
    }
    lines.push(row("matched", thousands(s.matched)));
    lines.push(row("no match", thousands(s.no_match)));
    lines.push(row("failed", thousands(s.failed)));
    let rate = s.records as f64 / took.as_secs_f64().max(1e-9);
    lines.push(row("time", format!("{}, {} rows/s", span(took), thousands(rate.round() as u64))));
    let reused = s.cache_hits + s.shared;
    let mut calls = format!("{} calls", thousands(s.calls));
    if reused > 0 {
        calls.push_str(&format!(", {} answers reused", thousands(reused)));
    }
    if s.retry_count_total > 0 {
        calls.push_str(&format!(
            "; {} retries, {} throttled; {} waited between attempts",
            thousands(s.retry_count_total),
            thousands(s.throttled),
            span(Duration::from_secs_f64(s.seconds_in_backoff))
        ));
    }
    lines.push(row("calls", calls));
    let lane = run.lane.snapshot();
    // What was not limited has taught nothing.
    if let Some(rate) = lane.rate.filter(|_| lane.counts.throttled + lane.counts.hinted > 0) {
        lines.push(row("learned", format!("{rate:.1} calls/s")));
    }
    for group in run.telemetry.groups() {
        let (count, code) = (thousands(group.count), &group.code);
        lines.push(row("why", format!("{count} {code}, such as {}", group.example)));
    }
    if let (Some(store), true) = (&args.dead_letters, s.failed > 0 && *end == End::Done) {
        lines.push(row(
            "dead letters",
            format!(
                "{} in {}; `tidegate dlq ls` shows them",
                thousands(s.failed),
                LetterStoreLocation::from(store.as_str())
            ),
        ));
    }
    if let Some(report) = &args.observe.report {
        lines.push(row("report", report.display().to_string()));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_and_encodings() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert!(delimiter("\"").is_err() && delimiter(",,").is_err());
        assert!(encoding("utf-16").is_err() && encoding("latin1").is_ok());
    }
}
