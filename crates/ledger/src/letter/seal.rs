//! Encryption of payloads at rest: a writer need not be able to read.
//!
//! Each letter has its own key (XChaCha20-Poly1305), wrapped to a recipient: an X25519 public key
//! kept in the store. The secret key stays with the operators. So a worker can encrypt but not
//! decrypt, a rotation rewraps the keys without touching the payloads, and deleting a wrapped key
//! destroys its payload.
//!
//! Format: a payload is a 24-byte nonce and the ciphertext, bound to the letter's id and to which
//! of its payloads it is. A wrapped key is a 32-byte ephemeral public key, a nonce and the
//! ciphertext, bound to the letter's id and to the id of the recipient's key. Ciphertext moved to
//! another letter therefore does not decrypt.

mod answers;

pub use answers::AnswerWrap;

use super::envelope::Payload;
use super::error::{LetterError, Result};
use chacha20poly1305::aead::{Aead, KeyInit, Payload as Bound};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use tidegate_core::hex::{hex, unhex};
use tidegate_core::letter::LetterId;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

const NONCE: usize = 24;

/// The public key that payloads are sealed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The id of the key: the beginning of its hash, in hex.
    pub key_id: String,
    public: [u8; 32],
}

/// The secret key that opens payloads.
#[derive(Clone)]
pub struct SecretKey {
    /// The id of the key.
    pub key_id: String,
    secret: StaticSecret,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// A payload as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the letter.
    pub id: LetterId,
    /// The id of the recipient's key.
    pub key_id: String,
    /// The wrapped key.
    pub wrap: Vec<u8>,
    /// The ciphertext of the payload as received.
    pub received: Vec<u8>,
    /// The ciphertext of the current payload.
    pub current: Option<Vec<u8>>,
}

/// The key of a sealed letter, wrapped to a recipient.
#[derive(Clone, Debug)]
pub struct WrappedKey {
    /// The row number of the letter.
    pub seq: i64,
    /// The id of the letter.
    pub letter: LetterId,
    /// The id of the recipient's key.
    pub key_id: String,
    /// The wrapped key.
    pub wrap: Vec<u8>,
}

/// The key of a sealed letter, wrapped to another recipient.
#[derive(Clone, Debug)]
pub struct RewrappedKey {
    /// The row number of the letter.
    pub seq: i64,
    /// The id of the new recipient's key.
    pub key_id: String,
    /// The wrapped key.
    pub wrap: Vec<u8>,
    /// The previous wrapped key; the key is replaced only if it is still this one.
    pub before: Vec<u8>,
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| LetterError::Sealed(format!("cannot get random numbers from the system: {e}")))?;
    Ok(bytes)
}

fn key_id(public: &[u8; 32]) -> String {
    hex(Sha256::digest(public).first_chunk::<6>().map_or(&[][..], |six| six.as_slice()))
}

fn lock(key: &[u8; 32], bound: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
    let nonce = random::<NONCE>()?;
    let cipher = XChaCha20Poly1305::new_from_slice(key).map_err(|e| LetterError::Sealed(e.to_string()))?;
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Bound { msg: plain, aad: bound })
        .map_err(|_| LetterError::Sealed("cannot seal the payload".into()))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn unlock(key: &[u8; 32], bound: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let cipher = XChaCha20Poly1305::new_from_slice(key).ok()?;
    cipher.decrypt(&XNonce::from(*nonce), Bound { msg: sealed, aad: bound }).ok().map(Zeroizing::new)
}

fn bound(what: &str, id: LetterId, more: &str) -> Vec<u8> {
    [format!("tidegate-{what}-1\n").as_bytes(), &id.to_bytes(), more.as_bytes()].concat()
}

/// The wrapping key, derived from the shared secret and both public keys.
fn wrapping(shared: &[u8; 32], ephemeral: &[u8; 32], public: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    let mut hash = Sha256::new();
    hash.update(b"tidegate-wrap-1\n");
    hash.update(shared);
    hash.update(ephemeral);
    hash.update(public);
    Zeroizing::new(hash.finalize().into())
}

impl Recipient {
    /// Encrypts the payload of a letter with a new key of its own.
    pub(super) fn seal(&self, id: LetterId, payload: &Payload) -> Result<Sealed> {
        let key = Zeroizing::new(random::<32>()?);
        let current = payload.current.as_ref();
        Ok(Sealed {
            id,
            key_id: self.key_id.clone(),
            wrap: self.wrap(id, &key)?,
            received: lock(&key, &bound("payload", id, "received"), &payload.received)?,
            current: current.map(|c| lock(&key, &bound("payload", id, "current"), c)).transpose()?,
        })
    }

