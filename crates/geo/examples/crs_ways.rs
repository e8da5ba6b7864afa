//! `crs_ways`: each line of standard input is two systems and a place (`EPSG:31467 EPSG:31468 3500000 5400000 100`);
//! prints where it comes to and the stated accuracy in metres, `?` for a ballpark, or `-` if it is refused.
//! `oracle/check_ways.py` compares with PROJ.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;

fn way(from: &str, to: &str) -> Option<Transform> {
    let (from, to): (Crs, Crs) = (from.parse().ok()?, to.parse().ok()?);
    Transform::new(&from, &to).ok()
}

fn main() -> std::io::Result<()> {
    let mut ways: HashMap<(String, String), Option<Transform>> = HashMap::new();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [from, to, numbers @ ..] = words.as_slice() else { continue };
        let numbers: Vec<f64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
        let [x, y, z] = numbers[..] else { continue };
        let key = ((*from).to_owned(), (*to).to_owned());
        let way = ways.entry(key).or_insert_with_key(|(from, to)| way(from, to));
        let found =
            way.as_ref().and_then(|way| Some((way.position(x, y, z).ok()?, way.operation().accuracy)));
        match found {
            None => writeln!(out, "-")?,
            Some(((x, y, z), accuracy)) => {
                let stated = accuracy.map_or_else(|| "?".to_owned(), |metres| metres.to_string());
                writeln!(out, "{x} {y} {z} {stated}")?;
            }
        }
    }
    Ok(())
}
