//! Fits a geometry into a layer of one type.
//!
//! A repair may change the type: a bow tie becomes two triangles. A layer that holds polygons only
//! cannot take them, and half of them would be a wrong parcel. So nothing that has an area, a length
//! or a position of its own is dropped, except parts of another kind, such as the lines that a
//! repair leaves beside a polygon.

use super::small::{extract, promote};
use crate::wkb::{self, Shape};

/// How a geometry fits into a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// As it is.
    Same,
    /// In this form, as well-known binary: in its multi, as its only part, or as its parts of the
    /// right kind.
    Changed(Vec<u8>),
    /// Only if the layer takes several parts as well.
    Several,
    /// Not at all.
    Never,
}

/// How a geometry fits into a layer that holds only `only`, or any type if it is `None`.
#[must_use]
pub fn fit(geometry: &[u8], only: Option<Shape>) -> Fit {
    let (Some(only), Some((shape, _))) = (only, wkb::head(geometry)) else { return Fit::Same };
    if shape == only {
        return Fit::Same;
    }
    if shape.multi() == only {
        return Fit::Changed(promote(geometry));
    }
    let parts = match shape {
        Shape::GeometryCollection => extract(geometry, only),
        _ if shape == only.multi() => geometry.to_vec(),
        _ => return Fit::Never,
    };
    match (count(&parts), only.multi() == only) {
        (0, _) => Fit::Never,
        (_, true) => Fit::Changed(parts),
        // A part follows the head and the count of its multi.
        (1, false) => parts.get(9..).map_or(Fit::Never, |part| Fit::Changed(part.to_vec())),
        (_, false) => Fit::Several,
    }
}

fn count(multi: &[u8]) -> u32 {
    multi.get(5..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wkb(text: &str) -> Vec<u8> {
        let mut wkb = Vec::new();
        crate::wkt::read(text, &mut wkb).unwrap();
        wkb
    }

    #[test]
    fn nothing_of_the_right_kind_is_lost() {
        let two = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((2 2, 3 2, 3 3, 2 2)))";
        let one = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)))";
        let part = "POLYGON ((0 0, 1 0, 1 1, 0 0))";
        let with_line = "GEOMETRYCOLLECTION (POLYGON ((0 0, 1 0, 1 1, 0 0)), LINESTRING (0 0, 1 1))";
        let changed = |text: &str| Fit::Changed(wkb(text));
        for (text, only, expected) in [
            (part, None, Fit::Same),
            (part, Some(Shape::Polygon), Fit::Same),
            (part, Some(Shape::MultiPolygon), changed(one)),
            (one, Some(Shape::Polygon), changed(part)),
            (two, Some(Shape::Polygon), Fit::Several),
            (two, Some(Shape::MultiPolygon), Fit::Same),
            (two, None, Fit::Same),
            (with_line, Some(Shape::Polygon), changed(part)),
            (with_line, Some(Shape::MultiPolygon), changed(one)),
            (with_line, Some(Shape::Point), Fit::Never),
            (part, Some(Shape::Point), Fit::Never),
            (part, Some(Shape::GeometryCollection), Fit::Never),
            ("MULTIPOLYGON EMPTY", Some(Shape::Polygon), Fit::Never),
            ("POINT Z (1 2 3)", Some(Shape::MultiPoint), changed("MULTIPOINT Z ((1 2 3))")),
            ("MULTIPOINT Z ((1 2 3))", Some(Shape::Point), changed("POINT Z (1 2 3)")),
        ] {
            assert_eq!(fit(&wkb(text), only), expected, "{text} into {only:?}");
        }
    }
}
