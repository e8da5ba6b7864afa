//! The response cache: a paid call is not repeated.
//!
//! Every final answer of a record (a match, an empty answer, a permanent failure) is stored under
//! the hash of its request before the run counts the record as done. A later run, or a run after a
//! crash, finds it there. An interrupted run resumes the same way: it starts again at the first row
//! and reads everything already answered from the cache.
//!
//! Format: one SQLite file in WAL mode with `synchronous=FULL`, so an acknowledged answer survives
//! a power failure. Rows are appended in the order of arrival and found through an index on the
//! first eight bytes of the hash; then the whole hash is compared. Why the hash is not the primary
//! key: hashes are random, and a table ordered by them would rewrite a page of answers per insert.
//!
//! Operation: one writer thread takes everything queued and commits it in one transaction while the
//! next batch queues. So the commit rate depends on the disk, and the rate of answers does not. The
//! queue is bounded: if the disk is too slow, callers wait. After a disk error the cache is
//! unusable, and every later call returns an error.
//!
//! Where the dead letters of a pipeline are sealed, its answers are too (`seal`), in a file of their own.
//!
//! Every row has a checksum. A row that does not match it (a bit flipped on the disk) is treated as
//! absent: the question is asked anew. Rows of older versions have none and are accepted.

mod seal;

pub use seal::{AnswerKeyId, AnswerSeal, KeyWrap};

use seal::AnswerKeys;

use crate::durable;
use crate::sqlite::write_ahead;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Statement, Transaction, TransactionBehavior, params,
};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::warn;

/// The SHA-256 of a request: the key of a cache entry.
pub type CacheKey = [u8; 32];

/// A cache entry: the answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAnswer {
    /// Time of storage, in milliseconds since 1970.
    pub at_ms: i64,
    /// The id of the job that sent the request; only the same job reuses a failure.
    pub job: u64,
    /// Whether the answer is a permanent failure.
    pub failed: bool,
    /// The answer, serialized by the caller.
    pub answer: Vec<u8>,
}

