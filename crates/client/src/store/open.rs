//! Opens a store from an address and settings.
//!
//! | address | store |
//! |---|---|
//! | `s3://bucket`, `s3://bucket/base` | a bucket of AWS or of whatever speaks its protocol |
//! | `az://container`, `az://container/base` | a container of Azure Blob Storage |
//! | `gs://bucket`, `gs://bucket/base` | a bucket of Google Cloud Storage |
//! | `file:///dir`, `dir`, `/dir` | a directory; each write is staged, synced and renamed |
//! | `memory:` | nothing durable, for tests |

use super::cloud::{self, CloudSettings};
use super::key::{self, KeySpread};
use super::{Backend, CallContext, ObjectStoreClient, ObjectStoreInner};
use crate::lane::{Clock, LaneKey, LaneScope, LaneStates, Lanes};
use crate::profile::{Profile, Profiles};
use crate::secret::SecretError;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::bucket::{BucketAddress, Cloud};
use tidegate_core::call::{CallPolicy, ThrottleWait};
use tidegate_core::lane::LaneConfig;
use tidegate_core::retry::backoff::{Backoff, Jitter};
use url::Url;

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// How keys are spread over prefixes.
    pub key_spread: KeySpread,
    /// The number of path segments of a physical key, after the base, that identify its lane. With
    /// 0 the store has one lane.
    pub lane_segments: usize,
    /// The smallest part of a multipart upload, in bytes; at least 5 MiB, as S3 requires.
    pub part_bytes: usize,
    /// The most parts of one upload in flight. An upload holds one more than this in memory.
    pub parts_at_once: usize,
    /// Whether to create the directory of a local store.
    pub create: bool,
    /// The policy of calls: attempts, delays, deadline.
    pub policy: CallPolicy,
    /// The longest wait; a call that would wait longer fails with the time to try again.
    pub patience: Duration,
    /// The directory of the saved lane state; `None` saves nothing.
    pub lane_state: Option<PathBuf>,
    /// The configuration of the lanes.
    pub lane: LaneConfig,
    /// The settings of buckets.
    pub cloud: CloudSettings,
    /// The seed of the jitter.
    pub seed: u64,
}

impl Default for StoreSettings {
    /// Keys unchanged, a lane per first segment, parts of 8 MiB, four at once; 5 attempts,
    /// throttles and outages not counted, ten minutes in all, one minute each.
    fn default() -> StoreSettings {
        let policy = CallPolicy {
            throttles_free: 100,
            outages_free: 20,
            deadline: Duration::from_secs(600),
            attempt_timeout: Duration::from_secs(60),
            backoff: Backoff::new(Duration::from_millis(200), 2.0, Duration::from_secs(20), Jitter::Full),
            throttle_wait: ThrottleWait::Lane,
            ..CallPolicy::default()
        };
        let mut lane = LaneConfig::default();
        lane.breaker.cooldown = Duration::from_secs(1);
        lane.breaker.cooldown_factor = 1.5;
        lane.breaker.cooldown_max = Duration::from_secs(30);
        lane.breaker.probes = 1;
        StoreSettings {
            key_spread: KeySpread::None,
            lane_segments: 1,
            part_bytes: 8 << 20,
            parts_at_once: 4,
            create: false,
            policy,
            patience: tidegate_core::patience::DEFAULT,
            lane_state: None,
            lane,
            cloud: CloudSettings::default(),
            seed: 0,
        }
    }
}

