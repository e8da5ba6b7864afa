//! A layer that changes while it is read: nothing that stayed is lost, nothing comes twice.

use std::collections::BTreeSet;

use tidegate_cli::chaos::{Config, Handle, ROOM, Unrest};

use crate::bench::{Bench, WAYS, chaos, layer};

const N: u64 = 900;

fn numbers(server: &Handle, name: &str) -> BTreeSet<u64> {
    server.layer()[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

fn stays_whole(unrest: Unrest, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for (name, path, args) in WAYS {
            let server = chaos(Config { unrest, seed, ..layer(N, 50) });
            let bench = Bench::new();
            let ran = bench.fetch(&format!("{}{path}", server.url()), args);
            let at = format!("{name}, seed {seed}, {unrest:?}: {} {}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, 0, "{at}");
            assert_eq!(ran.word("agreement"), "changed", "{at}");
            let step = if unrest.insert_every > 0 { ROOM } else { 1 };
            let deleted = numbers(&server, "deleted");
            let parcels = bench.parcels();
            assert!(parcels.values().all(|times| *times == 1), "doubled: {at}");
            let lost: Vec<u64> = (1..=N)
                .map(|n| n * step)
                .filter(|id| !deleted.contains(id) && !parcels.contains_key(id))
                .collect();
            assert_eq!(lost, [0; 0], "lost: {at}");
            // It was a test: the layer did change.
            assert!(server.layer()["pages"].as_u64().unwrap() >= 18, "{at}");
        }
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
