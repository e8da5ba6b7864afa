//! Archives letters to a directory or an object store: NDJSON compressed with zstd, with a manifest
//! of hashes.
//!
//! Files are written first, then the manifest. Then everything is read back and compared, and only
//! then are the letters marked as archived. A purge of archived letters takes no others. A file is
//! named by its hash, so an interrupted archive that is repeated writes the same files.

use super::error::{LetterError, Result};
use super::filter::LetterFilter;
use super::store::{LetterPage, LetterStore, StoredLetter};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_client::store as object;
use tidegate_core::bucket::CredentialSource;
use tidegate_core::hex::hex;
use tidegate_core::letter::LetterState;
use tokio::runtime::Runtime;

/// The most letters in one file.
const LETTERS_PER_FILE: usize = 20_000;
/// The largest archive file that is read back, in bytes.
const FILE_MAX: usize = 1 << 31;

/// The manifest of an archive, stored as a file of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveManifest {
    /// The version of the format: `tidegate-letters-1`.
    pub format: String,
    /// Time of creation, in milliseconds since 1970.
    pub made_ms: i64,
    /// The user who archived.
    pub who: String,
    /// The number of letters in all files.
    pub letters: u64,
    /// The files.
    pub files: Vec<ArchiveFile>,
}

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// The object key.
    pub name: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// SHA-256 of its uncompressed content, in hex.
    pub content_sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The number of letters.
    pub letters: u64,
    /// The id of the first letter.
    pub first: String,
    /// The id of the last letter.
    pub last: String,
}

fn bytes(value: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(value) {
        Ok(text) => serde_json::json!({ "text": text }),
        Err(_) => serde_json::json!({ "hex": hex(value) }),
    }
}

/// A letter as one line of NDJSON. A sealed payload stays sealed.
fn line(row: &StoredLetter) -> serde_json::Value {
    let mut line = serde_json::json!({ "letter": row.letter });
    let (received, current) = match &row.sealed {
        Some(sealed) => {
            line["sealed"] = serde_json::json!({ "key_id": sealed.key_id, "wrap": hex(&sealed.wrap) });
            (&sealed.received, sealed.current.as_ref())
        }
        None => (&row.letter.payload.received, row.letter.payload.current.as_ref()),
    };
    line["received"] = bytes(received);
    if let Some(current) = current {
        line["current"] = bytes(current);
    }
    line
}

/// The result of archiving.
#[derive(Clone, Debug, PartialEq)]
pub struct Archived {
    /// The object key of the manifest.
    pub manifest: String,
    /// The manifest.
    pub content: ArchiveManifest,
}

/// The settings of an archive in a bucket, from the usual variables.
fn settings_from_env(to: &str) -> object::StoreSettings {
    let named = to.starts_with("s3://").then(|| std::env::var("AWS_ENDPOINT_URL").ok()).flatten();
    let endpoint = named.and_then(|text| text.parse().ok());
    let mut settings = object::StoreSettings { create: true, ..object::StoreSettings::default() };
    // Whoever names the endpoint knows where it is.
    settings.cloud.private = endpoint.is_some();
    settings.cloud.endpoint = endpoint;
    settings.cloud.credentials = CredentialSource::Environment;
    settings
}

/// Archives the letters that match a filter to a directory or `s3://bucket/base`, from a thread of
/// its own: the caller may be within a runtime.
///
/// # Errors
/// As [`archive`].
pub(super) fn archive_to(
    store: &mut LetterStore,
    filter: &LetterFilter,
    to: &str,
    now_ms: i64,
) -> Result<Option<Archived>> {
    let refused = |what: String| LetterError::Refused(format!("letters cannot be archived to {to}: {what}"));
    let work = || -> Result<Option<Archived>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| refused(e.to_string()))?;
        let client = runtime.block_on(async { object::ObjectStoreClient::open(to, &settings_from_env(to)) });
        archive(store, filter, (&client.map_err(|e| refused(e.to_string()))?, &runtime), now_ms)
    };
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(refused("internal error; please report this bug".into())))
}

