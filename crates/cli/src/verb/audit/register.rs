//! Checks the logs of a state directory against its register, and accepts what was found.

use std::path::Path;

use tidegate_ledger::audit::{
    Acceptance, KEY_FILE, LogHead, PUBLIC_FILE, PublicKey, REGISTER_FILE, Register, Signer, user,
};
use tidegate_ledger::letter::now_ms;

use super::log::{AuditSource, Log, logs};
use super::{CommandFailure, Exit, failure, usage};

/// Accept what `verify` finds in the register of a state directory: logs that are gone, another key
///
/// The logs are registered as they are now, and the reason is recorded in the register. Changes inside a
/// log cannot be accepted.
#[derive(clap::Args)]
pub(super) struct Accept {
    #[command(flatten)]
    which: AuditSource,
    /// Why it is accepted
    #[arg(long, value_name = "TEXT")]
    why: String,
}

/// What the register of the state directory knows and the logs do not show.
pub(super) fn findings(which: &AuditSource, logs: &mut [Log]) -> Result<Vec<String>, CommandFailure> {
    let Some(state) = which.state() else { return Ok(Vec::new()) };
    let register = match Register::read(state) {
        Ok(Some(register)) => register,
        Ok(None) => {
            let mut known = false;
            for log in logs.iter_mut() {
                known |= log.is_registered()?;
            }
            let gone = format!("{REGISTER_FILE} is missing; it said which audits there must be");
            return Ok(if known { vec![gone] } else { Vec::new() });
        }
        Err(e) => return Ok(vec![format!("{e}; the register is damaged")]),
    };
    let mut found = register.findings(state, &public(state)?).map_err(failure)?;
    for known in &register.logs {
        match logs.iter_mut().find(|log| log.file() == known.file) {
            Some(log) => found.extend(lost(log, known, "the register")?),
            None if which.is_whole() && !state.join(&known.file).exists() => {
                found
                    .push(format!("{} is missing; the register knows {} entries of it", known.file, known.n));
            }
            None => {}
        }
    }
    Ok(found)
}

fn public(state: &Path) -> Result<Vec<(PublicKey, bool)>, CommandFailure> {
    let path = state.join(PUBLIC_FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
    PublicKey::introduced(&text).map_err(failure)
}

/// What a log has lost of what somebody knows about it.
pub(super) fn lost(log: &mut Log, known: &LogHead, who: &str) -> Result<Option<String>, CommandFailure> {
    let hash = log.hash_at(known.n)?;
    if hash.as_ref().is_some_and(|hash| hash.starts_with(&known.hash)) {
        return Ok(None);
    }
    let now = match hash {
        Some(_) => "holds another entry there".to_owned(),
        None => format!("ends with entry {}", log.head()?.map_or(0, |head| head.n)),
    };
    Ok(Some(format!(
        "{}: {who} knows entry {}, and the audit {now}; it was deleted, replaced or restored",
        known.file, known.n
    )))
}

pub(super) fn accept(args: &Accept) -> Result<(Exit, String), CommandFailure> {
    let Some(state) = args.which.state().filter(|_| args.which.is_whole()) else {
        return Err(usage("the register of a whole state directory is accepted; set only --state"));
    };
    let mut logs = logs(&args.which)?;
    let found = findings(&args.which, &mut logs)?;
    if found.is_empty() {
        return Ok((Exit::Done, "there is nothing to accept\n".into()));
    }
    let path = state.join(KEY_FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
    let signer = Signer::from_text(&text).map_err(failure)?;
    let mut heads = Vec::new();
    for log in &mut logs {
        heads.extend(log.head()?);
    }
    let text = found.iter().map(|what| format!("accepted: {what}\n")).collect();
    let acceptance = Acceptance { at_ms: now_ms(), who: user(), why: args.why.clone(), found };
    Register::accept(state, heads, &signer, acceptance).map_err(failure)?;
    Ok((Exit::Done, text))
}
