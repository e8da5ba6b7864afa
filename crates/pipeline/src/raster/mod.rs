//! Rasters by their address: a path, `http(s)://`, `s3://`, `gs://` or `az://`.
//!
//! | file | holds |
//! |---|---|
//! | `burn` | features that become pixels |
//! | `features` | the features of a file, for a raster |
//! | `calls` | the lanes that all rasters share |
//! | `remote` | checked ranges of a remote object |
//! | `survey` | what a raster is, for gates |
//! | `web` | ranges over HTTP |
//! | `bucket` | ranges of objects in a store |
//! | `work` | what is done with one raster |

mod bucket;
mod burn;
mod calls;
mod features;
mod remote;
mod survey;
mod web;
mod work;

pub use burn::{BurnOptions, BurnPlace, BurnValue, burn_number};
pub use calls::RasterCalls;
pub(crate) use calls::RasterTrouble;
pub use remote::RemoteBytes;
pub use survey::{BandSurvey, RasterSurvey, sha256, survey};
pub use work::{ClipBy, HeldRaster, LocalCopy, RasterAction, RasterFailure, RasterInput, work};

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bucket::BucketAddress;
use tidegate_core::call::CallPolicy;
use tidegate_raster::{ByteSource, FileBytes, GeoTiff, RasterCause, RasterError, RasterLimits, SidecarName};
use url::Url;

use crate::http::{Allow, Client, ClientConfig, Credential, Exchange, ServiceDialect, Trace};
pub use crate::objects::shown;
use crate::objects::{ObjectAddress, ObjectPlace};
use crate::preset;
use crate::secret::{NamedSecret, Redactor};
use crate::store::{CloudSettings, StoreSettings};

/// The key of a service, for rasters of the same origin.
#[derive(Clone, Debug)]
pub struct RasterKey {
    /// An address of the service.
    pub home: Url,
    /// Where the key goes in a request.
    pub credentials: Vec<Credential>,
    /// The key itself, which no message shows.
    pub key: NamedSecret,
}

/// How remote rasters are read.
#[derive(Clone, Debug)]
pub struct RasterReach {
    /// Attempts, delays and deadline of one range.
    pub policy: CallPolicy,
    /// The longest wait for a server.
    pub patience: Duration,
    /// Whether names may resolve to private addresses.
    pub private: bool,
    /// The lanes of all calls. Clones share them.
    pub calls: Arc<RasterCalls>,
    /// The key of the service that names the rasters. It is sent to the origin of the service only.
    pub key: Option<RasterKey>,
    /// How to reach buckets.
    pub cloud: CloudSettings,
    /// Whether files (`.aux.xml`, `.msk`) are looked for beside COGs too that say where they lie.
    pub looks_beside_cogs: bool,
    /// Decides all jitter.
    pub seed: u64,
}

impl Default for RasterReach {
    fn default() -> RasterReach {
        RasterReach {
            policy: preset::policy(),
            patience: tidegate_core::patience::DEFAULT,
            private: false,
            calls: Arc::default(),
            key: None,
            cloud: CloudSettings::default(),
            looks_beside_cogs: false,
            seed: 0,
        }
    }
}

/// Whether an address is of something remote.
#[must_use]
pub fn is_remote(address: &str) -> bool {
    BucketAddress::is_one(address) || address.starts_with("http://") || address.starts_with("https://")
}

/// The bytes of a raster at an address.
///
/// # Errors
/// If there is no such raster, or it cannot be reached. A wait that is too long is transient.
pub fn bytes_of(address: &ObjectAddress, reach: &RasterReach) -> Result<Arc<dyn ByteSource>, RasterError> {
    match address.path() {
        Some(path) => Ok(Arc::new(FileBytes::open(path)?)),
        None => {
            let bytes = remote_bytes(address, reach)?;
            Ok(Arc::new(bytes.proven()?.unwrap_or(bytes)))
        }
    }
}

