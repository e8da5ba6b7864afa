//! From one system to another.

use proj4rs::Proj;
use proj4rs::transform::{Transform as Positions, TransformClosure, transform};
use tidegate_core::Code;

use super::Crs;
use super::grid::{Grids, Known, Shift};
use crate::bounds::Bounds;
use crate::error::Problem;
use crate::wkb;

/// What a transformation is, for the record of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// From this system.
    pub from: Crs,
    /// To this one.
    pub to: Crs,
    /// The PROJ strings of both.
    pub definition: (String, String),
    /// The stated accuracy in metres, the sum of both ways over WGS 84; `None` if one of them is
    /// only a ballpark.
    pub accuracy: Option<f32>,
    /// The grids in use, by their files.
    pub grids: Vec<std::path::PathBuf>,
    /// Grids that would be more accurate, but are not there.
    pub missing: Vec<Missing>,
}

/// A grid that would be more accurate, but is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The system that it is for.
    pub crs: Crs,
    /// What it is called and how accurate it is.
    pub grid: Known,
}

/// A way from one system to another.
///
/// It always goes over WGS 84, because that is what each row of the table was verified for. Taken
/// directly, a system without parameters (its datum counts as WGS 84) beside one with them would
/// not be shifted at all.
pub struct Transform {
    from: Side,
    to: Side,
    wgs84: Proj,
    operation: Operation,
}

struct Side {
    proj: Proj,
    geographic: bool,
    is_wgs84: bool,
    /// The grids that lead to WGS 84 and back, the most accurate first; without any, the parameters
    /// of the projection do.
    shifts: Vec<Shift>,
    /// Where the system is meant to be used, in degrees.
    area: Bounds,
}

impl Side {
    /// Over the first grid that holds the position, in degrees.
    fn shifted(&self, x: f64, y: f64, to_wgs84: bool) -> Option<(f64, f64)> {
        if self.shifts.is_empty() {
            return Some((x, y));
        }
        let (lon, lat) = (x.to_degrees(), y.to_degrees());
        let over = |shift: &Shift| {
            if to_wgs84 { shift.there(lon, lat) } else { shift.back(lon, lat) }
        };
        self.shifts.iter().find_map(over).map(|(lon, lat)| (lon.to_radians(), lat.to_radians()))
    }

    /// As [`Side::shifted`]; a position outside every grid is none.
    fn shift(&self, position: &mut Position, to_wgs84: bool) {
        let shifted = self.shifted(position.0, position.1, to_wgs84);
        (position.0, position.1) = shifted.unwrap_or((f64::NAN, f64::NAN));
    }

