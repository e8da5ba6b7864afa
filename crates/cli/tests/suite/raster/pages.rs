//! What pages show of rasters: extents and thumbnails in the report of a run and on the map of letters.

use std::fs;

use serde_json::Value;
use tidegate_raster::Compression;

use crate::common::tidegate;
use crate::raster::{POLICIES, write_cog};

/// The data of a map of letters.
fn letters(page: &str) -> Vec<Value> {
    let from = page.find("type=\"application/json\"").unwrap();
    let json = page[from..].split_once('>').unwrap().1.split_once("</script>").unwrap().0;
    let mut data: Value = serde_json::from_str(json).unwrap();
    let mut letters = data["letters"].take().as_array().unwrap().clone();
    letters.sort_by_key(|letter| letter["code"].to_string());
    letters
}

#[test]
fn reports_and_letters_show_rasters() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir(at("scenes")).unwrap();
    for n in 0..3 {
        write_cog(&dir.path().join(format!("scenes/{n}.tif")), Compression::Deflate, n);
    }
    let mut bytes = fs::read(at("scenes/1.tif")).unwrap();
    bytes[..4].fill(0);
    fs::write(at("scenes/1.tif"), bytes).unwrap();
    let text = format!(
        "pipeline:\n  id: scenes\n{POLICIES}  source: {{ rasters: [scenes], batch_size: 1 }}\n  steps:\n    - raster: {{ survey: true }}\n  gates: [{{ check: one_of, fields: [name], values: [\"0.tif\"], severity: reject }}]\n  sink: {{ file: index.gpkg, key: [name] }}\n"
    );
    fs::write(at("m.yaml"), text).unwrap();
    let (state, report) = (at("state"), at("report.html"));
    let ran = tidegate(&["run", &at("m.yaml"), "--state", &state, "--quiet", "--report", &report]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);

    let page = fs::read_to_string(&report).unwrap();
    assert_eq!(page.matches("src=\"data:image/png;base64,iVBORw0KGgo").count(), 2);
    assert!(page.contains("alt=\"Thumbnail of 0.tif\"") && page.contains("alt=\"Thumbnail of 2.tif\""));
    assert!(page.contains("300 × 300 pixels, 1 × uint16, EPSG:32633"));
    assert!(page.contains("<p class=\"none\">No thumbnail: ") && page.contains("CORRUPTED_HEADER"));
    let area = |class: &str| page.split_once(&format!("class=\"{class}\" d=\"M")).map(|found| found.1);
    // From the central meridian of the zone at 500,000 m east, 5,000,000 m north.
    assert!(area("area").unwrap().starts_with("2 3h10"), "the legend");
    assert_eq!(page.matches("class=\"area\" d=\"M1950.0000 448.").count(), 1, "{page}");
    assert!(area("area-dead").unwrap().starts_with("1950.0000 448."));
    assert!(page.contains("img-src data:;"));

    let store = format!("{state}/letters.db");
    let map = |more: &[&str]| {
        let file = at("dead.html");
        let words = ["dlq", "--store", &store, "map", "-o", &file];
        let ran = tidegate(&[&words[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        letters(&fs::read_to_string(file).unwrap())
    };
    let coarse = map(&[]);
    assert_eq!(coarse.len(), 2);
    let placed: Vec<&Value> = coarse.iter().filter(|letter| letter["extent"].is_array()).collect();
    assert_eq!(placed.len(), 1, "the broken one has no place");
    assert_eq!(placed[0]["extent"], serde_json::json!([15.0, 45.1, 15.1, 45.2]));
    assert!(coarse.iter().all(|letter| letter["picture"].is_null() && letter["raster"].is_null()));
    let hidden = map(&["--reveal", "a test"]);
    assert!(hidden.iter().all(|letter| letter["picture"].is_null()), "no directory was named");
    let exact = map(&["--reveal", "a test", "--rasters", &at("scenes")]);
    let seen: Vec<&Value> = exact.iter().filter(|letter| letter["picture"].is_string()).collect();
    assert_eq!(seen.len(), 1);
    assert!(seen[0]["picture"].as_str().unwrap().starts_with("data:image/png;base64,"));
    assert_eq!(seen[0]["raster"], "300 × 300 pixels, 1 × uint16, EPSG:32633");
    assert_ne!(seen[0]["extent"], placed[0]["extent"], "exact");
    assert!(exact.iter().any(|letter| letter["no_picture"].as_str().is_some_and(|why| why.contains("TIFF"))));
}
