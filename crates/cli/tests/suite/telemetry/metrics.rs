//! `run --metrics`, while it runs; and `deploy`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use crate::common::canned::{Canned, Gate, MATCH, json};
use crate::telemetry::bench::Bench;

fn get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Waits for so many requests of a run under way.
fn until_asked(server: &Canned, requests: usize, run: &mut Child) {
    while server.asked().len() < requests {
        assert_eq!(run.try_wait().unwrap(), None, "it ended before it asked");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pipeline_serves_its_metrics_while_it_runs() {
    // The answers to the second batch are held back until the metrics have been read.
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = Canned::start(move |_| {
        held.pass(10);
        json("200 OK", "{\"kind\":\"x\"}")
    });
    let bench = Bench::new();
    let rows: String = (0..20).map(|i| format!("{i}\n")).collect();
    bench.write("in.csv", &format!("id\n{rows}"));
    bench.manifest(&format!(
        "source: {{ file: in.csv, crs: \"EPSG:4326\", batch_size: 10 }}\nservices: {{ s: {{ url: \"{}\" }} }}\nsteps:\n  - http: {{ service: s, path: \"/{{id}}\", take: {{ kind: /kind }} }}\nsink: {{ file: out.csv }}",
        server.url()
    ));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = bench
        .command(&["run", "m.yaml", "--quiet", "--metrics", &format!("127.0.0.1:{port}")])
        .spawn()
        .unwrap();
    until_asked(&server, 11, &mut child);
    let text = get(port);
    for part in [
        "tidegate_attempts_total{pipeline=\"parcels\",host=\"127.0.0.1:",
        "tidegate_records_read_total{pipeline=\"parcels\"} 20",
        "tidegate_gate_checked_total{pipeline=\"parcels\",gate=\"tolerance.max_null_rate\"}",
        "tidegate_lane_in_flight{",
        "tidegate_alert_firing{",
        "tidegate_build_info{",
    ] {
        assert!(text.contains(part) || part.contains("alert_firing"), "{part}\n{text}");
    }
    gate.open();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn deploy_writes_what_is_committed() {
    let bench = Bench::new();
    let ran = bench.run(&["deploy", "-o", "d"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for name in [
        "grafana/tidegate.json",
        "prometheus/tidegate.rules.yml",
        "systemd/tidegate@.service",
        "systemd/tidegate@.timer",
        "cron/tidegate",
        "systemd/tidegate-serve.service",
    ] {
        assert_eq!(
            bench.read(&format!("d/{name}")),
            std::fs::read_to_string(root.join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(bench.run(&["deploy", "--check", "-o", "d"], &[]).code, 0);
    bench.write("d/grafana/tidegate.json", "{}");
    let ran = bench.run(&["deploy", "--check", "-o", "d"], &[]);
    assert_eq!((ran.code, ran.stderr.contains("tidegate.json differs")), (1, true), "{}", ran.stderr);
    assert_eq!(bench.run(&["deploy", "--print", "nothing"], &[]).code, 2);
}

#[test]
fn metrics_are_for_those_who_know_the_address() {
    // A name that leads to this address is not the address: it may be somebody else's page that asks.
    let (gate, free) = (Arc::new(Gate::default()), Bench::addresses(1));
    let held = Arc::clone(&gate);
    let server = Canned::start(move |_| {
        held.pass(0);
        json("200 OK", MATCH)
    });
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (url, addr) = (server.url(), format!("127.0.0.1:{port}"));
    let mut child = free
        .command(&[
            "geocode",
            "in.csv",
            "--address",
            "address",
            "--url",
            &url,
            "-o",
            "o.csv",
            "--quiet",
            "--metrics",
            &addr,
        ])
        .spawn()
        .unwrap();
    until_asked(&server, 1, &mut child);
    let asked = |head: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let refused = asked("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 421 ") && !refused.contains("tidegate_"), "{refused}");
    assert!(asked("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get(port).starts_with("HTTP/1.1 200 "));
    gate.open();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A run that is held at a point, with its metrics.
struct Held {
    child: Option<Child>,
    gate: std::path::PathBuf,
    port: u16,
}

impl Held {
    fn start(bench: &Bench, at: &str, more: &[&str]) -> Held {
        let gate = bench.path(&format!("gate-{}", at.replace(':', "-")));
        let _ = std::fs::remove_file(gate.with_extension("here"));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let args = [&["run", "m.yaml", "--format", "json", "--metrics", &address], more].concat();
        let mut command = bench.command(&args);
        let child = command.env("TIDEGATE_HOLD", format!("{at}={}", gate.display())).spawn().unwrap();
        let mut held = Held { child: Some(child), gate, port };
        let here = format!("{}.here", held.gate.display());
        while !std::path::Path::new(&here).exists() {
            assert_eq!(held.child.as_mut().unwrap().try_wait().unwrap(), None, "it ended before {at}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(here).unwrap();
        held
    }

    fn rate(&self) -> f64 {
        let text = get(self.port);
        let line = text.lines().find(|line| line.starts_with("spatial_write_success_rate{")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn go(&self) {
        std::fs::write(&self.gate, "").unwrap();
    }

    fn end(mut self) -> (Option<i32>, f64) {
        self.go();
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), json["spatial_write_success_rate"].as_f64().unwrap())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two batches of ten records; two of the first cannot be coerced.
fn two_batches() -> Bench {
    let bench = Bench::new();
    let rows: String =
        (0..20).map(|i| format!("{i},{}\n", if [3, 7].contains(&i) { "x" } else { "1" })).collect();
    bench.write("in.csv", &format!("id,v\n{rows}"));
    bench.manifest(
        "source: { file: in.csv, crs: \"EPSG:4326\", batch_size: 10 }\nsteps:\n  - coerce: { fields: { v: int } }\nsink: { file: out.gpkg, key: [id] }",
    );
    bench
}

#[test]
fn the_write_success_rate_is_right_in_the_middle_of_a_run_and_after_a_resume() {
    let bench = two_batches();
    let held = Held::start(&bench, "put:0", &[]);
    assert_eq!(held.rate(), 1.0, "nothing has failed yet");
    drop(held);
    let held = Held::start(&bench, "put:1", &["--resume"]);
    assert_eq!(held.rate(), 0.8, "eight of the first ten are written");
    // Killed here; the resumed run knows it before its first commit.
    drop(held);
    let held = Held::start(&bench, "put:0", &["--resume"]);
    assert_eq!(held.rate(), 0.8);
    assert_eq!(held.end(), (Some(4), 0.9));
}

#[test]
fn a_batch_that_the_sink_does_not_take_counts_until_it_does() {
    let bench = two_batches();
    // A file that is there already is written in place.
    assert_eq!(bench.command(&["run", "m.yaml", "--quiet"]).status().unwrap().code(), Some(4));
    let held = Held::start(&bench, "commit:0", &[]);
    let other = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    held.go();
    let began = std::time::Instant::now();
    // Eight of ten, and none of the ten that wait.
    while held.rate() != 0.4 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", held.rate());
        std::thread::sleep(Duration::from_millis(20));
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(held.end(), (Some(4), 0.9));
}
