//! Services that say what is not so.

use tidegate_chaos::{Config, Unrest};

use crate::bench::{Bench, WAYS, chaos, counted, layer, verdict};

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
