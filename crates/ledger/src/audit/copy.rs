//! Copies of the checkpoints in a file outside the database, one JSON object per line.
//!
//! A copy is written after its checkpoint is committed, so the file is never ahead of the database;
//! a copy missed in a crash is written the next time. If the file holds a checkpoint that the
//! database lacks, the database was truncated or restored from a backup, and no more entries are
//! written.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::AuditError;
use super::seal::{self, Checkpoint};
use crate::sql::Sql;

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

    /// All copies in the file. An incomplete last line, left by a crash, is ignored.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not a checkpoint.
    pub fn all(&self) -> Result<Vec<Checkpoint>, AuditError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(self.fail(e)),
        };
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        let mut all = Vec::new();
        for (at, line) in whole.lines().enumerate() {
            let checkpoint: Checkpoint = serde_json::from_str(line)
                .map_err(|source| self.fail(AuditError::Line { line: at + 1, source }))?;
            if checkpoint.log == self.log {
                all.push(checkpoint);
            }
        }
        Ok(all)
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
                return Ok(());
            }
            let out = match &mut file {
                Some(file) => file,
                None => {
                    if let Some(dir) = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                        fs::create_dir_all(dir).map_err(|e| self.fail(e))?;
                    }
                    let opened = OpenOptions::new()
                        .create(true)
                        .append(true)
                        .open(&self.path)
                        .map_err(|e| self.fail(e))?;
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
