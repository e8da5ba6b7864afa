//! A COG behind a server that spoils ranges: the result is the undisturbed one byte for byte, or there is
//! an error and no result.

use std::fs;
use std::path::Path;

use tidegate_chaos::{Chaos, Config, Dialect, Handle, ServerLimit, spec};
use tidegate_raster::Compression;

use crate::common::tidegate;
use crate::raster::{POLICIES, write_cog, write_cog_of};

/// Serves a directory, with this fault.
fn serve(dir: &Path, fault: Option<&str>) -> Handle {
    let mut config = Config { rasters: Some(dir.to_owned()), seed: 7, threads: 1, ..Config::default() };
    if let Some(text) = fault {
        let known = spec::range_fault(text).or_else(|_| spec::status_fault(text));
        let cut = |when: &str| tidegate_chaos::FaultRule {
            kind: tidegate_chaos::FaultKind::Cut,
            when: spec::when(when).unwrap(),
        };
        config.faults = vec![known.unwrap_or_else(|_| cut(text.strip_prefix("cut=").unwrap()))];
    }
    Chaos::start(config).unwrap()
}

/// Warps the raster at an address to a COG through a pipeline; the exit code and the result.
fn run(address: &str, more: &str) -> (i32, Option<Vec<u8>>, String) {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("m.yaml");
    let text = format!(
        "pipeline:\n  id: remote\n{POLICIES}  source: {{ rasters: [\"{address}\"] }}\n  steps:\n    - raster: {{ warp: {{ to: \"EPSG:3857\" }}, output: out, compression: zstd, attempts: 4, base_delay_seconds: 0.001, deadline_seconds: 20, patience_seconds: 5{more} }}\n  sink: {{ file: index.geojsonl }}\n"
    );
    fs::write(&manifest, text).unwrap();
    let state = dir.path().join("state").display().to_string();
    let ran = tidegate(&["run", &manifest.display().to_string(), "--state", &state, "--quiet"]);
    let made = fs::read(dir.path().join("out/c.tif")).ok();
    let left = fs::read_dir(dir.path().join("out")).map_or(0, Iterator::count);
    assert_eq!(left, usize::from(made.is_some()), "a part of a result was left: {}", ran.stderr);
    (ran.code, made, format!("{}{}", ran.stdout, ran.stderr))
}

fn undisturbed(dir: &Path) -> Vec<u8> {
    let (code, made, said) = run(&dir.join("c.tif").display().to_string(), "");
    assert_eq!(code, 0, "{said}");
    made.unwrap()
}

/// Faults that one more attempt heals.
#[test]
fn what_heals_leaves_no_trace() {
    for compression in [Compression::Deflate, Compression::None] {
        let dir = tempfile::tempdir().unwrap();
        write_cog(&dir.path().join("c.tif"), compression, 3);
        let wanted = undisturbed(dir.path());
        let mut faults = vec!["429=first:1", "503=first:1", "cut=first:1", "length=first:1", "whole=first:1"];
        faults.extend(["shifted=first:1", "swapped=first:1", "zeros=first:1"]);
        for fault in faults {
            let server = serve(dir.path(), Some(fault));
            let (code, made, said) = run(&format!("{}/raster/c.tif", server.url()), "");
            assert_eq!(code, 0, "{compression} {fault}: {said}");
            assert!(made.as_deref() == Some(&wanted), "{compression} {fault}: another result");
        }
    }
}

/// Faults that stay, and faults of a share of ranges: an error, or the right result.
#[test]
fn what_does_not_heal_is_an_error_and_no_result() {
    let dir = tempfile::tempdir().unwrap();
    write_cog(&dir.path().join("c.tif"), Compression::Deflate, 3);
    let wanted = undisturbed(dir.path());
    for kind in ["503", "cut", "length", "etag", "whole", "shifted", "swapped", "zeros"] {
        for share in ["100%", "30%"] {
            let server = serve(dir.path(), Some(&format!("{kind}={share}")));
            let (code, made, said) = run(&format!("{}/raster/c.tif", server.url()), "");
            match made {
                Some(made) => {
                    assert!(made == wanted, "{kind} {share}: another result");
                    assert_eq!(code, 0, "{kind} {share}: {said}");
                    // An ETag that is always the same is one version.
                    assert!(share != "100%" || kind == "etag", "{kind}: {said}");
                }
                None => assert!(matches!(code, 4 | 75), "{kind} {share}: exit {code}: {said}"),
            }
        }
    }
}

