//! Answers that are sealed at rest.
//!
//! A response cache holds what was asked and what was answered: addresses and places. Where the dead letters
//! of a pipeline are sealed, its answers are too, with the same key. A run has a key of its own for answers
//! and keeps it, wrapped to the recipient of the letters, in the file. Who has the secret key opens it, so
//! that a later run finds the answers; without it a run finds only its own.
//!
//! Format: an answer is a nonce of 12 bytes and the ciphertext (ChaCha20-Poly1305), bound to the key under
//! which it is stored. That is an HMAC of the request's hash, so that nobody can try addresses.

use super::{CacheKey, CachedAnswer};
use ring::{aead, hkdf, hmac};
use rusqlite::{Connection, TransactionBehavior, params};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

use crate::lock::lock;

/// The keys of earlier runs that are tried.
const KEYS_MAX: usize = 64;

/// The id of a key for answers.
pub type AnswerKeyId = [u8; 16];

/// Wraps the keys of answers to whom the dead letters are sealed.
pub trait KeyWrap: Send + Sync {
    /// The id of the recipient's key.
    fn recipient(&self) -> &str;

    /// Wraps a key.
    ///
    /// # Errors
    /// When that is not possible, with the reason.
    fn wrap(&self, id: AnswerKeyId, key: &[u8; 32]) -> Result<Vec<u8>, String>;

    /// Opens a key that was wrapped to a recipient; `None` without its secret key.
    fn unwrap(&self, id: AnswerKeyId, recipient: &str, wrapped: &[u8]) -> Option<Zeroizing<[u8; 32]>>;
}

/// A key for answers.
#[derive(Clone)]
struct AnswerKey {
    id: AnswerKeyId,
    raw: Zeroizing<[u8; 32]>,
    lookup: hmac::Key,
    cipher: Arc<aead::LessSafeKey>,
}

/// The length of a derived key.
struct KeyLen;

impl hkdf::KeyType for KeyLen {
    fn len(&self) -> usize {
        32
    }
}

fn derive(raw: &[u8; 32], what: &str) -> Option<Zeroizing<[u8; 32]>> {
    let (mut out, info) = (Zeroizing::new([0; 32]), [what.as_bytes()]);
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tidegate answers 1").extract(raw);
    extracted.expand(&info, KeyLen).ok()?.fill(out.as_mut_slice()).ok()?;
    Some(out)
}

impl AnswerKey {
    fn new(id: AnswerKeyId, raw: Zeroizing<[u8; 32]>) -> Option<AnswerKey> {
        let lookup = hmac::Key::new(hmac::HMAC_SHA256, derive(&raw, "lookup")?.as_slice());
        let cipher =
            aead::UnboundKey::new(&aead::CHACHA20_POLY1305, derive(&raw, "seal")?.as_slice()).ok()?;
        Some(AnswerKey { id, raw, lookup, cipher: Arc::new(aead::LessSafeKey::new(cipher)) })
    }

    /// The key under which the answer to a request is stored.
    fn stored(&self, key: &CacheKey) -> CacheKey {
        hmac::sign(&self.lookup, key).as_ref().try_into().unwrap_or_default()
    }