/// The cache cannot be used.
#[derive(Clone, Debug)]
pub struct CacheError {
    /// The path of the database file.
    pub path: PathBuf,
    /// The error message.
    pub what: String,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response cache {}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for CacheError {}

type PutCallback = Box<dyn FnOnce(Result<(), CacheError>) + Send>;

enum CacheCommand {
    Put(Box<(CacheKey, CachedAnswer)>, PutCallback),
    Close,
}

/// A handle to the writer thread. Clones share the thread and its queue.
#[derive(Clone)]
pub struct CacheWriter {
    commands: SyncSender<CacheCommand>,
    shared: Arc<CacheWriterInner>,
    keys: Option<AnswerKeys>,
}

struct CacheWriterInner {
    path: PathBuf,
    /// The number of answers stored.
    stored: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A read-only connection to the cache: one per thread that looks up keys.
pub struct CacheReader {
    connection: Connection,
    path: PathBuf,
    keys: Option<AnswerKeys>,
}

/// Where a cache is, and how it is sealed.
#[derive(Clone, Debug)]
pub struct CachePlace {
    /// The directory.
    pub dir: PathBuf,
    /// How answers are sealed; `None` to store them as they are.
    pub seal: Option<Arc<AnswerSeal>>,
}

impl CachePlace {
    /// A cache that is not sealed.
    #[must_use]
    pub fn clear(dir: PathBuf) -> CachePlace {
        CachePlace { dir, seal: None }
    }
}

/// The file of answers as they are, and that of sealed ones.
const FILE: &str = "responses.db";
const SEALED_FILE: &str = "responses-sealed.db";
const INSERT: &str =
    "INSERT INTO main.answer (key, at_ms, job, failed, answer, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const QUEUE: usize = 4096;
/// The longest wait for another process that prepares or writes the file.
const BUSY: Duration = Duration::from_secs(10);

/// Opens the cache in a place and creates it if it does not exist. What is in clear where answers are to be
/// sealed is sealed then.
///
/// # Errors
/// When the directory or the file cannot be created, opened or verified.
pub fn open(CachePlace { dir, seal }: &CachePlace) -> Result<(CacheWriter, CacheReader), CacheError> {
    let path = dir.join(if seal.is_some() { SEALED_FILE } else { FILE });
    let fail = |what: String| CacheError { path: path.clone(), what };
    durable::make_dir(dir).map_err(|e| fail(format!("cannot create {}: {e}", dir.display())))?;
    durable::private(&path).map_err(|e| fail(e.to_string()))?;
    let mut connection = Connection::open(&path).map_err(|e| fail(e.to_string()))?;
    prepare(&connection).map_err(|e| fail(e.to_string()))?;
    let keys = match seal {
        Some(seal) => Some(sealed(&mut connection, seal, &dir.join(FILE)).map_err(&fail)?),
        None => None,
    };
    let reader = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|e| fail(e.to_string()))?;
    let (commands, received) = sync_channel(QUEUE);
    let shared = Arc::new(CacheWriterInner {
        path: path.clone(),
        stored: AtomicU64::new(0),
        thread: Mutex::new(None),
    });
    let thread = std::thread::Builder::new()
        .name("cache-writer".into())
        .spawn({
            let shared = Arc::clone(&shared);
            move || write(connection, &received, &shared)
        })
        .map_err(|e| fail(e.to_string()))?;
    if let Ok(mut slot) = shared.thread.lock() {
        *slot = Some(thread);
    }
    let writer = CacheWriter { commands, shared, keys: keys.clone() };
    Ok((writer, CacheReader { connection: reader, path, keys }))
}

/// The keys of a sealed cache. When it gets its first one, the answers in clear beside it are sealed.
fn sealed(connection: &mut Connection, seal: &AnswerSeal, clear: &Path) -> Result<AnswerKeys, String> {
    let (keys, is_new) = seal.keys(connection)?;
    if is_new && clear.exists() {
        let count = seal::seal_clear(connection, clear, &keys)?;
        if count > 0 {
            let path = clear.display();
            warn!(
                target: "tidegate::cache",
                "sealed {count} answers that {path} held in clear; pipelines whose letters are not sealed ask for them anew"
            );
        }
    }
    Ok(keys)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    write_ahead(connection, BUSY)?;
    connection.pragma_update(None, "synchronous", "full")?;
    // Others may prepare the same file at the same time: who comes second finds it prepared.
    let alone = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    alone.execute_batch(
        "CREATE TABLE IF NOT EXISTS answer (
             id INTEGER PRIMARY KEY,
             key BLOB NOT NULL,
             at_ms INTEGER NOT NULL,
             job INTEGER NOT NULL,
             failed INTEGER NOT NULL,
             answer BLOB NOT NULL
         );
         CREATE INDEX IF NOT EXISTS answer_by_key ON answer (substr(key, 1, 8));
         PRAGMA user_version = 1;",
    )?;
    let column = "SELECT count(*) FROM pragma_table_info('answer') WHERE name = 'sum'";
    if alone.query_row(column, [], |row| row.get::<_, i64>(0))? == 0 {
        alone.execute_batch("ALTER TABLE answer ADD COLUMN sum BLOB")?;
    }
    alone.commit()
}

/// The checksum of a row: the first eight bytes of a SHA-256.
fn checksum(key: &CacheKey, stored: &CachedAnswer) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(key);
    hash.update(stored.at_ms.to_le_bytes());
    hash.update(stored.job.to_le_bytes());
    hash.update([u8::from(stored.failed)]);
    hash.update(&stored.answer);
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk().copied().unwrap_or_default()
}

