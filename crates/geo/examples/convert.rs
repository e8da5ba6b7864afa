//! `convert FROM TO [CRS]`: for measuring.

use std::path::Path;

use tidegate_geo::convert::{Steps, convert};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: convert FROM TO [CRS]".into());
    };
    let to_crs = args.next().map(|crs| crs.parse()).transpose()?;
    let done = convert(Path::new(&from), Path::new(&to), &Steps { to_crs, ..Steps::default() })?;
    if let Some(rejected) = done.iter().find_map(|layer| layer.first_rejected.first()) {
        return Err(format!("some were rejected, first {:?}", rejected.problems).into());
    }
    Ok(())
}
