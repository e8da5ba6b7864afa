//! Downloads all pages of a service to the state directory before the first record is read.
//!
//! Why: a writer needs all fields before the first row, and many services describe theirs
//! incorrectly or not at all, so they are known only after the last page.
//!
//! There are two files: the features as one GeoJSON collection that only grows, and a progress file
//! with the position and the length of the collection at that time. The progress file is replaced
//! by a rename after the features are on disk. So a killed run leaves a collection that is at least
//! as long as its progress file says; the rest is truncated, and only that page is requested again.
//! The progress file of a complete collection says so, and is on disk before the first record is
//! read; a resumed run then makes no requests.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_geo::Bounds;

use super::build::RunContext;
use super::crash;
use super::fetched::Fetched;
use super::paged::{Make, unless};
use super::source::Told;
use crate::durable;
use crate::lane::Clock;
use crate::source::{Pager, Position, Pulled, SourceError};
use crate::step::StepError;

const FEATURES: &str = "features.geojson";
const NOTE: &str = "position.json";

/// Downloads all pages of a layer to `dir`, or continues an earlier download.
pub(super) fn spool(
    make: &Make,
    dir: &Path,
    resume: bool,
    RunContext { stop, traffic, .. }: &RunContext,
) -> Result<Fetched, StepError> {
    let job = make().map_err(StepError::Broken)?;
    let mut spool = Spool::open(dir, &job.id(), resume)?;
    let mut told = Told::default();
    if let Some(whole) = &spool.note.whole {
        told = Told { resumed: whole.received, calls: 0, retries: 0, throttled: 0, ..whole.clone() };
        traffic.report_progress(told.clone());
    } else {
        let ended = traffic.runtime()?.block_on(unless(stop, async {
            let from = spool.note.position.clone();
            let mut pager = job.pager(Clock::system(), from.clone()).await?;
            told.layer = pager.name().to_owned();
            spool.note.extent = pager.extent().map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]);
            told.resumed = pager.tally().received;
            let ended = pages(&mut pager, &mut spool, from, |pager| {
                told.tally(pager.tally(), pager.agreement());
                told.sent(pager.wire());
                traffic.report_progress(told.clone());
            })
            .await;
            ended.and_then(|()| spool.close(pager.crs().as_deref(), &told))
        }));
        ended?;
    }
    Ok(Fetched {
        path: spool.dir.join(FEATURES),
        stamp: Some(format!("spool {}", spool.note.id)),
        told: Some(told),
        features: Some(spool.note.features),
        extent: spool.note.extent.map(|[min_x, min_y, max_x, max_y]| Bounds { min_x, min_y, max_x, max_y }),
    })
}

/// Requests the remaining pages.
async fn pages(
    pager: &mut Pager,
    spool: &mut Spool,
    from: Option<Position>,
    mut tell: impl FnMut(&Pager),
) -> Result<(), SourceError> {
    let recall = from.as_ref().is_some_and(|from| !from.is_complete());
    if recall {
        spool.each(|feature| pager.remember(feature))?;
    }
    tell(pager);
    let mut fresh = from.is_some();
    for page in 0.. {
        let pulled = match pager.next().await {
            // The service's links have expired: read again from the start, skipping known features.
            Err(error) if fresh && error.is_forgotten() => {
                if !recall {
                    spool.each(|feature| pager.remember(feature))?;
                }
                pager.rewind();
                fresh = false;
                continue;
            }
            other => other,
        };
        fresh = false;
        if let Ok(Some(pulled)) = &pulled {
            spool.add(pulled, pager.crs().as_deref(), page)?;
        }
        tell(pager);
        if pulled?.is_none() {
            break;
        }
    }
    Ok(())
}

/// The content of the progress file.
#[derive(Default, Serialize, Deserialize)]
struct SpoolContents {
    /// The id of the collection.
    id: String,
    /// The job that it belongs to.
    job: String,
    /// The length of the collection, in bytes.
    bytes: u64,
    /// The number of features in it.
    features: u64,
    /// The position after the last page.
    position: Option<Position>,
    /// The extent of the layer, in degrees on WGS 84, as the service declares it.
    #[serde(default)]
    extent: Option<[f64; 4]>,
    /// The counts, once all pages are there.
    whole: Option<Told>,
}

struct Spool {
    dir: PathBuf,
    out: Option<BufWriter<File>>,
    note: SpoolContents,
}