    fn wrap(&self, id: LetterId, key: &[u8; 32]) -> Result<Vec<u8>> {
        let ephemeral = StaticSecret::from(random::<32>()?);
        let point = PublicKey::from(&ephemeral).to_bytes();
        let shared = ephemeral.diffie_hellman(&PublicKey::from(self.public));
        if !shared.was_contributory() {
            return Err(LetterError::Sealed("invalid recipient key".into()));
        }
        let wrapping = wrapping(shared.as_bytes(), &point, &self.public);
        Ok([point.as_slice(), &lock(&wrapping, &bound("key", id, &self.key_id), key)?].concat())
    }

    /// The key as text, for the store and for files: `tidegate-recipient-1 ID HEX`.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("tidegate-recipient-1 {} {}", self.key_id, hex(&self.public))
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// When the text is not a recipient.
    pub fn from_text(text: &str) -> Result<Recipient> {
        let wrong =
            || LetterError::Sealed("not a recipient key; expected tidegate-recipient-1 ID HEX".into());
        let mut words = text.split_whitespace();
        let (Some("tidegate-recipient-1"), Some(id), Some(public)) =
            (words.next(), words.next(), words.next())
        else {
            return Err(wrong());
        };
        let public = unhex(public).filter(|public| key_id(public) == id).ok_or_else(wrong)?;
        Ok(Recipient { key_id: id.to_owned(), public })
    }
}

impl SecretKey {
    /// Generates a key.
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    pub fn generate() -> Result<SecretKey> {
        Ok(SecretKey::of(StaticSecret::from(random::<32>()?)))
    }

    fn of(secret: StaticSecret) -> SecretKey {
        SecretKey { key_id: key_id(&PublicKey::from(&secret).to_bytes()), secret }
    }

    /// The public key.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient { key_id: self.key_id.clone(), public: PublicKey::from(&self.secret).to_bytes() }
    }

    /// The key as text, for a file that only its owner may read: `tidegate-key-1 ID HEX`.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("tidegate-key-1 {} {}", self.key_id, hex(self.secret.as_bytes())))
    }

    /// The keys in a text, one per line.
    ///
    /// # Errors
    /// When a line is not a key.
    pub fn all_from_text(text: &str) -> Result<Vec<SecretKey>> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| {
                let mut words = line.split_whitespace();
                let key = (words.next() == Some("tidegate-key-1")).then(|| (words.next(), words.next()));
                let Some((Some(id), Some(secret))) = key else {
                    return Err(LetterError::Sealed("not a key; expected tidegate-key-1 ID HEX".into()));
                };
                let key = unhex(secret).map(|secret| SecretKey::of(StaticSecret::from(secret)));
                key.filter(|key| key.key_id == id)
                    .ok_or_else(|| LetterError::Sealed(format!("key {id} is damaged: its id does not match")))
            })
            .collect()
    }

    fn unwrap(&self, id: LetterId, wrap: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let (point, sealed) = wrap.split_first_chunk::<32>()?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(*point));
        let public = PublicKey::from(&self.secret).to_bytes();
        let wrapping = wrapping(shared.as_bytes(), point, &public);
        let key = unlock(&wrapping, &bound("key", id, &self.key_id), sealed)?;
        <[u8; 32]>::try_from(key.as_slice()).ok().map(Zeroizing::new)
    }
}

/// The secret keys available to decrypt payloads.
#[derive(Clone, Debug, Default)]
pub struct Keyring(pub Vec<SecretKey>);

impl Keyring {
    fn find(&self, key_id: &str) -> Result<&SecretKey> {
        self.0.iter().find(|key| key.key_id == key_id).ok_or_else(|| {
            LetterError::Sealed(format!(
                "the payload is sealed with key {key_id}, which was not given; pass it with --key"
            ))
        })
    }

    fn record_key(&self, id: LetterId, key_id: &str, wrap: &[u8]) -> Result<Zeroizing<[u8; 32]>> {
        let broken = || {
            LetterError::Sealed(format!(
                "cannot open the key of letter {id}: it was changed, moved or destroyed"
            ))
        };
        self.find(key_id)?.unwrap(id, wrap).ok_or_else(broken)
    }

