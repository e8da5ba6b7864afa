//! A geocoder on loopback that answers its first call with 503, and a client that calls it twice.
//!
//! ```sh
//! cargo run -p tidegate-chaos --example server
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_chaos::{Chaos, Config, FaultKind, FaultRule, Handle, spec};

/// The status line of an answer.
fn get(server: &Handle, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server.addr())?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fault = FaultRule { kind: FaultKind::Status(503), when: spec::when("first:1")? };
    let server = Chaos::start(Config { faults: vec![fault], ..Config::default() })?;
    for _ in 0..2 {
        println!("{}", get(&server, "/geocode?q=Stephansplatz")?);
    }
    let stats = server.stats(); // what only the other side knows
    println!("{} requests, {} by status 503", stats.requests, stats.by_status.get(&503).unwrap_or(&0));
    assert_eq!((stats.requests, stats.by_status.get(&503)), (2, Some(&1)));
    Ok(())
}
