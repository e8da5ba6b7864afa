//! `tidegate dlq`: inspects, repairs, replays, archives and purges dead letters.
//!
//! One file per group of commands. Every command that opens the store first purges letters whose
//! retention has ended.

mod capture;
pub(super) mod filter;
mod keep;
pub(super) mod list;
pub(super) mod map;
mod mend;
mod named;
mod purge;
mod put;
mod rasters;
mod replay;
mod show;
mod subject;
pub(super) mod table;

use std::io;

use clap::{Subcommand, ValueEnum};
use tidegate_client::secret::Secret;
use tidegate_core::letter::LetterId;
use tidegate_core::quote::shell;
use tidegate_ledger::letter::seal::{Keyring, SecretKey};
use tidegate_ledger::letter::store::Purged;
use tidegate_ledger::letter::{LetterStore, LetterStoreLocation, now_ms};

use crate::execute::counted;
use crate::exit::{CommandFailure, Exit, usage};
use crate::given::GivenAddress;
use crate::out;

/// Inspect, repair, replay, archive and purge dead letters
///
/// A dead letter is a record that a pipeline rejected, stored with everything known about it. STORE is
/// a SQLite file or postgres://…. Coordinates are shown rounded and payloads are hidden unless --reveal
/// gives a reason, which is recorded in the audit.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate dlq stats                                   groups of the same failure, most frequent first
  tidegate dlq ls --code TIMEOUT --since 24h --bbox 9,46,17,49
  tidegate dlq show 5f2c90ab                           any unique suffix of an id
  tidegate dlq map -o dead.html && tidegate dlq export -o dead.gpkg
  tidegate dlq fix --rule make_valid --dry-run --code INVALID_GEOMETRY
  tidegate dlq replay --manifest parcels.yaml --code TIMEOUT --rate 5/s --dry-run
  tidegate dlq archive --state resolved --to s3://cold/letters && tidegate dlq purge --archived --state archived

Exit codes: 0 success; 1 failure; 2 usage error, such as an empty filter without --all; 4 a replay
finished, but some letters failed again; 75 the server of the store, a service or the sink is
not ready, try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
    #[command(flatten)]
    how: LetterStoreArgs,
}

/// Options for the store and the output.
#[derive(clap::Args)]
struct LetterStoreArgs {
    /// Dead letter store: a file, postgres://user@host/db?schema=NAME, or env:NAME and file:PATH that contain
    /// either
    #[arg(long, value_name = "STORE", default_value = ".tidegate/letters.db", global = true)]
    store: GivenAddress,
    /// File with the secret keys of sealed payloads, or env:NAME that contains them
    #[arg(long, value_name = "FILE", global = true)]
    key: Option<GivenAddress>,
    /// Output format
    #[arg(long, value_enum, default_value_t = LetterFormat::Table, global = true)]
    format: LetterFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LetterFormat {
    /// Text
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Ndjson,
}

#[derive(Subcommand)]
enum Command {
    Ls(Box<list::Ls>),
    Stats(Box<list::StatsArgs>),
    Show(show::Args),
    Map(Box<map::Args>),
    Export(Box<list::Export>),
    Capture(capture::Args),
    Put(put::Args),
    Fix(Box<mend::Fix>),
    Edit(mend::Edit),
    Replay(Box<replay::Args>),
    Archive(Box<keep::Archive>),
    Purge(Box<purge::Purge>),
    Hold(Box<keep::Hold>),
    Release(Box<keep::Release>),
    Dismiss(Box<keep::Dismiss>),
    Incidents(keep::Incidents),
    Audit(show::LetterAuditArgs),
    Capacity(keep::Capacity),
}

type Done = Result<Exit, CommandFailure>;

/// An open store with its keys and output format.
struct OpenLetterStore {
    place: LetterStoreLocation,
    store: LetterStore,
    keys: Keyring,
    /// The file of the keys.
    key_file: Option<GivenAddress>,
    format: LetterFormat,
    /// The time of the command, in milliseconds since 1970.
    now_ms: i64,
}

/// The keys that `--key` gives. What is no file may be the key itself, and is not quoted.
fn key_text(given: &GivenAddress) -> Result<Secret, CommandFailure> {
    let fail = |why: String| usage(format!("--key: {why}"));
    match given.reference() {
        Some(from) => from.fetch().map_err(|e| fail(e.to_string())),
        None => std::fs::read_to_string(given.to_string()).map(Secret::new).map_err(|e| {
            fail(format!("cannot read the file with the keys: {e}; write its path, or env:NAME"))
        }),
    }
}

impl OpenLetterStore {
    fn open(how: &LetterStoreArgs, make: bool) -> Result<OpenLetterStore, CommandFailure> {
        let place = LetterStoreLocation::of(&how.store)?;
        if let (LetterStoreLocation::File(path), false) = (&place, make)
            && !path.exists()
        {
            return Err(usage(format!("no dead letter store at {}; set it with --store", path.display())));
        }
        let keys = match &how.key {
            None => Keyring::default(),
            Some(given) => Keyring(SecretKey::all_from_text(key_text(given)?.reveal())?),
        };
        let mut store = LetterStore::open(&place)?;
        let now_ms = now_ms();
        let purged = store.retain(now_ms, &[])?;
        if purged.purged > 0 {
            out::say(&format!(
                "tidegate dlq: purged {} past the retention period",
                counted(purged.purged, "letter", "letters")
            ));
        }
        if let Some(why) = unarchived(&purged) {
            out::say(&format!("tidegate dlq: {why}"));
        }
        Ok(OpenLetterStore { place, store, keys, key_file: how.key.clone(), format: how.format, now_ms })
    }

