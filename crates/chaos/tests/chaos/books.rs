//! What the server counts, and the pages that tell it.

use tidegate_chaos::{Config, FaultKind};

use crate::client::{call, get, start, with};

#[test]
fn a_second_success_is_a_duplicate() {
    let (server, _) = start(Config::default());
    get(&server, "/geocode?q=a");
    get(&server, "/geocode?q=b");
    assert_eq!(server.stats().duplicates_executed, 0);
    get(&server, "/geocode?q=a");
    assert_eq!((server.stats().executed, server.stats().duplicates_executed), (3, 1));
}

#[test]
fn a_repeat_under_a_key_is_told_again_and_not_done_again() {
    let (server, _) = start(with(FaultKind::Cut, "first:1"));
    let ask = |key: &str, target: &str| {
        let got = call(&server, "GET", target, &format!("Idempotency-Key: {key}\r\n"), "");
        (got.status, got.body)
    };
    ask("k1", "/geocode?q=c");
    let (told, again) = (ask("k1", "/geocode?q=c"), ask("k1", "/geocode?q=c"));
    assert_eq!(told, again);
    let stats = server.stats();
    assert_eq!((stats.executed, stats.answers_lost, stats.replayed), (1, 1, 2));
    assert_eq!((stats.duplicates_executed, stats.redone_after_loss), (0, 0));
    // Another key is another call, and a key is good for one request only.
    ask("k2", "/geocode?q=c");
    assert_eq!((server.stats().executed, server.stats().replayed), (2, 2));
    assert_eq!(ask("k1", "/geocode?q=d").0, 422);
}

#[test]
fn asking_again_for_a_lost_answer_is_no_duplicate() {
    let (server, _) = start(with(FaultKind::Cut, "first:1"));
    get(&server, "/geocode?q=a");
    get(&server, "/geocode?q=a");
    let stats = server.stats();
    assert_eq!((stats.executed, stats.answers_lost, stats.redone_after_loss), (2, 1, 1));
    assert_eq!(stats.duplicates_executed, 0);
    get(&server, "/geocode?q=a");
    assert_eq!(server.stats().duplicates_executed, 1);
}

#[test]
fn reads_and_descriptions_are_not_work() {
    let (server, _) = start(Config::default());
    for target in ["/s3/bucket/key", "/s3/bucket", "/wfs?request=GetCapabilities", "/ogc", "/"] {
        get(&server, target);
        get(&server, target);
    }
    assert_eq!((server.stats().executed, server.stats().duplicates_executed), (0, 0));
}

#[test]
fn the_pages_tell_reset_and_end() {
    let (server, _) = start(Config { seed: 42, ..Config::default() });
    get(&server, "/geocode?q=a");
    let stats = get(&server, "/__stats").json();
    assert_eq!((&stats["requests"], &stats["by_status"]["200"]), (&1.into(), &1.into()));
    assert_eq!((&stats["in_flight"], &stats["in_flight_max"]), (&0.into(), &1.into()));
    assert_eq!(get(&server, "/__config").json()["seed"], 42);
    assert_eq!(get(&server, "/__reset").status, 200);
    assert_eq!(server.stats().requests, 0);
    get(&server, "/geocode?q=a");
    assert_eq!(server.stats().duplicates_executed, 0, "the memory was not emptied");
    assert_eq!(get(&server, "/__nothing").status, 404);
    assert_eq!(get(&server, "/__quit").status, 200);
    server.wait().unwrap();
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let start = |config| tidegate_chaos::Chaos::start(config).unwrap_err().to_string();
    let open = Config { addr: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    assert!(start(open).contains("loopback"));
    let mut too_much = with(FaultKind::Cut, "60%");
    too_much.faults.extend(with(FaultKind::Reset, "60%").faults);
    assert!(start(too_much).contains("120.0 %"));
    assert!(start(Config { bad_rows: 0.6, no_match: 0.6, ..Config::default() }).contains("rows"));
}
