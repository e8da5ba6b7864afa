//! Reading a view as a layer.
//!
//! A view has no key by which it could be read in pages, and may have rows without end: a recursive query is
//! written in one line. So it is read by one statement, in a thread of its own that waits while nobody takes
//! a batch, and is bounded: by the instructions between two rows, and by the rows and the bytes that a file of
//! its size can hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Row;
use rusqlite::types::ValueRef;
use tidegate_core::Code;

use super::read::{GuardedFile, ROWS_PER_BATCH, push, query_error};
use crate::batch::{Batch, Span};
use crate::error::{Error, Problem};
use crate::format::{Layer, Reader, Rejected};
use crate::limits::RecordLimits;
use crate::schema::Schema;

/// Bytes of the values of a view for each byte of its file: a join repeats values.
const BYTES_PER_FILE_BYTE: u64 = 16;

/// The bytes of a batch, of which four may be in memory: being made, waiting, in work and being written.
const BATCH_LEN_MAX: usize = 4 << 20;

/// What a view may give.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewBounds {
    rows_max: u64,
    bytes_max: u64,
}

impl ViewBounds {
    /// As much as a file can hold, and more if the limits say so.
    pub(super) fn of(path: &Path, limits: &RecordLimits) -> Result<ViewBounds, Error> {
        let len = std::fs::metadata(path)?.len();
        Ok(ViewBounds {
            rows_max: limits.view_rows_max.max(len),
            bytes_max: limits.view_bytes_max.max(len.saturating_mul(BYTES_PER_FILE_BYTE)),
        })
    }
}

/// The statement that reads a view.
pub(super) struct ViewQuery {
    pub(super) file: GuardedFile,
    pub(super) layer: String,
    pub(super) schema: Arc<Schema>,
    pub(super) select: String,
    pub(super) bounds: ViewBounds,
}

/// Rows of a view.
struct ViewPart {
    batch: Batch,
    rejected: Vec<Rejected>,
}

/// A view being read.
pub(super) struct ViewReader {
    layer: Layer,
    /// Not begun yet.
    query: Option<ViewQuery>,
    parts: Option<Receiver<Result<ViewPart, Error>>>,
}

impl ViewReader {
    pub(super) fn new(layer: Layer, query: ViewQuery) -> ViewReader {
        ViewReader { layer, query: Some(query), parts: None }
    }
}

impl Reader for ViewReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        if let Some(query) = self.query.take() {
            let (to, parts) = sync_channel(1);
            std::thread::Builder::new().name("view".into()).spawn(move || {
                // Whoever reads no more has dropped the other end.
                if let Err(error) = query.run(&to) {
                    let _ = to.send(Err(error));
                }
            })?;
            self.parts = Some(parts);
        }
        let Some(parts) = &self.parts else { return Ok(None) };
        match parts.recv() {
            Ok(Ok(part)) => {
                rejected.extend(part.rejected);
                Ok(Some(part.batch))
            }
            Ok(Err(error)) => {
                self.parts = None;
                Err(error)
            }
            Err(_) => {
                self.parts = None;
                Ok(None)
            }
        }
    }
}

impl ViewQuery {
    fn run(&self, to: &SyncSender<Result<ViewPart, Error>>) -> Result<(), Error> {
        let fail = |e: rusqlite::Error| query_error(e, &self.layer, self.file.steps_max);
        let mut statement = self.file.db.prepare(&self.select).map_err(fail)?;
        let mut rows = statement.query([]).map_err(fail)?;
        let (mut record, mut bytes) = (0_u64, 0_u64);
        let new = |record| ViewPart {
            batch: Batch::new(self.schema.clone()).from_record(record),
            rejected: Vec::new(),
        };
        let mut part = new(0);
        let mut in_part = 0;
        loop {
            self.file.steps.store(0, Ordering::Relaxed);
            let Some(row) = rows.next().map_err(fail)? else { break };
            bytes = bytes.saturating_add(len_of(row));
            self.check(record + 1, bytes)?;
            let key = match row.get_ref(0) {
                Ok(ValueRef::Integer(key)) => key,
                _ => i64::try_from(record + 1).unwrap_or(i64::MAX),
            };
            if let Err(problem) = push(row, key, &mut part.batch) {
                let raw = format!("{{\"fid\":{key}}}").into_bytes();
                let problems = vec![problem.of_record(record)];
                part.rejected.push(Rejected { record, span: Span::default(), raw, problems });
                part.batch.go_to_record(record + 1);
            }
            (record, in_part) = (record + 1, in_part + 1);
            if in_part >= ROWS_PER_BATCH || part.batch.full_len() >= BATCH_LEN_MAX {
                if to.send(Ok(std::mem::replace(&mut part, new(record)))).is_err() {
                    return Ok(());
                }
                in_part = 0;
            }
        }
        if in_part > 0 {
            let _ = to.send(Ok(part));
        }
        Ok(())
    }

    fn check(&self, rows: u64, bytes: u64) -> Result<(), Error> {
        let ViewBounds { rows_max, bytes_max } = self.bounds;
        let layer = &self.layer;
        let message = if rows > rows_max {
            format!(
                "the view {layer} has more than {rows_max} rows, more than its file can hold; it may have no end (`limits.view_rows`)"
            )
        } else if bytes > bytes_max {
            format!(
                "the rows of the view {layer} have more than {bytes_max} bytes, after {rows} rows; it may have no end (`limits.view_bytes`)"
            )
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::LIMIT_EXCEEDED, message).into())
    }
}

/// The bytes of the values of a row.
fn len_of(row: &Row<'_>) -> u64 {
    let len = |at: usize| match row.get_ref(at) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes.len() as u64,
        _ => 8,
    };
    (0..row.as_ref().column_count()).map(len).sum()
}
