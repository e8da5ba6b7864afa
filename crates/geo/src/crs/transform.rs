//! Transformation of coordinates from one system to another.

use proj4rs::Proj;
use proj4rs::transform::{Transform as Positions, TransformClosure, transform};
use tidegate_core::Code;

use super::Crs;
use super::datum::{Datum, Ellipsoid};
use super::grid::{GridShift, Grids, Known};
use super::lambert_conformal::LambertConformal;
use super::simd::BlockProjection;
use super::table::Entry;
use super::transverse_mercator::TransverseMercator;
use crate::bounds::Bounds;
use crate::error::Problem;
use crate::wkb;

/// A description of a transformation, for the report of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Source system.
    pub from: Crs,
    /// Target system.
    pub to: Crs,
    /// PROJ strings of both.
    pub definition: (String, String),
    /// Stated accuracy in metres: the sum of the two datum shifts from and to WGS 84, 0 between two
    /// systems on one datum, `None` if one of the shifts is a ballpark one.
    pub accuracy: Option<f32>,
    /// Files of the grids in use.
    pub grids: Vec<std::path::PathBuf>,
    /// More accurate grids whose files were not found.
    pub missing: Vec<Missing>,
}

/// A more accurate grid whose file was not found.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The system whose datum it shifts.
    pub crs: Crs,
    /// Its names and accuracy.
    pub grid: Known,
}

/// A transformation from one system to another.
///
/// Between two systems on one datum there is no datum shift. Each row of the table has the parameters for
/// the centre of its own area of use; forward with those of one system and inverse with those of the
/// other would move a position by metres. All other transformations go through WGS 84, because that is
/// what each row was verified for. A direct transformation between a system without parameters (its
/// datum counts as WGS 84) and one with parameters would apply no shift at all.
///
/// A datum shift takes the height into account. It changes the height only if both systems have
/// ellipsoidal heights: in a system without them, the third coordinate may be a height above sea level.
pub struct Transform {
    from: Side,
    to: Side,
    wgs84: Proj,
    operation: Operation,
}

struct Side {
    projection: Projection,
    /// Helmert parameters to WGS 84, if there are any.
    datum: Option<Datum>,
    /// Whether coordinates are longitude and latitude in degrees.
    geographic: bool,
    /// Ellipsoid of a geocentric system.
    geocentric: Option<Ellipsoid>,
    /// Whether the system has ellipsoidal heights.
    has_height: bool,
    /// Whether this is longitude and latitude on WGS 84.
    is_wgs84: bool,
    /// Grids that replace the parameters, the most accurate first.
    shifts: Vec<GridShift>,
    /// Area of use, in degrees.
    area: Bounds,
}

enum Projection {
    /// Transverse Mercator, by our own code.
    TransverseMercator(Box<TransverseMercator>),
    /// Lambert conformal conic, by our own code.
    LambertConformal(Box<LambertConformal>),
    /// Every other method, by proj4rs, without its datum shift.
    Other(Box<Proj>),
}

type NoPlace = proj4rs::errors::Error;

impl Side {
    /// A position in radians, shifted by the first grid that covers it.
    fn shifted(&self, x: f64, y: f64, to_wgs84: bool) -> Option<(f64, f64)> {
        let (lon, lat) = (x.to_degrees(), y.to_degrees());
        let over = |shift: &GridShift| {
            if to_wgs84 { shift.forward(lon, lat) } else { shift.inverse(lon, lat) }
        };
        self.shifts.iter().find_map(over).map(|(lon, lat)| (lon.to_radians(), lat.to_radians()))
    }

    /// Converts all positions to longitude and latitude on the datum of the system, in radians. A position
    /// outside the domain of the projection becomes NaN or is an error.
    fn unproject(&self, wgs84: &Proj, all: &mut CoordinateColumns<'_>) -> Result<(), NoPlace> {
        match (&self.geocentric, &self.projection) {
            _ if self.is_wgs84 => {}
            (Some(ellipsoid), _) => all.each(|x, y, z| ellipsoid.upon(x, y, z)),
            (None, Projection::TransverseMercator(projection)) => projection.unproject(all.x, all.y),
            (None, Projection::LambertConformal(projection)) => projection.unproject(all.x, all.y),
            (None, Projection::Other(proj)) => transform(proj, wgs84, all)?,
        }
        Ok(())
    }

