//! Buckets that a person allowed for objects that are named by data.

use std::fmt;

use tidegate_core::bucket::{BucketAddress, Cloud};

use super::address::ObjectPlace;
use super::refusal::{ObjectRefusal, ObjectsError};
use crate::http::path;

/// A bucket, as a person allowed it. Names are compared as they are spelled, because stores do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllowedBucket {
    /// The kind of store; `None` for all of them.
    cloud: Option<Cloud>,
    bucket: String,
    /// What keys begin with, without a slash at the end; may be empty.
    prefix: String,
}

impl AllowedBucket {
    pub(super) fn parse(text: &str) -> Result<AllowedBucket, ObjectsError> {
        let wrong = || ObjectsError::Bucket(text.to_owned());
        let at = BucketAddress::parse(text).filter(|at| !at.bucket.is_empty()).ok_or_else(wrong)?;
        let prefix = at.key.trim_end_matches('/');
        if at.bucket.contains(['*', '?']) || !is_plain(prefix) {
            return Err(wrong());
        }
        Ok(AllowedBucket { cloud: Some(at.cloud), bucket: at.bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The bucket of this name, in any kind of store.
    pub(super) fn named(name: &str) -> AllowedBucket {
        AllowedBucket { cloud: None, bucket: name.to_owned(), prefix: String::new() }
    }

    fn holds(&self, at: &BucketAddress<'_>) -> bool {
        let in_prefix = self.prefix.is_empty()
            || at.key.strip_prefix(&self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.cloud.is_none_or(|cloud| cloud == at.cloud) && self.bucket == at.bucket && in_prefix
    }
}

impl fmt::Display for AllowedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cloud {
            Some(cloud) => write!(f, "{}://{}", cloud.scheme(), self.bucket)?,
            None => write!(f, "bucket {}", self.bucket)?,
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Whether a key is the object that it seems to be, also for a server that decodes it once more.
fn is_plain(key: &str) -> bool {
    !key.chars().any(char::is_control) && !path::climbs(key)
}

/// The object that a text names.
pub(super) fn place(
    buckets: &[AllowedBucket],
    text: &str,
    scheme: &str,
) -> Result<ObjectPlace, ObjectRefusal> {
    let at = BucketAddress::parse(text).ok_or_else(|| ObjectRefusal::Scheme(scheme.to_owned()))?;
    if at.bucket.is_empty() || at.key.is_empty() {
        return Err(ObjectRefusal::NoKey);
    }
    if !is_plain(at.key) {
        return Err(ObjectRefusal::Dots);
    }
    if !buckets.iter().any(|bucket| bucket.holds(&at)) {
        return Err(ObjectRefusal::Bucket(at.to_string()));
    }
    Ok(ObjectPlace::Bucket { home: at.to_string(), key: at.key.to_owned() })
}
