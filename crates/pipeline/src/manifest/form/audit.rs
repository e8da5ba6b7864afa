//! `audit`: how the trail of decisions is kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the trail of decisions is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSpec {
    /// Where the key is that signs the audit: `env:NAME` or `file:PATH`, made by
    /// `tidegate keys audit`. Without it the key of the state directory signs, which is made by the
    /// first run.
    ///
    /// Touch it when those who can write the state directory must not be able to forge the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub key: Option<String>,

    /// The file to which signed checkpoints are copied, one per line; beside the audit if it is not
    /// given. A relative path starts at the manifest's directory.
    ///
    /// Touch it when the copies should lie where whoever changes the audit cannot reach them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub copy: Option<String>,

    /// Whether every call to a service is entered with its attempts, and not only those that failed
    /// in the end.
    ///
    /// Touch it when it must be shown what was asked of whom; it is one entry per call.
    pub attempts: bool,
}
