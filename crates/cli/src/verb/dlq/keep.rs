//! `dlq archive`, `hold`, `release`, `dismiss`, `incidents`, `capacity`.

use serde_json::json;
use tidegate_client::store as object;
use tidegate_core::letter::{LetterState, blur};
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::letter::archive;
use tidegate_ledger::letter::store::{Amend, LetterPage};
use tidegate_ledger::letter::{Letter, LetterFilter};

use super::filter::FilterArgs;
use super::table::{ago, table};
use super::{CommandFailure, Done, LetterFormat, OpenLetterStore, usage};
use crate::execute::counted;
use crate::exit::Exit;
use crate::given::PlainAddress;
use crate::out;
use crate::progress::thousands;
use crate::verb::cloud::CloudArgs;

/// Copy letters to an archive and verify it
///
/// Write zstd-compressed NDJSON with a manifest of hashes to a directory or a bucket. Everything is
/// read back and compared before a letter is marked as archived. Open letters stay open, sealed
/// payloads stay sealed.
#[derive(clap::Args)]
pub(super) struct Archive {
    #[command(flatten)]
    filter: FilterArgs,
    /// Archive location: a directory, s3://bucket/base, az://container/base or gs://bucket/base
    #[arg(long, value_name = "STORE")]
    to: PlainAddress,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Allow the endpoint to resolve to a private address
    #[arg(long)]
    allow_private: bool,
    /// Only print the number of letters
    #[arg(long)]
    dry_run: bool,
    /// Select every letter
    #[arg(long)]
    all: bool,
}

/// Protect letters from being purged
#[derive(clap::Args)]
pub(super) struct Hold {
    #[command(flatten)]
    filter: FilterArgs,
    /// Reason
    #[arg(long, value_name = "WHY")]
    why: String,
    /// Select every letter
    #[arg(long)]
    all: bool,
}

/// Release a hold
#[derive(clap::Args)]
pub(super) struct Release {
    #[command(flatten)]
    filter: FilterArgs,
    /// Select every letter
    #[arg(long)]
    all: bool,
}

/// Mark letters as not needing repair
#[derive(clap::Args)]
pub(super) struct Dismiss {
    #[command(flatten)]
    filter: FilterArgs,
    /// Reason
    #[arg(long, value_name = "WHY")]
    why: String,
    /// Select every letter
    #[arg(long)]
    all: bool,
}

/// List or close incidents, which suspend pipelines that would flood the store
#[derive(clap::Args)]
pub(super) struct Incidents {
    /// Close this incident, so that its pipeline can run again
    #[arg(long, value_name = "N")]
    close: Option<i64>,
}

/// Set the maximum number of letters in the store
#[derive(clap::Args)]
pub(super) struct Capacity {
    /// Maximum number of letters
    letters: u64,
}

pub(super) fn archive(args: &Archive, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.bounded(desk, args.all)?;
    if args.dry_run {
        out::say(&format!(
            "would archive at most {}",
            counted(desk.store.count(&filter)?, "letter", "letters")
        ));
        return Ok(Exit::Done);
    }
    let mut settings = object::StoreSettings { create: true, ..object::StoreSettings::default() };
    settings.cloud = args.cloud.settings(args.allow_private);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let to = runtime.block_on(async { object::ObjectStoreClient::open(&args.to, &settings) });
    let to = to.map_err(|e| usage(e.to_string()))?;
    let done = archive::archive(&mut desk.store, &filter, (&to, &runtime), desk.now_ms)
        .map_err(|e| CommandFailure(Exit::Failure, e.to_string()))?;
    match done {
        None => out::say("nothing to archive"),
        Some(done) if desk.format == LetterFormat::Table => out::say(&format!(
            "archived {} in {} to {}, verified; manifest {}",
            counted(done.content.letters, "letter", "letters"),
            counted(done.content.files.len() as u64, "file", "files"),
            args.to,
            done.manifest
        )),
        Some(done) => {
            out::data(&format!("{}\n", json!({ "manifest": done.manifest, "content": done.content })))?;
        }
    }
    Ok(Exit::Done)
}

type RowRef<'a> = &'a tidegate_ledger::letter::store::StoredLetter;

