//! `crs_names`: reads one JSON text per line, each a definition of a system, and prints the code that
//! it is taken for, or `-`. `oracle/check_crs.py` compares with PROJ.

use std::io::{BufRead, Write};

use tidegate_geo::Crs;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        match text.parse::<Crs>() {
            Ok(crs) => writeln!(out, "{crs}")?,
            Err(_) => writeln!(out, "-")?,
        }
    }
    Ok(())
}
