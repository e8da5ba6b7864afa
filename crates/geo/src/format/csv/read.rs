//! Reading CSV.
//!
//! Every field is text. Guessing kinds would lose what a mapping may still need (`007`, `1.50`);
//! a mapping says what a column is. The exceptions are the columns that hold the geometry: `lon`
//! and `lat` (or `x` and `y`) under their usual names, or a column of well-known text, or of well-known
//! binary in hexadecimal. They become the geometry and are no longer fields.
//!
//! The delimiter is the one of comma, semicolon and tab that the first line has most of. An empty
//! cell is no value, a quoted empty one is empty text.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::super::geojson::ReadOptions;
use super::write::system_file;
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::{Layer, Rejected};
use crate::schema::{FIELDS_MAX, FreeNames, Kind, Schema, too_many_fields};
use crate::wkb::{self, Shape, write};
use crate::wkt;

const LON: [&str; 5] = ["lon", "lng", "long", "longitude", "x"];
const LAT: [&str; 4] = ["lat", "latitude", "y", "lati"];
const WKT: [&str; 6] = ["wkt", "geom", "geometry", "the_geom", "shape", "wkb"];

/// How many rows are looked at for whether `x` and `y` are degrees.
const LOOK_ROWS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    None,
    LonLat(usize, usize),
    Wkt(usize),
}

/// A CSV file being read.
pub struct Reader {
    input: Lines,
    delimiter: u8,
    place: Place,
    names: Vec<String>,
    layer: Layer,
    record: u64,
    options: ReadOptions,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If there is no header, or it is not UTF-8.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Reader, Error> {
        let mut input = Lines::open(path)?;
        if !input.advance(options.record_len_max)? {
            return Err(Problem::new(Code::CORRUPTED_HEADER, "the file has no header").into());
        }
        let header = input.line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&input.line).to_vec();
        let delimiter = sniff(&header);
        let names: Vec<String> = cells(&header, delimiter)
            .map(|cell| cell.map(|cell| cell.text.trim().to_owned()))
            .collect::<Result<_, _>>()
            .map_err(|message| Problem::new(Code::CORRUPTED_HEADER, message))?;
        if names.len() > FIELDS_MAX {
            return Err(too_many_fields().at(0).into());
        }
        let place = place_of(&names);
        let (mut schema, mut free) = (Schema::default(), FreeNames::default());
        for (at, name) in names.iter().enumerate() {
            if !place.uses(at) {
                let name = if name.is_empty() { "field" } else { name };
                let name = free.of(name, |taken| schema.position(taken).is_some());
                schema.add(name, Kind::Text);
            }
        }
        schema.shape = matches!(place, Place::LonLat(..)).then_some(Shape::Point);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let crs = system(path, &names, place, delimiter, options.record_len_max)?;
        let layer = Layer { name, schema: Arc::new(schema), crs, records: None };
        Ok(Reader { input, delimiter, place, names, layer, record: 0, options })
    }

    fn push(&self, batch: &mut Batch) -> Result<(), Problem> {
        let broken = |message: &str| Problem::new(Code::DATA_EXCEPTION, message);
        let row: Vec<Cell<'_>> =
            cells(&self.input.line, self.delimiter).collect::<Result<_, _>>().map_err(broken)?;
        if row.len() != self.names.len() {
            let message = format!("{} cells in a table of {}", row.len(), self.names.len());
            return Err(Problem::new(Code::SCHEMA_MISMATCH, message));
        }
        let name = |at: usize| self.names.get(at).map_or("", String::as_str);
        let number = |at: usize| -> Result<Option<f64>, Problem> {
            let text = row.get(at).map_or("", |cell| cell.text.trim());
            if text.is_empty() {
                return Ok(None);
            }
            let number = fast_float2::parse::<f64, _>(text).ok().filter(|x| x.is_finite());
            let broken = || Problem::new(Code::INVALID_GEOMETRY, format!("{text:?} is not a coordinate"));
            number.map(Some).ok_or_else(|| broken().under(name(at)))
        };
        let geometry = |out: &mut Vec<u8>| match self.place {
            Place::None => Ok(()),
            Place::LonLat(lon, lat) => {
                if let (Some(x), Some(y)) = (number(lon)?, number(lat)?) {
                    write::point(out, &[x, y]);
                }
                Ok(())
            }
            Place::Wkt(at) => match row.get(at).map_or("", |cell| cell.text.trim()) {
                "" => Ok(()),
                text => shape(text, out).map_err(|problem| problem.under(name(at))),
            },
        };
        let values = row.iter().enumerate().filter(|(at, _)| !self.place.uses(*at));
        batch.push_with(geometry, values.map(|(_, cell)| cell.value()))
    }
}

