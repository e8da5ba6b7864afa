//! What can be opened: a text whose place is settled, and that somebody answers for.

use std::path::{Path, PathBuf};

use tidegate_core::bucket::BucketAddress;
use url::Url;

use super::refusal::{ObjectRefusal, ObjectRefused};
use crate::http::Allow;

/// Something that may be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectAddress {
    text: String,
    place: ObjectPlace,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectPlace {
    /// A local file. A path that came in data has no links left.
    File(PathBuf),
    /// On a web server, and where its redirects may lead.
    Web {
        /// Its URL.
        url: Url,
        /// The hosts and addresses that may be asked for it.
        allow: Allow,
    },
    /// An object in a store.
    Bucket {
        /// The bucket, such as `s3://scenes`.
        home: String,
        /// The key of the object.
        key: String,
    },
}

impl ObjectAddress {
    /// An address or a path that a person wrote in a manifest or on a command line. A relative path starts
    /// at `base`; with `private`, a host name may resolve to a private address. An address that is
    /// written as a number, or `localhost`, may be private in any case.
    ///
    /// # Errors
    /// When it is a URL that cannot be read, or a bucket without a key.
    pub fn written(text: &str, base: &Path, private: bool) -> Result<ObjectAddress, ObjectRefused> {
        let refuse = |why| Err(ObjectRefused::of_person(text, why));
        let place = if let Some(at) = BucketAddress::parse(text) {
            if at.bucket.is_empty() || at.key.is_empty() {
                return refuse(ObjectRefusal::NoKey);
            }
            ObjectPlace::Bucket { home: at.to_string(), key: at.key.to_owned() }
        } else if text.starts_with("http://") || text.starts_with("https://") {
            match Url::parse(text) {
                Ok(url) => ObjectPlace::Web { allow: Allow::meant(&url, private, &[]), url },
                Err(error) => return refuse(ObjectRefusal::Url(error.to_string())),
            }
        } else {
            ObjectPlace::File(base.join(text))
        };
        Ok(ObjectAddress::of(text, place))
    }

    /// A remote file that a person wrote, under the rules for a service: `private` and `others` are its
    /// `allow_private` and `allow_hosts`.
    ///
    /// # Errors
    /// When it is a URL that cannot be read, or a bucket without a key.
    pub fn of_service(text: &str, private: bool, others: &[String]) -> Result<ObjectAddress, ObjectRefused> {
        let mut written = ObjectAddress::written(text, Path::new(""), private)?;
        if let ObjectPlace::Web { url, allow } = &mut written.place {
            *allow = Allow::meant(url, private, others);
        }
        Ok(written)
    }

    /// A file that this program made.
    #[must_use]
    pub fn made(path: &Path) -> ObjectAddress {
        ObjectAddress::of(&path.display().to_string(), ObjectPlace::File(path.to_owned()))
    }

    pub(super) fn of(text: &str, place: ObjectPlace) -> ObjectAddress {
        ObjectAddress { text: text.to_owned(), place }
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &ObjectPlace {
        &self.place
    }

    pub(super) fn into_place(self) -> ObjectPlace {
        self.place
    }

    /// The path, if it is a local file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            ObjectPlace::File(path) => Some(path),
            _ => None,
        }
    }

    /// As it was written: a text, not something to open.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As it may be shown: without the query, which may hold a signature, and without a password.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.place {
            ObjectPlace::File(path) => path.display().to_string(),
            _ => shown(&self.text),
        }
    }
}

/// An address as it may be shown: without the query, which may hold a signature, and without a password.
#[must_use]
pub fn shown(address: &str) -> String {
    match Url::parse(address) {
        Ok(mut url) if matches!(url.scheme(), "http" | "https") => {
            url.set_query(None);
            url.set_fragment(None);
            // A URL with a host has a place for both.
            let _ = (url.set_username(""), url.set_password(None));
            url.to_string()
        }
        _ => address.to_owned(),
    }
}
