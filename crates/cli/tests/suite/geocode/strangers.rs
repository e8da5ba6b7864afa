//! Where a redirect may lead, and where it may not: there not one connection is made.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use tidegate_chaos::{Config, FaultKind};

use crate::common::canned::Canned;
use crate::geocode::bench::{Bench, chaos, fault, faulty};

#[test]
fn a_redirect_to_another_port_is_followed_only_if_it_is_allowed() {
    let other = Canned::matching();
    let server = faulty(FaultKind::Redirect(format!("{}/there", other.url())), "100%");
    let bench = Bench::of_rows(3);
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, other.connections()), (4, 0), "{}", ran.stderr);
    assert_eq!(bench.column("error_code")[0], "HOST_NOT_ALLOWED");
    let there = format!("127.0.0.1:{}", other.port());
    let ran = bench.geocode(&server.url(), &["--allow-host", &there]);
    assert_eq!((ran.code, ran.ends()), (0, [3, 0, 0]), "{}", ran.stderr);
    assert_eq!((other.seen().len(), bench.column("label")[0].as_str()), (3, "here"));
}

#[test]
fn a_redirect_to_a_place_that_was_not_allowed_is_refused() {
    let trap = Canned::matching();
    let port = trap.port();
    for target in [
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://127.0.0.2:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://0x7f.0.0.3:{port}/"),
        format!("http://[::1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://[::ffff:169.254.169.254]/latest/".into(),
        "http://[64:ff9b::a9fe:a9fe]/".into(),
        "http://10.0.0.1/".into(),
        "http://example.test/".into(),
        "file:///etc/passwd".into(),
    ] {
        let server = faulty(FaultKind::Redirect(target.clone()), "100%");
        let bench = Bench::of_rows(1);
        let ran = bench.geocode(&server.url(), &[]);
        assert_eq!((ran.code, server.stats().requests), (4, 1), "{target}: {}", ran.stderr);
        let row = &bench.out()[0];
        assert_eq!(row["error_code"], "HOST_NOT_ALLOWED", "{target}: {row:?}");
    }
    assert_eq!(trap.connections(), 0);
}

#[test]
fn a_name_that_was_allowed_may_not_lead_inside() {
    let trap = Canned::matching();
    let to = FaultKind::Redirect(format!("http://localhost:{}/", trap.port()));
    // The host is allowed, its address is not: what was named is another one.
    let addr = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
    let server = chaos(Config { addr, faults: vec![fault(to, "100%")], ..Config::default() });
    let bench = Bench::of_rows(1);
    let ran = bench.geocode(&server.url(), &["--allow-host", "localhost"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(bench.column("error_code"), ["HOST_NOT_ALLOWED"]);
    assert_eq!(trap.connections(), 0);
    let ran = bench.geocode(&server.url(), &["--allow-host", "localhost", "--allow-private"]);
    assert_eq!(ran.code, 0, "{} {:?}", ran.stderr, bench.out());
    assert_eq!(trap.seen().len(), 1);
}

#[test]
fn a_circle_of_redirects_ends() {
    let server = faulty(FaultKind::Redirect("/geocode?q=again".into()), "100%");
    let bench = Bench::of_rows(1);
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, bench.column("error_code")), (4, vec!["UNEXPECTED_REDIRECT".into()]));
    assert!(server.stats().requests <= 21, "{:?}", server.stats());
}

#[test]
fn a_body_without_an_end_is_cut_at_its_limit_which_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|n| n > 0) {}
            let stream = stream.get_mut();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
            while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
        }
    });
    let bench = Bench::of_rows(1);
    let ran = bench.geocode(&url, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let row = format!("{:?}", bench.out()[0]);
    assert!(row.contains("PAYLOAD_TOO_LARGE") && row.contains("body_bytes_max, 67108864 bytes"), "{row}");
}