impl crate::format::Reader for Reader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            if !self.input.advance(self.options.record_len_max)? {
                return Ok((!batch.is_empty()).then_some(batch));
            }
            if self.input.line.is_empty() {
                continue;
            }
            let span = Span { offset: self.input.offset, len: self.input.line.len() as u64 };
            let done = self.push(&mut batch);
            match done {
                Ok(()) => batch.set_origin(span, if self.options.keep_raw { &self.input.line } else { &[] }),
                Err(problem) => {
                    let problems = vec![problem.of_record(self.record).at(span.offset)];
                    rejected.push(Rejected {
                        record: self.record,
                        span,
                        raw: self.input.line.clone(),
                        problems,
                    });
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                }
            }
            self.record += 1;
            batch.go_to_record(self.record);
        }
        Ok(Some(batch))
    }
}

/// A geometry of well-known text, or of well-known binary in hexadecimal, as PostGIS gives it.
fn shape(text: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return wkt::read(text, out).map(|_| ());
    }
    let broken =
        || Problem::new(Code::INVALID_GEOMETRY, "the geometry is neither WKT nor WKB in hexadecimal");
    let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or_else(broken);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Ok((digit(high)? * 16 + digit(low)?) as u8),
        _ => Err(broken()),
    });
    let bytes = pairs.collect::<Result<Vec<u8>, Problem>>()?;
    wkb::canonicalise(&bytes, out).map(|_| ())
}

impl Place {
    fn uses(self, at: usize) -> bool {
        match self {
            Place::None => false,
            Place::LonLat(lon, lat) => at == lon || at == lat,
            Place::Wkt(wkt) => at == wkt,
        }
    }
}

fn place_of(names: &[String]) -> Place {
    let find = |known: &[&str]| {
        known.iter().find_map(|known| names.iter().position(|name| name.eq_ignore_ascii_case(known)))
    };
    match (find(&LON), find(&LAT), find(&WKT)) {
        (Some(lon), Some(lat), _) => Place::LonLat(lon, lat),
        (_, _, Some(wkt)) => Place::Wkt(wkt),
        _ => Place::None,
    }
}

/// The system of the coordinates: what a `.prj` file beside the table says, else WGS 84 for longitude and
/// latitude. `x` and `y` are those only if the first of them can be.
fn system(
    path: &Path,
    names: &[String],
    place: Place,
    delimiter: u8,
    len_max: usize,
) -> Result<Option<Crs>, Error> {
    if place == Place::None {
        return Ok(None);
    }
    let text = system_file(path).and_then(|file| std::fs::read_to_string(file).ok());
    let said = text.and_then(|text| text.parse::<Crs>().ok());
    let Place::LonLat(x, y) = place else { return Ok(said) };
    let is = |at: usize, known: &str| names.get(at).is_some_and(|name| name.eq_ignore_ascii_case(known));
    if !is(x, "x") && !is(y, "y") {
        // Nobody calls metres longitude.
        let said = said.filter(|crs| crs.entry().is_some_and(|entry| entry.geographic));
        return Ok(Some(said.filter(|crs| !crs.is_wgs84()).unwrap_or_else(Crs::wgs84)));
    }
    if said.is_some() {
        return Ok(said);
    }
    let mut lines = Lines::open(path)?;
    lines.advance(len_max)?;
    for _ in 0..LOOK_ROWS {
        if !lines.advance(len_max)? {
            break;
        }
        let row: Vec<Cell<'_>> = cells(&lines.line, delimiter).filter_map(Result::ok).collect();
        let number =
            |at: usize| row.get(at).and_then(|cell| fast_float2::parse::<f64, _>(cell.text.trim()).ok());
        if let (Some(x), Some(y)) = (number(x), number(y)) {
            return Ok((x.abs() <= 180.0 && y.abs() <= 90.0).then(Crs::wgs84));
        }
    }
    Ok(Some(Crs::wgs84()))
}

fn sniff(header: &[u8]) -> u8 {
    let count = |byte: u8| header.iter().filter(|b| **b == byte).count();
    [b';', b'\t', b','].into_iter().max_by_key(|byte| count(*byte)).unwrap_or(b',')
}

/// The lines of a file; a line break within quotes does not end one.
struct Lines {
    input: BufReader<File>,
    line: Vec<u8>,
    /// Where the line begins.
    offset: u64,
    next: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines, Error> {
        let input = BufReader::with_capacity(1 << 18, File::open(path)?);
        Ok(Lines { input, line: Vec::new(), offset: 0, next: 0 })
    }

    /// Goes to the next line, without its line break; false at the end.
    fn advance(&mut self, len_max: usize) -> Result<bool, Error> {
        self.line.clear();
        self.offset = self.next;
        let mut quotes = 0usize;
        loop {
            let from = self.line.len();
            let room = (len_max as u64 + 1).saturating_sub(from as u64);
            let read = self.input.by_ref().take(room).read_until(b'\n', &mut self.line)?;
            self.next += read as u64;
            if self.line.len() > len_max {
                let message = format!("a record is larger than {len_max} bytes");
                return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(self.offset).into());
            }
            quotes += memchr::memchr_iter(b'"', self.line.get(from..).unwrap_or_default()).count();
            if read == 0 || quotes.is_multiple_of(2) {
                break;
            }
        }
        let read_any = !self.line.is_empty();
        while matches!(self.line.last(), Some(b'\n' | b'\r')) {
            self.line.pop();
        }
        Ok(read_any)
    }
}

