//! `fetch` of tiles: a URL with `{z}`, `{x}` and `{y}`, or with `{bbox}`.
//!
//! Not a preset of `run`: a tile is no record with fields, and its output is the book of what was
//! fetched.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::time::seconds;
use tidegate_geo::tile::TileCover;
use tidegate_pipeline::preset;
use tidegate_pipeline::tiles::{
    TileCounts, TileJob, TileReport, TileStop, TileStore, TileStoreError, TileTemplate,
};

use super::Args;
use crate::execute::{counted, refused};
use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::progress::{span, thousands};
use crate::stop::{AFTER_CALLS, listen};

/// The assumed length of a tile while none has been fetched, in bytes.
const TILE_BYTES: u64 = 15_000;
/// Calls at once to a server of one's own.
const AT_ONCE: u32 = 8;

/// Reads `west,south,east,north`.
pub(in crate::verb) fn bbox(text: &str) -> Result<[f64; 4], String> {
    let bad = || {
        format!(
            "invalid box {text:?}; expected west,south,east,north in degrees, such as 16.1,48.1,16.6,48.4"
        )
    };
    let numbers: Vec<f64> =
        text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map_err(|_| bad())?;
    numbers.try_into().map_err(|_| bad())
}

/// Reads `12` or `0..12`.
pub(in crate::verb) fn zooms(text: &str) -> Result<(u8, u8), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) => Ok((from, to)),
        _ => Err(format!(
            "invalid zoom levels {text:?}; expected a number such as 12, or a range such as 0..12"
        )),
    }
}

pub(super) fn run(args: &Args, template: &TileTemplate) -> io::Result<Exit> {
    let (job, store) = match prepare(args, template) {
        Ok(prepared) => prepared,
        Err(why) => return refused(&why, args.format),
    };
    let forecast = TileForecast::of(&job, store.as_ref());
    if args.dry_run {
        match args.format {
            OutputFormat::Table => out::data(&format!("{forecast}\n"))?,
            OutputFormat::Json => out::data(&format!("{:#}\n", forecast.to_json()))?,
        }
        return Ok(Exit::Done);
    }
    if !args.quiet {
        out::say(&forecast.to_string());
    }
    let store = match store {
        Some(store) => Ok(store),
        None => TileStore::open(&args.output, template.as_str(), template.extension()),
    };
    let mut store = match store {
        Ok(store) => store,
        Err(TileStoreError::Locked(what)) => {
            out::say(&format!("tidegate: {what}; try again later"));
            return Ok(Exit::TryLater);
        }
        Err(TileStoreError::Failed(what)) => return refused(&what, args.format),
    };
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop, AFTER_CALLS);
    let (began, shown) = (Instant::now(), std::cell::Cell::new(Instant::now()));
    let is_terminal = out::draws() && !args.quiet;
    let progress = |ended: u64| {
        if is_terminal && shown.get().elapsed() >= Duration::from_millis(200) {
            shown.set(Instant::now());
            let left = forecast.wanted.saturating_sub(ended);
            let each = began.elapsed().as_secs_f64() / ended.max(1) as f64;
            let left = span(seconds(each * left as f64));
            // A terminal that has gone is no reason to stop.
            let _ = write!(
                io::stderr(),
                "\r\x1b[K{} of {} tiles, {left} left",
                thousands(ended),
                thousands(forecast.wanted)
            );
        }
    };
    let report = job.run(&mut store, &stop, &progress);
    if is_terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    match report {
        Ok(report) => end(args, forecast.wanted, &report),
        Err(what) => {
            out::say(&format!("tidegate: {what}"));
            Ok(Exit::Failure)
        }
    }
}

/// The job, and the output if it is there already.
fn prepare(args: &Args, template: &TileTemplate) -> Result<(TileJob, Option<TileStore>), String> {
    let need = |what: &str| format!("tiles need {what}");
    let bbox = args.bbox.ok_or_else(|| need("--bbox west,south,east,north"))?;
    let (from, to) = args.zoom.ok_or_else(|| need("--zoom, such as 0..12"))?;
    let cover = TileCover::new(bbox, from..=to).map_err(|problem| problem.message)?;
    let profile = args.reach.profile(args.profile.as_deref().unwrap_or("tiles"))?;
    // The rate of the profile is that of its public service.
    let is_public = profile.base_url().is_ok_and(|url| template.as_str().starts_with(url.as_str()));
    let mut lane = preset::lane();
    lane.limit.in_flight_max = if is_public { profile.in_flight() } else { AT_ONCE };
    if let Some(at_once) = args.at_once {
        lane.limit.in_flight_max = at_once;
    }
    let public_rate = is_public.then(|| profile.rate_per_second());
    lane.limit.rate_max = match (args.calls.rate, public_rate) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let mut policy = preset::policy();
    policy.attempts_max = args.calls.attempts;
    policy.attempt_timeout = args.calls.timeout.unwrap_or_else(|| profile.timeout());
    policy.deadline = args.calls.deadline.unwrap_or(policy.deadline);
    let job = TileJob {
        template: template.clone(),
        cover,
        profile,
        policy,
        lane,
        patience: args.calls.patience(),
        user_agent: args.user_agent.clone(),
        allow: (args.reach.allow_private, args.reach.allow_host.clone()),
        state: args.state.clone(),
    };
    let there = TileStore::book(&args.output).is_file();
    let store = if there {
        TileStore::open(&args.output, template.as_str(), template.extension()).ok()
    } else {
        None
    };
    Ok((job, store))
}

