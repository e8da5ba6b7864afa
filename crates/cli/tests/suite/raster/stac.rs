//! Assets of a STAC API as rasters of a pipeline.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use tidegate_chaos::{Chaos, Config, Handle};
use tidegate_raster::Compression;

use crate::common::{Ran, tidegate};
use crate::raster::{POLICIES, write_cog};

const ITEMS: u64 = 7;

/// A catalogue of seven items in pages of three, whose bands are real rasters.
fn serve(dir: &Path, config: Config) -> Handle {
    fs::create_dir(dir.join("bands")).unwrap();
    for (n, band) in [(4, "B04"), (8, "B08")] {
        write_cog(&dir.join(format!("bands/{band}.tif")), Compression::Deflate, n);
    }
    let rasters = Some(dir.join("bands"));
    Chaos::start(Config { rasters, features: ITEMS, page_max: 3, threads: 1, seed: 7, ..config }).unwrap()
}

fn run(dir: &Path, url: &str, assets: &str, more: &[&str]) -> Ran {
    let path = dir.join("m.yaml");
    let text = format!(
        "pipeline:\n  id: bands\n{POLICIES}  services: {{ earth: {{ url: \"{url}\", profile: stac }} }}\n  source: {{ service: earth, layer: parcels, assets: [{assets}], batch_size: 2 }}\n  steps:\n    - raster: {{ clip: {{ bbox: [500500, 4999000, 501000, 4999500] }}, name: \"{{name}}\", output: out, base_delay_seconds: 0.001 }}\n  sink: {{ file: index.gpkg, key: [item, asset] }}\n"
    );
    fs::write(&path, text).unwrap();
    let (path, state) = (path.display().to_string(), dir.join("state").display().to_string());
    let mut args = vec!["run", path.as_str(), "--state", state.as_str(), "--quiet", "--format", "json"];
    args.extend(more);
    tidegate(&args)
}

