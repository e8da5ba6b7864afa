//! `objects`: what may be opened by paths and addresses that come in data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::objects::{AllowedObjects, ObjectsError};

/// What may be opened by paths and addresses that come in data: a folder, hosts and buckets. By default
/// nothing, because whoever writes the data is not whoever runs the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectsSpec {
    /// The folder whose files may be opened, also those below it. A path that leads out of it, by `..` or by
    /// a symbolic link, is refused. A relative path starts at the manifest's directory, here and in the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"scenes")]
    pub folder: Option<String>,

    /// The hosts that may be asked over HTTP: `example.org` at ports 80 and 443, `example.org:8080` at this
    /// port, `*.example.org` for its subdomains. A private address must be written out with its port,
    /// such as `127.0.0.1:8080`. Redirects to another host are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 253)), extend("uniqueItems" = true))]
    pub hosts: Vec<String>,

    /// The buckets whose objects may be read, with our credentials: `s3://bucket`, or `s3://bucket/prefix`;
    /// also `az://` and `gs://`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub buckets: Vec<String>,

    /// Whether the names in `hosts` may resolve to private addresses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_private: bool,
}

impl ObjectsSpec {
    /// Adds what it allows.
    ///
    /// # Errors
    /// The entry that cannot be used.
    pub fn add_to(&self, allowed: &mut AllowedObjects) -> Result<(), ObjectsError> {
        self.folder.iter().for_each(|folder| allowed.folder(folder));
        self.hosts.iter().try_for_each(|host| allowed.host(host))?;
        self.buckets.iter().try_for_each(|bucket| allowed.bucket(bucket))?;
        if self.allow_private {
            allowed.private();
        }
        Ok(())
    }
}
