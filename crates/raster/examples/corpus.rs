//! Does one thing with one file and says how it ended, for runs over many strange files:
//!
//! ```sh
//! cargo run --example corpus -- info|validate|thumbnail|repair|cog FILE
//! cargo run --example corpus -- mutate FILE       # reads 100 damaged copies of it
//! ```

#![allow(clippy::print_stdout, reason = "a tool for developers")]

use std::path::Path;
use std::sync::Arc;

use tidegate_raster::repair::{RepairOptions, repair};
use tidegate_raster::{
    CogOptions, FileBytes, GeoTiff, MemoryBytes, PixelWindow, RasterLimits, thumbnail, to_cog, validate,
};

/// Reads damaged copies of a file in every way. A panic ends the program; returns the slowest.
fn mutate(file: &Path) -> Result<String, String> {
    let sound = std::fs::read(file).map_err(|error| error.to_string())?;
    let mut seed = 0x9e37_79b9_7f4a_7c15 ^ sound.len() as u64;
    let mut below = |limit: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % limit.max(1) as u64) as usize
    };
    let limits = RasterLimits::default();
    let (mut opened, mut slowest) = (0, 0);
    for _ in 0..100 {
        let mut bytes = sound.clone();
        for _ in 0..=below(6) {
            // Headers are at the start or at the end.
            let near = below(2) == 0;
            let at = match below(3) {
                0 => below(bytes.len()),
                _ if near => below(bytes.len().min(400)),
                _ => bytes.len() - 1 - below(bytes.len().min(400)),
            };
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x7f, 0x80, 0xff, *byte ^ 1, *byte ^ 0x10, below(256) as u8][below(8)];
            }
        }
        if below(10) == 0 {
            bytes.truncate(below(bytes.len()));
        }
        let began = std::time::Instant::now();
        tidegate_raster::repair::fuzz(&bytes);
        if let Ok(raster) = GeoTiff::open(Arc::new(MemoryBytes::new("m.tif", bytes)), &limits) {
            opened += 1;
            let head = raster.head();
            let window = PixelWindow::whole(head.width.min(256), head.height.min(256));
            let _ = raster.read_window(0, &[0], window);
            let _ = raster.read_mask(0, window);
            let _ = validate(&raster, true);
            let _ = thumbnail(&raster, 256);
        }
        slowest = slowest.max(began.elapsed().as_millis());
    }
    Ok(format!("{opened} of 100 opened, the slowest took {slowest} ms"))
}

fn ended(what: &str, file: &Path) -> Result<String, String> {
    let output = std::env::temp_dir().join(format!("corpus-{}.tif", std::process::id()));
    if what == "mutate" {
        return mutate(file);
    }
    if what == "repair" {
        let options = RepairOptions { partial: true, unplaced: true, ..RepairOptions::default() };
        let report = repair(file, &output, &options).map_err(|error| error.to_string())?;
        let _ = std::fs::remove_file(&output);
        return Ok(format!("{} {}", report.outcome.word(), report.proof.word()));
    }
    let opened =
        FileBytes::open(file).and_then(|bytes| GeoTiff::open(Arc::new(bytes), &RasterLimits::default()));
    let raster = opened.map_err(|error| format!("{}: {error}", error.code()))?;
    let done = match what {
        "info" => Ok(format!("{} x {}", raster.head().width, raster.head().height)),
        "validate" => {
            validate(&raster, true).map(|found| format!("{} blocks {:?}", found.blocks, found.errors.first()))
        }
        "thumbnail" => thumbnail(&raster, 256).map(|made| format!("{} x {}", made.width, made.height)),
        "cog" => to_cog(&raster, &output, &CogOptions::default()).map(|made| format!("{} bytes", made.len)),
        _ => return Err(format!("{what}: info, validate, thumbnail, repair or cog")),
    };
    let _ = std::fs::remove_file(&output);
    done.map_err(|error| format!("{}: {error}", error.code()))
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(what), Some(file)) = (words.next(), words.next()) else {
        println!("corpus WHAT FILE");
        return;
    };
    match ended(&what, Path::new(&file)) {
        Ok(said) => println!("ok: {said}"),
        Err(said) => println!("error: {said}"),
    }
}