/// The same through the protocol of S3, with a prefix as the source.
#[test]
fn objects_of_a_bucket_are_read_by_checked_ranges() {
    let dir = tempfile::tempdir().unwrap();
    write_cog(&dir.path().join("c.tif"), Compression::Deflate, 3);
    let wanted = undisturbed(dir.path());
    for fault in [None, Some("503=first:1"), Some("length=first:1")] {
        let server = serve(dir.path(), fault);
        let more = format!(", store: {{ endpoint: \"{}/s3\", allow_private: true }}", server.url());
        let (code, made, said) = run("s3://scenes/c.tif", &more);
        assert_eq!(code, 0, "{fault:?}: {said}");
        assert!(made.as_deref() == Some(&wanted), "{fault:?}: another result");
    }
}

/// A run over three rasters of a server; the exit code and what it said.
fn run_three(dir: &Path, server: &str, patience: u32, resume: bool) -> (i32, String) {
    let manifest = dir.join("m.yaml");
    let names = ["a", "b", "c"].map(|name| format!("\"{server}/raster/{name}.tif\"")).join(", ");
    let text = format!(
        "pipeline:\n  id: three\n{POLICIES}  source: {{ rasters: [{names}], batch_size: 1 }}\n  steps:\n    - raster: {{ cog: true, output: out, patience_seconds: {patience} }}\n  sink: {{ file: index.geojsonl }}\n"
    );
    fs::write(&manifest, text).unwrap();
    let (manifest, state) = (manifest.display().to_string(), dir.join("state").display().to_string());
    let mut args = vec!["run", &manifest, "--state", &state];
    if resume {
        args.push("--resume");
    }
    let ran = tidegate(&args);
    (ran.code, format!("{}{}", ran.stdout, ran.stderr))
}

fn three_scenes(dir: &Path) {
    for (salt, name) in (0..).zip(["a.tif", "b.tif", "c.tif"]) {
        write_cog(&dir.join(name), Compression::Deflate, salt);
    }
}

fn throttled(dir: &Path, limit: u64, window: f64) -> Handle {
    let limit = ServerLimit::FixedWindow { limit, window, phase: 0.0 };
    let rasters = Some(dir.to_owned());
    Chaos::start(Config { rasters, limit, headers: Dialect::RetryAfter, threads: 1, ..Config::default() })
        .unwrap()
}

/// What a server asks for while one raster is read holds for the next, and for the next run.
#[test]
fn rasters_of_a_run_share_the_wait_that_a_server_asks_for() {
    let scenes = tempfile::tempdir().unwrap();
    three_scenes(scenes.path());

    let server = throttled(scenes.path(), 3, 1.0);
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = run_three(dir.path(), &server.url(), 60, false);
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 3);
    let stats = server.stats();
    assert!(stats.throttled > 0, "the limit was never reached: {} requests", stats.requests);
    assert_eq!(stats.retry_after_violations, 0, "{} requests", stats.requests);

    // A wait of ten minutes is too long: the run ends, and no raster is given up or asked for again.
    let server = throttled(scenes.path(), 1, 600.0);
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = run_three(dir.path(), &server.url(), 5, false);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("Retry-After"), "{said}");
    let requests = server.stats().requests;
    assert_eq!(requests, 2, "{said}");
    let (code, said) = run_three(dir.path(), &server.url(), 5, true);
    assert_eq!(code, 75, "{said}");
    assert_eq!(server.stats().requests, requests, "{said}");
    let store = dir.path().join("state/letters.db").display().to_string();
    let letters = tidegate(&["dlq", "--store", &store, "ls", "--format", "json"]);
    assert!(!letters.stdout.contains("raster"), "{}", letters.stdout);
}

