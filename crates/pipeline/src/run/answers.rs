//! Where the answers of services are cached, and how they are sealed.
//!
//! A cache of answers holds the addresses that were asked for. Where the letters of a pipeline are sealed, so
//! is its cache. The public key of the letters is enough to seal; to use what an earlier run has sealed, a run
//! needs the secret key (`dead_letters.key`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::letters;
use crate::cache::{AnswerSeal, CachePlace};
use crate::error::SetupError;
use crate::letter::LetterStore;
use crate::letter::seal::{AnswerWrap, Keyring, Recipient, SecretKey};
use crate::manifest::{DeadLetters, Manifest, ServiceSpec};
use crate::secret::SecretRef;

/// The cache of a pipeline in a state directory.
///
/// # Errors
/// When the store of letters, or the secret key, cannot be read.
pub(super) fn place(manifest: &Manifest, folder: &Path, dir: PathBuf) -> Result<CachePlace, SetupError> {
    let is_used = manifest.pipeline.services.values().any(|service: &ServiceSpec| service.cache);
    let Some(form) = manifest.pipeline.dead_letters.as_ref().filter(|_| is_used) else {
        return Ok(CachePlace::clear(dir));
    };
    let at = letters::place(form, folder, &dir)?;
    let fail = |e: crate::letter::LetterError| format!("dead_letters: {e}");
    let recipient = match LetterStore::look(&at).map_err(fail)? {
        Some(mut store) => store.setting("recipient").map_err(fail)?,
        None => None,
    };
    let Some(recipient) = recipient else { return Ok(CachePlace::clear(dir)) };
    let recipient = Recipient::from_text(&recipient).map_err(fail)?;
    let keys = secret_keys(form)?;
    if keys.0.is_empty() {
        warn!(
            target: "tidegate::cache",
            "the letters of this pipeline are sealed, and so are its cached answers: a later run cannot use them and asks again, unless `dead_letters.key` names the secret key (env:NAME or file:PATH)"
        );
    }
    Ok(CachePlace { dir, seal: Some(Arc::new(AnswerSeal::new(AnswerWrap::new(recipient, keys)))) })
}

/// The secret keys that a manifest names.
fn secret_keys(form: &DeadLetters) -> Result<Keyring, SetupError> {
    let Some(text) = &form.key else { return Ok(Keyring::default()) };
    let from = text.parse::<SecretRef>().map_err(|e| format!("dead_letters.key: {e}"))?;
    let held = from.fetch().map_err(|e| format!("dead_letters.key: {e}"))?;
    let keys =
        SecretKey::all_from_text(held.reveal()).map_err(|e| format!("dead_letters.key: {from}: {e}"))?;
    Ok(Keyring(keys))
}
