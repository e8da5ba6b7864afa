//! Record keys: equal records have the same key, on every machine and at any time.
//!
//! A key is the source id, `:`, and the SHA-256, in hex, of the canonical form of the record. Two
//! records have the same canonical form exactly if they have the same content:
//!
//! | difference | same key? | reason |
//! |---|---|---|
//! | order of attributes | yes | sorted by name |
//! | notation of a number: `1`, `1.0`, `1e0` | yes | a whole number is an integer, any other an IEEE double |
//! | `-0.0` and `0.0` | yes | the sign of zero is dropped |
//! | NaNs with different bits | yes | all NaNs have one encoding |
//! | start and direction of a ring, its repeated last point | yes | smallest vertex first, then its smaller neighbour (unless that vertex occurs more than eight times) |
//! | a number and its text, null and absence, 2D and Z = 0 | no | each has its own tag or dimension |
//! | order of the parts of a multi-geometry, of a list | no | the order is part of the content |
//! | Unicode normalization (é as one or two code points) | no | text is compared by its bytes |
//!
//! The canonical form, for other implementations: the bytes `tidegate-key-1\n`, then the attributes
//! as one map, then the geometry. Every value is a tag byte and its content; counts and lengths are
//! 64-bit little-endian. `n` null, `f`/`t` false/true, `i` + 16 bytes signed little-endian, `d` + 8
//! bytes of the double, little-endian, `s` + length + UTF-8, `b` + length + bytes, `l` + count +
//! values, `m` + count + (length + name, value) in the byte order of names (of equal names the last
//! applies). Geometry: `-` for none; otherwise `g`, a type byte (1 point, 2 line, 3 polygon, 4 to 6
//! their multi-types, 7 collection), a byte for the number of dimensions (2 to 4), and the content:
//! points are doubles, lines are count + points, polygons are count + rings (count + points, not
//! closed), multi-types and collections are count + geometries.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use sha2::{Digest, Sha256};

/// The value of an attribute, borrowed from the record.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list.
    List(Vec<KeyValue<'a>>),
    /// A map.
    Map(Vec<(&'a str, KeyValue<'a>)>),
}

/// A position; the values beyond the dimensions of the geometry are ignored.
pub type KeyPosition = [f64; 4];

/// A geometry, borrowed from the record.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyShape<'a> {
    /// One position.
    Point(KeyPosition),
    /// A line.
    Line(&'a [KeyPosition]),
    /// Rings, the outer one first.
    Polygon(Vec<&'a [KeyPosition]>),
    /// A multi-geometry or a collection: its type and its parts.
    Multi(MultiKind, Vec<KeyShape<'a>>),
}

/// The type of a geometry with parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiKind {
    /// Points.
    Points = 4,
    /// Lines.
    Lines = 5,
    /// Polygons.
    Polygons = 6,
    /// Geometries of any type.
    Collection = 7,
}

/// A geometry with its number of dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyGeometry<'a> {
    /// The number of dimensions, 2 to 4.
    pub dims: u8,
    /// The geometry.
    pub shape: KeyShape<'a>,
}

