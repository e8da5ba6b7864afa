//! What every store does.

use super::bucket::Bucket;
use super::quick;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use tidegate_client::store::{Confirmation, GetRange, KeySpread, ObjectStoreClient, StoreSettings};
use tidegate_core::Code;

const MB: usize = 1 << 20;

async fn read(store: &ObjectStoreClient, key: &str) -> Bytes {
    store.get(key).await.unwrap().bytes(64 * MB).await.unwrap()
}

async fn keys(store: &ObjectStoreClient, folder: &str) -> Vec<String> {
    store.list(folder).map_ok(|meta| meta.key).try_collect().await.unwrap()
}

/// Bytes that differ from place to place.
fn filler(length: usize) -> Bytes {
    let block: Vec<u8> = (0..=250).collect();
    let mut whole = block.repeat(length / block.len() + 1);
    whole.truncate(length);
    whole.into()
}

async fn conforms(store: ObjectStoreClient) {
    // Put, get, head, overwrite, the empty object.
    store.put("a/one", "1".into()).await.unwrap();
    assert_eq!(read(&store, "a/one").await, "1");
    store.put("a/one", "one".into()).await.unwrap();
    assert_eq!(read(&store, "a/one").await, "one");
    store.put("a/none", Bytes::new()).await.unwrap();
    assert_eq!(read(&store, "a/none").await, "");
    let head = store.head("a/one").await.unwrap();
    assert_eq!((head.key.as_str(), head.size), ("a/one", 3));

    // What is not there.
    for error in [store.get("a/two").await.unwrap_err(), store.head("a/two").await.unwrap_err()] {
        assert!(error.is_not_found() && !error.is_later(), "{error}");
        assert_eq!((&*error.key, error.attempts), ("a/two", 1));
    }
    assert!(store.copy("a/two", "a/three").await.unwrap_err().is_not_found());
    store.delete("a/two").await.unwrap();
    for bad in ["", "/a", "a/", "a//b", "a/../b", "a\nb"] {
        assert_eq!(store.put(bad, "x".into()).await.unwrap_err().verdict.code, Code::BAD_REQUEST);
    }

    // Names of all kinds.
    let names = ["a b", "b&<c>.xml", "c%20d", "e+f=g", "ß/日本語.tif", "#?;:@", "a-b", "a.b", "z/y/x/w"];
    for name in names {
        store.put(name, Bytes::copy_from_slice(name.as_bytes())).await.unwrap();
    }
    for name in names {
        assert_eq!(read(&store, name).await, name.as_bytes(), "{name}");
    }

    // Lists: all, in order, and of a folder.
    let mut all: Vec<String> = names.iter().chain(&["a/one", "a/none"]).map(|s| (*s).to_owned()).collect();
    all.sort();
    assert_eq!(keys(&store, "").await, all);
    assert_eq!(keys(&store, "a").await, ["a/none", "a/one"]);
    assert_eq!(keys(&store, "z/y/").await, ["z/y/x/w"]);
    assert_eq!(keys(&store, "nowhere").await, [""; 0]);
    let sizes: Vec<u64> = store.list("a").map_ok(|meta| meta.size).try_collect().await.unwrap();
    assert_eq!(sizes, [0, 3]);

    // Ranges.
    store.put("range", "0123456789".into()).await.unwrap();
    for (range, wanted) in [
        (GetRange::Bounded(2..5), "234"),
        (GetRange::Bounded(8..20), "89"),
        (GetRange::Offset(7), "789"),
        (GetRange::Suffix(3), "789"),
    ] {
        let object = store.get_range("range", Some(range)).await.unwrap();
        assert_eq!(object.meta.size, 10);
        assert_eq!(object.bytes(10).await.unwrap(), wanted);
    }
    let beyond = store.get_range("range", Some(GetRange::Offset(10))).await.unwrap_err();
    assert!(!beyond.is_later() && beyond.attempts == 1, "{beyond}");

    // Copies, renames, deletes.
    store.copy("a/one", "copies/ä").await.unwrap();
    store.rename("copies/ä", "copies/b").await.unwrap();
    assert_eq!(keys(&store, "copies").await, ["copies/b"]);
    assert_eq!(read(&store, "copies/b").await, "one");
    store.rename("copies/b", "copies/b").await.unwrap();
    store.delete("copies/b").await.unwrap();
    store.delete("copies/b").await.unwrap();
    assert_eq!(keys(&store, "copies").await, [""; 0]);
    assert_eq!(read(&store, "a/one").await, "one");

    // Large objects, in one piece and in parts, from sources that cut where they like.
    let large = filler(10 * MB + 7);
    store.put("large/whole", large.clone()).await.unwrap();
    assert!(read(&store, "large/whole").await == large);
    for (piece, length) in [(100_003, Some(large.len() as u64)), (9 * MB, None)] {
        let pieces: Vec<_> = large.chunks(piece).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let put = store.put_stream("large/parts", length, stream::iter(pieces)).await.unwrap();
        assert_eq!(put.bytes, large.len() as u64);
        store.confirm("large/parts", &put, false).await.unwrap();
        assert_eq!(store.confirm("large/parts", &put, true).await, Ok(Confirmation::Checksum));
        assert!(read(&store, "large/parts").await == large);
    }
    let small = store.put_stream("small", None, stream::iter([Ok("abc".into()), Ok("def".into())])).await;
    let small = small.unwrap();
    assert_eq!((small.bytes, read(&store, "small").await), (6, "abcdef".into()));
    store.put("small", "abcdeg".into()).await.unwrap();
    assert_eq!(store.confirm("small", &small, true).await.unwrap_err().verdict.code, Code::CONFLICT);
    assert_eq!(store.put_stream("small", Some(0), stream::empty()).await.unwrap().bytes, 0);
    assert_eq!(store.confirm("small", &small, false).await.unwrap_err().verdict.code, Code::CONFLICT);
    assert_eq!(store.head("small").await.unwrap().size, 0);

    // A source that breaks leaves what was there.
    let broken = stream::iter([Ok(vec![7; 17 * MB].into()), Err(io::Error::other("gone"))]);
    assert!(store.put_stream("a/one", None, broken).await.is_err());
    let short = stream::iter([Ok(vec![7; 17 * MB].into())]);
    assert!(store.put_stream("a/one", Some(18 * MB as u64), short).await.is_err());
    let long = stream::iter([Ok(vec![7; 17 * MB].into())]);
    assert!(store.put_stream("a/one", Some(16 * MB as u64), long).await.is_err());
    assert_eq!(read(&store, "a/one").await, "one");
    assert_eq!(keys(&store, "a").await, ["a/none", "a/one"]);
}