/// Reads every letter that matches a filter, in pages.
pub(super) fn each(
    desk: &mut OpenLetterStore,
    filter: &LetterFilter,
    mut see: impl FnMut(RowRef<'_>),
) -> Result<(), CommandFailure> {
    let mut filter = LetterFilter { after: Some(-1), ..filter.clone() };
    loop {
        let rows =
            desk.store.find(&filter, LetterPage { limit: 1000, newest_first: false, payload: false })?;
        let Some(last) = rows.last() else { return Ok(()) };
        filter.after = Some(last.seq);
        rows.iter().for_each(&mut see);
    }
}

/// Changes every letter that matches a filter; returns their number.
fn amend(
    desk: &mut OpenLetterStore,
    filter: &LetterFilter,
    act: &'static str,
    detail: &serde_json::Value,
    change: impl Fn(&Letter) -> Option<Letter>,
) -> Result<u64, CommandFailure> {
    let mut rows = Vec::new();
    each(desk, filter, |row| {
        if let Some(letter) = change(&row.letter) {
            rows.push((row.clone(), letter));
        }
    })?;
    let mut count = 0;
    for (row, letter) in rows {
        desk.store.amend(&Amend { row, letter, payload: None, act, detail: detail.clone() }, desk.now_ms)?;
        count += 1;
    }
    Ok(count)
}

/// Says how many letters were changed.
fn told(desk: &OpenLetterStore, count: u64, words: &str) -> Done {
    if desk.format == LetterFormat::Table {
        out::say(words);
    } else {
        out::data(&format!("{}\n", json!({ "letters": count })))?;
    }
    Ok(Exit::Done)
}

pub(super) fn hold(args: &Hold, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.bounded(desk, args.all)?;
    let count = amend(desk, &filter, "hold", &json!({ "why": args.why }), |letter| {
        Some(Letter { hold: Some(args.why.clone()), ..letter.clone() })
    })?;
    told(desk, count, &format!("put {} on hold", counted(count, "letter", "letters")))
}

pub(super) fn release(args: &Release, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.bounded(desk, args.all)?;
    let count = amend(desk, &filter, "release", &json!({}), |letter| {
        letter.hold.is_some().then(|| Letter { hold: None, ..letter.clone() })
    })?;
    told(desk, count, &format!("released {}", counted(count, "letter", "letters")))
}

pub(super) fn dismiss(args: &Dismiss, desk: &mut OpenLetterStore) -> Done {
    let filter = args.filter.bounded(desk, args.all)?;
    let count = amend(desk, &filter, "dismiss", &json!({ "why": args.why }), |letter| {
        letter
            .state
            .may_become(LetterState::Dismissed)
            .then(|| Letter { state: LetterState::Dismissed, ..letter.clone() })
    })?;
    told(desk, count, &format!("dismissed {}", counted(count, "letter", "letters")))
}

pub(super) fn incidents(args: &Incidents, desk: &mut OpenLetterStore) -> Done {
    if let Some(number) = args.close {
        desk.store.incident_close(number, desk.now_ms)?;
        out::say(&format!("closed incident {number}; its pipeline can run again"));
        return Ok(Exit::Done);
    }
    let open = desk.store.incidents(None)?;
    if desk.format != LetterFormat::Table {
        let all: Vec<_> = open
            .iter()
            .map(|i| {
                json!({
                    "incident": i.incident, "pipeline": i.pipeline, "code": i.code, "message": blur(&i.message),
                    "failed": i.failed, "batch": i.batch, "opened": rfc3339(i.opened_ms),
                    "fingerprint": i.fingerprint.to_string(),
                })
            })
            .collect();
        out::data(&format!("{:#}\n", json!(all)))?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = open
        .iter()
        .map(|i| {
            vec![
                i.incident.to_string(),
                ago(i.opened_ms, desk.now_ms),
                i.pipeline.clone(),
                format!("{} of {}", thousands(i.failed), thousands(i.batch)),
                i.code.clone(),
                blur(&i.message),
            ]
        })
        .collect();
    out::data(&table(&["n", "age", "pipeline", "failed", "code", "message"], &rows, &[0, 1]))?;
    Ok(Exit::Done)
}

pub(super) fn capacity(args: &Capacity, desk: &mut OpenLetterStore) -> Done {
    desk.store.set("capacity", &args.letters.to_string(), desk.now_ms)?;
    out::say(&format!("capacity of the store set to {}", counted(args.letters, "letter", "letters")));
    Ok(Exit::Done)
}
