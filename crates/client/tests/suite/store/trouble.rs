//! What only a bucket on the network can do wrong.

use super::bucket::{Bucket, Mischief};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tidegate_client::lane::Snapshot;
use tidegate_client::store::{CloudSettings, ObjectStoreClient, OpenError, StoreSettings};
use tidegate_core::{Code, VerdictKind};

const MB: usize = 1 << 20;

async fn bucket() -> (Bucket, ObjectStoreClient) {
    let bucket = Bucket::start().await;
    let store = ObjectStoreClient::open("s3://bucket", &bucket.settings()).unwrap();
    (bucket, store)
}

fn lane(store: &ObjectStoreClient, prefix: &str) -> Snapshot {
    let name = format!("s3://bucket/{prefix}");
    store.lanes().snapshots().into_iter().find(|s| s.key.to_string() == name).unwrap()
}

/// Does `mischief` to the first `n` requests.
fn first(n: u32, mischief: fn() -> Mischief) -> impl FnMut(&http::request::Parts) -> Option<Mischief> {
    let mut left = n;
    move |_| {
        let now = left > 0;
        left = left.saturating_sub(1);
        now.then(mischief)
    }
}

#[tokio::test]
async fn slow_down_is_a_throttle_and_nothing_is_lost() {
    let (bucket, store) = bucket().await;
    bucket.misbehave(first(4, || Mischief::Refuse(503, "SlowDown")));
    let puts = stream::iter(0..24).map(|n| {
        let store = store.clone();
        async move { store.put(&format!("hot/{n:03}"), "x".into()).await }
    });
    let done: Vec<_> = puts.buffer_unordered(8).collect().await;
    assert!(done.iter().all(Result::is_ok));
    assert_eq!(bucket.keys().len(), 24);
    let hot = lane(&store, "hot");
    assert_eq!((hot.counts.throttled, hot.counts.sent), (4, 28));
    assert_eq!(hot.breaker_changes, 0, "a throttle is no illness");
}

#[tokio::test]
async fn a_hot_prefix_does_not_slow_another() {
    let (bucket, store) = bucket().await;
    let cooled = Arc::new(AtomicBool::new(false));
    let cool = cooled.clone();
    bucket.misbehave(move |head| {
        let hot = head.uri.path().starts_with("/bucket/hot/") && !cool.load(Ordering::SeqCst);
        hot.then_some(Mischief::Refuse(503, "SlowDown"))
    });
    let puts = store.clone();
    let put = move |n| {
        let store = puts.clone();
        async move { store.put(&format!("hot/{n}"), "x".into()).await }
    };
    let hot = tokio::spawn(stream::iter(0..8).map(put).buffer_unordered(8).collect::<Vec<_>>());
    for n in 0..50 {
        store.put(&format!("cold/{n}"), "x".into()).await.unwrap();
    }
    assert_eq!(bucket.keys().len(), 50, "all the cold ones, none of the hot ones");
    cooled.store(true, Ordering::SeqCst);
    assert!(hot.await.unwrap().iter().all(Result::is_ok));
    assert_eq!(bucket.keys().len(), 58);
    assert_eq!((lane(&store, "cold").counts.throttled, lane(&store, "cold").counts.sent), (0, 50));
    assert!(lane(&store, "hot").counts.throttled > 0);
}

#[tokio::test]
async fn what_heals_is_tried_again_and_what_does_not_is_not() {
    let (bucket, store) = bucket().await;
    for mischief in [
        || Mischief::Refuse(500, "InternalError"),
        || Mischief::Refuse(503, "ServiceUnavailable"),
        || Mischief::Refuse(429, "TooManyRequests"),
        || Mischief::HangUp,
        || Mischief::LoseAnswer,
    ] {
        bucket.misbehave(first(2, mischief));
        store.put("a/b", "x".into()).await.unwrap();
    }
    for (mischief, code, words) in [
        ((|| Mischief::Refuse(403, "AccessDenied")) as fn() -> Mischief, Code::FORBIDDEN, "403 AccessDenied"),
        (|| Mischief::Refuse(403, "SignatureDoesNotMatch"), Code::UNAUTHORIZED, "403 SignatureDoesNotMatch"),
        (
            || Mischief::Refuse(404, "NoSuchBucket"),
            Code::NOT_FOUND,
            "s3://bucket does not exist: 404 NoSuchBucket",
        ),
        (|| Mischief::Refuse(409, "Conflict"), Code::CONFLICT, "409 Conflict"),
        (|| Mischief::Refuse(412, "PreconditionFailed"), Code::CONFLICT, "412 PreconditionFailed"),
        (|| Mischief::Refuse(301, "PermanentRedirect"), Code::UNEXPECTED_REDIRECT, "301 PermanentRedirect"),
    ] {
        bucket.misbehave(first(1, mischief));
        let error = store.put("a/b", "x".into()).await.unwrap_err();
        assert_eq!((error.verdict.code, &*error.words, error.attempts), (code, words, 1));
        assert_eq!(error.verdict.kind, VerdictKind::Permanent);
    }
    bucket.misbehave(first(1, || Mischief::Refuse(404, "NoSuchBucket")));
    assert!(store.delete("a/b").await.is_err(), "a delete does not forgive a missing bucket");
    let before = bucket.log().len();
    bucket.misbehave(|_| Some(Mischief::Refuse(500, "InternalError")));
    let error = store.head("a/b").await.unwrap_err();
    assert!(error.is_later());
    assert_eq!((bucket.log().len() - before) as u32, error.attempts);
    assert_eq!(error.to_string(), format!("a/b: INTERNAL_ERROR (500) after {} attempts", error.attempts));
}