#[test]
fn each_asset_of_each_item_is_a_raster() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    let url = format!("{}/stac", server.url());
    let ran = run(dir.path(), &url, "B04, B08", &[]);
    assert_eq!((ran.code, ran.count("read")), (0, 2 * ITEMS), "{}", ran.stderr);
    let db = rusqlite::Connection::open(dir.path().join("index.gpkg")).unwrap();
    let sql = "SELECT item || ' ' || asset || ' ' || collection || ' ' || width || ' ' || (geom IS NOT NULL) FROM \"index\"";
    let mut rows = db.prepare(sql).unwrap();
    let found: BTreeSet<String> = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let wanted =
        (1..=ITEMS).flat_map(|n| ["B04", "B08"].map(|band| format!("parcels.{n} {band} parcels 50 1")));
    assert_eq!(found, wanted.collect());
    // Each band is clipped as the local file is.
    for band in ["B04", "B08"] {
        let (from, to) =
            (dir.path().join(format!("bands/{band}.tif")), dir.path().join(format!("{band}.tif")));
        let (from, to) = (from.display().to_string(), to.display().to_string());
        let ran = tidegate(&["raster", "clip", &from, &to, "--box", "500500,4999000,501000,4999500"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        for item in 1..=ITEMS {
            let made = fs::read(dir.path().join(format!("out/parcels.{item}_{band}.tif"))).unwrap();
            assert!(made == fs::read(&to).unwrap(), "{item} {band}");
        }
    }
}

/// Passes everything on to a server, and keeps what it was asked. Searches are asked in the name of the host
/// `named`, so that the assets of their items are there.
fn listen(to: SocketAddr, named: Option<SocketAddr>) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<u8>>> = Arc::default();
    let heard = asked.clone();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map(Result::unwrap) {
            let mut server = TcpStream::connect(to).unwrap();
            let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let heard = heard.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = client.read(&mut buffer) {
                    heard.lock().unwrap().extend(&buffer[..n]);
                    let mut text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    if let Some(named) = named.filter(|_| text.starts_with("POST /stac/search")) {
                        text = text.replacen(&own.to_string(), &named.to_string(), 1);
                    }
                    if server.write_all(text.as_bytes()).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (own, asked)
}

/// Runs the pipeline with a key for the catalogue, after a dry run without it.
fn run_with_key(dir: &Path, catalogue: SocketAddr, allowed: SocketAddr) -> Output {
    run(dir, &format!("http://{catalogue}/stac"), "B04", &["--dry-run"]);
    let path = dir.join("m.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let with_key = format!("profile: stac, key: \"env:STAC_KEY\", allow_hosts: [\"{allowed}\"]");
    fs::write(&path, text.replace("profile: stac", &with_key)).unwrap();
    let state = dir.join("state").display().to_string();
    std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", &path.display().to_string(), "--state", &state, "--quiet"])
        .env("STAC_KEY", "opensesame")
        .output()
        .unwrap()
}

/// The requests that begin with this, in small letters.
fn requests(asked: &Mutex<Vec<u8>>, start: &str) -> Vec<String> {
    let heard = String::from_utf8_lossy(&asked.lock().unwrap()).to_lowercase();
    let starts = heard.match_indices("get /").chain(heard.match_indices("post /")).map(|(at, _)| at);
    let mut starts: Vec<usize> = starts.collect();
    starts.sort_unstable();
    let ends = starts.iter().copied().skip(1).chain([heard.len()]);
    let all = starts.iter().zip(ends).map(|(from, to)| heard[*from..to].to_owned());
    all.filter(|one| one.starts_with(start)).collect()
}

const WITH_KEY: &str = "authorization: bearer opensesame";

/// The key of the catalogue goes to assets on its own origin, and to no file.
#[test]
fn assets_are_read_with_the_key_of_their_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    let (catalogue, asked) = listen(server.addr(), None);
    let ran = run_with_key(dir.path(), catalogue, catalogue);
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let of_rasters = requests(&asked, "get /stac/assets/");
    assert!(!of_rasters.is_empty());
    assert!(of_rasters.iter().all(|one| one.contains(WITH_KEY)), "{of_rasters:?}");
    let mut files = vec![dir.path().join("index.gpkg")];
    files.extend(fs::read_dir(dir.path().join("state")).unwrap().map(|entry| entry.unwrap().path()));
    for file in files.iter().filter(|file| file.is_file()) {
        let bytes = fs::read(file).unwrap();
        assert!(!bytes.windows(10).any(|part| part == b"opensesame"), "{}", file.display());
    }
}

/// Another port is another origin: its assets are read, without the key.
#[test]
fn assets_of_another_origin_get_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    let (other, asked_other) = listen(server.addr(), None);
    let (catalogue, asked) = listen(server.addr(), Some(other));
    let ran = run_with_key(dir.path(), catalogue, other);
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), ITEMS as usize);
    let searches = requests(&asked, "post /stac/search");
    assert!(searches.iter().any(|one| one.contains(WITH_KEY)), "{searches:?}");
    assert_eq!(requests(&asked, "get /stac/assets/"), Vec::<String>::new());
    assert!(requests(&asked_other, "get /stac/assets/").len() >= ITEMS as usize);
    let heard = String::from_utf8_lossy(&asked_other.lock().unwrap()).to_lowercase();
    assert!(!heard.contains("authorization") && !heard.contains("opensesame"), "{heard}");
}

/// An asset that an item does not have is a dead letter; the others are made.
#[test]
fn a_missing_asset_is_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    let ran = run(dir.path(), &format!("{}/stac", server.url()), "B04, B99", &[]);
    assert_eq!((ran.code, ran.count("written"), ran.count("rejected")), (4, ITEMS, ITEMS), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), ITEMS as usize);
}

/// Killed after some assets: the rest is made, from the same list and without another search.
#[test]
fn a_killed_run_goes_on_with_the_same_list() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    let url = format!("{}/stac", server.url());
    let manifest = dir.path().join("m.yaml").display().to_string();
    assert_eq!(run(dir.path(), &url, "B04", &["--dry-run"]).code, 0);
    let state = dir.path().join("state").display().to_string();
    let killed = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", &manifest, "--state", &state, "--quiet"])
        .env("TIDEGATE_CRASH", "commit:1")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    let ran = run(dir.path(), &url, "B04", &["--resume"]);
    assert_eq!((ran.code, ran.count("written"), ran.count("rejected")), (0, ITEMS, 0), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), ITEMS as usize);
}

#[test]
fn assets_need_a_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), Config::default());
    run(dir.path(), &format!("{}/stac", server.url()), "B04", &["--dry-run"]);
    let path = dir.path().join("m.yaml");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, says) in [
        ("service: earth, layer: parcels", "file: a.geojson", "`assets` requires a `service`"),
        ("profile: stac", "profile: ogcapi", "requires a STAC API"),
    ] {
        fs::write(&path, text.replace(from, to).replace("/stac\"", "/ogc\"")).unwrap();
        let ran = tidegate(&["run", &path.display().to_string(), "--quiet"]);
        assert!(ran.code != 0 && ran.stderr.contains(says), "{to}: {} {}", ran.code, ran.stderr);
    }
}