    /// The inverse of [`Side::unproject`].
    fn project(&self, wgs84: &Proj, all: &mut CoordinateColumns<'_>) -> Result<(), NoPlace> {
        match (&self.geocentric, &self.projection) {
            _ if self.is_wgs84 => {}
            (Some(ellipsoid), _) => all.each(|lon, lat, height| ellipsoid.out_of(lon, lat, height)),
            (None, Projection::TransverseMercator(projection)) => projection.project(all.x, all.y),
            (None, Projection::LambertConformal(projection)) => projection.project(all.x, all.y),
            (None, Projection::Other(proj)) => transform(wgs84, proj, all)?,
        }
        Ok(())
    }

    /// Shifts from the datum of the system to WGS 84.
    fn leave(&self, all: &mut CoordinateColumns<'_>) {
        if let Some(datum) = &self.datum {
            datum.forward(all.x, all.y, all.z.as_deref_mut());
        }
        self.shift(all, true);
    }

    /// The inverse of [`Side::leave`].
    fn enter(&self, all: &mut CoordinateColumns<'_>) {
        self.shift(all, false);
        if let Some(datum) = &self.datum {
            datum.inverse(all.x, all.y, all.z.as_deref_mut());
        }
    }

    /// As [`Side::shifted`]; a position outside every grid becomes NaN.
    fn shift(&self, all: &mut CoordinateColumns<'_>, to_wgs84: bool) {
        if !self.shifts.is_empty() {
            for (x, y) in all.x.iter_mut().zip(all.y.iter_mut()) {
                (*x, *y) = self.shifted(*x, *y, to_wgs84).unwrap_or((f64::NAN, f64::NAN));
            }
        }
    }

    /// Whether a bounding box in degrees lies in the area of use. The west of the area is greater than
    /// its east if it crosses the antimeridian.
    fn holds(&self, found: Bounds) -> bool {
        // The table has areas in single precision, rounded to a hundredth of a degree.
        const SLACK: f64 = 0.01;
        let Bounds { min_x: west, min_y: south, max_x: east, max_y: north } = self.area;
        let x = if west <= east {
            found.min_x >= west - SLACK && found.max_x <= east + SLACK
        } else {
            found.min_x >= west - SLACK || found.max_x <= east + SLACK
        };
        x && found.min_y >= south - SLACK && found.max_y <= north + SLACK
    }
}

const WGS84: &str = "+proj=longlat +ellps=WGS84";

impl Transform {
    /// The transformation between two systems, without grids.
    ///
    /// # Errors
    /// `CRS_NOT_FOUND` if one is unknown or not verified.
    pub fn new(from: &Crs, to: &Crs) -> Result<Transform, Problem> {
        Transform::with_grids(from, to, &Grids::default())
    }

    /// The transformation between two systems, with the available grids that are more accurate than the
    /// parameters of the table.
    ///
    /// # Errors
    /// As [`Transform::new`], or if a grid file cannot be read.
    pub fn with_grids(from: &Crs, to: &Crs, grids: &Grids) -> Result<Transform, Problem> {
        let (entry, other) = (known(from)?, known(to)?);
        heights_are_defined(&entry, from, &other)?;
        heights_are_defined(&other, to, &entry)?;
        let (mut a, mut b) = (side(from, entry.clone(), grids)?, side(to, other.clone(), grids)?);
        if entry.datum.is_some() && entry.datum == other.datum {
            a.leave_datum(entry.proj);
            b.leave_datum(other.proj);
        }
        let missing = [(from, &a), (to, &b)]
            .into_iter()
            .filter_map(|(crs, ready)| Some(Missing { crs: crs.clone(), grid: ready.missing.clone()? }));
        let operation = Operation {
            from: from.clone(),
            to: to.clone(),
            accuracy: a.accuracy.zip(b.accuracy).map(|(a, b)| a + b),
            grids: a.side.shifts.iter().chain(&b.side.shifts).map(|shift| shift.path.clone()).collect(),
            missing: missing.collect(),
            definition: (a.definition, b.definition),
        };
        let (from_side, to_side) = (a.side, b.side);
        let wgs84 = Proj::from_proj_string(WGS84)
            .map_err(|e| Problem::new(Code::CRS_NOT_FOUND, format!("WGS 84 cannot be projected: {e}")))?;
        Ok(Transform { from: from_side, to: to_side, wgs84, operation })
    }

