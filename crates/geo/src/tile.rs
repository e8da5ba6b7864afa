//! Web map tiles: which tiles cover a box, and which box a tile covers.
//!
//! The grid is that of nearly all tile services: Web Mercator, 2^z columns from the west and 2^z
//! rows from the north. TMS counts rows from the south; that is only another name of the same tile.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

use tidegate_core::Code;

use crate::Problem;

/// The deepest zoom level.
pub const ZOOM_MAX: u8 = 24;
/// Half the side of the grid, in metres of Web Mercator.
const HALF: f64 = 20_037_508.342_789_244;
/// The latitude at which the grid ends, in degrees.
const LATITUDE_MAX: f64 = 85.051_128_779_806_6;

/// A tile by zoom, column from the west and row from the north.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId {
    /// The zoom level.
    pub z: u8,
    /// The column.
    pub x: u32,
    /// The row.
    pub y: u32,
}

impl TileId {
    /// The tile of a row that is counted from the south.
    #[must_use]
    pub fn from_south(z: u8, x: u32, row: u32) -> TileId {
        TileId { z, x, y: side(z).saturating_sub(1).saturating_sub(row) }
    }

    /// The row counted from the south, as in TMS and MBTiles.
    #[must_use]
    pub fn row_from_south(self) -> u32 {
        side(self.z) - 1 - self.y
    }

    /// The box in metres of Web Mercator: west, south, east, north.
    #[must_use]
    pub fn mercator_box(self) -> [f64; 4] {
        let size = 2.0 * HALF / f64::from(side(self.z));
        let (west, north) = (f64::from(self.x) * size - HALF, HALF - f64::from(self.y) * size);
        [west, north - size, west + size, north]
    }
}

/// The number of columns and rows of a zoom level.
fn side(z: u8) -> u32 {
    1 << z.min(ZOOM_MAX)
}

/// The tiles that cover a box in several zoom levels.
#[derive(Clone, Debug, PartialEq)]
pub struct TileCover {
    /// West, south, east, north, in degrees. The west may be east of the east: then the box crosses
    /// the antimeridian.
    bbox: [f64; 4],
    zooms: RangeInclusive<u8>,
}

impl TileCover {
    /// The tiles that cover this box (west, south, east, north, in degrees) in these zoom levels.
    ///
    /// # Errors
    /// When the box is not one in degrees, or there is no such zoom level.
    pub fn new(bbox: [f64; 4], zooms: RangeInclusive<u8>) -> Result<TileCover, Problem> {
        let bad = |message: String| Err(Problem::new(Code::OUT_OF_BOUNDS, message));
        let [west, south, east, north] = bbox;
        let fits = |value: f64, most: f64| value.is_finite() && value.abs() <= most;
        if !(fits(west, 180.0) && fits(east, 180.0) && fits(south, 90.0) && fits(north, 90.0)) {
            return bad(format!("the box {bbox:?} is not west, south, east, north in degrees"));
        }
        if south >= north || west == east {
            return bad(format!("the box {bbox:?} is empty"));
        }
        if zooms.is_empty() || *zooms.end() > ZOOM_MAX {
            return bad(format!("zoom levels are 0 to {ZOOM_MAX}, the lower one first"));
        }
        Ok(TileCover { bbox, zooms })
    }

    /// The number of tiles in one zoom level.
    #[must_use]
    pub fn count_at(&self, z: u8) -> u64 {
        let width = |(from, to): (u32, u32)| u64::from(to - from) + 1;
        self.columns(z).into_iter().map(width).sum::<u64>() * width(self.rows(z))
    }

    /// The zoom levels.
    pub fn zooms(&self) -> impl Iterator<Item = u8> + use<> {
        self.zooms.clone()
    }

