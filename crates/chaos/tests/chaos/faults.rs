//! Each fault, as the client sees it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_chaos::{Config, FaultKind, spec, world};

use crate::client::{End, Got, call, get, start, with};

const ASK: &str = "/geocode?q=1+Main+Street";

#[test]
fn a_status_comes_with_the_providers_body() {
    let (server, _) = start(with(FaultKind::Status(502), "@1"));
    let got = get(&server, ASK);
    assert_eq!((got.status, got.end), (502, End::Whole));
    assert_eq!(got.json()["error"]["code"], 502);
    assert_eq!(get(&server, ASK).status, 200);
    assert_eq!(server.stats().by_status.get(&502), Some(&1));
}

#[test]
fn resets_come_before_the_headers_and_in_the_body() {
    let (server, _) = start(with(FaultKind::Reset, "100%"));
    let got: Vec<Got> = (0..20).map(|i| get(&server, &format!("/geocode?q={i}"))).collect();
    assert!(got.iter().all(|g| g.end == End::Reset), "{got:?}");
    // What was in the body may be thrown away by the kernel on a reset, so only the count is sure.
    assert!(got.iter().any(|g| g.status == 0));
    let stats = server.stats();
    assert_eq!((stats.resets, stats.answers_lost, stats.executed), (20, 20, 20));
    assert_eq!(stats.by_status.values().sum::<u64>(), 0);
}

#[test]
fn cut_bodies_promise_more_than_they_hold() {
    let (server, _) = start(with(FaultKind::Cut, "100%"));
    let got: Vec<Got> = (0..20).map(|i| get(&server, &format!("/geocode?q={i}"))).collect();
    assert!(got.iter().all(|g| g.end == End::Cut && g.status == 200), "{got:?}");
    let chunked = got.iter().filter(|g| g.header("transfer-encoding") == Some("chunked")).count();
    assert!((1..20).contains(&chunked), "{chunked}");
    for got in got.iter().filter(|g| g.header("content-length").is_some()) {
        assert!(got.header("content-length").unwrap().parse::<usize>().unwrap() > got.body.len());
    }
    assert_eq!(server.stats().cuts, 20);
}

