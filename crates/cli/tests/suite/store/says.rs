//! What `store` says, and whether the store agrees.

use std::fs;
use std::sync::Mutex;

use crate::common::canned::Canned;
use crate::store::{store, text};

/// A bucket that holds `size` bytes under this ETag, whatever was put.
fn bucket(size: usize, etag: &'static str) -> Canned {
    Canned::start(move |head| {
        let dated =
            format!("200 OK\r\nETag: \"{etag}\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n");
        if head.starts_with("PUT") { dated } else { dated + &"x".repeat(size) }
    })
}

#[test]
fn a_put_is_confirmed_by_the_store() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), "abc").unwrap();
    let md5_of_abc = "900150983cd24fb0d6963f7d28e17f72";
    let put = |server: &Canned, more: &[&str]| {
        let url = server.url();
        let put = store(here.path(), &[&["put", "s3://b", "a", "--endpoint", &url], more].concat());
        (put.status.code(), text(&put.stderr).to_owned())
    };
    let said = |words: &str| words.to_owned() + "\n";
    assert_eq!(
        put(&bucket(3, md5_of_abc), &[]),
        (Some(0), said("put 1 object, 3 bytes, to s3://b; the store confirmed the sizes and checksums"))
    );
    assert_eq!(
        put(&bucket(3, "opaque"), &[]),
        (Some(0), said("put 1 object, 3 bytes, to s3://b; the store confirmed the sizes"))
    );
    let (code, words) = put(&bucket(2, md5_of_abc), &[]);
    assert_eq!(code, Some(1));
    assert!(
        words.starts_with("tidegate store: a: CONFLICT (the store holds another object: 2 bytes, not 3;"),
        "{words}"
    );
    assert!(words.ends_with("put 0 of 1 object, 0 bytes, to s3://b\n"), "{words}");
    let (code, words) = put(&bucket(3, "opaque"), &["--verify"]);
    assert_eq!(code, Some(1), "xxx is not abc");
    assert!(words.contains("its SHA-256 differs"), "{words}");
    assert_eq!(put(&bucket(3, md5_of_abc), &["-q"]), (Some(0), String::new()));
}

#[test]
fn a_missing_bucket_is_named() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), "abc").unwrap();
    let server =
        Canned::start(|_| "404 Not Found\r\n\r\n<Error><Code>NoSuchBucket</Code></Error>".to_owned());
    let url = server.url();
    for what in [&["put", "s3://tiles", "a"][..], &["ls", "s3://tiles"], &["rm", "s3://tiles", "a"]] {
        let said = store(here.path(), &[what, &["--endpoint", &url]].concat());
        assert_eq!(said.status.code(), Some(1));
        let words = text(&said.stderr);
        assert!(words.contains("NOT_FOUND (s3://tiles does not exist: 404 NoSuchBucket)"), "{words}");
    }
}

#[test]
fn every_key_is_listed_in_json_too() {
    let here = tempfile::tempdir().unwrap();
    let contents = |keys: &[&str]| -> String {
        let object = |key: &&str| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>3</Size></Contents>"
            )
        };
        format!("<ListBucketResult>{}</ListBucketResult>", keys.iter().map(object).collect::<String>())
    };
    let page = Mutex::new(contents(&["/lead", "a//b", "a/b", "dir/", "x/../y"]));
    let full = Canned::start(move |_| {
        let page = page.lock().unwrap();
        format!("200 OK\r\nContent-Type: application/xml\r\n\r\n{page}")
    });
    let url = full.url();
    let listed = store(here.path(), &["ls", "s3://b", "--format", "json", "--endpoint", &url]);
    assert_eq!((listed.status.code(), text(&listed.stderr)), (Some(0), ""));
    let all: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let keys: Vec<&str> = all.as_array().unwrap().iter().map(|o| o["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["/lead", "a//b", "a/b", "dir/", "x/../y"]);
    assert_eq!(
        all[0],
        serde_json::json!({"key": "/lead", "size": 3, "modified_ms": 1_767_225_600_000_i64, "etag": "\"1\""})
    );
    let table = store(here.path(), &["ls", "s3://b", "--endpoint", &url]);
    assert_eq!(text(&table.stdout).lines().nth(1), Some("             3  a//b"));
    let none = contents(&[]);
    let empty = Canned::start(move |_| format!("200 OK\r\nContent-Type: application/xml\r\n\r\n{none}"));
    let listed = store(here.path(), &["ls", "s3://b", "--format", "json", "--endpoint", &empty.url()]);
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(0), "[]\n"));
}