    /// The number of tiles.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.zooms().map(|z| self.count_at(z)).sum()
    }

    /// The tiles: from the lowest zoom level, row by row.
    pub fn tiles(&self) -> impl Iterator<Item = TileId> + '_ {
        self.zooms().flat_map(move |z| {
            let (columns, (top, bottom)) = (self.columns(z), self.rows(z));
            (top..=bottom).flat_map(move |y| {
                columns
                    .clone()
                    .into_iter()
                    .flat_map(move |(from, to)| (from..=to).map(move |x| TileId { z, x, y }))
            })
        })
    }

    /// The columns, as one range or as two if the box crosses the antimeridian.
    fn columns(&self, z: u8) -> Vec<(u32, u32)> {
        let [west, _, east, _] = self.bbox;
        let column = |lon: f64| cell((lon + 180.0) / 360.0, z, false);
        let last = |lon: f64| cell((lon + 180.0) / 360.0, z, true);
        if west < east {
            return vec![(column(west), last(east).max(column(west)))];
        }
        let (left, right) = ((0, last(east)), (column(west), side(z) - 1));
        // In the low zoom levels both parts meet.
        if left.1 >= right.0 { vec![(0, side(z) - 1)] } else { vec![left, right] }
    }

    fn rows(&self, z: u8) -> (u32, u32) {
        let [_, south, _, north] = self.bbox;
        let top = cell(northing(north), z, false);
        (top, cell(northing(south), z, true).max(top))
    }
}

/// The share of the grid between its northern edge and a latitude.
fn northing(lat: f64) -> f64 {
    let lat = lat.clamp(-LATITUDE_MAX, LATITUDE_MAX).to_radians();
    (1.0 - (lat.tan() + 1.0 / lat.cos()).ln() / PI) / 2.0
}

/// The cell of a share of the grid; an end that lies on an edge belongs to the cell before it.
fn cell(share: f64, z: u8, is_end: bool) -> u32 {
    let at = share * f64::from(side(z));
    let cell = if is_end { (at - 1e-9).floor() } else { (at + 1e-9).floor() };
    cell.clamp(0.0, f64::from(side(z) - 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_covered_by_the_tiles_that_everybody_names() {
        // Vienna, as on every slippy map.
        let vienna = TileCover::new([16.37, 48.2, 16.38, 48.21], 0..=14).unwrap();
        let last: Vec<TileId> = vienna.tiles().filter(|tile| tile.z == 14).collect();
        assert_eq!(last.first(), Some(&TileId { z: 14, x: 8937, y: 5681 }));
        assert_eq!(vienna.tiles().next(), Some(TileId { z: 0, x: 0, y: 0 }));
        assert_eq!(vienna.tiles().count() as u64, vienna.count());
        let world = TileCover::new([-180.0, -90.0, 180.0, 90.0], 0..=3).unwrap();
        assert_eq!(world.count(), 1 + 4 + 16 + 64);
        assert_eq!(world.count_at(3), 64);
    }

    #[test]
    fn a_box_across_the_antimeridian_has_two_parts() {
        let cover = TileCover::new([170.0, -10.0, -170.0, 10.0], 0..=5).unwrap();
        let columns: std::collections::BTreeSet<u32> =
            cover.tiles().filter(|tile| tile.z == 5).map(|tile| tile.x).collect();
        assert_eq!(columns.into_iter().collect::<Vec<_>>(), [0, 31]);
        assert_eq!(cover.count_at(0), 1);
        assert_eq!(cover.tiles().count() as u64, cover.count());
    }

    #[test]
    fn a_box_on_the_edges_of_tiles_has_no_tile_beside_it() {
        let cover = TileCover::new([-90.0, 0.0, 90.0, 66.513_260_443_111_85], 2..=2).unwrap();
        let tiles: Vec<_> = cover.tiles().map(|tile| (tile.x, tile.y)).collect();
        assert_eq!(tiles, [(1, 1), (2, 1)]);
    }

    #[test]
    fn a_tile_has_its_box_and_its_row_from_the_south() {
        let tile = TileId { z: 1, x: 1, y: 0 };
        assert_eq!(tile.mercator_box(), [0.0, 0.0, HALF, HALF]);
        assert_eq!((tile.row_from_south(), TileId { z: 0, x: 0, y: 0 }.row_from_south()), (1, 0));
    }

    #[test]
    fn a_box_that_is_none_is_refused() {
        for (bbox, zooms) in [
            ([16.0, 48.0, 15.0, 48.0], 0..=1),
            ([16.0, 49.0, 17.0, 48.0], 0..=1),
            ([1.6e6, 0.0, 1.7e6, 1.0], 0..=1),
            ([f64::NAN, 0.0, 1.0, 1.0], 0..=1),
            ([0.0, 0.0, 1.0, 1.0], 0..=25),
        ] {
            assert!(TileCover::new(bbox, zooms).is_err(), "{bbox:?}");
        }
    }
}
