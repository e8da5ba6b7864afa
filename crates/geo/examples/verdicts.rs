//! Reads hexadecimal well-known binary, one per line, and tells of each whether it is valid, why
//! not, and whether it is simple. For `oracle/`.

use std::io::{BufRead, Write};

use tidegate_geo::validity::{Checker, is_simple};
use tidegate_geo::wkb::canonicalise;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut checker = Checker::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let bytes: Vec<u8> = line
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or("x"), 16))
            .collect::<Result<_, _>>()?;
        let mut wkb = Vec::new();
        canonicalise(&bytes, &mut wkb)?;
        let reason =
            checker.first_flaw(&wkb).map_or("Valid Geometry".to_owned(), |flaw| flaw.reason.to_string());
        writeln!(out, "{reason}\t{}", u8::from(is_simple(&wkb, &Default::default()).is_ok()))?;
    }
    Ok(())
}
