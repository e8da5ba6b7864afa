//! The settings of a store, and why it cannot be opened.

use super::key::KeySpread;
use crate::secret::{SecretError, SecretRef};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_core::bucket::CredentialSource;
use tidegate_core::call::{CallPolicy, ThrottleWait};
use tidegate_core::lane::LaneConfig;
use tidegate_core::part::MissingPart;
use tidegate_core::retry::backoff::{Backoff, Jitter};
use url::Url;

/// Settings for stores on the network.
#[derive(Clone, Debug, Default)]
pub struct CloudSettings {
    /// The URL of the service, without the bucket; `None` means that of the cloud.
    pub endpoint: Option<Url>,
    /// The region, for S3; `us-east-1` if none is given.
    pub region: Option<String>,
    /// The storage account, for Azure.
    pub account: Option<String>,
    /// The reference to the access key of S3, or to the account key of Azure.
    pub access_key: Option<SecretRef>,
    /// The reference to the secret key, for S3; with `access_key`, or neither.
    pub secret_key: Option<SecretRef>,
    /// The reference to a session token, for S3.
    pub session_token: Option<SecretRef>,
    /// The reference to a shared access signature, for Azure.
    pub sas_token: Option<SecretRef>,
    /// The reference to the JSON of a service account, for Google.
    pub service_account: Option<SecretRef>,
    /// Where credentials come from if none is given.
    pub credentials: CredentialSource,
    /// Whether the name of the endpoint may resolve to private addresses. An endpoint that is itself such
    /// an address, or `localhost`, is always allowed.
    pub private: bool,
}

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
    /// The build has no object stores.
    Missing(MissingPart),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Setting(why) => f.write_str(why),
            OpenError::Secret(why) => write!(f, "{why}"),
            OpenError::Directory(path, why) => write!(f, "the directory {}: {why}", path.display()),
            OpenError::Missing(part) => write!(f, "{part}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<SecretError> for OpenError {
    fn from(why: SecretError) -> OpenError {
        OpenError::Secret(why)
    }
}
