//! Dead letters: how fast they are durable, beside PostgreSQL with the same tables and beside bare
//! Redis Streams, in the same run; and how fast a million of them is looked through.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]
#![allow(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use tidegate_core::Code;
use tidegate_core::letter::FailureClass;
use tidegate_ledger::letter::store::{By, LetterPage};
use tidegate_ledger::letter::{
    Failure, Letter, LetterAttempt, LetterFilter, LetterStore, LetterStoreLocation, Letters, Payload,
    Spatial, now_ms,
};

/// How fast letters are durable and found
#[derive(Parser)]
struct Args {
    /// Letters put in batches of 1,000
    #[arg(long, default_value_t = 100_000)]
    letters: u64,
    /// Letters to look through; 0 looks through none
    #[arg(long, default_value_t = 1_000_000)]
    look: u64,
    /// PostgreSQL, such as postgres://postgres@127.0.0.1/test
    #[arg(long)]
    postgres: Option<String>,
    /// Start redis-server and compare with it
    #[arg(long)]
    redis: bool,
}

/// Twenty stories, as many words as a real message has, a place, a payload of 200 bytes.
fn letter(n: u64, now: i64) -> Letter {
    let (lon, lat) = (
        (n.wrapping_mul(7919) % 36_000) as f64 / 100.0 - 180.0,
        (n.wrapping_mul(104_729) % 17_000) as f64 / 100.0 - 85.0,
    );
    let bad = n.is_multiple_of(4);
    Letter {
        pipeline: format!("pipeline {}", n % 5),
        stage: if bad { "gate" } else { "geocode" }.into(),
        idempotency_key: format!("src:{:032x}{:032x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n),
        effect_key: format!("src#{n}"),
        content_type: "application/geo+json".into(),
        payload: Payload {
            received: format!(
                "{{\"type\":\"Feature\",\"id\":{n},\"properties\":{{\"name\":\"{}\"}}}}",
                "x".repeat(140)
            )
            .into_bytes(),
            current: None,
        },
        spatial: Some(Spatial {
            bbox: Some([lon, lat, lon + 0.001, lat + 0.001]),
            source_crs: "EPSG:4326".into(),
            geometry_type: "Polygon".into(),
            vertices: 5,
            ..Spatial::default()
        }),
        failure: Failure {
            class: if bad { FailureClass::Fatal } else { FailureClass::Transient },
            code: if bad { Code::INVALID_GEOMETRY } else { Code::TIMEOUT },
            message: if bad {
                format!("Self-intersection[{lon} {lat}]")
            } else {
                format!("no answer within 30 s for row {n}")
            },
            service: "geo.example".into(),
            driver: "pelias".into(),
            attempts: (0..3)
                .map(|i| LetterAttempt {
                    at_ms: now + i,
                    verdict: "TIMEOUT".into(),
                    status: Some(504),
                    delay_ms: 1000,
                    took_ms: 30_000,
                    hint_ms: None,
                })
                .collect(),
            failed_ms: now,
            ..Failure::default()
        },
        ..Letter::default()
    }
}

/// Letters per second, in batches of 1,000 by one producer that keeps two batches under way.
fn batches(letters: &Letters, from: u64, count: u64) -> f64 {
    let now = now_ms();
    let made: Vec<Letter> = (from..from + count).map(|n| letter(n, now)).collect();
    let start = Instant::now();
    let mut before = None;
    for batch in made.chunks(1000) {
        let ticket = letters.put(batch);
        if let Some(before) = before.replace(ticket) {
            tidegate_ledger::letter::LetterTicket::wait(before).unwrap();
        }
    }
    before.map(|ticket| ticket.wait().unwrap());
    count as f64 / start.elapsed().as_secs_f64()
}

fn singles(letters: &Letters, from: u64) -> f64 {
    const EACH: u64 = 200;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for producer in 0..64 {
            scope.spawn(move || {
                for n in 0..EACH {
                    letters.put(&[letter(from + producer * EACH + n, now_ms())]).wait().unwrap();
                }
            });
        }
    });
    64.0 * EACH as f64 / start.elapsed().as_secs_f64()
}

struct Redis(Child, TcpStream);

