//! `tidegate store`: reads and writes objects in a bucket or a directory, through lanes.

mod put;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidegate_client::durable;
use tidegate_client::store::{
    GetRange, KeySpread, Meta, ObjectReader, ObjectStoreClient, StoreError, StoreSettings,
};
use tidegate_core::call::CallPolicy;

use super::calls::time;
use super::cloud::CloudArgs;
use crate::exit::Exit;
use crate::given::PlainAddress;
use crate::out;

/// The most objects put or removed concurrently.
const AT_ONCE: usize = 64;

/// Put, get, list, copy and remove objects
///
/// STORE is a directory, s3://bucket, az://container or gs://bucket, with /base if wanted. Each
/// request goes through the lane of its prefix: throttling slows down the prefix and loses nothing.
/// Credentials are read from env:NAME or file:PATH, by default from the usual variables of the cloud,
/// such as AWS_ACCESS_KEY_ID, AZURE_STORAGE_KEY or GOOGLE_APPLICATION_CREDENTIALS.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate store put s3://tiles 2026/*.png --under tiles/2026 --key-spread hash
  tidegate store put data - --as lines/a.geojson < a.geojson
  tidegate store get s3://tiles tiles/2026/1.png -o 1.png --key-spread hash
  tidegate store get data lines/a.geojson --range 0..100
  tidegate store ls s3://tiles tiles/2026 --endpoint http://127.0.0.1:9000
  tidegate store cp data lines/a.geojson lines/b.geojson
  tidegate store rm data lines/a.geojson lines/b.geojson")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
    #[command(flatten)]
    how: ObjectStoreArgs,
}

/// A subcommand.
#[derive(clap::Subcommand)]
enum Command {
    /// Upload files, replacing existing objects
    Put {
        /// The store
        store: PlainAddress,
        /// Files to upload; - for standard input
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Key prefix; the file name is appended
        #[arg(long, value_name = "FOLDER", default_value = "", conflicts_with = "key")]
        under: String,
        /// Complete key, for a single file
        #[arg(long = "as", value_name = "KEY")]
        key: Option<String>,
        /// Read each object and compare it with what was sent [default: compare its size, and its
        /// checksum if the store gives one]
        #[arg(long)]
        verify: bool,
        /// Print no progress and no summary
        #[arg(short, long)]
        quiet: bool,
    },
    /// Download an object
    Get {
        /// The store
        store: PlainAddress,
        /// The object
        key: String,
        /// Output file, which appears when it is complete [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Byte range: 0..100, 100.. or ..100 for the last hundred
        #[arg(long, value_name = "RANGE", value_parser = range)]
        range: Option<GetRange>,
    },
    /// List objects in key order
    Ls {
        /// The store
        store: PlainAddress,
        /// List only keys with this prefix
        #[arg(default_value = "")]
        folder: String,
        /// Output format
        #[arg(long, value_enum, default_value = "table")]
        format: ListingFormat,
    },
    /// Remove objects; missing objects are not an error
    Rm {
        /// The store
        store: PlainAddress,
        /// Keys of the objects
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Copy an object within the store
    Cp {
        /// The store
        store: PlainAddress,
        /// The object
        from: String,
        /// Key of the copy
        to: String,
    },
}

/// Options for reaching the store.
#[derive(clap::Args)]
struct ObjectStoreArgs {
    /// hash stores KEY as h=XX/KEY to avoid hot prefixes; use the same value for reading
    #[arg(long, value_enum, default_value = "none", global = true)]
    key_spread: Spread,
    /// Number of key path segments that select the lane
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    lane_segments: usize,
    /// Part size of large uploads, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u16).range(5..=5120), global = true)]
    part_size: u16,
    /// Maximum attempts per request; throttled calls and outages do not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), global = true)]
    attempts: u32,
    /// Wait before the first retry, before jitter; each further wait is twice as long
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = time, global = true)]
    base_delay: Duration,
    /// Longest wait between two attempts
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time, global = true)]
    max_delay: Duration,
    /// Stop with exit code 75 if the store asks to wait, or fails, for longer than this
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, global = true)]
    patience: Duration,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Allow the endpoint to resolve to private addresses
    #[arg(long, global = true)]
    allow_private: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Spread {
    None,
    Hash,
}

#[derive(Clone, Copy, ValueEnum)]
enum ListingFormat {
    Table,
    Json,
    Ndjson,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let (Command::Put { store, .. }
    | Command::Get { store, .. }
    | Command::Ls { store, .. }
    | Command::Rm { store, .. }
    | Command::Cp { store, .. }) = &args.what;
    let opened = ObjectStoreClient::open(store, &settings(args));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match opened {
        Ok(store) => runtime.block_on(act(&args.what, &store)),
        Err(why) => {
            out::say(&format!("tidegate store: {why}"));
            Ok(Exit::Usage)
        }
    }
}

