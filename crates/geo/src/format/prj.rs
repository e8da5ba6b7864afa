//! The `.prj` file beside a Shapefile or a table: its coordinate reference system as ESRI WKT.
//!
//! A file that exists and is not understood differs from one that does not exist: the data then has a
//! system of its own, and no default may take its place.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::crs::Crs;

/// More than any definition takes, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// What a `.prj` file says.
#[derive(Debug, PartialEq)]
pub(super) enum Prj {
    /// There is no file.
    Absent,
    /// A system of the table.
    Known(Crs),
    /// No system of the table.
    Unknown,
}

impl Prj {
    /// Reads a file.
    ///
    /// # Errors
    /// If it exists and cannot be read.
    pub(super) fn read(path: &Path) -> io::Result<Prj> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LEN_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Prj::Absent),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        }
        // Only names are ever outside of ASCII, in whatever encoding the program used.
        Ok(String::from_utf8_lossy(&bytes).parse().map_or(Prj::Unknown, Prj::Known))
    }

    /// The system, if it is known.
    pub(super) fn known(self) -> Option<Crs> {
        match self {
            Prj::Known(crs) => Some(crs),
            Prj::Absent | Prj::Unknown => None,
        }
    }
}
