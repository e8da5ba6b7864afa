//! Well-known binary: the form in which a geometry lies in a [`crate::Batch`].
//!
//! **Canonical** here means: little-endian, the ISO type numbers (1 to 7, plus 1000 for Z, 2000
//! for M, 3000 for both), no SRID, members of the type and dimensions that their parent promises,
//! counts that the bytes bear out, nothing after the end. [`canonicalise`] makes it from any ISO
//! or extended (PostGIS) form, in either byte order, and is the only door: what lies in a batch
//! went through it or was written by [`write`](mod@write).
//!
//! Reading is by [`Cursor`], which steps through the structure and hands out runs of coordinates
//! by their place. It borrows nothing, so that the same walk serves reading, in-place change and
//! copying. It keeps its own stack of at most [`DEPTH_MAX`] levels and checks every count against
//! the bytes that are left before it believes it: hostile input ends in an error, and costs no
//! more than its own length. Why not the crates: one of the two common readers overflows the
//! stack on nested collections and aborts the process, and both build objects that we do not want.

mod canon;
mod cursor;
mod edit;
pub mod write;

pub use canon::{Head, canonicalise};
pub use cursor::{Cursor, Event, Run};
pub use edit::{Part, edit};

/// How deep collections may nest. GEOS and PostGIS allow 128 or more; no real data comes near.
pub const DEPTH_MAX: usize = 64;

/// The seven types of simple features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// One position.
    Point = 1,
    /// A chain of positions.
    LineString = 2,
    /// A surface within rings.
    Polygon = 3,
    /// Points.
    MultiPoint = 4,
    /// Chains.
    MultiLineString = 5,
    /// Surfaces.
    MultiPolygon = 6,
    /// Anything of these.
    GeometryCollection = 7,
}

impl Shape {
    /// All seven, in the order of their numbers.
    pub const ALL: [Shape; 7] = [
        Shape::Point,
        Shape::LineString,
        Shape::Polygon,
        Shape::MultiPoint,
        Shape::MultiLineString,
        Shape::MultiPolygon,
        Shape::GeometryCollection,
    ];

    /// The shape of this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Shape> {
        Shape::ALL.into_iter().find(|shape| *shape as u32 == number)
    }

    /// The name as GeoJSON spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Point => "Point",
            Shape::LineString => "LineString",
            Shape::Polygon => "Polygon",
            Shape::MultiPoint => "MultiPoint",
            Shape::MultiLineString => "MultiLineString",
            Shape::MultiPolygon => "MultiPolygon",
            Shape::GeometryCollection => "GeometryCollection",
        }
    }

    /// The name as WKT and GeoPackage spell it.
    #[must_use]
    pub const fn upper_name(self) -> &'static str {
        match self {
            Shape::Point => "POINT",
            Shape::LineString => "LINESTRING",
            Shape::Polygon => "POLYGON",
            Shape::MultiPoint => "MULTIPOINT",
            Shape::MultiLineString => "MULTILINESTRING",
            Shape::MultiPolygon => "MULTIPOLYGON",
            Shape::GeometryCollection => "GEOMETRYCOLLECTION",
        }
    }

    /// The only shape that members may have; `None` for a collection, which takes any, and for
    /// shapes without members.
    #[must_use]
    pub const fn member(self) -> Option<Shape> {
        match self {
            Shape::MultiPoint => Some(Shape::Point),
            Shape::MultiLineString => Some(Shape::LineString),
            Shape::MultiPolygon => Some(Shape::Polygon),
            _ => None,
        }
    }

    /// The shape of many of these.
    #[must_use]
    pub const fn multi(self) -> Shape {
        match self {
            Shape::Point => Shape::MultiPoint,
            Shape::LineString => Shape::MultiLineString,
            Shape::Polygon => Shape::MultiPolygon,
            other => other,
        }
    }
}

/// What a position holds besides x and y.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// Nothing.
    #[default]
    Xy,
    /// A height.
    Xyz,
    /// A measure.
    Xym,
    /// A height and a measure.
    Xyzm,
}

