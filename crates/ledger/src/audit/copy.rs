//! Copies of the checkpoints in a file outside the database, one JSON object per line.
//!
//! A copy is written after its checkpoint is committed, so the file is never ahead of the database;
//! a copy missed in a crash is written the next time. If the file holds a checkpoint that the
//! database lacks, the database was truncated or restored from a backup, and no more entries are
//! written.
//!
//! A line that is damaged (a hole after a power failure, a flipped bit) is reported and does not
//! make the others useless. The file can be written anew from a database that was verified.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::AuditError;
use super::seal::{self, Checkpoint};
use crate::sql::Sql;
use tidegate_client::durable;

/// What a file of copies holds of one log.
#[derive(Clone, Debug, Default)]
pub struct CopyContents {
    /// The copied checkpoints.
    pub checkpoints: Vec<Checkpoint>,
    /// The numbers of lines that hold no checkpoint, from 1.
    pub damaged: Vec<usize>,
}

/// A file of copies that was written anew.
#[derive(Clone, Debug)]
pub struct RepairedCopy {
    /// The number of checkpoints of the log.
    pub checkpoints: i64,
    /// Where the damaged file is.
    pub damaged: PathBuf,
}

/// The file of copied checkpoints of one log.
#[derive(Clone, Debug)]
pub struct Copies {
    path: PathBuf,
    log: String,
}

impl Copies {
    /// The copies of the log `log` in the file at `path`.
    #[must_use]
    pub fn new(path: &Path, log: &str) -> Copies {
        Copies { path: path.to_owned(), log: log.to_owned() }
    }

    fn fail(&self, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AuditError {
        AuditError::file(&self.path, e)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds of this log. An incomplete last line, left by a crash, is ignored.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self) -> Result<CopyContents, AuditError> {
        let (lines, mut contents) = (self.lines()?, CopyContents::default());
        for (at, line) in lines.iter().enumerate() {
            match serde_json::from_slice::<Checkpoint>(line) {
                Ok(checkpoint) if checkpoint.log == self.log => contents.checkpoints.push(checkpoint),
                Ok(_) => {}
                Err(_) => contents.damaged.push(at + 1),
            }
        }
        Ok(contents)
    }

    fn lines(&self) -> Result<Vec<Vec<u8>>, AuditError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(self.fail(e)),
        };
        let whole = bytes.iter().rposition(|b| *b == b'\n').and_then(|end| bytes.get(..end));
        Ok(whole.map(|whole| whole.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect()).unwrap_or_default())
    }

    /// Writes the file anew from the checkpoints of the database; those of other logs stay. The
    /// damaged file stays beside it. The caller has verified the database.
    pub(crate) fn repair<S: Sql + ?Sized>(&self, sql: &mut S) -> Result<RepairedCopy, AuditError> {
        let (mut text, mut checkpoints) = (Vec::new(), 0);
        for line in self.lines()? {
            if serde_json::from_slice::<Checkpoint>(&line).is_ok_and(|other| other.log != self.log) {
                text.extend(line);
                text.push(b'\n');
            }
        }
        loop {
            let more = seal::after(sql, &self.log, checkpoints)?;
            for checkpoint in &more {
                serde_json::to_writer(&mut text, checkpoint).map_err(|e| self.fail(e))?;
                text.push(b'\n');
            }
            match more.last() {
                Some(last) => checkpoints = last.k,
                None => break,
            }
        }
        let old = fs::read(&self.path).map_err(|e| self.fail(e))?;
        let held = old.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        if held > text.len() {
            // What is damaged may have been evidence of entries that the database has lost.
            return Err(self.fail(
                "it is longer than all checkpoints of the database; entries may have been removed. Compare with an anchor, then move the file away",
            ));
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".damaged");
        durable::replace(Path::new(&beside), &old).map_err(|e| self.fail(e))?;
        durable::replace(&self.path, &text).map_err(|e| self.fail(e))?;
        Ok(RepairedCopy { checkpoints, damaged: beside.into() })
    }

    /// The last copy of this log, and the byte offset at which the next one is written.
    fn end(&self) -> Result<(Option<Checkpoint>, u64), AuditError> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((None, 0)),
            Err(e) => return Err(self.fail(e)),
        };
        let len = file.metadata().map_err(|e| self.fail(e))?.len();
        // The length of a line varies with its marks: read a longer tail until it holds a whole
        // checkpoint of this log.
        let mut size = 64 * 1024;
        loop {
            let from = len.saturating_sub(size);
            let mut tail = Vec::new();
            file.seek(SeekFrom::Start(from)).map_err(|e| self.fail(e))?;
            (&mut file).take(len - from).read_to_end(&mut tail).map_err(|e| self.fail(e))?;
            let end = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let lines = tail.get(..end).unwrap_or_default();
            let ours = lines
                .split(|b| *b == b'\n')
                .rev()
                .filter_map(|line| serde_json::from_slice::<Checkpoint>(line).ok())
                .find(|checkpoint| checkpoint.log == self.log);
            if ours.is_some() || from == 0 {
                return Ok((ours, from + end as u64));
            }
            size *= 4;
        }
    }

    /// Checks that the database still holds the checkpoint that was copied last. The error names
    /// the command that verifies the log.
    pub(super) fn check<S: Sql + ?Sized>(&self, sql: &mut S, command: &str) -> Result<(), AuditError> {
        let Some(known) = self.end()?.0 else { return Ok(()) };
        if seal::after(sql, &self.log, known.k - 1)?.first() == Some(&known) {
            return Ok(());
        }
        let check = command.to_owned();
        Err(self.fail(AuditError::Truncated { checkpoint: known.k, entry: known.last, check }))
    }

    /// Appends the checkpoints that are not copied yet.
    pub(super) fn write<S: Sql + ?Sized>(&self, sql: &mut S) -> Result<(), AuditError> {
        let (mut last, end) = self.end()?;
        let mut file = None;
        loop {
            let more = seal::after(sql, &self.log, last.as_ref().map_or(0, |last| last.k))?;
            if more.is_empty() {
                return file.map_or(Ok(()), |file: fs::File| file.sync_all()).map_err(|e| self.fail(e));
            }
            let out = match &mut file {
                Some(file) => file,
                None => {
                    if let Some(dir) = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                        durable::make_dir(dir).map_err(|e| self.fail(e))?;
                    }
                    let opened = durable::append(&self.path).map_err(|e| self.fail(e))?;
                    if opened.metadata().map_err(|e| self.fail(e))?.len() > end {
                        opened.set_len(end).map_err(|e| self.fail(e))?;
                    }
                    file.insert(opened)
                }
            };
            for checkpoint in more {
                let line = serde_json::to_string(&checkpoint).map_err(|e| self.fail(e))?;
                out.write_all(format!("{line}\n").as_bytes()).map_err(|e| self.fail(e))?;
                last = Some(checkpoint);
            }
        }
    }
}