const BOTH: [KeySpread; 2] = [KeySpread::None, KeySpread::Hash];

#[tokio::test]
async fn memory_conforms() {
    for key_spread in BOTH {
        conforms(ObjectStoreClient::open("memory:", &StoreSettings { key_spread, ..quick() }).unwrap()).await;
    }
}

#[tokio::test]
async fn files_conform() {
    for key_spread in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("made/here");
        let address = url::Url::from_file_path(&inside).unwrap();
        let store =
            ObjectStoreClient::open(address.as_str(), &StoreSettings { key_spread, ..quick() }).unwrap();
        conforms(store).await;
        let again =
            ObjectStoreClient::open(inside.to_str().unwrap(), &StoreSettings { key_spread, ..quick() })
                .unwrap();
        assert_eq!(read(&again, "a/one").await, "one");
        assert_eq!(inside.join("a/one").exists(), key_spread == KeySpread::None);
    }
}

#[tokio::test]
async fn a_bucket_conforms() {
    for (key_spread, address) in BOTH.into_iter().zip(["s3://bucket", "s3://bucket/deep/base/"]) {
        let bucket = Bucket::start().await;
        let store =
            ObjectStoreClient::open(address, &StoreSettings { key_spread, ..bucket.settings() }).unwrap();
        conforms(store).await;
        assert_eq!(bucket.uploads(), 0, "nothing is left half-way");
        let whole = |key: &String| !key.starts_with("h=") && !key.starts_with("deep/base/h=");
        assert_eq!(bucket.keys().iter().all(whole), key_spread == KeySpread::None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A spread store reads as one that is not: same content, same order.
    #[test]
    fn spreading_is_not_seen(objects in prop::collection::btree_map("[a-c]{1,2}(/[a-c.-]{1,3}x){0,2}", ".{0,8}", 0..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = StoreSettings { key_spread: KeySpread::Hash, ..quick() };
            let store = ObjectStoreClient::open("memory:", &settings).unwrap();
            for (key, content) in &objects {
                store.put(key, Bytes::copy_from_slice(content.as_bytes())).await.unwrap();
            }
            let mut read_back = BTreeMap::new();
            let listed = keys(&store, "").await;
            for key in &listed {
                let content = read(&store, key).await;
                read_back.insert(key.clone(), String::from_utf8(content.to_vec()).unwrap());
            }
            assert!(listed.is_sorted());
            assert_eq!(listed.len(), objects.len());
            assert_eq!(read_back, objects);
            let under: Vec<&String> = objects.keys().filter(|key| key.starts_with("a/")).collect();
            assert_eq!(keys(&store, "a").await.iter().collect::<Vec<_>>(), under);
            store.list("").for_each(|meta| { assert!(meta.is_ok()); std::future::ready(()) }).await;
        });
    }
}
