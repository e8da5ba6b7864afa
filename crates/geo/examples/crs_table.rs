//! `crs_table CANDIDATES SAME ALIASES OUT`: verifies what `tools/crs_candidates.py` took from PROJ and
//! writes `data/crs.bin`. A system is verified if proj4rs brings all sixteen points to within a
//! centimetre of where PROJ brings them, there and back. `make crs` runs the whole chain.

use std::collections::HashMap;
use std::io::Write;

use proj4rs::Proj;
use proj4rs::transform::transform;

const METRES_PER_DEGREE: f64 = 111_320.0;

struct Row {
    code: u32,
    base: u32,
    datum: u32,
    flags: u8,
    accuracy: f32,
    area: [f32; 4],
    name: String,
    proj: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, candidates, same, aliases, out] = args.as_slice() else {
        return Err("usage: crs_table CANDIDATES SAME ALIASES OUT".into());
    };
    let wgs84 = Proj::from_proj_string("+proj=longlat +ellps=WGS84 +towgs84=0,0,0")?;
    let mut rows = Vec::new();
    let mut tally: HashMap<(String, &str), u32> = HashMap::new();
    for line in std::fs::read_to_string(candidates)?.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [
            authority,
            code,
            kind,
            north_first,
            deprecated,
            name,
            area,
            accuracy,
            operation,
            proj,
            points,
            base,
            datum,
        ] = cells.as_slice()
        else {
            return Err(format!("a line of {} cells", cells.len()).into());
        };
        let age = if *deprecated == "1" { ", deprecated" } else { "" };
        let of = |kind: &str| {
            let word = match kind {
                "G" => "geographic",
                "H" => "geographic with heights",
                "C" => "geocentric",
                _ => "projected",
            };
            format!("{authority} {word}{age}")
        };
        let (has_height, geocentric) = (matches!(*kind, "H" | "C"), *kind == "C");
        let geographic = matches!(*kind, "G" | "H");
        if *kind == "-" {
            *tally.entry((of(operation), "refused, another operation")).or_default() += 1;
            continue;
        }
        let verdict = match errors(&wgs84, proj, points, geographic || geocentric) {
            Some(worst) if worst <= 0.001 => "within 1 mm",
            Some(worst) if worst <= 0.01 => "within 1 cm",
            Some(worst) if worst <= 1.0 => "refused, within 1 m",
            Some(_) => "refused, worse",
            None => "refused, no projection",
        };
        *tally.entry((of(kind), verdict)).or_default() += 1;
        if verdict.starts_with("refused") {
            writeln!(std::io::stderr(), "{authority}:{code} {verdict}: {proj}")?;
        }
        let verified = !verdict.starts_with("refused");
        let area: Vec<f32> = area.split(',').map(str::parse).collect::<Result<_, _>>()?;
        rows.push(Row {
            code: code.parse()?,
            base: base.parse()?,
            datum: datum.parse()?,
            flags: u8::from(geographic)
                | u8::from(*north_first == "1") << 1
                | u8::from(*deprecated == "1") << 2
                | u8::from(verified) << 3
                | u8::from(*authority == "ESRI") << 4
                | u8::from(has_height) << 5
                | u8::from(geocentric) << 6,
            accuracy: accuracy.parse()?,
            area: area.try_into().map_err(|_| "an area of other than four numbers")?,
            name: (*name).to_owned(),
            proj: (*proj).to_owned(),
        });
    }
    let mut tally: Vec<_> = tally.into_iter().collect();
    tally.sort_unstable();
    let mut said = std::io::stdout().lock();
    for ((group, verdict), count) in tally {
        writeln!(said, "{group:28} {verdict:28} {count}")?;
    }
    rows.sort_by_key(|row| row.code);
    let (same, aliases) = (std::fs::read_to_string(same)?, std::fs::read_to_string(aliases)?);
    std::fs::write(out, table(&rows, &same, &aliases)?)?;
    Ok(())
}

