//! A layer that changes while it is read: nothing that stayed is lost, nothing comes twice.

use std::collections::BTreeSet;

use tidegate_chaos::{Config, Handle, ROOM, Unrest};

use crate::fetch::bench::{Bench, chaos, each_way, layer, verdict};

const N: u64 = 900;

fn numbers(server: &Handle, name: &str) -> BTreeSet<u64> {
    server.layer()[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// What stayed in the layer and is missing from the output; none may be there twice.
fn lost(server: &Handle, bench: &Bench, step: u64, at: &str) -> Vec<u64> {
    let deleted = numbers(server, "deleted");
    let parcels = bench.parcels();
    assert!(parcels.values().all(|times| *times == 1), "doubled: {at}");
    let all = (1..=N).map(|n| n * step);
    all.filter(|id| !deleted.contains(id) && !parcels.contains_key(id)).collect()
}

fn stays_whole(unrest: Unrest, seeds: std::ops::Range<u64>) {
    let step = if unrest.insert_every > 0 { ROOM } else { 1 };
    for seed in seeds {
        each_way(|name, path, args| {
            let server = chaos(Config { unrest, seed, ..layer(N, 50) });
            let bench = Bench::new();
            let ran = bench.fetch(&format!("{}{path}", server.url()), args);
            let at = format!("{name}, seed {seed}, {unrest:?}: {} {}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, 0, "{at}");
            assert_eq!(verdict(&ran), "changed", "{at}");
            assert_eq!(lost(&server, &bench, step, &at), [0; 0], "lost: {at}");
            // It was a test: the layer did change.
            assert!(server.layer()["pages"].as_u64().unwrap() >= 18, "{at}");
        });
    }
}

#[test]
fn features_are_added_between_pages() {
    stays_whole(Unrest { insert_every: 2, ..Unrest::default() }, 1..4);
}

#[test]
fn features_are_removed_between_pages() {
    stays_whole(Unrest { delete_every: 2, ..Unrest::default() }, 1..4);
}

#[test]
fn features_come_and_go_between_pages() {
    // Links cannot tell a layer that never rests from one that lost something: then it is said.
    let unrest = Unrest { insert_every: 3, delete_every: 2, ..Unrest::default() };
    for seed in 1..4 {
        each_way(|name, path, args| {
            let server = chaos(Config { unrest, seed, ..layer(N, 50) });
            let bench = Bench::new();
            let ran = bench.fetch(&format!("{}{path}", server.url()), args);
            let at = format!("{name}, seed {seed}: {} {}", ran.stdout, ran.stderr);
            if matches!(name, "ogcapi" | "stac" | "esri offset") && ran.code == 1 {
                assert_eq!(ran.word("code"), "COUNT_MISMATCH", "{at}");
                assert!(!bench.path("out.geojsonl").exists(), "{at}");
                return;
            }
            assert_eq!(ran.code, 0, "{at}");
            // By keys several pages are under way at once, and as many may come as go: then the
            // counts agree, and say nothing of the change.
            let keyed = matches!(name, "esri ids" | "esri geojson");
            let agreement = verdict(&ran);
            assert!(agreement == "changed" || (keyed && agreement == "exact"), "{at}");
            assert_eq!(lost(&server, &bench, ROOM, &at), [0; 0], "lost: {at}");
        });
    }
}
