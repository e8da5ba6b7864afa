//! Bodies under labels that lie: what is stored is recognised by its bytes, whatever it is called, and
//! what a service says in place of data is told as that.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::canned::Canned;
use crate::running::Ran;
use crate::workdir::Workdir;

const EXCEPTION: &str = "<?xml version=\"1.0\"?><ServiceExceptionReport><ServiceException code=\"LayerNotDefined\">no layer &lt;roads&gt;</ServiceException></ServiceExceptionReport>";
const BUSY: &str = "<ServiceExceptionReport><ServiceException>no renderer is free</ServiceException></ServiceExceptionReport>";
const OWS: &str = "<ows:ExceptionReport xmlns:ows=\"u\"><ows:Exception exceptionCode=\"NoApplicableCode\"><ows:ExceptionText>out of memory</ows:ExceptionText></ows:Exception></ows:ExceptionReport>";
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0;";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x04ab\xff\xda\0\x04cddata\xff\xd9";
const WEBP: &[u8] = b"RIFF\x06\0\0\0WEBPab";
/// A layer named "a" of version 2.
const VECTOR: &[u8] = b"\x1a\x05\x78\x02\x0a\x01a";

fn png() -> Vec<u8> {
    tidegate_chaos::world::tile("1/0/0.png")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// What a server calls a body; nothing for the last one.
const LABELS: [&str; 5] = ["image/png", "text/html", "application/json", "application/x-protobuf", ""];

/// The five tiles of zoom levels 0 and 1, each under another label.
const TILES: [&str; 5] = ["/0/0/0.", "/1/0/0.", "/1/0/1.", "/1/1/0.", "/1/1/1."];

fn answer(label: &str, body: &[u8]) -> Vec<u8> {
    let head = if label.is_empty() { String::new() } else { format!("\r\nContent-Type: {label}") };
    [format!("200 OK{head}\r\n\r\n").as_bytes(), body].concat()
}

/// A service of one body under all labels.
fn labelled(body: Vec<u8>) -> Canned {
    Canned::bytes(move |head| {
        let at = TILES.iter().position(|tile| head.contains(tile)).unwrap();
        answer(LABELS[at], &body)
    })
}

fn fetch(work: &Workdir, url: &str, output: &str, more: &[&str]) -> Ran {
    fetch_zoom(work, url, "0..1", (output, more))
}

fn fetch_zoom(work: &Workdir, url: &str, zoom: &str, (output, more): (&str, &[&str])) -> Ran {
    // A breaker that one fetch opened would hold up the next one.
    let state = format!("state-{output}");
    let world = ["--bbox", "-180,-85,180,85", "--zoom", zoom, "-o", output, "--state", &state];
    let all = [&["fetch", url, "--format", "json", "--quiet"][..], &world, more].concat();
    work.command(&all).output().unwrap().into()
}

/// All tiles of an MBTiles file, and its format.
fn stored(work: &Workdir, name: &str) -> (Vec<Vec<u8>>, String) {
    let db = rusqlite::Connection::open(work.path(name)).unwrap();
    let format = "SELECT value FROM metadata WHERE name = 'format'";
    let format = db.query_row(format, [], |row| row.get(0)).unwrap();
    let mut all = db.prepare("SELECT tile_data FROM tiles ORDER BY 1").unwrap();
    let tiles = all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    (tiles, format)
}

#[test]
fn what_is_no_tile_is_stored_under_no_label() {
    let mut cut = png();
    cut.truncate(cut.len() - 5);
    for (extension, body, code, said) in [
        ("png", EXCEPTION.into(), "SERVICE_EXCEPTION", "the service said “no layer <roads>”"),
        ("png", BUSY.into(), "SERVICE_EXCEPTION", "the service said “no renderer is free”"),
        ("png", OWS.into(), "SERVICE_EXCEPTION", "the service said “out of memory”"),
        (
            "png",
            "{\"error\":{\"code\":500,\"message\":\"trouble\"}}".into(),
            "SERVICE_EXCEPTION",
            "“trouble”",
        ),
        ("png", "[]".into(), "UNEXPECTED_BODY", "the service sent JSON"),
        ("png", "{\"message\":\"sign in\"}".into(), "UNEXPECTED_BODY", "“sign in”"),
        ("png", "<!doctype html><title>busy</title>".into(), "UNEXPECTED_BODY", "the service sent HTML"),
        ("png", "<a/>".into(), "UNEXPECTED_BODY", "the service sent XML"),
        ("png", "upstream connect error".into(), "UNEXPECTED_BODY", "the service sent "),
        ("png", vec![1, 2, 3, 4], "UNEXPECTED_BODY", "the service sent something else"),
        ("png", vec![], "TRUNCATED_BODY", "the service sent nothing"),
        ("png", cut, "TRUNCATED_BODY", "the service sent PNG"),
        ("png", VECTOR.to_vec(), "UNEXPECTED_BODY", "the service sent a vector tile"),
        ("pbf", png(), "UNEXPECTED_BODY", "the service sent PNG"),
        ("pbf", b"[]".to_vec(), "UNEXPECTED_BODY", "the service sent JSON"),
        ("pbf", packed(b"{\"error\":1}"), "UNEXPECTED_BODY", "the service sent gzip"),
        ("pbf", VECTOR[..5].to_vec(), "UNEXPECTED_BODY", "the service sent something else"),
    ] {
        let (work, server) = (Workdir::new(), labelled(body.clone()));
        let url = format!("{}/{{z}}/{{x}}/{{y}}.{extension}", server.url());
        for output in ["out.mbtiles", "out", "out.pmtiles"] {
            let ran = fetch(&work, &url, output, &["--attempts", "1"]);
            let result = ran.json();
            assert_eq!(
                (ran.code, &result["tiles"], &result["failed"]),
                (4, &json!(0), &json!(5)),
                "{said}: {result}"
            );
            for failure in result["failures"].as_array().unwrap() {
                let failure = failure.as_str().unwrap();
                assert!(failure.contains(code) && failure.contains(said), "{said}: {failure}");
            }
        }
        assert!(stored(&work, "out.mbtiles").0.is_empty(), "{said}");
        let files = work.files();
        let is_book = |path: &std::path::PathBuf| {
            path.ends_with("out/tiles.db")
                || path.to_string_lossy().contains("/state-")
                || path.extension().is_some_and(|end| end == "mbtiles" || end == "part")
        };
        assert!(files.iter().all(is_book), "{said}: {files:?}");
    }
}

#[test]
fn a_tile_is_stored_under_any_label_and_its_format_is_that_of_its_bytes() {
    for (extension, body, format) in [
        ("png", png(), "png"),
        ("png", JPEG.to_vec(), "jpg"),
        ("png", WEBP.to_vec(), "webp"),
        ("png", GIF.to_vec(), "gif"),
        ("pbf", VECTOR.to_vec(), "pbf"),
        ("pbf", packed(VECTOR), "pbf"),
        ("mvt", packed(b""), "pbf"),
    ] {
        let (work, server) = (Workdir::new(), labelled(body.clone()));
        let url = format!("{}/{{z}}/{{x}}/{{y}}.{extension}", server.url());
        let ran = fetch(&work, &url, "out.mbtiles", &[]);
        assert_eq!(ran.code, 0, "{format}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(stored(&work, "out.mbtiles"), (vec![body.clone(); 5], format.to_owned()));
        assert_eq!(server.seen().len(), 5, "{format}: no tile was asked for twice");
        let ran = fetch(&work, &url, "out.pmtiles", &[]);
        assert_eq!(ran.code, 0, "{format}: {}", ran.stderr);
        let file = std::fs::read(work.path("out.pmtiles")).unwrap();
        let kind = match format {
            "pbf" => 1,
            "png" => 2,
            "jpg" => 3,
            "webp" => 4,
            _ => 0,
        };
        assert_eq!(file[99], kind, "{format}: the type in the header");
    }
}

/// Answers one thing first and another from then on.
fn first(once: Vec<u8>, then: Vec<u8>) -> Canned {
    let count = Arc::new(AtomicUsize::new(0));
    Canned::bytes(
        move |_| if count.fetch_add(1, Ordering::Relaxed) == 0 { once.clone() } else { then.clone() },
    )
}

#[test]
fn an_error_under_the_label_of_an_image_is_asked_again_as_what_it_is() {
    let throttle = "200 OK\r\nContent-Type: image/png\r\nRetry-After: 1\r\n\r\n{\"error\":{\"code\":429,\"message\":\"slowly\"}}";
    for (once, calls) in [
        (answer("image/png", b"[]"), 2),
        (answer("image/png", BUSY.as_bytes()), 2),
        (answer("image/png", &png()[..60]), 2),
        (throttle.as_bytes().to_vec(), 2),
        // The request is wrong, and stays so.
        (answer("image/png", EXCEPTION.as_bytes()), 1),
        // There is no tile here.
        (b"204 No Content\r\nContent-Type: image/png\r\n\r\n".to_vec(), 1),
    ] {
        let (work, server) = (Workdir::new(), first(once.clone(), answer("image/png", &png())));
        let url = format!("{}/{{z}}/{{x}}/{{y}}.png", server.url());
        let ran = fetch_zoom(&work, &url, "0..0", ("out.mbtiles", &[]));
        let (said, result) = (String::from_utf8_lossy(&once).into_owned(), ran.json());
        assert_eq!(server.seen().len(), calls, "{said}: {result}");
        let is_none = said.starts_with("204");
        let wanted = if is_none {
            [0, 1, 0]
        } else if calls == 1 {
            [0, 0, 1]
        } else {
            [1, 0, 0]
        };
        let found = ["tiles", "nothing", "failed"].map(|key| result[key].as_u64().unwrap());
        assert_eq!(found, wanted, "{said}: {result}");
    }
}

#[test]
fn an_image_that_is_made_on_request_is_no_exception() {
    for (body, said) in [
        (EXCEPTION.as_bytes().to_vec(), "“no layer <roads>”"),
        (b"[]".to_vec(), ""),
        (b"{\"error\":{\"message\":\"no credit\"}}".to_vec(), "no credit"),
        (b"try later".to_vec(), "sent text with status 200 in place of TIFF"),
        (png(), "sent PNG with status 200 in place of TIFF"),
    ] {
        let work = Workdir::new();
        work.write("token", "secret");
        work.write(
            "requests.ndjson",
            "{\"key\":\"a.tif\",\"body\":{\"n\":1}}\n{\"key\":\"b.bin\",\"body\":{\"n\":2}}\n",
        );
        let is_picture = body == png();
        let server = Canned::bytes(move |_| answer("image/tiff", &body));
        let url = format!("{}/process", server.url());
        let args = ["fetch", &url, "--requests", "requests.ndjson", "-o", "images", "--format", "json"];
        let few = ["--attempts", "1", "--key", "file:token", "--quiet"];
        let ran: Ran = work.command(&[&args[..], &few].concat()).output().unwrap().into();
        assert_ne!(ran.code, 0, "{said}: {} {}", ran.stdout, ran.stderr);
        let failed = ran.json()["failed"].clone();
        assert_eq!(failed[0]["key"], "a.tif", "{failed}");
        assert!(failed[0]["message"].as_str().unwrap().contains(said), "{said}: {failed}");
        // Nothing says what the second one should be; words are not what the label says.
        assert_eq!(failed.as_array().unwrap().len(), if is_picture { 1 } else { 2 }, "{said}: {failed}");
        let stored: Vec<_> =
            work.files().into_iter().filter(|path| path.starts_with(work.path("images"))).collect();
        assert_eq!(stored.len(), usize::from(is_picture), "{said}: {stored:?}");
    }
}

#[test]
fn an_exception_in_place_of_a_raster_is_told_with_its_text() {
    let work = Workdir::new();
    let info = |address: &str| -> Ran {
        let args = ["raster", "info", address, "--format", "json", "--attempts", "1"];
        work.command(&args).output().unwrap().into()
    };
    work.write("a.tif", EXCEPTION);
    let ran = info("a.tif");
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code != 0 && said.contains("“no layer <roads>”"), "{said}");
    assert!(!said.contains("CORRUPTED_HEADER"), "{said}");
    for (name, body, words) in
        [("b.tif", "[]", "which is JSON"), ("c.tif", "<!doctype html>", "which is HTML")]
    {
        work.write(name, body);
        let ran = info(name);
        assert!(ran.code != 0 && ran.stderr.contains(words), "{} {}", ran.stdout, ran.stderr);
    }
    for status in ["200 OK", "206 Partial Content"] {
        let server = Canned::bytes(move |_| {
            let range = format!("Content-Range: bytes 0-{}/{0}", EXCEPTION.len() - 1);
            let range = range.replace(&format!("/{}", EXCEPTION.len() - 1), &format!("/{}", EXCEPTION.len()));
            format!("{status}\r\nContent-Type: image/tiff\r\n{range}\r\n\r\n{EXCEPTION}").into_bytes()
        });
        let ran = info(&format!("{}/a.tif", server.url()));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code != 0 && said.contains("“no layer <roads>”"), "{status}: {said}");
        assert!(said.contains("SERVICE_EXCEPTION"), "{status}: {said}");
        assert_eq!(server.seen().len(), 1, "{status}: a request that is wrong is not repeated");
    }
}

#[test]
fn the_letter_of_a_raster_has_the_code_of_the_service() {
    let work = Workdir::new();
    work.write("a.tif", EXCEPTION);
    work.write(
        "m.yaml",
        "pipeline:\n  id: rasters\n  retry_policy: { max_attempts: 1, base_delay: 10ms, retryable_status_codes: [429, 503] }\n  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n  source: { rasters: [a.tif] }\n  steps:\n    - raster: { warp: { to: \"EPSG:3857\" }, output: out }\n  sink: { file: index.geojsonl }\n  dead_letters: {}\n",
    );
    let ran: Ran = work.command(&["run", "m.yaml", "--quiet"]).output().unwrap().into();
    assert_eq!(ran.code, 4, "{} {}", ran.stdout, ran.stderr);
    let ran: Ran = work.command(&["dlq", "ls", "--format", "json"]).output().unwrap().into();
    let letters: Value = ran.json();
    let text = letters.to_string();
    assert!(text.contains("SERVICE_EXCEPTION"), "{text}");
}