/// Opens the raster at an address.
///
/// # Errors
/// As [`bytes_of`], or if it is not a raster that can be read.
pub fn open(
    address: &ObjectAddress,
    reach: &RasterReach,
    limits: &RasterLimits,
) -> Result<GeoTiff, RasterError> {
    if address.path().is_some() {
        return GeoTiff::open(bytes_of(address, reach)?, limits);
    }
    remote_bytes(address, reach)?.raster(limits)
}

fn remote_bytes(address: &ObjectAddress, reach: &RasterReach) -> Result<RemoteBytes, RasterError> {
    let (name, reader) = reader(address, reach).map_err(|error| error.of(&address.shown()))?;
    RemoteBytes::open(
        &name,
        reader,
        reach.calls.runtime()?,
        reach.policy.attempts_max,
        reach.looks_beside_cogs,
    )
}

fn reader(
    address: &ObjectAddress,
    reach: &RasterReach,
) -> Result<(String, Arc<dyn remote::RangeReader>), RasterError> {
    match address.place() {
        ObjectPlace::File(path) => {
            Err(RasterError::invalid(format!("{} is a file, and is read as one", path.display())))
        }
        ObjectPlace::Bucket { home, key } => bucket_reader((home, key), address, reach),
        ObjectPlace::Web { url, allow } => web_reader(url.clone(), allow.clone(), reach),
    }
}

fn web_reader(
    url: Url,
    allow: Allow,
    reach: &RasterReach,
) -> Result<(String, Arc<dyn remote::RangeReader>), RasterError> {
    let invalid = |why: String| RasterError::invalid(why);
    allow.url(&url).map_err(|error| invalid(format!("{error}; if you trust it, pass --allow-private")))?;
    let client = ClientConfig { allow, ..ClientConfig::default() };
    let client = Client::new(client, [&url]).map_err(|error| invalid(error.to_string()))?;
    let (lanes, mut redactor) = (reach.calls.lanes(), Redactor::new());
    let mut credentials = Vec::new();
    if let Some(found) = reach.key.as_ref().filter(|found| found.home.origin() == url.origin()) {
        redactor.add(&found.key.secret);
        lanes.identify(&found.key.name, &found.key.secret);
        credentials.clone_from(&found.credentials);
    }
    let exchange = Exchange {
        client,
        lanes,
        dialect: ServiceDialect::default(),
        policy: reach.policy,
        redactor: Arc::new(redactor),
        trace: Trace::Spans,
    };
    let reader = web::WebRanges {
        exchange,
        url,
        credentials,
        patience: reach.patience,
        seed: reach.seed,
        asked: Arc::default(),
        calls: reach.calls.clone(),
    };
    Ok((reader.shown(), Arc::new(reader)))
}

fn bucket_reader(
    (home, key): (&str, &str),
    address: &ObjectAddress,
    reach: &RasterReach,
) -> Result<(String, Arc<dyn remote::RangeReader>), RasterError> {
    let mut cloud = reach.cloud.clone();
    cloud.private |= reach.private;
    let settings = StoreSettings {
        policy: reach.policy,
        patience: reach.patience,
        cloud,
        seed: reach.seed,
        ..StoreSettings::default()
    };
    let store = reach
        .calls
        .store(home, &settings)
        .map_err(|error| RasterError::new(RasterCause::Invalid, error.to_string()))?;
    let reader = bucket::BucketRanges {
        store,
        address: home.to_owned(),
        key: key.to_owned(),
        calls: reach.calls.clone(),
    };
    Ok((address.text().to_owned(), Arc::new(reader)))
}

/// The path of a file beside another.
fn beside(path: &str, suffix: SidecarName<'_>) -> String {
    match suffix {
        SidecarName::Added(extension) => format!("{path}.{extension}"),
        SidecarName::Instead(extension) => {
            let (dir, name) = path.rsplit_once('/').map_or(("", path), |(dir, name)| (dir, name));
            let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
            let slash = if path.contains('/') { "/" } else { "" };
            format!("{dir}{slash}{stem}.{extension}")
        }
    }
}
