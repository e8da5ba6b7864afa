//! `store put`: uploads files, shows how far it is, and asks the store what it holds.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tidegate_client::store::{Confirmation, ObjectStoreClient, StoreError};

use super::{AT_ONCE, told};
use crate::execute::counted;
use crate::exit::Exit;
use crate::out;
use crate::progress::{thousands, watched};

/// The size of a read from a file, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The options of `store put`.
pub(super) struct PutOptions<'a> {
    /// The store as it was given.
    pub(super) name: &'a str,
    pub(super) under: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) verify: bool,
    pub(super) quiet: bool,
}

/// What was done so far.
#[derive(Default)]
struct PutProgress {
    /// Bytes read from the files.
    read: AtomicU64,
    /// Objects that the store has confirmed, and their bytes.
    objects: AtomicU64,
    bytes: AtomicU64,
    /// Those of them whose checksum was compared.
    checksums: AtomicU64,
}

pub(super) async fn put(
    store: &ObjectStoreClient,
    files: &[PathBuf],
    how: &PutOptions<'_>,
) -> io::Result<Exit> {
    let jobs = match jobs(files, how) {
        Ok(jobs) => jobs,
        Err(why) => {
            out::say(&format!("tidegate store: {why}"));
            return Ok(Exit::Usage);
        }
    };
    let (progress, all) = (PutProgress::default(), jobs.len() as u64);
    let each = stream::iter(jobs).map(|(file, key)| send(store, file, key, how.verify, &progress));
    let work = each.buffer_unordered(AT_ONCE).collect::<Vec<_>>();
    let results = if how.quiet || !io::stderr().is_terminal() {
        work.await
    } else {
        watched(work, || {
            let get = |count: &AtomicU64| thousands(count.load(Ordering::Relaxed));
            let (objects, read) = (get(&progress.objects), get(&progress.read));
            format!("{objects} of {} objects, {read} bytes read", thousands(all))
        })
        .await
    };
    let unread = results.contains(&Ok(false));
    let exit = told(results.into_iter().map(|result| result.map(|_| ())).collect());
    if !how.quiet {
        out::say(&summary(&progress, all, how.name));
    }
    Ok(if unread { Exit::Failure } else { exit })
}

/// What the store has confirmed.
fn summary(progress: &PutProgress, all: u64, name: &str) -> String {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (objects, checksums) = (get(&progress.objects), get(&progress.checksums));
    let compared = match checksums {
        _ if objects == 0 => String::new(),
        0 => "; the store confirmed the sizes".to_owned(),
        n if n == objects => "; the store confirmed the sizes and checksums".to_owned(),
        n => format!("; the store confirmed the sizes and {} of the checksums", thousands(n)),
    };
    let of = if objects == all { String::new() } else { format!(" of {}", thousands(all)) };
    let what = if all == 1 { "object" } else { "objects" };
    let bytes = counted(get(&progress.bytes), "byte", "bytes");
    format!("put {}{of} {what}, {bytes}, to {name}{compared}", thousands(objects))
}

/// Each file with its key.
fn jobs<'a>(files: &'a [PathBuf], how: &PutOptions<'_>) -> Result<Vec<(&'a Path, String)>, String> {
    if how.key.is_some() && files.len() > 1 {
        return Err("--as takes a single file, but several were given; use --under".to_owned());
    }
    let mut jobs: Vec<(&Path, String)> = Vec::with_capacity(files.len());
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str());
        let key = match (how.key, name) {
            (Some(key), _) => key.to_owned(),
            (None, Some("-")) => return Err("standard input requires a key; pass --as KEY".to_owned()),
            (None, Some(name)) if how.under.is_empty() => name.to_owned(),
            (None, Some(name)) => format!("{}/{name}", how.under.trim_end_matches('/')),
            (None, None) => {
                return Err(format!("{} has no file name to use as a key; pass --as KEY", file.display()));
            }
        };
        jobs.push((file, key));
    }
    let mut keys: Vec<&String> = jobs.iter().map(|(_, key)| key).collect();
    keys.sort();
    if let Some(twice) =
        keys.windows(2).find_map(|two| two.first().filter(|key| Some(key) == two.get(1).as_ref()))
    {
        return Err(format!("two files would become the object {twice}; put them with different --under"));
    }
    Ok(jobs)
}

/// Puts one file; `false` if it cannot be read.
async fn send(
    store: &ObjectStoreClient,
    file: &Path,
    key: String,
    verify: bool,
    progress: &PutProgress,
) -> Result<bool, StoreError> {
    let (length, source) = match open(file) {
        Ok(opened) => opened,
        Err(why) => {
            out::say(&format!("tidegate store: {}: {why}", file.display()));
            return Ok(false);
        }
    };
    let put = store.put_stream(&key, length, pieces(source, &progress.read)).await?;
    let confirmed = store.confirm(&key, &put, verify).await?;
    progress.objects.fetch_add(1, Ordering::Relaxed);
    progress.bytes.fetch_add(put.bytes, Ordering::Relaxed);
    progress.checksums.fetch_add(u64::from(confirmed == Confirmation::Checksum), Ordering::Relaxed);
    Ok(true)
}

fn open(file: &Path) -> io::Result<(Option<u64>, Box<dyn Read + Send>)> {
    if file.as_os_str() == "-" {
        return Ok((None, Box::new(io::stdin())));
    }
    let opened = File::open(file)?;
    let about = opened.metadata()?;
    if about.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok((about.is_file().then_some(about.len()), Box::new(opened)))
}

fn pieces(
    source: Box<dyn Read + Send>,
    read: &AtomicU64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + '_ {
    stream::try_unfold(source, move |mut source| async move {
        let mut piece = Vec::new();
        source.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        read.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok((!piece.is_empty()).then(|| (Bytes::from(piece), source)))
    })
}
