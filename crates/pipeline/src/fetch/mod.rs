//! Fetch one layer or file into a local file: whole, each feature once, and resumable.
//!
//! ```text
//!   pages ──▶ spool (features as text, position beside them) ──▶ schema ──▶ output
//! ```
//!
//! Why a spool and not straight into the output: a writer needs all fields before the first row,
//! and most of these services describe theirs badly or not at all, so the fields are known when
//! the last page has come. The spool also is what makes a run resumable: a page counts when its
//! features and the position after it are on the disk. The output appears under its name when it
//! is whole.

mod spool;
mod write;

pub use write::Outcome;

use crate::lane::{Clock, LaneHandle};
use crate::letter::now_ms;
use crate::lock::lock;
use crate::source::file::{self, FilePosition};
use crate::source::{Agreement, Job as Layer, Pager, SourceError, Tally, Trouble, Wire, WireConfig};
use crate::store::ObjectStoreClient;
use crate::telemetry::{Ended, Telemetry};
use spool::{Kept, Spool};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tidegate_core::hex::hex;
use tidegate_core::{Code, Wall};
use tokio::sync::watch;

/// What to fetch.
pub enum What {
    /// A layer of a paged service.
    Layer(Box<Layer>),
    /// A file on a web server.
    File(Box<WireConfig>),
    /// An object of a store: the store, its key, and the address as given.
    Object(ObjectStoreClient, String, String),
}

/// A job.
pub struct Job {
    /// What.
    pub what: What,
    /// The output; its name tells the format.
    pub output: PathBuf,
    /// Where the spool is.
    pub state: PathBuf,
    /// Go on with a run that was cut off.
    pub resume: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The output is there.
    Done(Outcome),
    /// Stopped from outside; the spool stays.
    Cancelled,
    /// The other side wants no calls; the spool stays.
    TryLater {
        /// Why.
        code: Code,
        /// When to come again.
        until: Wall,
        /// Who asked for it and how, in a sentence.
        said: String,
    },
}

/// A run as others see it.
#[derive(Default)]
pub struct Run {
    /// What is counted.
    pub telemetry: Arc<Telemetry>,
    seen: Mutex<Seen>,
    stop: watch::Sender<bool>,
}

/// What is known of a run.
#[derive(Clone, Default)]
pub struct Seen {
    /// What was counted.
    pub tally: Tally,
    /// How declared and received compare.
    pub agreement: Option<Agreement>,
    /// Bytes of a file, and bytes in all (0 if unknown).
    pub bytes: (u64, u64),
    /// Features with which this run began, because an earlier one had received them.
    pub resumed: u64,
    /// The layer's name.
    pub layer: String,
    /// The lane and the counters.
    pub wire: Option<Wire>,
    /// The output is being written.
    pub writing: bool,
}

impl Run {
    /// A run of a job of this name.
    #[must_use]
    pub fn new(pipeline: &str) -> Run {
        Run { telemetry: Arc::new(Telemetry::new(pipeline)), ..Run::default() }
    }

    /// What is known now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Ends the run after the page that is under way.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The lane, once there is one.
    #[must_use]
    pub fn lane(&self) -> Option<LaneHandle> {
        self.seen().wire.map(|wire| wire.lane().clone())
    }

    fn tell(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut lock(&self.seen));
    }

    async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

impl Job {
    /// Fetches.
    ///
    /// # Errors
    /// When the job cannot work, a page cannot be had, received is not declared, or the disk
    /// fails. The spool stays for `--resume`.
    pub async fn go(self, clock: Clock, run: Arc<Run>) -> Result<End, SourceError> {
        write::check(&self.output)?;
        let ended = match self.what {
            What::Layer(layer) => {
                let mut spool = Spool::open(&self.state, &name(&layer.id(), &self.output), self.resume)?;
                let ended = pages(*layer, clock, &run, &mut spool).await;
                settle(ended, spool, &self.output, &run).await
            }
            What::File(wire) => {
                let id = wire.url.to_string();
                let mut spool = Spool::open(&self.state, &name(&id, &self.output), self.resume)?;
                let ended = pieces(*wire, clock, &run, &mut spool).await;
                settle(ended, spool, &self.output, &run).await
            }
            What::Object(store, key, address) => {
                let mut spool = Spool::open(&self.state, &name(&address, &self.output), false)?;
                let ended = object(&store, &key, &run, &mut spool).await;
                settle(ended, spool, &self.output, &run).await
            }
        };
        if let Some(wire) = run.seen().wire {
            wire.flush();
        }
        match ended {
            Err(SourceError { trouble: Trouble::TryLater(until), code, message }) => {
                Ok(End::TryLater { code, until, said: message })
            }
            other => other,
        }
    }
}

