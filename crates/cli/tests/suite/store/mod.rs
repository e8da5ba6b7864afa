//! `tidegate store`, through the built command.

mod azure;
mod identity;
mod says;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tidegate_chaos::{Chaos, Config, Dialect, FaultKind, FaultRule, Scope, ServerLimit, When};

/// The command, without the credentials of whoever runs the test.
fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("store").args(arguments).current_dir(directory).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let cloud = ["AWS_", "AZURE_", "GOOGLE_", "GCE_"];
        if name.to_str().is_some_and(|name| cloud.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}

fn store(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_directory_from_put_to_rm() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    fs::write(here.join("a.txt"), "aaa").unwrap();
    fs::write(here.join("ä b.txt"), "").unwrap();
    let run = |arguments: &[&str]| store(here, arguments);
    for spread in ["none", "hash"] {
        let args = |rest: &[&str]| {
            [rest, &["--key-spread", spread]].concat().iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()
        };
        let run = |rest: &[&str]| {
            let all = args(rest);
            run(&all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let put = run(&["put", "data", "a.txt", "ä b.txt", "--under", "x/y"]);
        let said = "put 2 objects, 3 bytes, to data; the store confirmed the sizes\n";
        assert_eq!((put.status.code(), text(&put.stderr)), (Some(0), said));
        assert_eq!(
            text(&run(&["ls", "data"]).stdout),
            "             3  x/y/a.txt\n             0  x/y/ä b.txt\n"
        );
        assert_eq!(text(&run(&["get", "data", "x/y/a.txt", "--range", "1.."]).stdout), "aa");
        assert_eq!(run(&["cp", "data", "x/y/a.txt", "copy"]).status.code(), Some(0));
        assert_eq!(run(&["get", "data", "copy", "-o", "back.txt"]).status.code(), Some(0));
        assert_eq!(fs::read_to_string(here.join("back.txt")).unwrap(), "aaa");
        assert_eq!(run(&["rm", "data", "copy", "x/y/a.txt", "x/y/ä b.txt", "never"]).status.code(), Some(0));
        assert_eq!(text(&run(&["ls", "data"]).stdout), "");
        let gone = run(&["get", "data", "copy", "-o", "not.txt"]);
        assert_eq!(gone.status.code(), Some(1));
        assert!(text(&gone.stderr).starts_with("tidegate store: copy: NOT_FOUND"), "{}", text(&gone.stderr));
        assert!(!here.join("not.txt").exists() && !here.join("not.txt.partial").exists());
    }
}

#[test]
fn a_wrong_command_line_is_said_so() {
    let here = tempfile::tempdir().unwrap();
    for arguments in [
        &["ls", "nowhere"][..],
        &["ls", "ftp://x"],
        &["ls", "az://container"],
        &["ls", "gs://bucket", "--credentials", "container"],
        &["ls", "gs://bucket", "--service-account", "file:no-such.json"],
        &["put", "data", "a/x", "b/x"],
        &["put", "data", "-"],
        &["put", "data", "a", "b", "--as", "c"],
        &["get", "data", "k", "--range", "5..5"],
        &["ls", "s3://b", "--access-key", "AKIA-written-out"],
        &["ls", "s3://b", "--access-key", "env:TIDEGATE_NO_SUCH_VARIABLE"],
    ] {
        let output = store(here.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty());
    }
    let unread = store(here.path(), &["put", "data", "no-such-file"]);
    assert_eq!(unread.status.code(), Some(1));
}

#[test]
fn a_throttling_bucket_loses_nothing() {
    let here = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..30).map(|n| format!("{n:02}.bin")).collect();
    for name in &names {
        fs::write(here.path().join(name), name).unwrap();
    }
    let server = Chaos::start(Config {
        limit: ServerLimit::FixedWindow { limit: 5, window: 0.05, phase: 0.0 },
        scope: Scope::Prefix,
        throttle_status: 503,
        faults: vec![FaultRule { kind: FaultKind::Reset, when: When::Every(11) }],
        ..Config::default()
    })
    .unwrap();
    let endpoint = format!("{}/s3", server.url());
    let mut arguments = vec!["put", "s3://bucket", "--under", "hot", "--endpoint", &endpoint];
    arguments.extend(names.iter().map(String::as_str));
    let put = store(here.path(), &arguments);
    let said = "put 30 objects, 180 bytes, to s3://bucket; the store confirmed the sizes\n";
    assert_eq!((put.status.code(), text(&put.stderr)), (Some(0), said));
    let listed =
        store(here.path(), &["ls", "s3://bucket", "hot", "--format", "ndjson", "--endpoint", &endpoint]);
    assert_eq!(text(&listed.stdout).lines().count(), 30);
    assert!(text(&listed.stdout).lines().all(|line| line.contains("\"size\":6")));
}

/// Requests that a bucket saw which fails every one, and how the command ended.
fn failing(more: &[&str]) -> (u64, Option<i32>, String) {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), "a").unwrap();
    let faults = vec![FaultRule { kind: FaultKind::Status(500), when: When::Chance(1.0) }];
    let server = Chaos::start(Config { faults, ..Config::default() }).unwrap();
    let endpoint = format!("{}/s3", server.url());
    let put =
        ["put", "s3://bucket", "a", "--endpoint", &endpoint, "--base-delay", "1ms", "--max-delay", "2ms"];
    let output = store(here.path(), &[&put[..], more].concat());
    (server.stats().requests, output.status.code(), text(&output.stderr).to_owned())
}

#[test]
fn attempts_and_delays_are_those_of_the_command_line() {
    assert_eq!(failing(&["--attempts", "1"]).0, 1);
    let (requests, code, said) = failing(&["--attempts", "3"]);
    assert_eq!((requests, code), (3, Some(75)), "{said}");
    assert_eq!(failing(&["--attempts", "0"]).1, Some(2));
}

#[test]
fn patience_ends_a_long_wait() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), "a").unwrap();
    let limit = ServerLimit::FixedWindow { limit: 1, window: 600.0, phase: 0.0 };
    let server = Chaos::start(Config { limit, headers: Dialect::RetryAfter, ..Config::default() }).unwrap();
    let endpoint = format!("{}/s3", server.url());
    let put = ["put", "s3://bucket", "a", "--endpoint", &endpoint, "--patience", "5s"];
    let put = [&put[..], &["--quiet"]].concat();
    let limit = store(here.path(), &put);
    assert_eq!(limit.status.code(), Some(75), "the question after the put: {}", text(&limit.stderr));
    let late = store(here.path(), &put);
    assert_eq!(late.status.code(), Some(75), "{}", text(&late.stderr));
    assert_eq!(server.stats().requests, 3);
}
