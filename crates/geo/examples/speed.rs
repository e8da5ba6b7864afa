//! `speed validity|CRS [back] FILE TIMES`: reads a file once and then judges all its geometries, or
//! reprojects them to a system or back from it, some times over, for measuring the user time of one
//! step. `oracle/bench_speed.py` measures it.

use std::path::Path;

use tidegate_geo::validity::Checker;
use tidegate_geo::{Crs, crs::Transform, format};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (what, back, file, times) = match args.as_slice() {
        [what, file, times] => (what, false, file, times),
        [what, back, file, times] if back == "back" => (what, true, file, times),
        _ => return Err("usage: speed WHAT [back] FILE TIMES".into()),
    };
    let mut reader = format::open(Path::new(file), &Default::default())?;
    let mut geometries: Vec<Vec<u8>> = Vec::new();
    while let Some(batch) = reader.next_batch(&mut Vec::new())? {
        geometries.extend((0..batch.len()).filter_map(|row| batch.geometry(row)).map(<[u8]>::to_vec));
    }
    let mut transform = None;
    if what != "validity" {
        let crs: Crs = what.parse()?;
        transform = Some(Transform::new(&Crs::wgs84(), &crs)?);
        if back {
            let there = transform.replace(Transform::new(&crs, &Crs::wgs84())?);
            for (wkb, there) in geometries.iter_mut().zip(there.iter().cycle()) {
                there.geometry(wkb)?;
            }
        }
    }
    let mut checker = Checker::default();
    let mut flaws = 0u64;
    for _ in 0..times.parse::<u32>()? {
        for wkb in &geometries {
            flaws += match &transform {
                None => u64::from(checker.first_flaw(wkb).is_some()),
                Some(transform) => u64::from(transform.geometry(&mut wkb.clone()).is_err()),
            };
        }
    }
    std::hint::black_box(flaws);
    Ok(())
}