/// The name of a spool: one per job and output.
fn name(id: &str, output: &Path) -> String {
    use sha2::{Digest, Sha256};
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let mut hash = Sha256::new();
    for part in [id.as_bytes(), output.to_string_lossy().as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let whole: [u8; 32] = hash.finalize().into();
    hex(&whole[..8])
}

/// Writes the output from what was spooled.
async fn settle(
    ended: Result<Option<PathBuf>, SourceError>,
    spool: Spool,
    output: &Path,
    run: &Arc<Run>,
) -> Result<End, SourceError> {
    let Some(from) = ended? else { return Ok(End::Cancelled) };
    run.tell(|seen| seen.writing = true);
    let began = std::time::Instant::now();
    let (to, expected) = (output.to_owned(), spool.features());
    let written = tokio::task::spawn_blocking(move || write::write(&from, &to, expected)).await;
    let outcome = written.map_err(|e| SourceError::broken(Code::UNKNOWN, e.to_string()))??;
    spool.remove();
    let records = &run.telemetry.records;
    records.set_read(outcome.written + outcome.rejected);
    records.set_ended(Ended::Matched, outcome.written);
    records.set_ended(Ended::Failed, outcome.rejected);
    records.committed(outcome.written, began.elapsed(), now_ms());
    Ok(End::Done(outcome))
}

/// All pages into the spool; `None` when stopped.
async fn pages(
    layer: Layer,
    clock: Clock,
    run: &Arc<Run>,
    spool: &mut Spool,
) -> Result<Option<PathBuf>, SourceError> {
    let from = match spool.kept() {
        Kept::Pages(position) => Some(position.clone()),
        Kept::Nothing | Kept::File(_) => None,
    };
    let resumed = from.is_some();
    let recall = from.as_ref().is_some_and(|from| !from.is_complete());
    let mut pager = tokio::select! {
        pager = layer.pager(clock, from) => pager?,
        () = run.stopped() => return Ok(None),
    };
    if recall {
        spool.each(|feature| pager.remember(feature))?;
    }
    run.telemetry.adopt(pager.wire().line().clone());
    run.tell(|seen| {
        seen.wire = Some(pager.wire().clone());
        seen.layer = pager.name().to_owned();
        seen.tally = *pager.tally();
        seen.resumed = pager.tally().received;
    });
    let mut rewound = !resumed;
    loop {
        let pulled = tokio::select! {
            pulled = pager.next() => pulled,
            () = run.stopped() => return Ok(None),
        };
        let pulled = match pulled {
            Ok(Some(pulled)) => pulled,
            Ok(None) => break,
            // A service forgets its links; what is known already is left out the second time.
            Err(error) if !rewound && error.is_forgotten() => {
                rewound = true;
                again(&mut pager, spool, recall)?;
                continue;
            }
            Err(error) => {
                run.tell(|seen| (seen.tally, seen.agreement) = (*pager.tally(), pager.agreement()));
                return Err(error);
            }
        };
        rewound = true;
        spool.add(&pulled, pager.crs().as_deref())?;
        run.tell(|seen| seen.tally = *pager.tally());
        run.telemetry.records.set_read(pager.tally().received);
    }
    run.tell(|seen| (seen.tally, seen.agreement) = (*pager.tally(), pager.agreement()));
    spool.close(pager.crs().as_deref()).map(Some)
}

fn again(pager: &mut Pager, spool: &mut Spool, recalled: bool) -> Result<(), SourceError> {
    if !recalled {
        spool.each(|feature| pager.remember(feature))?;
    }
    pager.rewind();
    Ok(())
}

/// All pieces of a file; `None` when stopped.
async fn pieces(
    config: WireConfig,
    clock: Clock,
    run: &Arc<Run>,
    spool: &mut Spool,
) -> Result<Option<PathBuf>, SourceError> {
    let url = config.url.clone();
    let wire = Wire::new(config, clock)?;
    let path = spool.file(&file::local_name(&file::file_name(&url), url.as_str())?);
    let mut at = match spool.kept() {
        Kept::File(at) => at.clone(),
        Kept::Nothing | Kept::Pages(_) => FilePosition::default(),
    };
    run.telemetry.adopt(wire.line().clone());
    run.tell(|seen| {
        seen.wire = Some(wire.clone());
        seen.layer = file::file_name(&url);
    });
    while !at.done {
        at = tokio::select! {
            at = file::piece(&wire, &url, &path, &at) => at?,
            () = run.stopped() => return Ok(None),
        };
        spool.keep_file(&at)?;
        run.tell(|seen| seen.bytes = (at.bytes, at.total.unwrap_or(0)));
    }
    Ok(Some(path))
}

/// An object; `None` when stopped.
async fn object(
    store: &ObjectStoreClient,
    key: &str,
    run: &Arc<Run>,
    spool: &mut Spool,
) -> Result<Option<PathBuf>, SourceError> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let path = spool.file(&file::local_name(name, key)?);
    run.tell(|seen| seen.layer = name.to_owned());
    tokio::select! {
        at = file::object(store, key, &path, |had, all| run.tell(|seen| seen.bytes = (had, all))) => at.map(|_| Some(path)),
        () = run.stopped() => Ok(None),
    }
}
