//! Which cells of a row are its geometry, and in which coordinate system.

use std::path::Path;

use tidegate_core::Code;
use tidegate_core::hex::unhex_all;

use super::record::CsvOptions;
use super::write::system_file;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::wkb;
use crate::wkt;

const LON: [&str; 5] = ["lon", "lng", "long", "longitude", "x"];
const LAT: [&str; 4] = ["lat", "latitude", "y", "lati"];
const WKT: [&str; 6] = ["wkt", "geom", "geometry", "the_geom", "shape", "wkb"];

/// How many rows are looked at for whether `x` and `y` are degrees.
const LOOK_ROWS: usize = 100;

/// The columns that hold the geometry, as indices from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GeometryColumns {
    None,
    LonLat(usize, usize),
    Wkt(usize),
}

impl GeometryColumns {
    /// Finds them by their usual names.
    pub(super) fn of_header(names: &[String]) -> GeometryColumns {
        let find = |known: &[&str]| {
            known.iter().find_map(|known| names.iter().position(|name| name.eq_ignore_ascii_case(known)))
        };
        match (find(&LON), find(&LAT), find(&WKT)) {
            (Some(lon), Some(lat), _) => GeometryColumns::LonLat(lon, lat),
            (_, _, Some(wkt)) => GeometryColumns::Wkt(wkt),
            _ => GeometryColumns::None,
        }
    }

    pub(super) fn contains(self, at: usize) -> bool {
        match self {
            GeometryColumns::None => false,
            GeometryColumns::LonLat(lon, lat) => at == lon || at == lat,
            GeometryColumns::Wkt(wkt) => at == wkt,
        }
    }

    /// Appends the geometry of a row as well-known binary; nothing for empty cells.
    pub(super) fn read<'a>(
        self,
        names: &[String],
        cell: impl Fn(usize) -> &'a str,
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let name = |at: usize| names.get(at).map_or("", String::as_str);
        let number = |at: usize| -> Result<Option<f64>, Problem> {
            let text = cell(at).trim();
            if text.is_empty() {
                return Ok(None);
            }
            let number = fast_float2::parse::<f64, _>(text).ok().filter(|x| x.is_finite());
            let broken = || Problem::new(Code::INVALID_GEOMETRY, format!("{text:?} is not a coordinate"));
            number.map(Some).ok_or_else(|| broken().under(name(at)))
        };
        match self {
            GeometryColumns::None => Ok(()),
            GeometryColumns::LonLat(lon, lat) => {
                if let (Some(x), Some(y)) = (number(lon)?, number(lat)?) {
                    wkb::write::point(out, &[x, y]);
                }
                Ok(())
            }
            GeometryColumns::Wkt(at) => match cell(at).trim() {
                "" => Ok(()),
                text => geometry_of_text(text, out).map_err(|problem| problem.under(name(at))),
            },
        }
    }

    /// The system of the coordinates: what a `.prj` file beside the table says, else the one given, else WGS 84
    /// for longitude and latitude. `x` and `y` are those only if the first of them can be.
    pub(super) fn crs(
        self,
        path: &Path,
        names: &[String],
        options: &CsvOptions,
        given: Option<&Crs>,
    ) -> Result<Option<Crs>, Error> {
        if self == GeometryColumns::None {
            return Ok(None);
        }
        let text = system_file(path).and_then(|file| std::fs::read_to_string(file).ok());
        let said = text.and_then(|text| text.parse::<Crs>().ok());
        let GeometryColumns::LonLat(x, y) = self else { return Ok(said) };
        let is = |at: usize, known: &str| names.get(at).is_some_and(|name| name.eq_ignore_ascii_case(known));
        if !is(x, "x") && !is(y, "y") {
            // Nobody calls metres longitude.
            let said = said.filter(|crs| crs.entry().is_some_and(|entry| entry.geographic));
            let said = said.or_else(|| given.cloned());
            return Ok(Some(said.filter(|crs| !crs.is_wgs84()).unwrap_or_else(Crs::wgs84)));
        }
        if said.is_some() || given.is_some() {
            return Ok(said.or_else(|| given.cloned()));
        }
        let mut lexer = super::read::open(path, options)?;
        for _ in 0..=LOOK_ROWS {
            if !lexer.advance()? {
                break;
            }
            let number = |at: usize| fast_float2::parse::<f64, _>(lexer.record().cell(at).trim_ascii()).ok();
            if let (Some(x), Some(y)) = (number(x), number(y)) {
                return Ok((x.abs() <= 180.0 && y.abs() <= 90.0).then(Crs::wgs84));
            }
        }
        Ok(Some(Crs::wgs84()))
    }
}

/// A geometry of well-known text, or of well-known binary in hexadecimal, as PostGIS gives it.
fn geometry_of_text(text: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return wkt::read(text, out).map(|_| ());
    }
    let bytes = unhex_all(text).ok_or_else(|| {
        Problem::new(Code::INVALID_GEOMETRY, "the geometry is neither WKT nor WKB in hexadecimal")
    })?;
    wkb::canonicalise(&bytes, out).map(|_| ())
}
