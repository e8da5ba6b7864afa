//! What a run says while it goes on, and at its end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_chaos::{Config, spec};

use crate::common::canned::{Canned, Gate, MATCH, json};
use crate::geocode::bench::{Bench, chaos, run, throttled};

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Every line is a comment or a sample with a number; the names of the samples.
fn samples(text: &str) -> Vec<(String, f64)> {
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    body.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.contains("{pipeline=\"geocode:in-") && name.ends_with('}'), "{line}");
            (name.to_string(), value.parse().unwrap_or_else(|e| panic!("{line}: {e}")))
        })
        .collect()
}

#[test]
fn metrics_are_served_while_it_runs() {
    // The last answers are held back until the metrics have been looked at.
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = Canned::start(move |_| {
        held.pass(60);
        json("200 OK\r\nX-RateLimit-Limit: 1000\r\nX-RateLimit-Remaining: 900", MATCH)
    });
    let bench = Bench::of_rows(150);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let running = bench.start(&server.url(), &["--metrics", &format!("127.0.0.1:{port}")]);
    gate.wait(61);
    let text = get(port, "/metrics").unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(get(port, "/other").unwrap().starts_with("HTTP/1.1 404 "));
    let all = samples(&text);
    let value = |start: &str| {
        let found = all.iter().find(|(name, _)| name.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} in {text}")).1
    };
    for name in [
        "retry_count_total",
        "backoff_delay_seconds_bucket",
        "backoff_delay_seconds_sum",
        "spatial_write_success_rate",
        "tidegate_attempts_succeeded_total",
        "tidegate_retries_per_call_count",
        "tidegate_lane_rate",
        "tidegate_lane_in_flight",
        "tidegate_lane_waiting",
        "tidegate_breaker_state",
    ] {
        value(name);
    }
    let kind = |kind: &str| {
        let label = format!("kind=\"{kind}\"");
        let found =
            all.iter().find(|(name, _)| name.starts_with("tidegate_lane_limit{") && name.contains(&label));
        found.unwrap_or_else(|| panic!("{kind} in {text}")).1
    };
    assert_eq!((kind("quota"), kind("none"), kind("rate")), (1.0, 0.0, 0.0));
    assert_eq!(value("tidegate_lane_limit_changes_total"), 1.0);
    assert_eq!(value("rate_limit_header_present"), 1.0);
    assert!(value("tidegate_attempts_total") > 0.0);
    assert!(!text.contains("Harbour") && !text.contains("/geocode"), "no address, no URL: {text}");
    gate.open();
    let ran = running.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["rate_limit_header_present"], 1.0);
}

#[test]
fn what_the_lane_believes_of_the_limit_is_told_and_why() {
    let server = Canned::start(move |_| {
        json("200 OK\r\nX-RateLimit-Limit: 1000\r\nX-RateLimit-Remaining: 900", MATCH)
    });
    let bench = Bench::of_rows(20);
    let args = ["--report", "r.html", "--log", "json", "--log-level", "debug"];
    let ran = bench.geocode(&server.url(), &args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let reason = "the headers tell how many calls are left";
    let told: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("tidegate::lane")).collect();
    let [line] = told.as_slice() else { panic!("{}", ran.stderr) };
    for part in ["\"before\":\"none\"", "\"kind\":\"quota\"", "limit: quota", reason] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let limit = &ran.json()["limits"][0];
    assert_eq!((limit["kind"].as_str(), limit["reason"].as_str()), (Some("quota"), Some(reason)));
    assert_eq!(limit["changes"], 1);
    let page = std::fs::read_to_string(bench.path("r.html")).unwrap();
    assert!(page.contains("Limits that were learned") && page.contains(reason));
}

