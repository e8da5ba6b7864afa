//! The Ed25519 key that signs the audit log, and the secret behind commitments.
//!
//! The secret key is `audit.key` in the state directory unless the manifest names another place.
//! The public key beside it, `audit.pub`, is for those who verify.
//!
//! A sensitive value enters the log as a commitment: HMAC-SHA-256 over a fresh nonce and the value,
//! under a secret derived from the signing key. The holder of the key can later prove which value
//! was meant; a reader of the log cannot find it by guessing.

use std::fs;
use std::io::Write;
use std::path::Path;

use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::AuditError;
use tidegate_client::durable;
use tidegate_core::hex::{hex, unhex, unhex_all};

/// The file of the secret key in a state directory.
pub const KEY_FILE: &str = "audit.key";
/// The file of the public keys in a state directory.
pub const PUBLIC_FILE: &str = "audit.pub";

/// The secret key, which signs.
pub struct Signer {
    /// The id of the key.
    pub key_id: String,
    pair: Ed25519KeyPair,
    seed: Zeroizing<[u8; 32]>,
    salt: hmac::Key,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// The public key, which verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// The id of the key: the first six bytes of its SHA-256, in hex.
    pub key_id: String,
    bytes: [u8; 32],
}

fn key_id(public: &[u8]) -> String {
    hex(Sha256::digest(public).first_chunk::<6>().map_or(&[][..], |six| six.as_slice()))
}

fn random<const N: usize>() -> Result<[u8; N], AuditError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(AuditError::NoRandomness)?;
    Ok(bytes)
}

impl Signer {
    fn of(seed: Zeroizing<[u8; 32]>) -> Result<Signer, AuditError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).map_err(AuditError::BadKey)?;
        let mut salt = Sha256::new();
        salt.update(b"tidegate-audit-salt-1\n");
        salt.update(seed.as_slice());
        let salt: Zeroizing<[u8; 32]> = Zeroizing::new(salt.finalize().into());
        let salt = hmac::Key::new(hmac::HMAC_SHA256, salt.as_slice());
        Ok(Signer { key_id: key_id(pair.public_key().as_ref()), pair, seed, salt })
    }

    /// Generates a key.
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    pub fn generate() -> Result<Signer, AuditError> {
        Signer::of(Zeroizing::new(random()?))
    }

    /// The key as text, for a file that only its owner may read: `tidegate-audit-key-1 ID HEX`.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("tidegate-audit-key-1 {} {}", self.key_id, hex(self.seed.as_slice())))
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// When the text is not a signing key. The message does not quote it.
    pub fn from_text(text: &str) -> Result<Signer, AuditError> {
        let mut words = text.split_whitespace();
        let (Some("tidegate-audit-key-1"), Some(id), Some(seed)) = (words.next(), words.next(), words.next())
        else {
            return Err(AuditError::NotASigningKey);
        };
        let signer = Signer::of(Zeroizing::new(unhex(seed).ok_or(AuditError::NotASigningKey)?))?;
        if signer.key_id == id { Ok(signer) } else { Err(AuditError::NotASigningKey) }
    }

    /// The key of a state directory, generated if there is none. Its public key is added to the
    /// public keys there.
    ///
    /// # Errors
    /// When it cannot be read or created.
    pub fn of_dir(dir: &Path) -> Result<Signer, AuditError> {
        let path = dir.join(KEY_FILE);
        let at = |e: std::io::Error| AuditError::file(&path, e);
        if !path.exists() {
            durable::make_dir(dir).map_err(at)?;
            Signer::generate()?.keep(&path)?;
        }
        let text = Zeroizing::new(fs::read_to_string(&path).map_err(at)?);
        let signer = Signer::from_text(&text).map_err(|e| AuditError::file(&path, e))?;
        signer.public().publish(&dir.join(PUBLIC_FILE))?;
        Ok(signer)
    }

    /// Replaces the key of a state directory by a new one, which the old one introduces.
    ///
    /// # Errors
    /// When there is none, or the new one cannot be written.
    pub fn rotate(dir: &Path) -> Result<(Signer, Signer), AuditError> {
        let (path, public) = (dir.join(KEY_FILE), dir.join(PUBLIC_FILE));
        let at = |e: std::io::Error| AuditError::file(&path, e);
        let text = Zeroizing::new(fs::read_to_string(&path).map_err(at)?);
        let (old, new) = (Signer::from_text(&text)?, Signer::generate()?);
        old.public().publish(&public)?;
        // Introduced first: a key that is never used does no harm.
        let line = format!("{}\n", new.public().introduced_by(&old));
        let mut file = durable::append(&public).map_err(|e| AuditError::file(&public, e))?;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|e| AuditError::file(&public, e))?;
        durable::replace(&path, format!("{}\n", *new.to_text()).as_bytes()).map_err(at)?;
        Ok((old, new))
    }

    /// Writes the key to a file atomically; an existing file is left unchanged.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, path: &Path) -> Result<(), AuditError> {
        let at = |e: std::io::Error| AuditError::file(path, e);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A temporary file is readable by its owner only.
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(at)?;
        writeln!(file, "{}", *self.to_text()).map_err(at)?;
        file.as_file().sync_all().map_err(at)?;
        match file.persist_noclobber(path) {
            Ok(_) => durable::sync_parent(path).map_err(at),
            // Another process created it first.
            Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(at(e.error)),
        }
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(self.pair.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        PublicKey { key_id: self.key_id.clone(), bytes }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    /// A commitment to a value: `NONCE:TAG` in hex.
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    pub fn commit(&self, value: &str) -> Result<String, AuditError> {
        let nonce = random::<16>()?;
        let tag = hmac::sign(&self.salt, &[nonce.as_slice(), value.as_bytes()].concat());
        Ok(format!("{}:{}", hex(&nonce), hex(tag.as_ref())))
    }

    /// Whether a commitment is to this value.
    #[must_use]
    pub fn matches(&self, commitment: &str, value: &str) -> bool {
        let parts = commitment.split_once(':');
        let Some((nonce, tag)) = parts.and_then(|(n, t)| Some((unhex::<16>(n)?, unhex::<32>(t)?))) else {
            return false;
        };
        hmac::verify(&self.salt, &[nonce.as_slice(), value.as_bytes()].concat(), &tag).is_ok()
    }
}

