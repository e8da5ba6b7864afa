//! Anchors: the heads of logs, kept where those who can write the logs cannot.
//!
//! A state directory that is restored as a whole, with its copies, its register and its keys, looks
//! as it did then. Only somebody outside who knows a later head can tell.

use std::io::{Read, Write};
use std::path::Path;

use futures_util::TryStreamExt;
use tidegate_client::durable;
use tidegate_client::store::{CloudSettings, ObjectStoreClient, StoreError, StoreSettings};
use tidegate_core::bucket::CredentialSource;
use tidegate_core::quote::scheme;
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::audit::{LogHead, user};
use tidegate_ledger::letter::now_ms;
use tidegate_pipeline::alert;

use super::log::{AuditSource, Log, logs};
use super::register::lost;
use super::{CommandFailure, Exit, anchor_table, usage};
use crate::given::{GivenAddress, ServiceUrl};

/// Print the heads of the audits, to be kept elsewhere, or append them to a place
///
/// A head is the number and the hash of the last entry. `verify --anchor` checks that the audits still
/// contain it. The audits are not verified here.
#[derive(clap::Args)]
pub(super) struct AnchorArgs {
    #[command(flatten)]
    which: AuditSource,
    /// File to append to, s3://BUCKET/FOLDER for a new object, postgres://… for rows of the table
    /// tidegate_anchor, or https://… for a POST; env:NAME and file:PATH contain a URL with a secret
    #[arg(long, value_name = "PLACE")]
    to: Option<GivenAddress>,
    #[command(flatten)]
    store: AnchorStore,
}

/// How to reach an object store.
#[derive(clap::Args)]
pub(super) struct AnchorStore {
    /// URL of an S3-compatible service that holds anchors [default: AWS]
    #[arg(long, value_name = "URL")]
    endpoint: Option<ServiceUrl>,
}

/// The first word of each line.
const FORM: &str = "tidegate-audit-anchor-1";
/// The digits of a hash that are kept.
const DIGITS: usize = 32;
/// The most bytes of an anchor that are read.
const BYTES_MAX: usize = 1 << 24;

/// A head that was kept.
pub(super) struct Anchor {
    pub(super) at: String,
    pub(super) head: LogHead,
}

fn line(at: &str, head: &LogHead) -> String {
    format!("{FORM} {at} {} {} {}\n", head.n, head.hash, head.file)
}

fn parse(text: &str) -> Result<Vec<Anchor>, CommandFailure> {
    let one = |line: &str| {
        let mut words = line.splitn(5, ' ');
        let (form, at) = (words.next()?, words.next()?.to_owned());
        if form != FORM {
            return None;
        }
        let (n, hash, file) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let whole = hash.len() >= DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let head = LogHead { file: file.trim_end().to_owned(), n, hash: hash.to_owned() };
        whole.then_some(Anchor { at, head })
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let wrong = |line: &str| usage(format!("not an anchor: {line:?}; expected {FORM} TIME N HASH FILE"));
    lines.map(|line| one(line).ok_or_else(|| wrong(line))).collect()
}

pub(super) fn run(args: &AnchorArgs) -> Result<(Exit, String), CommandFailure> {
    let at = rfc3339(now_ms());
    let mut heads = Vec::new();
    for mut log in logs(&args.which)? {
        heads.extend(
            log.head()?.map(|head| LogHead { hash: head.hash.chars().take(DIGITS).collect(), ..head }),
        );
    }
    if heads.is_empty() {
        return Err(usage("the audits have no entries yet"));
    }
    let text: String = heads.iter().map(|head| line(&at, head)).collect();
    let Some(place) = &args.to else { return Ok((Exit::Done, text)) };
    let place = resolved(place)?;
    match scheme(&place) {
        None => {
            let mut file = durable::append(Path::new(&place))?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
        }
        Some("postgres" | "postgresql") => anchor_table::insert(&place, &heads)?,
        Some("http" | "https") => {
            let heads: Vec<_> = heads.iter().map(|head| serde_json::json!(head)).collect();
            let body = serde_json::json!({ "anchor": text, "heads": heads, "at": at, "who": user() });
            let sent = runtime()?.block_on(alert::post(&place, &body.to_string()));
            sent.map_err(|why| CommandFailure(Exit::TryLater, why))?;
        }
        Some(_) => {
            let store = open(&place, &args.store)?;
            // A new name each time: what is there is never replaced.
            let name = format!("audit-anchor-{at}.txt");
            let put = store.put(&name, text.clone().into_bytes().into());
            runtime()?.block_on(put).map_err(of_store)?;
        }
    }
    Ok((Exit::Done, text))
}

/// What the audits have lost of the heads in an anchor.
pub(super) fn findings(
    (place, store): (&GivenAddress, &AnchorStore),
    which: &AuditSource,
    logs: &mut [Log],
) -> Result<Vec<String>, CommandFailure> {
    let anchors = read(&resolved(place)?, store)?;
    let (mut found, mut checked) = (Vec::new(), 0);
    for Anchor { at, head } in &anchors {
        match logs.iter_mut().find(|log| log.file() == head.file) {
            Some(log) => {
                checked += 1;
                found.extend(lost(log, head, &format!("the anchor of {at}"))?);
            }
            None if which.is_whole() => {
                checked += 1;
                found.push(format!(
                    "{} is missing; the anchor of {at} knows {} entries of it",
                    head.file, head.n
                ));
            }
            None => {}
        }
    }
    if checked == 0 {
        return Err(usage("the anchor holds no head of these audits"));
    }
    Ok(found)
}

fn read(place: &str, how: &AnchorStore) -> Result<Vec<Anchor>, CommandFailure> {
    match scheme(place) {
        None => {
            let mut text = String::new();
            if place == "-" {
                std::io::stdin().lock().read_to_string(&mut text)?;
            } else {
                text = std::fs::read_to_string(place).map_err(|e| usage(format!("{place}: {e}")))?;
            }
            parse(&text)
        }
        Some("postgres" | "postgresql") => anchor_table::select(place),
        Some("http" | "https") => {
            Err(usage("a webhook cannot be asked; save what it received, and give the file"))
        }
        Some(_) => {
            let store = open(place, how)?;
            let all = runtime()?.block_on(async {
                let mut text = Vec::new();
                let listed: Vec<_> = store.list("").try_collect().await?;
                for found in listed.iter().filter(|found| found.key.contains("audit-anchor-")) {
                    text.extend(store.get(&found.key).await?.bytes(BYTES_MAX).await?);
                }
                Ok(text)
            });
            parse(&String::from_utf8_lossy(&all.map_err(of_store)?))
        }
    }
}

/// The place itself, if a reference was given.
fn resolved(place: &GivenAddress) -> Result<String, CommandFailure> {
    let written = place.to_string();
    // `file:///dir` is a store.
    if scheme(&written).is_some() {
        return Ok(written);
    }
    Ok(place.fetch().map_err(|e| usage(e.to_string()))?.reveal().trim().to_owned())
}

fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

fn open(place: &str, how: &AnchorStore) -> Result<ObjectStoreClient, CommandFailure> {
    let cloud = CloudSettings {
        endpoint: how.endpoint.as_ref().map(|url| (**url).clone()),
        credentials: CredentialSource::Environment,
        ..CloudSettings::default()
    };
    let settings = StoreSettings { cloud, ..StoreSettings::default() };
    ObjectStoreClient::open(place, &settings).map_err(|e| usage(e.to_string()))
}

fn of_store(error: StoreError) -> CommandFailure {
    let exit = if error.is_later() { Exit::TryLater } else { Exit::Failure };
    CommandFailure(exit, error.to_string())
}
