//! `tidegate raster validate`: whether a file is a COG, and whether all of it can be read.

use std::io;

use serde_json::json;

use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::layer;
use crate::out::{self, OutputFormat};
use crate::progress::thousands;

/// Check that rasters are valid, and valid COGs
///
/// Directories, positions of blocks, and the layout that GDAL's COGs promise are checked. With
/// --full every block is unpacked too. A GeoTIFF that is not a COG is an error unless --any is
/// given.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster validate scene.tif
  tidegate raster validate *.tif --full --any

Exit codes: 0 all files are valid; 1 a file is not; 2 usage error or no such file.")]
pub(crate) struct ValidateRaster {
    /// Rasters
    #[arg(value_name = "FILE", required = true)]
    files: Vec<RasterFile>,

    /// Unpack every block
    #[arg(long)]
    full: bool,

    /// Accept files that are not COGs
    #[arg(long)]
    any: bool,

    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

pub(super) fn run(args: &ValidateRaster) -> io::Result<Exit> {
    let (mut all, mut exit) = (Vec::new(), Exit::Done);
    for file in &args.files {
        let name = super::named(file);
        let found = match open(file).and_then(|raster| tidegate_raster::validate(&raster, args.full)) {
            Ok(found) => found,
            Err(error) => {
                exit = give_up("validate", file, &error);
                continue;
            }
        };
        let good = found.errors.is_empty() && (args.any || found.not_cog.is_empty());
        if !good {
            exit = Exit::Failure;
        }
        if args.format == OutputFormat::Json {
            all.push(json!({
                "file": name,
                "valid": good,
                "cog": found.is_cog(),
                "not_cog": found.not_cog,
                "errors": found.errors,
                "warnings": found.warnings,
                "blocks": found.blocks,
                "absent": found.absent,
                "unpacked": found.unpacked,
            }));
            continue;
        }
        let verdict = match (found.errors.is_empty(), found.not_cog.is_empty()) {
            (true, true) => "valid COG",
            (true, false) => "valid GeoTIFF, not a COG",
            _ => "invalid",
        };
        let unpacked =
            if args.full { format!(", {} unpacked", thousands(found.unpacked)) } else { String::new() };
        let absent =
            if found.absent > 0 { format!(", {} absent", thousands(found.absent)) } else { String::new() };
        out::data(&format!("{name}: {verdict}; {} blocks{unpacked}{absent}\n", thousands(found.blocks)))?;
        let lists = [("error", &found.errors), ("not a COG", &found.not_cog), ("warning", &found.warnings)];
        for (word, list) in lists {
            for line in list {
                out::data(&format!("  {word}: {}\n", layer::plain(line)))?;
            }
        }
    }
    if args.format == OutputFormat::Json {
        out::data(&format!("{:#}\n", serde_json::Value::Array(all)))?;
    }
    Ok(exit)
}
