//! `raster info`, `validate` and `cog`.

use serde_json::{Value, json};

use super::fixture;
use crate::common::tidegate;

#[test]
fn info_in_all_formats() {
    let file = fixture("separate-lzw.tif");
    let ran = tidegate(&["raster", "info", &file]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for words in [
        "37 x 29 pixels, 3 x int32",
        "EPSG:32633",
        "10 x 10, from tags",
        "lzw, predictor 2, strips of 37 x 8, bands separate",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let ran = tidegate(&["raster", "info", &file, &fixture("mask.tif"), "--format", "json"]);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said[0]["transform"], json!([500_000.0, 10.0, 0.0, 4_900_000.0, 0.0, -10.0]));
    assert_eq!((&said[0]["mask"], &said[1]["mask"]), (&Value::Null, &json!("internal")));
    let ran = tidegate(&["raster", "info", &file, "--format", "geojson"]);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    let corner = &said["features"][0]["geometry"]["coordinates"][0][0];
    assert!((corner[0].as_f64().unwrap() - 15.0).abs() < 1e-6, "{corner}");
    assert!((corner[1].as_f64().unwrap() - 44.25).abs() < 0.01, "{corner}");
}

#[test]
fn a_cog_is_written_whole_and_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.tif").display().to_string();
    let file = fixture("twelve-bits.tif");
    let job = ["raster", "cog", &file, &out, "--block", "16", "--compress", "zstd", "--threads", "2"];
    let ran = tidegate(&job);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("9 tiles, 2 overviews"), "{}", ran.stderr);
    let ran = tidegate(&job);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--overwrite"), "{}", ran.stderr);
    assert_eq!(tidegate(&[&job[..], &["--overwrite", "--quiet"]].concat()).code, 0);
    let ran = tidegate(&["raster", "validate", &out, "--full"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("valid COG; 9 blocks, 9 unpacked"), "{}", ran.stdout);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");

    // One rotten byte in the last tile: validate finds it, a conversion writes nothing.
    let mut bytes = std::fs::read(&out).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 0x55;
    std::fs::write(&out, &bytes).unwrap();
    let ran = tidegate(&["raster", "validate", &out, "--full", "--format", "json"]);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &said[0]["valid"], &said[0]["unpacked"]), (1, &json!(false), &json!(8)), "{said}");
    let next = dir.path().join("next.tif").display().to_string();
    let ran = tidegate(&["raster", "cog", &out, &next]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("CORRUPTED_BLOCK"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
}

#[test]
fn what_is_wrong_decides_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.tif").display().to_string();
    std::fs::write(&path, "<html>503 Slow Down</html>").unwrap();
    let ran = tidegate(&["raster", "info", &path]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("not a TIFF file: it begins as HTML does"), "{}", ran.stderr);
    assert_eq!(tidegate(&["raster", "info", "/nonexistent.tif"]).code, 2);
    let strips = fixture("packbits.tif");
    assert_eq!(tidegate(&["raster", "validate", &strips, "--full"]).code, 0, "small enough for strips");
    let out = dir.path().join("out.tif").display().to_string();
    for wrong in [["--block", "17"], ["--effort", "99"], ["--compress", "jpeg"], ["--predictor", "float"]] {
        let ran = tidegate(&[&["raster", "cog", &strips, &out][..], &wrong].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {}", ran.stderr);
    }
    assert!(!std::path::Path::new(&out).exists());
}
