//! A server that asks for more time than a record has: `503` with `Retry-After: 200` under a deadline
//! of 10 s, for a step of `run`, for `geocode` and for `fetch`.
//!
//! The server is on a clock of its own, so that nobody waits for 200 s.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_chaos::{Chaos, ChaosClock, Config, Dialect, Handle, spec};

use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, addresses};

const ASKED: Duration = Duration::from_secs(200);

struct Down {
    server: Handle,
    clock: ChaosClock,
}

impl Down {
    /// Down for 200 s, and it says so.
    fn start() -> Down {
        let clock = ChaosClock::manual();
        let config = Config {
            threads: 1,
            features: 120,
            page_max: 50,
            headers: Dialect::RetryAfter,
            outages: vec![spec::outage("0s..200s,status=503,hint").unwrap()],
            ..Config::default()
        };
        Down { server: Chaos::start_on(config, clock.clone()).unwrap(), clock }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.url())
    }

    /// The time is over, for the server and for us.
    fn up(&self, bench: &Bench) {
        self.clock.advance(ASKED);
        std::fs::remove_file(bench.path(".tidegate/lanes.json")).unwrap();
    }
}

/// A pipeline of one record, which is asked about.
fn pipeline(bench: &Bench, url: &str, on_long_wait: &str, patience: &str) {
    bench.write("in.csv", &addresses(1));
    bench.write(
        "m.yaml",
        &format!(
            "pipeline:
  id: test
  source: {{ file: in.csv, patience: {patience} }}
  services: {{ g: {{ profile: generic, url: \"{url}\" }} }}
  steps: [{{ geocode: {{ service: g, address: [street] }} }}]
  sink: {{ file: out.gpkg, key: [id] }}
  dead_letters: {{ store: letters.db, incident_share: 1.0 }}
  retry_policy: {{ max_attempts: 3, base_delay: 10ms, deadline: 10s, on_long_wait: {on_long_wait}, \
             retryable_status_codes: [503] }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
"
        ),
    );
}

fn letters(bench: &Bench) -> Vec<Value> {
    let ran = bench.tidegate(&["dlq", "ls", "--store", "letters.db", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn given_up_it_is_a_letter_that_no_replay_takes_before_the_time() {
    let down = Down::start();
    let bench = Bench::new();
    pipeline(&bench, &down.url("/geocode"), "give_up", "15m");
    let ran = bench.run(&[]);
    assert_eq!((ran.code, down.server.stats().requests), (4, 1), "{} {}", ran.stdout, ran.stderr);
    let letters = letters(&bench);
    assert_eq!(letters.len(), 1);
    let (letter, failure) = (&letters[0], &letters[0]["failure"]);
    assert_eq!((&letter["state"], &failure["code"]), (&json!("scheduled"), &json!("SERVICE_UNAVAILABLE")));
    let attempts: Vec<_> = failure["attempts"].as_array().unwrap().iter().map(|a| &a["status"]).collect();
    assert_eq!(attempts, [&json!(503)]);
    assert_eq!(failure["http"]["status"], json!(503));
    assert!(failure["http"]["url"].as_str().unwrap().starts_with(&down.server.url()), "{failure}");
    // What the server said, counted from its answer; clocks are read in milliseconds.
    let sent = failure["attempts"][0]["at_ms"].as_i64().unwrap();
    let failed = failure["failed_ms"].as_i64().unwrap();
    let until = letter["not_before_ms"].as_i64().unwrap();
    assert!((sent + 199_990..=failed + 200_010).contains(&until), "{sent} {until} {failed}");
    let dry =
        bench.tidegate(&["dlq", "replay", "--all", "--dry-run", "--store", "letters.db", "--format", "json"]);
    let dry: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!((&dry["replay"], &dry["left_out"]), (&json!([]), &json!(1)));
    let replay = bench.tidegate(&["dlq", "replay", "--manifest", "m.yaml", "--all", "--store", "letters.db"]);
    assert_eq!(down.server.stats().requests, 1, "{} {}", replay.stdout, replay.stderr);
}

#[test]
fn parked_it_is_no_letter_and_the_run_ends_where_its_patience_does() {
    let down = Down::start();
    let bench = Bench::new();
    pipeline(&bench, &down.url("/geocode"), "park", "100s");
    let ran = bench.tidegate(&["run", "m.yaml"]);
    assert_eq!((ran.code, down.server.stats().requests), (75, 1), "{} {}", ran.stdout, ran.stderr);
    for part in
        ["(Retry-After: 200)", "1m40s that this run waits (source.patience)", "nothing is lost", "--resume"]
    {
        assert!(ran.stderr.contains(part), "{part:?} is not in {}", ran.stderr);
    }
    assert!(letters(&bench).is_empty());
    down.up(&bench);
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, ran.count("written"), ran.count("rejected")), (0, 1, 0), "{}", ran.stderr);
}

#[test]
fn parked_within_the_patience_it_waits_beyond_its_deadline() {
    let outages = vec![spec::outage("0s..2s,status=503,hint").unwrap()];
    let server =
        crate::common::provider::chaos(Config { outages, headers: Dialect::RetryAfter, ..Config::default() });
    let bench = Bench::new();
    pipeline(&bench, &format!("{}/geocode", server.url()), "park", "15m");
    let text = bench.read("m.yaml").replace("deadline: 10s", "deadline: 1s");
    bench.write("m.yaml", &text);
    let ran = bench.run(&[]);
    assert_eq!((ran.code, ran.count("written")), (0, 1), "{} {}", ran.stdout, ran.stderr);
    let stats = server.stats();
    assert_eq!((stats.requests, stats.retry_after_violations), (2, 0));
}

fn ended(ran: &Ran, what: &str) {
    assert_eq!(ran.code, 75, "{what}: {} {}", ran.stdout, ran.stderr);
    for part in ["(Retry-After: 200)", "10s that this run waits (--deadline, --patience)", "--resume"] {
        assert!(ran.stderr.contains(part), "{what}: {part:?} is not in {}", ran.stderr);
    }
}

#[test]
fn the_deadline_ends_geocode_and_a_resume_completes_it() {
    let down = Down::start();
    let bench = Bench::new();
    bench.write("in.csv", &addresses(5));
    let url = down.url("/geocode");
    let args =
        ["geocode", "in.csv", "--address", "street", "--url", &url, "-o", "out.csv", "--in-flight", "1"];
    let ran = bench.tidegate(&[&args[..], &["--deadline", "10s"]].concat());
    ended(&ran, "geocode");
    assert_eq!((down.server.stats().requests, bench.path("out.csv").exists()), (1, false));
    down.up(&bench);
    let ran = bench.tidegate(&[&args[..], &["--deadline", "10s", "--resume"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(bench.read("out.csv").lines().count(), 6);
}

#[test]
fn the_deadline_ends_a_fetch_and_a_resume_completes_it() {
    let down = Down::start();
    let bench = Bench::new();
    let url = down.url("/ogc");
    let args = ["fetch", &url, "--profile", "ogcapi", "-o", "out.geojsonl", "--deadline", "10s"];
    let ran = bench.tidegate(&args);
    ended(&ran, "fetch");
    assert_eq!((down.server.stats().requests, bench.path("out.geojsonl").exists()), (1, false));
    down.up(&bench);
    let ran = bench.tidegate(&[&args[..], &["--resume"]].concat());
    assert_eq!((ran.code, bench.features("out.geojsonl").len()), (0, 120), "{}", ran.stderr);
}
