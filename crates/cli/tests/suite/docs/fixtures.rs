//! What the commands of the pages need and the pages do not show: input files, hosts, keys.

use std::fmt::Write;
use std::fs;

use crate::docs::root;

/// The id of a letter on the pages; the newest letter of the store stands for it.
pub(crate) const LETTER: &str = "5f2c90ab";

/// Secrets and places that pages take from the environment.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[("OPENCAGE_KEY", "secret"), ("LETTERS_STORE", "others.db")];

/// What the pages write, and what stands for it here; `url` is a service of `tidegate chaos`.
pub(crate) fn substitutes(url: &str) -> Vec<(String, String)> {
    [
        ("https://geo.example/geoserver/wfs", "{url}/wfs"),
        ("https://geo.example/", "{url}/"),
        ("topp:parcels", "tide:parcels"),
        ("--profile opencage", "--profile opencage --url {url}/opencage"),
        ("tidegate store", "tidegate store --endpoint {url}/s3 --anonymous"),
        // A queue without a server: what the page shows of it is the same.
        ("redis://127.0.0.1:6390/geotasks", "tasks.db"),
        // Any free port, so that pages can run at once.
        ("--addr 127.0.0.1:8787", "--addr 127.0.0.1:0"),
        ("--metrics 127.0.0.1:9464", "--metrics 127.0.0.1:0"),
    ]
    .map(|(from, to)| (from.to_owned(), to.replace("{url}", url)))
    .into()
}

/// Policies that every manifest needs.
const POLICY: &str =
    "  retry_policy: { max_attempts: 3, base_delay: 1s, retryable_status_codes: [429, 503] }\n";

/// A manifest `parcels` from `parcels.geojsonl` with further parts.
fn manifest(invalid_halts: bool, parts: &str) -> String {
    format!(
        "pipeline:\n  id: parcels\n  source: {{ file: parcels.geojsonl }}\n  sink: {{ file: out.gpkg, key: [parcel_id] }}\n\
         {POLICY}  tolerance: {{ max_null_rate: 0.005, halt_on_geometry_invalid: {invalid_halts} }}\n{parts}"
    )
}

/// A square, or with `bow_tie` an invalid polygon, in London.
fn feature(number: usize, bow_tie: bool) -> String {
    feature_at(-0.1 + 0.001 * number as f64, 51.5, number, bow_tie)
}

/// The same at a place.
fn feature_at(x: f64, y: f64, number: usize, bow_tie: bool) -> String {
    let (x, y, right, top) = (x, y, x + 0.000_512_3, y + 0.000_512_3);
    let corners = if bow_tie {
        [(x, y), (right, top), (right, y), (x, top), (x, y)]
    } else {
        [(x, y), (right, y), (right, top), (x, top), (x, y)]
    };
    let ring: Vec<String> = corners.iter().map(|(x, y)| format!("[{x:.7},{y:.7}]")).collect();
    let zone = if number.is_multiple_of(2) { "A" } else { "C" };
    format!(
        r#"{{"type":"Feature","id":{number},"properties":{{"parcel_id":{number},"zone":"{zone}","area":{}}},"geometry":{{"type":"Polygon","coordinates":[[{}]]}}}}"#,
        90 + number * 10,
        ring.join(",")
    )
}

/// Ten features as lines, with an invalid one or not.
fn lines(invalid: bool) -> String {
    (0..10).fold(String::new(), |text, n| text + &feature(n, invalid && n == 7) + "\n")
}

/// The same as a collection.
fn collection(invalid: bool) -> String {
    let features: Vec<String> = lines(invalid).lines().map(str::to_owned).collect();
    format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","))
}

/// Three squares side by side at a place, as a collection.
fn collection_at(x: f64, y: f64) -> String {
    let features: Vec<String> = (0..3).map(|n| feature_at(x + 0.001 * n as f64, y, n, false)).collect();
    format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","))
}

/// Addresses of one street.
fn addresses(rows: usize) -> String {
    (1..=rows).fold("id,street,city,address\n".to_owned(), |mut text, n| {
        writeln!(text, "{n},{n} Harbour Road,Porto,\"{n} Harbour Road, Porto\"").unwrap();
        text
    })
}

