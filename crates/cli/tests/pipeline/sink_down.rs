//! A database that is down: a run ends with 75, says so, and goes on when the database is back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::bench::{Bench, point};
use crate::canned::closed;
use crate::postgis::{Db, url};
use crate::running::Ran;

/// A way to the database that a test can cut: what comes to its port goes to the server's.
struct Relay {
    addr: SocketAddr,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Relay {
    fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let relay = Relay { addr, open: open.clone() };
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let mut open = open.lock().unwrap();
                // Whoever comes while it is cut is sent away.
                let Some(open) = open.as_mut() else { continue };
                let far = TcpStream::connect(server()).unwrap();
                open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || copy(near, far));
                thread::spawn(move || copy(far2, near2));
            }
        });
        relay
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

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..read]).is_err() {
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

/// The sink of `db`, reached at `addr`.
fn sink_at(db: &Db, addr: SocketAddr) -> String {
    let config: postgres::Config = url().parse().unwrap();
    let (user, name) = (config.get_user().unwrap(), config.get_dbname().unwrap());
    format!(
        "sink: {{ postgis: {{ url: \"postgres://{user}@{addr}/{name}\", schema: {}, table: out }}, key: [id] }}",
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
