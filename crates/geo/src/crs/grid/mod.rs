//! Datum shift grids in NTv2 (`.gsb`) and GeoTIFF (`.tif`), and the system that each is for.
//!
//! A grid is more accurate than the Helmert parameters of the table, often by metres, but needs a file.
//! The list of grids comes from PROJ's database (`tools/crs_grids.py`); a transformation looks for their
//! files in the folders that it is given. If there are grids, every position must lie in one of them: a
//! fallback to the parameters for some positions would silently tear a geometry apart.
//!
//! Why our own reader: proj4rs keeps all grids of a process in one global list, trusts the counts in a
//! file, and takes every file to be in arc-seconds.

mod ntv2;
mod tiff;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::Code;

use super::table::Entry;
use crate::bounds::Bounds;
use crate::error::{Error, Problem};

static LIST: &str = include_str!("../../../data/crs_grids.tsv");

/// Most nodes of a grid: 128 MB of shifts. The largest grid in use has a tenth of it.
const NODES_MAX: usize = 16 << 20;
/// Distance from an edge, in cells, within which a position still counts as inside.
const SLACK: f64 = 1e-5;

/// A row of the list of grids.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// File names under which it is distributed.
    pub files: Vec<&'static str>,
    /// Name of the operation in EPSG's register.
    pub operation: &'static str,
    /// Stated accuracy of the whole operation to WGS 84, in metres.
    pub accuracy: f32,
    /// Area of use, in degrees.
    pub area: Bounds,
    /// For each file, whether it shifts from WGS 84 to the system instead of the other way.
    reversed: Vec<bool>,
}

/// Folders with grid files.
#[derive(Clone, Debug, Default)]
pub struct Grids {
    folders: Vec<PathBuf>,
}

impl Grids {
    /// The grids in these folders.
    #[must_use]
    pub fn in_folders(folders: Vec<PathBuf>) -> Grids {
        Grids { folders }
    }

    /// The grids for a system that are more accurate than its parameters: those whose files were found,
    /// and the best missing one whose area covers the centre of the system's area of use.
    ///
    /// # Errors
    /// If a file cannot be read: ignoring it would silently lose accuracy.
    pub(super) fn find(&self, entry: &Entry) -> Result<(Vec<GridShift>, Option<Known>), Problem> {
        let mut known = entry.base.map_or_else(Vec::new, listed);
        known.retain(|grid| {
            entry.accuracy.is_none_or(|stated| grid.accuracy < stated) && meet(grid.area, entry.area)
        });
        // Of two with the same accuracy, the one with the later year in its name.
        known.sort_by(|a, b| a.accuracy.total_cmp(&b.accuracy).then_with(|| b.files.cmp(&a.files)));
        let (mut shifts, mut missing) = (Vec::new(), None);
        for grid in known {
            let named = || grid.files.iter().zip(&grid.reversed);
            let place = self
                .folders
                .iter()
                .flat_map(|folder| named().map(|(file, reversed)| (folder.join(file), *reversed)))
                .find(|(path, _)| path.is_file());
            match place {
                Some((path, reversed)) => {
                    let grid_of = Grid::open(&path).map_err(|e| {
                        Problem::new(Code::CRS_NOT_FOUND, format!("the grid {}: {e}", path.display()))
                    })?;
                    shifts.push(GridShift { grid: Arc::new(grid_of), known: grid, path, reversed });
                }
                None if missing.is_none() && shifts.is_empty() && holds_middle(grid.area, entry.area) => {
                    missing = Some(grid);
                }
                None => {}
            }
        }
        Ok((shifts, missing))
    }
}

/// Whether two bounding boxes intersect. One that crosses the antimeridian (west greater than east)
/// counts as intersecting everything.
fn meet(a: Bounds, b: Bounds) -> bool {
    let wraps = a.min_x > a.max_x || b.min_x > b.max_x;
    (wraps || (a.min_x <= b.max_x && b.min_x <= a.max_x)) && a.min_y <= b.max_y && b.min_y <= a.max_y
}

fn holds_middle(grid: Bounds, area: Bounds) -> bool {
    let middle = Bounds {
        min_x: f64::midpoint(area.min_x, area.max_x),
        max_x: f64::midpoint(area.min_x, area.max_x),
        min_y: f64::midpoint(area.min_y, area.max_y),
        max_y: f64::midpoint(area.min_y, area.max_y),
    };
    meet(grid, middle)
}

/// The grids listed for a geographic system.
fn listed(base: u32) -> Vec<Known> {
    let read = |line: &'static str| {
        let mut cells = line.split('\t');
        if cells.next()?.parse() != Ok(base) {
            return None;
        }
        let accuracy = cells.next()?.parse().ok()?;
        let mut sides = cells.next()?.split(',').filter_map(|side| side.parse().ok());
        let (min_x, min_y, max_x, max_y) = (sides.next()?, sides.next()?, sides.next()?, sides.next()?);
        let area = Bounds { min_x, min_y, max_x, max_y };
        // A minus before the name marks a file of the opposite direction.
        let names = cells.next()?.split('|');
        let (files, reversed) =
            names.map(|name| (name.trim_start_matches('-'), name.starts_with('-'))).unzip();
        Some(Known { files, operation: cells.next()?, accuracy, area, reversed })
    };
    LIST.lines().filter_map(read).collect()
}