/// The head of a COG and one request for each row of blocks that lie together, and nothing else: the blocks
/// prove the head, and the COG says itself where it lies.
#[test]
fn a_window_of_a_cog_takes_few_requests() {
    let dir = tempfile::tempdir().unwrap();
    write_cog_of(&dir.path().join("c.tif"), (1920, 128), Compression::Deflate, 3);
    let (local, remote) = (dir.path().join("local.tif"), dir.path().join("remote.tif"));
    let (local, remote) = (local.display().to_string(), remote.display().to_string());
    // Three by three blocks: such that tiles are copied, and such that none can be.
    for side in ["507680,4988480,511520,4992320", "507780,4988580,511420,4992220"] {
        let server = serve(dir.path(), None);
        let address = format!("{}/raster/c.tif", server.url());
        let path = dir.path().join("c.tif").display().to_string();
        for (from, to) in [(&path, &local), (&address, &remote)] {
            let ran = tidegate(&["raster", "clip", from, to, "--box", side, "--overwrite"]);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
        }
        let requests = server.stats().requests;
        assert!((2..=1 + 3).contains(&requests), "{side}: {requests} requests");
        assert!(fs::read(&local).unwrap() == fs::read(&remote).unwrap());
    }
    // The files beside it are asked for on demand; a head that is all that is read is read twice.
    for (more, requests) in [(&[][..], 2), (&["--sidecars"][..], 4)] {
        let server = serve(dir.path(), None);
        let address = format!("{}/raster/c.tif", server.url());
        let ran = tidegate(&[&["raster", "info", &address], more].concat());
        assert_eq!((ran.code, server.stats().requests), (0, requests), "{}", ran.stderr);
    }
}

/// A mosaic of remote rasters is that of the same files.
#[test]
fn remote_rasters_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    three_scenes(dir.path());
    let server = serve(dir.path(), Some("503=first:1"));
    let names = ["a.tif", "b.tif"];
    let files = names.map(|name| dir.path().join(name).display().to_string());
    let addresses = names.map(|name| format!("{}/raster/{name}", server.url()));
    let made = [files, addresses].map(|[a, b]| {
        let out = dir.path().join("out.tif").display().to_string();
        let ran = tidegate(&["raster", "mosaic", &out, &a, &b, "--overwrite", "--base-delay", "10ms"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        fs::read(&out).unwrap()
    });
    assert!(made[0] == made[1]);
}

/// A server that is down: try later, and nothing is written.
#[test]
fn a_refused_connection_ends_a_command_with_75() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("http://127.0.0.1:{port}/c.tif");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.tif").display().to_string();
    let patience = ["--patience", "1s", "--base-delay", "10ms"];
    for command in [vec!["info", &address], vec!["cog", &address, &out], vec!["repair", &address, &out]] {
        let ran = tidegate(&[&["raster"][..], &command, &patience].concat());
        assert_eq!(ran.code, 75, "{command:?}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{command:?} left a file");
    }
}

/// A broken header behind a server.
#[test]
fn a_remote_raster_is_repaired_by_the_command() {
    let scenes = tempfile::tempdir().unwrap();
    let path = scenes.path().join("c.tif");
    write_cog(&path, Compression::Deflate, 3);
    let sound = fs::read(&path).unwrap();
    let mut broken = sound.clone();
    broken[..4].fill(0);
    fs::write(&path, &broken).unwrap();
    let server = serve(scenes.path(), Some("503=first:1"));
    let (dir, address) = (tempfile::tempdir().unwrap(), format!("{}/raster/c.tif", server.url()));
    let out = dir.path().join("out.tif");
    let ran = tidegate(&["raster", "repair", &address, &out.display().to_string(), "--base-delay", "10ms"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("repaired"), "{}", ran.stdout);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the copy was left");
    let dry = tidegate(&["raster", "repair", &address, "--dry-run"]);
    assert_eq!(dry.code, 0, "{}{}", dry.stdout, dry.stderr);
}

/// The query of an address may be a signature: nothing prints it.
#[test]
fn a_signature_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    write_cog(&dir.path().join("c.tif"), Compression::Deflate, 3);
    fs::write(dir.path().join("broken.tif"), [0; 4096]).unwrap();
    let server = serve(dir.path(), None);
    let out = dir.path().join("out.tif").display().to_string();
    for (name, code) in [("c.tif", 0), ("broken.tif", 1), ("none.tif", 1)] {
        // A signed address is a secret, so that it comes from a reference.
        let held = dir.path().join(format!("{name}.url"));
        fs::write(&held, format!("{}/raster/{name}?sig=verysecret", server.url())).unwrap();
        let address = format!("file:{}", held.display());
        for args in [
            vec!["raster", "repair", &address, &out],
            vec!["raster", "repair", &address, "--dry-run", "--format", "json"],
            vec!["raster", "info", &address],
            vec!["raster", "validate", &address],
        ] {
            let ran = tidegate(&args);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains(name) && !said.contains("verysecret"), "{args:?}: {said}");
            assert_eq!(ran.code, code, "{args:?}: {said}");
        }
        let _ = fs::remove_file(&out);
    }
}
