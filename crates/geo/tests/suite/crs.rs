//! Every system of the table against PROJ, at places that the table was not verified with.
//!
//! `tests/data/crs_golden.tsv.gz` holds, for every projected and geographic system of EPSG and ESRI,
//! three random places of its area of use and where PROJ 9.5 brings them with the operation that the
//! table names (`tools/crs_candidates.py`). What we transform must agree, there and back; what we
//! cannot must be refused. The tally is the table of `docs/crs.md`.

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
    let page = include_str!("../../../../docs/crs.md");
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

/// Two systems on one datum need no shift, whatever parameters each row of the table has; PROJ 9.5 says where to.
#[test]
fn systems_on_one_datum_are_not_shifted() {
    for (from, to, at, want) in [
        (31467, 31468, [3500000.0, 5400000.0, 100.0], [4279377.8034, 5404343.6359, 100.0000]),
        (31468, 31467, [4500000.0, 5400000.0, 0.0], [3720622.1966, 5404343.6359, 0.0000]),
        (26715, 26716, [500000.0, 4500000.0, 250.0], [-7402.5790, 4517342.3829, 250.0000]),
        (23030, 4230, [500000.0, 4500000.0, 3000.0], [-3.000000000, 40.650154110, 3000.0000]),
        (4211, 3001, [110.5, -7.25, 0.0], [3955486.3292, 98648.3349, 0.0000]),
        (3388, 4284, [50000.0, 3500000.0, 0.0], [51.603484665, 39.054592694, 0.0000]),
        (4284, 3388, [50.0, 42.0, 0.0], [-82852.1467, 3819897.8520, 0.0000]),
        (27572, 4275, [600000.0, 2200000.0, 0.0], [2.337229167, 46.800000000, 0.0000]),
        (25832, 25833, [500000.0, 5900000.0, 0.0], [99869.0751, 5916813.2074, 0.0000]),
        (4267, 26715, [-81.5, 40.5, 0.0], [1475469.2312, 4547088.4721, 0.0000]),
    ] {
        let way = Transform::new(&Crs::epsg(from), &Crs::epsg(to)).unwrap();
        assert_eq!(way.operation().accuracy, Some(0.0), "{from} to {to}");
        assert_eq!((way.operation().grids.len(), way.operation().missing.len()), (0, 0));
        let (x, y, z) = way.position(at[0], at[1], at[2]).unwrap();
        let scale = if f64::abs(want[0]) <= 180.0 { METRES_PER_DEGREE } else { 1.0 };
        let off = f64::hypot(x - want[0], y - want[1]) * scale;
        assert!(off < 1e-4 && (z - want[2]).abs() < 1e-4, "{from} to {to}: {x} {y} {z}");
    }
}

/// Heights take part in a change of datum, and change themselves between systems that have heights; PROJ 9.5 says
/// how.
#[test]
fn heights_are_carried() {
    for (from, to, at, want) in [
        (4326, 31467, [9.0, 48.0, 3000.0], [3500076.3674, 5317987.3116, 3000.0000]),
        (31467, 4326, [3500000.0, 5400000.0, 3000.0], [8.998970952, 48.737539726, 3000.0000]),
        (4979, 4978, [9.0, 48.0, 100.0], [4223142.7117, 668880.0948, 4716950.6446]),
        (4978, 4979, [4223142.7117, 668880.0948, 4716950.6446], [9.000000000, 48.000000000, 100.0000]),
        (4978, 4326, [4223142.7117, 668880.0948, 4716950.6446], [9.000000000, 48.000000000, 100.0000]),
        (4326, 4978, [-75.0, -40.0, 2000.0], [1266722.4428, -4727472.5156, -4079271.1474]),
        (4936, 4979, [4000000.0, 500000.0, 4930000.0], [7.125016349, 50.916429561, 2977.7864]),
        (4978, 27700, [3980000.0, -10000.0, 4970000.0], [528929.4368, 179480.5785, 2130.6844]),
        (27700, 4978, [530000.0, 180000.0, 100.0], [3978353.2985, -8912.3155, 4968717.1131]),
        (4937, 4979, [9.0, 48.0, 100.0], [9.000000000, 48.000000000, 100.0000]),
    ] {
        let way = Transform::new(&Crs::epsg(from), &Crs::epsg(to)).unwrap();
        let (x, y, z) = way.position(at[0], at[1], at[2]).unwrap();
        let scale = if f64::abs(want[0]) <= 180.0 { METRES_PER_DEGREE } else { 1.0 };
        let off = f64::hypot(x - want[0], y - want[1]) * scale;
        assert!(off < 1e-3 && (z - want[2]).abs() < 1e-3, "{from} to {to}: {x} {y} {z}");
    }
}

/// The test points of GIGS, in the tolerance of each. Points of conversions and of the geocentric series must agree or
/// be refused; of the series that change the datum, whose operation is not always the one of the table, the stated
/// accuracy must be true.
#[test]
fn the_published_test_points_of_gigs_agree() {
    let (mut agreed, mut refused, mut wrong) = (0, BTreeMap::<String, u32>::new(), Vec::new());
    for line in include_str!("../data/gigs.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [test, from, to, tolerance, at, want] = cells[..] else { panic!("{line}") };
        let numbers = |text: &str| text.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<f64>>();
        let (at, want) = (numbers(at), numbers(want));
        let crs = |code: &str| Crs::epsg(code.parse().unwrap());
        let Ok(way) = Transform::new(&crs(from), &crs(to)) else {
            *refused.entry(format!("{from} {to}")).or_insert(0) += 1;
            continue;
        };
        let stated = way.operation().accuracy.map_or(f64::INFINITY, f64::from);
        let found = way.position(at[0], at[1], at.get(2).copied().unwrap_or(0.0));
        let (x, y, z) = found.unwrap_or((f64::NAN, 0.0, 0.0));
        let geographic = crs(to).entry().unwrap().geographic;
        let off =
            if geographic { apart((x, y), (want[0], want[1])) } else { f64::hypot(x - want[0], y - want[1]) };
        let off = off.max(want.get(2).map_or(0.0, |height| (z - height).abs()));
        if off <= tolerance.parse::<f64>().unwrap() + stated {
            agreed += 1;
        } else {
            wrong.push(format!("{test}: {line}: {x} {y} {z}, {off} m"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), wrong.len() + agreed);
    // NTF (Paris) is in grads.
    let paris = BTreeMap::from([("4275 4807".to_owned(), 14), ("4807 4275".to_owned(), 14)]);
    assert_eq!((agreed, refused), (650, paris));
}