/// The row of the report for a limit of the summary in JSON.
fn limit_row(limit: &serde_json::Value) -> String {
    let number = |name: &str, unit: &str| {
        limit[name].as_f64().map_or_else(|| "–".to_owned(), |value| format!("{value:.1}{unit}"))
    };
    let whole = |name: &str| limit[name].as_u64().map_or_else(|| "–".to_owned(), |value| value.to_string());
    let word = |name: &str| limit[name].as_str().unwrap().to_owned();
    let rest = [
        word("kind"),
        number("rate", ""),
        number("burst", ""),
        number("window_seconds", " s"),
        whole("in_flight"),
        whole("changes"),
        word("reason"),
    ];
    format!("<th scope=\"row\">{}</th><td>{}</td></tr>", word("host"), rest.join("</td><td>"))
}

#[test]
fn the_report_shows_all_that_the_lane_believes_of_a_limit() {
    let heads: String = ["host", "limit", "calls/s", "burst", "window", "at once", "changes", "reason"]
        .map(|head| format!("<th scope=\"col\">{head}</th>"))
        .concat();
    // Rate and window as the headers tell them; a rate and a burst from refusals, or calls at once.
    let told = Canned::start(move |_| {
        json("200 OK\r\nRateLimit-Policy: \"a\";q=1000;w=10\r\nRateLimit: \"a\";r=900;t=9", MATCH)
    });
    let learned = chaos(throttled("bucket:5/s,burst=3"));
    for (url, quota) in [(told.url(), true), (learned.url(), false)] {
        let bench = Bench::of_rows(15);
        let ran = bench.geocode(&url, &["--report", "r.html"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let summary = ran.json();
        let limit = &summary["limits"][0];
        if quota {
            assert_eq!(
                (limit["kind"].as_str(), limit["window_seconds"].as_f64()),
                (Some("quota"), Some(10.0))
            );
        } else {
            assert!(!["none", "quota"].contains(&limit["kind"].as_str().unwrap()), "{limit}");
        }
        let page = std::fs::read_to_string(bench.path("r.html")).unwrap();
        let row = limit_row(limit);
        assert!(page.contains(&heads) && page.contains(&row), "{row} is not in the report");
    }
}

#[test]
fn the_summary_in_json_has_every_counter() {
    let server = chaos(Config { no_match: 0.2, ..throttled("bucket:200/s,burst=5") });
    let bench = Bench::of_rows(40);
    let ran = bench.geocode(&server.url(), &[]);
    let json = ran.json();
    for name in [
        "records",
        "matched",
        "no_match",
        "failed",
        "cache_hits",
        "shared",
        "calls",
        "throttled",
        "retry_count_total",
        "retries_per_call_p50",
        "retries_per_call_p99",
        "seconds_in_backoff",
        "seconds_in_calls",
        "rate_limit_header_present",
        "malformed_headers",
        "spatial_write_success_rate",
        "elapsed_seconds",
    ] {
        assert!(json[name].is_number(), "{name}: {json:#}");
    }
    let stats = server.stats();
    assert_eq!(json["calls"], stats.requests);
    assert_eq!(json["statuses"]["200"], 40);
    assert_eq!(json["spatial_write_success_rate"], 1.0);
    assert_eq!((json["status"].as_str(), json["sink"].as_str()), (Some("done"), Some("out.csv")));
}

#[test]
fn words_go_to_standard_error_and_nothing_else_is_printed() {
    let server = chaos(Config::default());
    let bench = Bench::of_rows(3);
    let url = server.url();
    let args = ["in.csv", "--address", "address", "--url", &url, "-o", "out.csv"];
    let ran = run(&mut bench.bare(&args));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    assert!(ran.stderr.starts_with("geocode:in-"), "{}", ran.stderr);
    for words in
        ["  matched              3   of those written", "  written to out.csv", "  calls                3"]
    {
        assert!(ran.stderr.contains(words), "{words:?} in {}", ran.stderr);
    }
    assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
    assert!(!ran.stderr.contains("learned"), "nobody set a limit: {}", ran.stderr);
}

/// Runs a command of the shell on a terminal, which `script` provides.
fn on_terminal(bench: &Bench, command: &str) -> Output {
    Command::new("script")
        .args(["-qec", command, "/dev/null"])
        .current_dir(bench.path(""))
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .output()
        .unwrap()
}

#[test]
fn on_a_terminal_a_wait_is_explained() {
    let asked = AtomicUsize::new(0);
    let server = Canned::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => json("429 Too Many Requests\r\nRetry-After: 3", "{}"),
        _ => json("200 OK", MATCH),
    });
    let bench = Bench::of_rows(1);
    let command = format!(
        "{} geocode in.csv --address address --url {} -o out.csv",
        env!("CARGO_BIN_EXE_tidegate"),
        server.url()
    );
    let output = on_terminal(&bench, &command);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("requested by the server"), "{shown}");
    assert!(shown.contains("in flight") && shown.contains("\x1b[2K"), "{shown}");
    assert_eq!(output.status.code(), Some(0), "{shown}");
}