/// The largest error in metres, there or back.
fn errors(wgs84: &Proj, proj: &str, points: &str, geographic: bool) -> Option<f64> {
    let system = Proj::from_proj_string(proj).ok()?;
    let unit = |x: f64| if geographic { x.to_radians() } else { x };
    let mut worst = 0.0f64;
    for point in points.split(';') {
        let numbers: Vec<f64> = point.split(',').filter_map(|x| x.parse().ok()).collect();
        let [lon, lat, x, y, back_lon, back_lat] = numbers.as_slice() else { return None };
        if !x.is_finite() || !back_lon.is_finite() {
            continue;
        }
        let mut there = (lon.to_radians(), lat.to_radians(), 0.0);
        transform(wgs84, &system, &mut there).ok()?;
        worst = worst.max(if geographic {
            apart((there.0.to_degrees(), there.1.to_degrees()), (*x, *y))
        } else {
            f64::hypot(there.0 - x, there.1 - y)
        });
        let mut back = (unit(*x), unit(*y), 0.0);
        transform(&system, wgs84, &mut back).ok()?;
        worst = worst.max(apart((back.0.to_degrees(), back.1.to_degrees()), (*back_lon, *back_lat)));
    }
    Some(worst).filter(|worst| worst.is_finite())
}

/// The distance of two close positions in degrees, in metres.
fn apart(a: (f64, f64), b: (f64, f64)) -> f64 {
    let around = (a.0 - b.0).rem_euclid(360.0);
    let east = around.min(360.0 - around) * b.1.to_radians().cos();
    f64::hypot(east, a.1 - b.1) * METRES_PER_DEGREE
}

fn table(rows: &[Row], same: &str, aliases: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut words: Vec<&str> = Vec::new();
    let mut number_of: HashMap<&str, u16> = HashMap::new();
    for word in rows.iter().flat_map(|row| row.proj.split_ascii_whitespace()) {
        let next = u16::try_from(words.len())?;
        number_of.entry(word).or_insert_with(|| {
            words.push(word);
            next
        });
    }
    let mut out = Vec::new();
    let text = |out: &mut Vec<u8>, text: &str| -> Result<(), Box<dyn std::error::Error>> {
        out.push(u8::try_from(text.len())?);
        out.extend_from_slice(text.as_bytes());
        Ok(())
    };
    out.extend(u32::try_from(words.len())?.to_le_bytes());
    for word in &words {
        text(&mut out, word)?;
    }
    out.extend(u32::try_from(rows.len())?.to_le_bytes());
    for row in rows {
        out.extend(row.code.to_le_bytes());
        out.extend(row.base.to_le_bytes());
        out.extend(row.datum.to_le_bytes());
        out.push(row.flags);
        out.extend(row.accuracy.to_le_bytes());
        out.extend(row.area.iter().flat_map(|x| x.to_le_bytes()));
        text(&mut out, &row.name)?;
        let numbers: Vec<u16> =
            row.proj.split_ascii_whitespace().filter_map(|word| number_of.get(word).copied()).collect();
        out.push(u8::try_from(numbers.len())?);
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
    let known: std::collections::HashSet<u32> = rows.iter().map(|row| row.code).collect();
    let same: Vec<(u32, u32, &str)> = same
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('\t');
            Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?, cells.next()?))
        })
        .filter(|(_, epsg, _)| known.contains(epsg))
        .collect();
    out.extend(u32::try_from(same.len())?.to_le_bytes());
    for (esri, epsg, _) in &same {
        out.extend(esri.to_le_bytes());
        out.extend(epsg.to_le_bytes());
    }
    let aliases: Vec<(u32, &str)> = aliases
        .lines()
        .filter_map(|line| line.split_once('\t').and_then(|(code, name)| Some((code.parse().ok()?, name))))
        .filter(|(code, _)| known.contains(code))
        .chain(same.iter().map(|(_, epsg, name)| (*epsg, *name)))
        .collect();
    out.extend(u32::try_from(aliases.len())?.to_le_bytes());
    for (code, name) in aliases {
        out.extend(code.to_le_bytes());
        text(&mut out, name)?;
    }
    Ok(out)
}