impl Redis {
    fn start(dir: &std::path::Path) -> Redis {
        let port = 16_379;
        let mut child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--save",
                "",
                "--dir",
            ])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..100 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                return Redis(child, stream);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill().and_then(|()| child.wait()).unwrap();
        unreachable!("redis-server does not listen");
    }

    /// One XADD per letter, a thousand in a pipeline.
    fn batches(&mut self, count: u64) -> f64 {
        let now = now_ms();
        let made: Vec<String> = (0..count).map(|n| serde_json::to_string(&letter(n, now)).unwrap()).collect();
        let start = Instant::now();
        let mut answer = [0; 65_536];
        for batch in made.chunks(1000) {
            let mut out = Vec::new();
            for json in batch {
                let words = ["XADD", "letters", "*", "l", json];
                write!(out, "*{}\r\n", words.len()).unwrap();
                words.iter().for_each(|w| write!(out, "${}\r\n{w}\r\n", w.len()).unwrap());
            }
            self.1.write_all(&out).unwrap();
            // Each answer is a bulk string: two line ends.
            let mut ends = 0;
            while ends < batch.len() * 2 {
                let n = self.1.read(&mut answer).unwrap();
                ends += answer[..n].iter().filter(|b| **b == b'\n').count();
            }
        }
        count as f64 / start.elapsed().as_secs_f64()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn timed<T>(name: &str, mut work: impl FnMut() -> T) -> T {
    let mut best = f64::INFINITY;
    let mut last = None;
    for _ in 0..3 {
        let start = Instant::now();
        last = Some(work());
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    println!("  {name:<44} {best:>9.1} ms");
    last.unwrap()
}

fn look(place: &LetterStoreLocation, letters: &Letters, count: u64, have: u64) {
    let mut n = have;
    while n < count {
        let step = (count - n).min(100_000);
        batches(letters, n, step);
        n += step;
    }
    let mut store = LetterStore::open(place).unwrap();
    println!("looking through {} letters, best of 3", store.count(&LetterFilter::default()).unwrap());
    let page = LetterPage { limit: 50, newest_first: true, payload: false };
    let f = LetterFilter::default;
    timed("ls", || store.find(&f(), page).unwrap());
    timed("ls --code INVALID_GEOMETRY", || {
        store.find(&LetterFilter { codes: vec!["INVALID_GEOMETRY".into()], ..f() }, page).unwrap()
    });
    timed("ls --text 'row 777777'", || {
        store.find(&LetterFilter { text: Some("row 777777".into()), ..f() }, page).unwrap()
    });
    timed("stats", || store.stats(&f(), By::Fingerprint, now_ms()).unwrap());
    timed("stats --by age", || store.stats(&f(), By::Age, now_ms()).unwrap());
    timed("stats --pipeline 'pipeline 1' --by code", || {
        store.stats(&LetterFilter { pipeline: Some("pipeline 1".into()), ..f() }, By::Code, now_ms()).unwrap()
    });
    let bbox = LetterFilter { bbox: Some([9.0, 46.0, 17.0, 49.0]), ..f() };
    timed("ls --bbox 9,46,17,49", || store.find(&bbox, page).unwrap());
    timed("count --bbox 9,46,17,49", || store.count(&bbox).unwrap());
    timed("stats --bbox 9,46,17,49", || store.stats(&bbox, By::Code, now_ms()).unwrap());
}

fn main() {
    let args = Args::parse();
    let dir = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    println!(
        "{} letters in batches of 1,000, durable, all indexes and the audit entry; then 64 producers of single letters",
        args.letters
    );
    let place = LetterStoreLocation::File(dir.join("letters.db"));
    let letters = Letters::open(&place).unwrap();
    println!("  SQLite      {:>9.0} letters/s", batches(&letters, 0, args.letters));
    let single = singles(&letters, 500_000_000);
    println!("  SQLite      {single:>9.0} letters/s   64 single producers");
    if let Some(url) = &args.postgres {
        let schema = format!("bench_letters_{}", std::process::id());
        let place = format!("{url}?schema={schema}").parse().unwrap();
        let letters = Letters::open(&place).unwrap();
        println!("  PostgreSQL  {:>9.0} letters/s", batches(&letters, 0, args.letters));
        println!("  PostgreSQL  {:>9.0} letters/s   64 single producers", singles(&letters, 500_000_000));
        letters.close();
        let _ = Command::new("psql")
            .args([url, "-qc", &format!("DROP SCHEMA {schema} CASCADE")])
            .stderr(Stdio::null())
            .status();
    }
    if args.redis {
        println!(
            "  Redis       {:>9.0} letters/s   XADD only, appendfsync always",
            Redis::start(&dir).batches(args.letters)
        );
    }
    if args.look > 0 {
        look(&place, &letters, args.look, args.letters);
    }
    letters.close();
    let _ = std::fs::remove_dir_all(&dir);
}
