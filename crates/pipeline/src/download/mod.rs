//! Downloads objects by list: each once, resumable, and checked before it is in its place.
//!
//! A list comes from a catalogue (the assets of STAC items) or from the user (requests that are
//! processed into images). Each object is a call, or one per piece, in the lane of its host. It is
//! received into a partial file, with a note of how far it came; a run that was killed goes on from
//! there. When it is complete, its size, its checksum and its kind are compared with what the list
//! says. Only then it gets its name in the directory, or is uploaded to the object store and
//! confirmed there. A journal keeps what is in its place.
//!
//! | file | holds |
//! |---|---|
//! | `checksum` | multihashes |
//! | `identity` | the host of an object, and what makes it another |
//! | `journal` | what was downloaded |
//! | `target` | a directory or an object store |
//! | `stac` | the list of the assets of STAC items |

mod checksum;
mod identity;
mod journal;
pub mod stac;
mod target;

pub use checksum::StatedChecksum;
pub use identity::host;
pub use target::DownloadTarget;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_core::content::ContentKind;
use tidegate_core::hex::hex;
use tidegate_core::{Code, quote};
use url::Url;

use crate::durable;
use crate::http;
use crate::lock::lock;
use crate::profile::Profile;
use crate::source::file::{self, FilePosition, PIECE_BYTES};
use crate::source::{SourceError, Trouble, Wire};
use checksum::FileSums;
use identity::identity;
use journal::{Journal, JournalEntry};

/// The most objects under way.
const AT_ONCE: usize = 16;
/// How often an object whose content is wrong is downloaded.
const TRIES: u32 = 3;

/// How a server of objects speaks.
const PROFILE: &str = "\
name: objects
about: Objects on a web server.
auth: { header: Authorization, scheme: Bearer, optional: true }
hint: { floor: 1s }
formats: [binary]
sniff:
  - { xml: ServiceExceptionReport, means: permanent }
  - { xml: ExceptionReport, means: permanent }
  - { xml: Error, status: [200], means: transient }
timeout: 60s
in_flight: 4
";

/// How a web server that only serves objects speaks.
///
/// # Errors
/// Never, unless the program is broken.
pub fn profile() -> Result<Profile, SourceError> {
    let form = serde_saphyr::from_str(PROFILE).map_err(|e| SourceError::setup(e.to_string()))?;
    Profile::new(form).map_err(|e| SourceError::setup(e.to_string()))
}

/// An object to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadItem {
    /// Its key in the target.
    pub key: String,
    /// Where it is.
    pub url: Url,
    /// The body of the request by which it is made; `None` for an object that exists.
    pub body: Option<String>,
    /// Its size in bytes, if stated.
    pub size: Option<u64>,
    /// Its checksum, if stated.
    pub checksum: Option<StatedChecksum>,
    /// Its kind, if stated.
    pub kind: Option<ContentKind>,
}

/// What a download will take, as far as the list says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DownloadForecast {
    /// Objects on the list.
    pub objects: u64,
    /// Those that are in their place already.
    pub present: u64,
    /// The least number of calls.
    pub calls: u64,
    /// The stated bytes.
    pub bytes: u64,
    /// Objects without a stated size.
    pub unsized_objects: u64,
    /// Objects to download by host.
    pub hosts: BTreeMap<String, u64>,
}

/// How far a download is.
#[derive(Debug, Default)]
pub struct DownloadWatch {
    /// Set to stop.
    pub stop: Arc<AtomicBool>,
    /// Objects that are in their place.
    pub objects: AtomicU64,
    /// Bytes received.
    pub bytes: AtomicU64,
}

/// What a download has done.
#[derive(Debug, Default)]
pub struct DownloadReport {
    /// Objects downloaded.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them with a stated checksum that was compared.
    pub checksums: u64,
    /// Objects that were in their place before.
    pub present: u64,
    /// What is missing, and why.
    pub failed: Vec<(String, SourceError)>,
    /// Whether it was stopped.
    pub stopped: bool,
}

/// A list of objects, and where they go.
pub struct Download {
    items: Vec<DownloadItem>,
    target: DownloadTarget,
    journal: Journal,
    /// The directory of the notes, and of partial objects on their way to a store.
    state: PathBuf,
}

/// How far a partial object came.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DownloadNote {
    url: String,
    at: FilePosition,
}

impl Download {
    /// Prepares a download; `state` is a directory of its own.
    ///
    /// # Errors
    /// When two objects have one key, the state cannot be used, or the same download is active.
    pub fn open(
        items: Vec<DownloadItem>,
        target: DownloadTarget,
        state: &Path,
    ) -> Result<Download, SourceError> {
        let mut keys = HashMap::new();
        for item in &items {
            if let Some(other) = keys.insert(item.key.as_str(), &item.url) {
                let why = format!("{other} and {} would both become {}", item.url, item.key);
                return Err(SourceError::setup(why));
            }
        }
        let journal = Journal::open(state).map_err(|e| {
            let mut error = SourceError::setup(format!("{}: {e}", state.display()));
            if e.kind() == std::io::ErrorKind::WouldBlock {
                error.trouble = Trouble::Down;
            }
            error
        })?;
        Ok(Download { items, target, journal, state: state.to_owned() })
    }

