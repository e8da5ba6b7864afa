//! The client of a store, which the crate `object_store` builds and signs the requests of.
//!
//! | file | holds |
//! |---|---|
//! | `open` | opens a store from an address and settings |
//! | `cloud` | the clouds, their endpoints and credentials |
//! | `wire` | the HTTP transport |
//! | `judge` | classifies responses |
//! | `read` | reads objects as a stream that resumes |
//! | `upload` | multipart uploads |
//! | `list` | lists keys in order, page by page |
//! | `listing` | keys in a page that are not paths |

mod cloud;
mod judge;
mod list;
mod listing;
mod open;
mod read;
mod upload;
mod wire;

pub use cloud::{CloudFault, CloudRequest, CloudService, ErrorReader, NO_ANSWER};
pub use read::ObjectReader;
pub use upload::PutReceipt;

use super::key::{self, KeySpread};
use super::{CallContext, Meta, StoreError};
use crate::call::{self, AttemptOutcome, Later, Sent};
use crate::lane::{LaneHandle, LaneKey, Lanes};
use crate::lock::lock;
use crate::telemetry::ServiceMetrics;
use bytes::Bytes;
use judge::{StoreFault, judge};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::classify::Classifier;
use tidegate_core::patience::{After, Patience};
use tidegate_core::{Code, Rng, Wall};

/// The most prefixes with a lane of their own; later ones share a lane.
const LANES_MAX: usize = 4096;

/// A client of one bucket or directory. Clones share its lanes.
#[derive(Clone)]
pub struct ObjectStoreClient(Arc<ObjectStoreInner>);

struct ObjectStoreInner {
    name: String,
    /// The store in the keys of its lanes: its name, and the host of its endpoint where buckets of
    /// several services may share lanes.
    home: String,
    /// The prefix of every physical key; empty or with a slash at its end.
    base: String,
    spread: KeySpread,
    lane_segments: usize,
    part_bytes: usize,
    parts_at_once: usize,
    backend: Backend,
    lanes: Lanes,
    prefixes: Mutex<HashSet<String>>,
    policy: CallPolicy,
    patience: Duration,
    classifier: Classifier,
    seed: u64,
    calls: AtomicU64,
    /// The context of its calls, and the metrics that count them.
    caller: Option<(Box<dyn CallContext>, ServiceMetrics)>,
}

/// The interfaces of the library for one kind of store.
struct Backend {
    objects: Arc<dyn ObjectStore>,
    /// Set for stores with multipart uploads whose parts can be retried.
    parts: Option<Arc<dyn MultipartStore>>,
    /// Set for stores that list in order, page by page.
    pages: Option<Arc<dyn PaginatedListStore>>,
    /// Whether `objects` renames atomically.
    renames: bool,
    /// Whether `objects` reads the last bytes of an object without knowing its size.
    suffixes: bool,
}

impl std::fmt::Debug for ObjectStoreClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectStoreClient({}/{})", self.0.name, self.0.base)
    }
}