    fn seal(&self, stored: &CacheKey, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; aead::NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let bound = aead::Aad::from(stored);
        self.cipher
            .seal_in_place_append_tag(aead::Nonce::assume_unique_for_key(nonce), bound, &mut sealed)
            .ok()?;
        Some([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, stored: &CacheKey, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<{ aead::NONCE_LEN }>()?;
        let mut plain = sealed.to_vec();
        let nonce = aead::Nonce::assume_unique_for_key(*nonce);
        let len = self.cipher.open_in_place(nonce, aead::Aad::from(stored), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

/// How the answers of a run are sealed. One for all services of the run.
pub struct AnswerSeal {
    wrap: Box<dyn KeyWrap>,
    /// The key of this run.
    own: Mutex<Option<AnswerKey>>,
}

impl fmt::Debug for AnswerSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerSeal({})", self.wrap.recipient())
    }
}

/// The keys of a sealed cache: the first one seals, all of them open.
#[derive(Clone)]
pub(super) struct AnswerKeys(Arc<Vec<AnswerKey>>);

/// What a sealed cache needs beside the tables of any cache.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS answer_key (
    id BLOB PRIMARY KEY, recipient TEXT NOT NULL, wrap BLOB NOT NULL, made INTEGER NOT NULL)";

fn failed(what: impl fmt::Display) -> String {
    format!("cannot seal answers: {what}")
}

impl AnswerSeal {
    /// Answers are sealed to whom this wraps keys.
    #[must_use]
    pub fn new(wrap: impl KeyWrap + 'static) -> AnswerSeal {
        AnswerSeal { wrap: Box::new(wrap), own: Mutex::default() }
    }

    /// The keys of a cache, which gets that of this run; and whether it had none before.
    pub(super) fn keys(&self, connection: &mut Connection) -> Result<(AnswerKeys, bool), String> {
        let sql = |e: rusqlite::Error| failed(e);
        let alone = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
        alone.execute_batch(TABLE).map_err(sql)?;
        let mut known: Vec<(AnswerKeyId, String, Vec<u8>)> = Vec::new();
        {
            let mut list = alone
                .prepare("SELECT id, recipient, wrap FROM answer_key ORDER BY made DESC LIMIT ?1")
                .map_err(sql)?;
            let rows = list
                .query_map([KEYS_MAX as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .map_err(sql)?;
            for row in rows {
                known.push(row.map_err(sql)?);
            }
        }
        let is_new = known.is_empty();
        let mut opened = Vec::new();
        for (id, recipient, wrapped) in &known {
            let key = self.wrap.unwrap(*id, recipient, wrapped).and_then(|raw| AnswerKey::new(*id, raw));
            let Some(key) = key else { continue };
            if recipient != self.wrap.recipient() {
                // The key of the letters was rotated.
                let wrapped = self.wrap.wrap(*id, &key.raw).map_err(failed)?;
                let change = "UPDATE answer_key SET recipient = ?2, wrap = ?3 WHERE id = ?1";
                alone.execute(change, params![id, self.wrap.recipient(), wrapped]).map_err(sql)?;
            }
            opened.push(key);
        }
        let mut own = lock(&self.own);
        let key = match (&*own, opened.first()) {
            (Some(own), _) => own.clone(),
            (None, Some(newest)) => newest.clone(),
            (None, None) => {
                let (mut id, mut raw) = ([0; 16], Zeroizing::new([0; 32]));
                getrandom::fill(&mut id).map_err(failed)?;
                getrandom::fill(raw.as_mut_slice()).map_err(failed)?;
                AnswerKey::new(id, raw).ok_or_else(|| failed("the key cannot be used"))?
            }
        };
        let wrapped = self.wrap.wrap(key.id, &key.raw).map_err(failed)?;
        let add = "INSERT OR IGNORE INTO answer_key
                   SELECT ?1, ?2, ?3, coalesce(max(made), 0) + 1 FROM answer_key";
        alone.execute(add, params![key.id, self.wrap.recipient(), wrapped]).map_err(sql)?;
        alone.commit().map_err(sql)?;
        *own = Some(key.clone());
        opened.retain(|other| other.id != key.id);
        opened.insert(0, key);
        Ok((AnswerKeys(Arc::new(opened)), is_new))
    }
}

impl AnswerKeys {
    /// An entry as it is stored; `None` if it cannot be sealed.
    pub(super) fn seal(&self, key: &CacheKey, answer: CachedAnswer) -> Option<(CacheKey, CachedAnswer)> {
        let own = self.0.first()?;
        let stored = own.stored(key);
        let answer = CachedAnswer { answer: own.seal(&stored, &answer.answer)?, ..answer };
        Some((stored, answer))
    }

    /// The keys under which the answer to a request may be stored.
    pub(super) fn stored(&self, key: &CacheKey) -> impl Iterator<Item = CacheKey> {
        self.0.iter().map(|known| known.stored(key))
    }

    /// The answer that was stored under the key at this place of [`AnswerKeys::stored`].
    pub(super) fn open(&self, at: usize, stored: &CacheKey, sealed: &[u8]) -> Option<Vec<u8>> {
        self.0.get(at)?.open(stored, sealed)
    }
}

/// Seals the answers that a cache holds in clear, and leaves none behind; how many. Others who use that cache
/// ask again.
pub(super) fn seal_clear(sealed: &Connection, clear: &Path, keys: &AnswerKeys) -> Result<u64, String> {
    let sql = |e: rusqlite::Error| format!("cannot seal the answers in {}: {e}", clear.display());
    sealed.execute("ATTACH ?1 AS clear", [clear.to_string_lossy()]).map_err(sql)?;
    let moved = (|| -> rusqlite::Result<u64> {
        sealed.pragma_update(Some("clear"), "secure_delete", true)?;
        sealed.execute_batch("BEGIN IMMEDIATE")?;
        let mut count = 0;
        {
            let has = "SELECT count(*) FROM clear.sqlite_schema WHERE name = 'answer'";
            if sealed.query_row(has, [], |row| row.get::<_, i64>(0))? > 0 {
                let mut list = sealed.prepare("SELECT key, at_ms, job, failed, answer FROM clear.answer")?;
                let mut add = sealed.prepare(super::INSERT)?;
                let mut rows = list.query([])?;
                while let Some(row) = rows.next()? {
                    let answer = CachedAnswer {
                        at_ms: row.get(1)?,
                        job: row.get::<_, i64>(2)?.cast_unsigned(),
                        failed: row.get(3)?,
                        answer: row.get(4)?,
                    };
                    let key = row.get::<_, Vec<u8>>(0)?.try_into().ok();
                    if let Some((key, answer)) = key.and_then(|key| keys.seal(&key, answer)) {
                        super::insert(&mut add, &key, &answer)?;
                        count += 1;
                    }
                }
                sealed.execute("DELETE FROM clear.answer", [])?;
            }
        }
        sealed.execute_batch("COMMIT")?;
        Ok(count)
    })();
    if moved.is_err() {
        let _ = sealed.execute_batch("ROLLBACK");
    }
    // What the log of writes still holds goes too, unless another process uses the file.
    let swept = sealed.execute_batch("PRAGMA clear.wal_checkpoint(TRUNCATE)");
    let left = sealed.execute_batch("DETACH clear");
    let count = moved.map_err(sql)?;
    swept.and(left).map_err(sql)?;
    Ok(count)
}