/// A grid in use.
#[derive(Clone, Debug)]
pub(super) struct GridShift {
    grid: Arc<Grid>,
    pub(super) known: Known,
    pub(super) path: PathBuf,
    /// Whether the file shifts from WGS 84 to the system.
    reversed: bool,
}

impl GridShift {
    /// From the system to WGS 84, in degrees; `None` outside the grid.
    pub(super) fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        if self.reversed { self.grid.backward(lon, lat) } else { self.grid.forward(lon, lat) }
    }

    /// From WGS 84 to the system.
    pub(super) fn inverse(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        if self.reversed { self.grid.forward(lon, lat) } else { self.grid.backward(lon, lat) }
    }
}

/// The subgrids of a file.
#[derive(Debug)]
pub struct Grid {
    parts: Vec<Subgrid>,
}

/// A rectangle of nodes. A finer subgrid may lie inside a coarser one.
#[derive(Debug)]
struct Subgrid {
    /// Southern edge, in degrees.
    south: f64,
    /// Eastern edge, in degrees.
    east: f64,
    /// Spacing of nodes in longitude and latitude, in degrees.
    step: (f64, f64),
    columns: usize,
    rows: usize,
    /// Unit of the shifts to the east and north, in degrees.
    unit: [f64; 2],
    /// Shifts to the east and north, in rows from east to west, from south to north.
    shifts: Vec<[f32; 2]>,
}

fn broken(message: &str) -> Error {
    Problem::new(Code::CORRUPTED_HEADER, message).into()
}

impl Grid {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is neither NTv2 nor a GeoTIFF of shifts, cut off, or too large.
    pub fn open(path: &Path) -> Result<Grid, Error> {
        Grid::read(&mut BufReader::with_capacity(1 << 16, File::open(path)?))
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// As [`Grid::open`].
    pub fn read(file: &mut (impl Read + Seek)) -> Result<Grid, Error> {
        let mut start = [0; 2];
        file.read_exact(&mut start).map_err(|_| broken("the file is empty"))?;
        file.rewind()?;
        let mut parts = match &start {
            b"II" | b"MM" => tiff::read(file)?,
            _ => ntv2::read(file)?,
        };
        // The finest subgrid that covers a position is used.
        parts.sort_by(|a, b| a.step.0.total_cmp(&b.step.0));
        Ok(Grid { parts })
    }

    fn shift(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        self.parts.iter().find_map(|part| part.shift(lon, lat))
    }

    /// Shifts a position in degrees; `None` outside the grid.
    #[must_use]
    pub fn forward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        let (east, north) = self.shift(lon, lat)?;
        Some((lon + east, lat + north))
    }

    /// The inverse of [`Grid::forward`], by iteration.
    #[must_use]
    pub fn backward(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        const ROUNDS_MAX: usize = 20;
        let (mut at_lon, mut at_lat) = (lon, lat);
        for _ in 0..ROUNDS_MAX {
            let (east, north) = self.shift(at_lon, at_lat)?;
            let (next_lon, next_lat) = (lon - east, lat - north);
            let moved = (next_lon - at_lon).abs().max((next_lat - at_lat).abs());
            (at_lon, at_lat) = (next_lon, next_lat);
            if moved < 1e-12 {
                return Some((at_lon, at_lat));
            }
        }
        None
    }
}

impl Subgrid {
    /// The shift at a position, by bilinear interpolation between four nodes.
    fn shift(&self, lon: f64, lat: f64) -> Option<(f64, f64)> {
        // A subgrid may lie beyond the antimeridian.
        let column = |lon: f64| cell((self.east - lon) / self.step.0, self.columns);
        let (column, x) = column(lon).or_else(|| column(lon - 360.0)).or_else(|| column(lon + 360.0))?;
        let (row, y) = cell((lat - self.south) / self.step.1, self.rows)?;
        let node = |column: usize, row: usize| self.shifts.get(row * self.columns + column);
        let (a, b) = (node(column, row)?, node(column + 1, row)?);
        let (c, d) = (node(column, row + 1)?, node(column + 1, row + 1)?);
        let [east, north] = [0, 1].map(|at| {
            let of = |node: &[f32; 2]| f64::from(node[at]);
            let shift = (of(a) * (1.0 - x) + of(b) * x) * (1.0 - y) + (of(c) * (1.0 - x) + of(d) * x) * y;
            shift * self.unit[at]
        });
        (east.is_finite() && north.is_finite()).then_some((east, north))
    }
}

