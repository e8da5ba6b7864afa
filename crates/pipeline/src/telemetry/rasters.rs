//! The rasters of a run, for the pictures of a report: the first of them, and how many there were.

use std::sync::{Mutex, OnceLock};

use super::PlaceKind;
use crate::lock::lock;

/// The most rasters that are kept.
const RASTERS_MAX: usize = 1000;

/// A raster that a record of the run named.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenRaster {
    /// What became of the record.
    pub kind: PlaceKind,
    /// Where the raster is.
    pub address: String,
    /// The extent of the record in degrees, as a closed ring; empty if it has none.
    pub outline: Vec<(f64, f64)>,
    /// The code of the reason, if the record was rejected.
    pub code: Option<String>,
}

/// The rasters of a run. Nothing is kept unless the records name rasters and a report is wanted.
#[derive(Debug, Default)]
pub struct Rasters {
    field: OnceLock<String>,
    seen: Mutex<(Vec<SeenRaster>, u64)>,
}

impl Rasters {
    /// Starts to keep rasters, because a report will show them. The field holds their address.
    pub fn want(&self, field: &str) {
        // A run has one report, so this is the only call.
        let _ = self.field.set(field.to_owned());
    }

    /// The field that holds the address of a raster, if rasters are kept.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.get().map(String::as_str)
    }

    /// Adds the raster of a record.
    pub fn add(&self, raster: SeenRaster) {
        let (kept, seen) = &mut *lock(&self.seen);
        *seen += 1;
        if kept.len() < RASTERS_MAX {
            kept.push(raster);
        }
    }

    /// The first rasters, and how many there were in all.
    #[must_use]
    pub fn all(&self) -> (Vec<SeenRaster>, u64) {
        lock(&self.seen).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_kept_and_all_are_counted() {
        let rasters = Rasters::default();
        assert_eq!(rasters.field(), None);
        rasters.want("path");
        assert_eq!(rasters.field(), Some("path"));
        for number in 0..1500 {
            let address = format!("{number}.tif");
            rasters.add(SeenRaster { kind: PlaceKind::Committed, address, outline: Vec::new(), code: None });
        }
        let (kept, seen) = rasters.all();
        assert_eq!((kept.len(), seen), (1000, 1500));
        assert_eq!(kept.last().map(|raster| raster.address.as_str()), Some("999.tif"));
    }
}