    /// Its description.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Transforms one position, in degrees or in the unit of the system.
    ///
    /// # Errors
    /// `INVALID_GEOMETRY` if it lies outside the domain of a projection or outside all grids.
    #[inline]
    pub fn position(&self, x: f64, y: f64, z: f64) -> Result<(f64, f64, f64), Problem> {
        let unit = |x: f64| if self.from.geographic { x.to_radians() } else { x };
        let (mut to_x, mut to_y, mut to_z) = ([unit(x)], [unit(y)], [z]);
        let heights = self.needs_heights().then_some(to_z.as_mut_slice());
        let mut all = CoordinateColumns { x: &mut to_x, y: &mut to_y, z: heights };
        let done = self.all(&mut all, |_| {});
        let unit = |x: f64| if self.to.geographic { x.to_degrees() } else { x };
        let ([to_x], [to_y], [to_z]) = (to_x.map(unit), to_y.map(unit), to_z);
        if done.is_err()
            || !to_x.is_finite()
            || !to_y.is_finite()
            || (self.changes_heights() && !to_z.is_finite())
        {
            let message = match self.operation.grids.as_slice() {
                [] => format!("({x} {y}) cannot be projected to {}", self.operation.to),
                grids => format!("({x} {y}) lies outside the grid {}", names(grids)),
            };
            return Err(Problem::new(Code::INVALID_GEOMETRY, message));
        }
        Ok((to_x, to_y, if self.changes_heights() { to_z } else { z }))
    }

    /// Transforms positions in place, in degrees or in the unit of the system, without heights. All go through
    /// one step before the next, which is faster than [`Transform::position`] and gives the same bits. A
    /// position without a place in the other system becomes NaN; between systems of which one is geocentric
    /// all do, because they have no heights.
    pub fn positions(&self, x: &mut [f64], y: &mut [f64]) {
        let len = x.len().min(y.len());
        let (Some(x), Some(y)) = (x.get_mut(..len), y.get_mut(..len)) else { return };
        if self.is_geocentric() {
            x.fill(f64::NAN);
            y.fill(f64::NAN);
            return;
        }
        // Small pieces stay in the cache from step to step.
        const PIECE: usize = 1024;
        let mut heights = [0.0; PIECE];
        for (x, y) in x.chunks_mut(PIECE).zip(y.chunks_mut(PIECE)) {
            self.piece(x, y, &mut heights);
        }
    }

    fn piece(&self, x: &mut [f64], y: &mut [f64], heights: &mut [f64]) {
        let before = (x.to_vec(), y.to_vec());
        if self.from.geographic {
            x.iter_mut().chain(y.iter_mut()).for_each(|number| *number = number.to_radians());
        }
        heights.fill(0.0);
        let z = heights.get_mut(..x.len()).filter(|_| self.needs_heights());
        let done = self.all(&mut CoordinateColumns { x, y, z }, |_| {});
        if done.is_err() {
            // One of them ended it for all.
            for ((x, y), (from_x, from_y)) in
                x.iter_mut().zip(y.iter_mut()).zip(before.0.iter().zip(&before.1))
            {
                (*x, *y) = match self.position(*from_x, *from_y, 0.0) {
                    Ok((x, y, _)) => (x, y),
                    Err(_) => (f64::NAN, f64::NAN),
                };
            }
            return;
        }
        for (x, y) in x.iter_mut().zip(y) {
            if !x.is_finite() || !y.is_finite() {
                (*x, *y) = (f64::NAN, f64::NAN);
            } else if self.to.geographic {
                (*x, *y) = (x.to_degrees(), y.to_degrees());
            }
        }
    }

