//! Every system of the table against PROJ, at places that the table was not verified with.
//!
//! `tests/data/crs_golden.tsv.gz` holds, for every projected and geographic system of EPSG and ESRI,
//! three random places of its area of use and where PROJ 9.5 brings them with the operation that the
//! table names (`tools/crs_candidates.py`). What we transform must agree, there and back; what we
//! cannot must be refused. The tally is the table of `docs/crs.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::collections::BTreeMap;
use std::io::Read;

use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;

const METRES_PER_DEGREE: f64 = 111_320.0;

fn golden() -> String {
    let packed = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/crs_golden.tsv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    text
}

/// The distance of two close positions in degrees, in metres.
fn apart(a: (f64, f64), b: (f64, f64)) -> f64 {
    let around = (a.0 - b.0).rem_euclid(360.0);
    let east = around.min(360.0 - around) * b.1.to_radians().cos();
    f64::hypot(east, a.1 - b.1) * METRES_PER_DEGREE
}

/// How far we are from PROJ in metres, at worst; `None` if the system is refused.
fn worst(code: &str, geographic: bool, points: &str) -> Option<f64> {
    let crs: Crs = code.parse().ok()?;
    let there = Transform::new(&Crs::wgs84(), &crs).ok()?;
    let back = Transform::new(&crs, &Crs::wgs84()).ok()?;
    let mut worst = 0.0f64;
    for point in points.split(';').filter(|point| !point.is_empty()) {
        let numbers: Vec<f64> = point.split(',').map(|number| number.parse().unwrap()).collect();
        let (lon, lat, x, y) = (numbers[0], numbers[1], numbers[2], numbers[3]);
        if !x.is_finite() {
            continue;
        }
        let home = (numbers.get(4).copied().unwrap_or(lon), numbers.get(5).copied().unwrap_or(lat));
        let to = there.position(lon, lat, 0.0).map_or((f64::INFINITY, 0.0), |(x, y, _)| (x, y));
        let from = back.position(x, y, 0.0).map_or((f64::INFINITY, 0.0), |(x, y, _)| (x, y));
        let error = if geographic { apart(to, (x, y)) } else { f64::hypot(to.0 - x, to.1 - y) };
        // Back to where PROJ leads, or to where the place was: some of PROJ's ways back are shorter series
        // than ours, and small rotations do not lead back exactly.
        let back = if home.0.is_finite() { apart(from, home).min(apart(from, (lon, lat))) } else { 0.0 };
        for error in [error, back] {
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    Some(worst)
}

#[test]
fn every_system_agrees_with_proj_or_is_refused() {
    // exact, to a centimetre, refused, ballpark
    let mut tally: BTreeMap<(u8, String), [u32; 4]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in golden().lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [code, kind, deprecated, accuracy, points] = cells[..] else { panic!("{line}") };
        let authority = code.split(':').next().unwrap();
        let name = match (kind, deprecated) {
            ("P", "0") => (0, "projected"),
            ("G", "0") => (1, "geographic"),
            ("P", _) => (2, "projected, deprecated"),
            _ => (3, "geographic, deprecated"),
        };
        let place = name.0 + if authority == "ESRI" { 4 } else { 0 };
        let row = tally.entry((place, format!("{authority} {}", name.1))).or_default();
        match worst(code, kind == "G", points) {
            None => row[2] += 1,
            Some(error) if error <= 0.01 => {
                row[usize::from(error > 0.001)] += 1;
                row[3] += u32::from(accuracy.starts_with('-'));
            }
            Some(error) => wrong.push(format!("{code} {error} m")),
        }
    }
    assert!(wrong.is_empty(), "{} systems are wrong: {wrong:#?}", wrong.len());
    let mut table = String::from(
        "| systems | all | exact (≤ 1 mm) | ≤ 1 cm | wrong | refused | only a ballpark |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for ((_, name), [exact, close, refused, ballpark]) in &tally {
        let all = exact + close + refused;
        table.push_str(&format!("| {name} | {all} | {exact} | {close} | 0 | {refused} | {ballpark} |\n"));
    }
    let page = include_str!("../../../docs/crs.md");
    assert!(page.contains(&table), "docs/crs.md should hold this table:\n{table}");
}

/// The systems that most data is in, by name, to a millimetre.
#[test]
fn the_systems_of_daily_use_are_exact() {
    let golden = golden();
    let rows: BTreeMap<&str, Vec<&str>> =
        golden.lines().map(|line| (line.split('\t').next().unwrap(), line.split('\t').collect())).collect();
    let utm = (32601..=32660).chain(32701..=32760).chain(25828..=25838).chain(26901..=26923);
    let national = [
        3857, 3395, 3035, 3034, 27700, 2154, 2056, 21781, 28992, 31370, 31467, 31468, 5514, 2180, 3006, 3067,
        5070, 2263, 2264, 2272, 3031, 3413, 3978, 3347, 29902, 2193, 28355, 7855, 6668, 4326, 4258, 4269,
        4283, 4171, 23030, 31256, 31287, 3763, 3912, 3765, 2100, 5186, 4490, 4555, 32161,
    ];
    let esri = [54030, 54009, 54034, 102_001, 102_003, 102_008, 102_009, 102_013, 102_014];
    let all = utm.chain(national).map(|code| format!("EPSG:{code}"));
    for code in all.chain(esri.into_iter().map(|code| format!("ESRI:{code}"))) {
        let Some(row) = rows.get(code.as_str()) else { panic!("{code} is not in the golden file") };
        let error = worst(&code, row[1] == "G", row[4]);
        assert!(error.is_some_and(|error| error <= 0.001), "{code}: {error:?}");
    }
}
