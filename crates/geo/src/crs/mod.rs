//! Coordinate reference systems: identification and transformation.
//!
//! All definitions come from one table ([`table`]), which is generated from PROJ and verified row by
//! row: sixteen points over the area of use must agree with PROJ to a centimetre, forward and inverse.
//! A system that is not verified is refused. Why not a crate with its own database: of those that we
//! measured, the best was silently 120 km wrong in the Swiss grid, and the others lacked or misplaced
//! hundreds of systems.
//!
//! Coordinates in batches are always x before y (east before north), as GIS software stores them,
//! whatever axis order the authority defines. A reader swaps the axes of a service that sends latitude
//! first ([`Crs::is_north_first`]).

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
    /// Longitude and latitude on WGS 84, `OGC:CRS84`: the system of GeoJSON.
    #[must_use]
    pub fn wgs84() -> Crs {
        Crs { authority: "OGC".into(), code: "CRS84".into() }
    }

    /// A code of the EPSG dataset.
    #[must_use]
    pub fn epsg(code: u32) -> Crs {
        Crs { authority: "EPSG".into(), code: code.to_string() }
    }

    /// The system with this ESRI code; under its EPSG code where there is one.
    #[must_use]
    pub fn esri(code: u32) -> Crs {
        match table::same_as_esri(code) {
            Some(epsg) => Crs::epsg(epsg),
            None => Crs { authority: "ESRI".into(), code: code.to_string() },
        }
    }

    /// Whether this is longitude and latitude on WGS 84.
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

    /// The code as a number. EPSG and ESRI share only [`table::SHARED`]; CRS84 counts as 4326.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        match self.authority.as_str() {
            "ESRI" => self.code.parse().ok(),
            _ => self.epsg_code(),
        }
    }

    /// The authority of [`Crs::number`].
    #[must_use]
    pub fn organization(&self) -> &'static str {
        if self.authority == "ESRI" { "ESRI" } else { "EPSG" }
    }

    /// Its entry in the table.
    #[must_use]
    pub fn entry(&self) -> Option<table::Entry> {
        self.number().and_then(table::entry).filter(|entry| entry.esri == (self.authority == "ESRI"))
    }

    /// Whether the first axis of the authority's definition points north.
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
