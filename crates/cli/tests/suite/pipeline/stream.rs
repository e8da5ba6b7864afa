//! Remote steps stream: while one record waits, the batches behind it are asked; what leaves is in
//! order and whole, whatever happens in between. What was asked when is read in the books of the
//! server.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use crate::common::canned::{Canned, json as said};
use crate::common::running::Running;
use crate::pipeline::bench::Bench;
use crate::pipeline::kill::{BATCHES, books, chain};

const ROWS: usize = 500;

fn rows() -> String {
    (0..ROWS).fold("id,street\n".to_owned(), |text, n| text + &format!("{n},street-{n}-\n"))
}

/// The number that a request asks about.
fn number(head: &str) -> usize {
    let (_, rest) = head.split_once("street-").unwrap_or_else(|| panic!("{head}"));
    rest.split('-').next().unwrap().parse().unwrap()
}

/// The answer to a question: its number, so that a mix-up shows.
fn place(n: usize) -> String {
    let (lon, lat) = (n as f64 / 10.0, 48.5);
    said("200 OK", &format!(r#"{{"results":[{{"lat":{lat},"lon":{lon},"label":"place {n}"}}]}}"#))
}

fn parts(url: &str, service: &str, sink: &str) -> String {
    format!(
        "source: {{ file: in.csv, batch_size: 50 }}
services: {{ g: {{ profile: generic, url: \"{url}\"{service} }} }}
steps:
  - geocode: {{ service: g, address: [street], label: label }}
sink: {{ {sink} }}"
    )
}

/// The records as they were written: their number, and that of their answer.
fn written(bench: &Bench, file: &str) -> Vec<(String, String)> {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    bench.properties(file).iter().map(|p| (word(&p["id"]), word(&p["label"]))).collect()
}

fn all() -> Vec<(String, String)> {
    (0..ROWS).map(|n| (n.to_string(), format!("place {n}"))).collect()
}

/// Holds one answer back until so many others have been asked for, or for ever.
#[derive(Default)]
struct Holding {
    others: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Holding {
    fn asked(&self) {
        self.others.lock().unwrap().0 += 1;
        self.changed.notify_all();
    }

    fn wait(&self, others: usize) {
        let state = self.others.lock().unwrap();
        let _come = self.changed.wait_while(state, |(n, open)| *n < others && !*open).unwrap();
    }

    fn open(&self) {
        self.others.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

#[test]
fn while_one_record_waits_all_batches_behind_it_are_asked() {
    let holding = Arc::new(Holding::default());
    let server = Canned::start({
        let holding = holding.clone();
        move |head| {
            match number(head) {
                3 => holding.wait(ROWS - 1),
                _ => holding.asked(),
            }
            place(number(head))
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", &rows());
    bench.manifest(&parts(&server.url(), "", "file: out.geojsonl"));
    // A call that is given up would be asked again.
    bench.write(
        "m.yaml",
        &bench
            .read("m.yaml")
            .replace("max_attempts: 3,", "max_attempts: 1, deadline: 5m, attempt_timeout: 5m,"),
    );
    let result = bench.runs(0);
    // It was answered after all the others had been asked: nine batches behind its own.
    assert_eq!((&result["written"], &result["calls"]), (&json!(ROWS), &json!(ROWS)));
    assert_eq!(server.seen().len(), ROWS);
    assert_eq!(written(&bench, "out.geojsonl"), all(), "in the order of the source");
}

#[test]
fn the_window_bounds_what_is_asked_while_one_record_waits() {
    let holding = Arc::new(Holding::default());
    let server = Canned::start({
        let holding = holding.clone();
        move |head| {
            let n = number(head);
            match n {
                // The rest of its batch and two more: the window is full with them.
                3 => holding.wait(149),
                _ => holding.asked(),
            }
            place(n)
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", &rows());
    bench.manifest(&parts(&server.url(), ", window: 150", "file: out.geojsonl"));
    bench.write(
        "m.yaml",
        &bench
            .read("m.yaml")
            .replace("max_attempts: 3,", "max_attempts: 1, deadline: 5m, attempt_timeout: 5m,"),
    );
    bench.runs(0);
    let asked: Vec<usize> = server.seen().iter().map(|head| number(head)).collect();
    let mut first: Vec<usize> = asked[..150].to_vec();
    first.sort_unstable();
    assert_eq!(first, (0..150).collect::<Vec<_>>(), "three batches, and nothing of the fourth");
    assert_eq!(written(&bench, "out.geojsonl"), all());
}

#[test]
fn what_a_service_asks_for_is_waited_for_once() {
    let told = Mutex::new(false);
    let server = Canned::start(move |head| {
        let n = number(head);
        if n == 3 && !std::mem::replace(&mut *told.lock().unwrap(), true) {
            return said("503 Service Unavailable\r\nRetry-After: 3", "{}");
        }
        place(n)
    });
    let bench = Bench::new();
    bench.write("in.csv", &rows());
    bench.manifest(&parts(&server.url(), "", "file: out.geojsonl"));
    let began = std::time::Instant::now();
    let result = bench.runs(0);
    assert!(began.elapsed() >= std::time::Duration::from_secs(3), "never earlier than the server asked");
    assert_eq!((&result["written"], &result["calls"]), (&json!(ROWS), &json!(ROWS + 1)));
    assert_eq!(written(&bench, "out.geojsonl"), all());
}

#[test]
fn a_stop_commits_the_complete_batches_before_the_one_that_waits() {
    let holding = Arc::new(Holding::default());
    let server = Canned::start({
        let holding = holding.clone();
        move |head| {
            match number(head) {
                160 => holding.wait(usize::MAX),
                _ => holding.asked(),
            }
            place(number(head))
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", &rows());
    bench.manifest(&parts(&server.url(), "", "file: out.gpkg, key: [id]"));
    let run = Running::of(bench.command(&["run", "m.yaml", "--format", "json"]).spawn().unwrap());
    holding.wait(ROWS - 1);
    run.signal("TERM");
    let ran = run.end();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let (stopped, done) = (ran.word("status"), ran.count("written"));
    assert_eq!((stopped.as_str(), done % 50), ("stopped", 0));
    assert!(done <= 150, "the batch of record 160 waits: {done}");
    holding.open();
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, ran.count("written")), (0, 500), "{}", ran.stderr);
    let wrong = "SELECT count(*), count(DISTINCT id), sum(label <> 'place ' || id) FROM out";
    assert_eq!(bench.sql("out.gpkg", wrong), ["500|500|0"]);
}

#[test]
fn a_spent_quota_commits_the_complete_batches_before_it() {
    let server = Canned::start(|head| match number(head) {
        n if n < 300 => place(n),
        _ => said("200 OK", r#"{"error":"quota exceeded"}"#),
    });
    let bench = Bench::new();
    bench.write("in.csv", &rows());
    // With one call at a time at most 64 records wait for it: those before have been answered when
    // record 300 is asked.
    let parts = parts(&server.url(), "", "file: out.gpkg, key: [id]");
    bench.manifest(&format!("{parts}\nrate_limit: {{ max_in_flight: 1 }}"));
    let ran = bench.run(&[]);
    let done = ran.count("written");
    assert_eq!((ran.code, done % 50), (75, 0), "{}", ran.stderr);
    assert!((200..=300).contains(&done), "{done}");
}

/// Two services, with local steps that remember before, between and behind them, and a gate that
/// does; some records are refused, some have no match.
fn many(one: &str, two: &str, service: &str) -> String {
    format!(
        "source: {{ file: in.geojsonl, batch_size: 25 }}
services:
  one: {{ profile: generic, url: \"{one}\"{service} }}
  two: {{ url: \"{two}\"{service} }}
steps:
  - dedupe: [id]
  - geocode: {{ service: one, address: [street], label: label }}
  - coerce: {{ fields: {{ v: int }} }}
  - http: {{ service: two, path: \"/street-{{u}}-\", take: {{ name: /results/0/label }}, no_match: reject }}
  - dedupe: [name]
gates:
  - {{ check: unique, fields: [u] }}
"
    )
}

fn input() -> String {
    let street = |line: &str| {
        let at = line.find(r#""u":"#).unwrap() + 4;
        let u = line[at..].split('}').next().unwrap();
        line.replacen(r#""u":"#, &format!(r#""street":"street-{u}-","u":"#), 1)
    };
    crate::pipeline::kill::input().lines().map(|line| street(line) + "\n").collect()
}

fn services() -> (Canned, Canned) {
    let answer = |odd: usize| {
        move |head: &str| match number(head) {
            n if n % 37 == odd => said("400 Bad Request", r#"{"error":"no"}"#),
            n if n % 29 == odd => said("404 Not Found", "{}"),
            // Not in the order in which they were asked.
            n => {
                std::thread::sleep(std::time::Duration::from_millis(n as u64 * 7 % 23));
                place(n - n % 2)
            }
        }
    };
    (Canned::start(answer(5)), Canned::start(answer(11)))
}

#[test]
fn steps_and_gates_with_a_memory_see_what_they_see_without_a_window() {
    let (one, two) = services();
    let found = ["", ", window: 1", ", window: 60"].map(|service| {
        let bench = Bench::new();
        bench.write("in.geojsonl", &input());
        let parts = many(&one.url(), &two.url(), service);
        bench.manifest(&format!("{parts}sink: {{ file: out.geojsonl }}"));
        let result = bench.runs(4);
        assert_eq!(result["balanced"], true);
        (bench.read("out.geojsonl"), bench.rejects(), books(&result))
    });
    assert!(found[0].0.lines().count() > 100 && found[0].1.len() > 20, "{:?}", found[0].2);
    assert!(found[0] == found[1] && found[1] == found[2], "{:#?}", found.map(|(_, _, books)| books));
}

#[test]
fn kills_while_batches_are_with_a_service_lose_and_double_nothing() {
    let (one, two) = services();
    let parts = many(&one.url(), &two.url(), "");
    let manifest = format!("{parts}sink: {{ file: out.gpkg, key: [id] }}");
    let [whole, killed] = [(); 2].map(|()| {
        let bench = Bench::new();
        bench.write("in.geojsonl", &input());
        bench.manifest(&manifest);
        bench
    });
    let expected = whole.runs(4);
    let (result, kills) = chain(&killed);
    assert_eq!(kills, BATCHES * 3 + 1);
    assert_eq!(books(&result), books(&expected));
    let rows = "SELECT id, street, v, u, label, name, hex(geom) FROM out ORDER BY id";
    assert_eq!(killed.sql("out.gpkg", rows), whole.sql("out.gpkg", rows));
    assert_eq!(killed.rejects(), whole.rejects());
}
