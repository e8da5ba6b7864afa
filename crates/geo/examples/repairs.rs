//! `repairs [structure]`: reads hexadecimal well-known binary, one per line, and writes each one made
//! valid, or `-` if that cannot be. For `oracle/`.

use std::io::{BufRead, Write};

use tidegate_geo::repair::{Method, Outcome, make_valid_by};
use tidegate_geo::validity::Checker;
use tidegate_geo::wkb::canonicalise;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut checker = Checker::default();
    let structure = std::env::args().nth(1).is_some_and(|name| name == "structure");
    let method = if structure { Method::Structure } else { Method::Linework };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let bytes: Vec<u8> = line
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or("x"), 16))
            .collect::<Result<_, _>>()?;
        let (mut wkb, mut repaired) = (Vec::new(), Vec::new());
        canonicalise(&bytes, &mut wkb)?;
        match make_valid_by(&wkb, method, &mut checker, &mut repaired) {
            Outcome::Hopeless(_) => writeln!(out, "-")?,
            _ => {
                for byte in repaired {
                    write!(out, "{byte:02x}")?;
                }
                writeln!(out)?;
            }
        }
    }
    Ok(())
}