    /// Decrypts a payload.
    ///
    /// # Errors
    /// When the key is missing, or the payload is not what was sealed for this letter.
    pub fn open(&self, sealed: &Sealed) -> Result<Payload> {
        let key = self.record_key(sealed.id, &sealed.key_id, &sealed.wrap)?;
        let open = |what: &str, bytes: &[u8]| {
            unlock(&key, &bound("payload", sealed.id, what), bytes).map(|plain| plain.to_vec()).ok_or_else(
                || {
                    LetterError::Sealed(format!(
                        "the payload of letter {} was changed after it was sealed",
                        sealed.id
                    ))
                },
            )
        };
        Ok(Payload {
            received: open("received", &sealed.received)?,
            current: sealed.current.as_deref().map(|bytes| open("current", bytes)).transpose()?,
        })
    }

    /// Encrypts a changed payload with the letter's own key.
    ///
    /// # Errors
    /// As [`Keyring::open`].
    pub fn reseal(&self, sealed: &Sealed, plain: &[u8]) -> Result<Vec<u8>> {
        let key = self.record_key(sealed.id, &sealed.key_id, &sealed.wrap)?;
        lock(&key, &bound("payload", sealed.id, "current"), plain)
    }

    /// Wraps a letter's key to another recipient.
    ///
    /// # Errors
    /// As [`Keyring::open`].
    pub fn rewrap(&self, wrapped: &WrappedKey, to: &Recipient) -> Result<RewrappedKey> {
        let key = self.record_key(wrapped.letter, &wrapped.key_id, &wrapped.wrap)?;
        Ok(RewrappedKey {
            seq: wrapped.seq,
            key_id: to.key_id.clone(),
            wrap: to.wrap(wrapped.letter, &key)?,
            before: wrapped.wrap.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_only_with_its_key_for_its_letter() {
        let (mine, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let payload = Payload { received: b"as it came".to_vec(), current: Some(b"as it is".to_vec()) };
        let sealed = mine.recipient().seal(LetterId(7), &payload).unwrap();
        let keys = Keyring(vec![other.clone(), mine.clone()]);
        assert_eq!(keys.open(&sealed), Ok(payload.clone()));
        assert!(!sealed.received.windows(5).any(|w| w == b"as it"));
        let missing = Keyring(vec![other.clone()]).open(&sealed).unwrap_err().to_string();
        assert!(missing.contains(&mine.key_id), "{missing}");
        let mut wrong_id = other.clone();
        wrong_id.key_id.clone_from(&mine.key_id);
        assert!(Keyring(vec![wrong_id]).open(&sealed).is_err(), "the wrong key under the right name");
        let twin = mine.recipient().seal(LetterId(8), &payload).unwrap();
        for swapped in [
            Sealed { id: LetterId(8), ..sealed.clone() },
            Sealed { received: twin.received.clone(), ..sealed.clone() },
            Sealed { wrap: twin.wrap.clone(), ..sealed.clone() },
            Sealed { received: sealed.current.clone().unwrap(), ..sealed.clone() },
            Sealed { wrap: Vec::new(), ..sealed.clone() },
        ] {
            assert!(keys.open(&swapped).is_err(), "swapped ciphertext must not open");
        }
    }

    #[test]
    fn a_rotation_leaves_the_payload_and_the_old_key_out() {
        let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let payload = Payload { received: vec![1, 2, 3], current: None };
        let mut sealed = old.recipient().seal(LetterId(1), &payload).unwrap();
        let wrapped = WrappedKey {
            seq: 1,
            letter: LetterId(1),
            key_id: sealed.key_id.clone(),
            wrap: sealed.wrap.clone(),
        };
        let wrapped = Keyring(vec![old.clone()]).rewrap(&wrapped, &new.recipient()).unwrap();
        (sealed.wrap, sealed.key_id) = (wrapped.wrap, wrapped.key_id);
        assert_eq!(Keyring(vec![new]).open(&sealed), Ok(payload));
        assert!(Keyring(vec![old]).open(&sealed).is_err());
    }

    #[test]
    fn keys_as_text() {
        let key = SecretKey::generate().unwrap();
        let again = SecretKey::all_from_text(&format!("# mine\n{}\n", *key.to_text())).unwrap();
        assert_eq!(again[0].recipient(), key.recipient());
        assert_eq!(Recipient::from_text(&key.recipient().to_text()), Ok(key.recipient()));
        let damaged = key.to_text().replacen(&key.key_id, "000000000000", 1);
        assert!(SecretKey::all_from_text(&damaged).is_err() && Recipient::from_text("x").is_err());
        assert!(!format!("{key:?}").contains(&*key.to_text().split(' ').nth(2).unwrap().to_owned()));
    }
}
