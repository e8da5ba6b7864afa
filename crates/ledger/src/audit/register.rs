//! The register of a state directory: which logs must be there, how far each had come, and which
//! keys signed them.
//!
//! A log can show that it was changed, but not that it is gone. So every checkpoint also brings the
//! register up to date, which is signed. It never goes back: a log that no longer holds the entry
//! that the register knows was deleted, replaced or restored, and stays reported until somebody
//! accepts it with a reason. Whoever can write the whole directory can restore it as a whole; only
//! an anchor that is kept elsewhere shows that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AuditError;
use super::sign::{KEY_FILE, PublicKey, Signer};
use tidegate_client::durable;
use tidegate_core::hex::{hex, unhex_all};

/// The file of the register in a state directory.
pub const REGISTER_FILE: &str = "audit.register";
const DAMAGED: &str = "audit.register.damaged";

/// How far a log had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// The file of the log, from the state directory on.
    pub file: String,
    /// The number of its last entry.
    pub n: i64,
    /// The hash of that entry, in hex; possibly only its beginning.
    pub hash: String,
}

/// Something that was missing or new, and that somebody accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptance {
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
    /// Who accepted it.
    pub who: String,
    /// The reason.
    pub why: String,
    /// What was found.
    pub found: Vec<String>,
}

/// The register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The logs.
    pub logs: Vec<LogHead>,
    /// The ids of the keys of the directory that signed, in order.
    pub signers: Vec<String>,
    /// What was accepted.
    #[serde(default)]
    pub accepted: Vec<Acceptance>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    signature: Option<String>,
}

/// The place of a log in a register.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) dir: PathBuf,
    pub(super) file: String,
}

impl Register {
    /// Reads the register of a directory.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Option<Register>, AuditError> {
        let path = dir.join(REGISTER_FILE);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| AuditError::file(&path, e)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(AuditError::file(&path, e)),
        }
    }

    fn message(&self) -> Result<Vec<u8>, AuditError> {
        let unsigned = Register { key: None, signature: None, ..self.clone() };
        let mut out = b"tidegate-audit-register-1\n".to_vec();
        serde_json::to_writer(&mut out, &unsigned).map_err(AuditError::database)?;
        Ok(out)
    }

    fn write(mut self, dir: &Path, signer: &Signer) -> Result<(), AuditError> {
        (self.key, self.signature) = (Some(signer.key_id.clone()), Some(hex(&signer.sign(&self.message()?))));
        let path = dir.join(REGISTER_FILE);
        let text = serde_json::to_string_pretty(&self).map_err(AuditError::database)?;
        durable::replace(&path, format!("{text}\n").as_bytes()).map_err(|e| AuditError::file(&path, e))
    }

    /// What is wrong with the register of a directory itself, and with the keys in `public`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn findings(&self, dir: &Path, public: &[(PublicKey, bool)]) -> Result<Vec<String>, AuditError> {
        let mut found = Vec::new();
        if dir.join(DAMAGED).exists() {
            found.push(format!("the register was damaged; {DAMAGED} may name further logs"));
        }
        let message = self.message()?;
        let signature = self.signature.as_deref().and_then(unhex_all).unwrap_or_default();
        let signed = public
            .iter()
            .any(|(key, _)| self.key.as_ref() == Some(&key.key_id) && key.verifies(&message, &signature));
        if !signed && !public.is_empty() {
            found.push(format!("{REGISTER_FILE} is not signed with a key of audit.pub; it was changed"));
        }
        let first = self.signers.first();
        for (key, _) in public.iter().filter(|(key, known)| !known && Some(&key.key_id) != first) {
            if self.accepted.iter().any(|accepted| accepted.found.iter().any(|f| f.contains(&key.key_id))) {
                continue;
            }
            found.push(format!(
                "key {} was made without the key before it, which was lost or replaced",
                key.key_id
            ));
        }
        for id in &self.signers {
            if !public.iter().any(|(key, _)| key.key_id == *id) {
                found.push(format!("key {id}, which signed here, is no longer in audit.pub"));
            }
        }
        Ok(found)
    }

    /// Accepts what was found: the logs are as they are now.
    ///
    /// # Errors
    /// When the register cannot be written.
    pub fn accept(
        dir: &Path,
        logs: Vec<LogHead>,
        signer: &Signer,
        acceptance: Acceptance,
    ) -> Result<(), AuditError> {
        let _lock = lock(dir)?;
        let mut register = Register::read(dir).ok().flatten().unwrap_or_default();
        register.accepted.push(acceptance);
        (register.logs, register.signers) = (logs, vec![signer.key_id.clone()]);
        register.write(dir, signer)?;
        match fs::remove_file(dir.join(DAMAGED)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(AuditError::file(&dir.join(DAMAGED), e)),
            _ => Ok(()),
        }
    }
}

fn lock(dir: &Path) -> Result<fs::File, AuditError> {
    let path = dir.join("audit.register.lock");
    let lock = durable::private(&path).and_then(|file| file.lock().map(|()| file));
    lock.map_err(|e| AuditError::file(&path, e))
}

impl Registration {
    /// Brings the register up to date with the end of the log. `hash_at` is the hash of an entry.
    pub(super) fn note(
        &self,
        signer: &Signer,
        (n, hash): (i64, String),
        hash_at: impl FnOnce(i64) -> Result<Option<String>, AuditError>,
    ) -> Result<(), AuditError> {
        let _lock = lock(&self.dir)?;
        let mut register = match Register::read(&self.dir) {
            Ok(register) => register.unwrap_or_default(),
            Err(_) => {
                // Evidence stays; the logs register themselves anew.
                let (from, to) = (self.dir.join(REGISTER_FILE), self.dir.join(DAMAGED));
                durable::rename(&from, &to).map_err(|e| AuditError::file(&from, e))?;
                Register::default()
            }
        };
        let known = register.logs.iter_mut().find(|known| known.file == self.file);
        match known {
            Some(known) if known.hash == hash => return Ok(()),
            // The log has lost what is known of it: that must stay known.
            Some(known) if hash_at(known.n)?.as_ref() != Some(&known.hash) => return Ok(()),
            Some(known) => (known.n, known.hash) = (n, hash),
            None => register.logs.push(LogHead { file: self.file.clone(), n, hash }),
        }
        register.logs.sort_by(|a, b| a.file.cmp(&b.file));
        // A log with a key of its own is registered under the key of the directory, if it has one.
        let path = self.dir.join(KEY_FILE);
        let own = fs::read_to_string(&path).ok().map(|text| Signer::from_text(&text)).transpose()?;
        if let Some(own) = &own
            && !register.signers.contains(&own.key_id)
        {
            register.signers.push(own.key_id.clone());
        }
        register.write(&self.dir, own.as_ref().unwrap_or(signer))
    }
}
