//! Lane states that persist across runs.
//!
//! `lanes.json` in the state directory holds, per lane, until when the server accepts no calls:
//! because of a hint, a spent quota or an open breaker ([`LaneState`]). No wait in it is longer than
//! servers are obeyed for: a later time is cut when the file is read, because an older version or
//! somebody else may have written it. A new lane starts with its saved state. A new wait is written when the server asks for it, by a separate thread so that no
//! call waits for the disk, and at most once a second so that many short waits do not keep the disk
//! busy; and once more at the end of the run.
//!
//! Several processes may share the directory. Each write reads the file, keeps the later of both
//! states, and renames, under a lock; so no write loses another's state. A lane is identified by a
//! hash over its host and its credential: another key is another lane, and the file contains no
//! keys. A file that cannot be parsed is reported and ignored; the next write replaces it.

use super::{Clock, LaneKey};
use crate::durable;
use crate::lock::lock;
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tidegate_core::hint::WAIT_MAX;
use tidegate_core::lane::{HintState, LaneState};
use tidegate_core::{Code, Wall};
use tracing::warn;

/// The name of the file in the state directory.
pub const FILE: &str = "lanes.json";
/// The tolerance when two readings of the same wait are compared.
pub(super) const SLACK: Duration = Duration::from_millis(50);
/// The shortest interval between two writes.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The version of the file format.
const VERSION: u32 = 1;

/// The states of all lanes. Clones share them.
#[derive(Clone)]
pub struct LaneStates(Arc<LaneStatesInner>);

struct LaneStatesInner {
    dir: PathBuf,
    clock: Clock,
    /// The longest wait that is kept.
    wait_max: Duration,
    table: Mutex<LaneStateTable>,
    /// Held while the file is written.
    writing: Mutex<()>,
    /// Wakes the writer; `None` before it is started.
    wake: Mutex<Option<SyncSender<()>>>,
}

/// The lane states in memory.
#[derive(Default)]
struct LaneStateTable {
    /// The state records by lane id.
    lanes: BTreeMap<String, LaneStateRecord>,
    /// Whether a record is newer than the file.
    dirty: bool,
    /// The hash of each credential's value, by the credential's name.
    credentials: HashMap<String, [u8; 32]>,
}

/// The id of a lane in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneId {
    pub(super) id: String,
    host: String,
}

/// The content of `lanes.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct LaneStateFile {
    version: u32,
    pub(super) lanes: BTreeMap<String, LaneStateRecord>,
}

/// The state of one lane in the file. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaneStateRecord {
    /// For people who read the file; lanes are identified by the hash.
    pub(super) host: String,
    /// The end of a wait that the server asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint_until_ms: Option<i64>,
    /// The wait as the server sent it, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint_code: Option<String>,
    #[serde(default)]
    retry_after: bool,
    /// The time when the quota is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota_until_ms: Option<i64>,
    /// The end of the breaker's cooldown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaker_until_ms: Option<i64>,
}

impl LaneStateRecord {
    pub(super) fn of(host: &str, state: &LaneState) -> LaneStateRecord {
        LaneStateRecord {
            host: host.to_owned(),
            hint_until_ms: state.hint.map(|hint| hint.until.millis()),
            hint_seconds: state.hint.map(|hint| hint.asked_seconds),
            hint_code: state.hint.map(|hint| hint.code.to_string()),
            retry_after: state.hint.is_some_and(|hint| hint.retry_after),
            quota_until_ms: state.quota_until.map(Wall::millis),
            breaker_until_ms: state.breaker_until.map(Wall::millis),
        }
    }

    pub(super) fn state(&self) -> LaneState {
        LaneState {
            hint: self.hint_until_ms.map(|until| HintState {
                until: Wall::from_millis(until),
                asked_seconds: self.hint_seconds.unwrap_or(0),
                code: self.hint_code.as_deref().and_then(Code::new).unwrap_or(Code::RATE_LIMITED),
                retry_after: self.retry_after,
            }),
            quota_until: self.quota_until_ms.map(Wall::from_millis),
            breaker_until: self.breaker_until_ms.map(Wall::from_millis),
        }
    }
}

impl LaneStates {
    /// The lane states in this directory, with waits of up to [`WAIT_MAX`]. Directory and file are created
    /// with the first state.
    #[must_use]
    pub fn open(dir: &Path, clock: Clock) -> LaneStates {
        LaneStates::open_within(dir, clock, WAIT_MAX)
    }

    /// The same with waits of up to `wait_max`.
    #[must_use]
    pub fn open_within(dir: &Path, clock: Clock, wait_max: Duration) -> LaneStates {
        let lanes = read(dir).map(|lanes| within(lanes, clock.wall(), wait_max)).unwrap_or_else(|why| {
            warn!(target: "tidegate::lane", "{}: {why}; ignored", dir.join(FILE).display());
            BTreeMap::new()
        });
        let table = Mutex::new(LaneStateTable { lanes, ..LaneStateTable::default() });
        let (dir, writing, wake) = (dir.to_owned(), Mutex::default(), Mutex::default());
        LaneStates(Arc::new(LaneStatesInner { dir, clock, wait_max, table, writing, wake }))
    }

