//! The only door into canonical form: any ISO or extended well-known binary, in either order.
//!
//! It copies while it checks, level by level with its own stack, so that depth costs no more than
//! a counter. What is already canonical is recognised first and copied whole.

use super::cursor::{Cursor, broken};
use super::{DEPTH_MAX, Dim, Shape, write};
use crate::error::Problem;

/// What the outermost geometry says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its type.
    pub shape: Shape,
    /// Its dimensions.
    pub dim: Dim,
    /// The SRID that the extended form carries, if it does and it is not 0.
    pub srid: Option<u32>,
}

const Z: u32 = 0x8000_0000;
const M: u32 = 0x4000_0000;
const SRID: u32 = 0x2000_0000;

/// Appends the canonical form of `wkb` to `out`.
///
/// # Errors
/// `INVALID_GEOMETRY` with the byte at which the input stops being well-known binary of simple
/// features: cut, trailing bytes, counts beyond the input, nesting deeper than [`DEPTH_MAX`],
/// members of the wrong type, curves. `out` may then hold a part.
pub fn canonicalise(wkb: &[u8], out: &mut Vec<u8>) -> Result<Head, Problem> {
    if let Some(head) = already(wkb) {
        out.extend_from_slice(wkb);
        return Ok(head);
    }
    let mut input = WkbInput { wkb, at: 0, big: false };
    let mut levels: Vec<(Shape, Dim, usize)> = Vec::new();
    let mut outermost = None;
    loop {
        let (shape, dim, srid) = input.header()?;
        if let Some((outer, outer_dim, _)) = levels.last()
            && (*outer_dim != dim || outer.member().is_some_and(|member| member != shape))
        {
            return Err(broken(input.at, format!("a {} cannot hold this {}", outer.name(), shape.name())));
        }
        outermost.get_or_insert(Head { shape, dim, srid });
        write::begin(out, shape, dim);
        match shape {
            Shape::Point => input.copy_positions(1, dim, out)?,
            Shape::LineString => input.copy_run(dim, out)?,
            Shape::Polygon => {
                let rings = input.count(4)?;
                write::count(out, rings);
                for _ in 0..rings {
                    input.copy_run(dim, out)?;
                }
            }
            _ => {
                let members = input.count(9)?;
                write::count(out, members);
                if levels.len() >= DEPTH_MAX {
                    return Err(broken(input.at, format!("collections nest deeper than {DEPTH_MAX}")));
                }
                levels.push((shape, dim, members));
            }
        }
        while let Some((_, _, left)) = levels.last_mut() {
            if *left > 0 {
                *left -= 1;
                break;
            }
            levels.pop();
        }
        if levels.is_empty() {
            break;
        }
    }
    if input.at != wkb.len() {
        return Err(broken(
            input.at,
            format!("{} bytes after the end of the geometry", wkb.len() - input.at),
        ));
    }
    outermost.ok_or_else(|| broken(0, "no geometry"))
}

fn already(wkb: &[u8]) -> Option<Head> {
    let (shape, dim) = super::head(wkb)?;
    let mut cursor = Cursor::default();
    loop {
        match cursor.next(wkb) {
            Ok(Some(_)) => {}
            Ok(None) => return (cursor.offset() == wkb.len()).then_some(Head { shape, dim, srid: None }),
            Err(_) => return None,
        }
    }
}

struct WkbInput<'a> {
    wkb: &'a [u8],
    at: usize,
    big: bool,
}

