//! Where downloaded objects go: a directory, or an object store.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use tidegate_core::Code;

use super::checksum::FileSums;
use crate::durable;
use crate::source::{SourceError, Trouble};
use crate::store::{ObjectStoreClient, StoreError};

/// The number of bytes read at a time.
const PIECE: usize = 1 << 20;

/// Where downloaded objects go.
#[derive(Clone, Debug)]
pub enum DownloadTarget {
    /// Files under a directory.
    Directory(PathBuf),
    /// Objects of a store.
    Store(ObjectStoreClient),
}

fn trouble(error: &StoreError) -> SourceError {
    let mut out = SourceError::broken(error.verdict.code, error.to_string());
    if error.is_later() {
        out.trouble = Trouble::Down;
    }
    out
}

impl DownloadTarget {
    /// The size of what is there.
    pub(super) async fn size(&self, key: &str) -> Result<Option<u64>, SourceError> {
        match self {
            DownloadTarget::Directory(dir) => Ok(fs::metadata(dir.join(key)).ok().map(|about| about.len())),
            DownloadTarget::Store(store) => match store.head(key).await {
                Ok(found) => Ok(Some(found.size)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(trouble(&error)),
            },
        }
    }

    /// The file of an object, if it is one.
    pub(super) fn path(&self, key: &str) -> Option<PathBuf> {
        match self {
            DownloadTarget::Directory(dir) => Some(dir.join(key)),
            DownloadTarget::Store(_) => None,
        }
    }

    /// Where an object is received, if that is next to its place.
    pub(super) fn partial(&self, key: &str) -> Option<PathBuf> {
        match self {
            DownloadTarget::Directory(dir) => Some(dir.join(format!("{key}.partial"))),
            DownloadTarget::Store(_) => None,
        }
    }

    /// Puts a complete object in its place.
    pub(super) async fn place(&self, key: &str, partial: &Path, sums: &FileSums) -> Result<(), SourceError> {
        let disk = |e: std::io::Error| SourceError::setup(format!("{}: {e}", partial.display()));
        match self {
            DownloadTarget::Directory(dir) => {
                let path = dir.join(key);
                durable::rename(partial, &path).map_err(disk)
            }
            DownloadTarget::Store(store) => {
                let file = File::open(partial).map_err(disk)?;
                let pieces = stream::try_unfold(file, |mut file| async move {
                    let mut piece = vec![0; PIECE];
                    let read = file.read(&mut piece)?;
                    piece.truncate(read);
                    Ok((read > 0).then(|| (Bytes::from(piece), file)))
                });
                store.put_stream(key, Some(sums.bytes), pieces).await.map_err(|e| trouble(&e))?;
                if self.size(key).await? != Some(sums.bytes) {
                    let why =
                        format!("{key}: the store does not hold what was put; it was removed or overwritten");
                    return Err(SourceError::broken(Code::CONFLICT, why));
                }
                fs::remove_file(partial).map_err(disk)
            }
        }
    }
}
