//! `fetch --assets` and `fetch --requests`: objects instead of features.
//!
//! The assets of a catalogue take two steps. First its items are fetched as any layer is, into the
//! state directory. Then the assets that they name are downloaded. Requests are a list of their own.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_client::http::{Allow, ClientConfig};
use tidegate_client::lane::Clock;
use tidegate_client::profile::Profile;
use tidegate_client::secret::NamedSecret;
use tidegate_client::store::{ObjectStoreClient, StoreSettings};
use tidegate_core::bucket::BucketAddress;
use tidegate_core::call::CallPolicy;
use tidegate_core::content::ContentKind;
use tidegate_pipeline::download::stac::AssetList;
use tidegate_pipeline::download::{
    Download, DownloadForecast, DownloadItem, DownloadReport, DownloadTarget, DownloadWatch, host,
};
use tidegate_pipeline::manifest;
use tidegate_pipeline::preset;
use tidegate_pipeline::run::RunOptions;
use tidegate_pipeline::source::{SourceError, Trouble, Wire, WireConfig};

use super::{Args, DEADLINE, preset as options};
use crate::execute::{Execution, counted, refused};
use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::progress::{thousands, watched};
use crate::stop::{AFTER_CALLS, listen};

/// The most failures that are printed; all are in the JSON.
const SHOWN_MAX: usize = 20;

/// A list of objects, and what of it cannot be had.
struct ObjectList {
    items: Vec<DownloadItem>,
    missing: Vec<(String, String)>,
    notes: Vec<String>,
}

/// A line of `--requests`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    key: String,
    body: Value,
}

pub(super) fn run(args: &Args) -> io::Result<Exit> {
    let identity = json!([args.url.as_str(), args.assets, args.requests, args.output.to_string_lossy()]);
    let state = args.state.join("downloads").join(preset::id("fetch", "objects", &identity));
    let (list, profile) = match &args.requests {
        Some(path) => (requests(args, path), profile(args)),
        None => match items(args, &state)? {
            Ok(path) => (assets(args, &path), profile(args)),
            Err(exit) => return Ok(exit),
        },
    };
    let ready = list.and_then(|list| Ok((list, target(args)?, profile?)));
    let (list, target, profile) = match ready {
        Ok(ready) => ready,
        Err(why) => return refused(&why, args.format),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(download(args, list, target, &profile, &state))
}

/// Fetches the items of the catalogue; the path of the file, or how that failed.
fn items(args: &Args, state: &Path) -> io::Result<Result<PathBuf, Exit>> {
    let path = state.join("items.geojsonl");
    if let Err(why) = fs::create_dir_all(state) {
        out::say(&format!("tidegate: {}: {why}", state.display()));
        return Ok(Err(Exit::Failure));
    }
    let manifest = match options::manifest(args, &path) {
        Ok(text) => manifest::from_bytes("the manifest of these options", text.as_bytes())
            .map_err(|rejection| rejection.render(out::color()).trim_end().to_owned()),
        Err(why) => Err(why),
    };
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(why) => return refused(&why, args.format).map(Err),
    };
    let exit = Execution {
        manifest: &manifest,
        options: RunOptions::of_preset(&args.state, args.resume, args.keep_going),
        observe: &args.observe,
        quiet: true,
        format: OutputFormat::Table,
        verb: "fetch",
        subject: "the items of the catalogue".to_owned(),
        resume: out::resume_command(),
        is_part: true,
    }
    .run()?;
    Ok(if exit == Exit::Done { Ok(path) } else { Err(exit) })
}

/// The assets that the items name.
fn assets(args: &Args, items: &Path) -> Result<ObjectList, String> {
    let text = fs::read_to_string(items).map_err(|e| format!("{}: {e}", items.display()))?;
    let mut list = AssetList::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        list.add(line, &args.assets, &args.url)?;
    }
    let unknown: Vec<&str> =
        args.assets.iter().filter(|name| !list.names.contains_key(*name)).map(String::as_str).collect();
    if list.read > 0 && !unknown.is_empty() {
        let names: Vec<&str> = list.names.keys().map(String::as_str).collect();
        return Err(format!("no item has the asset {}; they have {}", unknown.join(", "), names.join(", ")));
    }
    let mut notes = vec![counted(list.read, "item", "items")];
    if list.unknown_checksums > 0 {
        let number = counted(list.unknown_checksums, "checksum", "checksums");
        notes.push(format!("{number} by a function other than SHA-256 and SHA-512, which are not compared"));
    }
    Ok(ObjectList { items: list.items, missing: list.missing, notes })
}