impl WkbInput<'_> {
    fn u32(&mut self) -> Result<u32, Problem> {
        let bytes = self.wkb.get(self.at..).and_then(|rest| rest.first_chunk());
        let Some(bytes) = bytes else {
            return Err(broken(self.at, "the bytes end before the geometry does"));
        };
        self.at += 4;
        Ok(if self.big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) })
    }

    fn header(&mut self) -> Result<(Shape, Dim, Option<u32>), Problem> {
        self.big = match self.wkb.get(self.at) {
            Some(0) => true,
            Some(1) => false,
            Some(other) => return Err(broken(self.at, format!("{other} is not a byte order"))),
            None => return Err(broken(self.at, "the bytes end before the geometry does")),
        };
        let start = self.at;
        self.at += 1;
        let kind = self.u32()?;
        let srid = if kind & SRID == 0 { None } else { Some(self.u32()?).filter(|srid| *srid != 0) };
        let number = kind & !(Z | M | SRID);
        let (iso_z, iso_m) = match number / 1000 {
            0 => (false, false),
            1 => (true, false),
            2 => (false, true),
            3 => (true, true),
            _ => return Err(broken(start, format!("geometry type {number} is unknown"))),
        };
        let shape = Shape::from_number(number % 1000).ok_or_else(|| {
            let what = if (8..=17).contains(&(number % 1000)) {
                "a curve or surface beyond simple features"
            } else {
                "unknown"
            };
            broken(start, format!("geometry type {number} is {what}"))
        })?;
        Ok((shape, Dim::new(iso_z || kind & Z != 0, iso_m || kind & M != 0), srid))
    }

    fn count(&mut self, bytes_each: usize) -> Result<usize, Problem> {
        let count = self.u32()? as usize;
        if count.saturating_mul(bytes_each) > self.wkb.len().saturating_sub(self.at) {
            return Err(broken(self.at, format!("{count} members do not fit into what is left")));
        }
        Ok(count)
    }

    fn copy_run(&mut self, dim: Dim, out: &mut Vec<u8>) -> Result<(), Problem> {
        let count = self.count(dim.size() * 8)?;
        write::count(out, count);
        self.copy_positions(count, dim, out)
    }

    fn copy_positions(&mut self, count: usize, dim: Dim, out: &mut Vec<u8>) -> Result<(), Problem> {
        let len = count.saturating_mul(dim.size() * 8);
        let Some(bytes) = self.wkb.get(self.at..).and_then(|rest| rest.get(..len)) else {
            return Err(broken(self.at, "the bytes end before the geometry does"));
        };
        self.at += len;
        if self.big {
            out.extend(bytes.chunks_exact(8).flat_map(|number| number.iter().rev()));
        } else {
            out.extend_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(wkb: &[u8]) -> Result<(String, Option<u32>), Problem> {
        let mut out = Vec::new();
        let head = canonicalise(wkb, &mut out)?;
        Ok((crate::wkt::to_string(&out), head.srid))
    }

    #[test]
    fn big_endian_extended_forms_become_canonical() {
        let mut wkb = vec![0];
        wkb.extend((1u32 | Z | SRID).to_be_bytes());
        wkb.extend(4326u32.to_be_bytes());
        for x in [1.5f64, -2.0, 3.25] {
            wkb.extend(x.to_be_bytes());
        }
        assert_eq!(canonical(&wkb).unwrap(), ("POINT Z (1.5 -2 3.25)".into(), Some(4326)));
    }

    #[test]
    fn hostile_bytes_are_refused_with_a_place() {
        let header = |shape: u32| [&[1u8][..], &shape.to_le_bytes()].concat();
        let with_count = |shape: u32, count: u32| [header(shape), count.to_le_bytes().to_vec()].concat();
        for (bytes, says) in [
            (vec![], "end before"),
            (vec![2], "not a byte order"),
            (header(1), "end before"),
            (header(99), "unknown"),
            (header(8), "curve"),
            (with_count(2, u32::MAX), "do not fit"),
            (with_count(3, u32::MAX), "do not fit"),
            (with_count(7, u32::MAX), "do not fit"),
            ([with_count(7, 0), vec![0]].concat(), "after the end"),
            ([with_count(4, 1), with_count(2, 0)].concat(), "cannot hold"),
        ] {
            let problem = canonical(&bytes).unwrap_err();
            assert!(problem.message.contains(says), "{problem} for {bytes:?}");
            assert!(problem.offset.is_some());
        }
    }

    #[test]
    fn depth_is_bounded() {
        let mut deep = Vec::new();
        for _ in 0..200_000 {
            write::begin(&mut deep, Shape::GeometryCollection, Dim::Xy);
            write::count(&mut deep, 1);
        }
        write::point(&mut deep, &[1.0, 2.0]);
        assert!(canonical(&deep).unwrap_err().message.contains("deeper"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer_and_a_good_one_is_stable(bytes in prop::collection::vec(any::<u8>(), 0..80), shape in 0u32..9, count in 0u32..4) {
            let mut framed = vec![1];
            framed.extend((shape % 8).to_le_bytes());
            framed.extend(count.to_le_bytes());
            framed.extend(&bytes);
            for input in [&bytes, &framed] {
                let mut once = Vec::new();
                if canonicalise(input, &mut once).is_ok() {
                    let mut twice = Vec::new();
                    canonicalise(&once, &mut twice).unwrap();
                    prop_assert_eq!(once, twice);
                }
            }
        }
    }
}
