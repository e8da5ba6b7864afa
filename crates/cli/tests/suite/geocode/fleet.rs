//! Machines that call one host share its limit at a server.
//!
//! Each process has a runtime directory of its own, so they cannot meet at a socket.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::running::Running;
use crate::common::workdir::Workdir;
use crate::geocode::bench::{Bench, chaos, throttled, until_asked};

/// A Redis server of its own on a free port. It ends with the test.
struct Redis {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Redis {
    fn start() -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let child = Redis::serve(port, &dir);
        Redis { child, port, dir }
    }

    fn serve(port: u16, dir: &tempfile::TempDir) -> Child {
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("redis-server: {e}"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "redis-server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = Redis::serve(self.port, &self.dir);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process on a machine of its own.
fn start(bench: &Bench, url: &str, redis: &Redis, args: &[&str]) -> Running {
    let mut all = vec!["--log", "json", "--log-level", "debug"];
    all.extend(args);
    let mut command = bench.command(url, &all);
    command.env("XDG_RUNTIME_DIR", bench.root()).env("TIDEGATE_LANES", redis.url());
    Running::of(command.spawn().unwrap())
}

#[test]
fn two_machines_keep_one_limit_and_lose_nothing() {
    let (server, redis) = (chaos(throttled("bucket:100/s,burst=10")), Redis::start());
    let (one, other) = (Bench::of_rows(400), Bench::of_rows(400));
    let first = start(&one, &server.url(), &redis, &[]);
    until_asked(&server, 20);
    let ran = [start(&other, &server.url(), &redis, &[]).end(), first.end()];
    for ran in &ran {
        assert_eq!((ran.code, ran.ends()), (0, [400, 0, 0]), "{} {}", ran.stdout, ran.stderr);
    }
    assert!(ran[0].stderr.contains(r#""role":"member""#), "{}", ran[0].stderr);
    assert!(ran[1].stderr.contains(r#""role":"owner""#), "{}", ran[1].stderr);
    let stats = server.stats();
    // Two that learn alone are refused every tenth call and more.
    assert!(stats.throttled * 20 <= stats.requests, "{stats:?}");
}

#[test]
fn when_the_owner_is_killed_the_other_machine_goes_on() {
    let (server, redis) = (chaos(throttled("bucket:100/s,burst=1")), Redis::start());
    let (one, other) = (Bench::of_rows(3000), Bench::of_rows(150));
    let first = start(&one, &server.url(), &redis, &[]);
    until_asked(&server, 20);
    let second = start(&other, &server.url(), &redis, &[]);
    until_asked(&server, 100);
    first.signal("KILL");
    let ran = second.end();
    assert_eq!((ran.code, ran.ends()), (0, [150, 0, 0]), "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(r#""role":"member""#), "{}", ran.stderr);
    assert!(ran.stderr.contains("the process that owned the lane is gone"), "{}", ran.stderr);
    assert!(ran.stderr.contains(r#""role":"owner""#), "{}", ran.stderr);
}

#[test]
fn while_the_server_is_gone_calls_wait_and_patience_ends_the_run() {
    let (server, mut redis) = (chaos(throttled("bucket:100/s,burst=1")), Redis::start());
    let bench = Bench::of_rows(3000);
    let run = start(&bench, &server.url(), &redis, &["--patience", "2s"]);
    until_asked(&server, 20);
    redis.stop();
    let ran = run.end();
    assert_eq!(ran.code, 75, "{} {}", ran.stdout, ran.stderr);
    let said = format!("is shared at {}, which cannot be reached", redis.url());
    assert!(ran.word("error").contains(&said), "{}", ran.stdout);
    assert!(ran.stderr.contains("its calls wait until then"), "{}", ran.stderr);
    // What was asked is not asked again.
    let asked = server.stats().requests;
    redis.restart();
    let ran = start(&bench, &server.url(), &redis, &["--resume", "--in-flight", "4"]);
    until_asked(&server, asked + 20);
    drop(ran);
}

#[test]
fn a_manifest_may_let_a_run_go_on_at_its_share() {
    let (server, mut redis) = (chaos(throttled("bucket:100/s,burst=1")), Redis::start());
    let bench = Bench::of_rows(300);
    let printed = bench.geocode(&server.url(), &["--print-manifest"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let lanes = format!("pipeline:\n  lanes:\n    url: {}\n    when_unreachable: share\n", redis.url());
    bench.write("shared.yaml", printed.stdout.replacen("pipeline:\n", &lanes, 1).as_bytes());
    let args = ["run", "shared.yaml", "--format", "json", "--log", "json", "--log-level", "debug"];
    let mut command = Workdir::command(&bench, &args);
    command.env("XDG_RUNTIME_DIR", bench.root());
    let run = Running::of(command.spawn().unwrap());
    until_asked(&server, 100);
    redis.stop();
    let ran = run.end();
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("until then this process goes on"), "{}", ran.stderr);
    assert_eq!(server.stats().executed, 300);
}

#[test]
fn a_manifest_names_the_server_without_a_password() {
    let bench = Bench::of_rows(1);
    let printed = bench.geocode("http://127.0.0.1:9/", &["--print-manifest"]).stdout;
    for (lanes, message) in [
        ("redis://:hunter2@cache", "must not contain a password"),
        ("nats://token@bus", "must not contain a password"),
        ("https://a.test", "lanes cannot be shared there"),
        ("env:NOT_SET", "environment variable NOT_SET is not set"),
    ] {
        let text = printed.replacen("pipeline:\n", &format!("pipeline:\n  lanes: \"{lanes}\"\n"), 1);
        bench.write("bad.yaml", text.as_bytes());
        let ran = Workdir::command(&bench, &["run", "bad.yaml"]).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{lanes}: {said}");
        assert!(said.contains(message) && !said.contains("hunter2 "), "{lanes}: {said}");
    }
}
