//! Downloads a file from a web server or a bucket to the state directory before it is read.
//!
//! It is downloaded in pieces, and a progress file beside it records how far. A resumed run
//! continues with the next piece, or reads the complete file without a request; a new run downloads
//! it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use tidegate_core::bucket::BucketAddress;
use tidegate_geo::Bounds;
use url::Url;

use super::build::RunContext;
use super::paged::unless;
use super::service;
use super::source::Told;
use crate::durable;
use crate::error::SetupError;
use crate::lane::Clock;
use crate::manifest::{self, Manifest};
use crate::objects::{ObjectAddress, ObjectPlace};
use crate::source::file::{self, FilePosition};
use crate::source::{SourceError, Trouble, Wire};
use crate::step::StepError;

/// The progress of a download.
#[derive(Serialize, Deserialize)]
struct DownloadProgress {
    address: String,
    at: FilePosition,
}

/// A file that was downloaded, or built from the pages of a service.
pub(super) struct Fetched {
    /// Its path.
    pub(super) path: PathBuf,
    /// The stamp that identifies its content.
    pub(super) stamp: Option<String>,
    /// The counts of the download.
    pub(super) told: Option<Told>,
    /// The number of records in it, if they were counted.
    pub(super) features: Option<u64>,
    /// The extent of the layer, in degrees on WGS 84, if its service declared it.
    pub(super) extent: Option<Bounds>,
}

/// Why a file was not downloaded.
pub(super) enum FetchFailure {
    /// The address cannot be used: whoever gave it is at fault.
    Address(String),
    /// The service, or this machine.
    Step(StepError),
}

impl From<StepError> for FetchFailure {
    fn from(error: StepError) -> FetchFailure {
        FetchFailure::Step(error)
    }
}

impl From<String> for FetchFailure {
    fn from(what: String) -> FetchFailure {
        FetchFailure::Step(StepError::Broken(what))
    }
}

impl From<SetupError> for FetchFailure {
    fn from(error: SetupError) -> FetchFailure {
        FetchFailure::Step(error.into())
    }
}

impl From<FetchFailure> for StepError {
    fn from(failure: FetchFailure) -> StepError {
        match failure {
            FetchFailure::Address(what) => StepError::Broken(what),
            FetchFailure::Step(error) => error,
        }
    }
}

/// Deletes the downloads of a completed run; the next run downloads them again.
pub(super) fn sweep(state: &Path) {
    // A remaining file does no harm, for the same reason.
    let _ = fs::remove_dir_all(state.join(DIR));
}

/// The name of its directory in the state directory.
pub(super) const DIR: &str = "source";

/// A directory that is deleted on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Scratch, String> {
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|e| e.to_string())?;
        let dir = std::env::temp_dir().join(format!("tidegate-{:016x}", u64::from_le_bytes(name)));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Scratch(dir))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A remaining directory is in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a file in the manifest is remote.
