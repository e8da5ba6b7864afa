//! Geocode a CSV file: every row comes out matched, no_match or failed with a reason; none lost,
//! none paid for twice, as fast as the provider allows.
//!
//! The parts, and the threads they run on:
//!
//! ```text
//!   source (thread)          work (tokio)                  sink (thread)
//!   rows of the file   ──▶   equal questions joined,  ──▶  rows in the order of the file,
//!   cache looked up          calls through the lane        batches into the output
//!         ▲                        │                            │
//!         │                        ▼                            │
//!         │                  cache (thread): an answer counts   │
//!         │                  when it is durable                 │
//!         └──────────────── credit: so many rows at once ◀──────┘
//! ```
//!
//! Every queue has a size, so memory does not depend on the number of rows. The output appears
//! under its name when it is whole. A run that is cut off, by Ctrl-C or by `kill -9`, leaves its
//! answers in the cache; the same command then goes through the file again and asks only for
//! what is missing. That is the whole of resuming.

mod answer;
mod dead;
mod hand;
mod known;
mod order;
mod sink;
mod source;
mod work;

pub use answer::Finished;
pub use dead::DeadLetters;

use crate::http::{Client, ClientConfig, Exchange, Trace};
use crate::lane::{Clock, LaneHandle, LaneKey, LaneStates, Lanes};
use crate::profile::{GeocodeInput, GeocodeQuery, Profile, Sniffed};
use crate::secret::{Redactor, Secret};
use crate::telemetry::{Calls, ServiceMetrics, Summary, Telemetry};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::call::{CallPolicy, ThrottleWait};
use tidegate_core::lane::LaneConfig;
use tidegate_core::refusal::RepeatedRefusal;
use tidegate_core::{Code, Wall};
use tidegate_geo::format::csv::CsvOptions;
use tokio::sync::watch;

/// What is asked about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The address in these columns, joined by commas.
    Address(Vec<String>),
    /// The place in these columns.
    Place {
        /// Longitude.
        lon: String,
        /// Latitude.
        lat: String,
    },
}

/// A job: what to geocode, with what, into what.
pub struct Job {
    /// The name of this job, in metrics and logs.
    pub pipeline: String,
    /// The CSV file; `-` is standard input.
    pub input: PathBuf,
    /// How to read it.
    pub csv: CsvOptions,
    /// What to ask.
    pub by: By,
    /// Whom to ask, at its address.
    pub profile: Profile,
    /// With which key: where it came from, and its value.
    pub key: Option<(String, Secret)>,
    /// Who asks.
    pub user_agent: Option<String>,
    /// Language of the answers.
    pub language: Option<String>,
    /// Country of the addresses.
    pub country: Option<String>,
    /// The output; its name tells the format.
    pub output: PathBuf,
    /// Where the cache is; `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// Older answers are asked for again.
    pub ttl: Duration,
    /// Take failures of the same job from the cache too.
    pub resume: bool,
    /// Which hosts and addresses may be asked.
    pub client: ClientConfig,
    /// How often and how long to try one row.
    pub policy: CallPolicy,
    /// Limits, breaker and budget.
    pub lane: LaneConfig,
    /// A longer wait than this ends the run: try later.
    pub patience: Duration,
    /// Ask for every row, however many are refused.
    pub keep_going: bool,
    /// Where it is kept until when a server wants no calls; `None` keeps nothing.
    pub lane_state: Option<PathBuf>,
    /// Decides all jitter.
    pub seed: u64,
    /// Where rows that failed go as dead letters.
    pub dead_letters: Option<DeadLetters>,
}

/// The settings with which rows are tried, unless told otherwise: 5 attempts, throttles and
/// outages free of them up to 20, five minutes in all.
#[must_use]
pub fn policy() -> CallPolicy {
    CallPolicy {
        throttles_free: 20,
        outages_free: 20,
        deadline: Duration::from_secs(300),
        attempt_timeout: Duration::from_secs(30),
        throttle_wait: ThrottleWait::Lane,
        ..CallPolicy::default()
    }
}

/// The lane's settings, unless told otherwise. The breaker of a batch probes sooner than that of
/// a service with users: nobody is hurt by two probes a second, and an outage of five seconds
/// should not cost thirty. Each wait is a twentieth longer than the one before, so an outage is
/// noticed to be over after about a twentieth of its length and 0.3 s.
#[must_use]
pub fn lane() -> LaneConfig {
    let mut lane = LaneConfig::default();
    lane.breaker.cooldown = Duration::from_millis(300);
    lane.breaker.cooldown_factor = 1.05;
    lane.breaker.cooldown_max = Duration::from_secs(30);
    lane.breaker.probes = 1;
    lane
}

