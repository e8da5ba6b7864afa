//! What a server asked for outlives the process, and a refused key is named.

use crate::common::canned::{Canned, json};
use crate::fetch::bench::Bench;

#[test]
fn the_next_fetch_does_not_ask_before_the_time() {
    let server = Canned::start(|_| json("503 Service Unavailable\r\nRetry-After: 3600", "{}"));
    let bench = Bench::new();
    let ogc = ["--profile", "ogcapi", "--layer", "parcels"];
    let ran = bench.fetch(&server.url(), &ogc);
    assert_eq!((ran.code, server.seen().len()), (75, 1), "{} {}", ran.stdout, ran.stderr);
    for more in [&[][..], &["--resume"]] {
        let ran = bench.fetch(&server.url(), &[&ogc, more].concat());
        assert_eq!((ran.code, server.seen().len()), (75, 1), "{} {}", ran.stdout, ran.stderr);
        assert!(ran.word("error").ends_with(" UTC (Retry-After: 3600)"), "{}", ran.stdout);
    }
}

#[test]
fn a_refused_key_ends_with_the_first_page_and_names_the_flag() {
    let server = Canned::start(|_| json("401 Unauthorized", "{}"));
    let bench = Bench::new();
    let ran = bench.fetch(&server.url(), &["--profile", "ogcapi", "--layer", "parcels"]);
    assert_eq!((ran.code, server.seen().len()), (1, 1), "{} {}", ran.stdout, ran.stderr);
    assert!(ran.word("error").contains("Check the key (--key)"), "{}", ran.stdout);
}
