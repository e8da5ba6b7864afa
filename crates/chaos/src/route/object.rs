//! An object store with the S3 protocol: put, get, head, delete, list, multipart.
//!
//! Only the hash and the size of an object are kept, so terabytes can be sent. Reading returns
//! filler of the right size with the right `ETag`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

use super::RefusalReason;
use crate::hash;
use crate::lock::lock;
use crate::reply::ResponseDraft;
use crate::wire::{self, ReceivedRequest};

const XML: &str = "application/xml";
const OBJECTS_MAX: usize = 1_000_000;
const FILLER_MAX: u64 = 64 * 1024 * 1024;
const LIST_MAX: usize = 1_000;

/// The hash and the size, in bytes, of a stored object.
#[derive(Clone, Copy, Default)]
struct StoredObject {
    hash: u64,
    /// Size in bytes.
    size: u64,
}

#[derive(Default)]
struct Shelf {
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<u64, StoredObject>,
}

/// The stored objects.
#[derive(Default)]
pub(crate) struct Objects(Mutex<Shelf>);

impl Objects {
    /// Empties the store.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = Shelf::default();
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).objects.len()
    }
}

pub(super) fn answer(objects: &Objects, request: &ReceivedRequest) -> ResponseDraft {
    let name = wire::decode(request.path().trim_start_matches("/s3").trim_start_matches('/'));
    let (bucket, key) = name.split_once('/').unwrap_or((&name, ""));
    let upload = request.param("uploadId").and_then(|id| u64::from_str_radix(&id, 16).ok());
    match (request.method.as_str(), key.is_empty(), upload) {
        ("GET", true, _) => list(objects, request, bucket),
        ("PUT" | "HEAD", true, _) => ResponseDraft::new(200, XML, ""),
        ("PUT", false, Some(id)) => part(objects, request, id),
        ("PUT", false, None) => put(objects, &name, &request.body),
        ("POST", false, Some(id)) => complete(objects, &name, bucket, key, id),
        ("POST", false, None) if request.param("uploads").is_some() => begin(objects, &name, bucket, key),
        ("DELETE", false, _) => {
            lock(&objects.0).objects.remove(&name);
            ResponseDraft::new(204, "", "").worked()
        }
        ("GET" | "HEAD", false, _) => get(objects, &name, request.method == "HEAD"),
        _ => fault(405, "MethodNotAllowed", "The method is not allowed here"),
    }
}

fn etag(hash: u64) -> (&'static str, String) {
    ("ETag", format!("\"{hash:016x}\""))
}

fn put(objects: &Objects, name: &str, body: &[u8]) -> ResponseDraft {
    let object = StoredObject { hash: hash::bytes(4, body), size: body.len() as u64 };
    let mut shelf = lock(&objects.0);
    if shelf.objects.len() >= OBJECTS_MAX && !shelf.objects.contains_key(name) {
        return fault(507, "StoreFull", "The store holds no more objects");
    }
    shelf.objects.insert(name.to_owned(), object);
    ResponseDraft { headers: vec![etag(object.hash)], ..ResponseDraft::new(200, "", "").worked() }
}

fn get(objects: &Objects, name: &str, head: bool) -> ResponseDraft {
    let Some(object) = lock(&objects.0).objects.get(name).copied() else {
        return fault(404, "NoSuchKey", "The specified key does not exist");
    };
    let size = object.size.min(FILLER_MAX);
    let headers = vec![etag(object.hash), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT".into())];
    let body = if head { Vec::new() } else { vec![b'.'; usize::try_from(size).unwrap_or(0)] };
    ResponseDraft {
        headers,
        stated_length: head.then_some(object.size),
        ..ResponseDraft::new(200, "application/octet-stream", body)
    }
}

fn begin(objects: &Objects, name: &str, bucket: &str, key: &str) -> ResponseDraft {
    let id = hash::bytes(6, name.as_bytes());
    lock(&objects.0).uploads.insert(id, StoredObject::default());
    let (bucket, key) = (escape(bucket), escape(key));
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><InitiateMultipartUploadResult><Bucket>{bucket}</Bucket>\
         <Key>{key}</Key><UploadId>{id:x}</UploadId></InitiateMultipartUploadResult>"
    );
    ResponseDraft::new(200, XML, body)
}

