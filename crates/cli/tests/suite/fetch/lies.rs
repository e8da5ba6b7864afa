//! Services that say what is not so.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidegate_chaos::{Config, Quirk, Unrest};

use crate::common::canned::Canned;
use crate::fetch::bench::{Bench, WAYS, chaos, counted, layer, verdict};

const N: u64 = 500;

#[test]
fn a_wrong_count_is_an_error_unless_tolerated() {
    for miscount in [7, -7] {
        let server = chaos(Config { unrest: Unrest { miscount, ..Unrest::default() }, ..layer(N, 100) });
        for (name, path, args) in WAYS {
            let url = format!("{}{path}", server.url());
            let bench = Bench::new();
            let ran = bench.fetch(&url, args);
            assert_eq!(
                (ran.code, ran.word("status").as_str(), verdict(&ran).as_str()),
                (1, "failed", "mismatch"),
                "{name}: {}",
                ran.stdout
            );
            let counts = ["declared", "received", "difference"].map(|c| counted(&ran, c));
            assert_eq!(counts, [N.saturating_add_signed(miscount), N, 7], "{name} {miscount}");
            assert_eq!(ran.word("code"), "COUNT_MISMATCH");
            assert!(!bench.path("out.geojsonl").exists(), "{name}");
            // What was received is still there, and with a tolerance it is enough.
            let asked = server.stats().executed;
            let more: Vec<&str> = args.iter().copied().chain(["--resume", "--tolerate", "2%"]).collect();
            let ran = bench.fetch(&url, &more);
            assert_eq!((ran.code, verdict(&ran).as_str()), (0, "tolerated"), "{name}: {}", ran.stdout);
            assert_eq!((ran.count("written"), counted(&ran, "resumed")), (N, N), "{name}");
            assert!(server.stats().executed - asked <= 4, "{name}: pages were read again");
        }
    }
}

#[test]
fn a_service_that_does_not_count_is_taken_at_its_word() {
    let server = chaos(Config { unknown_total: true, ..layer(N, 100) });
    for (name, path, args) in
        WAYS.into_iter().filter(|(name, ..)| !name.starts_with("esri") && *name != "wfs 1.1")
    {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!((ran.code, verdict(&ran).as_str()), (0, "undeclared"), "{name}: {}", ran.stdout);
        assert_eq!(bench.parcels().len() as u64, N, "{name}");
    }
}

#[test]
fn links_that_lead_in_circles_are_noticed() {
    let server = chaos(Config { unrest: Unrest { loop_after: 300, ..Unrest::default() }, ..layer(N, 100) });
    for (path, args) in [("/ogc", &["--profile", "ogcapi"][..]), ("/stac", &["--page-size", "100"])] {
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}{path}", server.url()), args);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "PAGE_LOOP"), "{path}: {}", ran.stdout);
        assert!(counted(&ran, "received") <= 300 && !bench.path("out.geojsonl").exists());
        assert!(server.stats().requests < 20, "{:?}", server.stats().requests);
        server.reset();
    }
}

