//! `tidegate audit`: what was decided, and whether the list is what it was.

mod log;

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
use crate::out;
use crate::progress::thousands;
use log::{AuditSource, load, logs, of_manifest, signer};

/// Show the audit, or verify that nobody has touched it
///
/// Every decision of a run and every act on dead letters is an entry: who, when, what, about which
/// record, with which code, where to. Each is hashed with the one before; signed checkpoints are
/// copied outside of the database. Without a MANIFEST or a --store all audits of the state directory
/// are meant.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate audit show --act halt,route --since 24h
  tidegate audit show parcels.yaml --code INVALID_GEOMETRY --format ndjson
  tidegate audit verify
  tidegate audit verify parcels.yaml --public-key auditor/audit.pub --copies auditor/parcels.checkpoints
  tidegate audit match parcels.yaml 17 \"what the halt said\"

Exit codes: 0 the audit is whole; 1 it is not, and the first entry that was touched is named; 2 there
is no audit there.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
    Verify(Verify),
    Match(Match),
}

/// Show entries, the oldest first
#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    which: AuditSource,
    /// Of these acts: run, commit, route, gate, halt, attempt, end, capture, fix, replay, purge, …
    #[arg(long, value_name = "ACT", value_delimiter = ',')]
    act: Vec<String>,
    /// By this person
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Whose key holds this
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// With this code, such as TIMEOUT
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Whose destination holds this
    #[arg(long, value_name = "TEXT")]
    to: Option<String>,
    /// Since: 24h, 7d, 2026-11-01 or 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// So many at most, the last ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// How to answer
    #[arg(long, value_enum, default_value_t = AuditFormat::Table)]
    format: AuditFormat,
}

/// Verify that nobody has touched it
///
/// The keys and copies beside the audit are used unless others are given: those that were kept
/// elsewhere are the ones to trust.
#[derive(clap::Args)]
struct Verify {
    #[command(flatten)]
    which: AuditSource,
    /// The public keys that may have signed, one per line
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// The copies of the checkpoints
    #[arg(long, value_name = "FILE")]
    copies: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = AuditFormat::Table)]
    format: AuditFormat,
}

/// Tell whether a value is the one that an entry only commits to
#[derive(clap::Args)]
struct Match {
    /// The manifest
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The number of the entry
    #[arg(value_name = "ENTRY")]
    entry: i64,
    /// The value
    #[arg(value_name = "VALUE")]
    value: String,
    /// The state directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate")]
    state: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditFormat {
    /// For people
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

/// An entry for machines; also `dlq audit` and `dlq show`.
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
    for mut log in logs(&args.which)? {
        let done = log.verify(args)?;
        let name = log.name();
        if done.is_err() {
            exit = Exit::Failure;
        }
        values.push(match &done {
            Ok(whole) => json!({
                "log": name, "whole": true, "entries": whole.entries, "checkpoints": whole.checkpoints,
                "key": whole.key, "copied": whole.copied, "hash": whole.hash,
            }),
            Err(finding) => json!({
                "log": name, "whole": false, "entry": finding.n, "fault": finding.fault.as_str(), "why": finding.why,
            }),
        });
        text.push_str(&match &done {
            Ok(whole) => format!("{name}: {}\n", told(whole)),
            Err(finding) => format!("{name}: NOT WHOLE: {finding}\n"),
        });
    }
    Ok((exit, if args.format == AuditFormat::Table { text } else { list(values, args.format) }))
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
        0 => "no copies from outside".into(),
        n if n == whole.entries => "copies reach the end".into(),
        n => format!("copies reach entry {}", thousands(n.unsigned_abs())),
    };
    format!("whole: {entries}, {points}, {signed}, {copied}")
}

fn matches(args: &Match) -> Result<(Exit, String), CommandFailure> {
    let mut log = of_manifest(&args.manifest, &args.state)?;
    let found = log.read(&AuditFilter { n: Some(args.entry), limit: 1, ..AuditFilter::default() })?;
    let Some(entry) = found.first() else { return Err(usage(format!("there is no entry {}", args.entry))) };
    let manifest = load(&args.manifest)?;
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
        return Err(usage(format!("entry {} commits to no value", args.entry)));
    }
    match sealed.iter().find(|(_, sealed)| signer.matches(sealed, &args.value)) {
        Some((name, _)) => Ok((Exit::Done, format!("entry {}: that is its {name}\n", args.entry))),
        None => Ok((Exit::Failure, format!("entry {}: that is none of its values\n", args.entry))),
    }
}