fn part(objects: &Objects, request: &ReceivedRequest, id: u64) -> ResponseDraft {
    let hash = hash::bytes(4, &request.body);
    match lock(&objects.0).uploads.get_mut(&id) {
        None => return fault(404, "NoSuchUpload", "The specified upload does not exist"),
        Some(upload) => {
            upload.size = upload.size.saturating_add(request.body.len() as u64);
            // Parts arrive in any order.
            upload.hash ^= hash::mix(hash);
        }
    }
    ResponseDraft { headers: vec![etag(hash)], ..ResponseDraft::new(200, "", "").worked() }
}

fn complete(objects: &Objects, name: &str, bucket: &str, key: &str, id: u64) -> ResponseDraft {
    let mut shelf = lock(&objects.0);
    let Some(upload) = shelf.uploads.remove(&id) else {
        return fault(404, "NoSuchUpload", "The specified upload does not exist");
    };
    shelf.objects.insert(name.to_owned(), upload);
    let (bucket, key, tag) = (escape(bucket), escape(key), upload.hash);
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><CompleteMultipartUploadResult><Bucket>{bucket}</Bucket>\
         <Key>{key}</Key><ETag>&quot;{tag:016x}&quot;</ETag></CompleteMultipartUploadResult>"
    );
    ResponseDraft::new(200, XML, body).worked()
}

fn list(objects: &Objects, request: &ReceivedRequest, bucket: &str) -> ResponseDraft {
    let prefix = request.param("prefix").unwrap_or_default();
    let after = request.param("continuation-token").or_else(|| request.param("start-after"));
    let most = request.param("max-keys").and_then(|v| v.parse().ok()).unwrap_or(LIST_MAX).min(LIST_MAX);
    let root = format!("{bucket}/");
    let shelf = lock(&objects.0);
    let from = format!("{root}{prefix}");
    let mut keys = shelf
        .objects
        .range(from.clone()..)
        .take_while(|(name, _)| name.starts_with(&from))
        .filter_map(|(name, object)| Some((name.strip_prefix(&root)?, object)))
        .filter(|(key, _)| after.as_deref().is_none_or(|after| *key > after))
        .peekable();
    let mut items = String::new();
    let (mut count, mut last) = (0, "");
    while count < most {
        let Some((key, object)) = keys.next() else { break };
        let _ = write!(
            items,
            "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;{:016x}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            escape(key),
            object.hash,
            object.size
        );
        (count, last) = (count + 1, key);
    }
    let cut = keys.peek().is_some() && count > 0;
    let token = if cut {
        format!("<NextContinuationToken>{}</NextContinuationToken>", escape(last))
    } else {
        String::new()
    };
    let (bucket, prefix) = (escape(bucket), escape(&prefix));
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult \
         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{bucket}</Name><Prefix>{prefix}</Prefix>\
         <KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys><IsTruncated>{cut}</IsTruncated>{items}{token}\
         </ListBucketResult>"
    );
    ResponseDraft::new(200, XML, body)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn fault(status: u16, code: &str, message: &str) -> ResponseDraft {
    ResponseDraft::new(
        status,
        XML,
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message>\
             <RequestId>chaos</RequestId></Error>"
        ),
    )
}

pub(super) fn refusal(status: u16, why: RefusalReason) -> ResponseDraft {
    match why {
        // S3 does not use 429.
        RefusalReason::Throttled => {
            let status = if status == 429 { 503 } else { status };
            fault(status, "SlowDown", "Please reduce your request rate.")
        }
        RefusalReason::Bad => fault(status, "InvalidRequest", "The request cannot be read"),
        RefusalReason::Failed => {
            fault(status, "InternalError", "We encountered an internal error. Please try again.")
        }
    }
}