fn settings(args: &Args) -> StoreSettings {
    let how = &args.how;
    let key_spread = match how.key_spread {
        Spread::None => KeySpread::None,
        Spread::Hash => KeySpread::Hash,
    };
    let default = StoreSettings::default();
    let policy = CallPolicy {
        attempts_max: how.attempts,
        backoff: default.policy.backoff.bounded(Some(how.base_delay), Some(how.max_delay)),
        ..default.policy
    };
    StoreSettings {
        key_spread,
        lane_segments: how.lane_segments,
        part_bytes: usize::from(how.part_size) << 20,
        create: matches!(args.what, Command::Put { .. }),
        cloud: how.cloud.settings(how.allow_private),
        policy,
        patience: how.patience,
        ..default
    }
}

async fn act(what: &Command, store: &ObjectStoreClient) -> io::Result<Exit> {
    match what {
        Command::Put { store: name, files, under, key, verify, quiet } => {
            let how = put::PutOptions { name, under, key: key.as_deref(), verify: *verify, quiet: *quiet };
            put::put(store, files, &how).await
        }
        Command::Get { key, output, range, .. } => get(store, key, output.as_deref(), range.clone()).await,
        Command::Ls { folder, format, .. } => ls(store, folder, *format).await,
        Command::Rm { keys, .. } => {
            let each = stream::iter(keys).map(|key| store.delete(key)).buffered(AT_ONCE);
            Ok(told(each.collect().await))
        }
        Command::Cp { from, to, .. } => Ok(told(vec![store.copy(from, to).await])),
    }
}

/// Reports what failed and returns the exit code.
fn told(results: Vec<Result<(), StoreError>>) -> Exit {
    let failed: Vec<StoreError> = results.into_iter().filter_map(Result::err).collect();
    for error in &failed {
        out::say(&format!("tidegate store: {error}"));
    }
    match failed.as_slice() {
        [] => Exit::Done,
        some if some.iter().all(StoreError::is_later) => Exit::TryLater,
        _ => Exit::Failure,
    }
}

async fn get(
    store: &ObjectStoreClient,
    key: &str,
    output: Option<&Path>,
    range: Option<GetRange>,
) -> io::Result<Exit> {
    let object = match store.get_range(key, range).await {
        Ok(object) => object,
        Err(error) => return Ok(told(vec![Err(error)])),
    };
    let Some(file) = output.filter(|file| file.as_os_str() != "-") else {
        let mut stdout = io::stdout().lock();
        let done = write(object, &mut stdout).await?;
        stdout.flush()?;
        return Ok(told(vec![done]));
    };
    // Write to a temporary file and rename it: readers see the old file or the complete new one.
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = file.with_file_name(name);
    let done = async {
        let mut out = File::create(&partial)?;
        let done = write(object, &mut out).await?;
        if done.is_ok() {
            out.sync_all()?;
            durable::rename(&partial, file)?;
        }
        io::Result::Ok(done)
    }
    .await;
    if !matches!(done, Ok(Ok(()))) {
        // An incomplete file is useless.
        let _ = std::fs::remove_file(&partial);
    }
    match done {
        Ok(done) => Ok(told(vec![done])),
        Err(why) => {
            out::say(&format!("tidegate store: {}: {why}", file.display()));
            Ok(Exit::Failure)
        }
    }
}

async fn write(mut object: ObjectReader, out: &mut impl Write) -> io::Result<Result<(), StoreError>> {
    loop {
        match object.next().await {
            Ok(Some(piece)) => out.write_all(&piece)?,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}

async fn ls(store: &ObjectStoreClient, folder: &str, format: ListingFormat) -> io::Result<Exit> {
    let mut list = store.list(folder);
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let mut before = "[\n";
    let done = loop {
        let Meta { key, size, modified, etag } = match list.try_next().await {
            Ok(Some(meta)) => meta,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let object =
            || serde_json::json!({"key": key, "size": size, "modified_ms": modified.millis(), "etag": etag});
        match format {
            ListingFormat::Table => writeln!(stdout, "{size:>14}  {}", shown(&key))?,
            ListingFormat::Ndjson => writeln!(stdout, "{}", object())?,
            ListingFormat::Json => write!(stdout, "{}  {}", std::mem::replace(&mut before, ",\n"), object())?,
        }
    };
    // After an error the array stays open: half a list is not valid JSON.
    match (format, before, &done) {
        (ListingFormat::Json, "[\n", Ok(())) => writeln!(stdout, "[]")?,
        (ListingFormat::Json, _, Ok(())) => writeln!(stdout, "\n]")?,
        _ => {}
    }
    stdout.flush()?;
    Ok(told(vec![done]))
}

/// A key without characters that control a terminal.
fn shown(key: &str) -> String {
    key.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn range(text: &str) -> Result<GetRange, String> {
    let wrong = || format!("invalid byte range {text:?}; expected 0..100, 100.. or ..100");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    match (from.trim(), to.trim()) {
        ("", last) => number(last).map(GetRange::Suffix),
        (from, "") => number(from).map(GetRange::Offset),
        (from, to) => {
            let (from, to) = (number(from)?, number(to)?);
            if from < to { Ok(GetRange::Bounded(from..to)) } else { Err(format!("{text:?} is empty")) }
        }
    }
}
