//! `crs_table CANDIDATES ALIASES OUT`: verifies what `tools/crs_candidates.py` took from PROJ and
//! writes `data/crs.bin`. A system is verified if proj4rs brings all nine points to within a
//! centimetre of PROJ, and back to within a metre.

use std::collections::HashMap;
use std::io::Write;

use proj4rs::Proj;
use proj4rs::transform::transform;

const METRES_PER_DEGREE: f64 = 111_320.0;

struct Row {
    code: u32,
    flags: u8,
    accuracy: f32,
    area: [f32; 4],
    name: String,
    proj: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, candidates, aliases, out] = args.as_slice() else {
        return Err("usage: crs_table IN ALIASES OUT".into());
    };
    let wgs84 = Proj::from_proj_string("+proj=longlat +ellps=WGS84 +towgs84=0,0,0")?;
    let mut rows = Vec::new();
    let mut tally: HashMap<(&str, &str), u32> = HashMap::new();
    for line in std::fs::read_to_string(candidates)?.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [code, kind, north_first, deprecated, name, area, accuracy, _operation, proj, points] =
            cells.as_slice()
        else {
            return Err(format!("a line of {} cells", cells.len()).into());
        };
        let group = match (*kind, *deprecated) {
            ("P", "0") => "projected",
            ("G", "0") => "geographic",
            ("-", _) => "unsupported by the recipe",
            _ => "deprecated",
        };
        if *kind == "-" {
            *tally.entry((group, "refused")).or_default() += 1;
            continue;
        }
        let errors = errors(&wgs84, proj, points, *kind == "G");
        let verdict = match errors {
            Some((there, back)) if there <= 0.001 && back <= 1.0 => "within 1 mm",
            Some((there, back)) if there <= 0.01 && back <= 1.0 => "within 1 cm",
            Some((there, _)) if there <= 1.0 => "within 1 m, refused",
            Some(_) => "worse, refused",
            None => "no projection, refused",
        };
        *tally.entry((group, verdict)).or_default() += 1;
        if *deprecated == "0" && *kind == "P" && accuracy.starts_with('-') && !verdict.contains("refused") {
            *tally.entry((group, "of these only ballpark")).or_default() += 1;
        }
        let verified = !verdict.contains("refused");
        let area: Vec<f32> = area.split(',').map(str::parse).collect::<Result<_, _>>()?;
        rows.push(Row {
            code: code.parse()?,
            flags: u8::from(*kind == "G")
                | u8::from(*north_first == "1") << 1
                | u8::from(*deprecated == "1") << 2
                | u8::from(verified) << 3,
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
        writeln!(said, "{group:28} {verdict:26} {count}")?;
    }
    rows.sort_by_key(|row| row.code);
    std::fs::write(out, table(&rows, &std::fs::read_to_string(aliases)?)?)?;
    Ok(())
}

/// The largest errors in metres, there and back.
fn errors(wgs84: &Proj, proj: &str, points: &str, geographic: bool) -> Option<(f64, f64)> {
    let system = Proj::from_proj_string(proj).ok()?;
    let scale = if geographic { METRES_PER_DEGREE } else { 1.0 };
    let unit = |x: f64| if geographic { x.to_radians() } else { x };
    let (mut worst_there, mut worst_back) = (0.0f64, 0.0f64);
    for point in points.split(';') {
        let numbers: Vec<f64> = point.split(',').filter_map(|x| x.parse().ok()).collect();
        let [lon, lat, x, y] = numbers.as_slice() else { return None };
        if !x.is_finite() {
            continue;
        }
        let mut there = (lon.to_radians(), lat.to_radians(), 0.0);
        transform(wgs84, &system, &mut there).ok()?;
        if geographic {
            there = (there.0.to_degrees(), there.1.to_degrees(), 0.0);
        }
        worst_there = worst_there.max(f64::hypot(there.0 - x, there.1 - y) * scale);
        let mut back = (unit(*x), unit(*y), 0.0);
        transform(&system, wgs84, &mut back).ok()?;
        let around = (back.0.to_degrees() - lon).rem_euclid(360.0);
        let east = around.min(360.0 - around) * lat.to_radians().cos();
        worst_back = worst_back.max(f64::hypot(east, back.1.to_degrees() - lat) * METRES_PER_DEGREE);
    }
    Some((worst_there, worst_back)).filter(|(a, b)| a.is_finite() && b.is_finite())
}

fn table(rows: &[Row], aliases: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
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
    let aliases: Vec<(u32, &str)> = aliases
        .lines()
        .filter_map(|line| line.split_once('\t').and_then(|(code, name)| Some((code.parse().ok()?, name))))
        .filter(|(code, _)| known.contains(code))
        .collect();
    out.extend(u32::try_from(aliases.len())?.to_le_bytes());
    for (code, name) in aliases {
        out.extend(code.to_le_bytes());
        text(&mut out, name)?;
    }
    Ok(out)
}