    /// Whether a box in degrees lies in the area; its west may be greater than its east, over the
    /// antimeridian.
    fn holds(&self, found: Bounds) -> bool {
        // The table holds single precision and states areas to a hundredth of a degree.
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

const WGS84: &str = "+proj=longlat +ellps=WGS84 +towgs84=0,0,0";

impl Transform {
    /// The way between two systems, without grids.
    ///
    /// # Errors
    /// `CRS_NOT_FOUND` if one is unknown, or known but not verified.
    pub fn new(from: &Crs, to: &Crs) -> Result<Transform, Problem> {
        Transform::with_grids(from, to, &Grids::default())
    }

    /// The way between two systems, over the grids that are there and more accurate.
    ///
    /// # Errors
    /// As [`Transform::new`], or if a grid is broken.
    pub fn with_grids(from: &Crs, to: &Crs, grids: &Grids) -> Result<Transform, Problem> {
        let (a, b) = (side(from, grids)?, side(to, grids)?);
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

    /// What this is.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// One position, in degrees or in the unit of the system.
    ///
    /// # Errors
    /// `INVALID_GEOMETRY` if it cannot be projected.
    #[inline]
    pub fn position(&self, x: f64, y: f64, z: f64) -> Result<(f64, f64, f64), Problem> {
        let mut position = Position(x, y, z);
        if self.from.geographic {
            (position.0, position.1) = (x.to_radians(), y.to_radians());
        }
        let mut done = Ok(());
        if !self.from.is_wgs84 {
            done = transform(&self.from.proj, &self.wgs84, &mut position);
            self.from.shift(&mut position, true);
        }
        if done.is_ok() && !self.to.is_wgs84 {
            self.to.shift(&mut position, false);
            done = transform(&self.wgs84, &self.to.proj, &mut position);
        }
        let Position(mut to_x, mut to_y, to_z) = position;
        if self.to.geographic {
            (to_x, to_y) = (to_x.to_degrees(), to_y.to_degrees());
        }
        if done.is_err() || !to_x.is_finite() || !to_y.is_finite() {
            let message = match self.operation.grids.as_slice() {
                [] => format!("({x} {y}) has no place in {}", self.operation.to),
                grids => format!("({x} {y}) lies outside the grid {}", names(grids)),
            };
            return Err(Problem::new(Code::INVALID_GEOMETRY, message));
        }
        Ok((to_x, to_y, to_z))
    }

    /// All positions of canonical well-known binary, in place. Heights are kept as they are: a
    /// change of datum without a change of vertical system leaves them alone.
    ///
    /// The positions go through each step of the way together, which costs less than each
    /// position through all steps.
    ///
    /// Whether all positions lie in the area that both systems are meant for; outside it the result
    /// is what PROJ would say too, and may still be meaningless.
    ///
    /// # Errors
    /// As [`Transform::position`]; the bytes are then as before.
    pub fn geometry(&self, wkb: &mut [u8]) -> Result<bool, Problem> {
        let mut all = Many(Vec::with_capacity(wkb.len() / 16));
        let unit = |x: f64| if self.from.geographic { x.to_radians() } else { x };
        each_position(wkb, |x, y| all.0.push(Position(unit(*x), unit(*y), 0.0)));
        let mut done = Ok(());
        if !self.from.is_wgs84 {
            done = transform(&self.from.proj, &self.wgs84, &mut all);
            all.0.iter_mut().for_each(|position| self.from.shift(position, true));
        }
        let inside = bounds(&all.0).is_none_or(|found| self.from.holds(found) && self.to.holds(found));
        if done.is_ok() && !self.to.is_wgs84 {
            all.0.iter_mut().for_each(|position| self.to.shift(position, false));
            done = transform(&self.wgs84, &self.to.proj, &mut all);
        }
        if done.is_err() || all.0.iter().any(|p| !p.0.is_finite() || !p.1.is_finite()) {
            return self.one_by_one(wkb).map(|()| inside);
        }
        let unit = |x: f64| if self.to.geographic { x.to_degrees() } else { x };
        let mut all = all.0.into_iter();
        each_position(wkb, |x, y| {
            if let Some(Position(to_x, to_y, _)) = all.next() {
                (*x, *y) = (unit(to_x), unit(to_y));
            }
        });
        Ok(inside)
    }

    /// The slow way, which knows the position that fails.
    fn one_by_one(&self, wkb: &mut [u8]) -> Result<(), Problem> {
        let mut changed = wkb.to_vec();
        wkb::map_positions(&mut changed, |x, y, _| {
            if x.is_nan() && y.is_nan() {
                return Ok(());
            }
            let (to_x, to_y, _) = self.position(*x, *y, 0.0)?;
            (*x, *y) = (to_x, to_y);
            Ok(())
        })?;
        wkb.copy_from_slice(&changed);
        Ok(())
    }
}

/// The box around positions in radians, in degrees.
fn bounds(positions: &[Position]) -> Option<Bounds> {
    let mut found: Option<Bounds> = None;
    for Position(x, y, _) in positions {
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

fn each_position(wkb: &mut [u8], mut visit: impl FnMut(&mut f64, &mut f64)) {
    let Ok(()) = wkb::map_positions(wkb, |x, y, _| {
        visit(x, y);
        Ok::<(), std::convert::Infallible>(())
    });
}

/// The names of files, without their folders.
fn names(paths: &[std::path::PathBuf]) -> String {
    let names = paths.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    names.collect::<Vec<_>>().join(", ")
}

/// One side, and what the record of a run tells of it.
struct Ready {
    side: Side,
    definition: String,
    accuracy: Option<f32>,
    missing: Option<Known>,
}

fn side(crs: &Crs, grids: &Grids) -> Result<Ready, Problem> {
    let refuse = |why: &str| Problem::new(Code::CRS_NOT_FOUND, format!("{crs} {why}"));
    let entry = crs.entry().ok_or_else(|| refuse("is not in the table of systems"))?;
    if !entry.verified {
        return Err(refuse("is known, but our projection of it is not verified"));
    }
    let (shifts, missing) = grids.find(&entry)?;
    let mut definition = entry.proj;
    let mut accuracy = entry.accuracy;
    if !shifts.is_empty() {
        // Without parameters the projection leaves the datum alone; the grid then shifts it.
        let words = definition.split_ascii_whitespace().filter(|word| !word.starts_with("+towgs84="));
        definition = words.collect::<Vec<_>>().join(" ");
        accuracy = shifts.iter().map(|shift| shift.known.accuracy).reduce(f32::max);
    }
    let proj =
        Proj::from_proj_string(&definition).map_err(|e| refuse(&format!("cannot be projected: {e}")))?;
    let (geographic, is_wgs84, area) = (entry.geographic, crs.is_wgs84(), entry.area);
    if let [first, rest @ ..] = shifts.as_slice() {
        definition.push_str(" +nadgrids=");
        let paths = [first].into_iter().chain(rest).map(|shift| shift.path.clone());
        definition.push_str(&names(&paths.collect::<Vec<_>>()).replace(", ", ","));
    }
    Ok(Ready { side: Side { proj, geographic, is_wgs84, shifts, area }, definition, accuracy, missing })
}

struct Position(f64, f64, f64);

impl Positions for Position {
    #[inline]
    fn transform_coordinates<F: TransformClosure>(&mut self, f: &mut F) -> proj4rs::errors::Result<()> {
        (self.0, self.1, self.2) = f(self.0, self.1, self.2)?;
        Ok(())
    }
}

struct Many(Vec<Position>);

impl Positions for Many {
    #[inline]
    fn transform_coordinates<F: TransformClosure>(&mut self, f: &mut F) -> proj4rs::errors::Result<()> {
        self.0.iter_mut().try_for_each(|position| position.transform_coordinates(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places computed by PROJ 9.5 with the same operations.
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

    #[test]
    fn what_is_unknown_or_has_no_place_is_refused() {
        assert_eq!(Transform::new(&Crs::wgs84(), &Crs::epsg(1)).err().unwrap().code, Code::CRS_NOT_FOUND);
        let mercator = Transform::new(&Crs::wgs84(), &Crs::epsg(3857)).unwrap();
        assert_eq!(mercator.position(0.0, 90.0, 0.0).unwrap_err().code, Code::INVALID_GEOMETRY);
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
    fn geometries_change_in_place() {
        let mut wkb = Vec::new();
        crate::wkt::read("GEOMETRYCOLLECTION Z (POINT Z (0 0 7), POINT Z EMPTY)", &mut wkb).unwrap();
        Transform::new(&Crs::wgs84(), &Crs::epsg(3857)).unwrap().geometry(&mut wkb).unwrap();
        let text = crate::wkt::to_string(&wkb);
        assert!(text.ends_with(" 7), POINT Z EMPTY)"), "{text}");
    }
}