impl PublicKey {
    /// The key as text: `tidegate-audit-public-1 ID HEX`.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("tidegate-audit-public-1 {} {}", self.key_id, hex(&self.bytes))
    }

    /// The keys in a text, one per line.
    ///
    /// # Errors
    /// The first line that is not a public key.
    pub fn all_from_text(text: &str) -> Result<Vec<PublicKey>, AuditError> {
        let one = |line: &str| {
            let mut words = line.split_whitespace();
            let (Some("tidegate-audit-public-1"), Some(id), Some(bytes)) =
                (words.next(), words.next(), words.next())
            else {
                return None;
            };
            let bytes = unhex::<32>(bytes).filter(|bytes| key_id(bytes) == id)?;
            Some(PublicKey { key_id: id.to_owned(), bytes })
        };
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| one(line).ok_or(AuditError::NotAPublicKey))
            .collect()
    }

    /// The key as a line that the key before it has signed.
    fn introduced_by(&self, old: &Signer) -> String {
        let signature = hex(&old.sign(&self.introduction()));
        format!("{} {} {signature}", self.to_text(), old.key_id)
    }

    fn introduction(&self) -> Vec<u8> {
        let mut out = b"tidegate-audit-key-2\n".to_vec();
        out.extend(self.bytes);
        out
    }

    /// The keys of a file, and whether each is the first or was introduced by one before it.
    ///
    /// # Errors
    /// When a line is not a key.
    pub fn introduced(text: &str) -> Result<Vec<(PublicKey, bool)>, AuditError> {
        let mut all: Vec<(PublicKey, bool)> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            for key in PublicKey::all_from_text(line)? {
                let mut words = line.split_whitespace().skip(3);
                let (by, signature) = (words.next(), words.next().and_then(unhex_all));
                let known = all.iter().any(|(old, known)| {
                    *known
                        && Some(old.key_id.as_str()) == by
                        && old.verifies(&key.introduction(), signature.as_deref().unwrap_or_default())
                });
                all.push((key, known || all.is_empty()));
            }
        }
        Ok(all)
    }

    /// Adds the key to a file of public keys.
    fn publish(&self, path: &Path) -> Result<(), AuditError> {
        let at = |e: std::io::Error| AuditError::file(path, e);
        let text = self.to_text();
        if fs::read_to_string(path).is_ok_and(|known| known.lines().any(|line| line.starts_with(&text))) {
            return Ok(());
        }
        let mut file = durable::append(path).map_err(at)?;
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all()).map_err(at)
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.bytes).verify(message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_a_changed_one_does_not() {
        let signer = Signer::generate().unwrap();
        let again = Signer::from_text(&signer.to_text()).unwrap();
        assert!(signer.public().verifies(b"x", &again.sign(b"x")));
        assert!(!signer.public().verifies(b"y", &again.sign(b"x")));
        let text = signer.to_text();
        assert!(Signer::from_text(text.get(..text.len() - 1).unwrap()).is_err());
        let public = signer.public();
        assert_eq!(PublicKey::all_from_text(&public.to_text()).unwrap(), vec![public.clone()]);
        assert!(PublicKey::all_from_text(&public.to_text().replace(&public.key_id, "000000000000")).is_err());
    }

    #[test]
    fn a_commitment_shows_only_the_value_that_is_known() {
        let (ours, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
        let sealed = ours.commit("Main St 1").unwrap();
        assert!(!sealed.contains("Main") && sealed != ours.commit("Main St 1").unwrap(), "salted");
        assert!(ours.matches(&sealed, "Main St 1"));
        assert!(!ours.matches(&sealed, "Main St 2") && !other.matches(&sealed, "Main St 1"));
    }

    #[test]
    fn a_directory_has_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let first = Signer::of_dir(dir.path()).unwrap();
        assert_eq!(Signer::of_dir(dir.path()).unwrap().key_id, first.key_id);
        let public = fs::read_to_string(dir.path().join(PUBLIC_FILE)).unwrap();
        assert_eq!(PublicKey::all_from_text(&public).unwrap(), vec![first.public()]);
    }
}
