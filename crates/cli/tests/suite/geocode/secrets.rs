//! A key appears in no byte that is written, wherever the service may repeat it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tidegate_chaos::{Config, FaultKind};

use crate::common::canned::{Canned, Gate, json};
use crate::geocode::bench::{Bench, Ran, Running, chaos, fault, run};

const CANARY: &str = "c4n4ry/Of+The mine?&=42";

/// As it is, and in every way in which a URL may spell it.
fn spellings() -> Vec<String> {
    let escape = |plus: bool, lower: bool| -> String {
        CANARY
            .bytes()
            .map(|b| match b {
                b' ' if plus => "+".to_string(),
                b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
                b if lower => format!("%{b:02x}"),
                b => format!("%{b:02X}"),
            })
            .collect()
    };
    vec![CANARY.into(), escape(true, false), escape(false, false), escape(true, true), "c4n4ry".into()]
}

fn is_clean(bench: &Bench, ran: &Ran) {
    for spelling in spellings() {
        let holds = |bytes: &[u8]| bytes.windows(spelling.len()).any(|w| w == spelling.as_bytes());
        assert!(!holds(ran.stdout.as_bytes()), "{}", ran.stdout);
        assert!(!holds(ran.stderr.as_bytes()), "{}", ran.stderr);
        for (path, bytes) in bench.files() {
            if !path.ends_with("key.txt") {
                assert!(!holds(&bytes), "{} holds {spelling}", path.display());
            }
        }
    }
}

fn geocode(bench: &Bench, url: &str, args: &[&str]) -> Ran {
    bench.write("key.txt", format!("{CANARY}\n").as_bytes());
    run(bench.command(url, args).env("CANARY", CANARY))
}

/// Says back what it was sent, as careless services do.
fn echo(status: &'static str, shape: fn(&str) -> String) -> Canned {
    Canned::start(move |head| json(status, &shape(head)))
}

fn quoted(head: &str) -> String {
    serde_json::to_string(head).unwrap()
}

#[test]
fn a_service_that_repeats_the_request_tells_nobody() {
    let failing = |head: &str| format!("{{\"error\":{{\"message\":{}}}}}", quoted(head));
    let matching = |head: &str| {
        format!(
            "{{\"results\":[{{\"lat\":1,\"lon\":2,\"label\":{}}}],\"url\":{}}}",
            quoted(head),
            quoted(head)
        )
    };
    let padded = |head: &str| {
        let pad = "x".repeat(200 - head.find("c4n4ry").map_or(0, |i| i + 12).min(190));
        format!("{{\"error\":{{\"message\":\"{pad}{}\"}}}}", head.lines().next().unwrap_or_default())
    };
    let servers = [
        echo("400 Bad Request", failing),
        echo("200 OK", failing),
        echo("200 OK", matching),
        echo("403 Forbidden", padded),
        echo("500 Internal Server Error", failing),
    ];
    let template = "/find?q={address}&weird={key}";
    for server in &servers {
        for (profile, key, path) in [
            ("generic", "env:CANARY", ""),
            ("generic", "file:key.txt", ""),
            ("csv2geo", "env:CANARY", ""),
            ("generic", "env:CANARY", template),
        ] {
            for out in ["out.csv", "out.gpkg"] {
                let bench = Bench::of_rows(1);
                let url = format!("{}{path}", server.url());
                let args = ["--profile", profile, "--key", key, "--attempts", "1", "-o", out];
                let ran = geocode(&bench, &url, &args);
                assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
                let sent = server.seen().pop().unwrap();
                assert!(sent.contains("c4n4ry"), "the key was sent: {sent}");
                is_clean(&bench, &ran);
            }
        }
    }
}

#[test]
fn errors_of_the_command_itself_tell_nothing() {
    let bench = Bench::of_rows(1);
    for args in [
        &["--key", "env:CANARY", "-o", "nowhere/out.csv"][..],
        &["--key", "env:CANARY", "--profile", "nominatim"],
        &["--key", "file:key.txt", "--address", "nothing"],
    ] {
        let ran = geocode(&bench, "http://127.0.0.1:9", args);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        is_clean(&bench, &ran);
    }
}

#[test]
fn a_key_stays_with_its_origin() {
    let stranger = Canned::matching();
    let faults = vec![fault(FaultKind::Redirect(format!("{}/elsewhere", stranger.url())), "100%")];
    let server = chaos(Config { faults, ..Config::default() });
    for (profile, path) in
        [("csv2geo", "/csv2geo"), ("generic", ""), ("generic", "/geocode?q={address}&k={key}")]
    {
        let bench = Bench::of_rows(1);
        let args = ["--profile", profile, "--key", "env:CANARY", "--allow-host", "127.0.0.1"];
        let ran = geocode(&bench, &format!("{}{path}", server.url()), &args);
        assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
        is_clean(&bench, &ran);
    }
    let seen = stranger.seen();
    assert_eq!(seen.len(), 3, "the redirect was followed");
    for head in seen {
        assert!(!head.contains("c4n4ry") && !head.to_lowercase().contains("authorization"), "{head}");
    }
}

/// The page of the report, the metrics, the log of everything and the words of the screen.
#[test]
fn reports_metrics_and_logs_tell_nothing() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    // The second answer is held back until the metrics have been read.
    let server = Canned::start(move |head| {
        held.pass(1);
        json("400 Bad Request", &format!("{{\"error\":{{\"message\":{}}}}}", quoted(head)))
    });
    for (profile, path) in [("csv2geo", ""), ("generic", "/find?q={address}&k={key}")] {
        for format in ["json", "table"] {
            let bench = Bench::of_rows(2);
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (url, metrics) = (format!("{}{path}", server.url()), format!("127.0.0.1:{port}"));
            let args = [
                &["in.csv", "--address", "address", "--url", &url, "-o", "out.geojson", "--format", format][..],
                &["--profile", profile, "--key", "env:CANARY", "--attempts", "1", "--in-flight", "1"],
                &["--report", "report.html", "--metrics", &metrics],
            ];
            let mut command = bench.bare(&args.concat());
            let child = command.env("CANARY", CANARY).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
            let running = Running::of(child.spawn().unwrap());
            let before = server.seen().len();
            if before == 0 {
                gate.wait(2);
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert!(text.contains("tidegate_records_total"), "{text}");
                bench.write("metrics.txt", text.as_bytes());
                gate.open();
            }
            let ran = running.end();
            assert_eq!(ran.code, 4, "{}", ran.stderr);
            assert!(bench.path("report.html").exists() && bench.path("out.geojson").exists());
            is_clean(&bench, &ran);
        }
    }
    assert!(server.seen().iter().all(|head| head.contains("c4n4ry")), "the key was sent");
}
