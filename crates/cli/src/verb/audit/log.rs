//! Finds the audit log that is meant, and the keys and copies to verify it.

use std::path::{Path, PathBuf};

use tidegate_client::secret::SecretRef;
use tidegate_ledger::audit::{
    AuditEntry, AuditFilter, AuditLog, Copies, LogHead, PUBLIC_FILE, PublicKey, REGISTER_FILE, RepairedCopy,
    Signer, TamperFinding, TrustAnchors, VerifiedLog,
};
use tidegate_ledger::letter::{LetterStore, LetterStoreLocation};
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::run::{AUDIT_COPIES, AUDIT_FILE, StateDir};

use super::{CommandFailure, Trust, failure, usage};
use crate::given::GivenAddress;
use crate::verb::plan;

/// Selects an audit log.
#[derive(clap::Args)]
pub(super) struct AuditSource {
    /// Manifest whose runs were audited
    #[arg(value_name = "MANIFEST")]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    include: plan::IncludeArgs,
    /// State directory
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = crate::verb::calls::state_dir())]
    state: PathBuf,
    /// Dead letter store whose audit to use: a file, postgres://…, or env:NAME and file:PATH that contain either
    #[arg(long, value_name = "STORE", conflicts_with = "manifest")]
    store: Option<GivenAddress>,
}

/// An audit log: of a run or of a dead-letter store.
pub(super) enum Log {
    Run { name: String, book: Box<AuditLog>, public: PathBuf, own: Option<PublicKey>, copies: PathBuf },
    Letters { name: String, store: Box<LetterStore> },
}

impl Log {
    pub(super) fn name(&self) -> &str {
        match self {
            Log::Run { name, .. } | Log::Letters { name, .. } => name,
        }
    }

    /// Its name in a register and in an anchor: its file, from the state directory on.
    pub(super) fn file(&self) -> String {
        match self {
            Log::Run { name, .. } => format!("{name}/{AUDIT_FILE}"),
            Log::Letters { store, .. } => match store.place() {
                LetterStoreLocation::File(path) => {
                    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
                }
                LetterStoreLocation::Url(_) => "letters".to_owned(),
            },
        }
    }

    /// The hash of an entry.
    pub(super) fn hash_at(&mut self, n: i64) -> Result<Option<String>, CommandFailure> {
        match self {
            Log::Run { book, .. } => book.hash_at(n).map_err(failure),
            Log::Letters { store, .. } => Ok(store.audit_hash_at(n)?),
        }
    }

    /// How far it has come; `None` if it has no entry.
    pub(super) fn head(&mut self) -> Result<Option<LogHead>, CommandFailure> {
        let last = self.read(&AuditFilter { limit: 1, ..AuditFilter::default() })?;
        let file = self.file();
        Ok(last.first().map(|entry| LogHead { file, n: entry.n, hash: entry.hash.clone() }))
    }

    /// Whether a register knows it.
    pub(super) fn is_registered(&mut self) -> Result<bool, CommandFailure> {
        match self {
            Log::Run { book, .. } => book.is_registered().map_err(failure),
            Log::Letters { store, .. } => Ok(store.audit_is_registered()?),
        }
    }