    /// Names the letters that the command met and that are damaged. They were left out, so a command
    /// that was successful otherwise was not.
    fn name_damaged(&self, done: Done) -> Done {
        let damaged = self.store.damaged();
        for (id, how) in damaged.iter().take(20) {
            out::say(&format!("tidegate dlq: letter {id} is damaged and was left out: {how}"));
        }
        if damaged.len() > 20 {
            out::say(&format!("tidegate dlq: {} letters are damaged", damaged.len()));
        }
        match done {
            Ok(Exit::Done) if !damaged.is_empty() => Ok(Exit::Failure),
            other => other,
        }
    }

    /// Another command on this store, to be pasted.
    fn command(&self, what: &str) -> String {
        let mut text = format!("tidegate dlq {what} --store {}", shell(&self.place.to_string()));
        if let Some(path) = &self.key_file {
            text.push_str(&format!(" --key {}", shell(&path.to_string())));
        }
        text
    }

    /// The letter with this id or id suffix.
    fn id(&mut self, text: &str) -> Result<LetterId, CommandFailure> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        match self.store.ids_ending(text)?.as_slice() {
            [one] => Ok(*one),
            [] => Err(usage(format!("no letter id ends in {text:?}"))),
            _ => Err(usage(format!("several letter ids end in {text:?}; give a longer suffix"))),
        }
    }
}

/// Why open letters are still there after the end of their retention, if there are some.
pub(super) fn unarchived(purged: &Purged) -> Option<String> {
    let letters = counted(purged.unarchived, "open letter", "open letters");
    match (purged.unarchived, &purged.fault) {
        (0, None) => None,
        (_, Some(why)) => Some(format!("{letters} past the retention period: {why}")),
        (_, None) => Some(format!(
            "{letters} past the retention period stay: they are not archived. Use `dlq archive`, or set `dead_letters.archive`, which `run` and `serve --manifest` follow"
        )),
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let make = matches!(args.what, Command::Capture(_) | Command::Put(_) | Command::Capacity(_));
    let done = OpenLetterStore::open(&args.how, make).and_then(|mut desk| {
        let done = verb(&args.what, &mut desk);
        desk.name_damaged(done)
    });
    done.or_else(|CommandFailure(exit, why)| {
        out::say(&format!("tidegate dlq: {why}"));
        Ok(exit)
    })
}

fn verb(what: &Command, desk: &mut OpenLetterStore) -> Done {
    match what {
        Command::Ls(args) => list::ls(args, desk),
        Command::Stats(args) => list::stats(args, desk),
        Command::Export(args) => list::export(args, desk),
        Command::Show(args) => show::run(args, desk),
        Command::Audit(args) => show::audit(args, desk),
        Command::Map(args) => map::run(args, desk),
        Command::Capture(args) => capture::run(args, desk),
        Command::Put(args) => put::run(args, desk),
        Command::Fix(args) => mend::fix(args, desk),
        Command::Edit(args) => mend::edit(args, desk),
        Command::Replay(args) => replay::run(args, desk),
        Command::Archive(args) => keep::archive(args, desk),
        Command::Purge(args) => purge::run(args, desk),
        Command::Hold(args) => keep::hold(args, desk),
        Command::Release(args) => keep::release(args, desk),
        Command::Dismiss(args) => keep::dismiss(args, desk),
        Command::Incidents(args) => keep::incidents(args, desk),
        Command::Capacity(args) => keep::capacity(args, desk),
    }
}
