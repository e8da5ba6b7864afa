//! Addresses of object stores: `s3://bucket/key`, `az://container/key`, `gs://bucket/key`.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// A kind of object store on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cloud {
    /// Amazon S3, and everything that speaks its protocol.
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage.
    Gcs,
}

impl Cloud {
    /// All of them.
    pub const ALL: [Cloud; 3] = [Cloud::S3, Cloud::Azure, Cloud::Gcs];

    /// The scheme of its addresses.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Cloud::S3 => "s3",
            Cloud::Azure => "az",
            Cloud::Gcs => "gs",
        }
    }

    /// The name of its profile.
    #[must_use]
    pub const fn profile(self) -> &'static str {
        match self {
            Cloud::S3 => "s3",
            Cloud::Azure => "azure-blob",
            Cloud::Gcs => "gcs",
        }
    }
}

/// The address of a bucket or of an object in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketAddress<'a> {
    /// The kind of store.
    pub cloud: Cloud,
    /// The bucket or container; it may be empty.
    pub bucket: &'a str,
    /// The rest after the slash; it may be empty.
    pub key: &'a str,
}

impl<'a> BucketAddress<'a> {
    /// The parts of an address; `None` if it is a path or has another scheme.
    #[must_use]
    pub fn parse(address: &'a str) -> Option<BucketAddress<'a>> {
        let (scheme, rest) = address.split_once("://")?;
        let cloud = Cloud::ALL.into_iter().find(|cloud| cloud.scheme() == scheme)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        Some(BucketAddress { cloud, bucket, key })
    }

    /// Whether `address` is one of a bucket.
    #[must_use]
    pub fn is_one(address: &str) -> bool {
        BucketAddress::parse(address).is_some()
    }
}

impl fmt::Display for BucketAddress<'_> {
    /// The bucket, without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.cloud.scheme(), self.bucket)
    }
}

/// Where the credentials of a store come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// The references that are given; without them requests are not signed.
    #[default]
    Given,
    /// The usual variables of the cloud; without them requests are not signed.
    Environment,
    /// A token file that is exchanged for the credentials of a role.
    WebIdentity,
    /// The credential service of the container.
    Container,
    /// The metadata service of the instance.
    Instance,
}

impl CredentialSource {
    /// All of them, with their names.
    pub const ALL: [(CredentialSource, &'static str); 5] = [
        (CredentialSource::Given, "given"),
        (CredentialSource::Environment, "environment"),
        (CredentialSource::WebIdentity, "web_identity"),
        (CredentialSource::Container, "container"),
        (CredentialSource::Instance, "instance"),
    ];
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = CredentialSource::ALL.into_iter().find(|(source, _)| source == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for CredentialSource {
    type Err = String;

    fn from_str(text: &str) -> Result<CredentialSource, String> {
        let found = CredentialSource::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(source, _)| source).ok_or_else(|| {
            let names = CredentialSource::ALL.map(|(_, name)| name).join(", ");
            format!("unknown credentials {text:?}; expected one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_address_has_a_bucket_and_a_key() {
        for (address, cloud, bucket, key) in [
            ("s3://b/a/b.tif", Cloud::S3, "b", "a/b.tif"),
            ("az://c", Cloud::Azure, "c", ""),
            ("gs://b/", Cloud::Gcs, "b", ""),
            ("s3://", Cloud::S3, "", ""),
        ] {
            assert_eq!(BucketAddress::parse(address), Some(BucketAddress { cloud, bucket, key }));
        }
        assert_eq!(BucketAddress::parse("gs://b/a").map(|at| at.to_string()), Some("gs://b".into()));
        for other in ["s3:/b", "data", "https://b/a", "S3://b", ""] {
            assert!(!BucketAddress::is_one(other), "{other}");
        }
    }
}