    pub(super) fn read(&mut self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, CommandFailure> {
        match self {
            Log::Run { book, .. } => book.read(filter).map_err(failure),
            Log::Letters { store, .. } => Ok(store.audit_read(filter)?),
        }
    }

    /// The file of copied checkpoints: the one that was named, or the log's own.
    pub(super) fn copies(&self, named: Option<&Path>) -> Result<Option<Copies>, CommandFailure> {
        if let Some(path) = named {
            if !path.exists() {
                return Err(usage(format!("no checkpoint copies at {}", path.display())));
            }
            let log = if let Log::Run { name, .. } = self { name.as_str() } else { "letters" };
            return Ok(Some(Copies::new(path, log)));
        }
        Ok(match self {
            Log::Run { name, copies, .. } => Some(Copies::new(copies, name)),
            Log::Letters { store, .. } => store.audit_copies(),
        })
    }

    pub(super) fn verify(&mut self, args: &Trust) -> Result<Verification, CommandFailure> {
        let mut trust = match self {
            Log::Run { public, own, .. } => {
                let mut keys = if public.exists() { keys(public)? } else { Vec::new() };
                keys.extend(own.clone());
                TrustAnchors { keys, copies: Vec::new() }
            }
            Log::Letters { store, .. } => store.audit_trust()?,
        };
        if let Some(path) = &args.public_key {
            trust.keys = keys(path)?;
        }
        let copies = self.copies(args.copies.as_deref())?;
        let held = copies.as_ref().map(Copies::read).transpose().map_err(failure)?.unwrap_or_default();
        trust.copies = held.checkpoints;
        let found = match self {
            Log::Run { book, .. } => book.verify(&trust).map_err(failure)?,
            Log::Letters { store, .. } => store.audit_check(&trust)?,
        };
        let (mut letters, mut unsigned) = (Vec::new(), Vec::new());
        if let Log::Letters { store, .. } = self {
            store.check_letters()?;
            letters.extend(store.damaged().iter().map(|(id, how)| format!("letter {id}: {how}")));
            unsigned = store.check_signed()?;
        }
        Ok(Verification { found, copies, damaged: held.damaged, letters, unsigned })
    }

    /// Writes the copies of a log anew that was verified.
    pub(super) fn repair(&mut self, copies: &Copies) -> Result<RepairedCopy, CommandFailure> {
        match self {
            Log::Run { book, .. } => book.repair(copies).map_err(failure),
            Log::Letters { store, .. } => Ok(store.audit_repair(copies)?),
        }
    }
}

/// What was found in a log and in its copies.
pub(super) struct Verification {
    pub(super) found: Result<VerifiedLog, TamperFinding>,
    /// The copies that were used.
    pub(super) copies: Option<Copies>,
    /// The lines of their file that are damaged.
    pub(super) damaged: Vec<usize>,
    /// The letters beside the log that are damaged, and how.
    pub(super) letters: Vec<String>,
    /// The definitions and settings beside the log that are not as they were signed.
    pub(super) unsigned: Vec<String>,
}

impl Verification {
    /// What is wrong with the copies, if something is.
    pub(super) fn copy_damage(&self) -> Option<String> {
        let path = self.copies.as_ref()?.path().display();
        let lines = match self.damaged.as_slice() {
            [] => return None,
            [one] => format!("line {one}"),
            [first, .., last] => format!("{} lines from {first} to {last}", self.damaged.len()),
        };
        Some(format!("the copy {path} is damaged at {lines}"))
    }
}

fn keys(path: &Path) -> Result<Vec<PublicKey>, CommandFailure> {
    let at = |e: &dyn std::fmt::Display| usage(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
    PublicKey::all_from_text(&text).map_err(|e| at(&e))
}

/// The audit log of the runs in a state directory.
fn of_run(state: &Path, dir: &Path, copies: Option<PathBuf>) -> Result<Log, CommandFailure> {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let book = AuditLog::look(&dir.join(AUDIT_FILE), &name).map_err(failure)?;
    let copies = copies.unwrap_or_else(|| dir.join(AUDIT_COPIES));
    Ok(Log::Run { name, book: Box::new(book), public: state.join(PUBLIC_FILE), own: None, copies })
}

fn of_letters(at: LetterStoreLocation) -> Result<Log, CommandFailure> {
    if let LetterStoreLocation::File(path) = &at
        && !path.exists()
    {
        return Err(usage(format!("no dead letter store at {at}")));
    }
    let store = LetterStore::open(&at)?;
    Ok(Log::Letters { name: at.to_string(), store: Box::new(store) })
}

pub(super) fn load(file: &Path, include: &plan::IncludeArgs) -> Result<Manifest, CommandFailure> {
    plan::load(file, &include.options())
        .ok_or_else(|| usage(format!("{} is not a valid manifest", file.display())))
}

pub(super) fn of_manifest(
    file: &Path,
    include: &plan::IncludeArgs,
    state: &Path,
) -> Result<Log, CommandFailure> {
    let manifest = load(file, include)?;
    let dir = StateDir::dir_of(state, &manifest.pipeline.id);
    if !dir.join(AUDIT_FILE).exists() {
        return Err(usage(format!(
            "{} has no runs in the state directory {}; set it with --state",
            file.display(),
            state.display()
        )));
    }
    let copies = manifest.pipeline.audit.copy.as_ref().map(|path| plan::folder(file).join(path));
    let mut log = of_run(state, &dir, copies)?;
    if let (Log::Run { own, .. }, Some(key)) = (&mut log, &manifest.pipeline.audit.key) {
        // Verification does not require the secret key.
        *own = signer(key).ok().map(|signer| signer.public());
    }
    Ok(log)
}

/// The signing key that a manifest names.
pub(super) fn signer(key: &str) -> Result<Signer, CommandFailure> {
    let from = key.parse::<SecretRef>().map_err(failure)?;
    Signer::from_text(from.fetch().map_err(failure)?.reveal()).map_err(failure)
}

pub(super) fn logs(which: &AuditSource) -> Result<Vec<Log>, CommandFailure> {
    if let Some(place) = &which.store {
        return Ok(vec![of_letters(LetterStoreLocation::of(place)?)?]);
    }
    if let Some(file) = &which.manifest {
        return Ok(vec![of_manifest(file, &which.include, &which.state)?]);
    }
    let mut all = Vec::new();
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(&which.state).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    dirs.sort();
    for dir in dirs.iter().filter(|dir| dir.join(AUDIT_FILE).exists()) {
        all.push(of_run(&which.state, dir, None)?);
    }
    let letters = which.state.join("letters.db");
    if letters.exists() {
        all.push(of_letters(LetterStoreLocation::File(letters))?);
    }
    // A register without logs is a finding of `verify`.
    if all.is_empty() && !which.state.join(REGISTER_FILE).exists() {
        return Err(usage(format!("no audit in {}; set --state or --store", which.state.display())));
    }
    Ok(all)
}

impl AuditSource {
    /// The state directory, if the logs are those of one.
    pub(super) fn state(&self) -> Option<&Path> {
        self.store.is_none().then_some(self.state.as_path())
    }

    /// Whether all logs of the state directory are meant.
    pub(super) fn is_whole(&self) -> bool {
        self.store.is_none() && self.manifest.is_none()
    }
}