/// What a fetch will take.
struct TileForecast {
    wanted: u64,
    known: TileCounts,
    by_zoom: Vec<(u8, u64)>,
    bytes: u64,
    seconds: Option<f64>,
}

impl TileForecast {
    fn of(job: &TileJob, store: Option<&TileStore>) -> TileForecast {
        let wanted = job.cover.count();
        let known = store.and_then(|store| store.count(job.cover.tiles()).ok()).unwrap_or_default();
        let calls = wanted.saturating_sub(known.tiles + known.nothing);
        let each = known.bytes.checked_div(known.tiles).unwrap_or(TILE_BYTES);
        TileForecast {
            wanted,
            known,
            by_zoom: job.cover.zooms().map(|z| (z, job.cover.count_at(z))).collect(),
            bytes: calls.saturating_mul(each),
            seconds: job.lane.limit.rate_max.map(|rate| calls as f64 / rate),
        }
    }

    fn calls(&self) -> u64 {
        self.wanted.saturating_sub(self.known.tiles + self.known.nothing)
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "tiles": self.wanted,
            "by_zoom": self.by_zoom,
            "known": self.known.tiles + self.known.nothing,
            "calls": self.calls(),
            "bytes_estimated": self.bytes,
            "seconds_at_least": self.seconds,
        })
    }
}

impl std::fmt::Display for TileForecast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.by_zoom.first(), self.by_zoom.last());
        let (first, last) = (first.map_or(0, |(z, _)| *z), last.map_or(0, |(z, _)| *z));
        write!(f, "{} in zoom levels {first} to {last}", counted(self.wanted, "tile", "tiles"))?;
        let known = self.known.tiles + self.known.nothing;
        if known > 0 {
            write!(f, ", {} there already", thousands(known))?;
        }
        let assumed = if self.known.tiles == 0 { " if a tile has 15 kB" } else { "" };
        write!(
            f,
            ": {}, about {} MB{assumed}",
            counted(self.calls(), "call", "calls"),
            thousands(self.bytes.div_ceil(1_000_000))
        )?;
        match self.seconds {
            Some(least) => write!(f, ", {} or more", span(seconds(least))),
            None => Ok(()),
        }
    }
}

/// Says what came of it.
fn end(args: &Args, wanted: u64, report: &TileReport) -> io::Result<Exit> {
    let TileReport { calls, known, failed, failures, counts, ended } = report;
    let missing = wanted.saturating_sub(counts.tiles + counts.nothing + failed);
    let error = match ended {
        Some(TileStop::Later(later)) => Some(later.to_string()),
        Some(TileStop::Refused(said)) => Some(said.clone()),
        Some(TileStop::Stopped) => Some("interrupted; the same command goes on".to_owned()),
        None if missing > 0 => {
            Some(format!("{} are missing in the output", counted(missing, "tile", "tiles")))
        }
        None => None,
    };
    if !args.quiet {
        let mut text = format!(
            "{}: {} ({} bytes) and {} without a tile, of {}; {}, {} there before",
            args.output.display(),
            counted(counts.tiles, "tile", "tiles"),
            thousands(counts.bytes),
            counted(counts.nothing, "place", "places"),
            thousands(wanted),
            counted(*calls, "call", "calls"),
            thousands(*known),
        );
        if *failed > 0 {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n{} failed; the same command asks for them again",
                counted(*failed, "tile", "tiles")
            );
            failures.iter().for_each(|line| text.push_str(&format!("\n  {line}")));
        }
        out::say(&text);
    }
    if let Some(error) = &error {
        out::say(&format!("tidegate: {error}"));
    }
    if args.format == OutputFormat::Json {
        let value = json!({
            "output": args.output, "wanted": wanted, "tiles": counts.tiles, "nothing": counts.nothing,
            "bytes": counts.bytes, "calls": calls, "known": known, "failed": failed, "failures": failures,
            "error": error,
        });
        out::data(&format!("{value:#}\n"))?;
    }
    Ok(match ended {
        Some(TileStop::Later(_)) => Exit::TryLater,
        Some(TileStop::Refused(_) | TileStop::Stopped) => Exit::Failure,
        None if missing > 0 => Exit::Failure,
        None if *failed > 0 => Exit::DeadLetters,
        None => Exit::Done,
    })
}