/// Files of the repository, by path.
fn shipped(paths: &[&'static str]) -> Vec<(&'static str, String)> {
    paths.iter().map(|path| (*path, fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// What the services of a page hold.
pub(crate) fn chaos(page: &str) -> &'static str {
    match page {
        "docs/raster.md" => "--features 3 --rasters bands",
        _ => "--features 300",
    }
}

/// The files of the repository that a page's commands read under another name.
pub(crate) fn copies(page: &str) -> &'static [(&'static str, &'static str)] {
    match page {
        "docs/raster.md" => &[
            ("scene.tif", "crates/raster/tests/fixtures/twelve-bits.tif"),
            ("archive/one.tif", "crates/raster/tests/fixtures/twelve-bits.tif"),
            ("archive/two.tif", "crates/raster/tests/fixtures/packbits.tif"),
            ("bands/B04.tif", "crates/raster/tests/fixtures/packbits.tif"),
            ("bands/B08.tif", "crates/raster/tests/fixtures/packbits.tif"),
        ],
        "docs/raster-transform.md" => &[
            ("scene.tif", "crates/raster/tests/fixtures/jpeg.tif"),
            ("west.tif", "crates/raster/tests/fixtures/packbits.tif"),
            ("east.tif", "crates/raster/tests/fixtures/packbits.tif"),
        ],
        _ => &[],
    }
}

/// The files that a page's commands read.
pub(crate) fn files(page: &str) -> Vec<(&'static str, String)> {
    match page {
        "README.md" => shipped(&["examples/data/parcels.geojsonl", "scenarios/herd.yaml"]),
        "docs/audit.md" => {
            vec![("parcels.geojsonl", lines(true)), ("parcels.yaml", manifest(false, ""))]
        }
        "docs/check.md" => vec![("parcels.geojson", collection(true)), ("sound.geojson", collection(false))],
        "docs/convert.md" => vec![
            ("parcels.geojson", collection(false)),
            ("broken.geojson", collection(true)),
            ("news.geojsonl", lines(false)),
        ],
        "docs/dead-letters.md" => vec![
            ("in.csv", addresses(50)),
            ("parcels.geojsonl", lines(true)),
            (
                "parcels.yaml",
                manifest(
                    false,
                    "  steps: [{ promote_to_multi: true }]\n  \
                     dead_letters: { remedies: [{ rule: make_valid, tolerance: 0.5 }] }\n",
                ),
            ),
        ],
        "docs/gates.md" => vec![("parcels.geojsonl", lines(true)), ("parcels.yaml", manifest(true, ""))],
        "docs/geocode.md" => vec![("in.csv", addresses(200))],
        "docs/pipeline.md" => {
            let mut files = shipped(&["examples/policy.yaml"]);
            files[0].0 = "shared/policy.yaml";
            let named = |text: String| text.replace("parcel_id", "PARCEL_ID").replace("area", "AREA");
            files.extend([
                ("parcels.geojsonl", lines(true)),
                ("cadastre.geojsonl", named(lines(false)).replacen("\"AREA\":100", "\"AREA\":\"large\"", 1)),
                ("addresses.csv", addresses(10)),
                ("addresses.yaml", GEOCODED.to_owned() + POLICY),
            ]);
            files
        }
        "docs/raster.md" | "docs/raster-transform.md" => {
            vec![("parcels.geojson", collection_at(15.0005, 44.2515))]
        }
        "docs/replay.md" => vec![("parcels.geojson", collection(true))],
        "docs/simulate.md" => {
            let mut files = shipped(&["scenarios/herd.yaml"]);
            files.extend([("parcels.geojsonl", lines(false)), ("parcels.yaml", manifest(true, ""))]);
            files
        }
        "docs/store.md" => vec![("2026/1.png", "one".to_owned()), ("2026/2.png", "two".to_owned())],
        "docs/serve.md" => vec![
            ("parcels.geojsonl", lines(false)),
            ("parcels.yaml", manifest(true, "  alerts: { letter_age: 2d }\n")),
        ],
        _ => vec![("parcels.geojsonl", lines(false)), ("parcels.yaml", manifest(true, ""))],
    }
}

/// A manifest with a provider at its own address; `plan` does not call it.
const GEOCODED: &str = "pipeline:
  id: addresses
  services: { g: { profile: opencage, key: env:OPENCAGE_KEY } }
  source: { file: addresses.csv }
  steps: [{ geocode: { service: g, address: [street, city] } }]
  sink: { file: places.gpkg, key: [id] }
  tolerance: { max_null_rate: 0.5, halt_on_geometry_invalid: true }
";

/// Commands that make files of other formats, or state, before the page's own.
pub(crate) fn commands(page: &str) -> &'static [&'static str] {
    match page {
        "docs/check.md" => {
            &["tidegate convert sound.geojson parcels.gpkg", "tidegate convert sound.geojson parcels.fgb"]
        }
        "docs/convert.md" => &["tidegate convert parcels.geojson grid.shp --to-crs EPSG:27700"],
        "docs/serve.md" => &["tidegate run parcels.yaml", "tidegate run parcels.yaml --state state"],
        _ => &[],
    }
}
