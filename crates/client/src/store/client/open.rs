//! Opens a store from an address and settings.
//!
//! | address | store |
//! |---|---|
//! | `s3://bucket`, `s3://bucket/base` | a bucket of AWS or of whatever speaks its protocol |
//! | `az://container`, `az://container/base` | a container of Azure Blob Storage |
//! | `gs://bucket`, `gs://bucket/base` | a bucket of Google Cloud Storage |
//! | `file:///dir`, `dir`, `/dir` | a directory; each write is staged, synced and renamed |
//! | `memory:` | nothing durable, for tests |

use super::{Backend, ObjectStoreClient, ObjectStoreInner, cloud};
use crate::lane::{Clock, LaneKey, LaneScope, LaneStates, Lanes};
use crate::profile::{Profile, Profiles};
use crate::store::key;
use crate::store::{CallContext, OpenError, StoreSettings};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tidegate_core::bucket::{BucketAddress, Cloud};
use url::Url;

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
        let classifier = profile.classifier().for_lane(&lane);
        let lanes = match &caller {
            Some(caller) => caller.lanes(&lane),
            None => match &settings.lane_state {
                Some(dir) => Lanes::new(&lane, clock)
                    .keeping(LaneStates::open_within(dir, clock, lane.wait_max))
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
