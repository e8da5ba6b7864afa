//! `speed none|validity|EPSG:code FILE TIMES`: reads a file once and then judges or reprojects all
//! its geometries some times over, for measuring the user time of one step.

use std::path::Path;

use tidegate_geo::validity::Checker;
use tidegate_geo::{Batch, Crs, crs::Transform, format};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, file, times] = args.as_slice() else { return Err("usage: speed WHAT FILE TIMES".into()) };
    let mut reader = format::open(Path::new(file), &Default::default())?;
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(batch) = reader.next_batch(&mut Vec::new())? {
        batches.push(batch);
    }
    let transform = match what.as_str() {
        "none" | "validity" => None,
        crs => Some(Transform::new(&Crs::wgs84(), &crs.parse()?)?),
    };
    let mut checker = Checker::default();
    let mut invalid = 0u64;
    for _ in 0..times.parse::<u32>()? {
        for batch in &batches {
            for wkb in (0..batch.len()).filter_map(|row| batch.geometry(row)) {
                if what == "validity" {
                    invalid += u64::from(checker.first_flaw(wkb).is_some());
                } else if let Some(transform) = &transform {
                    let mut wkb = wkb.to_vec();
                    invalid += u64::from(transform.geometry(&mut wkb).is_err());
                }
            }
        }
    }
    if invalid > 0 {
        return Err(format!("{invalid} flaws").into());
    }
    Ok(())
}
