//! What `make oracle-raster` asks: reads commands from standard input, one per line with tabs, and
//! answers each with a line of JSON.
//!
//! - `read FILE RAW`: all pixels of all bands, planar, to RAW; and what the head says
//! - `level FILE RAW N`: the same of a resolution
//! - `mask FILE RAW`: the mask
//! - `cog FILE OUT CODEC BLOCK THREADS`: convert

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_raster::{CogOptions, FileBytes, GeoTiff, RasterError, RasterLimits, to_cog, validate};

fn answer(words: &[&str]) -> Result<Value, RasterError> {
    let wrong = || RasterError::invalid("unknown command");
    let (Some(command), Some(file)) = (words.first(), words.get(1)) else { return Err(wrong()) };
    let raster = GeoTiff::open(Arc::new(FileBytes::open(Path::new(file))?), &RasterLimits::default())?;
    let head = raster.head();
    let out = Path::new(words.get(2).ok_or_else(wrong)?);
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).ok_or_else(wrong);
    match *command {
        "read" | "level" => {
            let level = if *command == "level" { number(3)? } else { 0 };
            let window = head.levels.get(level).ok_or_else(wrong)?.window();
            let bands: Vec<u32> = (0..head.bands).collect();
            let all = raster.read_window(level, &bands, window)?;
            std::fs::write(out, all.data.bytes())?;
            let crs = head.crs.as_ref().and_then(|crs| crs.as_ref().ok());
            Ok(json!({
                "width": window.width, "height": window.height, "bands": head.bands, "sample": head.sample.name(),
                "nodata": head.nodata.map(|nodata| nodata.to_string()), "mask": head.mask.is_some(),
                "alpha": head.alpha, "transform": head.transform.map(|transform| transform.0),
                "crs": crs.map(ToString::to_string), "levels": head.levels.len(),
                "names": head.band_info.iter().map(|info| info.name.clone()).collect::<Vec<_>>(),
                "scales": head.band_info.iter().map(|info| (info.scale, info.offset)).collect::<Vec<_>>(),
                "warnings": head.warnings,
            }))
        }
        "mask" => {
            let mask = raster.read_mask(0, head.window())?.ok_or_else(wrong)?;
            std::fs::write(out, mask)?;
            Ok(json!({}))
        }
        "cog" => {
            let options = CogOptions {
                compression: words.get(3).ok_or_else(wrong)?.parse()?,
                block: number(4)? as u32,
                threads: number(5)?,
                ..CogOptions::default()
            };
            let summary = to_cog(&raster, out, &options)?;
            let written = GeoTiff::open(Arc::new(FileBytes::open(out)?), &RasterLimits::default())?;
            let found = validate(&written, true)?;
            Ok(json!({ "len": summary.len, "valid": found.is_cog(), "found": format!("{found:?}") }))
        }
        _ => Err(wrong()),
    }
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split('\t').collect();
        let said = answer(&words).unwrap_or_else(
            |error| json!({ "error": error.to_string(), "cause": format!("{:?}", error.cause) }),
        );
        writeln!(out, "{said}")?;
        out.flush()?;
    }
    Ok(())
}