/// Why a job did not start or broke off.
#[derive(Debug)]
pub enum JobError {
    /// The input, the profile or the output cannot be used: nothing was asked.
    Setup(String),
    /// The run broke off: what was answered is kept.
    Broken(String),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Setup(what) | JobError::Broken(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for JobError {}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All rows are in the output.
    Done,
    /// Stopped from outside; nothing was written.
    Cancelled,
    /// The other side wants no calls for longer than our patience; nothing was written.
    TryLater {
        /// `QUOTA_EXHAUSTED` or `CIRCUIT_OPEN`.
        code: Code,
        /// When to come again.
        until: Wall,
        /// Who asked for it and how, in a sentence.
        said: String,
    },
    /// The service refused row after row and accepted none; nothing was written.
    Refused {
        /// What it refused.
        why: RepeatedRefusal,
        /// What it said and where to look, in a sentence.
        said: String,
    },
}

/// A run as others see it while it goes on.
pub struct Run {
    /// What is counted.
    pub telemetry: Arc<Telemetry>,
    /// Of that, the calls.
    calls: Arc<Calls>,
    /// The lane.
    pub lane: LaneHandle,
    /// Bytes read, and bytes in all (0 if that is unknown).
    pub bytes: (AtomicU64, AtomicU64),
    stop: watch::Sender<bool>,
    /// The stop is because of refusals, which say nothing about the rows.
    refused: AtomicBool,
}

impl Run {
    /// Ends the run: what is out comes home, nothing new is sent.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether the run ends because of refusals.
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Resolves when the run is to end.
    async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.telemetry.summary()
    }
}

/// A job that is ready to go.
pub struct Prepared {
    job: Arc<Job>,
    exchange: Exchange<Sniffed>,
    run: Arc<Run>,
}

impl Job {
    /// A question of this job.
    fn ask<'a>(&'a self, what: GeocodeInput<'a>) -> GeocodeQuery<'a> {
        GeocodeQuery {
            language: self.language.as_deref(),
            country: self.country.as_deref(),
            user_agent: self.user_agent.as_deref(),
            ..GeocodeQuery::new(what)
        }
    }

    /// Opens what can be opened before anything is asked.
    ///
    /// # Errors
    /// When the job cannot work.
    pub fn prepare(self, clock: Clock) -> Result<Prepared, JobError> {
        let setup = |what: String| JobError::Setup(what);
        let mut redactor = Redactor::new();
        if let Some((_, secret)) = &self.key {
            redactor.add(secret);
        }
        let url = self.profile.base_url().map_err(setup)?;
        self.client.allow.url(&url).map_err(|e| {
            setup(format!("{url}: {e}. If you trust it, say --allow-private (or --allow-host)"))
        })?;
        let client = Client::new(self.client.clone(), [&url]).map_err(setup)?;
        // What no row can be asked without is missed before the first one.
        let sample = match self.by {
            By::Address(_) => GeocodeInput::Forward("a"),
            By::Place { .. } => GeocodeInput::Reverse { lon: 0.0, lat: 0.0 },
        };
        let asker = self.profile.asker(self.key.as_ref()).map_err(setup)?;
        asker.request(&self.ask(sample)).map_err(setup)?;
        let name = self.key.as_ref().map(|(name, _)| name.as_str()).unwrap_or_default();
        let mut lanes = Lanes::new(&self.lane, clock);
        if let Some(dir) = &self.lane_state {
            lanes = lanes.keeping(LaneStates::open(dir, clock));
        }
        if let Some((name, secret)) = &self.key {
            lanes.identify(name, secret);
        }
        let key = LaneKey::of_url(&url, name);
        let lane = lanes.get(&key);
        let telemetry = Arc::new(Telemetry::new(&self.pipeline));
        let line = ServiceMetrics::new(&key, &lanes, &self.policy);
        let calls = Arc::clone(&line.calls);
        telemetry.adopt(line);
        let mut dialect = self.profile.dialect();
        dialect.classifier.reset_is_wait = !self.lane.limit.learn;
        let trace = Trace::of(self.profile.trace_context());
        let redactor = Arc::new(redactor);
        let exchange = Exchange { client, lanes, dialect, policy: self.policy, redactor, trace };
        let run = Arc::new(Run {
            telemetry,
            calls,
            lane,
            bytes: Default::default(),
            stop: watch::Sender::new(false),
            refused: AtomicBool::new(false),
        });
        Ok(Prepared { job: Arc::new(self), exchange, run })
    }
}

impl Prepared {
    /// The run, for those who watch it.
    #[must_use]
    pub fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// Goes through all rows.
    ///
    /// # Errors
    /// When the input or the state cannot be read, or the output cannot be written.
    pub async fn go(self) -> Result<End, JobError> {
        let lanes = self.exchange.lanes.clone();
        let ended = work::go(self).await;
        lanes.flush();
        ended
    }
}

/// Offered = matched + no_match + failed, or something was lost.
fn reconcile(run: &Run, written: u64) -> Result<(), JobError> {
    let records = &run.telemetry.records;
    let (offered, ended) = (records.offered(), records.all());
    if offered == ended && offered == written {
        return Ok(());
    }
    Err(JobError::Broken(format!(
        "{offered} rows were read, {ended} ended and {written} were written: rows are missing, \
         and the output was not put in place. Please report this"
    )))
}
