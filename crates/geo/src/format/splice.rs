//! Changes single records of a text file and leaves every other byte as it is.
//!
//! Why not read and write the file anew: a number may be spelt in another way, a member that we do
//! not know would be lost, and the columns of the geometry could be others. Here the bytes of a
//! record are replaced by those that the writer of the format gives it, records are added at the
//! end, and the rest is copied. The new file takes the place of the old one at once.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::atomic::Pending;
use super::{Format, Options, create_stream};
use crate::batch::{Batch, Span};
use crate::crs::Crs;
use crate::error::Error;

/// The changes to a file.
#[derive(Clone, Debug, Default)]
pub struct Splice {
    /// The new texts of records, by where they stand.
    pub replaced: Vec<(Span, Vec<u8>)>,
    /// The texts of new records.
    pub added: Vec<Vec<u8>>,
    /// The last record of the file.
    pub last: Option<Span>,
}

/// Whether single records of a format can be changed in this way.
#[must_use]
pub fn is_spliceable(format: Format) -> bool {
    matches!(format, Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq | Format::Csv)
}

/// The text of one record without its frame, as the writer of the format writes it.
///
/// # Errors
/// If the format cannot hold the record.
pub fn record_text(
    format: Format,
    batch: &Batch,
    row: usize,
    crs: &Crs,
    options: &Options,
) -> Result<Vec<u8>, Error> {
    let mut alone = Batch::new(batch.schema().clone());
    alone.copy_row(batch, row);
    match format {
        Format::Csv => {
            let head = written(Format::Csv, &Batch::new(batch.schema().clone()), crs, options)?.len();
            let text = written(Format::Csv, &alone, crs, options)?;
            Ok(line(text.get(head..).unwrap_or_default()))
        }
        // A feature has the same text in every frame.
        _ => Ok(line(&written(Format::GeoJsonLines, &alone, crs, options)?)),
    }
}

/// The header of a CSV file of this schema, as it is written.
///
/// # Errors
/// As [`record_text`].
pub fn header_text(batch: &Batch, crs: &Crs, options: &Options) -> Result<Vec<u8>, Error> {
    Ok(line(&written(Format::Csv, &Batch::new(batch.schema().clone()), crs, options)?))
}

fn line(text: &[u8]) -> Vec<u8> {
    text.strip_suffix(b"\n").unwrap_or(text).to_vec()
}

fn written(format: Format, batch: &Batch, crs: &Crs, options: &Options) -> Result<Vec<u8>, Error> {
    let shared = SharedBytes::default();
    let mut writer = create_stream(Box::new(shared.clone()), format, batch.schema(), crs, options)?;
    writer.write(batch)?;
    writer.finish()?;
    Ok(std::mem::take(&mut *shared.0.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[derive(Clone, Default)]
struct SharedBytes(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes a file. A collection without records cannot take any: write it anew.
///
/// # Errors
/// On an I/O error. The file is then unchanged.
pub fn splice(path: &Path, format: Format, changes: &Splice) -> Result<(), Error> {
    let mut old = File::open(path)?;
    let len = old.metadata()?.len();
    let mut new = BufWriter::with_capacity(1 << 18, Pending::new(path)?);
    let mut replaced: Vec<&(Span, Vec<u8>)> = changes.replaced.iter().collect();
    replaced.sort_by_key(|(span, _)| span.offset);
    let mut at = 0;
    for (span, text) in replaced {
        copy(&mut old, &mut new, at, span.offset)?;
        new.write_all(text)?;
        at = span.offset + span.len;
    }
    match (format, changes.last) {
        _ if changes.added.is_empty() => copy(&mut old, &mut new, at, len)?,
        (Format::GeoJson, Some(last)) => {
            let end = last.offset + last.len;
            copy(&mut old, &mut new, at, end)?;
            for text in &changes.added {
                new.write_all(b",\n")?;
                new.write_all(text)?;
            }
            copy(&mut old, &mut new, end, len)?;
        }
        (Format::GeoJson, None) => return Err(io::Error::other("the collection has no records").into()),
        _ => {
            copy(&mut old, &mut new, at, len)?;
            if len > 0 && last_byte(&mut old, len)? != b'\n' {
                new.write_all(b"\n")?;
            }
            for text in &changes.added {
                if format == Format::GeoJsonSeq {
                    new.write_all(&[0x1e])?;
                }
                new.write_all(text)?;
                new.write_all(b"\n")?;
            }
        }
    }
    Ok(new.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?)
}

/// Copies the bytes from `from` to `to`.
fn copy(old: &mut File, new: &mut impl Write, from: u64, to: u64) -> io::Result<()> {
    old.seek(SeekFrom::Start(from))?;
    let wanted = to.saturating_sub(from);
    if io::copy(&mut old.take(wanted), new)? < wanted {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was shortened meanwhile"));
    }
    Ok(())
}

fn last_byte(file: &mut File, len: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::Start(len.saturating_sub(1)))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let span = |offset, len| Span { offset, len };
        let edit = |old: &str, format, replaced: &[(Span, &str)], added: &[&str], last| {
            std::fs::write(&path, old).unwrap();
            let replaced = replaced.iter().map(|(span, text)| (*span, text.as_bytes().to_vec())).collect();
            let added = added.iter().map(|text| text.as_bytes().to_vec()).collect();
            splice(&path, format, &Splice { replaced, added, last }).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        // The second and third rows of a file with CRLF, without a line end at its end.
        let csv = "id,v\r\n1, 1.50\r\n2,b";
        let changed = edit(csv, Format::Csv, &[(span(15, 3), "2,c")], &["3,d"], Some(span(15, 3)));
        assert_eq!(changed, "id,v\r\n1, 1.50\r\n2,c\n3,d\n");
        let seq = "\u{1e}{\"a\": 1}\n\u{1e}{}\n";
        assert_eq!(edit(seq, Format::GeoJsonSeq, &[], &["{1}"], None), format!("{seq}\u{1e}{{1}}\n"));
        let whole = "{ \"features\": [ {} , {1} ], \"more\": [1e0] }";
        let first = (span(16, 2), "{\"x\":0}");
        let changed = edit(whole, Format::GeoJson, &[first], &["{2}", "{3}"], Some(span(21, 3)));
        assert_eq!(changed, "{ \"features\": [ {\"x\":0} , {1},\n{2},\n{3} ], \"more\": [1e0] }");
    }
}
