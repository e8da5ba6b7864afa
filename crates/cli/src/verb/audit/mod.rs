//! `tidegate audit`: shows and verifies audit logs.

mod anchor;
#[cfg(not(feature = "postgres"))]
#[path = "no_anchor_table.rs"]
mod anchor_table;
#[cfg(feature = "postgres")]
mod anchor_table;
mod log;
mod register;

use std::io;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidegate_core::time::calendar::rfc3339;
use tidegate_ledger::audit::{AuditEntry, AuditFilter, KEY_FILE, Signer, VerifiedLog};
use tidegate_ledger::letter::now_ms;

use super::dlq::filter::time;
use super::dlq::table::table;
use crate::exit::{CommandFailure, Exit, failure, usage};
use crate::given::GivenAddress;
use crate::out;
use crate::progress::thousands;
use crate::verb::plan;
use log::{AuditSource, load, logs, of_manifest, signer};

/// Show the audit, or verify that it is unmodified
///
/// Every decision of a run and every action on dead letters is an entry: who, when, what, which record,
/// code and destination. Each entry includes the hash of the previous one; signed checkpoints are copied
/// outside the database. Without MANIFEST or --store, all audits of the state directory are used.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate audit show --act halt,route --since 24h
  tidegate audit show parcels.yaml --code INVALID_GEOMETRY --format ndjson
  tidegate audit verify
  tidegate audit verify parcels.yaml --public-key auditor/audit.pub --copies auditor/parcels.checkpoints
  tidegate audit repair-copies
  tidegate audit anchor --to /mnt/elsewhere/anchors.txt
  tidegate audit verify --anchor /mnt/elsewhere/anchors.txt
  tidegate audit match parcels.yaml 17 \"what the halt said\"

Exit codes: 0 success, the audit is intact; 1 the audit was modified, the first modified entry is shown, or a copy or a letter is damaged, or a
definition or a setting of a letter store is not as it was signed;
2 no audit found; 75 the server of the store is down, try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
    Verify(Verify),
    RepairCopies(RepairCopies),
    Accept(register::Accept),
    Anchor(anchor::AnchorArgs),
    Match(Match),
}

/// Show entries, oldest first
#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    which: AuditSource,
    /// Select by act: run, commit, route, gate, halt, attempt, end, capture, fix, replay, purge, …
    #[arg(long, value_name = "ACT", value_delimiter = ',')]
    act: Vec<String>,
    /// Select by user
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Select by text in the key
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Select by code, such as TIMEOUT
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Select by text in the destination
    #[arg(long, value_name = "TEXT")]
    to: Option<String>,
    /// Show entries since: 24h, 7d, 2026-11-01 or 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show entries before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of entries, the latest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = AuditFormat::Table)]
    format: AuditFormat,
}

/// Verify that the audit is unmodified
///
/// By default the public key and the checkpoint copies next to the audit are used; trust those that
/// were kept elsewhere.
#[derive(clap::Args)]
struct Verify {
    #[command(flatten)]
    which: AuditSource,
    #[command(flatten)]
    trust: Trust,
    /// Where heads are kept that the audits must contain: a file, - for standard input, s3://BUCKET/FOLDER,
    /// postgres://…, or env:NAME and file:PATH that contain one of them
    #[arg(long, value_name = "PLACE")]
    anchor: Option<GivenAddress>,
    #[command(flatten)]
    anchors: anchor::AnchorStore,
    /// Output format
    #[arg(long, value_enum, default_value_t = AuditFormat::Table)]
    format: AuditFormat,
}

/// What is trusted.
#[derive(clap::Args)]
struct Trust {
    /// File with trusted public keys, one per line
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// File with copies of the checkpoints
    #[arg(long, value_name = "FILE")]
    copies: Option<PathBuf>,
}

/// Write damaged copies of the checkpoints anew, from an audit that is intact
///
/// The audit is verified first. The damaged file stays beside the new one, with the ending .damaged.
/// A copy that is longer than what the audit holds is left as it is: it may be evidence.
#[derive(clap::Args)]
struct RepairCopies {
    #[command(flatten)]
    which: AuditSource,
    #[command(flatten)]
    trust: Trust,
}

