//! What was received, on the disk, with the position beside it.
//!
//! Two files: the features as one GeoJSON collection that is only ever added to, and the position
//! with the length that the features had then. The position is replaced by renaming, after the
//! features are on the disk. So a run that is killed leaves a collection that is at least as long
//! as its position says; what is beyond is cut off, and the page is asked for again.

use crate::source::file::FilePosition;
use crate::source::{Position, Pulled, SourceError};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tidegate_core::Code;

/// What an earlier run left.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Nothing,
    Pages(Position),
    File(FilePosition),
}

#[derive(Serialize, Deserialize)]
struct Note {
    bytes: u64,
    features: u64,
    #[serde(default)]
    position: Option<Position>,
    #[serde(default)]
    file: Option<FilePosition>,
}

/// A directory of one job.
pub(super) struct Spool {
    dir: PathBuf,
    /// Held as long as this lives: no two runs use one spool.
    _lock: File,
    pages: Option<BufWriter<File>>,
    bytes: u64,
    features: u64,
    kept: Kept,
}

const FEATURES: &str = "features.geojson";
const NOTE: &str = "position.json";

impl Spool {
    pub(super) fn open(state: &Path, name: &str, resume: bool) -> Result<Spool, SourceError> {
        let dir = state.join("fetch").join(name);
        fs::create_dir_all(&dir).map_err(|e| disk(&dir, &e))?;
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|e| disk(&lock_path, &e))?;
        if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
            let message = "the same fetch is under way; wait for its end or choose another --state";
            return Err(SourceError::setup(message));
        }
        let mut spool = Spool { dir, _lock: lock, pages: None, bytes: 0, features: 0, kept: Kept::Nothing };
        match spool.note()? {
            Some(note) if resume => {
                (spool.bytes, spool.features) = (note.bytes, note.features);
                spool.kept = match (note.position, note.file) {
                    (Some(position), _) => Kept::Pages(position),
                    (None, Some(file)) => Kept::File(file),
                    (None, None) => Kept::Nothing,
                };
            }
            _ => spool.clear()?,
        }
        Ok(spool)
    }

    fn note(&self) -> Result<Option<Note>, SourceError> {
        let path = self.dir.join(NOTE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(disk(&path, &e)),
        };
        let note = serde_json::from_slice(&text);
        note.map(Some).map_err(|e| {
            SourceError::setup(format!(
                "{} cannot be read: {e}; run without --resume to begin anew",
                path.display()
            ))
        })
    }

    fn clear(&self) -> Result<(), SourceError> {
        // The note first: features without one are nothing, a note without features is a lie.
        for name in [NOTE, FEATURES] {
            match fs::remove_file(self.dir.join(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(disk(&self.dir.join(name), &e)),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Features in it; `None` if it holds a file.
    pub(super) fn features(&self) -> Option<u64> {
        (!matches!(self.kept, Kept::File(_)) && self.pages.is_some()).then_some(self.features)
    }

    /// The place of a file of this name.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn pages(&mut self, crs: Option<&str>) -> Result<&mut BufWriter<File>, SourceError> {
        let path = self.dir.join(FEATURES);
        if self.pages.is_none() {
            let open = || -> io::Result<(BufWriter<File>, u64)> {
                let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
                file.set_len(self.bytes)?;
                file.seek(SeekFrom::Start(self.bytes))?;
                let mut file = BufWriter::with_capacity(1 << 20, file);
                let mut bytes = self.bytes;
                if bytes == 0 {
                    let crs = crs.unwrap_or("OGC:CRS84");
                    let head = serde_json::json!({"type": "name", "properties": {"name": crs}});
                    let head = format!("{{\"type\":\"FeatureCollection\",\"crs\":{head},\"features\":[");
                    file.write_all(head.as_bytes())?;
                    bytes = head.len() as u64;
                }
                Ok((file, bytes))
            };
            let (file, bytes) = open().map_err(|e| disk(&path, &e))?;
            self.bytes = bytes;
            self.pages = Some(file);
        }
        self.pages.as_mut().ok_or_else(|| SourceError::broken(Code::UNKNOWN, "the spool is not open"))
    }

    /// Adds the new features of a page and the position after it. On return both are on the disk.
    pub(super) fn add(&mut self, pulled: &Pulled, crs: Option<&str>) -> Result<(), SourceError> {
        let path = self.dir.join(FEATURES);
        let mut features = self.features;
        let out = self.pages(crs)?;
        let mut bytes = 0;
        let mut write = || -> io::Result<()> {
            for feature in pulled.features() {
                let between: &[u8] = if features == 0 { b"\n" } else { b",\n" };
                out.write_all(between)?;
                // A line per feature, so that they can be read again one by one.
                if memchr::memchr2(b'\n', b'\r', feature).is_none() {
                    out.write_all(feature)?;
                } else {
                    // White space between tokens; within text JSON has no bare line ends.
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
        self.bytes += bytes;
        self.features = features;
        self.put(&Note { bytes: self.bytes, features, position: Some(pulled.position.clone()), file: None })
    }

    /// Keeps where a download stands.
    pub(super) fn keep_file(&mut self, at: &FilePosition) -> Result<(), SourceError> {
        self.kept = Kept::File(at.clone());
        self.put(&Note { bytes: 0, features: 0, position: None, file: Some(at.clone()) })
    }

    fn put(&self, note: &Note) -> Result<(), SourceError> {
        let (path, next) = (self.dir.join(NOTE), self.dir.join("position.next"));
        let write = || -> io::Result<()> {
            let mut file = File::create(&next)?;
            // Whole: piece by piece it would be a hundred writes.
            file.write_all(&serde_json::to_vec(note)?)?;
            file.sync_data()?;
            fs::rename(&next, &path)
        };
        write().map_err(|e| disk(&path, &e))
    }

    /// Calls `f` with each feature that is in it.
    pub(super) fn each(&self, mut f: impl FnMut(&[u8])) -> Result<(), SourceError> {
        let path = self.dir.join(FEATURES);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(disk(&path, &e)),
        };
        let mut reader = BufReader::with_capacity(1 << 20, io::Read::take(file, self.bytes));
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

    /// Completes the collection; its place.
    pub(super) fn close(&mut self, crs: Option<&str>) -> Result<PathBuf, SourceError> {
        let path = self.dir.join(FEATURES);
        let out = self.pages(crs)?;
        // Beyond what the position says, so that going on cuts it off.
        out.write_all(b"\n]}").and_then(|()| out.flush()).map_err(|e| disk(&path, &e))?;
        Ok(path)
    }

    /// Takes everything away, after the output is in place.
    pub(super) fn remove(self) {
        // What is left of it does no harm: the next run of this job begins anew or finds it whole.
        let _ = self.clear();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn disk(path: &Path, error: &io::Error) -> SourceError {
    SourceError::broken(Code::UNKNOWN, format!("{}: {error}", path.display()))
}
