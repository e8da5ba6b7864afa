//! Objects by list: the assets of a catalogue, and requests that are made into images.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tidegate_chaos::{Config, Dialect, FaultKind, Quirk, spec};

use crate::common::running::Ran;
use crate::common::workdir::Workdir;
use crate::fetch::bench::{Bench, chaos, fault, layer, until_asked};

const N: u64 = 12;
const VISUAL_BYTES: u64 = 17 << 20;

fn assets(bench: &Bench, url: &str, more: &[&str]) -> Ran {
    let url = format!("{url}/stac");
    bench.fetch(&url, &[&["--assets", "B04,B08", "-o", "scenes", "--page-size", "5"], more].concat())
}

/// The files under a directory by name, with the hash of each.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir_now) = left.pop() {
        for entry in fs::read_dir(&dir_now).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                let sum = Sha256::digest(fs::read(&path).unwrap());
                all.insert(name, sum.iter().map(|b| format!("{b:02x}")).collect());
            }
        }
    }
    all
}

fn count(ran: &Ran, name: &str) -> u64 {
    ran.json()[name].as_u64().unwrap_or_else(|| panic!("{name} in {} {}", ran.stdout, ran.stderr))
}

/// The names and hashes that the catalogue states.
fn stated(bench: &Bench) -> BTreeMap<String, String> {
    let all = Workdir::files(bench);
    let items = all.iter().find(|path| path.ends_with("items.geojsonl")).unwrap();
    let text = fs::read_to_string(items).unwrap();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let item: Value = serde_json::from_str(line).unwrap();
        let id = item["properties"]["id"].as_u64().unwrap();
        for name in ["B04", "B08"] {
            let sum = item["properties"]["assets"][name]["file:checksum"].as_str().unwrap();
            all.insert(format!("parcels/parcels.{id}/{name}.tif"), sum[4..].to_owned());
        }
    }
    all
}

