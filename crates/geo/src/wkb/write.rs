//! Writing canonical well-known binary, piece by piece.
//!
//! Counts stand before what they count. A writer that knows the count writes it; one that does
//! not (a parser) leaves room with [`hole`] and fills it with [`fill`] when it knows.

use super::{Dim, Shape};

/// The start of a geometry: byte order and type.
#[inline]
pub fn begin(out: &mut Vec<u8>, shape: Shape, dim: Dim) {
    out.push(1);
    out.extend_from_slice(&(shape as u32 + dim.iso_thousands()).to_le_bytes());
}

/// A count of rings, members or positions.
#[inline]
pub fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// Room for a count that is not known yet; its place.
#[inline]
pub fn hole(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    at
}

/// Puts a count into the room left for it.
#[inline]
pub fn fill(out: &mut [u8], hole: usize, count: usize) {
    if let Some(room) = out.get_mut(hole..hole + 4) {
        room.copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
}

/// The numbers of one position.
#[inline]
pub fn position(out: &mut Vec<u8>, numbers: &[f64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// A whole point of 2 (XY), 3 (XYZ) or 4 (XYZM) numbers.
pub fn point(out: &mut Vec<u8>, numbers: &[f64]) {
    begin(out, Shape::Point, Dim::new(numbers.len() > 2, numbers.len() > 3));
    position(out, numbers);
}

/// A point with no position: all numbers are NaN, as GEOS and GeoPackage have it.
pub fn empty_point(out: &mut Vec<u8>, dim: Dim) {
    begin(out, Shape::Point, dim);
    for _ in 0..dim.size() {
        out.extend_from_slice(&f64::NAN.to_le_bytes());
    }
}