    /// Transforms all positions; `see` is called with them on WGS 84.
    fn all(
        &self,
        all: &mut CoordinateColumns<'_>,
        see: impl FnOnce(&CoordinateColumns<'_>),
    ) -> Result<(), NoPlace> {
        self.from.unproject(&self.wgs84, all)?;
        let keeps = self.changes_heights() && !(self.from.has_height && self.to.has_height);
        let heights = all.z.as_ref().filter(|_| keeps).map(|z| z.to_vec());
        self.from.leave(all);
        see(all);
        self.to.enter(all);
        if let (Some(z), Some(heights)) = (all.z.as_deref_mut(), heights) {
            z.copy_from_slice(&heights);
        }
        self.to.project(&self.wgs84, all)
    }

    /// Whether the third coordinate changes.
    fn changes_heights(&self) -> bool {
        let (from, to) = (&self.from, &self.to);
        self.is_geocentric() || (from.has_height && to.has_height)
    }

    /// Whether the result depends on the third coordinate.
    fn needs_heights(&self) -> bool {
        self.changes_heights() || self.from.datum.is_some() || self.to.datum.is_some()
    }

    /// Transforms all positions of canonical well-known binary in place. See [`Transform`] for heights.
    /// All positions go through one step before the next, which is faster than position by position.
    ///
    /// Returns whether all positions lie in the area of use of both systems. Outside of it the result is
    /// that of PROJ, and may be meaningless.
    ///
    /// # Errors
    /// As [`Transform::position`], or `INVALID_GEOMETRY` if one of the systems is geocentric and the
    /// geometry has no third coordinate. The bytes are then unchanged.
    pub fn geometry(&self, wkb: &mut [u8]) -> Result<bool, Problem> {
        let has_z = wkb::head(wkb).is_some_and(|(_, dim)| dim.has_z());
        if !has_z && self.is_geocentric() && !wkb::is_empty(wkb) {
            return Err(self.without_heights());
        }
        let heights = has_z && self.needs_heights();
        let (mut xs, mut ys) = (Vec::with_capacity(wkb.len() / 16), Vec::with_capacity(wkb.len() / 16));
        let mut zs = Vec::with_capacity(if heights { wkb.len() / 24 } else { 0 });
        let unit = |x: f64| if self.from.geographic { x.to_radians() } else { x };
        each_position(wkb, |x, y, z| {
            xs.push(unit(*x));
            ys.push(unit(*y));
            if heights {
                zs.push(self.height(z.map_or(0.0, |z| *z)));
            }
        });
        let mut all = CoordinateColumns { x: &mut xs, y: &mut ys, z: heights.then_some(zs.as_mut_slice()) };
        let mut inside = true;
        let done = self.all(&mut all, |all| {
            inside = bounds(all).is_none_or(|found| self.from.holds(found) && self.to.holds(found));
        });
        if done.is_err() || ![&xs, &ys, &zs].into_iter().flatten().all(|number| number.is_finite()) {
            return self.one_by_one(wkb).map(|()| inside);
        }
        let unit = |x: f64| if self.to.geographic { x.to_degrees() } else { x };
        let mut zs = zs.into_iter().filter(|_| self.changes_heights());
        let mut all = xs.into_iter().zip(ys);
        each_position(wkb, |x, y, z| {
            if let Some((to_x, to_y)) = all.next() {
                (*x, *y) = (unit(to_x), unit(to_y));
            }
            if let (Some(z), Some(to_z)) = (z, zs.next()) {
                *z = if z.is_nan() { *z } else { to_z };
            }
        });
        Ok(inside)
    }

    /// An unknown height (NaN) is taken as 0, except in a geocentric system.
    fn height(&self, z: f64) -> f64 {
        if z.is_nan() && !self.is_geocentric() { 0.0 } else { z }
    }

    fn is_geocentric(&self) -> bool {
        self.from.geocentric.is_some() || self.to.geocentric.is_some()
    }

    fn without_heights(&self) -> Problem {
        let Operation { from, to, .. } = &self.operation;
        let crs = if self.from.geocentric.is_some() { from } else { to };
        let message = format!("{crs} is geocentric (X, Y and Z), and the geometry has only two coordinates");
        Problem::new(Code::INVALID_GEOMETRY, message)
    }

    /// Transforms position by position, to name the one that fails.
    fn one_by_one(&self, wkb: &mut [u8]) -> Result<(), Problem> {
        let mut changed = wkb.to_vec();
        wkb::map_positions(&mut changed, |x, y, z| {
            if x.is_nan() && y.is_nan() {
                return Ok(());
            }
            let height = self.height(z.as_deref().copied().unwrap_or(0.0));
            let (to_x, to_y, to_z) = self.position(*x, *y, height)?;
            (*x, *y) = (to_x, to_y);
            if let Some(z) = z.filter(|z| !z.is_nan()) {
                *z = to_z;
            }
            Ok(())
        })?;
        wkb.copy_from_slice(&changed);
        Ok(())
    }
}

/// The bounding box in degrees of positions in radians.
fn bounds(all: &CoordinateColumns<'_>) -> Option<Bounds> {
    let mut found: Option<Bounds> = None;
    for (x, y) in all.x.iter().zip(all.y.iter()) {
        if x.is_finite() && y.is_finite() {
            let at = Bounds { min_x: *x, min_y: *y, max_x: *x, max_y: *y };
            found.get_or_insert(at).extend(*x, *y);
        }
    }
    found.map(|b| Bounds {
        min_x: b.min_x.to_degrees(),
        min_y: b.min_y.to_degrees(),
        max_x: b.max_x.to_degrees(),
        max_y: b.max_y.to_degrees(),
    })
}

fn each_position(wkb: &mut [u8], mut visit: impl FnMut(&mut f64, &mut f64, Option<&mut f64>)) {
    let Ok(()) = wkb::map_positions(wkb, |x, y, z| {
        visit(x, y, z);
        Ok::<(), std::convert::Infallible>(())
    });
}

/// The file names without their folders.
fn names(paths: &[std::path::PathBuf]) -> String {
    let names = paths.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    names.collect::<Vec<_>>().join(", ")
}

/// One side of a transformation, with its part of the description.
struct Ready {
    side: Side,
    definition: String,
    accuracy: Option<f32>,
    missing: Option<Known>,
}

impl Ready {
    /// Drops the datum shift.
    fn leave_datum(&mut self, definition: String) {
        self.side.datum = None;
        self.side.shifts.clear();
        self.definition = without(&definition, "+towgs84=");
        self.accuracy = Some(0.0);
        self.missing = None;
    }
}

fn refused(crs: &Crs, why: &str) -> Problem {
    Problem::new(Code::CRS_NOT_FOUND, format!("{crs} {why}"))
}

/// The table's entry of a verified system.
fn known(crs: &Crs) -> Result<Entry, Problem> {
    let entry = crs.entry().ok_or_else(|| refused(crs, "is not a known system"))?;
    if !entry.verified {
        return Err(refused(crs, "is not verified against PROJ, and is not transformed"));
    }
    Ok(entry)
}

/// UCS-2000, the one EPSG datum that is shifted by metres in geocentric coordinates, to ITRF.
const UCS_2000: u32 = 1077;
/// WGS 84 and ETRS89, to which UCS-2000 is shifted in two dimensions like any other datum.
const SHIFTED_IN_2D: [u32; 2] = [6326, 6258];

/// Refuses a system without heights on UCS-2000 beside one with heights on ITRF. The register defines that
/// shift for heights as well, so the third coordinate would change, but the system has none.
fn heights_are_defined(entry: &Entry, crs: &Crs, other: &Entry) -> Result<(), Problem> {
    let shifted_in_3d = other.datum.is_none_or(|datum| datum != UCS_2000 && !SHIFTED_IN_2D.contains(&datum));
    if entry.datum == Some(UCS_2000) && !entry.has_height && other.has_height && shifted_in_3d {
        let why = "has no heights, and the shift of its datum changes them; \
                   transform by way of EPSG:5560 (UCS-2000 with heights)";
        return Err(refused(crs, why));
    }
    Ok(())
}

fn side(crs: &Crs, entry: Entry, grids: &Grids) -> Result<Ready, Problem> {
    let refuse = |why: &str| refused(crs, why);
    let (shifts, missing) = grids.find(&entry)?;
    let mut definition = entry.proj;
    let mut accuracy = entry.accuracy;
    if !shifts.is_empty() {
        definition = without(&definition, "+towgs84=");
        accuracy = shifts.iter().map(|shift| shift.known.accuracy).reduce(f32::max);
    }
    // The projection alone; the datum shift is ours.
    let projected = without(&definition, "+towgs84=");
    let proj =
        Proj::from_proj_string(&projected).map_err(|e| refuse(&format!("cannot be projected: {e}")))?;
    let datum = Datum::of(&proj, &definition);
    let geocentric = entry.geocentric.then(|| Ellipsoid::of(&proj));
    let mercator =
        TransverseMercator::of(&proj, &projected).map(|own| Projection::TransverseMercator(Box::new(own)));
    let own = mercator.or_else(|| {
        LambertConformal::of(&proj, &projected).map(|own| Projection::LambertConformal(Box::new(own)))
    });
    let projection = own.unwrap_or_else(|| Projection::Other(Box::new(proj)));
    let (geographic, is_wgs84, area) = (entry.geographic, crs.is_wgs84(), entry.area);
    if let [first, rest @ ..] = shifts.as_slice() {
        definition.push_str(" +nadgrids=");
        let paths = [first].into_iter().chain(rest).map(|shift| shift.path.clone());
        definition.push_str(&names(&paths.collect::<Vec<_>>()).replace(", ", ","));
    }
    Ok(Ready {
        side: Side {
            projection,
            datum,
            geographic,
            geocentric,
            has_height: entry.has_height,
            is_wgs84,
            shifts,
            area,
        },
        definition,
        accuracy,
        missing,
    })
}

/// A definition without the parameters that start with `start`.
fn without(definition: &str, start: &str) -> String {
    let words = definition.split_ascii_whitespace().filter(|word| !word.starts_with(start));
    words.collect::<Vec<_>>().join(" ")
}

/// Positions as columns: all x, all y and, where the result depends on them, all heights.
struct CoordinateColumns<'a> {
    x: &'a mut [f64],
    y: &'a mut [f64],
    z: Option<&'a mut [f64]>,
}