/// The requests of a file, a line of JSON each.
fn requests(args: &Args, path: &Path) -> Result<ObjectList, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut items = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |why: String| format!("{}, line {}: {why}", path.display(), number + 1);
        let line: RequestLine = serde_json::from_str(line)
            .map_err(|e| at(format!("expected {{\"key\": \"name.tif\", \"body\": {{…}}}}: {e}")))?;
        tidegate_client::store::key::check(&line.key).map_err(|e| at(e.to_string()))?;
        items.push(DownloadItem {
            kind: ContentKind::of_name(&line.key),
            key: line.key,
            url: (*args.url).clone(),
            body: Some(line.body.to_string()),
            size: None,
            checksum: None,
        });
    }
    Ok(ObjectList { items, missing: Vec::new(), notes: Vec::new() })
}

fn profile(args: &Args) -> Result<Profile, String> {
    match (&args.requests, &args.profile) {
        (Some(_), name) => args.reach.profile(name.as_deref().unwrap_or("sentinel-hub")),
        (None, _) => tidegate_pipeline::download::profile().map_err(|e| e.message),
    }
}

fn target(args: &Args) -> Result<DownloadTarget, String> {
    let name = args.output.to_str().ok_or("the output is not valid UTF-8")?;
    if !BucketAddress::is_one(name) {
        fs::create_dir_all(&args.output).map_err(|e| format!("{name}: {e}"))?;
        return Ok(DownloadTarget::Directory(args.output.clone()));
    }
    let cloud = args.cloud.settings(args.reach.allow_private);
    let settings = StoreSettings { cloud, patience: args.calls.patience(), ..StoreSettings::default() };
    ObjectStoreClient::open(name, &settings).map(DownloadTarget::Store).map_err(|e| e.to_string())
}

/// A way to each host that may be asked.
fn wires(args: &Args, items: &[DownloadItem], profile: &Profile) -> Result<HashMap<String, Wire>, String> {
    let allow = Allow::meant(&args.url, args.reach.allow_private, &args.reach.allow_host);
    let key = match &args.key {
        Some(from) => {
            Some(NamedSecret { name: from.to_string(), secret: from.fetch().map_err(|e| e.to_string())? })
        }
        None => None,
    };
    let mut wires = HashMap::new();
    for url in items.iter().map(|item| &item.url) {
        if wires.contains_key(&host(url)) || allow.url(url).is_err() {
            continue;
        }
        let policy = CallPolicy {
            attempts_max: args.calls.attempts,
            attempt_timeout: args.calls.timeout.unwrap_or(profile.timeout()),
            deadline: args.calls.deadline.unwrap_or(DEADLINE),
            ..preset::policy()
        };
        let mut lane = preset::lane();
        lane.limit.in_flight_max = profile.in_flight();
        lane.limit.rate_max = args.calls.rate;
        let mut client = ClientConfig { allow: allow.clone(), ..ClientConfig::default() };
        client.body.bytes_max = profile.body_bytes_max();
        let home = url.origin() == args.url.origin();
        let config = WireConfig {
            url: url.clone(),
            profile: profile.clone(),
            key: key.clone().filter(|_| home),
            client,
            policy,
            classifier: None,
            lane,
            patience: args.calls.patience(),
            seed: seed(),
            caller: None,
            lane_state: Some(args.state.clone()),
        };
        wires.insert(host(url), Wire::new(config, Clock::system()).map_err(|e| e.message)?);
    }
    Ok(wires)
}

/// The seed of the jitter.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness the jitter is always the same.
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}

async fn download(
    args: &Args,
    list: ObjectList,
    target: DownloadTarget,
    profile: &Profile,
    state: &Path,
) -> io::Result<Exit> {
    let wires = match wires(args, &list.items, profile) {
        Ok(wires) => wires,
        Err(why) => return refused(&why, args.format),
    };
    let opened = Download::open(list.items, target, state);
    let (download, forecast) = match opened {
        Ok(download) => match download.forecast().await {
            Ok(forecast) => (download, forecast),
            Err(error) => return Ok(failed(&error)),
        },
        Err(error) => return Ok(failed(&error)),
    };
    let said = words(&forecast, &list.notes);
    if args.dry_run {
        match args.format {
            OutputFormat::Json => out::data(&format!("{}\n", json!({ "forecast": forecast })))?,
            OutputFormat::Table => out::data(&format!("{said}\n"))?,
        }
        return Ok(missing(&list.missing));
    }
    if !args.quiet {
        out::say(&said);
    }
    let watch = Arc::new(DownloadWatch::default());
    listen(&watch.stop, AFTER_CALLS);
    let work = download.run(&wires, &watch);
    let done = if args.quiet || !out::draws() {
        work.await
    } else {
        watched(work, || {
            let get = |count: &AtomicU64| thousands(count.load(Ordering::Relaxed));
            let (objects, bytes) = (get(&watch.objects), get(&watch.bytes));
            format!("{objects} of {} objects, {bytes} bytes", thousands(forecast.objects))
        })
        .await
    };
    for wire in wires.values() {
        wire.flush();
    }
    match done {
        Ok(report) => end(args, &report, &forecast, &list.missing),
        Err(error) => Ok(failed(&error)),
    }
}

