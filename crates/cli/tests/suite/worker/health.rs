//! What a worker says about itself over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{parcels, publish, task};
use crate::common::running::{Ran, Running};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The answer to a request; empty if nobody listens yet.
fn get(addr: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(addr) {
        let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        // A server that ends meanwhile has said what it said.
        let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    }
    answer
}

fn until(addr: SocketAddr, path: &str, expected: &str) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = get(addr, path);
        if answer.contains(expected) {
            return answer;
        }
        assert!(Instant::now() < end, "{path} does not say {expected}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_worker_tells_its_health_and_its_numbers() {
    let dir = parcels();
    let addr = free_address();
    let args = ["worker", "parcels.yaml", "--listen", &addr.to_string(), "--quiet"];
    let worker = Running::of(dir.command(&args).spawn().unwrap());
    assert!(until(addr, "/readyz", "ready\n").starts_with("HTTP/1.1 200"));
    assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(addr, "/other").starts_with("HTTP/1.1 404"));
    publish(&dir, &(0..3).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let metrics = until(addr, "/metrics", "tidegate_tasks_total{pipeline=\"parcels\",outcome=\"done\"} 3");
    assert!(metrics.contains("tidegate_queue_messages{pipeline=\"parcels\",state=\"ready\"}"), "{metrics}");
    worker.signal("TERM");
    assert_eq!(worker.end().code, 0);
}

#[test]
fn metrics_stay_on_loopback_unless_asked_otherwise() {
    let dir = parcels();
    let run = |args: &[&str]| -> Ran {
        dir.command(&[&["worker", "parcels.yaml", "--once"], args].concat()).output().unwrap().into()
    };
    let refused = run(&["--metrics", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("not a loopback address"), "{}", refused.stderr);
    assert_eq!(run(&["--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0"]).code, 2);
}
