//! Coordinate reference systems: which one, and from one to another.
//!
//! What is known about a system comes from one table ([`table`]) that is generated from PROJ and
//! verified row by row: a row counts only if our own projection of sixteen points over its area of
//! use agrees with PROJ's to a centimetre, there and back. What is not verified is refused, never guessed. Why not
//! a crate with a database of its own: of those we measured, the best was silently 120 km wrong in
//! the Swiss grid and the others missed or misplaced hundreds of systems.
//!
//! Coordinates in batches are always x before y, east before north, as GIS software stores them,
//! whatever order the authority writes. A service that sends latitude first is turned when it is
//! read ([`Crs::is_north_first`] tells).

mod datum;
mod definition;
pub mod grid;
mod lambert_conformal;
mod parse;
mod plausible;
mod simd;
pub mod table;
mod text;
mod transform;
mod transverse_mercator;

pub use grid::Grids;
pub use plausible::Plausibility;
pub use transform::{Missing, Operation, Transform};

use std::fmt;

/// A coordinate reference system, by its authority's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Crs {
    /// `EPSG`, `OGC`, or `ESRI` for a system that EPSG has no code for.
    pub authority: String,
    /// The code within it.
    pub code: String,
}

impl Crs {
    /// Longitude and latitude on WGS 84, `OGC:CRS84`: what GeoJSON is in.
    #[must_use]
    pub fn wgs84() -> Crs {
        Crs { authority: "OGC".into(), code: "CRS84".into() }
    }

    /// A code of the EPSG dataset.
    #[must_use]
    pub fn epsg(code: u32) -> Crs {
        Crs { authority: "EPSG".into(), code: code.to_string() }
    }

    /// The system to which ESRI gives this number: EPSG's code where there is one.
    #[must_use]
    pub fn esri(code: u32) -> Crs {
        match table::same_as_esri(code) {
            Some(epsg) => Crs::epsg(epsg),
            None => Crs { authority: "ESRI".into(), code: code.to_string() },
        }
    }

    /// Whether coordinates in files are longitude and latitude on WGS 84.
    #[must_use]
    pub fn is_wgs84(&self) -> bool {
        *self == Crs::wgs84() || *self == Crs::epsg(4326)
    }

    /// The EPSG code, if this is one; CRS84 counts as 4326.
    #[must_use]
    pub fn epsg_code(&self) -> Option<u32> {
        if *self == Crs::wgs84() {
            return Some(4326);
        }
        (self.authority == "EPSG").then(|| self.code.parse().ok()).flatten()
    }

    /// The number of EPSG or ESRI, which overlap in [`table::SHARED`] only; CRS84 counts as 4326.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        match self.authority.as_str() {
            "ESRI" => self.code.parse().ok(),
            _ => self.epsg_code(),
        }
    }

    /// The authority of the number.
    #[must_use]
    pub fn organization(&self) -> &'static str {
        if self.authority == "ESRI" { "ESRI" } else { "EPSG" }
    }

    /// What the table knows of it.
    #[must_use]
    pub fn entry(&self) -> Option<table::Entry> {
        self.number().and_then(table::entry).filter(|entry| entry.esri == (self.authority == "ESRI"))
    }

    /// Whether the authority writes north before east, as a service that follows it will send.
    #[must_use]
    pub fn is_north_first(&self) -> bool {
        *self != Crs::wgs84() && self.entry().is_some_and(|entry| entry.north_first)
    }
}

impl fmt::Display for Crs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.authority, self.code)
    }
}