/// The cell of a coordinate along one axis, and the fraction within it.
fn cell(place: f64, nodes: usize) -> Option<(usize, f64)> {
    let last = nodes.checked_sub(2)?;
    if !(-SLACK..=last as f64 + 1.0 + SLACK).contains(&place) {
        return None;
    }
    let at = (place.max(0.0) as usize).min(last);
    Some((at, place - at as f64))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Cursor;

    use super::*;

    /// A grid of one part, in seconds, whose shifts a function tells.
    pub(in crate::crs) fn file(
        [south, north, east, west]: [f64; 4],
        step: f64,
        big_endian: bool,
        shift: impl Fn(f64, f64) -> (f32, f32),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut record = |name: &str, value: &[u8]| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(8, b' ');
            bytes.extend(value);
            bytes.resize(16, b' ');
            out.extend(bytes);
        };
        let int = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let real = |x: f64| if big_endian { x.to_be_bytes() } else { x.to_le_bytes() };
        let pad = |n: u32| [&int(n)[..], &[0; 4]].concat();
        record("NUM_OREC", &pad(11));
        record("NUM_SREC", &pad(11));
        record("NUM_FILE", &pad(1));
        record("GS_TYPE", b"SECONDS ");
        for name in ["VERSION", "SYSTEM_F", "SYSTEM_T"] {
            record(name, b"TEST    ");
        }
        for name in ["MAJOR_F", "MINOR_F", "MAJOR_T", "MINOR_T"] {
            record(name, &real(6_378_137.0));
        }
        for (name, value) in [("SUB_NAME", b"PART    "), ("PARENT", b"NONE    ")] {
            record(name, value);
        }
        record("CREATED", b"20261115");
        record("UPDATED", b"20261115");
        for (name, value) in [
            ("S_LAT", south),
            ("N_LAT", north),
            ("E_LONG", -east),
            ("W_LONG", -west),
            ("LAT_INC", step),
            ("LONG_INC", step),
        ] {
            record(name, &real(if name.ends_with("INC") { value } else { value * 3600.0 }));
        }
        let columns = ((east - west) * 3600.0 / step).round() as u32 + 1;
        let rows = ((north - south) * 3600.0 / step).round() as u32 + 1;
        record("GS_COUNT", &pad(columns * rows));
        for row in 0..rows {
            for column in 0..columns {
                let (lon, lat) =
                    (east - f64::from(column) * step / 3600.0, south + f64::from(row) * step / 3600.0);
                let (dlon, dlat) = shift(lon, lat);
                for x in [dlat, -dlon, 0.0, 0.0] {
                    out.extend(if big_endian { x.to_be_bytes() } else { x.to_le_bytes() });
                }
            }
        }
        out
    }

    #[test]
    fn positions_are_shifted_and_come_back() {
        for big_endian in [false, true] {
            let bytes =
                file([50.0, 52.0, 1.0, -2.0], 1800.0, big_endian, |lon, lat| (lon as f32, lat as f32 - 45.0));
            let grid = Grid::read(&mut Cursor::new(&bytes)).unwrap();
            let (lon, lat) = grid.forward(-1.25, 51.1).unwrap();
            assert!(
                (lon - (-1.25 - 1.25 / 3600.0)).abs() < 1e-9 && (lat - (51.1 + 6.1 / 3600.0)).abs() < 1e-9
            );
            let (lon, lat) = grid.backward(lon, lat).unwrap();
            assert!((lon + 1.25).abs() < 1e-11 && (lat - 51.1).abs() < 1e-11);
            assert!(grid.forward(1.0, 52.0).is_some() && grid.forward(-2.0, 50.0).is_some());
            assert!(grid.forward(1.1, 51.0).is_none() && grid.forward(0.0, 49.9).is_none());
            assert!(grid.forward(f64::NAN, 51.0).is_none());
        }
    }

    #[test]
    fn hostile_grids_end_in_an_answer() {
        let good = file([50.0, 51.0, 1.0, 0.0], 1800.0, false, |_, _| (0.1, 0.1));
        for cut in 0..good.len() {
            assert!(Grid::read(&mut Cursor::new(&good[..cut])).is_err(), "{cut}");
        }
        for at in 0..22 * 16 {
            for byte in [0, 0x7f, 0xff] {
                let mut bent = good.clone();
                bent[at] = byte;
                let _ = Grid::read(&mut Cursor::new(&bent));
            }
        }
    }

    #[test]
    fn the_list_is_whole() {
        let british = listed(4277);
        assert!(british.iter().any(|grid| grid.files.contains(&"OSTN15_NTv2_OSGBtoETRS.gsb")), "{british:?}");
        for code in [27700, 4277] {
            assert_eq!(super::super::table::entry(code).unwrap().base, Some(4277));
        }
        let lines = LIST.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let base: u32 = line.split('\t').next().unwrap().parse().unwrap();
            assert!(!listed(base).is_empty(), "{line}");
        }
    }
}
