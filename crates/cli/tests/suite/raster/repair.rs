//! `tidegate raster repair`. Each damage has its case in the tests of the crate; here are exit codes,
//! words and files.

use std::fs;

use serde_json::Value;
use tidegate_raster::Compression;

use crate::common::tidegate;
use crate::raster::{write_cog, write_cog_of};

#[test]
fn repaired_partial_refused_and_transient() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (sound, broken, out) = (path("sound.tif"), path("broken.tif"), path("out.tif"));
    write_cog(sound.as_ref(), Compression::Deflate, 1);
    let bytes = fs::read(&sound).unwrap();

    let ran = tidegate(&["raster", "repair", &sound, &out]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("sound"), "{}", ran.stdout);
    assert_eq!(fs::read(&out).unwrap(), bytes);

    let mut damaged = bytes.clone();
    damaged[..4].fill(0);
    fs::write(&broken, &damaged).unwrap();
    let ran = tidegate(&["raster", "repair", &broken, &out, "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&said["outcome"], &said["proof"]), (&"repaired".into(), &"checksum".into()));
    assert_eq!(said["changes"][0]["to"], "49 49 2a 00");
    assert_eq!(fs::read(&broken).unwrap(), damaged, "the input was touched");

    let (cut, rest) = (path("cut.tif"), path("rest.tif"));
    fs::write(&cut, &bytes[..bytes.len() / 4 * 3]).unwrap();
    let ran = tidegate(&["raster", "repair", &cut, &rest]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("CORRUPTED_BLOCK") && ran.stderr.contains("--partial"), "{}", ran.stderr);
    assert!(!dir.path().join("rest.tif").exists());
    let ran = tidegate(&["raster", "repair", &cut, &rest, "--partial"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stdout.contains("partial") && ran.stdout.contains('%'), "{}", ran.stdout);

    let message = path("message.tif");
    fs::write(&message, "<Error><Code>SlowDown</Code></Error>").unwrap();
    let ran = tidegate(&["raster", "repair", &message, "--dry-run"]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert!(ran.stderr.contains("ERROR_DOCUMENT"), "{}", ran.stderr);
    assert_eq!(tidegate(&["raster", "repair", &path("none.tif"), &out]).code, 2);
}

/// A report names a thousand lost blocks and counts all of them.
#[test]
fn all_lost_blocks_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (cut, rest) = (path("cut.tif"), path("rest.tif"));
    write_cog_of(cut.as_ref(), (640, 16), Compression::Deflate, 1);
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 100 * 35]).unwrap();
    let ran = tidegate(&["raster", "repair", &cut, &rest, "--partial", "--format", "json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["blocks"], 1600);
    assert_eq!(said["blocks_lost"].as_array().unwrap().len(), 1000);
    // All blocks have the same size, so the lost pixels tell how many there are.
    let lost = said["blocks_lost_count"].as_u64().unwrap();
    assert!(lost > 1000, "{lost}");
    assert_eq!(said["pixels_lost"], lost * 256);
    let ran = tidegate(&["raster", "repair", &cut, &path("none.tif")]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&format!("{lost} of 1600 blocks are lost")), "{}", ran.stderr);
}
