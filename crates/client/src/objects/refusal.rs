//! Why something that data names is not opened, and what a person can do about it.
//!
//! A refusal quotes the text that came in, and nothing of what lies there: not whether it exists, and
//! not what is in it.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use tidegate_core::Code;

use super::address::shown;
use super::{AllowedObjects, ObjectsKey};

/// The most characters of a refused text that are quoted.
const QUOTED_MAX: usize = 300;

/// Why a text out of data is not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectRefusal {
    /// The path is in no folder that is allowed, at least not after its links are followed.
    Folder,
    /// The host, with its port where that matters, is not allowed.
    Host(String),
    /// The host is allowed, and its address is private.
    Private(String),
    /// The bucket, or this part of it, is not allowed.
    Bucket(String),
    /// There are no addresses of this scheme.
    Scheme(String),
    /// It has a segment `.` or `..`, perhaps encoded.
    Dots,
    /// It is empty, or has characters that no path should have.
    Characters,
    /// It is no URL.
    Url(String),
    /// It has a user name or a password.
    UserName,
    /// It names a bucket and no object.
    NoKey,
    /// It must be a path, and is an address.
    NotAPath,
    /// It is a directory, or a device.
    NotAFile,
    /// A file beside it that would be read along leads out of the folder.
    Beside(String),
    /// It would be allowed, and cannot be read.
    Unreadable(ErrorKind),
}

/// A text out of data that is not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRefused {
    /// Why.
    pub why: ObjectRefusal,
    /// The text, as it may be shown.
    shown: String,
    /// What a person can do about it.
    advice: Option<String>,
}

impl ObjectRefused {
    pub(super) fn new(text: &str, why: ObjectRefusal, allowed: &AllowedObjects) -> ObjectRefused {
        let advice = advice(text, &why, allowed);
        ObjectRefused { shown: quoted(text), why, advice }
    }

    /// What a person wrote cannot be used.
    pub(super) fn of_person(text: &str, why: ObjectRefusal) -> ObjectRefused {
        ObjectRefused { shown: shown(text), why, advice: None }
    }

    /// The code of the taxonomy.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.why {
            ObjectRefusal::Unreadable(_) => Code::NOT_FOUND,
            _ => Code::OBJECT_NOT_ALLOWED,
        }
    }
}

impl fmt::Display for ObjectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectRefusal::Folder => f.write_str("it is in no folder that may be opened"),
            ObjectRefusal::Host(host) => write!(f, "the host {host} is not allowed"),
            ObjectRefusal::Private(host) => {
                write!(f, "the host {host} is allowed, but its address is private")
            }
            ObjectRefusal::Bucket(bucket) => write!(f, "{bucket} is not allowed, or not this part of it"),
            ObjectRefusal::Scheme(scheme) => write!(f, "{scheme}: is never opened"),
            ObjectRefusal::Dots => f.write_str("a path with `..` is never followed"),
            ObjectRefusal::Characters => {
                f.write_str("a path must have characters, and no backslashes or control characters")
            }
            ObjectRefusal::Url(why) => write!(f, "it is no URL: {why}"),
            ObjectRefusal::UserName => f.write_str("an address with a user name is never opened"),
            ObjectRefusal::NoKey => f.write_str("it names a bucket and no object"),
            ObjectRefusal::NotAPath => f.write_str("it must be a path here"),
            ObjectRefusal::NotAFile => f.write_str("it is not a regular file"),
            ObjectRefusal::Beside(name) => {
                write!(f, "{name} beside it is a link that leads out of the folder, or no file")
            }
            ObjectRefusal::Unreadable(ErrorKind::NotFound) => f.write_str("there is no such file"),
            ObjectRefusal::Unreadable(kind) => write!(f, "it cannot be read: {kind}"),
        }
    }
}

impl fmt::Display for ObjectRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shown, self.why)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ObjectRefused {}

/// A text out of data, for a message.
fn quoted(text: &str) -> String {
    let shown = shown(text);
    let mut out: String = shown
        .chars()
        .take(QUOTED_MAX)
        .flat_map(|c| match c {
            c if c.is_control() => c.escape_debug().collect::<Vec<_>>(),
            c => vec![c],
        })
        .collect();
    if shown.chars().nth(QUOTED_MAX).is_some() {
        out.push('…');
    }
    out
}

/// A text as a value of YAML.
fn yaml(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    if text.chars().all(is_plain) && !text.starts_with('-') {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

/// The line that would allow it.
fn advice(text: &str, why: &ObjectRefusal, allowed: &AllowedObjects) -> Option<String> {
    let setting = match (why, &allowed.key) {
        (_, ObjectsKey::None) => return None,
        (ObjectRefusal::Folder, ObjectsKey::Option(option)) => {
            return Some(format!("if you trust it, pass {option} {}", parent(text)));
        }
        (_, ObjectsKey::Option(_)) => return None,
        (ObjectRefusal::Folder, _) => format!("folder: {}", yaml(&parent(text))),
        (ObjectRefusal::Host(name) | ObjectRefusal::Private(name), _) => {
            format!("hosts: [{}]", serde_json::Value::from(name.as_str()))
        }
        (ObjectRefusal::Bucket(bucket), _) => {
            format!("buckets: [{}]", serde_json::Value::from(bucket.as_str()))
        }
        _ => return None,
    };
    let ObjectsKey::Manifest(section) = &allowed.key else { return None };
    Some(format!("if you trust it, set `objects: {{ {setting} }}` in `{section}`"))
}

/// The folder that a path seems to be in.
fn parent(text: &str) -> String {
    match Path::new(text).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.display().to_string(),
        _ => ".".to_owned(),
    }
}

/// Why `objects` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectsError {
    /// This is not a host.
    Host(String),
    /// This is not the address of a bucket.
    Bucket(String),
}

impl ObjectsError {
    /// What to write instead.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            ObjectsError::Host(_) => "write `example.org`, `example.org:8080` or `*.example.org`",
            ObjectsError::Bucket(_) => {
                "write `s3://bucket` or `s3://bucket/prefix`; also `az://` and `gs://`"
            }
        }
    }
}

impl fmt::Display for ObjectsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectsError::Host(text) => write!(f, "{text:?} is not a host"),
            ObjectsError::Bucket(text) => write!(f, "{text:?} is not the address of a bucket"),
        }
    }
}

impl std::error::Error for ObjectsError {}
