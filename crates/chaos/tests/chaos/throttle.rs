//! Throttles, hints, outages and collapses, on a clock turned by hand.

use std::time::Duration;

use tidegate_chaos::{Config, Dialect, Scope, Service, preset, spec};

use crate::client::{End, call, get, start};

fn limited(throttle: &str, headers: Dialect) -> Config {
    Config { limit: spec::throttle(throttle).unwrap(), headers, ..Config::default() }
}

#[test]
fn a_bucket_takes_its_burst_and_then_its_rate() {
    let (server, clock) = start(limited("bucket:10/s,burst=3", Dialect::RetryAfter));
    let statuses: Vec<u16> = (0..5).map(|i| get(&server, &format!("/geocode?q={i}")).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let refused = get(&server, "/geocode?q=x");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    clock.advance(Duration::from_millis(100));
    assert_eq!(get(&server, "/geocode?q=y").status, 200);
    let stats = server.stats();
    assert_eq!((stats.requests, stats.throttled, stats.wasted_calls, stats.executed), (7, 3, 3, 4));
    assert!((stats.wasted_percent - 300.0 / 7.0).abs() < 1e-9);
    // Four calls: three at once and one a tenth of a second later.
    assert!((stats.earliest_finish_seconds - 0.1).abs() < 1e-6, "{stats:?}");
}

#[test]
fn each_kind_of_throttle_is_the_simulators() {
    for (throttle, wait, before, after) in [
        ("fixed:2/100ms", 100, [200, 200, 429], [200, 200, 429]),
        ("sliding:2/1s", 1_000, [200, 200, 429], [200, 200, 429]),
        ("counter:2/1s", 2_000, [200, 200, 429], [200, 200, 429]),
        ("bucket:1/s,burst=2", 1_000, [200, 200, 429], [200, 429, 429]),
        ("leaky:1/s,burst=1", 1_000, [200, 200, 429], [200, 429, 429]),
        ("stick:2/1s", 2_000, [200, 200, 429], [200, 200, 429]),
        // The refused call counts: three of the last second weigh too much for two thirds of this one.
        ("stick:2/1s", 1_333, [200, 200, 429], [429, 429, 429]),
        ("stick:2/1s", 1_334, [200, 200, 429], [200, 429, 429]),
        ("bucket:100/s,burst=9+fixed:1/1s", 1_000, [200, 429, 429], [200, 429, 429]),
    ] {
        let (server, clock) = start(limited(throttle, Dialect::None));
        let three = |n: u32| [0, 1, 2].map(|i| get(&server, &format!("/geocode?q={n}+{i}")).status);
        assert_eq!(three(0), before, "{throttle}");
        clock.advance(Duration::from_millis(wait));
        assert_eq!(three(1), after, "{throttle}");
    }
}

#[test]
fn proxies_refuse_without_a_word() {
    for (preset, taken, status, wait_ms) in [
        ("nginx-503", 21, 503, 10),
        ("nginx-delay", 21, 503, 10),
        ("nginx-strict", 1, 503, 10),
        ("nginx-conn", 8, 503, 20),
        ("tarpit", 100, 500, 1_010),
    ] {
        let (server, clock) = start(preset::find(preset).unwrap());
        let ask = |n: u32| get(&server, &format!("/geocode?q={n}"));
        assert!((0..taken).all(|n| ask(n).status == 200), "{preset}");
        let refused = ask(taken);
        assert_eq!((refused.status, refused.header("retry-after")), (status, None), "{preset}");
        clock.advance(Duration::from_millis(wait_ms - 1));
        assert_eq!(ask(taken + 1).status, status, "{preset}");
        clock.advance(Duration::from_millis(if preset == "tarpit" { 2_000 } else { 1 }));
        assert_eq!(ask(taken + 2).status, 200, "{preset}");
    }
}

#[test]
fn concurrency_is_counted_by_service_time() {
    let config =
        Config { service: Service::Uniform(0.5, 0.5), ..limited("concurrency:2", Dialect::RetryAfter) };
    let (server, clock) = start(config);
    let ask = |i: u32| get(&server, &format!("/geocode?q={i}"));
    assert_eq!([ask(0).status, ask(1).status, ask(2).status], [200, 200, 429]);
    assert_eq!(ask(3).header("retry-after"), Some("1"));
    clock.advance(Duration::from_millis(500));
    assert_eq!(ask(4).status, 200);
    assert!((server.stats().earliest_finish_seconds - 1.0).abs() < 1e-6);
}

#[test]
fn lanes_are_the_server_the_prefix_or_the_key() {
    let config = |scope| Config { scope, ..limited("fixed:1/1s", Dialect::None) };
    let (server, _) = start(config(Scope::Server));
    assert_eq!([get(&server, "/geocode?q=a").status, get(&server, "/photon/api?q=a").status], [200, 429]);
    let (server, _) = start(config(Scope::Prefix));
    assert_eq!([get(&server, "/geocode?q=a").status, get(&server, "/photon/api?q=a").status], [200, 200]);
    let put = |key: &str| call(&server, "PUT", &format!("/s3/bucket/{key}"), "", "x").status;
    assert_eq!([put("a/1"), put("b/1"), put("a/2")], [200, 200, 503]);
    let (server, _) = start(config(Scope::Key));
    let key = |key: &str| call(&server, "GET", "/geocode?q=a", &format!("X-Api-Key: {key}\r\n"), "").status;
    assert_eq!([key("one"), key("two"), key("one")], [200, 200, 429]);
    assert_eq!(get(&server, "/geocode?q=a&key=three").status, 200);
}

#[test]
fn every_dialect_is_spoken() {
    for dialect in Dialect::ALL {
        let (server, _) = start(limited("fixed:1/10s", dialect));
        let (taken, refused) = (get(&server, "/geocode?q=a"), get(&server, "/geocode?q=b"));
        assert_eq!((taken.status, refused.status), (200, 429));
        let expected = match dialect {
            Dialect::None => None,
            Dialect::RetryAfterDate => Some(("Retry-After", "Thu, 01 Jan 2026 00:00:10 GMT")),
            Dialect::RetryAfterMs => Some(("retry-after-ms", "10000")),
            Dialect::Amz => Some(("x-amz-retry-after", "10000")),
            Dialect::SentinelHub => Some(("Retry-After", "10000")),
            Dialect::Mapbox => Some(("X-Rate-Limit-Reset", "1767225610")),
            Dialect::Geoserver => Some(("X-Rate-Limit-Remaining", "0")),
            Dialect::Esri => Some(("X-Esri-Org-Request-Units-Per-Min", "usage=6;max=6")),
            _ => Some(("Retry-After", "10")),
        };
        match expected {
            None => assert_eq!(refused.header("retry-after"), None),
            Some((name, value)) => {
                assert_eq!(refused.header(name), Some(value), "{dialect}: {}", refused.head);
            }
        }
        assert_eq!(refused.head.matches("Date: ").count(), 1, "{dialect}");
    }
}

#[test]
fn who_comes_too_early_is_counted() {
    let (server, clock) = start(limited("fixed:1/10s", Dialect::RetryAfter));
    get(&server, "/geocode?q=a");
    assert_eq!(get(&server, "/geocode?q=b").header("retry-after"), Some("10"));
    // At the same moment another request may have been on its way.
    get(&server, "/geocode?q=c");
    assert_eq!(server.stats().retry_after_violations, 0);
    // The same request, or any other after a while, must have known better.
    get(&server, "/geocode?q=b");
    assert_eq!(server.stats().retry_after_violations_same_request, 1);
    clock.advance(Duration::from_millis(9_999));
    get(&server, "/geocode?q=d");
    let stats = server.stats();
    assert_eq!((stats.retry_after_violations, stats.retry_after_violations_same_request), (2, 1));
    // A millisecond was missing, but the last one was told a whole second.
    clock.advance(Duration::from_millis(1_000));
    assert_eq!(get(&server, "/geocode?q=b").status, 200);
    assert_eq!(server.stats().retry_after_violations, 2);
}

#[test]
fn garbage_is_sent_and_not_held_against_anybody() {
    let (server, _) = start(Config { garbage: 1.0, ..limited("fixed:1/10s", Dialect::RetryAfter) });
    get(&server, "/geocode?q=a");
    let hints: std::collections::BTreeSet<String> = (0..60)
        .map(|i| get(&server, &format!("/geocode?q={i}")).header("retry-after").unwrap().into())
        .collect();
    assert!(hints.len() > 8, "{hints:?}");
    assert!(hints.contains("1m0s") && hints.iter().any(|h| h.len() == 5_000), "{hints:?}");
    let stats = server.stats();
    assert_eq!((stats.garbage_hints, stats.retry_after_violations), (60, 0));
}

#[test]
fn a_refusal_can_hide_in_a_200() {
    let (server, _) = start(Config { throttle_status: 200, ..limited("fixed:1/1s", Dialect::None) });
    get(&server, "/google/maps/api/geocode/json?address=a");
    let got = get(&server, "/google/maps/api/geocode/json?address=b");
    assert_eq!((got.status, got.json()["status"].as_str()), (200, Some("OVER_QUERY_LIMIT")));
    assert_eq!(server.stats().wasted_calls, 1);
}

#[test]
fn an_outage_ends_and_a_rush_brings_it_back() {
    let outage = spec::outage("5s..10s,collapse=3,again=2s,fragile=5s,hint").unwrap();
    let (server, clock) = start(Config { outages: vec![outage], ..Config::default() });
    assert_eq!(get(&server, "/geocode?q=a").status, 200);
    clock.advance(Duration::from_secs(7));
    let down = get(&server, "/geocode?q=b");
    assert_eq!((down.status, down.header("retry-after")), (503, Some("3")));
    clock.advance(Duration::from_secs(3));
    let rush: Vec<u16> = (0..5).map(|i| get(&server, &format!("/geocode?q=r{i}")).status).collect();
    assert_eq!(rush, [200, 200, 200, 503, 503]);
    clock.advance(Duration::from_secs(2));
    assert_eq!(get(&server, "/geocode?q=c").status, 200);
    let stats = server.stats();
    assert_eq!((stats.collapses, stats.refused_while_down, stats.executed), (1, 3, 5));
}

#[test]
fn an_outage_can_reset_instead() {
    let outage = spec::outage("0s..10s,status=0").unwrap();
    let (server, clock) = start(Config { outages: vec![outage], ..Config::default() });
    assert_eq!(get(&server, "/geocode?q=a").end, End::Reset);
    clock.advance(Duration::from_secs(10));
    assert_eq!(get(&server, "/geocode?q=a").status, 200);
}
