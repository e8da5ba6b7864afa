//! Where a request may go: hosts, addresses, redirects, names that change their minds.

use crate::http::server::{Names, Server, answer, ask, body, exchange, private, redirect};
use std::sync::Arc;
use tidegate_client::http::{Allow, ClientConfig, Request};
use tidegate_core::Code;
use url::Url;

fn public() -> ClientConfig {
    ClientConfig { allow: Allow::public(), ..private() }
}

#[tokio::test]
async fn private_addresses_are_not_connected_to() {
    let server = Server::start(|_, _| answer("200 OK", "", "secret")).await;
    let port = server.address.port();
    let names = Names::of(&[("inner.test", &["127.0.0.1"]), ("mapped.test", &["::ffff:127.0.0.1"])]);
    let exchange = exchange(public(), names);
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "inner.test",
        "mapped.test",
        "169.254.169.254",
        "[fd00:ec2::254]",
    ] {
        let outcome =
            ask(&exchange, &Request::get(Url::parse(&format!("http://{host}:{port}/")).unwrap())).await;
        assert_eq!((outcome.verdict.code, outcome.attempts()), (Code::HOST_NOT_ALLOWED, 1), "{host}");
    }
    assert_eq!(server.heads().len(), 0);
}

#[tokio::test]
async fn a_redirect_to_a_forbidden_place_is_not_followed() {
    let inner = Server::start(|_, _| answer("200 OK", "", "secret")).await;
    let inner_url = inner.url("/").to_string();
    let places = [
        inner_url,
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://[::ffff:169.254.169.254]/latest/meta-data/".into(),
        "http://elsewhere.test/".into(),
        "file:///etc/passwd".into(),
        "gopher://allowed.test/".into(),
    ];
    let count = places.len();
    let outer = Server::start(move |n, _| redirect("302 Found", &places[n])).await;
    let names = Names::of(&[("allowed.test", &["127.0.0.1"]), ("elsewhere.test", &["127.0.0.1"])]);
    let mut config = private();
    config.allow.hosts = vec!["allowed.test".into()];
    let exchange = exchange(config, names);
    let url = Url::parse(&format!("http://allowed.test:{}/", outer.address.port())).unwrap();
    for n in 0..count {
        let outcome = ask(&exchange, &Request::get(url.clone())).await;
        assert_eq!((outcome.verdict.code, outcome.attempts()), (Code::HOST_NOT_ALLOWED, 1), "{n}");
    }
    assert_eq!((outer.heads().len(), inner.heads().len()), (count, 0));
}

/// The name is public when it is looked at and private when it is connected to: there is only one look.
#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let server = Server::start(|_, _| answer("200 OK", "connection: close\r\n", "ok")).await;
    let mut config = private();
    config.allow.addresses.private = false;
    config.allow.addresses.exact = vec!["127.0.0.1".parse().unwrap()];
    let names = Names::of(&[("rebind.test", &["127.0.0.1", "127.0.0.2", "169.254.169.254", "::1"])]);
    let exchange = exchange(config, names);
    let url = Url::parse(&format!("http://rebind.test:{}/", server.address.port())).unwrap();
    let first = ask(&exchange, &Request::get(url.clone())).await;
    assert_eq!(body(&first), "ok");
    for _ in 0..4 {
        assert_eq!(ask(&exchange, &Request::get(url.clone())).await.verdict.code, Code::HOST_NOT_ALLOWED);
    }
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn redirects_are_followed_counted_and_bounded() {
    let server = Server::start(|_, head| match head.split(' ').nth(1) {
        Some("/a") => redirect("301 Moved", "b/c?x=1"),
        Some("/b/c?x=1") => redirect("307 Temporary", "/d#part"),
        Some("/d") => answer("200 OK", "", "arrived"),
        _ => redirect("302 Found", "/loop"),
    })
    .await;
    let exchange = exchange(private(), Arc::default());
    let outcome = ask(&exchange, &Request::get(server.url("/a"))).await;
    assert_eq!((body(&outcome).as_str(), outcome.attempts()), ("arrived", 1));
    assert_eq!(outcome.value.unwrap().unwrap().response.url, server.url("/d"));
    let lane = exchange.lane(&Request::get(server.url("/")));
    assert_eq!((lane.snapshot().counts.sent, lane.snapshot().in_flight), (3, 0), "each hop has its permit");
    let looping = ask(&exchange, &Request::get(server.url("/loop"))).await;
    assert_eq!((looping.verdict.code, looping.attempts()), (Code::UNEXPECTED_REDIRECT, 1));
    assert_eq!(server.heads().len(), 3 + 6);
}

#[tokio::test]
async fn a_write_is_not_turned_into_a_read() {
    let server = Server::start(|_, head| match head.split(' ').nth(1) {
        Some("/302") => redirect("302 Found", "/end"),
        Some("/303") => redirect("303 See Other", "/end"),
        Some("/307") => redirect("307 Temporary", "/end"),
        _ => answer("200 OK", "connection: close\r\n", "end"),
    })
    .await;
    let exchange = exchange(private(), Arc::default());
    let post = |path| Request::new(http::Method::POST, server.url(path), "".into());
    assert_eq!(ask(&exchange, &post("/302")).await.verdict.code, Code::UNEXPECTED_REDIRECT);
    assert!(ask(&exchange, &post("/303")).await.is_accepted());
    assert!(ask(&exchange, &post("/307")).await.is_accepted());
    let lines: Vec<String> =
        server.heads().iter().map(|h| h.split(" HTTP").next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["POST /302", "POST /303", "GET /end", "POST /307", "POST /end"]);
}