impl ObjectStoreClient {
    /// Its lanes, one per prefix.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        &self.0.lanes
    }

    /// Puts an object in one request, replacing an existing one. Above a few megabytes use
    /// [`ObjectStoreClient::put_stream`].
    ///
    /// # Errors
    /// When the key is invalid, or the store did not accept the object.
    pub async fn put(&self, key: &str, content: Bytes) -> Result<(), StoreError> {
        let physical_key = self.physical_key(key)?;
        let path = path(key, &physical_key)?;
        let objects = &self.0.backend.objects;
        let put = || async {
            objects.put(&path, PutPayload::from_bytes(content.clone())).await?;
            Ok(())
        };
        self.call(key, &physical_key, put).await
    }

    /// The metadata of an object.
    ///
    /// # Errors
    /// When it does not exist, or the request failed.
    pub async fn head(&self, key: &str) -> Result<Meta, StoreError> {
        let physical_key = self.physical_key(key)?;
        let path = path(key, &physical_key)?;
        let objects = &self.0.backend.objects;
        let found = self.call(key, &physical_key, || async { Ok(objects.head(&path).await?) }).await?;
        Ok(meta(key, &found))
    }

    /// Deletes an object. A missing object is not an error.
    ///
    /// # Errors
    /// When the request failed.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let physical_key = self.physical_key(key)?;
        let path = path(key, &physical_key)?;
        let objects = &self.0.backend.objects;
        match self.call(key, &physical_key, || async { Ok(objects.delete(&path).await?) }).await {
            // A missing bucket is an error.
            Err(error) if error.is_not_found() && !judge::is_missing_bucket(&error.words) => Ok(()),
            other => other,
        }
    }

    /// Copies an object within the store, replacing an existing one. S3 copies up to 5 GiB.
    ///
    /// # Errors
    /// When it does not exist, or the request failed.
    pub async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (from_physical, to_physical) = (self.physical_key(from)?, self.physical_key(to)?);
        let (source, target) = (path(from, &from_physical)?, path(to, &to_physical)?);
        let objects = &self.0.backend.objects;
        self.call(from, &to_physical, || async { Ok(objects.copy(&source, &target).await?) }).await
    }

    /// Renames an object: atomically if the store can, else by copy and delete. If that is
    /// interrupted, both exist.
    ///
    /// # Errors
    /// When it does not exist, or the request failed.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        if from == to {
            return self.head(from).await.map(|_| ());
        }
        if !self.0.backend.renames {
            self.copy(from, to).await?;
            return self.delete(from).await;
        }
        let (from_physical, to_physical) = (self.physical_key(from)?, self.physical_key(to)?);
        let (source, target) = (path(from, &from_physical)?, path(to, &to_physical)?);
        let objects = &self.0.backend.objects;
        self.call(from, &to_physical, || async { Ok(objects.rename(&source, &target).await?) }).await
    }

    /// The physical key of an object: the base, the shard of the key spread, and its key.
    fn physical_key(&self, key: &str) -> Result<String, StoreError> {
        key::check(key).map_err(|bad| StoreError::local(&bad.key, Code::BAD_REQUEST, bad.why))?;
        let physical_key = self.0.base.clone() + &self.0.spread.place(key);
        Ok(physical_key)
    }

    /// The lane of a physical key.
    fn lane(&self, physical_key: &str) -> LaneHandle {
        let inner = &*self.0;
        let after = physical_key.strip_prefix(inner.base.as_str()).unwrap_or(physical_key);
        let prefix = key::lane_prefix(after, inner.lane_segments);
        let mut known = lock(&inner.prefixes);
        let prefix = if known.contains(prefix) || known.len() < LANES_MAX { prefix } else { "*" };
        if !known.contains(prefix) {
            known.insert(prefix.to_owned());
        }
        drop(known);
        inner.lanes.get(&LaneKey::of_prefix(&inner.home, &format!("{}{prefix}", inner.base)))
    }

    /// Sends one request through the lane of `physical_key` until it succeeds or is given up.
    async fn call<T, W, F>(&self, key: &str, physical_key: &str, mut work: W) -> Result<T, StoreError>
    where
        T: Send,
        W: FnMut() -> F + Send,
        F: Future<Output = Result<T, StoreFault>> + Send,
    {
        let inner = &*self.0;
        let lane = self.lane(physical_key);
        let clock = lane.clock();
        let mut patience = Patience::new(inner.patience);
        let (outcome, value) = loop {
            let chance = Rng::fork(inner.seed, inner.calls.fetch_add(1, Ordering::Relaxed));
            let asking = call::run(&lane, &inner.policy, Call::new(), chance, |_| {
                let work = work();
                async move {
                    let (result, seen) = wire::watched(work).await;
                    let (verdict, hints, words) =
                        judge(&inner.classifier, result.as_ref().err(), seen, clock.mono());
                    Sent::Reply(AttemptOutcome { verdict, hints, value: Some((result.ok(), words)) })
                }
            });
            let outcome = tokio::select! {
                biased;
                outcome = asking => outcome,
                later = call::given_up(&lane, inner.patience) => {
                    let until = clock.mono_of(later.until);
                    return Err(StoreError::later(key, later, until));
                }
            };
            let (outcome, value) = outcome.split();
            if let Some((caller, service)) = &inner.caller {
                caller.ended(service, key, &outcome);
            }
            match patience.after(&outcome.verdict, &outcome.next, clock.mono()) {
                After::Settle => break (outcome, value),
                After::Wait(until) => clock.sleep_until(until).await,
                After::TryLater(later) => {
                    return Err(StoreError::later(key, Later::of(&lane, later), later.until));
                }
            }
        };
        let accepted = outcome.is_accepted();
        let (verdict, next, attempts) = (outcome.verdict, outcome.next, outcome.attempts());
        match value {
            Some((Some(value), _)) if accepted => Ok(value),
            value => {
                let mut words = value.map(|(_, words)| words).unwrap_or_default();
                if judge::is_missing_bucket(&words) {
                    words = format!("{} does not exist: {words}", inner.name);
                }
                Err(StoreError { key: key.into(), verdict, next, attempts, words: words.into() })
            }
        }
    }
}

/// A physical key as a path of the library.
fn path(key: &str, physical_key: &str) -> Result<Path, StoreError> {
    Path::parse(physical_key).map_err(|_| StoreError::local(key, Code::BAD_REQUEST, "it is not a key"))
}

fn meta(key: &str, found: &object_store::ObjectMeta) -> Meta {
    Meta {
        key: key.to_owned(),
        size: found.size,
        modified: Wall::from_millis(found.last_modified.timestamp_millis()),
        etag: found.e_tag.clone(),
    }
}