struct Cell<'a> {
    text: Cow<'a, str>,
    quoted: bool,
}

impl Cell<'_> {
    fn value(&self) -> Value<'_> {
        if self.text.is_empty() && !self.quoted { Value::Null } else { Value::Text(&self.text) }
    }
}

/// The cells of a line.
fn cells(line: &[u8], delimiter: u8) -> impl Iterator<Item = Result<Cell<'_>, &'static str>> {
    let mut at = Some(0);
    std::iter::from_fn(move || {
        let start = at?;
        let rest = line.get(start..).unwrap_or_default();
        if rest.first() != Some(&b'"') {
            let len = memchr::memchr(delimiter, rest).unwrap_or(rest.len());
            at = (len < rest.len()).then_some(start + len + 1);
            let text = std::str::from_utf8(rest.get(..len).unwrap_or_default());
            return Some(
                text.map(|text| Cell { text: text.into(), quoted: false })
                    .map_err(|_| "the text is not UTF-8"),
            );
        }
        let mut text = Vec::new();
        let mut place = 1;
        loop {
            let Some(len) = memchr::memchr(b'"', rest.get(place..).unwrap_or_default()) else {
                at = None;
                return Some(Err("a quoted cell does not end"));
            };
            text.extend_from_slice(rest.get(place..place + len).unwrap_or_default());
            place += len + 1;
            match rest.get(place) {
                Some(b'"') => {
                    text.push(b'"');
                    place += 1;
                }
                None => {
                    at = None;
                    break;
                }
                Some(byte) if *byte == delimiter => {
                    at = Some(start + place + 1);
                    break;
                }
                Some(_) => {
                    at = None;
                    return Some(Err("text follows a quoted cell"));
                }
            }
        }
        let text = String::from_utf8(text).map_err(|_| "the text is not UTF-8");
        Some(text.map(|text| Cell { text: text.into(), quoted: true }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Reader as _;

    fn read(text: &[u8]) -> (Vec<String>, Vec<Rejected>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let mut reader =
            Reader::open(&path, ReadOptions { keep_raw: true, ..ReadOptions::default() }).unwrap();
        let (mut rows, mut rejected) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch(&mut rejected).unwrap() {
            for row in 0..batch.len() {
                let geometry = batch.geometry(row).map_or("null".into(), wkt::to_string);
                let values: Vec<_> =
                    batch.columns().iter().map(|column| format!("{:?}", column.get(row))).collect();
                rows.push(format!("{} {geometry} {}", batch.record(row), values.join(" ")));
            }
        }
        (rows, rejected)
    }

    #[test]
    fn cells_are_read_as_they_were_written() {
        let text =
            b"\xEF\xBB\xBFname;Latitude;lon;note\r\nA;48.21;16.37;\r\n\"B \"\"x\"\"; \n\";1e1;-2;\"\"\n";
        let (rows, rejected) = read(text);
        assert_eq!(
            rows,
            [
                "0 POINT (16.37 48.21) Text(\"A\") Null",
                "1 POINT (-2 10) Text(\"B \\\"x\\\"; \\n\") Text(\"\")"
            ]
        );
        assert_eq!(rejected, []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = "wkt,a\nPOINT (1 2),x\n,y\nPOINT (1,z\n\"LINESTRING (0 0, 1 1)\"x,q\nPOINT (3 4),v\n";
        let (rows, rejected) = read(text.as_bytes());
        assert_eq!(rows, ["0 POINT (1 2) Text(\"x\")", "1 null Text(\"y\")", "4 POINT (3 4) Text(\"v\")"]);
        let told: Vec<_> = rejected.iter().map(|r| (r.record, r.problems[0].code, r.span.offset)).collect();
        assert_eq!(told, [(2, Code::INVALID_GEOMETRY, 23), (3, Code::DATA_EXCEPTION, 34)]);
        assert_eq!(rejected[0].raw, b"POINT (1,z");
        let (rows, rejected) = read(b"lon,lat\n1,x\n1\n1,2,3\n\xff,1\n5,6\n");
        assert_eq!((rows.len(), rejected.len()), (1, 4));
    }

    #[test]
    fn a_bad_geometry_names_its_column() {
        for (text, path) in [(&b"name,lon,lat\na,x,3\n"[..], "lon"), (b"id,wkt\n3,POINT (\n", "wkt")] {
            let (_, rejected) = read(text);
            let problem = rejected.first().and_then(|record| record.problems.first()).unwrap();
            assert_eq!(problem.path, path, "{problem}");
        }
    }

    #[test]
    fn a_quote_that_never_ends_is_one_bad_record() {
        let (rows, rejected) = read(b"a,b\n1,\"2\n3,4\n5,6\n");
        assert_eq!((rows.len(), rejected.len()), (0, 1));
    }
}