/// The frames of a progress line: what is drawn between two erasures, without colours.
fn frames(shown: &str) -> Vec<String> {
    let plain = shown.replace("\x1b[J", "\x1b[2K");
    plain
        .split("\x1b[2K")
        .skip(1)
        .map(|frame| {
            let mut text = String::new();
            let mut letters = frame.split(['\r', '\n']).next().unwrap_or_default().chars();
            while let Some(letter) = letters.next() {
                if letter == '\x1b' {
                    letters.by_ref().find(char::is_ascii_alphabetic);
                } else {
                    text.push(letter);
                }
            }
            text
        })
        // The summary at the end is no frame.
        .filter(|text| !text.is_empty() && !text.starts_with("geocode:"))
        .collect()
}

#[test]
fn the_line_follows_the_width_of_the_terminal() {
    let bench = Bench::of_rows(2);
    let (shrink, narrow) = (bench.path("shrink"), bench.path("narrow"));
    let asked = AtomicUsize::new(0);
    let server = Canned::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => json("429 Too Many Requests\r\nRetry-After: 2", "{}"),
        1 => {
            // The terminal becomes narrow while the run waits for this answer.
            std::fs::write(&shrink, "").unwrap();
            while !narrow.exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            json("429 Too Many Requests\r\nRetry-After: 2", "{}")
        }
        _ => json("200 OK", MATCH),
    });
    let command = format!(
        "stty rows 24 cols 120; (until [ -e shrink ]; do sleep 0.02; done; stty cols 30 < /dev/tty; touch narrow) & {} geocode in.csv --address address --url {} --in-flight 1 -o out.csv; wait",
        env!("CARGO_BIN_EXE_tidegate"),
        server.url()
    );
    let output = on_terminal(&bench, &command);
    let shown = String::from_utf8_lossy(&output.stdout);
    let frames = frames(&shown);
    let widths: Vec<usize> = frames.iter().map(|frame| frame.chars().count()).collect();
    let wide = widths.iter().rposition(|width| *width >= 30).unwrap_or_else(|| panic!("{frames:?}"));
    assert!(widths.iter().all(|width| *width < 120), "{frames:?}");
    let after = frames.get(wide + 1..).unwrap_or_default();
    assert!(after.iter().any(|frame| frame.contains("waiting")), "drawn in the new width: {frames:?}");
    assert!(shown.contains("A\x1b[J"), "what wrapped is erased whole: {shown:?}");
}

/// The limiters that people put before their services: whatever they say, no row is lost.
#[test]
fn no_row_is_lost_behind_a_proxy() {
    for (throttle, status, after) in [
        ("leaky:50/s,burst=5", 503, 0),
        ("stick:20/1s", 429, 0),
        ("stick:20/1s", 500, 1),
        ("concurrency:4", 503, 0),
    ] {
        let server = chaos(Config {
            limit: spec::throttle(throttle).unwrap(),
            throttle_status: status,
            throttle_after: Duration::from_secs(after),
            service: spec::service_ms("5").unwrap(),
            ..Config::default()
        });
        let ran = Bench::of_rows(60).geocode(&server.url(), &["--in-flight", "8"]);
        assert_eq!(ran.code, 0, "{throttle}, {status}: {}", ran.stderr);
        assert_eq!(ran.json()["matched"], 60, "{throttle}, {status}");
        assert!(server.stats().throttled > 0, "{throttle}, {status}");
    }
}
