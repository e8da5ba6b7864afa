//! Reading a Shapefile.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::dbf::{DbfRow, DbfTable};
use super::shape::{shape_of, write_shape};
use crate::batch::{Batch, Span};
use crate::error::{Error, Problem};
use crate::format::geojson::ReadOptions;
use crate::format::prj::Prj;
use crate::format::{Layer, Rejected};
use crate::mapping::Owned;
use crate::schema::Schema;

/// A Shapefile being read.
pub struct ShapefileReader {
    shapes: BufReader<File>,
    table: Option<DbfTable<BufReader<File>>>,
    layer: Layer,
    record: u64,
    offset: u64,
    /// Length that the header declares, in bytes.
    end: u64,
    bytes: Vec<u8>,
    options: ReadOptions,
}

impl ShapefileReader {
    /// Opens the `.shp` file and its companions.
    ///
    /// # Errors
    /// If the file is not a Shapefile, or its table is damaged.
    pub fn open(path: &Path, options: ReadOptions) -> Result<ShapefileReader, Error> {
        let mut shapes = BufReader::with_capacity(1 << 18, File::open(path)?);
        let mut head = [0; 100];
        shapes.read_exact(&mut head).map_err(|_| not_a_shapefile())?;
        if head.first_chunk() != Some(&9994i32.to_be_bytes()) {
            return Err(not_a_shapefile());
        }
        let number = head.get(32..36).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_le_bytes);
        if !matches!(number, 0 | 31) && shape_of(number).is_none() {
            return Err(not_a_shapefile());
        }
        let stated = head.get(24..28).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        let companion = |extension: &str| {
            [extension.to_owned(), extension.to_uppercase()].into_iter().find_map(|e| {
                let path = path.with_extension(e);
                path.exists().then_some(path)
            })
        };
        let text = |extension: &str| companion(extension).and_then(|path| std::fs::read_to_string(path).ok());
        let (table, mut schema) = match companion("dbf") {
            Some(dbf) => {
                let (table, schema) =
                    DbfTable::open(BufReader::new(File::open(dbf)?), text("cpg").as_deref())?;
                (Some(table), schema)
            }
            None => (None, Schema::default()),
        };
        schema.shape = shape_of(number);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let crs = companion("prj").map_or(Ok(Prj::Absent), |path| Prj::read(&path))?.known();
        let layer = Layer { name, schema: Arc::new(schema), crs, records: None };
        let end = u64::from(stated) * 2;
        Ok(ShapefileReader { shapes, table, layer, record: 0, offset: 100, end, bytes: Vec::new(), options })
    }

    /// Reads the next record's bytes; false at the end.
    fn advance(&mut self) -> Result<bool, Error> {
        let mut head = [0; 8];
        match self.shapes.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && self.offset >= self.end => return Ok(false),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                let message = format!("the file ends before byte {}, its declared length", self.end);
                let problem = Problem::new(Code::TRUNCATED_BODY, message);
                return Err(problem.of_record(self.record).at(self.offset).into());
            }
            Err(e) => return Err(e.into()),
        }
        let words = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let len = (words as usize).saturating_mul(2);
        if len > self.options.limits.record_bytes_max {
            let message = format!("a record is larger than {} bytes", self.options.limits.record_bytes_max);
            return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message)
                .of_record(self.record)
                .at(self.offset)
                .into());
        }
        self.bytes.clear();
        let read = self.shapes.by_ref().take(len as u64).read_to_end(&mut self.bytes)?;
        if read < len {
            let problem = Problem::new(Code::TRUNCATED_BODY, "the file ends within a record");
            return Err(problem.of_record(self.record).at(self.offset).into());
        }
        Ok(true)
    }
}

fn not_a_shapefile() -> Error {
    Problem::new(Code::CORRUPTED_HEADER, "the file is not a Shapefile").into()
}