fn write(mut connection: Connection, commands: &Receiver<CacheCommand>, shared: &CacheWriterInner) {
    let mut dead: Option<CacheError> = None;
    let mut batch = Vec::with_capacity(QUEUE);
    let mut open = true;
    while open {
        let Ok(first) = commands.recv() else { return };
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                CacheCommand::Put(entry, done) => batch.push((entry, done)),
                CacheCommand::Close => open = false,
            }
            next = if batch.len() < QUEUE { commands.try_recv().ok() } else { None };
        }
        if dead.is_none()
            && let Err(e) = store(&mut connection, &batch)
        {
            dead = Some(CacheError { path: shared.path.clone(), what: e.to_string() });
        }
        if dead.is_none() {
            shared.stored.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
        for (_, done) in batch.drain(..) {
            done(dead.clone().map_or(Ok(()), Err));
        }
    }
}

fn store(
    connection: &mut Connection,
    batch: &[(Box<(CacheKey, CachedAnswer)>, PutCallback)],
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut add = transaction.prepare_cached(INSERT)?;
        for (entry, _) in batch {
            let (key, stored) = entry.as_ref();
            insert(&mut add, key, stored)?;
        }
    }
    transaction.commit()
}

/// Adds an entry by [`INSERT`].
fn insert(add: &mut Statement<'_>, key: &CacheKey, stored: &CachedAnswer) -> rusqlite::Result<()> {
    add.execute(params![
        key.as_slice(),
        stored.at_ms,
        stored.job.cast_signed(),
        stored.failed,
        stored.answer,
        checksum(key, stored),
    ])?;
    Ok(())
}

impl CacheWriter {
    /// Stores an answer; calls `done` when it is durable or has failed.
    pub fn put(
        &self,
        key: CacheKey,
        stored: CachedAnswer,
        done: impl FnOnce(Result<(), CacheError>) + Send + 'static,
    ) {
        let entry = match &self.keys {
            None => Some((key, stored)),
            Some(keys) => keys.seal(&key, stored),
        };
        let Some((key, stored)) = entry else {
            let what = "cannot seal an answer: the system gives no random numbers".to_owned();
            return done(Err(CacheError { path: self.shared.path.clone(), what }));
        };
        let command = CacheCommand::Put(Box::new((key, stored)), Box::new(done));
        if let Err(std::sync::mpsc::SendError(CacheCommand::Put(_, done))) = self.commands.send(command) {
            let what = "the writer has stopped".to_string();
            done(Err(CacheError { path: self.shared.path.clone(), what }));
        }
    }

    /// The number of answers that this process has stored.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.shared.stored.load(Ordering::Relaxed)
    }

    /// Writes the queued answers and stops the writer.
    pub fn close(&self) {
        let _ = self.commands.send(CacheCommand::Close);
        let thread = self.shared.thread.lock().ok().and_then(|mut slot| slot.take());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for CacheWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheWriter").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl CacheReader {
    /// The newest answer to this request, if it is what was stored.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, key: &CacheKey) -> Result<Option<CachedAnswer>, CacheError> {
        let fail = |e: rusqlite::Error| CacheError { path: self.path.clone(), what: e.to_string() };
        let Some(keys) = &self.keys else { return self.try_get(key).map_err(fail) };
        let mut newest: Option<CachedAnswer> = None;
        for (at, stored) in keys.stored(key).enumerate() {
            let Some(found) = self.try_get(&stored).map_err(fail)? else { continue };
            // One that does not open was moved or changed: it is asked for anew.
            let Some(answer) = keys.open(at, &stored, &found.answer) else { continue };
            if newest.as_ref().is_none_or(|newest| newest.at_ms < found.at_ms) {
                newest = Some(CachedAnswer { answer, ..found });
            }
        }
        Ok(newest)
    }

    fn try_get(&self, key: &CacheKey) -> rusqlite::Result<Option<CachedAnswer>> {
        let found = self
            .connection
            .prepare_cached(
                "SELECT at_ms, job, failed, answer, sum FROM answer
                 WHERE substr(key, 1, 8) = ?1 AND key = ?2 ORDER BY id DESC LIMIT 1",
            )?
            .query_row(params![&key[..8], key.as_slice()], |row| {
                let stored = CachedAnswer {
                    at_ms: row.get(0)?,
                    job: row.get::<_, i64>(1)?.cast_unsigned(),
                    failed: row.get(2)?,
                    answer: row.get(3)?,
                };
                Ok((stored, row.get::<_, Option<Vec<u8>>>(4)?))
            })
            .optional()?;
        let Some((stored, sum)) = found else { return Ok(None) };
        if sum.is_some_and(|sum| sum != checksum(key, &stored)) {
            let path = self.path.display();
            warn!(target: "tidegate::cache", "an answer in {path} does not match its checksum; it is asked for anew");
            return Ok(None);
        }
        Ok(Some(stored))
    }
}