/// Why a store cannot be opened. Secrets are never quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The address or a setting is invalid.
    Setting(String),
    /// A credential cannot be fetched.
    Secret(SecretError),
    /// The directory cannot be used.
    Directory(PathBuf, String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Setting(why) => f.write_str(why),
            OpenError::Secret(why) => write!(f, "{why}"),
            OpenError::Directory(path, why) => write!(f, "the directory {}: {why}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<SecretError> for OpenError {
    fn from(why: SecretError) -> OpenError {
        OpenError::Secret(why)
    }
}

impl ObjectStoreClient {
    /// Opens a store. Sends no request yet.
    ///
    /// # Errors
    /// When the address or a setting is invalid, a credential is missing, or a directory cannot be
    /// used.
    pub fn open(address: &str, settings: &StoreSettings) -> Result<ObjectStoreClient, OpenError> {
        ObjectStoreClient::open_on(address, settings, Clock::system())
    }

    /// The same with a given clock.
    ///
    /// # Errors
    /// As [`ObjectStoreClient::open`].
    pub fn open_on(
        address: &str,
        settings: &StoreSettings,
        clock: Clock,
    ) -> Result<ObjectStoreClient, OpenError> {
        ObjectStoreClient::make(address, settings, clock, None)
    }

    /// The same within a run: its prefixes share lanes, counters and the log of the run.
    ///
    /// # Errors
    /// As [`ObjectStoreClient::open`].
    pub fn open_for(
        address: &str,
        settings: &StoreSettings,
        caller: impl CallContext + 'static,
    ) -> Result<ObjectStoreClient, OpenError> {
        let clock = caller.lanes(&settings.lane).clock();
        ObjectStoreClient::make(address, settings, clock, Some(Box::new(caller)))
    }

    fn make(
        address: &str,
        settings: &StoreSettings,
        clock: Clock,
        caller: Option<Box<dyn CallContext>>,
    ) -> Result<ObjectStoreClient, OpenError> {
        let wrong = |why: &str| Err(OpenError::Setting(why.to_owned()));
        if settings.part_bytes < 5 << 20 {
            return wrong("the part size must be at least 5 MiB");
        }
        let bucket = BucketAddress::parse(address);
        let profile = profile(bucket.map_or(Cloud::S3, |at| at.cloud))?;
        let (name, base, backend) = if let Some(at) = bucket {
            if at.bucket.is_empty() {
                return wrong("the URL has no bucket");
            }
            let base = at.key.trim_end_matches('/');
            if !base.is_empty() {
                key::check(base).map_err(|bad| OpenError::Setting(bad.to_string()))?;
            }
            let base = if base.is_empty() { String::new() } else { format!("{base}/") };
            let backend = cloud::bucket(at.cloud, at.bucket, &settings.cloud, &profile, clock)?;
            (at.to_string(), base, backend)
        } else if address == "memory:" {
            let memory = Arc::new(InMemory::new());
            let backend = Backend {
                objects: memory.clone(),
                parts: Some(memory),
                pages: None,
                renames: false,
                suffixes: true,
            };
            ("memory:".to_owned(), String::new(), backend)
        } else {
            let directory = directory(address)?;
            (format!("file://{}", directory.display()), String::new(), local(directory, settings.create)?)
        };
        let mut lane = settings.lane;
        lane.limit.in_flight_max = lane.limit.in_flight_max.min(profile.in_flight());
        let mut classifier = profile.classifier();
        classifier.reset_is_wait = !lane.limit.learn;
        let lanes = match &caller {
            Some(caller) => caller.lanes(&lane),
            None => match &settings.lane_state {
                Some(dir) => Lanes::new(&lane, clock)
                    .keeping(LaneStates::open(dir, clock))
                    .sharing(LaneScope::Machine(None)),
                None => Lanes::new(&lane, clock),
            },
        };
        // Within a run or a state directory, several services may have buckets of the same name.
        let home = match settings.cloud.endpoint.as_ref().and_then(Url::host_str) {
            Some(host) if caller.is_some() || settings.lane_state.is_some() => format!("{name}@{host}"),
            _ => name.clone(),
        };
        let counted = |caller: Box<dyn CallContext>| {
            let service = caller.line(&LaneKey::of_prefix(&home, ""), &settings.policy);
            (caller, service)
        };
        let caller = caller.map(counted);
        Ok(ObjectStoreClient(Arc::new(ObjectStoreInner {
            name,
            home,
            base,
            spread: settings.key_spread,
            lane_segments: settings.lane_segments,
            part_bytes: settings.part_bytes,
            parts_at_once: settings.parts_at_once.max(1),
            backend,
            lanes,
            prefixes: Mutex::default(),
            policy: settings.policy,
            patience: settings.patience,
            classifier,
            seed: settings.seed,
            calls: 0.into(),
            caller,
        })))
    }
}

fn profile(cloud: Cloud) -> Result<Profile, OpenError> {
    match Profiles::embedded_one(cloud.profile()) {
        Some(Ok(profile)) => Ok(profile),
        Some(Err(problem)) => Err(OpenError::Setting(problem.to_string())),
        None => Err(OpenError::Setting(format!("the profile {} is missing", cloud.profile()))),
    }
}

fn directory(address: &str) -> Result<PathBuf, OpenError> {
    let wrong = |why: String| Err(OpenError::Setting(why));
    if address.is_empty() {
        return wrong("the URL of the store is empty".into());
    }
    if address.starts_with("file:") {
        let url = Url::parse(address).ok().filter(|url| url.scheme() == "file");
        return match url.and_then(|url| url.to_file_path().ok()) {
            Some(path) => Ok(path),
            None => wrong(format!("{address} is not a directory URL; expected for example file:///data")),
        };
    }
    match address.split_once("://") {
        Some((scheme, _)) => wrong(format!(
            "unsupported store {scheme}://; expected s3://bucket, az://container, gs://bucket, file:///dir or a directory"
        )),
        None => Ok(PathBuf::from(address)),
    }
}

fn local(directory: PathBuf, create: bool) -> Result<Backend, OpenError> {
    let refuse = |why: String| OpenError::Directory(directory.clone(), why);
    if create {
        std::fs::create_dir_all(&directory).map_err(|e| refuse(e.to_string()))?;
    }
    if !std::fs::metadata(&directory).map_err(|e| refuse(e.to_string()))?.is_dir() {
        return Err(refuse("not a directory".into()));
    }
    let files =
        LocalFileSystem::new_with_prefix(&directory).map_err(|_| refuse("it cannot be used".into()))?;
    Ok(Backend {
        objects: Arc::new(files.with_fsync(true)),
        parts: None,
        pages: None,
        renames: true,
        suffixes: true,
    })
}
