//! Tiles into MBTiles and directories: each once, whole, resumable.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_chaos::{Config, FaultKind, Handle};

use crate::common::canned::Canned;
use crate::common::provider::{chaos, fault};
use crate::common::running::Ran;
use crate::common::workdir::Workdir;

/// The whole world in zoom levels 0 to 3: 85 tiles.
const WORLD: [&str; 4] = ["--bbox", "-180,-85,180,85", "--zoom", "0..3"];

fn fetch(work: &Workdir, url: &str, more: &[&str]) -> Ran {
    let args = [&["fetch", url, "--format", "json", "--quiet"], &WORLD[..], more].concat();
    work.command(&args).output().unwrap().into()
}

fn url(server: &Handle) -> String {
    format!("{}/tiles/{{z}}/{{x}}/{{y}}.png", server.url())
}

/// What chaos sends as a tile.
fn png(address: &str) -> Vec<u8> {
    tidegate_chaos::world::tile(address)
}

/// The tiles of an MBTiles file by their address `z/x/y.png`, rows from the north.
fn tiles(work: &Workdir, name: &str) -> BTreeMap<String, Vec<u8>> {
    let db = rusqlite::Connection::open(work.path(name)).unwrap();
    let mut all = db.prepare("SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles").unwrap();
    let rows = all.query_map([], |row| {
        let (z, x, row_from_south): (u32, u32, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((format!("{z}/{x}/{}.png", (1 << z) - 1 - row_from_south), row.get(3)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn numbers(result: &Value) -> [&Value; 5] {
    ["tiles", "nothing", "failed", "calls", "known"].map(|key| &result[key])
}

#[test]
fn tiles_of_a_service_that_fails_are_all_there_and_whole() {
    let faults = vec![fault(FaultKind::Status(503), "first:1"), fault(FaultKind::Error200, "@5..9")];
    let server = chaos(Config { faults, no_match: 0.2, ..Config::default() });
    let work = Workdir::new();
    let ran = fetch(&work, &url(&server), &["-o", "out.mbtiles"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    let result = ran.json();
    let nothing = result["nothing"].as_u64().unwrap();
    assert!((5..40).contains(&nothing), "{result:#}");
    assert_eq!((&result["wanted"], &result["tiles"]), (&json!(85), &json!(85 - nothing)));
    assert_eq!(result["calls"], server.stats().requests);
    let found = tiles(&work, "out.mbtiles");
    assert_eq!(found.len() as u64, 85 - nothing);
    for (address, data) in &found {
        assert_eq!(data, &png(address), "no error page and no other tile is stored as {address}");
    }

    // Everything is there: nothing is asked for.
    let ran = fetch(&work, &url(&server), &["-o", "out.mbtiles"]);
    let result = ran.json();
    assert_eq!((ran.code, numbers(&result)[3], numbers(&result)[4]), (0, &json!(0), &json!(85)));
    // A tile that was damaged since is asked for again.
    rusqlite::Connection::open(work.path("out.mbtiles"))
        .unwrap()
        .execute("UPDATE tiles SET tile_data = x'00' WHERE zoom_level = 3 AND tile_data = (SELECT max(tile_data) FROM tiles WHERE zoom_level = 3)", [])
        .unwrap();
    let ran = fetch(&work, &url(&server), &["-o", "out.mbtiles"]);
    assert_eq!((ran.code, &ran.json()["known"]), (0, &json!(84)), "{}", ran.stdout);
    assert_eq!(tiles(&work, "out.mbtiles"), found);
    // Another service needs another output.
    let ran =
        fetch(&work, &format!("{}/tiles/other/{{z}}/{{x}}/{{y}}.png", server.url()), &["-o", "out.mbtiles"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("choose another output"), "{}", ran.stderr);
}

#[test]
fn a_fetch_that_ended_early_goes_on_and_pays_for_no_tile_twice() {
    let server =
        chaos(Config { faults: vec![fault(FaultKind::Status(402), "@31..31")], ..Config::default() });
    let work = Workdir::new();
    let more = ["-o", "out", "--at-once", "1", "--patience", "1s"];
    let ran = fetch(&work, &url(&server), &more);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert_eq!(numbers(&ran.json()), [&json!(30), &json!(0), &json!(0), &json!(30), &json!(0)]);
    let plan = fetch(&work, &url(&server), &[&more[..], &["--dry-run"]].concat()).json();
    assert_eq!(
        (&plan["tiles"], &plan["known"], &plan["calls"], &plan["by_zoom"]),
        (&json!(85), &json!(30), &json!(55), &json!([[0, 1], [1, 4], [2, 16], [3, 64]]))
    );
    let ran = fetch(&work, &url(&server), &more);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(numbers(&ran.json()), [&json!(85), &json!(0), &json!(0), &json!(55), &json!(30)]);
    assert_eq!((server.stats().executed, server.stats().duplicates_executed), (85, 0));
    assert_eq!(std::fs::read(work.path("out/3/5/2.png")).unwrap(), png("3/5/2.png"));
}

#[test]
fn a_tile_that_fails_is_named_and_asked_for_again() {
    let server = Canned::start(|head| {
        if head.contains("/2/3/1.png") {
            return "400 Bad Request\r\n\r\n".to_owned();
        }
        // A GIF of one pixel.
        "200 OK\r\nContent-Type: image/png\r\n\r\nGIF89a\u{1}\0\u{1}\0\0\0\0;".to_owned()
    });
    let work = Workdir::new();
    let url = format!("{}/{{z}}/{{x}}/{{y}}.png", server.url());
    for _ in 0..2 {
        let ran = fetch(&work, &url, &["-o", "out.mbtiles"]);
        assert_eq!(ran.code, 4, "{}\n{}", ran.stdout, ran.stderr);
        let result = ran.json();
        assert_eq!(
            (&result["tiles"], &result["failures"]),
            (&json!(84), &json!(["2/3/1: BAD_REQUEST (400)"]))
        );
    }
    assert_eq!(server.seen().len(), 85 + 1);
}

#[test]
fn a_wms_is_asked_by_box() {
    let server = chaos(Config::default());
    let work = Workdir::new();
    let url =
        format!("{}/tiles/wms?request=GetMap&crs=EPSG:3857&bbox={{bbox}}&format=image/png", server.url());
    let ran = fetch(&work, &url, &["-o", "out.mbtiles"]);
    assert_eq!((ran.code, &ran.json()["tiles"]), (0, &json!(85)), "{}", ran.stderr);
    let found = tiles(&work, "out.mbtiles");
    let text = String::from_utf8_lossy(&found["1/1/0.png"]).into_owned();
    assert!(text.contains("bbox=0,0,20037508.342789244,20037508.342789244"), "{text}");
}

#[test]
fn a_pmtiles_file_appears_when_all_tiles_are_there() {
    let server =
        chaos(Config { faults: vec![fault(FaultKind::Status(402), "@31..31")], ..Config::default() });
    let work = Workdir::new();
    let more = ["-o", "out.pmtiles", "--at-once", "1", "--patience", "1s"];
    assert_eq!(fetch(&work, &url(&server), &more).code, 75);
    assert!(!work.path("out.pmtiles").exists());
    let ran = fetch(&work, &url(&server), &more);
    assert_eq!((ran.code, &ran.json()["calls"]), (0, &json!(55)), "{}", ran.stderr);
    let file = std::fs::read(work.path("out.pmtiles")).unwrap();
    assert_eq!(&file[..8], b"PMTiles\x03");
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    assert_eq!((number(72), number(80), number(88)), (85, 85, 85));
    // The first tile is that of zoom level 0, the second the north west of level 1.
    let tiles = &file[number(56)..];
    assert!(
        tiles.starts_with(&[png("0/0/0.png"), png("1/0/0.png"), png("1/0/1.png"), png("1/1/1.png")].concat())
    );
    assert_eq!(number(56) + number(64), file.len());
    let ran = fetch(&work, &url(&server), &more);
    assert_eq!((ran.code, &ran.json()["calls"]), (0, &json!(0)), "{}", ran.stderr);
    assert_eq!(std::fs::read(work.path("out.pmtiles")).unwrap(), file);
}

#[test]
fn what_tiles_need_is_said() {
    let work = Workdir::new();
    for (args, says) in [
        (&["http://127.0.0.1:9/{z}/{x}/{y}.png", "--zoom", "1"][..], "tiles need --bbox"),
        (&["http://127.0.0.1:9/{z}/{x}/{y}.png", "--bbox", "0,0,1,1"], "tiles need --zoom"),
        (
            &["http://127.0.0.1:9/{z}/{x}/{y}.png", "--bbox", "0,0,1,1", "--zoom", "0..99"],
            "zoom levels are 0 to 24",
        ),
        (
            &["http://127.0.0.1:9/{z}/{x}/{y}.png", "--bbox", "1,2,3", "--zoom", "1"],
            "expected west,south,east,north",
        ),
        (&["http://127.0.0.1:9/wfs", "--zoom", "1"], "write {z}, {x} and {y} into the URL"),
    ] {
        let ran: Ran =
            work.command(&[&["fetch", "-o", "out.mbtiles"], args].concat()).output().unwrap().into();
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
    assert!(!work.path("out.mbtiles").exists());
}
