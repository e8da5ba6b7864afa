//! The columns of the geometry, and its coordinate reference system.

use std::path::Path;

use tidegate_core::Code;
use tidegate_core::hex::unhex_all;

use super::record::CsvOptions;
use super::write::system_file;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::prj::Prj;
use crate::wkb;
use crate::wkt;

const LON: [&str; 5] = ["lon", "lng", "long", "longitude", "x"];
const LAT: [&str; 4] = ["lat", "latitude", "y", "lati"];
const WKT: [&str; 6] = ["wkt", "geom", "geometry", "the_geom", "shape", "wkb"];

/// Rows to look at for whether `x` and `y` are degrees.
const LOOK_ROWS: usize = 100;

/// The columns that hold the geometry, as indices from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GeometryColumns {
    None,
    LonLat(usize, usize),
    Wkt(usize),
}

impl GeometryColumns {
    /// Finds them by common names.
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

    /// Appends the geometry of a row as well-known binary; nothing if its cells are empty.
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
                let (lacks, has) = match (number(lon)?, number(lat)?) {
                    (Some(x), Some(y)) => {
                        wkb::write::point(out, &[x, y]);
                        return Ok(());
                    }
                    (None, None) => return Ok(()),
                    (None, Some(_)) => (lon, lat),
                    (Some(_), None) => (lat, lon),
                };
                let message = format!(
                    "{} is empty, and {} is {}; fill in both, or neither for a row without geometry",
                    name(lacks),
                    name(has),
                    cell(has).trim()
                );
                Err(Problem::new(Code::INVALID_GEOMETRY, message).under(name(lacks)))
            }
            GeometryColumns::Wkt(at) => match cell(at).trim() {
                "" => Ok(()),
                text => geometry_of_text(text, out).map_err(|problem| problem.under(name(at))),
            },
        }
    }

    /// The coordinate reference system: that of a `.prj` file beside the table, else the one given, else WGS 84
    /// for longitude and latitude. `x` and `y` are longitude and latitude only if the first of them can be.
    /// Unknown if there is a `.prj` file that is not understood and none is given.
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
        let file = system_file(path);
        let prj = file.as_deref().map_or(Ok(Prj::Absent), Prj::read)?;
        let is_unknown = prj == Prj::Unknown;
        let said = prj.known();
        let GeometryColumns::LonLat(x, y) = self else { return Ok(said) };
        let name = |at: usize| names.get(at).map_or("", String::as_str);
        let in_degrees = !name(x).eq_ignore_ascii_case("x") && !name(y).eq_ignore_ascii_case("y");
        if let (true, Some(crs), Some(file)) = (in_degrees, &said, &file)
            && crs.entry().is_some_and(|entry| !entry.geographic)
        {
            let message = format!(
                "{} and {} are degrees, and {} names {crs}, which is not geographic; \
                 rename the columns to x and y, or remove the file",
                name(x),
                name(y),
                file.display()
            );
            return Err(Problem::new(Code::CRS_MISMATCH, message).into());
        }
        if said.is_some() || given.is_some() || is_unknown {
            let crs = said.or_else(|| given.cloned());
            return Ok(crs.map(|crs| if in_degrees && crs.is_wgs84() { Crs::wgs84() } else { crs }));
        }
        if in_degrees {
            return Ok(Some(Crs::wgs84()));
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

/// A geometry as WKT, or as WKB or EWKB in hexadecimal, as in PostGIS.
fn geometry_of_text(text: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return wkt::read(text, out).map(|_| ());
    }
    let bytes = unhex_all(text).ok_or_else(|| {
        Problem::new(Code::INVALID_GEOMETRY, "the geometry is neither WKT nor WKB in hexadecimal")
    })?;
    wkb::canonicalise(&bytes, out).map(|_| ())
}