impl fmt::Debug for CacheReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheReader").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn stored(n: u64, failed: bool) -> CachedAnswer {
        CachedAnswer { at_ms: n as i64, job: u64::MAX - n, failed, answer: n.to_le_bytes().to_vec() }
    }

    fn key(n: u64) -> CacheKey {
        let mut key = [7; 32];
        key[24..].copy_from_slice(&n.to_le_bytes());
        key
    }

    #[test]
    fn many_open_a_new_cache_at_once() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let barrier = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        barrier.wait();
                        open(&CachePlace::clear(dir.path().to_owned())).unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn what_was_put_is_found_also_by_another_run() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, reader) = open(&CachePlace::clear(dir.path().to_owned())).unwrap();
        let (tx, rx) = channel();
        for n in 0..5000 {
            let tx = tx.clone();
            writer.put(key(n), stored(n, n % 2 == 0), move |r| tx.send(r.is_ok()).unwrap());
        }
        for _ in 0..5000 {
            assert!(rx.recv().unwrap());
        }
        // Durable once `done` was called, even though the writer is still open.
        let (_, second) = open(&CachePlace::clear(dir.path().to_owned())).unwrap();
        for n in [0, 1, 2499, 4999] {
            assert_eq!(reader.get(&key(n)).unwrap(), Some(stored(n, n % 2 == 0)));
            assert_eq!(second.get(&key(n)).unwrap(), Some(stored(n, n % 2 == 0)));
        }
        assert_eq!(reader.get(&key(5000)).unwrap(), None);
        assert_eq!(writer.stored(), 5000);
        writer.close();
        let (tx, rx) = channel();
        writer.put(key(1), stored(1, false), move |r| tx.send(r.is_err()).unwrap());
        assert!(rx.recv().unwrap(), "a closed cache says so");
    }

    #[test]
    fn the_newest_answer_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, reader) = open(&CachePlace::clear(dir.path().to_owned())).unwrap();
        writer.put(key(1), stored(1, true), |_| {});
        writer.put(key(1), stored(2, false), |_| {});
        writer.close();
        assert_eq!(reader.get(&key(1)).unwrap(), Some(stored(2, false)));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("responses.db"), vec![b'x'; 8192]).unwrap();
        let error = open(&CachePlace::clear(dir.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("responses.db") && error.contains("not a database"), "{error}");
        assert_eq!(std::fs::read(dir.path().join("responses.db")).unwrap(), vec![b'x'; 8192]);
    }

    /// Whoever has the secret is marked by a letter.
    struct Wrap(&'static str, bool);

    impl KeyWrap for Wrap {
        fn recipient(&self) -> &str {
            self.0
        }
        fn wrap(&self, id: AnswerKeyId, key: &[u8; 32]) -> Result<Vec<u8>, String> {
            Ok(key.iter().zip(id.iter().cycle()).map(|(a, b)| a ^ b ^ self.0.as_bytes()[0]).collect())
        }
        fn unwrap(
            &self,
            id: AnswerKeyId,
            recipient: &str,
            wrapped: &[u8],
        ) -> Option<zeroize::Zeroizing<[u8; 32]>> {
            let open = |(a, b): (&u8, &u8)| a ^ b ^ recipient.as_bytes()[0];
            let raw: Vec<u8> = wrapped.iter().zip(id.iter().cycle()).map(open).collect();
            self.1.then(|| zeroize::Zeroizing::new(raw.try_into().unwrap()))
        }
    }

    fn sealed_place(dir: &Path, wrap: Wrap) -> CachePlace {
        CachePlace { dir: dir.to_owned(), seal: Some(Arc::new(AnswerSeal::new(wrap))) }
    }

    fn put(writer: &CacheWriter, n: u64, answer: &[u8]) {
        let (tx, rx) = channel();
        let stored = CachedAnswer { answer: answer.to_vec(), ..stored(n, false) };
        writer.put(key(n), stored, move |r| tx.send(r.is_ok()).unwrap());
        assert!(rx.recv().unwrap());
    }

    /// All bytes of all files of a directory.
    fn bytes(dir: &Path) -> Vec<u8> {
        let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        files.flat_map(|file| std::fs::read(file).unwrap()).collect()
    }

    fn has(dir: &Path, what: &[u8]) -> bool {
        bytes(dir).windows(what.len()).any(|part| part == what)
    }

    #[test]
    fn sealed_answers_are_found_by_their_run_and_with_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let place = sealed_place(dir.path(), Wrap("a", false));
        let (writer, reader) = open(&place).unwrap();
        put(&writer, 1, b"1 Harbour Road");
        assert_eq!(reader.get(&key(1)).unwrap().unwrap().answer, b"1 Harbour Road");
        assert_eq!(reader.get(&key(2)).unwrap(), None);
        // Another service of the same run.
        assert!(open(&place).unwrap().1.get(&key(1)).unwrap().is_some());
        assert!(!has(dir.path(), b"Harbour") && !has(dir.path(), &key(1)), "in clear");
        // A later run without the secret does not find it, and stores its own.
        let (second, blind) = open(&sealed_place(dir.path(), Wrap("a", false))).unwrap();
        assert_eq!(blind.get(&key(1)).unwrap(), None);
        put(&second, 1, b"1 Harbour Road, Porto");
        put(&second, 7, b"7 Harbour Road");
        // With it, a run finds both, also after the key was rotated.
        for recipient in ["a", "b"] {
            let (_, reader) = open(&sealed_place(dir.path(), Wrap(recipient, true))).unwrap();
            assert_eq!(reader.get(&key(1)).unwrap().unwrap().answer, b"1 Harbour Road, Porto", "the newest");
            assert_eq!(reader.get(&key(7)).unwrap().unwrap().answer, b"7 Harbour Road");
        }
        let wrapped: i64 = Connection::open(dir.path().join(SEALED_FILE))
            .unwrap()
            .query_row("SELECT count(*) FROM answer_key WHERE recipient = 'b'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(wrapped, 2);
    }

    #[test]
    fn answers_in_clear_are_sealed_when_the_letters_are() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, _reader) = open(&CachePlace::clear(dir.path().to_owned())).unwrap();
        for n in 0..50 {
            put(&writer, n, format!("{n} Harbour Road").as_bytes());
        }
        writer.close();
        drop((writer, _reader));
        assert!(has(dir.path(), b"49 Harbour Road"));
        let (_, reader) = open(&sealed_place(dir.path(), Wrap("a", false))).unwrap();
        assert_eq!(reader.get(&key(49)).unwrap().unwrap().answer, b"49 Harbour Road");
        assert!(!has(dir.path(), b"Harbour Road"), "something is left");
        let (_, clear) = open(&CachePlace::clear(dir.path().to_owned())).unwrap();
        assert_eq!(clear.get(&key(49)).unwrap(), None);
    }

    #[test]
    fn a_sealed_answer_that_was_moved_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let place = sealed_place(dir.path(), Wrap("a", true));
        let (writer, reader) = open(&place).unwrap();
        put(&writer, 1, b"one");
        put(&writer, 2, b"two");
        writer.close();
        let db = Connection::open(dir.path().join(SEALED_FILE)).unwrap();
        db.execute(
            "UPDATE answer SET answer = (SELECT answer FROM answer WHERE id = 2), sum = NULL WHERE id = 1",
            [],
        )
        .unwrap();
        assert_eq!(reader.get(&key(1)).unwrap(), None);
        assert_eq!(reader.get(&key(2)).unwrap().unwrap().answer, b"two");
    }
}