#[tokio::test]
async fn a_cut_object_is_read_on_and_a_changed_one_is_refused() {
    let (bucket, store) = bucket().await;
    let content: Bytes = (0..=250).collect::<Vec<u8>>().repeat(3 * MB / 251).into();
    store.put("cut", content.clone()).await.unwrap();
    // Within the first megabyte the attempt failed; later the rest is asked for.
    for after in [0, 1000, MB + MB / 2] {
        bucket.misbehave(first(
            1,
            match after {
                0 => || Mischief::Cut(0),
                1000 => || Mischief::Cut(1000),
                _ => || Mischief::Cut(MB + MB / 2),
            },
        ));
        let before = bucket.log().len();
        let read = store.get("cut").await.unwrap().bytes(4 * MB).await.unwrap();
        assert!(read == content);
        assert_eq!(bucket.log().len() - before, 2);
    }
    bucket.misbehave(first(1, || Mischief::Cut(MB + MB / 2)));
    let object = store.get("cut").await.unwrap();
    bucket.overwrite("cut", b"another");
    let error = object.bytes(4 * MB).await.unwrap_err();
    assert_eq!(error.verdict.code, Code::CONFLICT);
    assert!(store.get("cut").await.unwrap().bytes(3).await.is_err(), "more than was allowed");
}

fn three_parts() -> impl futures_util::Stream<Item = std::io::Result<Bytes>> {
    stream::iter((0..20u8).map(|n| Ok(Bytes::from(vec![n; MB]))))
}

#[tokio::test]
async fn parts_are_repeated_alone() {
    let (bucket, store) = bucket().await;
    let failed = AtomicU32::new(0);
    bucket.misbehave(move |head| {
        let second = head.uri.query().is_some_and(|q| q.contains("partNumber=2"));
        (second && failed.fetch_add(1, Ordering::SeqCst) < 2).then_some(Mischief::Refuse(503, "SlowDown"))
    });
    assert_eq!(store.put_stream("big", None, three_parts()).await.unwrap().bytes, 20 * MB as u64);
    let parts = |n: u32| bucket.log().iter().filter(|l| l.contains(&format!("partNumber={n}&"))).count();
    assert_eq!([parts(1), parts(2), parts(3), parts(4)], [1, 3, 1, 0]);
    assert_eq!(store.head("big").await.unwrap().size, 20 * MB as u64);
}

#[tokio::test]
async fn an_upload_that_fails_is_aborted() {
    let (bucket, store) = bucket().await;
    bucket.misbehave(|head| {
        let third = head.uri.query().is_some_and(|q| q.contains("partNumber=3"));
        third.then_some(Mischief::Refuse(403, "AccessDenied"))
    });
    let error = store.put_stream("big", None, three_parts()).await.unwrap_err();
    assert_eq!(error.verdict.code, Code::FORBIDDEN);
    assert_eq!((bucket.uploads(), bucket.keys().len()), (0, 0));
    assert!(bucket.log().last().unwrap().starts_with("DELETE /bucket/big?uploadId="));
}