impl Dim {
    /// From the two flags.
    #[must_use]
    pub const fn new(z: bool, m: bool) -> Dim {
        match (z, m) {
            (false, false) => Dim::Xy,
            (true, false) => Dim::Xyz,
            (false, true) => Dim::Xym,
            (true, true) => Dim::Xyzm,
        }
    }

    /// Whether there is a height.
    #[must_use]
    pub const fn has_z(self) -> bool {
        matches!(self, Dim::Xyz | Dim::Xyzm)
    }

    /// Whether there is a measure.
    #[must_use]
    pub const fn has_m(self) -> bool {
        matches!(self, Dim::Xym | Dim::Xyzm)
    }

    /// How many numbers a position holds.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Dim::Xy => 2,
            Dim::Xyz | Dim::Xym => 3,
            Dim::Xyzm => 4,
        }
    }

    /// What both together hold.
    #[must_use]
    pub const fn union(self, other: Dim) -> Dim {
        Dim::new(self.has_z() || other.has_z(), self.has_m() || other.has_m())
    }

    const fn iso_thousands(self) -> u32 {
        match self {
            Dim::Xy => 0,
            Dim::Xyz => 1000,
            Dim::Xym => 2000,
            Dim::Xyzm => 3000,
        }
    }
}

/// The shape and dimensions of canonical well-known binary, from its first bytes.
#[must_use]
pub fn head(wkb: &[u8]) -> Option<(Shape, Dim)> {
    match Cursor::default().next(wkb) {
        Ok(Some(Event::Begin { shape, dim, .. })) => Some((shape, dim)),
        _ => None,
    }
}

/// The part of a multi shape that has only one.
#[must_use]
pub fn only_part(wkb: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::default();
    match cursor.next(wkb) {
        Ok(Some(Event::Begin { shape, count: 1, .. })) if shape.member().is_some() => {
            wkb.get(cursor.offset()..)
        }
        _ => None,
    }
}

/// Whether there is no position in it.
#[must_use]
pub fn is_empty(wkb: &[u8]) -> bool {
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let Event::Coords(run) = event
            && run.xy(wkb).any(|(x, y)| !(x.is_nan() && y.is_nan()))
        {
            return false;
        }
    }
    true
}

/// Changes every position in place. The function sees x, y and, where there is one, z.
///
/// # Errors
/// The first error of the function; the bytes are then half changed.
pub fn map_positions<E>(
    wkb: &mut [u8],
    mut change: impl FnMut(&mut f64, &mut f64, Option<&mut f64>) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        let Event::Coords(run) = event else { continue };
        let size = run.dim.size() * 8;
        for position in wkb.get_mut(run.range()).unwrap_or_default().chunks_exact_mut(size) {
            let (Some(mut x), Some(mut y)) = (number(position, 0), number(position, 1)) else { continue };
            let mut z = if run.dim.has_z() { number(position, 2) } else { None };
            change(&mut x, &mut y, z.as_mut())?;
            let numbers = [Some(x), Some(y), z];
            for (slot, value) in position.chunks_exact_mut(8).zip(numbers) {
                if let Some(value) = value {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
    }
    Ok(())
}

fn number(position: &[u8], at: usize) -> Option<f64> {
    position.get(at * 8..at * 8 + 8)?.try_into().ok().map(f64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_change_in_place_and_keep_their_measure() {
        let mut wkb = Vec::new();
        crate::wkt::read("LINESTRING ZM (1 2 3 4, 5 6 7 8)", &mut wkb).unwrap();
        map_positions(&mut wkb, |x, y, z| {
            (*x, *y) = (*y, *x);
            if let Some(z) = z {
                *z += 10.0;
            }
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(crate::wkt::to_string(&wkb), "LINESTRING ZM (2 1 13 4, 6 5 17 8)");
    }

    #[test]
    fn emptiness_looks_through_collections() {
        for (text, empty) in [
            ("POINT EMPTY", true),
            ("POINT (1 2)", false),
            ("GEOMETRYCOLLECTION (POINT EMPTY, MULTIPOLYGON EMPTY)", true),
            ("GEOMETRYCOLLECTION (POINT EMPTY, LINESTRING (0 0, 1 1))", false),
        ] {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            assert_eq!(is_empty(&wkb), empty, "{text}");
        }
    }
}