/// Check a value against the commitment in an entry
#[derive(clap::Args)]
struct Match {
    /// Manifest file
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    #[command(flatten)]
    include: plan::IncludeArgs,
    /// Number of the entry
    #[arg(value_name = "ENTRY")]
    entry: i64,
    /// Value to check
    #[arg(value_name = "VALUE")]
    value: String,
    /// State directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = crate::verb::calls::state_dir())]
    state: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditFormat {
    /// Text
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Ndjson,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let done = match &args.what {
        Command::Show(args) => show(args),
        Command::Verify(args) => verify(args),
        Command::RepairCopies(args) => repair(args),
        Command::Accept(args) => register::accept(args),
        Command::Anchor(args) => anchor::run(args),
        Command::Match(args) => matches(args),
    };
    match done {
        Ok((exit, text)) => {
            out::data(&text)?;
            Ok(exit)
        }
        Err(CommandFailure(exit, why)) => {
            out::say(&format!("tidegate audit: {why}"));
            Ok(exit)
        }
    }
}

/// An audit entry as JSON; also used by `dlq audit` and `dlq show`.
pub(crate) fn entry(log: Option<&str>, e: &AuditEntry) -> Value {
    let detail: Value = serde_json::from_str(&e.detail).unwrap_or_default();
    let mut value = json!({
        "n": e.n, "at": rfc3339(e.at_ms), "who": e.who, "act": e.act, "letter": e.letter.map(|id| id.to_string()),
        "key": e.key, "code": e.code, "to": e.dest, "detail": detail, "hash": e.hash,
    });
    if let Some(log) = log {
        value["log"] = log.into();
    }
    value
}

fn list(values: Vec<Value>, format: AuditFormat) -> String {
    match format {
        AuditFormat::Ndjson => values.iter().map(|value| format!("{value}\n")).collect(),
        _ => format!("{:#}\n", Value::Array(values)),
    }
}

fn show(args: &Show) -> Result<(Exit, String), CommandFailure> {
    let now = now_ms();
    let at = |text: &Option<String>| text.as_deref().map(|text| time(text, now)).transpose().map_err(usage);
    let filter = AuditFilter {
        acts: args.act.clone(),
        who: args.who.clone(),
        key: args.key.clone(),
        code: args.code.clone(),
        dest: args.to.clone(),
        since_ms: at(&args.since)?,
        until_ms: at(&args.until)?,
        limit: args.limit,
        ..AuditFilter::default()
    };
    let mut entries = Vec::new();
    for mut log in logs(&args.which)? {
        let name = log.name().to_owned();
        entries.extend(log.read(&filter)?.into_iter().map(|entry| (name.clone(), entry)));
    }
    entries.sort_by_key(|(_, entry)| entry.at_ms);
    let skip = entries.len().saturating_sub(args.limit as usize);
    let entries = entries.split_off(skip);
    if args.format != AuditFormat::Table {
        let values = entries.iter().map(|(log, e)| entry(Some(log), e)).collect();
        return Ok((Exit::Done, list(values, args.format)));
    }
    let many = entries.iter().any(|(log, _)| Some(log) != entries.first().map(|(log, _)| log));
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|(log, e)| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let key = e.key.clone().or(e.letter.map(|id| id.to_string())).unwrap_or_default();
            let mut row = vec![e.n.to_string(), rfc3339(e.at_ms), e.who.clone(), e.act.clone()];
            row.extend([key, text(&e.code), text(&e.dest), e.detail.clone()]);
            if many {
                row.insert(0, log.clone());
            }
            row
        })
        .collect();
    let mut head = vec!["n", "at", "who", "act", "key", "code", "to", "detail"];
    if many {
        head.insert(0, "log");
    }
    Ok((Exit::Done, table(&head, &rows, &[usize::from(many)])))
}