#[tokio::test]
async fn finishing_survives_an_error_in_a_200_and_a_lost_answer() {
    let is_finish = |head: &http::request::Parts| {
        head.method == Method::POST && head.uri.query().is_some_and(|q| q.contains("uploadId"))
    };
    for mischief in [
        (|| Mischief::ErrorIn200("InternalError")) as fn() -> Mischief,
        || Mischief::ErrorIn200("SlowDown"),
        || Mischief::ErrorIn200("SomethingNew"),
        || Mischief::LoseAnswer,
    ] {
        let (bucket, store) = bucket().await;
        let mut done = false;
        bucket.misbehave(move |head| {
            let now = is_finish(head) && !done;
            done |= now;
            now.then(mischief)
        });
        assert_eq!(store.put_stream("big", None, three_parts()).await.unwrap().bytes, 20 * MB as u64);
        assert_eq!(store.head("big").await.unwrap().size, 20 * MB as u64);
    }
    // Lost, and somebody else's object is there: that is not ours.
    let (bucket, store) = bucket().await;
    let shelf = bucket.clone();
    let mut seen = 0;
    bucket.misbehave(move |head| {
        seen += u32::from(is_finish(head));
        match (is_finish(head), seen) {
            (true, 1) => Some(Mischief::HangUp),
            (true, _) => Some(Mischief::Refuse(404, "NoSuchUpload")),
            _ => None,
        }
    });
    shelf.overwrite("big", b"somebody else's");
    assert!(store.put_stream("big", None, three_parts()).await.is_err());
}

#[tokio::test]
async fn a_copy_can_fail_in_a_200() {
    let (bucket, store) = bucket().await;
    store.put("from", "x".into()).await.unwrap();
    bucket.misbehave(first(2, || Mischief::ErrorIn200("OperationAborted")));
    store.copy("from", "to").await.unwrap();
    assert_eq!(bucket.keys(), ["from", "to"]);
    assert_eq!(bucket.log().len(), 4);
}

#[tokio::test]
async fn keys_are_signed_with_and_never_shown() {
    let bucket = Bucket::start().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "CANARY-secret-key").unwrap();
    let from = Some(format!("file:{}", file.path().display()).parse().unwrap());
    let mut settings = bucket.settings();
    settings.cloud.access_key = from.clone();
    settings.cloud.secret_key = from.clone();
    settings.cloud.session_token = from;
    let store = ObjectStoreClient::open("s3://bucket", &settings).unwrap();
    bucket.misbehave(|head| {
        let signed =
            head.headers.get("authorization").unwrap().to_str().unwrap().starts_with("AWS4-HMAC-SHA256");
        assert!(signed && head.headers["x-amz-content-sha256"].len() == 64);
        (head.method == Method::GET).then_some(Mischief::Refuse(403, "SignatureDoesNotMatch"))
    });
    store.put("a", "x".into()).await.unwrap();
    let error = store.get("a").await.unwrap_err();
    let shown = format!("{error} {error:?} {store:?} {:?} {settings:?}", store.lanes().snapshots());
    assert!(!shown.contains("CANARY"), "{shown}");
}

#[test]
fn bad_addresses_and_settings_are_refused() {
    let endpoint =
        |url: &str| CloudSettings { endpoint: Some(url.parse().unwrap()), ..CloudSettings::default() };
    let open = |address: &str, cloud: CloudSettings| {
        ObjectStoreClient::open(address, &StoreSettings { cloud, ..StoreSettings::default() })
            .unwrap_err()
            .to_string()
    };
    let plain = || CloudSettings::default();
    assert!(open("", plain()).contains("empty"));
    assert!(open("ftp://x", plain()).contains("s3://bucket"));
    assert!(open("s3://", plain()).contains("no bucket"));
    assert!(open("s3://b c", plain()).contains("letters"));
    assert!(open("s3://b/x//y", plain()).contains("invalid key"));
    assert!(open("s3://b", endpoint("ftp://x/")).contains("expected http or https"));
    assert!(open("s3://b", endpoint("http://user:CANARY@x/")).contains("env:"));
    assert!(!open("s3://b", endpoint("http://user:CANARY@x/")).contains("CANARY"));
    let half = CloudSettings { access_key: Some("env:PATH".parse().unwrap()), ..plain() };
    assert!(open("s3://b", half).contains("given together"));
    let missing = CloudSettings { access_key: Some("env:TIDEGATE_NO_SUCH".parse().unwrap()), ..plain() };
    assert!(open("s3://b", missing).contains("TIDEGATE_NO_SUCH"));
    let nowhere = ObjectStoreClient::open("/no/such/directory", &StoreSettings::default()).unwrap_err();
    assert!(matches!(nowhere, OpenError::Directory(..)));
    let small = StoreSettings { part_bytes: 1, ..StoreSettings::default() };
    assert!(ObjectStoreClient::open("memory:", &small).is_err());
}

#[tokio::test]
async fn localhost_is_leave_enough() {
    let bucket = Bucket::start().await;
    let port = bucket.url.rsplit(':').next().unwrap().to_owned();
    let mut settings = bucket.settings();
    settings.cloud.endpoint = Some(format!("http://localhost:{port}").parse().unwrap());
    let store = ObjectStoreClient::open("s3://bucket", &settings).unwrap();
    store.put("a", "x".into()).await.unwrap();
    assert_eq!(bucket.log().len(), 1);
}