    /// What is left to do. Asks the target for what it has.
    ///
    /// # Errors
    /// When the target cannot be asked.
    pub async fn forecast(&self) -> Result<DownloadForecast, SourceError> {
        let asked =
            stream::iter(&self.items).map(|item| async move { Ok((item, self.is_present(item).await?)) });
        let mut asked = std::pin::pin!(asked.buffered(AT_ONCE));
        let mut forecast =
            DownloadForecast { objects: self.items.len() as u64, ..DownloadForecast::default() };
        while let Some((item, is_present)) = asked.try_next().await? {
            if is_present {
                forecast.present += 1;
                continue;
            }
            let bytes = item.size.filter(|_| item.body.is_none());
            forecast.calls += bytes.map_or(1, |bytes| bytes.div_ceil(PIECE_BYTES).max(1));
            forecast.bytes += item.size.unwrap_or(0);
            forecast.unsized_objects += u64::from(item.size.is_none());
            *forecast.hosts.entry(host(&item.url)).or_default() += 1;
        }
        Ok(forecast)
    }

    /// Downloads what is missing. `wires` lead to the hosts by [`host`].
    ///
    /// # Errors
    /// When the target or the state cannot be used. What a single object fails with is in the report.
    pub async fn run(
        &self,
        wires: &HashMap<String, Wire>,
        watch: &DownloadWatch,
    ) -> Result<DownloadReport, SourceError> {
        let report = Mutex::new(DownloadReport::default());
        // Hosts that want no calls, or not from us: their other objects are not tried.
        let closed = Mutex::new(HashMap::<String, SourceError>::new());
        let each = stream::iter(&self.items).map(|item| async {
            if watch.stop.load(Ordering::Relaxed) {
                lock(&report).stopped = true;
                return Ok(());
            }
            if self.is_present(item).await? {
                lock(&report).present += 1;
                watch.objects.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            let Some(wire) = wires.get(&host(&item.url)) else {
                let why =
                    format!("{} is not allowed; if you trust it, pass --allow-host {0}", host(&item.url));
                lock(&report)
                    .failed
                    .push((item.key.clone(), SourceError::broken(Code::HOST_NOT_ALLOWED, why)));
                return Ok(());
            };
            let refusal = lock(&closed).get(&host(&item.url)).cloned();
            let done = match refusal {
                Some(error) => Err(error),
                None => self.object(item, wire, watch).await,
            };
            match done {
                Ok(Some(sums)) => {
                    watch.objects.fetch_add(1, Ordering::Relaxed);
                    let mut report = lock(&report);
                    report.objects += 1;
                    report.bytes += sums.bytes;
                    report.checksums += u64::from(sums.agrees.is_some());
                }
                Ok(None) => lock(&report).stopped = true,
                Err(error) if error.trouble == Trouble::Setup => return Err(error),
                Err(error) => {
                    if matches!(error.trouble, Trouble::TryLater(_)) || error.code == Code::UNAUTHORIZED {
                        lock(&closed).entry(host(&item.url)).or_insert_with(|| error.clone());
                    }
                    lock(&report).failed.push((item.key.clone(), error));
                }
            }
            Ok(())
        });
        let mut each = std::pin::pin!(each.buffer_unordered(AT_ONCE));
        while let Some(done) = each.next().await {
            done?;
        }
        let mut report = std::mem::take(&mut *lock(&report));
        report.failed.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(report)
    }

    /// Whether an object was downloaded before and is still there.
    async fn is_present(&self, item: &DownloadItem) -> Result<bool, SourceError> {
        let Some(entry) = self.journal.find(&item.key, &identity(item)) else { return Ok(false) };
        if item.size.is_some_and(|size| size != entry.bytes) {
            return Ok(false);
        }
        Ok(self.target.size(&item.key).await? == Some(entry.bytes))
    }

    /// Downloads one object and puts it in its place; `None` if it was stopped.
    async fn object(
        &self,
        item: &DownloadItem,
        wire: &Wire,
        watch: &DownloadWatch,
    ) -> Result<Option<FileSums>, SourceError> {
        let digest = Sha256::digest(item.key.as_bytes());
        let name = hex(digest.get(..12).unwrap_or_default());
        let note = self.state.join(format!("{name}.json"));
        let partial =
            self.target.partial(&item.key).unwrap_or_else(|| self.state.join(format!("{name}.partial")));
        let disk = |e: std::io::Error| SourceError::setup(format!("{}: {e}", partial.display()));
        if let Some(dir) = partial.parent() {
            fs::create_dir_all(dir).map_err(disk)?;
        }
        // A process that died between the two last steps left the object in its place, and the note.
        let note_of = read_note(&note).filter(|note| note.at.done && note.url == identity(item));
        if let (Some(path), Some(_), false) = (self.target.path(&item.key), note_of, partial.exists())
            && let Ok(file) = File::open(&path)
        {
            let sums = checksum::sums(file, item.checksum.as_ref()).map_err(disk)?;
            if wrong(item, None, &sums).is_none() {
                return self.end(item, &note, sums).map(Some);
            }
        }
        let mut tries = 0;
        loop {
            let Some(label) = self.receive(item, wire, &partial, &note, watch).await? else {
                return Ok(None);
            };
            let sums = File::open(&partial).and_then(|file| checksum::sums(file, item.checksum.as_ref()));
            let sums = sums.map_err(disk)?;
            let Some(wrong) = wrong(item, label.content_type.as_deref(), &sums) else {
                self.target.place(&item.key, &partial, &sums).await?;
                return self.end(item, &note, sums).map(Some);
            };
            // What is wrong is not kept, and received anew.
            fs::remove_file(&partial).map_err(disk)?;
            let _ = fs::remove_file(&note);
            tries += 1;
            if tries >= TRIES {
                return Err(wrong);
            }
        }
    }

    /// Notes that an object is in its place.
    fn end(&self, item: &DownloadItem, note: &Path, sums: FileSums) -> Result<FileSums, SourceError> {
        let entry = JournalEntry {
            key: item.key.clone(),
            url: identity(item),
            bytes: sums.bytes,
            sha256: sums.sha256.clone(),
        };
        let disk = |e: std::io::Error| SourceError::setup(format!("{}: {e}", self.state.display()));
        self.journal.note(&entry).map_err(disk)?;
        // A note without its object does no harm.
        let _ = fs::remove_file(note);
        Ok(sums)
    }

    /// Receives an object into its partial file and returns where it ended; `None` if it was stopped.
    async fn receive(
        &self,
        item: &DownloadItem,
        wire: &Wire,
        partial: &Path,
        note: &Path,
        watch: &DownloadWatch,
    ) -> Result<Option<FilePosition>, SourceError> {
        let length = fs::metadata(partial).map_or(0, |about| about.len());
        // A note is written after its bytes, so the file has them, or it is not the one of the note.
        let mut now = read_note(note)
            .filter(|note| note.url == identity(item) && note.at.bytes <= length && item.body.is_none())
            .unwrap_or_else(|| DownloadNote { url: identity(item), at: FilePosition::default() });
        while !now.at.done {
            if watch.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let before = now.at.bytes;
            now.at = match &item.body {
                Some(body) => file::made(wire, &item.url, body, partial).await?,
                None => file::piece(wire, &item.url, partial, &now.at).await?,
            };
            watch.bytes.fetch_add(now.at.bytes.saturating_sub(before), Ordering::Relaxed);
            let text = serde_json::to_vec(&now).unwrap_or_default();
            durable::replace(note, &text)
                .map_err(|e| SourceError::setup(format!("{}: {e}", note.display())))?;
        }
        Ok(Some(now.at))
    }
}

fn read_note(path: &Path) -> Option<DownloadNote> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Why what was received is not the object, if so. `label` is what the service called it.
fn wrong(item: &DownloadItem, label: Option<&str>, sums: &FileSums) -> Option<SourceError> {
    let wrong = |code, why: String| Some(SourceError::broken(code, format!("{}: {why}", item.key)));
    let found = ContentKind::instead_of(item.kind, &sums.head).or_else(|| {
        // Words under the label of something else are no data, whatever the list does not say.
        let (found, labelled) = (ContentKind::of(&sums.head), label.and_then(ContentKind::of_media_type));
        let is_other =
            item.kind.is_none() && found.is_words() && labelled.is_some_and(|kind| !kind.is_words());
        is_other.then_some(found)
    });
    if let Some(found) = found {
        let declared = item.kind.map_or("a file", ContentKind::name);
        let said = http::message(&sums.head).map(|text| {
            let short: String =
                text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
            format!(": {}", quote::said(&short))
        });
        let said = said.unwrap_or_default();
        let why = format!("the service sent {} with status 200 in place of {declared}{said}", found.name());
        return wrong(Code::SERVICE_EXCEPTION, why);
    }
    if let Some(size) = item.size.filter(|size| *size != sums.bytes) {
        return wrong(Code::UNEXPECTED_BODY, format!("{} bytes received, {size} stated", sums.bytes));
    }
    if sums.agrees == Some(false) {
        return wrong(
            Code::UNEXPECTED_BODY,
            format!("the checksum differs; received is SHA-256 {}", sums.sha256),
        );
    }
    None
}