fn verify(args: &Verify) -> Result<(Exit, String), CommandFailure> {
    let (mut exit, mut text, mut values) = (Exit::Done, String::new(), Vec::new());
    let mut all = logs(&args.which)?;
    for log in &mut all {
        let done = log.verify(&args.trust)?;
        let (name, damage) = (log.name(), done.copy_damage());
        if done.found.is_err() || damage.is_some() || !done.letters.is_empty() || !done.unsigned.is_empty() {
            exit = Exit::Failure;
        }
        let mut value = match &done.found {
            Ok(whole) => json!({
                "log": name, "whole": true, "entries": whole.entries, "checkpoints": whole.checkpoints,
                "key": whole.key, "copied": whole.copied, "hash": whole.hash,
            }),
            Err(finding) => json!({
                "log": name, "whole": false, "entry": finding.n, "fault": finding.fault.as_str(), "why": finding.why,
            }),
        };
        text.push_str(&match &done.found {
            Ok(whole) => format!("{name}: {}\n", told(whole)),
            Err(finding) => format!("{name}: MODIFIED: {finding}\n"),
        });
        if let Some(damage) = damage {
            let advice = match &done.found {
                Ok(_) => "; write it anew with `tidegate audit repair-copies` and the same options",
                Err(_) => "",
            };
            text.push_str(&format!("{name}: COPY DAMAGED: {damage}{advice}\n"));
            value["copy_damage"] = damage.into();
        }
        if !done.letters.is_empty() {
            text.extend(done.letters.iter().map(|what| format!("{name}: DAMAGED: {what}\n")));
            value["damaged_letters"] = done.letters.into();
        }
        if !done.unsigned.is_empty() {
            text.extend(done.unsigned.iter().map(|what| format!("{name}: NOT AS SIGNED: {what}\n")));
            value["not_as_signed"] = done.unsigned.into();
        }
        values.push(value);
    }
    let found = register::findings(&args.which, &mut all)?;
    if !found.is_empty() {
        exit = Exit::Failure;
        text.extend(found.iter().map(|what| format!("REGISTER: {what}\n")));
        text.push_str("If this was meant, accept it with `tidegate audit accept --why TEXT`\n");
        values.push(json!({ "log": null, "whole": false, "register": found }));
    }
    if let Some(place) = &args.anchor {
        let found = anchor::findings((place, &args.anchors), &args.which, &mut all)?;
        if found.is_empty() {
            text.push_str("the anchor is in the audits\n");
        } else {
            exit = Exit::Failure;
            text.extend(found.iter().map(|what| format!("ANCHOR: {what}\n")));
        }
        values.push(json!({ "log": null, "whole": found.is_empty(), "anchor": found }));
    }
    Ok((exit, if args.format == AuditFormat::Table { text } else { list(values, args.format) }))
}

fn repair(args: &RepairCopies) -> Result<(Exit, String), CommandFailure> {
    let (mut exit, mut text) = (Exit::Done, String::new());
    for mut log in logs(&args.which)? {
        let done = log.verify(&args.trust)?;
        let line = match (&done.found, done.copies.as_ref().filter(|_| !done.damaged.is_empty())) {
            (Err(finding), _) => {
                exit = Exit::Failure;
                format!("MODIFIED: {finding}; its copies are left as they are")
            }
            (Ok(_), None) => "its copies are whole".to_owned(),
            (Ok(_), Some(copies)) => {
                let repaired = log.repair(copies)?;
                let path = copies.path().display();
                let (k, damaged) = (repaired.checkpoints, repaired.damaged.display());
                format!("wrote {path} anew with {k} checkpoints; the damaged file is {damaged}")
            }
        };
        text.push_str(&format!("{}: {line}\n", log.name()));
    }
    Ok((exit, text))
}

fn told(whole: &VerifiedLog) -> String {
    let plural = |n: i64, one: &str, many: &str| {
        format!("{} {}", thousands(n.max(0).unsigned_abs()), if n == 1 { one } else { many })
    };
    let entries = plural(whole.entries, "entry", "entries");
    let points = plural(whole.checkpoints as i64, "checkpoint", "checkpoints");
    let signed = match &whole.key {
        Some(key) => format!("signed by key {key}"),
        None if whole.entries == 0 => "nothing to sign".into(),
        None => "NOT SIGNED, only the chain was checked".into(),
    };
    let copied = match whole.copied {
        0 => "no external copies".into(),
        n if n == whole.entries => "copies up to the end".into(),
        n => format!("copies up to entry {}", thousands(n.unsigned_abs())),
    };
    format!("intact: {entries}, {points}, {signed}, {copied}")
}

fn matches(args: &Match) -> Result<(Exit, String), CommandFailure> {
    let mut log = of_manifest(&args.manifest, &args.include, &args.state)?;
    let found = log.read(&AuditFilter { n: Some(args.entry), limit: 1, ..AuditFilter::default() })?;
    let Some(entry) = found.first() else { return Err(usage(format!("no entry {}", args.entry))) };
    let manifest = load(&args.manifest, &args.include)?;
    let signer = match &manifest.pipeline.audit.key {
        Some(key) => signer(key)?,
        None => {
            let path = args.state.join(KEY_FILE);
            let text =
                std::fs::read_to_string(&path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
            Signer::from_text(&text).map_err(failure)?
        }
    };
    let detail: Value = serde_json::from_str(&entry.detail).unwrap_or_default();
    let sealed: Vec<(&String, &str)> = detail
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.get("commitment")?.as_str()?)))
        .collect();
    if sealed.is_empty() {
        return Err(usage(format!("entry {} has no commitments", args.entry)));
    }
    match sealed.iter().find(|(_, sealed)| signer.matches(sealed, &args.value)) {
        Some((name, _)) => Ok((Exit::Done, format!("entry {}: the value matches {name}\n", args.entry))),
        None => {
            Ok((Exit::Failure, format!("entry {}: the value matches none of its commitments\n", args.entry)))
        }
    }
}