impl crate::format::Reader for ShapefileReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            if !self.advance()? {
                return Ok((!batch.is_empty()).then_some(batch));
            }
            let span = Span { offset: self.offset, len: self.bytes.len() as u64 + 8 };
            self.offset += span.len;
            let row = match &mut self.table {
                None => Ok(Vec::new()),
                Some(table) => match table.next()? {
                    Some(DbfRow::Values(row)) => Ok(row),
                    Some(DbfRow::Broken(problem)) => Err(problem),
                    Some(DbfRow::Deleted) => {
                        self.record += 1;
                        batch.go_to_record(self.record);
                        continue;
                    }
                    None => Err(Problem::new(Code::SCHEMA_MISMATCH, "the table has no row for this shape")),
                },
            };
            let bytes = &self.bytes;
            let done = row.and_then(|values| {
                batch.push_with(|out| write_shape(bytes, out), values.iter().map(Owned::value))
            });
            match done {
                Ok(()) => batch.set_origin(span, if self.options.keep_raw { bytes } else { &[] }),
                Err(problem) => {
                    let problems = vec![problem.of_record(self.record).at(span.offset)];
                    rejected.push(Rejected { record: self.record, span, raw: bytes.clone(), problems });
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                }
            }
            self.record += 1;
            batch.go_to_record(self.record);
        }
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Reader as _;
    use proptest::prelude::*;

    fn file(records: &[Vec<u8>], number: i32) -> Vec<u8> {
        let mut out = vec![0; 100];
        out[..4].copy_from_slice(&9994i32.to_be_bytes());
        out[32..36].copy_from_slice(&number.to_le_bytes());
        for (at, record) in records.iter().enumerate() {
            out.extend((at as i32 + 1).to_be_bytes());
            out.extend((record.len() as i32 / 2).to_be_bytes());
            out.extend(record);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<(Vec<String>, usize), Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.shp");
        std::fs::write(&path, bytes).unwrap();
        let mut reader = ShapefileReader::open(&path, ReadOptions::default())?;
        let (mut rows, mut rejected) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch(&mut rejected)? {
            rows.extend(
                (0..batch.len()).map(|row| batch.geometry(row).map_or("null".into(), crate::wkt::to_string)),
            );
        }
        Ok((rows, rejected.len()))
    }

    fn polygon(rings: &[&[[f64; 2]]]) -> Vec<u8> {
        let mut out = 5i32.to_le_bytes().to_vec();
        out.extend([0; 32]);
        out.extend((rings.len() as i32).to_le_bytes());
        out.extend((rings.iter().map(|r| r.len()).sum::<usize>() as i32).to_le_bytes());
        let mut start = 0i32;
        for ring in rings {
            out.extend(start.to_le_bytes());
            start += ring.len() as i32;
        }
        out.extend(rings.iter().flat_map(|r| r.iter()).flatten().flat_map(|x| x.to_le_bytes()));
        out
    }

    #[test]
    fn holes_find_their_shells() {
        let left: &[[f64; 2]] = &[[0.0, 0.0], [0.0, 4.0], [4.0, 4.0], [0.0, 0.0]];
        let right: &[[f64; 2]] = &[[10.0, 0.0], [10.0, 4.0], [14.0, 4.0], [10.0, 0.0]];
        let hole: &[[f64; 2]] = &[[10.5, 1.0], [11.0, 3.0], [10.5, 3.0], [10.5, 1.0]];
        let (rows, rejected) =
            read(&file(&[polygon(&[left, hole, right]), 0i32.to_le_bytes().to_vec()], 5)).unwrap();
        assert_eq!(
            rows,
            [
                "MULTIPOLYGON (((0 0, 0 4, 4 4, 0 0)), ((10 0, 10 4, 14 4, 10 0), (10.5 1, 11 3, 10.5 3, 10.5 1)))",
                "null",
            ]
        );
        assert_eq!(rejected, 0);
    }

    #[test]
    fn what_is_not_a_shapefile_or_cut_is_told() {
        assert_eq!(read(b"zip").unwrap_err().code(), Code::CORRUPTED_HEADER);
        assert_eq!(read(&[0; 200]).unwrap_err().code(), Code::CORRUPTED_HEADER);
        let good = file(&[polygon(&[&[[0.0, 0.0], [0.0, 4.0], [4.0, 4.0], [0.0, 0.0]]])], 5);
        assert_eq!(read(&good[..good.len() - 1]).unwrap_err().code(), Code::TRUNCATED_BODY);
    }

    proptest! {
        #[test]
        fn any_record_ends_in_an_answer(number in 0i32..30, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut record = number.to_le_bytes().to_vec();
            record.extend(body);
            let mut out = Vec::new();
            if write_shape(&record, &mut out).is_ok() && !out.is_empty() {
                let mut again = Vec::new();
                crate::wkb::canonicalise(&out, &mut again).unwrap();
            }
        }
    }
}