impl CoordinateColumns<'_> {
    /// Changes every position; does nothing without heights.
    fn each(&mut self, change: impl Fn(f64, f64, f64) -> (f64, f64, f64)) {
        for ((x, y), z) in
            self.x.iter_mut().zip(self.y.iter_mut()).zip(self.z.iter_mut().flat_map(|z| z.iter_mut()))
        {
            (*x, *y, *z) = change(*x, *y, *z);
        }
    }
}

impl Positions for CoordinateColumns<'_> {
    #[inline]
    fn transform_coordinates<F: TransformClosure>(&mut self, f: &mut F) -> proj4rs::errors::Result<()> {
        for (x, y) in self.x.iter_mut().zip(self.y.iter_mut()) {
            (*x, *y, _) = f(*x, *y, 0.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinates computed by PROJ 9.5 with the same operations.
    #[test]
    fn known_places_agree_with_proj() {
        for (code, lon, lat, x, y) in [
            (3857u32, 16.37, 48.21, 1822300.0643, 6141862.7309),
            (32633, 16.37, 48.21, 601779.3285, 5340548.6170),
            (27700, -0.1276, 51.5072, 530043.1950, 180358.2086),
            (2056, 7.4474, 46.948, 2600667.4753, 1199657.3164),
            (25832, 9.99, 53.55, 565590.9407, 5933912.1654),
            (2154, 2.3522, 48.8566, 652469.0227, 6862035.2594),
            (5070, -98.5, 39.8, -212121.6497, 1867357.4812),
            (3031, 45.0, -75.0, 1158794.7408, 1158794.7408),
            (28992, 4.9, 52.37, 121819.3652, 487013.7615),
        ] {
            let there = Transform::new(&Crs::wgs84(), &Crs::epsg(code)).unwrap();
            let (got_x, got_y, _) = there.position(lon, lat, 0.0).unwrap();
            assert!((got_x - x).abs() < 0.001 && (got_y - y).abs() < 0.001, "{code}: {got_x} {got_y}");
            let back = Transform::new(&Crs::epsg(code), &Crs::wgs84()).unwrap();
            let (back_lon, back_lat, _) = back.position(got_x, got_y, 0.0).unwrap();
            assert!((back_lon - lon).abs() < 2e-8 && (back_lat - lat).abs() < 2e-8);
        }
    }

    /// Our projections and datum shifts against those of proj4rs over the whole earth: within a
    /// micrometre up to 60° from the central meridian, and refused at the same positions.
    #[test]
    fn what_is_our_own_agrees_with_proj4rs() {
        let wgs84 = Proj::from_proj_string("+proj=longlat +ellps=WGS84 +towgs84=0,0,0").unwrap();
        let mut own = 0;
        for code in super::super::table::codes().into_iter().step_by(11).chain([27700, 31467, 25832]) {
            let crs = super::super::parse::numbered(code);
            let Some(entry) = crs.entry().filter(|entry| entry.verified && !entry.geocentric) else {
                continue;
            };
            let projected =
                ["+proj=tmerc", "+proj=utm", "+proj=lcc"].iter().any(|word| entry.proj.contains(word));
            if !projected && !entry.proj.contains("+towgs84") {
                continue;
            }
            own += 1;
            let proj = Proj::from_proj_string(&entry.proj).unwrap();
            let middle = proj.longitude_of_origin().to_degrees();
            let there = Transform::new(&Crs::wgs84(), &crs).unwrap();
            let back = Transform::new(&crs, &Crs::wgs84()).unwrap();
            for (i, j) in (-18..=18).flat_map(|i| (-9..=9).map(move |j| (f64::from(i), f64::from(j)))) {
                // Many positions near the central meridian, some far away.
                let (lon, lat) = (middle + i * i.abs() * 0.52, j * 9.99);
                let lon = if lon > 180.0 {
                    lon - 360.0
                } else if lon < -180.0 {
                    lon + 360.0
                } else {
                    lon
                };
                let mut theirs = (lon.to_radians(), lat.to_radians(), 0.0);
                let refused = transform(&wgs84, &proj, &mut theirs).is_err();
                let Ok((x, y, _)) = there.position(lon, lat, 0.0) else {
                    assert!(refused || !theirs.0.is_finite(), "{crs} {lon} {lat}: {theirs:?}");
                    continue;
                };
                assert!(!refused, "{crs} {lon} {lat}: {x} {y}");
                // Distances grow without bound towards the opposite pole of a conic projection.
                let near = (i * i * 0.52) < 60.0 && f64::hypot(x, y) < 2e7;
                if near {
                    let scale = if entry.geographic { 111_320.0f64.to_degrees() } else { 1.0 };
                    let unit = |x: f64| if entry.geographic { x.to_radians() } else { x };
                    let (dx, dy) = ((unit(x) - theirs.0) * scale, (unit(y) - theirs.1) * scale);
                    // The iteration of proj4rs for the latitude ends a micrometre away.
                    assert!(f64::hypot(dx, dy) < 1e-5, "{crs} {lon} {lat}: {x} {y}, {theirs:?}");
                    let (to_lon, to_lat, _) = back.position(x, y, 0.0).unwrap();
                    let mut home = (unit(x), unit(y), 0.0);
                    transform(&proj, &wgs84, &mut home).unwrap();
                    let (dx, dy) = (to_lon - home.0.to_degrees(), to_lat - home.1.to_degrees());
                    let dx = dx * lat.to_radians().cos();
                    assert!(f64::hypot(dx, dy) < 1e-10, "{crs} {lon} {lat}: {to_lon} {to_lat} {home:?}");
                }
            }
        }
        assert!(own > 200, "{own}");
    }

    /// A position must not depend on its neighbours: geometries that share a vertex still share it
    /// afterwards, bit by bit, near and far from the central meridian.
    #[test]
    fn many_positions_go_as_each_one_goes() {
        for (from, to) in
            [(4326, 31467), (31467, 4326), (4326, 25832), (25832, 4258), (4326, 2154), (2154, 4326)]
        {
            let way = Transform::new(&Crs::epsg(from), &Crs::epsg(to)).unwrap();
            let metres = if from == 4326 { 1.0 } else { 100_000.0 };
            let place = |i: u32| [f64::from(i * 7 % 23) * metres, f64::from(i * 5 % 89) * metres];
            let places: Vec<[f64; 2]> = (0..39).map(place).collect();
            let text: Vec<String> = places.iter().map(|[x, y]| format!("{x} {y}")).collect();
            let mut wkb = Vec::new();
            crate::wkt::read(&format!("LINESTRING ({})", text.join(", ")), &mut wkb).unwrap();
            way.geometry(&mut wkb).unwrap();
            let mut all = places.iter();
            each_position(&mut wkb, |x, y, _| {
                let [from_x, from_y] = *all.next().unwrap();
                let (one_x, one_y, _) = way.position(from_x, from_y, 0.0).unwrap();
                assert_eq!((*x, *y), (one_x, one_y), "{from} to {to}: {from_x} {from_y}");
            });
        }
    }

    /// Many positions at once, some without a place, go as each one goes.
    #[test]
    fn positions_go_as_each_one_goes() {
        for (from, to) in [(4326, 3857), (3857, 32633), (31467, 4326), (32633, 4326), (4326, 3031)] {
            let way = Transform::new(&Crs::epsg(from), &Crs::epsg(to)).unwrap();
            let metres = if from == 4326 { 1.0 } else { 100_000.0 };
            let (mut x, mut y): (Vec<f64>, Vec<f64>) =
                (0..3000u32).map(|i| (f64::from(i % 360) * metres, f64::from(i % 91) * metres)).unzip();
            (x[7], y[7]) = (f64::NAN, 1.0);
            (x[1500], y[1500]) = (1e300, -1e300);
            let before = (x.clone(), y.clone());
            way.positions(&mut x, &mut y);
            let mut without = 0;
            for i in 0..x.len() {
                match way.position(before.0[i], before.1[i], 0.0) {
                    Ok((to_x, to_y, _)) => assert_eq!((x[i], y[i]), (to_x, to_y), "{from} to {to}: {i}"),
                    Err(_) => {
                        assert!(x[i].is_nan() && y[i].is_nan(), "{from} to {to}: {i}");
                        without += 1;
                    }
                }
            }
            assert!(without >= 2, "{from} to {to}: {without}");
        }
        let geocentric = Transform::new(&Crs::epsg(4979), &Crs::epsg(4978)).unwrap();
        let (mut x, mut y) = ([9.0], [48.0]);
        geocentric.positions(&mut x, &mut y);
        assert!(x[0].is_nan() && y[0].is_nan());
    }

    #[test]
    fn what_is_unknown_or_has_no_place_is_refused() {
        assert_eq!(Transform::new(&Crs::wgs84(), &Crs::epsg(1)).err().unwrap().code, Code::CRS_NOT_FOUND);
        let mercator = Transform::new(&Crs::wgs84(), &Crs::epsg(3857)).unwrap();
        assert_eq!(mercator.position(0.0, 90.0, 0.0).unwrap_err().code, Code::INVALID_GEOMETRY);
    }

    #[test]
    fn a_shift_of_heights_into_a_system_without_them_is_refused() {
        for (from, to) in [(4916, 9853), (7909, 9854), (9853, 4916)] {
            let refused = Transform::new(&Crs::epsg(from), &Crs::epsg(to)).err().unwrap();
            assert!(refused.message.contains("EPSG:5560"), "{refused}");
        }
        for (from, to) in [(4978, 9853), (4936, 9853), (4326, 9853), (5560, 9853), (4916, 5560)] {
            assert!(Transform::new(&Crs::epsg(from), &Crs::epsg(to)).is_ok(), "{from} to {to}");
        }
    }

    #[test]
    fn what_lies_outside_the_area_of_use_is_told() {
        let british = Transform::new(&Crs::wgs84(), &Crs::epsg(27700)).unwrap();
        let fiji = Transform::new(&Crs::wgs84(), &Crs::epsg(3460)).unwrap();
        for (transform, text, inside) in [
            (&british, "POINT (-0.1 51.5)", true),
            (&british, "POINT (2.35 48.85)", false),
            (&british, "LINESTRING (-0.1 51.5, 5 51.5)", false),
            (&british, "POINT EMPTY", true),
            (&fiji, "POINT (178.4 -18.1)", true),
            (&fiji, "POINT (-179.5 -18.1)", true),
            (&fiji, "POINT (150 -18.1)", false),
        ] {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            assert_eq!(transform.geometry(&mut wkb).unwrap(), inside, "{text}");
        }
    }

    #[test]
    fn a_geocentric_system_needs_all_three_numbers() {
        let there = Transform::new(&Crs::epsg(4979), &Crs::epsg(4978)).unwrap();
        let back = Transform::new(&Crs::epsg(4978), &Crs::wgs84()).unwrap();
        let mut wkb = Vec::new();
        crate::wkt::read("LINESTRING Z (9 48 100, 9.5 48.5 -20)", &mut wkb).unwrap();
        let before = wkb.clone();
        assert!(there.geometry(&mut wkb).unwrap());
        assert_ne!(wkb, before);
        assert!(back.geometry(&mut wkb).unwrap());
        let mut was = Vec::new();
        each_position(&mut before.clone(), |x, y, z| was.push([*x, *y, *z.unwrap()]));
        let mut was = was.into_iter();
        each_position(&mut wkb, |x, y, z| {
            let [lon, lat, height] = was.next().unwrap();
            assert!(
                (*x - lon).abs() < 1e-12 && (*y - lat).abs() < 1e-12 && (*z.unwrap() - height).abs() < 1e-8
            );
        });
        let mut flat = Vec::new();
        crate::wkt::read("POINT (9 48)", &mut flat).unwrap();
        assert_eq!(there.geometry(&mut flat).unwrap_err().code, Code::INVALID_GEOMETRY);
        assert!(there.position(9.0, 48.0, f64::NAN).is_err());
        assert!(back.position(0.0, 0.0, 0.0).is_err(), "the geocentre has no latitude");
    }

    #[test]
    fn geometries_change_in_place() {
        let mut wkb = Vec::new();
        crate::wkt::read("GEOMETRYCOLLECTION Z (POINT Z (0 0 7), POINT Z EMPTY)", &mut wkb).unwrap();
        Transform::new(&Crs::wgs84(), &Crs::epsg(3857)).unwrap().geometry(&mut wkb).unwrap();
        let text = crate::wkt::to_string(&wkb);
        assert!(text.ends_with(" 7), POINT Z EMPTY)"), "{text}");
    }
}