impl Spool {
    fn open(dir: &Path, job: &str, resume: bool) -> Result<Spool, StepError> {
        let failed = |path: &Path, e: &io::Error| super::paged::stuck(disk(path, e));
        durable::make_dir(dir).map_err(|e| failed(dir, &e))?;
        let kept =
            || -> Option<SpoolContents> { serde_json::from_slice(&fs::read(dir.join(NOTE)).ok()?).ok() };
        // If features were lost since, do not continue after the gap.
        let length = fs::metadata(dir.join(FEATURES)).map_or(0, |about| about.len());
        let is_there = |note: &SpoolContents| match note.whole {
            Some(_) => length == note.bytes,
            None => length >= note.bytes,
        };
        let note = kept().filter(|note| resume && note.job == job && is_there(note));
        let note = match note {
            Some(note) => note,
            None => {
                // The progress file first: it must never exist without its features.
                for name in [NOTE, FEATURES] {
                    let path = dir.join(name);
                    match fs::remove_file(&path) {
                        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&path, &e)),
                        _ => {}
                    }
                }
                let mut id = [0; 8];
                getrandom::fill(&mut id).map_err(|e| e.to_string())?;
                SpoolContents {
                    id: tidegate_core::hex::hex(&id),
                    job: job.to_owned(),
                    ..SpoolContents::default()
                }
            }
        };
        Ok(Spool { dir: dir.to_owned(), out: None, note })
    }

    /// Opens the collection at its recorded length, with a header if it is new.
    fn out(&mut self, crs: Option<&str>) -> io::Result<&mut BufWriter<File>> {
        if self.out.is_none() {
            let mut file = durable::private(&self.dir.join(FEATURES))?;
            file.set_len(self.note.bytes)?;
            file.seek(SeekFrom::Start(self.note.bytes))?;
            let mut file = BufWriter::with_capacity(1 << 20, file);
            if self.note.bytes == 0 {
                let crs = crs.unwrap_or("OGC:CRS84");
                let head = serde_json::json!({"type": "name", "properties": {"name": crs}});
                let head = format!("{{\"type\":\"FeatureCollection\",\"crs\":{head},\"features\":[");
                file.write_all(head.as_bytes())?;
                self.note.bytes = head.len() as u64;
            }
            self.out = Some(file);
        }
        self.out.as_mut().ok_or_else(|| io::Error::other("it is not open"))
    }

    /// Appends the new features of a page and the position after it. On return both are on disk.
    fn add(&mut self, pulled: &Pulled, crs: Option<&str>, page: u64) -> Result<(), SourceError> {
        let path = self.dir.join(FEATURES);
        let mut features = self.note.features;
        let mut bytes = 0;
        let mut write = || -> io::Result<()> {
            let out = self.out(crs)?;
            for feature in pulled.features() {
                let between: &[u8] = if features == 0 { b"\n" } else { b",\n" };
                out.write_all(between)?;
                // One feature per line, so that they can be read back one by one.
                if memchr::memchr2(b'\n', b'\r', feature).is_none() {
                    out.write_all(feature)?;
                } else {
                    // Line breaks occur only between tokens: JSON strings cannot contain them.
                    let flat: Vec<u8> =
                        feature.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }).collect();
                    out.write_all(&flat)?;
                }
                bytes += (between.len() + feature.len()) as u64;
                features += 1;
            }
            out.flush()?;
            out.get_ref().sync_data()
        };
        write().map_err(|e| disk(&path, &e))?;
        crash::point("page", page);
        self.note.bytes += bytes;
        self.note.features = features;
        self.note.position = Some(pulled.position.clone());
        self.keep()?;
        crash::point("spooled", page);
        Ok(())
    }

    /// Replaces the progress file after the features are on disk.
    fn keep(&self) -> Result<(), SourceError> {
        let path = self.dir.join(NOTE);
        let write = || durable::replace(&path, &serde_json::to_vec(&self.note)?);
        write().map_err(|e| disk(&path, &e))
    }

    /// Calls `f` with each feature of the collection.
    fn each(&self, mut f: impl FnMut(&[u8])) -> Result<(), SourceError> {
        let path = self.dir.join(FEATURES);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(disk(&path, &e)),
        };
        let mut reader = BufReader::with_capacity(1 << 20, file.take(self.note.bytes));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(|e| disk(&path, &e))? > 0 {
            let text = line.trim_ascii_end();
            if !text.starts_with(b"{\"type\":\"FeatureCollection\"") {
                f(text.strip_suffix(b",").unwrap_or(text));
            }
            line.clear();
        }
        Ok(())
    }

    /// Completes the collection. A position in it may be committed from now on, so the progress
    /// file and its directory entry are on disk before.
    fn close(&mut self, crs: Option<&str>, told: &Told) -> Result<(), SourceError> {
        let path = self.dir.join(FEATURES);
        let tail = b"\n]}";
        let mut write = || -> io::Result<()> {
            let out = self.out(crs)?;
            out.write_all(tail)?;
            out.flush()?;
            out.get_ref().sync_data()
        };
        write().map_err(|e| disk(&path, &e))?;
        self.note.bytes += tail.len() as u64;
        self.note.whole = Some(told.clone());
        self.keep()?;
        crash::point("kept", 0);
        Ok(())
    }
}

fn disk(path: &Path, error: &io::Error) -> SourceError {
    SourceError::broken(Code::UNKNOWN, format!("{}: {error}", path.display()))
}
