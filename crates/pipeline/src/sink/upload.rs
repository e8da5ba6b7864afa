//! A file that is uploaded to a bucket when it is complete.
//!
//! Why it is not streamed: most of the formats write their header last, and an upload that took an
//! hour would be lost with the run. An interrupted upload leaves the previous object unchanged; the
//! next run starts again.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use tidegate_geo::Batch;
use tidegate_geo::format::Format;
use tokio::runtime::Runtime;

use super::{RowCounts, Saved, Sink, SinkError, Spec, Standing, file};
use crate::durable;
use crate::manifest::Bucket;
use crate::step::SeenKey;
use crate::store::ObjectStoreClient;

/// The number of bytes read at a time.
const PIECE: usize = 1 << 20;

struct Upload {
    file: Box<dyn Sink>,
    path: PathBuf,
    store: ObjectStoreClient,
    key: String,
    runtime: Arc<Runtime>,
}

pub(super) fn open(
    spec: &Spec,
    path: &Path,
    format: Format,
    (address, bucket): (&str, &Bucket),
) -> Result<Box<dyn Sink>, SinkError> {
    let (store, key) = bucket.open(address, spec.traffic.patience(), &spec.traffic)?;
    let runtime = spec.traffic.runtime()?;
    if let Some(dir) = path.parent() {
        durable::make_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(Box::new(Upload { file: file::open(spec, path, format)?, path: path.to_owned(), store, key, runtime }))
}

impl Upload {
    async fn send(&self) -> Result<(), SinkError> {
        let at = |e: std::io::Error| SinkError::Fatal(format!("{}: {e}", self.path.display()));
        let file = fs::File::open(&self.path).map_err(at)?;
        let length = file.metadata().map_err(at)?.len();
        let pieces = stream::try_unfold(file, |mut file| async move {
            let mut piece = vec![0; PIECE];
            let read = file.read(&mut piece)?;
            piece.truncate(read);
            Ok((read > 0).then(|| (Bytes::from(piece), file)))
        });
        self.store.put_stream(&self.key, Some(length), pieces).await.map(drop).map_err(|e| {
            if e.is_later() {
                SinkError::Transient { code: e.verdict.code, message: e.to_string() }
            } else {
                SinkError::Fatal(e.to_string())
            }
        })
    }
}

impl Sink for Upload {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        Ok(None)
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        self.file.standing()
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        self.file.put(batch)
    }

    fn commit(&mut self, checkpoint: &str, seen: &[SeenKey]) -> Result<(), SinkError> {
        self.file.commit(checkpoint, seen)
    }

    fn rollback(&mut self) {
        self.file.rollback();
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.file.finish()?;
        self.runtime.block_on(self.send())?;
        // It is in the bucket now; a remaining copy only takes space.
        let _ = fs::remove_file(&self.path);
        Ok(())
    }
}