#[test]
fn a_page_that_says_it_is_the_last_is_not_believed_against_the_count() {
    // One row without geometry makes the first page short, and the page says that nothing follows.
    let server = chaos(Config { quirks: vec![Quirk::HiddenRow], ..layer(N, 100) });
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--body", "gml"]);
    assert_eq!((ran.code, verdict(&ran).as_str()), (0, "exact"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(bench.parcels().len() as u64, N);
}

#[test]
fn a_count_that_is_cut_at_a_page_is_no_count() {
    let server = chaos(Config { quirks: vec![Quirk::CappedHits], ..layer(N, 100) });
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--body", "gml", "--wfs-version", "1.1.0"]);
    assert_eq!((ran.code, verdict(&ran).as_str()), (0, "undeclared"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(bench.parcels().len() as u64, N);
}

#[test]
fn a_service_that_ignores_where_a_page_begins_is_noticed() {
    for (page_max, unknown_total) in [(1, true), (1, false), (7, true)] {
        let server = chaos(Config { unknown_total, quirks: vec![Quirk::IgnoredStart], ..layer(N, page_max) });
        let bench = Bench::new();
        let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--body", "gml"]);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "PAGE_LOOP"), "{page_max}: {}", ran.stdout);
        assert!(server.stats().requests < 40, "{:?}", server.stats().requests);
        assert!(!bench.path("out.geojsonl").exists());
    }
}

#[test]
fn a_service_that_refuses_large_pages_is_asked_for_smaller_ones() {
    let server = chaos(Config { quirks: vec![Quirk::RefusedLimit], ..layer(N, 70) });
    for (path, args) in [("/ogc", &["--profile", "ogcapi"][..]), ("/stac", &[])] {
        let bench = Bench::new();
        let url = format!("{}{path}", server.url());
        let ran = bench.fetch(&url, args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{path}: {} {}", ran.stdout, ran.stderr);
        // Who names a size gets that size, or an error.
        let named: Vec<&str> = args.iter().copied().chain(["--page-size", "71"]).collect();
        let ran = Bench::new().fetch(&url, &named);
        assert_eq!((ran.code, ran.word("code").as_str()), (1, "UNPROCESSABLE"), "{path}: {}", ran.stdout);
    }
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/ogc/collections/parcels/items?limit=50", server.url()), &[]);
    assert_eq!((ran.code, counted(&ran, "pages")), (0, 10), "{} {}", ran.stdout, ran.stderr);
}

/// A page of a WFS: the numbers of its features, and how many it says there are.
struct Told {
    features: Vec<u64>,
    matched: &'static str,
}

/// A WFS 2.0 that answers as told: `hits` to the n-th question for the count, from 0, and a page to a
/// start and the number of the request for it.
fn wfs(
    named: bool,
    hits: impl Fn(usize) -> &'static str + Send + Sync + 'static,
    page: impl Fn(u64, u64) -> Told + Send + Sync + 'static,
) -> Canned {
    let (counts, pages) = (AtomicUsize::new(0), AtomicU64::new(0));
    Canned::start(move |head| {
        let line = head.lines().next().unwrap_or_default().to_ascii_lowercase();
        let collection = |matched: &str, features: &[u64]| {
            let member = |n: &u64| {
                let id = if named { format!(" gml:id=\"p.{n}\"") } else { String::new() };
                format!("<wfs:member><t:p{id}><t:n>{n}</t:n></t:p></wfs:member>")
            };
            let members: String = features.iter().map(member).collect();
            format!(
                "<wfs:FeatureCollection xmlns:wfs=\"w\" xmlns:gml=\"g\" xmlns:t=\"t\" numberMatched=\"{matched}\" \
                 numberReturned=\"{}\">{members}</wfs:FeatureCollection>",
                features.len()
            )
        };
        let body = if line.contains("getcapabilities") {
            "<WFS_Capabilities version=\"2.0.0\"><FeatureTypeList><FeatureType><Name>t:p</Name></FeatureType>\
             </FeatureTypeList></WFS_Capabilities>"
                .to_owned()
        } else if line.contains("describefeaturetype") {
            "<schema/>".to_owned()
        } else if line.contains("resulttype=hits") {
            collection(hits(counts.fetch_add(1, Ordering::Relaxed)), &[])
        } else {
            let start = line.split("startindex=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
            let told = page(start, pages.fetch_add(1, Ordering::Relaxed));
            collection(told.matched, &told.features)
        };
        format!("200 OK\r\nContent-Type: text/xml\r\n\r\n{body}")
    })
}

/// The features `from..to`, of which a page holds 50 at most.
fn some(from: u64, to: u64) -> Vec<u64> {
    (from..to.max(from)).take(50).collect()
}

fn gml(server: &Canned) -> (Bench, crate::common::running::Ran) {
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--body", "gml", "--page-size", "50"]);
    (bench, ran)
}

#[test]
fn pages_that_boast_and_fall_short_do_not_pass_for_a_layer_that_changes() {
    // The count is 100 whenever it is asked for. The first page says 120, and 85 come.
    let boasts = wfs(
        true,
        |_| "100",
        |start, n| Told { features: some(start, 85), matched: if n == 0 { "120" } else { "100" } },
    );
    // The first page says that its 40 are all, and from then on the service does not count.
    let silent = wfs(
        true,
        |n| if n == 0 { "100" } else { "unknown" },
        |start, _| Told { features: some(start, 40), matched: "40" },
    );
    for server in [boasts, silent] {
        let (bench, ran) = gml(&server);
        assert_eq!(
            (ran.code, ran.word("code").as_str()),
            (1, "COUNT_MISMATCH"),
            "{} {}",
            ran.stdout,
            ran.stderr
        );
        assert!(!bench.path("out.geojsonl").exists());
        assert!(server.seen().len() < 60, "{}", server.seen().len());
    }
    // The same service, whole.
    let whole = wfs(
        true,
        |_| "100",
        |start, n| Told { features: some(start, 100), matched: if n == 0 { "120" } else { "100" } },
    );
    let (_, ran) = gml(&whole);
    assert_eq!((ran.code, ran.count("written"), verdict(&ran).as_str()), (0, 100, "exact"), "{}", ran.stdout);
}

#[test]
fn a_service_that_ignores_where_a_page_begins_and_shuffles_is_noticed() {
    for named in [true, false] {
        for count in ["unknown", "100"] {
            let server = wfs(
                named,
                move |_| count,
                move |_, n| {
                    let mut features = some(0, 50);
                    features.rotate_left((n * 7 % 50) as usize);
                    Told { features, matched: count }
                },
            );
            let (bench, ran) = gml(&server);
            assert_eq!(
                (ran.code, ran.word("code").as_str()),
                (1, "PAGE_LOOP"),
                "{named} {count}: {} {}",
                ran.stdout,
                ran.stderr
            );
            assert!(server.seen().len() < 60, "{}", server.seen().len());
            assert!(!bench.path("out.geojsonl").exists());
        }
    }
}