#[test]
fn a_hang_says_nothing_until_the_client_goes() {
    let (server, _) = start(with(FaultKind::Hang(Duration::from_secs(3_600)), "@1"));
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    write!(stream, "GET {ASK} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).unwrap();
    assert_eq!(nothing, b"");
    assert_eq!(server.stats().hangs, 1);
}

#[test]
fn a_slow_body_is_whole_in_the_end() {
    let (server, _) = start(with(FaultKind::Slow(Duration::from_secs(5)), "@1"));
    let slow = get(&server, ASK);
    assert_eq!((slow.status, slow.end), (200, End::Whole));
    assert_eq!(slow.body, get(&server, ASK).body);
    assert_eq!(server.stats().slow, 1);
}

#[test]
fn a_200_can_be_an_error_in_every_dialect() {
    let (server, _) = start(with(FaultKind::Error200, "100%"));
    for (target, sign) in [
        ("/geocode?q=a", "\"code\":\"rate_limited\""),
        ("/google/maps/api/geocode/json?address=a", "UNKNOWN_ERROR"),
        ("/nominatim/search?q=a", "<html>"),
        ("/pelias/v1/search?text=a", "<html>"),
        ("/opencage/geocode/v1/json?q=a", "\"code\":503"),
        ("/arcgis/rest/services/parcels/FeatureServer/0/query?where=1%3D1", "{\"error\":"),
        ("/wfs?request=GetFeature&typeNames=parcels", "ows:ExceptionReport"),
        ("/census/geocoder/locations/addressbatch", "<html>"),
        ("/s3/bucket/key", "<Code>InternalError</Code>"),
    ] {
        let got = get(&server, target);
        assert_eq!(got.status, 200, "{target}");
        assert!(got.body.contains(sign), "{target}: {}", got.body);
    }
    assert_eq!(server.stats().errors_in_200, 9);
    assert_eq!(server.stats().executed, 0);
}

#[test]
fn a_redirect_goes_where_it_was_told() {
    let fault = spec::redirect("@1=http://169.254.169.254/latest").unwrap();
    let (server, _) = start(Config { faults: vec![fault], ..Config::default() });
    let got = get(&server, ASK);
    assert_eq!((got.status, got.header("location")), (302, Some("http://169.254.169.254/latest")));
}

#[test]
fn bad_rows_and_no_match_stay_what_they_are() {
    let config = Config { bad_rows: 0.2, no_match: 0.3, bad_status: 422, seed: 5, ..Config::default() };
    let (server, _) = start(config);
    let ask = |i: u32| {
        let got = get(&server, &format!("/geocode?q={i}+Main+Street"));
        match got.status {
            422 => 'b',
            200 if got.json()["results"][0].is_null() => 'n',
            200 => 'm',
            other => panic!("{other}"),
        }
    };
    let first: String = (0..100).map(ask).collect();
    let again: String = (0..100).map(ask).collect();
    assert_eq!(first, again);
    let count = |kind| first.chars().filter(|c| *c == kind).count() as u64;
    assert!((10..30).contains(&count('b')) && (20..40).contains(&count('n')), "{first}");
    let stats = server.stats();
    assert_eq!((stats.bad_rows, stats.no_match), (2 * count('b'), 2 * count('n')));
}

#[test]
fn the_date_can_be_wrong() {
    let (server, clock) = start(Config { skew: -90, ..Config::default() });
    assert_eq!(get(&server, ASK).header("date"), Some("Wed, 31 Dec 2025 23:58:30 GMT"));
    clock.advance(Duration::from_secs(90));
    assert_eq!(get(&server, ASK).header("date"), Some("Thu, 01 Jan 2026 00:00:00 GMT"));
}

#[test]
fn first_attempts_fail_and_the_next_succeed() {
    let (server, _) = start(with(FaultKind::Status(503), "first:2"));
    for target in ["/geocode?q=a", "/geocode?q=b"] {
        let statuses: Vec<u16> = (0..3).map(|_| get(&server, target).status).collect();
        assert_eq!(statuses, [503, 503, 200]);
    }
}

#[test]
fn the_same_seed_gives_the_same_answers_in_any_order() {
    let config = || Config { seed: 11, ..with(FaultKind::Status(500), "50%") };
    let (a, _) = start(config());
    let (b, _) = start(config());
    let targets: Vec<String> = (0..30).map(|i| format!("/geocode?q={i}")).collect();
    let strip = |got: Got| (got.status, got.end, got.body);
    let forward: Vec<_> = targets.iter().map(|t| strip(get(&a, t))).collect();
    let mut backward: Vec<_> = targets.iter().rev().map(|t| strip(get(&b, t))).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let failed = forward.iter().filter(|(status, ..)| *status == 500).count();
    assert!((5..25).contains(&failed), "{failed}");
    let (c, _) = start(Config { seed: 12, ..config() });
    let other: Vec<_> = targets.iter().map(|t| strip(get(&c, t))).collect();
    assert_ne!(forward, other);
}

#[test]
fn drawing_by_number_follows_the_order() {
    let config = || Config { draw: tidegate_chaos::Draw::Number, ..with(FaultKind::Status(500), "50%") };
    let (a, _) = start(config());
    let (b, _) = start(config());
    let statuses = |server, query: &str| -> Vec<u16> {
        (0..20).map(|i| get(server, &format!("/geocode?q={query}{i}")).status).collect()
    };
    assert_eq!(statuses(&a, "x"), statuses(&b, "y"));
}

#[test]
fn what_is_no_request_is_refused() {
    let (server, _) = start(Config::default());
    for (bytes, status) in [
        ("NONSENSE\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ] {
        assert_eq!(crate::client::send(server.addr(), bytes.as_bytes()).status, status, "{bytes}");
    }
    let chunked = "POST /geocode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
                   Transfer-Encoding: chunked\r\n\r\n7\r\n{\"addre\r\n9\r\nss\": \"a\"}\r\n0\r\n\r\n";
    let got = crate::client::send(server.addr(), chunked.as_bytes());
    assert_eq!(got.json()["results"][0]["lat"], world::place(0, "a").lat);
    assert_eq!(call(&server, "GET", "/nowhere", "", "").status, 404);
}

#[test]
fn requests_can_be_pipelined() {
    let (server, _) = start(Config::default());
    let two = format!(
        "GET {ASK} HTTP/1.1\r\nHost: localhost\r\n\r\nGET {ASK} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    let got = crate::client::send(server.addr(), two.as_bytes());
    assert_eq!(got.body.matches("HTTP/1.1 200 OK").count(), 1);
    assert_eq!(server.stats().requests, 2);
}
