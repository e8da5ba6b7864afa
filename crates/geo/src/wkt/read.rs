//! Reading well-known text straight into well-known binary.

use tidegate_core::Code;

use crate::error::Problem;
use crate::wkb::{DEPTH_MAX, Dim, Head, Shape, write};

/// Appends the canonical well-known binary of a text.
///
/// # Errors
/// `INVALID_GEOMETRY` with the byte at which the text stops being well-known text. `out` may then
/// hold a part.
pub fn read(text: &str, out: &mut Vec<u8>) -> Result<Head, Problem> {
    let mut reader = WktParser { text: text.as_bytes(), at: 0, dim: Dim::Xy };
    let srid = reader.srid()?;
    let shape = reader.keyword()?;
    reader.dim = match reader.tag() {
        Some(dim) => dim,
        None => reader.guess_dim(),
    };
    reader.geometry(shape, 0, out)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.broken("text after the end of the geometry"));
    }
    Ok(Head { shape, dim: reader.dim, srid })
}

struct WktParser<'a> {
    text: &'a [u8],
    at: usize,
    dim: Dim,
}

impl WktParser<'_> {
    fn broken(&self, message: impl Into<String>) -> Problem {
        Problem::new(Code::INVALID_GEOMETRY, message).at(self.at as u64)
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at += self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
    }

    fn word(&self) -> &[u8] {
        let rest = self.rest();
        let len = rest.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        rest.get(..len).unwrap_or_default()
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.rest().first() == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Problem> {
        if self.eat(byte) {
            return Ok(());
        }
        Err(self.broken(format!("expected {:?}", char::from(byte))))
    }

    fn srid(&mut self) -> Result<Option<u32>, Problem> {
        self.space();
        if !self.rest().get(..5).is_some_and(|head| head.eq_ignore_ascii_case(b"SRID=")) {
            return Ok(None);
        }
        self.at += 5;
        let len = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        let digits = self.rest().get(..len).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(srid) = digits.and_then(|digits| digits.parse::<u32>().ok()) else {
            return Err(self.broken("SRID= without a number"));
        };
        self.at += len;
        self.expect(b';')?;
        Ok(Some(srid).filter(|srid| *srid != 0))
    }

    fn keyword(&mut self) -> Result<Shape, Problem> {
        self.space();
        let word = self.word();
        let found = Shape::ALL.into_iter().find(|shape| {
            let name = shape.upper_name().as_bytes();
            let (head, tail) = word.split_at(name.len().min(word.len()));
            head.eq_ignore_ascii_case(name)
                && (tail.is_empty()
                    || [&b"z"[..], b"m", b"zm"].iter().any(|tag| tail.eq_ignore_ascii_case(tag)))
        });
        let Some(shape) = found else {
            return Err(self.broken(format!("{:?} is not a geometry type", String::from_utf8_lossy(word))));
        };
        self.at += shape.upper_name().len();
        Ok(shape)
    }

    fn tag(&mut self) -> Option<Dim> {
        self.space();
        let word = self.word();
        let dim = [(&b"z"[..], Dim::Xyz), (b"m", Dim::Xym), (b"zm", Dim::Xyzm)]
            .into_iter()
            .find_map(|(tag, dim)| word.eq_ignore_ascii_case(tag).then_some(dim))?;
        self.at += dim.size() - 2;
        Some(dim)
    }

    /// Without a tag at the start, a tag of a member decides, else the size of the first position.
    fn guess_dim(&self) -> Dim {
        let mut ahead = WktParser { text: self.text, at: self.at, dim: Dim::Xy };
        loop {
            ahead.space();
            match ahead.rest().first() {
                Some(b'(') => ahead.at += 1,
                Some(b) if b.is_ascii_alphabetic() => match ahead.keyword() {
                    Ok(_) => match ahead.tag() {
                        Some(dim) => return dim,
                        None => continue,
                    },
                    Err(_) => return Dim::Xy,
                },
                _ => break,
            }
        }
        let position = ahead.rest().split(|b| matches!(b, b',' | b')')).next().unwrap_or_default();
        let numbers = position.split(u8::is_ascii_whitespace).filter(|number| !number.is_empty()).count();
        Dim::new(numbers > 2, numbers > 3)
    }

    fn empty(&mut self) -> bool {
        self.space();
        let found = self.word().eq_ignore_ascii_case(b"EMPTY");
        self.at += if found { 5 } else { 0 };
        found
    }

    fn geometry(&mut self, shape: Shape, depth: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        if depth > DEPTH_MAX {
            return Err(self.broken(format!("collections nest deeper than {DEPTH_MAX}")));
        }
        if shape == Shape::Point {
            return self.point(out);
        }
        write::begin(out, shape, self.dim);
        match (shape, shape.member()) {
            (Shape::LineString, _) => self.line(out),
            (Shape::Polygon, _) => self.list(out, Self::line),
            (Shape::MultiPoint, _) => self.list(out, |reader, out| {
                reader.space();
                if matches!(reader.rest().first(), Some(b'(' | b'e' | b'E')) {
                    return reader.point(out);
                }
                write::begin(out, Shape::Point, reader.dim);
                reader.position(out)
            }),
            (_, Some(member)) => self.list(out, |reader, out| reader.geometry(member, depth + 1, out)),
            (_, None) => self.list(out, |reader, out| {
                let member = reader.keyword()?;
                if let Some(dim) = reader.tag()
                    && dim != reader.dim
                {
                    return Err(reader.broken("members of a collection differ in dimensions"));
                }
                reader.geometry(member, depth + 1, out)
            }),
        }
    }

    fn list(
        &mut self,
        out: &mut Vec<u8>,
        mut item: impl FnMut(&mut Self, &mut Vec<u8>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let hole = write::hole(out);
        if self.empty() {
            return Ok(());
        }
        self.expect(b'(')?;
        let mut count = 0;
        loop {
            item(self, out)?;
            count += 1;
            if !self.eat(b',') {
                break;
            }
        }
        write::fill(out, hole, count);
        self.expect(b')')
    }

    fn line(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        self.list(out, Self::position)
    }

    fn point(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        if self.empty() {
            write::empty_point(out, self.dim);
            return Ok(());
        }
        write::begin(out, Shape::Point, self.dim);
        self.expect(b'(')?;
        self.position(out)?;
        self.expect(b')')
    }

    fn position(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        for _ in 0..self.dim.size() {
            self.space();
            let (x, len) = fast_float2::parse_partial::<f64, _>(self.rest())
                .map_err(|_| self.broken("expected a number"))?;
            self.at += len;
            write::position(out, &[x]);
        }
        self.space();
        if matches!(self.rest().first(), Some(b',' | b')')) {
            return Ok(());
        }
        Err(self.broken(format!("a position of other than {} numbers", self.dim.size())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wkt::to_string;
    use proptest::prelude::*;

    fn round(text: &str) -> String {
        let mut out = Vec::new();
        match read(text, &mut out) {
            Ok(_) => to_string(&out),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn canonical_text_is_kept() {
        for text in [
            "POINT (1 2.5)",
            "POINT EMPTY",
            "POINT Z (1 2 3)",
            "LINESTRING M (1 2 3, 4 5 6)",
            "LINESTRING EMPTY",
            "POLYGON ZM ((0 0 1 2, 1 0 1 2, 1 1 1 2, 0 0 1 2))",
            "POLYGON ((0 0, 9 0, 9 9, 0 0), (1 1, 2 1, 2 2, 1 1))",
            "POLYGON EMPTY",
            "MULTIPOINT ((1 2), EMPTY, (3 4))",
            "MULTILINESTRING ((0 0, 1 1), EMPTY, (2 2, 3 3))",
            "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 0)), EMPTY, ((0 0, 9 0, 9 9, 0 0), (1 1, 2 1, 2 2, 1 1)))",
            "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION EMPTY, GEOMETRYCOLLECTION (MULTIPOINT EMPTY, POINT (3 4)))",
            "GEOMETRYCOLLECTION Z (POINT Z (1 2 3))",
        ] {
            assert_eq!(round(text), text);
        }
    }

    #[test]
    fn dialects_are_understood() {
        for (text, canonical) in [
            ("SRID=4326;point(1 2)", "POINT (1 2)"),
            ("POINTZ(1 2 3)", "POINT Z (1 2 3)"),
            ("point (1 2 3)", "POINT Z (1 2 3)"),
            (" MultiPoint ( 1 2 , 3 4 ) ", "MULTIPOINT ((1 2), (3 4))"),
            ("GEOMETRYCOLLECTION(POINT M (1 2 3))", "GEOMETRYCOLLECTION M (POINT M (1 2 3))"),
            ("LINESTRINGZM(1 2 3 4,1e1 -2E-1 .5 7.)", "LINESTRING ZM (1 2 3 4, 10 -0.2 0.5 7)"),
        ] {
            assert_eq!(round(text), canonical);
        }
    }

    #[test]
    fn hostile_text_is_refused() {
        for (text, says) in [
            ("", "not a geometry type"),
            ("POINT", "expected"),
            ("POINT (1 2", "other than"),
            ("POINT (1)", "expected a number"),
            ("POINT (1 2) x", "after the end"),
            ("LINESTRING (1 2, 3 4 5)", "other than"),
            ("CIRCULARSTRING (1 2, 3 4)", "not a geometry type"),
            ("GEOMETRYCOLLECTION (POINT Z (1 2 3), POINT M (1 2 3))", "differ"),
            (&"GEOMETRYCOLLECTION (".repeat(200_000), "deeper"),
        ] {
            assert!(round(text).contains(says), "{} for {:.40}", round(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_ends_in_an_answer(text in "(POINT|LINESTRING|POLYGON|MULTIPOINT|GEOMETRYCOLLECTION)? ?(Z|M|ZM|EMPTY)?[(), 0-9.eZM-]{0,40}") {
            let mut out = Vec::new();
            if read(&text, &mut out).is_ok() {
                let mut again = Vec::new();
                crate::wkb::canonicalise(&out, &mut again).unwrap();
                let mut back = Vec::new();
                read(&to_string(&out), &mut back).unwrap();
            }
        }
    }
}