/// The key of a record.
#[must_use]
pub fn key(source: &str, attributes: &[(&str, KeyValue<'_>)], geometry: Option<&KeyGeometry<'_>>) -> String {
    let mut form = CanonicalForm(Sha256::new());
    form.0.update(b"tidegate-key-1\n");
    form.map(attributes);
    match geometry {
        None => form.tag(b'-'),
        Some(g) => form.shape(&g.shape, usize::from(g.dims.clamp(2, 4))),
    }
    let hash = form.0.finalize();
    let mut out = format!("{source}:");
    for byte in hash {
        for half in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
    out
}

struct CanonicalForm(Sha256);

impl CanonicalForm {
    fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    fn count(&mut self, n: usize) {
        self.0.update((n as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn int(&mut self, n: i128) {
        self.tag(b'i');
        self.0.update(n.to_le_bytes());
    }

    fn value(&mut self, value: &KeyValue<'_>) {
        match value {
            KeyValue::Null => self.tag(b'n'),
            KeyValue::Bool(b) => self.tag(if *b { b't' } else { b'f' }),
            KeyValue::Int(n) => self.int(*n),
            KeyValue::Float(x) => match whole(*x) {
                Some(n) => self.int(n),
                None => {
                    self.tag(b'd');
                    self.double(*x);
                }
            },
            KeyValue::Text(s) => {
                self.tag(b's');
                self.bytes(s.as_bytes());
            }
            KeyValue::Bytes(b) => {
                self.tag(b'b');
                self.bytes(b);
            }
            KeyValue::List(items) => {
                self.tag(b'l');
                self.count(items.len());
                for item in items {
                    self.value(item);
                }
            }
            KeyValue::Map(entries) => self.map(entries),
        }
    }

    fn map(&mut self, entries: &[(&str, KeyValue<'_>)]) {
        let mut sorted: Vec<&(&str, KeyValue<'_>)> = entries.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(b.0));
        let last_of_name = |i: usize| sorted.get(i + 1).is_none_or(|next| next.0 != sorted[i].0);
        let kept: Vec<&(&str, KeyValue<'_>)> =
            (0..sorted.len()).filter(|&i| last_of_name(i)).map(|i| sorted[i]).collect();
        self.tag(b'm');
        self.count(kept.len());
        for (name, value) in kept {
            self.bytes(name.as_bytes());
            self.value(value);
        }
    }

    fn double(&mut self, x: f64) {
        let canonical = if x.is_nan() {
            f64::NAN
        } else if x == 0.0 {
            0.0
        } else {
            x
        };
        self.0.update(canonical.to_bits().to_le_bytes());
    }

    fn position(&mut self, p: &KeyPosition, dims: usize) {
        for x in p.iter().take(dims) {
            self.double(*x);
        }
    }

    fn line(&mut self, line: &[KeyPosition], dims: usize) {
        self.count(line.len());
        for p in line {
            self.position(p, dims);
        }
    }

    fn shape(&mut self, shape: &KeyShape<'_>, dims: usize) {
        self.tag(b'g');
        let dimensions = dims as u8;
        match shape {
            KeyShape::Point(p) => {
                self.0.update([1, dimensions]);
                self.position(p, dims);
            }
            KeyShape::Line(line) => {
                self.0.update([2, dimensions]);
                self.line(line, dims);
            }
            KeyShape::Polygon(rings) => {
                self.0.update([3, dimensions]);
                self.count(rings.len());
                for ring in rings {
                    self.ring(ring, dims);
                }
            }
            KeyShape::Multi(kind, parts) => {
                self.0.update([*kind as u8, dimensions]);
                self.count(parts.len());
                for part in parts {
                    self.shape(part, dims);
                }
            }
        }
    }

    /// Writes a ring without its repeated last point, from its smallest vertex towards the smaller
    /// neighbour. If the smallest vertex occurs more than once, the smallest sequence is written.
    fn ring(&mut self, ring: &[KeyPosition], dims: usize) {
        let open = match ring {
            [first, .., last] if order(first, last, dims).is_eq() => &ring[..ring.len() - 1],
            all => all,
        };
        let n = open.len();
        self.count(n);
        let Some(least) = open.iter().min_by(|a, b| order(a, b, dims)) else { return };
        // The vertex `i` of the sequence from vertex `start`, forwards or backwards.
        let nth = |(start, forward): (usize, bool), i: usize| {
            &open[if forward { (start + i) % n } else { (start + n - i) % n }]
        };
        let compare = |a: (usize, bool), b: (usize, bool)| {
            (1..n).map(|i| order(nth(a, i), nth(b, i), dims)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        // Repeated smallest vertices are rare; the limit keeps the cost of a malicious ring linear.
        let starts = (0..n).filter(|&i| order(&open[i], least, dims).is_eq()).take(8);
        let best =
            starts.flat_map(|s| [(s, true), (s, false)]).min_by(|a, b| compare(*a, *b)).unwrap_or((0, true));
        for i in 0..n {
            self.position(nth(best, i), dims);
        }
    }
}

/// The integer value of `x`, if it is a whole number in the range of an `i128`.
fn whole(x: f64) -> Option<i128> {
    (x.is_finite() && libm::trunc(x) == x && x.abs() < 1.7e38).then_some(x as i128)
}

fn order(a: &KeyPosition, b: &KeyPosition, dims: usize) -> Ordering {
    let plain = |x: f64| if x == 0.0 { 0.0 } else { x };
    a.iter()
        .zip(b)
        .take(dims)
        .map(|(a, b)| plain(*a).total_cmp(&plain(*b)))
        .find(|o| o.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn p(x: f64, y: f64) -> KeyPosition {
        [x, y, 0.0, 0.0]
    }

    fn polygon(ring: &[KeyPosition]) -> String {
        key("s", &[], Some(&KeyGeometry { dims: 2, shape: KeyShape::Polygon(vec![ring]) }))
    }

    #[test]
    fn the_form_is_stable() {
        // Existing ledgers depend on these values. They were computed by another program from the
        // form above.
        assert_eq!(
            key("roads", &[], None),
            "roads:db40fd871b1a718237586a4feffc6698408041cae6017203073dc296f561978b"
        );
        let line = [p(1.0, 2.0), p(-0.0, 4.5)];
        assert_eq!(
            key(
                "roads",
                &[("name", KeyValue::Text("A 1")), ("lanes", KeyValue::Int(2))],
                Some(&KeyGeometry { dims: 2, shape: KeyShape::Line(&line) })
            ),
            "roads:c117a59ebc97a8aaae0af0eabdc2fd7f98cd373c03017793aece965194c9c901"
        );
    }

    #[test]
    fn what_says_the_same_has_one_key() {
        let a = key("s", &[("a", KeyValue::Int(1)), ("b", KeyValue::Float(0.0))], None);
        let b = key("s", &[("b", KeyValue::Float(-0.0)), ("a", KeyValue::Float(1.0))], None);
        assert_eq!(a, b);
        let square = [p(0.0, 0.0), p(1.0, 0.0), p(1.0, 1.0), p(0.0, 1.0), p(0.0, 0.0)];
        let moved = [p(1.0, 1.0), p(0.0, 1.0), p(-0.0, 0.0), p(1.0, 0.0), p(1.0, 1.0)];
        let turned = [p(0.0, 0.0), p(0.0, 1.0), p(1.0, 1.0), p(1.0, 0.0)];
        assert_eq!(polygon(&square), polygon(&moved));
        assert_eq!(polygon(&square), polygon(&turned));
    }

    #[test]
    fn what_says_something_else_has_another() {
        let keys = [
            key("s", &[], None),
            key("t", &[], None),
            key("s", &[("a", KeyValue::Null)], None),
            key("s", &[("a", KeyValue::Text("1"))], None),
            key("s", &[("a", KeyValue::Int(1))], None),
            key("s", &[("a", KeyValue::Bool(true))], None),
            key("s", &[("a", KeyValue::Bytes(b"1"))], None),
            key("s", &[("a", KeyValue::List(vec![KeyValue::Int(1)]))], None),
            key("s", &[("a", KeyValue::Map(vec![("1", KeyValue::Null)]))], None),
            key("s", &[("a", KeyValue::Float(1.5))], None),
            key("s", &[], Some(&KeyGeometry { dims: 2, shape: KeyShape::Point(p(1.0, 2.0)) })),
            key("s", &[], Some(&KeyGeometry { dims: 3, shape: KeyShape::Point(p(1.0, 2.0)) })),
            key("s", &[], Some(&KeyGeometry { dims: 2, shape: KeyShape::Line(&[]) })),
            key("s", &[], Some(&KeyGeometry { dims: 2, shape: KeyShape::Multi(MultiKind::Points, vec![]) })),
            key("s", &[], Some(&KeyGeometry { dims: 2, shape: KeyShape::Multi(MultiKind::Lines, vec![]) })),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert_ne!(a, b);
            }
        }
    }

    proptest! {
        /// Start, direction and closing point of a ring do not change the key, also with repeated
        /// vertices.
        #[test]
        fn a_ring_is_a_cycle(
            ring in prop::collection::vec((0i8..3, 0i8..3), 1..12), turn in 0usize..12, back in any::<bool>(),
        ) {
            let open: Vec<KeyPosition> = ring.iter().map(|&(x, y)| p(f64::from(x), f64::from(y))).collect();
            // A ring that ends where it starts is already closed.
            prop_assume!(open.len() == 1 || open.first() != open.last());
            let mut other = open.clone();
            other.rotate_left(turn % open.len());
            if back {
                other.reverse();
            }
            other.push(other[0]);
            prop_assert_eq!(polygon(&open), polygon(&other));
        }

        #[test]
        fn attributes_have_no_order(mut names in prop::collection::vec("[a-c]{0,3}", 0..6), seed in any::<u64>()) {
            names.sort();
            names.dedup();
            let of = |names: &[String]| {
                let attributes: Vec<(&str, KeyValue<'_>)> =
                    names.iter().map(|n| (n.as_str(), KeyValue::Int(n.len() as i128))).collect();
                key("s", &attributes, None)
            };
            let one = of(&names);
            let mut rng = crate::chance::Rng::new(seed);
            for i in (1..names.len()).rev() {
                names.swap(i, crate::chance::Chance::below(&mut rng, i as u64 + 1) as usize);
            }
            prop_assert_eq!(one, of(&names));
        }

        #[test]
        fn whole_numbers_are_integers(n in -(1i64 << 53)..(1i64 << 53)) {
            let (as_int, as_float) = (KeyValue::Int(i128::from(n)), KeyValue::Float(n as f64));
            prop_assert_eq!(key("s", &[("a", as_int)], None), key("s", &[("a", as_float)], None));
        }
    }
}