    /// Sets the value of the credential of this name: with another value, its lanes are different
    /// ones. Only a hash is kept.
    pub fn identify(&self, credential: &str, secret: &Secret) {
        let hash: [u8; 32] = Sha256::digest(secret.reveal().as_bytes()).into();
        lock(&self.0.table).credentials.insert(credential.to_owned(), hash);
    }

    /// The id of a lane.
    pub(super) fn id(&self, key: &LaneKey) -> LaneId {
        let (place, credential) = match key {
            LaneKey::Host { origin, credential } => (origin, credential),
            LaneKey::Prefix { store, prefix } => (store, prefix),
        };
        let table = lock(&self.0.table);
        let value = table.credentials.get(credential).map_or(&[][..], |hash| &hash[..]);
        let mut hash = Sha256::new();
        for part in [b"tidegate lane 1".as_slice(), place.as_bytes(), credential.as_bytes(), value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let whole: [u8; 32] = hash.finalize().into();
        LaneId { id: whole.iter().take(16).map(|b| format!("{b:02x}")).collect(), host: key.host() }
    }

    /// The waits of this lane that have not passed.
    pub(super) fn get(&self, lane: &LaneId) -> LaneState {
        let known = lock(&self.0.table).lanes.get(&lane.id).map(LaneStateRecord::state).unwrap_or_default();
        known.after(self.0.clock.wall())
    }

    /// Saves what a server asked for. Returns at once; another thread writes the file.
    pub(super) fn put(&self, lane: &LaneId, state: &LaneState) {
        {
            let state = state.within(self.0.clock.wall(), self.0.wait_max);
            let mut table = lock(&self.0.table);
            let known = table.lanes.get(&lane.id).map(LaneStateRecord::state).unwrap_or_default();
            if !state.exceeds(&known, SLACK) {
                return;
            }
            table.lanes.insert(lane.id.clone(), LaneStateRecord::of(&lane.host, &known.merge(&state)));
            table.dirty = true;
        }
        let mut wake = lock(&self.0.wake);
        let writer = wake.get_or_insert_with(|| {
            let (wake, woken) = sync_channel(1);
            let shared = Arc::downgrade(&self.0);
            // Without the thread the file is written at the end of the run.
            let _ = std::thread::Builder::new().name("lanes".into()).spawn(move || write_on(&woken, &shared));
            wake
        });
        // A full channel means that the writer is awake and will include this.
        let _ = writer.try_send(());
    }

    /// Writes unsaved states to the file. Call it at the end of the run.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// The writer thread. It ends when the last sender is dropped.
fn write_on(woken: &Receiver<()>, shared: &Weak<LaneStatesInner>) {
    while woken.recv().is_ok() {
        match shared.upgrade() {
            Some(shared) => shared.flush(),
            None => return,
        }
        std::thread::sleep(WRITE_EVERY);
    }
}

impl LaneStatesInner {
    fn flush(&self) {
        let _one_at_a_time = lock(&self.writing);
        let lanes = {
            let mut table = lock(&self.table);
            if !std::mem::take(&mut table.dirty) {
                return;
            }
            table.lanes.clone()
        };
        if let Err(e) = write(&self.dir, lanes, self.clock.wall(), self.wait_max) {
            lock(&self.table).dirty = true;
            warn!(target: "tidegate::lane", "cannot write {}: {e}", self.dir.join(FILE).display());
        }
    }
}

impl Drop for LaneStatesInner {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The records of the file, as they are in it.
pub(super) fn read(dir: &Path) -> Result<BTreeMap<String, LaneStateRecord>, String> {
    let path = dir.join(FILE);
    match fs::metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(format!("cannot be read: {e}")),
        Ok(about) if about.len() > FILE_BYTES_MAX => return Err("too large".into()),
        Ok(_) => {}
    }
    let bytes = fs::read(&path).map_err(|e| format!("cannot be read: {e}"))?;
    let form: LaneStateFile = serde_json::from_slice(&bytes).map_err(|e| format!("damaged: {e}"))?;
    match form.version {
        VERSION => Ok(form.lanes),
        other => Err(format!("version {other} is not supported, expected {VERSION}")),
    }
}

/// The records with no wait longer than `wait_max`.
fn within(
    lanes: BTreeMap<String, LaneStateRecord>,
    now: Wall,
    wait_max: Duration,
) -> BTreeMap<String, LaneStateRecord> {
    let cut =
        |record: LaneStateRecord| LaneStateRecord::of(&record.host, &record.state().within(now, wait_max));
    lanes.into_iter().map(|(id, record)| (id, cut(record))).collect()
}

/// Holds the file, so that no other process changes it.
pub(super) fn hold(dir: &Path) -> io::Result<fs::File> {
    durable::make_dir(dir)?;
    let lock = durable::private(&dir.join("lanes.lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Replaces the file.
pub(super) fn replace(dir: &Path, lanes: BTreeMap<String, LaneStateRecord>) -> io::Result<()> {
    let form = LaneStateFile { version: VERSION, lanes };
    let text = format!("{}\n", serde_json::to_string_pretty(&form)?);
    durable::replace(&dir.join(FILE), text.as_bytes())
}

/// Merges with the states written by other processes, drops those that have passed, and replaces
/// the file.
fn write(
    dir: &Path,
    lanes: BTreeMap<String, LaneStateRecord>,
    now: Wall,
    wait_max: Duration,
) -> io::Result<()> {
    let _held = hold(dir)?;
    // A damaged file was reported when it was opened.
    let mut all = within(read(dir).unwrap_or_default(), now, wait_max);
    for (id, entry) in lanes {
        let state = all.get(&id).map(LaneStateRecord::state).unwrap_or_default().merge(&entry.state());
        all.insert(id, LaneStateRecord::of(&entry.host, &state));
    }
    let all = all.into_iter().filter_map(|(id, entry)| {
        let state = entry.state().after(now);
        state.not_before().map(|_| (id, LaneStateRecord::of(&entry.host, &state)))
    });
    replace(dir, all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(credential: &str) -> LaneKey {
        LaneKey::of_url(&"https://geo.test/x".parse().unwrap(), credential)
    }

    fn quota(ms: i64) -> LaneState {
        LaneState { quota_until: Some(Wall::from_millis(ms)), ..LaneState::default() }
    }

    fn clock() -> Clock {
        Clock::starting_at(Wall::from_millis(1_000_000))
    }

    #[tokio::test]
    async fn it_comes_back_after_a_restart_and_goes_with_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("state");
        let hint = HintState {
            until: Wall::from_millis(5_000_000),
            asked_seconds: 4000,
            code: Code::SERVICE_UNAVAILABLE,
            retry_after: true,
        };
        let state = LaneState { hint: Some(hint), ..quota(3_000_000) };
        let first = LaneStates::open(&dir, clock());
        first.put(&first.id(&key("env:A")), &state);
        first.flush();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(dir.join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let second = LaneStates::open(&dir, clock());
        assert_eq!(second.get(&second.id(&key("env:A"))), state);
        assert_eq!(second.get(&second.id(&key("env:B"))), LaneState::default());
        let later = LaneStates::open(&dir, Clock::starting_at(Wall::from_millis(4_000_000)));
        assert_eq!(later.get(&later.id(&key("env:A"))), LaneState { quota_until: None, ..state });
    }

    #[tokio::test]
    async fn another_key_of_the_same_name_is_another_lane_and_none_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let states = LaneStates::open(dir.path(), clock());
        let mut ids = Vec::new();
        for value in ["hunter2", "hunter3"] {
            states.identify("env:A", &Secret::new(value.into()));
            ids.push(states.id(&key("env:A")));
        }
        assert_ne!(ids.first(), ids.last());
        states.put(&ids[0], &quota(9_000_000));
        states.flush();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(text.contains("geo.test") && !text.contains("hunter") && !text.contains("env:A"), "{text}");
    }

    #[tokio::test]
    async fn two_processes_keep_the_later_of_both() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (LaneStates::open(dir.path(), clock()), LaneStates::open(dir.path(), clock()));
        let (shared, own) = (a.id(&key("")), a.id(&key("env:A")));
        a.put(&shared, &quota(9_000_000));
        a.put(&own, &quota(2_000_000));
        b.put(&shared, &quota(4_000_000));
        a.flush();
        b.flush();
        let c = LaneStates::open(dir.path(), clock());
        assert_eq!((c.get(&shared), c.get(&own)), (quota(9_000_000), quota(2_000_000)));
    }

    #[tokio::test]
    async fn a_damaged_file_is_left_out_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "[]", "{\"version\":9,\"lanes\":{}}", "{\"version\":1,\"lanes\":{\"x\":3}}"] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(read(dir.path()).is_err(), "{text}");
            let states = LaneStates::open(dir.path(), clock());
            let id = states.id(&key(""));
            assert_eq!(states.get(&id), LaneState::default());
            states.put(&id, &quota(2_000_000));
            states.flush();
            assert_eq!(read(dir.path()).unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_date_in_a_far_year_is_cut_when_it_is_read_and_when_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let first = LaneStates::open_within(dir.path(), clock(), Duration::MAX);
        let (own, other) = (first.id(&key("")), first.id(&key("env:A")));
        let far = quota(2_745_000_000_000);
        first.put(&own, &far);
        first.put(&other, &far);
        first.flush();
        assert_eq!(first.get(&own), far, "who sets it may have it");
        let last = quota(1_000_000 + 86_400_000);
        let second = LaneStates::open(dir.path(), clock());
        assert_eq!((second.get(&own), second.get(&other)), (last, last));
        second.put(&own, &LaneState { breaker_until: Some(Wall::from_millis(i64::MAX)), ..far });
        second.flush();
        for record in read(dir.path()).unwrap().values() {
            assert!(record.state().not_before() <= last.quota_until, "{record:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_written_while_nothing_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let states = LaneStates::open(&dir.path().join("none"), clock());
        states.put(&states.id(&key("")), &LaneState::default());
        states.flush();
        drop(states);
        assert!(!dir.path().join("none").exists());
    }
}
