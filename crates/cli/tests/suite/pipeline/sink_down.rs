//! A database that is down: a run ends with 75, says so, and goes on when the database is back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::canned::closed;
use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, point};
use crate::pipeline::postgis::{Db, url};

/// A way to the database that a test can cut: what comes to its port goes to the server's.
struct Relay {
    addr: SocketAddr,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
    /// The number of further commits until a reply is swallowed.
    commits: Arc<AtomicI64>,
    /// How many were sent away while it was cut.
    refused: Arc<AtomicI64>,
}

/// COMMIT on its own, as a message to the server.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

impl Relay {
    fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let commits = Arc::new(AtomicI64::new(-1));
        let refused = Arc::new(AtomicI64::new(0));
        let relay = Relay { addr, open: open.clone(), commits: commits.clone(), refused: refused.clone() };
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let mut open = open.lock().unwrap();
                // Whoever comes while it is cut is sent away.
                let Some(open) = open.as_mut() else {
                    refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                };
                let far = TcpStream::connect(server()).unwrap();
                open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                // Once mute, replies of this connection go nowhere.
                let mute = Arc::new(AtomicBool::new(false));
                let (mute2, commits) = (mute.clone(), commits.clone());
                thread::spawn(move || {
                    copy(near, far, |piece| {
                        let is_commit = piece.windows(COMMIT.len()).any(|part| part == COMMIT);
                        if is_commit && commits.fetch_sub(1, Ordering::SeqCst) == 0 {
                            mute.store(true, Ordering::SeqCst);
                        }
                        true
                    });
                });
                thread::spawn(move || copy(far2, near2, |_| !mute2.load(Ordering::SeqCst)));
            }
        });
        relay
    }

    /// Swallows the reply to a commit, after so many others.
    fn swallow(self, after: i64) -> Relay {
        self.commits.store(after, Ordering::SeqCst);
        self
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().take().into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.open.lock().unwrap() = Some(Vec::new());
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, pass: impl Fn(&[u8]) -> bool) {
    let mut piece = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        if pass(&piece[..read]) && to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Where the database of the tests is.
fn server() -> SocketAddr {
    let config: postgres::Config = url().parse().unwrap();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The sink of `db`, reached at `addr`. Without TLS, so that a relay sees what goes through it.
fn sink_at(db: &Db, addr: SocketAddr) -> String {
    let config: postgres::Config = url().parse().unwrap();
    let (user, name) = (config.get_user().unwrap(), config.get_dbname().unwrap());
    format!(
        "sink: {{ postgis: {{ url: \"postgres://{user}@{addr}/{name}?sslmode=disable\", schema: {}, table: out }}, key: [id] }}",
        db.schema
    )
}

fn input(bench: &Bench) {
    let rows: String =
        (0..100).map(|n| point(16.0 + f64::from(n) / 1000.0, 48.0, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &rows);
}

#[test]
fn a_database_that_is_down_at_the_start_is_tried_later() {
    let mut db = Db::new("down");
    let bench = Bench::new();
    input(&bench);
    let (_held, addr) = closed();
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{}", sink_at(&db, addr)));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.json()["status"], "waiting");
    let said = format!("DATABASE_UNAVAILABLE: cannot connect to {addr}: Connection refused");
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{}", db.sink("key: [id]")));
    assert_eq!(bench.run(&["--resume"]).code, 0);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(100)"]);
}

#[test]
fn a_database_that_goes_down_in_between_ends_the_run_with_75_and_nothing_is_lost() {
    let mut db = Db::new("cut");
    let bench = Bench::new();
    input(&bench);
    let relay = Relay::start();
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 10 }}\n{}", sink_at(&db, relay.addr)));
    let gate = bench.path("gate");
    let child = bench
        .command(&["run", "m.yaml", "--format", "json"])
        .env("TIDEGATE_HOLD", format!("commit:4={}", gate.display()))
        .spawn()
        .unwrap();
    while !bench.path("gate.here").exists() {
        thread::sleep(Duration::from_millis(2));
    }
    relay.cut();
    std::fs::write(&gate, b"").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("--resume"), "{}", ran.stderr);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(50)"]);
    relay.mend();
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.json()["inserted"], json!(100));
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT id) FROM {}.out"), ["(100,100)"]);
}

