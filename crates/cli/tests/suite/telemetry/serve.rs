//! `serve`: what it serves is what is there, what it does is done once, and it ends when asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tidegate_core::Code;
use tidegate_core::letter::LetterState;
use tidegate_ledger::letter::{
    DAY_MS, Defect, Letter, LetterFilter, LetterStore, LetterStoreLocation, Letters, Spatial, now_ms,
};

use crate::telemetry::bench::{Bench, taking};

/// Longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `serve` that is under way.
struct Served {
    child: Child,
    said: Receiver<String>,
    addr: String,
}

impl Served {
    fn start(bench: &Bench, args: &[&str], env: &[(&str, &str)]) -> Served {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut child = bench.command(&all).envs(env.iter().copied()).spawn().unwrap();
        let (tell, said) = channel();
        let words = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(words).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let mut served = Served { child, said, addr: String::new() };
        let at = served.wait("http://");
        served.addr = at.split("http://").nth(1).unwrap().trim_end_matches('/').to_owned();
        served.wait("tidegate serve: monitoring");
        served
    }

    /// The next line that holds this.
    fn wait(&self, part: &str) -> String {
        loop {
            let line = self.said.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("no {part:?} came: {e}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn ask(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}", self.addr))
    }

    /// Asks for the metrics until they hold this line.
    fn until(&self, line: &str) -> String {
        let began = std::time::Instant::now();
        loop {
            let text = self.get("/metrics");
            if text.lines().any(|l| l == line) {
                return text;
            }
            assert!(began.elapsed() < PATIENCE, "no {line:?} came:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to end; what it said since.
    fn end(mut self) -> Vec<String> {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let said: Vec<String> = self.said.iter().collect();
        assert!(said.iter().any(|line| line == "tidegate serve: stopped"), "{said:?}");
        said
    }
}

fn letter(n: u64, days_ago: i64) -> Letter {
    let mut letter = Letter {
        pipeline: "parcels".into(),
        stage: "gate".into(),
        idempotency_key: format!("k{n}"),
        spatial: Some(Spatial {
            bbox: Some([16.3712, 48.2081, 16.3712, 48.2081]),
            defect: Some(Defect { lon: 16.3712, lat: 48.2081, ..Defect::default() }),
            ..Spatial::default()
        }),
        ..Letter::default()
    };
    letter.failure.code = Code::INVALID_GEOMETRY;
    letter.failure.message = "Self-intersection[16.3712 48.2081]".into();
    letter.failure.failed_ms = now_ms() - days_ago * DAY_MS;
    letter.lineage.first_failed_ms = letter.failure.failed_ms;
    letter.retained_for(60)
}

/// One that a person has closed.
fn closed(n: u64, days_ago: i64) -> Letter {
    Letter { state: LetterState::Dismissed, ..letter(n, days_ago) }
}

fn put(bench: &Bench, store: &str, all: &[Letter]) {
    let letters = Letters::open(&LetterStoreLocation::File(bench.path(store))).unwrap();
    letters.put(all).wait().unwrap();
    letters.close();
}

/// A run of ten records of which three are dead letters, in `.tidegate`.
fn ran(bench: &Bench) {
    let rows: String = (0..10).map(|i| format!("{i},{}\n", if i < 3 { -1 } else { i })).collect();
    bench.write("in.csv", &format!("id,area\n{rows}"));
    bench.manifest(
        "source: { file: in.csv, crs: \"EPSG:4326\" }\ndead_letters: {}\ngates:\n  - { check: range, fields: [area], min: 0 }\nsink: { file: out.csv }",
    );
    let ran = bench.run(&["run", "m.yaml", "--quiet"], &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
}

#[test]
fn what_is_served_is_what_is_there() {
    let bench = Bench::new();
    ran(&bench);
    put(&bench, ".tidegate/letters.db", &[letter(1, 2)]);
    let served = Served::start(&bench, &[], &[]);
    let text = served.get("/metrics");
    // What `dlq` reads of the same store, but for the age, which goes on.
    let stats = bench.command(&["dlq", "stats", "--metrics"]).output().unwrap();
    let stats = String::from_utf8(stats.stdout).unwrap();
    let mut compared = 0;
    for line in stats.lines().filter(|l| !l.starts_with('#') && !l.contains("_seconds")) {
        let (name, value) = line.split_once(' ').unwrap();
        let wanted = format!("{name}{{pipeline=\"letters:.tidegate/letters\"}} {value}");
        assert!(text.lines().any(|l| l == wanted), "{wanted}\n{text}");
        compared += 1;
    }
    assert_eq!(compared, 9);
    for line in [
        "tidegate_letter_letters{pipeline=\"letters:.tidegate/letters\"} 4",
        "tidegate_letter_readable{pipeline=\"letters:.tidegate/letters\"} 1",
        "tidegate_letter_incidents{pipeline=\"letters:.tidegate/letters\"} 0",
        "tidegate_alert_firing{pipeline=\"letters:.tidegate/letters\",alert=\"letter_age\"} 1",
        "tidegate_alert_firing{pipeline=\"letters:.tidegate/letters\",alert=\"letters_full\"} 0",
        "tidegate_last_run_status{pipeline=\"parcels\",status=\"done\"} 1",
        "tidegate_last_run_status{pipeline=\"parcels\",status=\"failed\"} 0",
        "tidegate_last_run_records_read{pipeline=\"parcels\"} 10",
        "tidegate_last_run_records{pipeline=\"parcels\",outcome=\"committed\"} 7",
        "tidegate_last_run_records{pipeline=\"parcels\",outcome=\"dead\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let page = served.get("/");
    for part in [
        "HTTP/1.1 200 OK\r\n",
        "Content-Security-Policy: default-src 'none'; style-src 'sha256-",
        "frame-ancestors 'none'\r\n",
        "<th scope=\"row\">parcels</th><td class=\"word fair\">! done, with dead letters</td><td>10</td><td>7</td><td>0</td><td>3</td>",
        "<code>INVALID_GEOMETRY</code></th><td>1</td><td>1</td><td>2 d ago</td>",
        "<b class=\"fair\">! letter_age</b>",
        "The oldest open letter is 48.0 hours old",
        "href=\"/dead-letters\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("16.37"));
    let map = served.get("/dead-letters");
    assert!(map.contains("4 of 4 letters, coordinates rounded to 0.1 degrees"), "{map}");
    assert!(map.contains("Self-intersection[16.3 48.2]") && !map.contains("16.37"), "places are coarse");
    served.end();
}

#[test]
fn only_those_who_may_are_answered() {
    let bench = Bench::new();
    ran(&bench);
    let served = Served::start(&bench, &["--allow-host", "ops.example"], &[]);
    let status = |head: &str| {
        let answer = served.ask(head);
        answer.split("\r\n").next().unwrap().trim_start_matches("HTTP/1.1 ").to_owned()
    };
    assert_eq!(status("GET / HTTP/1.1\r\nHost: ops.example"), "200 OK");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: rebound.example"), "421 Misdirected Request");
    assert_eq!(status("GET /dead-letters HTTP/1.1\r\nHost: rebound.example"), "421 Misdirected Request");
    assert_eq!(status("POST / HTTP/1.1\r\nHost: localhost"), "405 Method Not Allowed");
    assert_eq!(status("GET /secret HTTP/1.1\r\nHost: localhost"), "404 Not Found");
    assert_eq!(status("GET / HTTP/1.1"), "400 Bad Request");
    let head = served.ask("HEAD /metrics HTTP/1.1\r\nHost: localhost");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(served.get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(served.get("/readyz").ends_with("\r\n\r\nready\n"));
    let check = ["serve", "--check", "--listen", served.addr.as_str()];
    assert_eq!(bench.run(&check, &[]).code, 0);
    // A second one finds the address taken; and what cannot work is said before it begins.
    let taken = bench.run(&["serve", "--listen", &served.addr], &[]);
    assert_eq!((taken.code, taken.stderr.contains("--listen")), (2, true), "{}", taken.stderr);
    let addr = served.addr.clone();
    served.end();
    assert_eq!(bench.run(&["serve", "--check", "--listen", &addr], &[]).code, 1, "nobody is there any more");
    for (args, part) in [
        (&["serve", "--state", "nowhere"][..], "nothing to monitor"),
        (&["serve", "--listen", "0.0.0.0:0", "--reveal", "ticket 7"], "requires a loopback address"),
        (&["serve", "--every", "10ms"], "--every"),
        (&["serve", "--dead-letters", "env:NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    ] {
        let ran = bench.run(args, &[]);
        assert_eq!((ran.code, ran.stderr.contains(part)), (2, true), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn retention_runs_at_the_start_and_again() {
    let bench = Bench::new();
    put(
        &bench,
        "a.db",
        &[closed(1, 61), letter(2, 1), Letter { hold: Some("court".into()), ..letter(3, 80) }],
    );
    let served = Served::start(&bench, &["--dead-letters", "a.db", "--every", "1s"], &[]);
    let text = served.get("/metrics");
    assert!(text.contains("tidegate_letter_letters{pipeline=\"letters:a\"} 2\n"), "{text}");
    assert!(text.contains("tidegate_letter_purged_total{pipeline=\"letters:a\"} 1\n"), "{text}");
    // One that expires while it runs is gone with a later round.
    put(&bench, "a.db", &[closed(4, 61), closed(5, 61)]);
    served.wait("purged 2 letters past the retention period from a.db");
    served.until("tidegate_letter_purged_total{pipeline=\"letters:a\"} 3");
    served.end();
    let mut store = LetterStore::open(&LetterStoreLocation::File(bench.path("a.db"))).unwrap();
    assert_eq!(store.count(&LetterFilter::default()).unwrap(), 2, "the young one and the one that is held");
    let out = bench.command(&["audit", "show", "--store", "a.db", "--act", "purge", "--format", "ndjson"]);
    let out = { out }.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.contains("retention")), "{text}");
    assert_eq!(bench.run(&["audit", "verify", "--store", "a.db"], &[]).code, 0);
}

#[test]
fn an_alert_acts_once_when_it_begins_and_once_when_it_ends() {
    let bench = Bench::new();
    bench.manifest(
        "source: { file: in.csv }\nsink: { file: out.csv }\nalerts:\n  off: [letter_age]\n  actions:\n    - { command: [sh, -c, \"echo $TIDEGATE_ALERT $TIDEGATE_ALERT_FIRING >> names; cat > told.json\"] }",
    );
    put(&bench, "a.db", &[letter(1, 2), letter(2, 2), letter(3, 2)]);
    assert_eq!(bench.run(&["dlq", "capacity", "4", "--store", "a.db"], &[]).code, 0);
    let served =
        Served::start(&bench, &["--dead-letters", "a.db", "--every", "1s", "--alerts", "m.yaml"], &[]);
    let firing =
        |on: u8| format!("tidegate_alert_firing{{pipeline=\"letters:a\",alert=\"letters_full\"}} {on}");
    served.until(&firing(1));
    // Later looks see it still; that is no news.
    put(&bench, "a.db", &[letter(4, 2)]);
    served.until("tidegate_letter_letters{pipeline=\"letters:a\"} 4");
    assert!(served.get("/").contains("<b class=\"fair\">! letters_full</b>"));
    assert_eq!(bench.run(&["dlq", "capacity", "100", "--store", "a.db"], &[]).code, 0);
    served.until(&firing(0));
    assert!(served.get("/").contains("✓ None."));
    let text = served.get("/metrics");
    assert!(!text.contains("alert=\"letter_age\""), "it is off: {text}");
    // It waits for what is being done.
    served.end();
    assert_eq!(bench.read("names"), "letters_full 1\nletters_full 0\n");
    let told: serde_json::Value = serde_json::from_str(&bench.read("told.json")).unwrap();
    assert_eq!((&told["pipeline"], &told["firing"]), (&"letters:a".into(), &false.into()));
}

#[test]
fn exact_places_are_audited_each_time() {
    let bench = Bench::new();
    put(&bench, "a.db", &[letter(1, 2)]);
    let served = Served::start(&bench, &["--dead-letters", "a.db", "--reveal", "ticket 7"], &[]);
    for _ in 0..2 {
        let map = served.get("/dead-letters");
        assert!(map.contains("exact coordinates") && map.contains("16.3712"), "{map}");
    }
    assert!(!served.get("/").contains("16.3712"), "the overview shows none");
    served.end();
    let out = bench
        .command(&["audit", "show", "--store", "a.db", "--act", "reveal", "--format", "ndjson"])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("ticket 7")).count(), 2, "{text}");
}

#[test]
fn a_store_that_cannot_be_read_is_told_and_a_missing_one_is_not_made() {
    let bench = Bench::new();
    bench.write("broken.db", "this is no database, and long enough to be seen as none");
    let served = Served::start(
        &bench,
        &["--dead-letters", "broken.db", "--dead-letters", "later.db", "--every", "1s"],
        &[],
    );
    assert!(served.get("/readyz").starts_with("HTTP/1.1 503 "));
    assert!(served.get("/healthz").starts_with("HTTP/1.1 200 "));
    let text = served.get("/metrics");
    assert!(text.contains("tidegate_letter_readable{pipeline=\"letters:broken\"} 0\n"), "{text}");
    assert!(!text.contains("tidegate_letter_letters{pipeline=\"letters:broken\"}"), "{text}");
    assert!(text.contains("tidegate_letter_letters{pipeline=\"letters:later\"} 0\n"), "{text}");
    let page = served.get("/");
    assert!(page.contains("✗ read error") && page.contains("Cannot read the store"), "{page}");
    assert!(page.contains("Empty: created with the first letter"), "{page}");
    assert!(served.get("/dead-letters").starts_with("HTTP/1.1 503 "));
    assert!(!bench.path("later.db").exists());
    // It is seen when it is there.
    put(&bench, "later.db", &[letter(1, 2)]);
    served.until("tidegate_letter_letters{pipeline=\"letters:later\"} 1");
    served.end();
    assert_eq!(bench.read("broken.db").len(), 55, "it is as it was");
}

#[test]
fn a_collector_gets_what_is_served() {
    let bench = Bench::new();
    ran(&bench);
    let collector = taking();
    let served = Served::start(&bench, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]);
    served.end();
    let pushed = collector.asked();
    let last = pushed.last().expect("a last push");
    assert!(last.head.starts_with("POST /v1/metrics "), "{}", last.head);
    for part in ["tidegate_letter_open", "letters:.tidegate/letters", "tidegate_last_run_records", "parcels"]
    {
        assert!(last.holds(part), "{part}");
    }
    let ran = bench.run(&["serve"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")]);
    assert_eq!((ran.code, ran.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT")), (2, true), "{}", ran.stderr);
}

#[test]
fn a_run_watches_its_own_letters() {
    let bench = Bench::new();
    ran(&bench);
    assert_eq!(bench.run(&["dlq", "capacity", "4"], &[]).code, 0);
    // Three of four letters are there already; this run adds none and ends well.
    bench.write("in.csv", "id,area\n1,1\n");
    let mut manifest = bench.read("m.yaml");
    manifest.push_str("  alerts: { actions: [{ exit_code: true, on: [letters_full] }] }\n");
    bench.write("m.yaml", &manifest);
    let ran = bench.run(&["run", "m.yaml", "--quiet"], &[]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("letters_full: the dead letter store is 75.0 % full"), "{}", ran.stderr);
}

#[test]
fn whoever_asks_is_answered_while_hundreds_send_half_a_request() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path(".tidegate")).unwrap();
    let served = Served::start(&bench, &[], &[]);
    let mut halves = Vec::new();
    let half = || {
        let mut stream = TcpStream::connect(&served.addr).unwrap();
        // A connection that was displaced takes nothing more.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
        stream
    };
    for round in 0..3 {
        halves.extend((0..100).map(|_| half()));
        let mut stream = TcpStream::connect(&served.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
            .write_all(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", served.addr).as_bytes())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nok\n"), "{text}");
    }
    // The first of them were displaced: their connections are at their end.
    for stream in &mut halves[..100] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(!matches!(stream.read(&mut [0]), Ok(1)));
    }
    served.end();
}
