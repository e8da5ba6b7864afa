//! `audit`: the log of all decisions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The audit, a log of all decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSpec {
    /// A reference to the key that signs the audit: `env:NAME` or `file:PATH`, created by `tidegate
    /// keys audit`. Without it, the audit is signed with the key of the state directory, which the
    /// first run creates.
    ///
    /// Touch it when those who can write the state directory must not be able to forge the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub key: Option<String>,

    /// The file to which signed checkpoints are copied, one per line. By default a file next to the
    /// audit. A relative path starts at the manifest's directory.
    ///
    /// Touch it to store the copies where those who can change the audit have no access.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub copy: Option<String>,

    /// Whether every call to a service is recorded with its attempts, not only failed calls.
    ///
    /// Touch it when you must be able to prove every call; it adds one entry per call.
    pub attempts: bool,
}