/// Rows are appended, so that a batch that is written twice shows.
fn appending(db: &Db, addr: SocketAddr, query: &str) -> String {
    let sink = sink_at(db, addr).replace("\", schema", &format!("&{query}\", schema"));
    sink.replace("key: [id]", "mode: append")
}

#[test]
fn a_commit_whose_reply_never_comes_is_asked_for_over_a_new_connection() {
    let mut db = Db::new("mute");
    let bench = Bench::new();
    input(&bench);
    let relay = Relay::start().swallow(4);
    let sink = appending(&db, relay.addr, "reply_timeout=3");
    bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 10 }}\n{sink}"));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert!(relay.commits.load(Ordering::SeqCst) < 0, "no reply was swallowed");
    assert_eq!(ran.json()["inserted"], json!(100));
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT id) FROM {}.out"), ["(100,100)"]);
}

#[test]
fn a_table_that_is_locked_is_named_as_the_cause_and_tried_later() {
    let mut db = Db::new("locked");
    let bench = Bench::new();
    input(&bench);
    let sink = appending(&db, server(), "options=-c%20lock_timeout%3D50ms").replace("append", "replace");
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{sink}"));
    assert_eq!(bench.run(&[]).code, 0);
    let mut other = postgres::Client::connect(&url(), postgres::NoTls).unwrap();
    // Others may read, but not write.
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.out IN SHARE MODE", db.schema)).unwrap();
    let ran = bench.run(&["--log-level", "info"]);
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr.matches("asked_by=backoff").count(), 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("lock timeout (55P03); gave up after 3 attempts"), "{}", ran.stderr);
    drop(other);
    assert_eq!(bench.run(&["--resume"]).code, 0);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(100)"]);
}

/// Runs a manifest with a relay that is cut until somebody was sent away three times.
fn runs_as_soon_as_mended(bench: &Bench, relay: &Relay) {
    relay.cut();
    let before = relay.refused.load(Ordering::SeqCst);
    let mut child =
        bench.command(&["run", "m.yaml", "--format", "json", "--log-level", "info"]).spawn().unwrap();
    while relay.refused.load(Ordering::SeqCst) < before + 3 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    relay.mend();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    // One of the three may have looked for letters to replay, which is not waited for.
    assert!(ran.stderr.matches("asked_by=backoff").count() >= 2, "{}", ran.stderr);
}

#[test]
fn a_database_that_restarts_while_a_run_begins_is_waited_for() {
    let mut db = Db::new("restart");
    let bench = Bench::new();
    input(&bench);
    let relay = Relay::start();
    let write = |parts: &str| {
        bench.manifest(parts);
        let patient = bench.read("m.yaml").replace("max_attempts: 3,", "max_attempts: 100, max_delay: 20ms,");
        bench.write("m.yaml", &patient);
    };
    write(&format!("source: {{ file: in.geojsonl }}\n{}", sink_at(&db, relay.addr)));
    runs_as_soon_as_mended(&bench, &relay);
    assert_eq!(db.rows("SELECT count(*) FROM {}.out"), ["(100)"]);

    let from = sink_at(&db, relay.addr)
        .replace("sink:", "source:")
        .replace("table: out }, key: [id] }", "table: out, key: id }, crs: EPSG:4326 }");
    write(&format!("{from}\nsink: {{ file: copy.geojsonl }}"));
    runs_as_soon_as_mended(&bench, &relay);
    assert_eq!(bench.features("copy.geojsonl").len(), 100);

    let sink = sink_at(&db, relay.addr);
    let url = sink.split('"').nth(1).unwrap();
    let letters = format!("dead_letters: {{ store: \"{url}&schema={}\" }}", db.schema);
    write(&format!("source: {{ file: in.geojsonl }}\nsink: {{ file: out.geojsonl }}\n{letters}"));
    runs_as_soon_as_mended(&bench, &relay);
    relay.cut();
    bench.write("m.yaml", &bench.read("m.yaml").replace("max_attempts: 100", "max_attempts: 2"));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    let store = format!("{url}&schema={}", db.schema);
    for args in [["audit", "verify", "--store", &store], ["audit", "show", "--store", &store]] {
        let ran = bench.tidegate(&args);
        assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    }
    let ran = bench.tidegate(&["dlq", "--store", &store, "ls"]);
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
}
