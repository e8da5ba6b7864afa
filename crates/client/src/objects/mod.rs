//! What may be opened when its name came in data.
//!
//! A record, a message, a letter and an answer of a service are data: whoever wrote them is not
//! whoever runs the pipeline. So a path or an address in them opens nothing by itself. A person allows a
//! folder, hosts and buckets ([`AllowedObjects`]), and [`AllowedObjects::address`] is the only way from a
//! text in data to an [`ObjectAddress`], which is all that the functions that open things take. The other
//! constructors of an address say whose it is: [`ObjectAddress::written`] for what a person wrote
//! in a manifest or on a command line, [`ObjectAddress::made`] for a file of this program.
//!
//! | came in data | is opened if |
//! |---|---|
//! | a path | it is a regular file in an allowed folder, after all links are followed, and so are the files that are read beside it |
//! | `http://`, `https://` | its host and port are allowed; a private address only if `allow_private` is set, or if the address or `localhost` is written out with its port |
//! | `s3://`, `az://`, `gs://` | its bucket is allowed, and its key begins with the prefix, if one is named |
//! | anything else | never |
//!
//! Why links are followed first and the result is opened: the path that is opened has no links left
//! that could lead elsewhere. What remains: whoever may rename entries of the allowed folder can put a
//! link there between the check and the opening, and a hard link is a file of the folder like any
//! other. Both need the right to write in the folder, on the same file system.
//!
//! | file | holds |
//! |---|---|
//! | `address` | what can be opened |
//! | `folder` | paths |
//! | `host` | addresses on the web |
//! | `bucket` | objects in a store |
//! | `refusal` | why not, and what to do about it |

mod address;
mod bucket;
mod folder;
mod host;
mod refusal;

pub use address::{ObjectAddress, ObjectPlace, shown};
pub use refusal::{ObjectRefusal, ObjectRefused, ObjectsError};

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use crate::http::Allow;
use bucket::AllowedBucket;
use folder::AllowedFolder;
use host::AllowedHost;

/// Where a person allows more, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectsKey {
    /// Nowhere.
    #[default]
    None,
    /// In the manifest: the section that has the key `objects`, such as `source.tasks`.
    Manifest(String),
    /// On the command line: an option that takes a directory, such as `--folder`.
    Option(&'static str),
}

/// What a person allowed to be opened by names that come in data. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowedObjects {
    key: ObjectsKey,
    /// The directory that relative paths start at.
    base: PathBuf,
    folders: Vec<AllowedFolder>,
    hosts: Vec<AllowedHost>,
    buckets: Vec<AllowedBucket>,
    /// Whether names may resolve to private addresses.
    private: bool,
    /// What a service may name, which has rules of its own.
    service: Option<Allow>,
    /// What a person wrote, word for word.
    written: Vec<String>,
}

impl AllowedObjects {
    /// Nothing yet. Relative paths start at `base`.
    #[must_use]
    pub fn nothing(key: ObjectsKey, base: &Path) -> AllowedObjects {
        AllowedObjects { key, base: base.to_owned(), ..AllowedObjects::default() }
    }

    /// Allows the regular files in a folder. A relative path starts at the base.
    pub fn folder(&mut self, folder: &str) {
        self.folders.push(AllowedFolder::new(folder, &self.base));
    }

    /// Allows a host: `example.org` at the usual ports, `example.org:8080` at this one,
    /// `*.example.org` for its subdomains.
    ///
    /// # Errors
    /// When it is not a host.
    pub fn host(&mut self, host: &str) -> Result<(), ObjectsError> {
        self.hosts.push(AllowedHost::parse(host)?);
        Ok(())
    }

    /// Allows a bucket: `s3://bucket`, or `s3://bucket/prefix`.
    ///
    /// # Errors
    /// When it is not the address of a bucket.
    pub fn bucket(&mut self, bucket: &str) -> Result<(), ObjectsError> {
        self.buckets.push(AllowedBucket::parse(bucket)?);
        Ok(())
    }

    /// Lets the names of allowed hosts resolve to private addresses.
    pub fn private(&mut self) {
        self.private = true;
    }

    /// Allows what a service may link to: its own host, and `others`, which are hosts or names of buckets.
    pub fn service(&mut self, url: &Url, private: bool, others: &[String]) {
        self.service = Some(Allow::meant(url, private, others));
        self.buckets.extend(others.iter().map(|name| AllowedBucket::named(name)));
    }

    /// Allows this very text: a person wrote it.
    pub fn written(&mut self, text: &str) {
        self.written.push(text.to_owned());
    }

    /// What a text out of data names, if it may be opened.
    ///
    /// # Errors
    /// Why it may not, or cannot, be opened.
    pub fn address(&self, text: &str) -> Result<ObjectAddress, ObjectRefused> {
        if self.written.iter().any(|known| known == text) {
            return ObjectAddress::written(text, &self.base, self.private);
        }
        let place = match text.split_once("://") {
            Some((scheme, _))
                if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") =>
            {
                self.web(text)
            }
            Some((scheme, _)) => bucket::place(&self.buckets, text, scheme),
            None => folder::place(&self.folders, &self.base, text),
        };
        place.map(|place| ObjectAddress::of(text, place)).map_err(|why| ObjectRefused::new(text, why, self))
    }

    /// The regular file that a text out of data names, if it may be opened.
    ///
    /// # Errors
    /// As [`AllowedObjects::address`], or if it is not a path.
    pub fn file(&self, text: &str) -> Result<PathBuf, ObjectRefused> {
        match self.address(text)?.into_place() {
            ObjectPlace::File(path) => Ok(path),
            _ => Err(ObjectRefused::new(text, ObjectRefusal::NotAPath, self)),
        }
    }

    fn web(&self, text: &str) -> Result<ObjectPlace, ObjectRefusal> {
        let url = Url::parse(text).map_err(|error| ObjectRefusal::Url(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ObjectRefusal::UserName);
        }
        if let Some(allow) = self.service.as_ref().filter(|allow| allow.url(&url).is_ok()) {
            return Ok(ObjectPlace::Web { url, allow: allow.clone() });
        }
        let allow = host::allow(&self.hosts, &url, self.private)?;
        Ok(ObjectPlace::Web { url, allow })
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.parts().is_empty()
    }

    /// What is allowed, one word or phrase each.
    #[must_use]
    pub fn parts(&self) -> Vec<String> {
        let folders = self.folders.iter().map(ToString::to_string);
        let private = if self.private { " (also at private addresses)" } else { "" };
        let hosts = self.hosts.iter().map(|host| format!("host {host}{private}"));
        let buckets = self.buckets.iter().map(ToString::to_string);
        let service = self
            .service
            .iter()
            .flat_map(|allow| allow.hosts.iter().map(|host| format!("host {host}")).collect::<Vec<_>>());
        let written = self.written.iter().map(|text| shown(text));
        folders.chain(hosts).chain(service).chain(buckets).chain(written).collect()
    }
}

impl fmt::Display for AllowedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            parts if parts.is_empty() => f.write_str("nothing may be opened"),
            parts => f.write_str(&parts.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