pub(super) fn is_remote(name: &str) -> bool {
    BucketAddress::is_one(name) || ["http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

/// Downloads the file of a source, whose address a person wrote, into `dir`.
pub(super) fn fetch_written(
    manifest: &Manifest,
    from: &manifest::SourceSpec,
    address: &str,
    dir: &Path,
    resume: bool,
    context: &RunContext,
) -> Result<Fetched, FetchFailure> {
    let none = manifest::ServiceSpec::default();
    let form = match &from.service {
        Some(name) => manifest.pipeline.services.get(name).ok_or_else(|| format!("no service `{name}`"))?,
        None => &none,
    };
    let written = ObjectAddress::of_service(address, form.allow_private, &form.allow_hosts);
    let written = written.map_err(|e| FetchFailure::Address(e.to_string()))?;
    if let Some(home) = form.url.as_deref().and_then(|home| Url::parse(home).ok())
        && let ObjectPlace::Web { url, .. } = written.place()
        && home.origin() != url.origin()
    {
        let what = format!("{url} is not on the host of `source.service`, {home}");
        return Err(FetchFailure::Address(what));
    }
    fetch(manifest, (from, form), &written, dir, resume, context)
}

/// Downloads a file into `dir`. `form` is the service that it is on.
pub(super) fn fetch(
    manifest: &Manifest,
    (from, form): (&manifest::SourceSpec, &manifest::ServiceSpec),
    remote: &ObjectAddress,
    dir: &Path,
    resume: bool,
    RunContext { stop, traffic, .. }: &RunContext,
) -> Result<Fetched, FetchFailure> {
    let address = remote.text();
    let disk = |e: std::io::Error| format!("{}: {e}", dir.display());
    durable::make_dir(dir).map_err(disk)?;
    let kept = || -> Option<DownloadProgress> {
        serde_json::from_slice(&fs::read(dir.join("note.json")).ok()?).ok()
    };
    let mut note = kept()
        .filter(|note| resume && note.address == address)
        .unwrap_or(DownloadProgress { address: address.to_owned(), at: FilePosition::default() });
    let bare = address.split(['?', '#']).next().unwrap_or_default();
    let name = bare.rsplit('/').next().unwrap_or_default();
    // A name without an extension does not tell the format; the manifest or the Content-Type does.
    let is_web = matches!(remote.place(), ObjectPlace::Web { .. });
    let untyped = from.format.is_none() && is_web && file::is_untyped(name);
    let local = match (from.format, untyped, note.at.done) {
        (Some(format), ..) => file::local_name(&format!("file.{}", format.format().extension()), address),
        (None, false, _) => file::local_name(name, address),
        (None, true, true) => file::typed_name(note.at.content_type.as_deref(), address),
        (None, true, false) => Ok("file.part".into()),
    };
    let address_of = |e: SourceError| FetchFailure::Address(e.message);
    let mut path = dir.join(local.map_err(address_of)?);
    let mut told = Told { layer: name.to_owned(), ..Told::default() };
    told.bytes(&note.at);
    if note.at.done && path.exists() {
        return Ok(done(path, &note, told));
    }
    let runtime = traffic.runtime()?;
    if let ObjectPlace::Bucket { .. } = remote.place() {
        let patience = tidegate_core::time::seconds(from.patience_seconds);
        let bucket = from.store.clone().unwrap_or_default();
        let opened = bucket.open(address, patience, traffic);
        let (store, key) = opened.map_err(|e| FetchFailure::Address(StepError::from(e).into()))?;
        let tell = |had, all| {
            (told.bytes, told.bytes_declared) = (Some(had), Some(all));
            traffic.report_progress(told.clone());
        };
        note.at = runtime.block_on(download(stop, file::object(&store, &key, &path, tell)))?;
        keep(dir, &note)?;
        told.bytes(&note.at);
        told.calls = traffic.calls();
        return Ok(done(path, &note, told));
    }
    let ObjectPlace::Web { url, allow } = remote.place() else {
        return Err(FetchFailure::Address(format!("{address} is a file, and is read where it is")));
    };
    let profile = file::profile().map_err(|e| e.message)?;
    let to = from.service.as_deref().or(url.host_str()).unwrap_or_default();
    let caller = traffic.caller(to);
    let asked = (url.clone(), profile, allow.clone());
    let wire = service::wire(manifest, form, asked, from, caller).map_err(FetchFailure::Address)?;
    let pieces = async {
        let wire = Wire::new(wire, Clock::system())?;
        while !note.at.done {
            note.at = file::piece(&wire, url, &path, &note.at).await?;
            keep(dir, &note).map_err(SourceError::disk)?;
            told.bytes(&note.at);
            told.sent(&wire);
            traffic.report_progress(told.clone());
        }
        Ok(())
    };
    runtime.block_on(download(stop, pieces))?;
    if untyped {
        let typed = file::typed_name(note.at.content_type.as_deref(), address).map_err(address_of)?;
        let typed = dir.join(typed);
        durable::rename(&path, &typed).map_err(disk)?;
        path = typed;
    }
    Ok(done(path, &note, told))
}

/// Waits for a download, unless the run is stopped.
async fn download<T>(
    stop: &AtomicBool,
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, FetchFailure> {
    let mut refused = None;
    let work = async {
        work.await.inspect_err(|e| {
            if e.trouble == Trouble::Setup {
                refused = Some(e.to_string());
            }
        })
    };
    let done = unless(stop, work).await;
    match (done, refused) {
        (Err(_), Some(what)) => Err(FetchFailure::Address(what)),
        (done, _) => done.map_err(FetchFailure::Step),
    }
}

fn done(path: PathBuf, note: &DownloadProgress, told: Told) -> Fetched {
    let stamp = note.at.mark.as_ref().map(|mark| format!("{} bytes, {mark}", note.at.bytes));
    Fetched { path, stamp, told: Some(told), features: None, extent: None }
}

/// Replaces the progress file after the content is on disk.
fn keep(dir: &Path, note: &DownloadProgress) -> Result<(), String> {
    let path = dir.join("note.json");
    let write = || durable::replace(&path, &serde_json::to_vec(note)?);
    write().map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::traffic::Traffic;

    fn failure(address: &str, dir: &Path) -> FetchFailure {
        let manifest: Manifest = serde_json::from_value(serde_json::json!({ "pipeline": {
            "id": "parcels",
            "retry_policy": { "max_attempts": 1, "base_delay_seconds": 1.0, "retryable_status_codes": [] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false } } }))
        .unwrap();
        let traffic = Traffic::new(&manifest, None, None);
        let context = RunContext { stop: Arc::default(), traffic, tasks: None };
        let from = serde_json::from_value(serde_json::json!({ "file": address })).unwrap();
        fetch_written(&manifest, &from, address, dir, false, &context).err().unwrap()
    }

    /// The object of a task that names a bad address is a dead letter; a disk that fails is not.
    #[test]
    fn a_bad_address_and_a_bad_disk_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        for address in ["http://127.0.0.1/a.shape", "http://[/a.geojson", "ftp://127.0.0.1/a.geojson"] {
            let failed = failure(address, dir.path());
            assert!(!matches!(failed, FetchFailure::Step(StepError::Broken(_))), "{address}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let failed = failure("http://127.0.0.1/a.geojson", &file.join("objects"));
        assert!(matches!(failed, FetchFailure::Step(StepError::Broken(_))));
    }
}