fn failed(error: &SourceError) -> Exit {
    out::say(&format!("tidegate fetch: {error}"));
    match error.trouble {
        Trouble::TryLater(_) | Trouble::Down => Exit::TryLater,
        Trouble::Setup | Trouble::Broken | Trouble::Mismatch | Trouble::Disk => Exit::Failure,
    }
}

/// Says what of the list cannot be had.
fn missing(missing: &[(String, String)]) -> Exit {
    for (key, why) in missing.iter().take(SHOWN_MAX) {
        out::say(&format!("tidegate fetch: {key}: {why}"));
    }
    if missing.is_empty() { Exit::Done } else { Exit::DeadLetters }
}

/// The forecast in words.
fn words(forecast: &DownloadForecast, notes: &[String]) -> String {
    let objects = counted(forecast.objects, "object", "objects");
    let mut text = match notes {
        [] => objects,
        notes => format!("{}: {objects}", notes.join(", ")),
    };
    if forecast.present > 0 {
        text.push_str(&format!(", {} of them downloaded before", thousands(forecast.present)));
    }
    let left = forecast.objects - forecast.present;
    if left == 0 {
        return text + "; nothing to download";
    }
    let size = match (forecast.bytes, forecast.unsized_objects) {
        (_, unknown) if unknown == left => "of unknown size".to_owned(),
        (bytes, 0) => counted(bytes, "byte", "bytes"),
        (bytes, unknown) => {
            format!("at least {}, {} without a size", counted(bytes, "byte", "bytes"), thousands(unknown))
        }
    };
    let hosts: BTreeSet<String> =
        forecast.hosts.iter().map(|(host, n)| format!("{host} ({})", thousands(*n))).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    format!(
        "{text}; to download {}, {size}, with at least {} from {}",
        thousands(left),
        counted(forecast.calls, "call", "calls"),
        hosts.join(", ")
    )
}

fn end(
    args: &Args,
    report: &DownloadReport,
    forecast: &DownloadForecast,
    missing: &[(String, String)],
) -> io::Result<Exit> {
    let all = forecast.objects + missing.len() as u64;
    let there = report.objects + report.present;
    for (key, error) in report.failed.iter().take(SHOWN_MAX) {
        out::say(&format!("tidegate fetch: {key}: {error}"));
    }
    let _ = self::missing(missing);
    if !args.quiet {
        out::say(&format!(
            "{} of {} in {}: {} downloaded ({}, {} compared), {} there before",
            thousands(there),
            counted(all, "object", "objects"),
            args.output.display(),
            thousands(report.objects),
            counted(report.bytes, "byte", "bytes"),
            counted(report.checksums, "checksum", "checksums"),
            thousands(report.present),
        ));
        if there < all {
            out::say(&format!("to try the rest: {}", out::resume_command()));
        }
    }
    if args.format == OutputFormat::Json {
        let failed = report
            .failed
            .iter()
            .map(|(key, error)| json!({ "key": key, "code": error.code.as_str(), "message": error.message }));
        let missing =
            missing.iter().map(|(key, why)| json!({ "key": key, "code": "NOT_FOUND", "message": why }));
        let result = json!({
            "objects": all,
            "downloaded": report.objects,
            "present": report.present,
            "bytes": report.bytes,
            "checksums": report.checksums,
            "failed": failed.chain(missing).collect::<Vec<_>>(),
            "forecast": forecast,
        });
        out::data(&format!("{result}\n"))?;
    }
    let is_ours = |error: &SourceError| matches!(error.trouble, Trouble::Setup | Trouble::Disk);
    let later = |error: &SourceError| matches!(error.trouble, Trouble::TryLater(_) | Trouble::Down);
    Ok(match () {
        () if there == all => Exit::Done,
        () if !report.stopped
            && missing.is_empty()
            && report.failed.iter().all(|(_, error)| later(error)) =>
        {
            Exit::TryLater
        }
        () if report.stopped || report.failed.iter().any(|(_, error)| is_ours(error)) => Exit::Failure,
        () => Exit::DeadLetters,
    })
}