/// Archives the letters that match a filter; `None` if there are none. Letters that are in a
/// replay, or archived already, are left out.
///
/// Why not async: a letter store in PostgreSQL waits for its server itself, which it cannot do inside
/// a runtime.
///
/// # Errors
/// When something cannot be written or does not read back as written. Then no letter is marked.
pub fn archive(
    store: &mut LetterStore,
    filter: &LetterFilter,
    (to, runtime): (&object::ObjectStoreClient, &Runtime),
    now_ms: i64,
) -> Result<Option<Archived>> {
    let mut filter = LetterFilter { after: Some(-1), ..filter.clone() };
    let mut files = Vec::new();
    let mut marks: Vec<Vec<i64>> = Vec::new();
    let (mut text, mut rows_in, mut first, mut last) = (Vec::new(), Vec::new(), String::new(), String::new());
    loop {
        let rows = store.find(&filter, LetterPage { limit: 1000, newest_first: false, payload: true })?;
        let end = rows.last().map(|row| row.seq);
        for row in
            rows.iter().filter(|r| r.letter.state != LetterState::Planned && r.letter.archive.is_none())
        {
            if rows_in.is_empty() {
                first = row.letter.id.to_string();
            }
            last = row.letter.id.to_string();
            rows_in.push(row.seq);
            serde_json::to_writer(&mut text, &line(row)).map_err(|e| LetterError::Refused(e.to_string()))?;
            text.push(b'\n');
        }
        if !rows_in.is_empty() && (end.is_none() || rows_in.len() >= LETTERS_PER_FILE) {
            let mut file = runtime.block_on(write(to, &text, rows_in.len() as u64))?;
            (file.first, file.last) = (std::mem::take(&mut first), std::mem::take(&mut last));
            files.push(file);
            marks.push(std::mem::take(&mut rows_in));
            text.clear();
        }
        match end {
            Some(end) => filter.after = Some(end),
            None => break,
        }
    }
    if files.is_empty() {
        return Ok(None);
    }
    let letters = files.iter().map(|f| f.letters).sum();
    let who = store.who().to_owned();
    let content =
        ArchiveManifest { format: "tidegate-letters-1".into(), made_ms: now_ms, who, letters, files };
    let json = serde_json::to_vec_pretty(&content).map_err(|e| LetterError::Refused(e.to_string()))?;
    let manifest = format!("manifest-{}.json", short(&json));
    runtime.block_on(async {
        put(to, &manifest, json.clone()).await?;
        verify(to, &manifest).await
    })?;
    for (file, seqs) in content.files.iter().zip(&marks) {
        let detail = serde_json::json!({
            "manifest": manifest, "file": file.name, "sha256": file.sha256, "letters": file.letters,
        });
        store.archived(seqs, &manifest, detail, now_ms)?;
    }
    Ok(Some(Archived { manifest, content }))
}

fn short(content: &[u8]) -> String {
    hex(&Sha256::digest(content)).chars().take(16).collect()
}

async fn put(to: &object::ObjectStoreClient, name: &str, content: Vec<u8>) -> Result<()> {
    to.put(name, content.into()).await.map_err(|e| LetterError::Refused(e.to_string()))
}

async fn get(to: &object::ObjectStoreClient, name: &str) -> Result<bytes::Bytes> {
    let object = to.get(name).await.map_err(|e| LetterError::Refused(e.to_string()))?;
    object.bytes(FILE_MAX).await.map_err(|e| LetterError::Refused(e.to_string()))
}

async fn write(to: &object::ObjectStoreClient, text: &[u8], letters: u64) -> Result<ArchiveFile> {
    let packed = zstd::encode_all(text, 3).map_err(|e| LetterError::Refused(format!("zstd: {e}")))?;
    let name = format!("letters-{}.ndjson.zst", short(text));
    let file = ArchiveFile {
        name: name.clone(),
        sha256: hex(&Sha256::digest(&packed)),
        content_sha256: hex(&Sha256::digest(text)),
        bytes: packed.len() as u64,
        letters,
        first: String::new(),
        last: String::new(),
    };
    put(to, &name, packed).await?;
    Ok(file)
}

/// Reads an archive back and compares it with its manifest.
///
/// # Errors
/// The first file that differs from the manifest.
pub async fn verify(to: &object::ObjectStoreClient, manifest: &str) -> Result<ArchiveManifest> {
    let wrong =
        |what: String| LetterError::Refused(format!("the archive is incomplete: {what}; nothing was purged"));
    let content: ArchiveManifest =
        serde_json::from_slice(&get(to, manifest).await?).map_err(|e| wrong(format!("{manifest}: {e}")))?;
    for file in &content.files {
        let packed = get(to, &file.name).await?;
        if hex(&Sha256::digest(&packed)) != file.sha256 {
            return Err(wrong(format!("{} has another hash", file.name)));
        }
        let text = zstd::decode_all(&packed[..]).map_err(|e| wrong(format!("{}: {e}", file.name)))?;
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        if hex(&Sha256::digest(&text)) != file.content_sha256 || lines != file.letters {
            return Err(wrong(format!("{} holds {lines} of {} letters", file.name, file.letters)));
        }
    }
    Ok(content)
}