#[test]
fn assets_are_downloaded_once_and_checked() {
    let server = chaos(layer(N, 5));
    let bench = Bench::new();
    let forecast = assets(&bench, &server.url(), &["--dry-run"]);
    assert_eq!(forecast.code, 0, "{}", forecast.stderr);
    let planned = &forecast.json()["forecast"];
    assert_eq!((planned["objects"].as_u64(), planned["calls"].as_u64()), (Some(24), Some(24)));
    assert_eq!((planned["present"].as_u64(), planned["unsized_objects"].as_u64()), (Some(0), Some(0)));
    assert!(files(&bench.path("scenes")).is_empty());

    let ran = assets(&bench, &server.url(), &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((count(&ran, "downloaded"), count(&ran, "checksums")), (24, 24));
    assert_eq!(planned["bytes"].as_u64(), Some(count(&ran, "bytes")));
    let there = files(&bench.path("scenes"));
    assert_eq!(there, stated(&bench));
    assert_eq!(there.len(), 24);

    // A second run asks only the catalogue; what was removed comes anew.
    let before = server.stats().requests;
    let ran = assets(&bench, &server.url(), &[]);
    assert_eq!((ran.code, count(&ran, "downloaded"), count(&ran, "present")), (0, 0, 24));
    let catalogue = server.stats().requests - before;
    fs::remove_file(bench.path("scenes/parcels/parcels.3/B08.tif")).unwrap();
    let before = server.stats().requests;
    let ran = assets(&bench, &server.url(), &[]);
    assert_eq!((ran.code, count(&ran, "downloaded"), count(&ran, "present")), (0, 1, 23));
    assert_eq!(server.stats().requests - before, catalogue + 1);
    assert_eq!(files(&bench.path("scenes")), there);
}

#[test]
fn trouble_on_the_way_changes_nothing() {
    let limit = spec::throttle("bucket:60/s,burst=8").unwrap();
    for (config, what) in [
        (Config { faults: vec![fault(FaultKind::Status(503), "first:1")], ..layer(N, 5) }, "503"),
        (Config { faults: vec![fault(FaultKind::Cut, "first:1")], ..layer(N, 5) }, "cut"),
        (Config { faults: vec![fault(FaultKind::Reset, "first:1")], ..layer(N, 5) }, "reset"),
        (Config { faults: vec![fault(FaultKind::Error200, "first:1")], ..layer(N, 5) }, "a page in a 200"),
        (Config { limit, headers: Dialect::RetryAfter, ..layer(N, 5) }, "429"),
    ] {
        let server = chaos(config);
        let bench = Bench::new();
        let ran = assets(&bench, &server.url(), &[]);
        assert_eq!((ran.code, count(&ran, "downloaded")), (0, 24), "{what}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(files(&bench.path("scenes")), stated(&bench), "{what}");
    }
}

#[test]
fn what_is_not_the_object_never_gets_its_name() {
    for (quirk, code, words) in [
        (Quirk::ErrorImage, "SERVICE_EXCEPTION", "sent PNG with status 200 in place of TIFF"),
        (Quirk::WrongChecksum, "UNEXPECTED_BODY", "the checksum differs"),
        (Quirk::WrongSize, "UNEXPECTED_BODY", "stated"),
    ] {
        let server = chaos(Config { quirks: vec![quirk], ..layer(2, 5) });
        let bench = Bench::new();
        let ran = assets(&bench, &server.url(), &[]);
        assert_eq!(ran.code, 4, "{quirk:?}: {}", ran.stderr);
        assert_eq!((count(&ran, "downloaded"), count(&ran, "objects")), (0, 4));
        let failed = ran.json()["failed"].as_array().unwrap().clone();
        assert_eq!(failed.len(), 4);
        assert_eq!(failed[0]["code"], code, "{quirk:?}");
        assert!(failed[0]["message"].as_str().unwrap().contains(words), "{quirk:?}: {}", failed[0]);
        assert!(files(&bench.path("scenes")).is_empty(), "{quirk:?}");
    }
}

#[test]
fn a_killed_download_goes_on_in_the_middle_of_an_object() {
    let args = ["--assets", "visual", "-o", "scenes"];
    let calm = chaos(layer(1, 5));
    let planned = Bench::new().fetch(&format!("{}/stac", calm.url()), &[&args[..], &["--dry-run"]].concat());
    assert_eq!(planned.json()["forecast"]["calls"], 3, "{}", planned.stdout);
    // The second piece is not answered before the process is killed.
    let second = calm.stats().requests + 2;
    let hang = fault(FaultKind::Hang(Duration::from_secs(60)), &format!("@{second}..{second}"));
    let server = chaos(Config { faults: vec![hang], ..layer(1, 5) });
    let bench = Bench::new();
    let url = format!("{}/stac", server.url());
    let running = bench.start(&url, &args);
    until_asked(&server, second);
    running.signal("KILL");
    running.end();
    let partial = bench.path("scenes/parcels/parcels.1/visual.tif.partial");
    let had = fs::metadata(&partial).unwrap().len();
    assert!(had > 0 && had < VISUAL_BYTES, "{had}");
    assert!(!bench.path("scenes/parcels/parcels.1/visual.tif").exists());
    let before = server.stats().requests;
    let ran = bench.fetch(&url, &[&args[..], &["--resume"]].concat());
    assert_eq!(
        (ran.code, count(&ran, "downloaded"), count(&ran, "bytes")),
        (0, 1, VISUAL_BYTES),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::metadata(bench.path("scenes/parcels/parcels.1/visual.tif")).unwrap().len(), VISUAL_BYTES);
    assert!(!partial.exists());
    // The whole is three pieces; what was there is not asked for.
    let whole = Bench::new();
    let asked = server.stats().requests - before;
    let before = server.stats().requests;
    assert_eq!(whole.fetch(&url, &args).code, 0);
    assert_eq!(server.stats().requests - before - asked, had.div_ceil(8 << 20));
    assert_eq!(files(&whole.path("scenes")), files(&bench.path("scenes")));
}

#[test]
fn assets_go_to_a_store_as_well() {
    let server = chaos(layer(3, 5));
    let bench = Bench::new();
    let endpoint = format!("{}/s3", server.url());
    let to = ["-o", "s3://bucket/scenes", "--endpoint", &endpoint, "--anonymous"];
    let url = format!("{}/stac", server.url());
    let args = [&["--assets", "B04"][..], &to].concat();
    let ran = bench.fetch(&url, &args);
    assert_eq!((ran.code, count(&ran, "downloaded")), (0, 3), "{}", ran.stderr);
    let ran = bench.fetch(&url, &args);
    assert_eq!((ran.code, count(&ran, "downloaded"), count(&ran, "present")), (0, 0, 3), "{}", ran.stderr);
}

#[test]
fn what_is_not_there_or_not_allowed_is_said() {
    let server = chaos(layer(3, 5));
    let bench = Bench::new();
    let url = format!("{}/stac", server.url());
    let ran = bench.fetch(&url, &["--assets", "B99", "-o", "scenes"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("no item has the asset B99; they have B04, B08, data, visual"),
        "{}",
        ran.stderr
    );
    let ran = bench.fetch(&url, &["--assets", "data", "-o", "scenes"]);
    assert_eq!((ran.code, count(&ran, "downloaded")), (4, 0), "{}", ran.stderr);
    assert_eq!(ran.json()["failed"][0]["code"], "NOT_FOUND");
}

#[test]
fn requests_are_made_into_images() {
    let server = chaos(layer(1, 5));
    let bench = Bench::new();
    let lines: String =
        (0..3).map(|n| format!("{{\"key\":\"tiles/{n}.tif\",\"body\":{{\"n\":{n}}}}}\n")).collect();
    fs::write(bench.path("requests.ndjson"), lines).unwrap();
    fs::write(bench.path("token"), "secret").unwrap();
    let url = format!("{}/stac/assets/process", server.url());
    let args = ["--requests", "requests.ndjson", "-o", "images", "--key", "file:token"];
    let ran = bench.fetch(&url, &args);
    assert_eq!((ran.code, count(&ran, "downloaded")), (0, 3), "{}", ran.stderr);
    let made = files(&bench.path("images"));
    assert_eq!(
        made.keys().map(String::as_str).collect::<Vec<_>>(),
        ["tiles/0.tif", "tiles/1.tif", "tiles/2.tif"]
    );
    // A request is paid for, so it is not made twice.
    let before = server.stats().requests;
    let ran = bench.fetch(&url, &args);
    assert_eq!((ran.code, count(&ran, "present")), (0, 3), "{}", ran.stderr);
    assert_eq!(server.stats().requests, before);
    fs::write(bench.path("requests.ndjson"), "{\"key\":\"../x\",\"body\":{}}\n").unwrap();
    assert_eq!(bench.fetch(&url, &args).code, 2);
}
