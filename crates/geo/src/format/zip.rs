//! A file inside a `.zip` archive: a Shapefile with its companions, a GeoJSON file, or any other
//! format in one or a few files.
//!
//! The data set is unpacked into a temporary folder, which is removed with the reader. Why not
//! read in place: half of the formats need random access. Why not the `zip`
//! crate (9.2): it reads the whole directory before a limit can be set. An archive of a million empty
//! files costs it 192 MB and 5.8 s, here it is refused after 0.03 s in 4 MB; the limits below would have
//! to stay, which leaves about a hundred lines to save.
//!
//! Limits against hostile archives: the declared sizes must be within a compression ratio and a total, and
//! unpacking stops if the actual size differs. Paths in the archive are never used as paths. Encrypted
//! files and compression methods other than deflate are refused.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tidegate_core::Code;

use super::geojson::ReadOptions;
use super::{Format, Layer, Reader, Rejected};
use crate::batch::Batch;
use crate::error::{Error, Problem};

/// Most files in an archive.
const FILES_MAX: u64 = 10_000;
const DIRECTORY_LEN_MAX: u64 = 16 << 20;
/// Most bytes to unpack from one archive.
const TOTAL_MAX: u64 = 8 << 30;
/// Largest compression ratio of what is larger than `FREE`. Coordinates reach 20.
const RATIO_MAX: u64 = 100;
const FREE: u64 = 32 << 20;
/// The extensions of a Shapefile.
const COMPANIONS: [&str; 5] = ["shp", "dbf", "shx", "prj", "cpg"];

fn broken(message: impl Into<String>) -> Error {
    Problem::new(Code::CORRUPTED_HEADER, message).into()
}

/// A file in the archive.
#[derive(Clone, Debug)]
struct ZipEntry {
    /// The name without folders.
    name: String,
    method: u16,
    encrypted: bool,
    crc: u32,
    packed: u64,
    size: u64,
    at: u64,
}

impl ZipEntry {
    fn path(&self) -> &Path {
        Path::new(&self.name)
    }

    fn stem(&self) -> String {
        self.path().file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    }

    fn is_companion_of(&self, shapes: &ZipEntry) -> bool {
        let extension = self.path().extension().map(|extension| extension.to_string_lossy().to_lowercase());
        self.stem() == shapes.stem() && extension.is_some_and(|found| COMPANIONS.contains(&found.as_str()))
    }
}

/// Whether this is an archive, by its name and its first bytes.
pub(super) fn is_likely(path: &Path) -> io::Result<bool> {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
    if !named && Format::of_path(path).is_some() {
        return Ok(false);
    }
    let mut head = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(head == b"PK\x03\x04" || (named && head == b"PK\x05\x06"))
}

/// The names of the layers in an archive: the names of its files, or the layers of its only one.
pub(super) fn layers(path: &Path, options: &ReadOptions) -> Result<Vec<String>, Error> {
    let all = directory(path)?;
    match data_sets(&all).as_slice() {
        [only] if Format::of_path(only.path()) == Some(Format::GeoPackage) => {
            let unpacked = unpack(path, only, &all)?;
            super::layers(&unpacked.path, options)
        }
        several => Ok(several.iter().map(|entry| entry.stem()).collect()),
    }
}

/// The format of the only data set of an archive.
pub(super) fn format(path: &Path) -> Option<Format> {
    let all = directory(path).ok()?;
    match data_sets(&all).as_slice() {
        [only] => Format::of_path(only.path()),
        _ => None,
    }
}

/// Unpacks and opens a data set.
pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Box<dyn Reader>, Error> {
    let all = directory(path)?;
    let sets = data_sets(&all);
    let names: Vec<String> = sets.iter().map(|entry| entry.stem()).collect();
    let (chosen, inner) = match (sets.as_slice(), &options.layer) {
        ([], _) => return Err(broken("the archive has no file of a known format")),
        ([only], _) => (*only, options.clone()),
        (_, Some(layer)) => match sets.iter().find(|entry| entry.stem() == *layer) {
            Some(found) => (*found, ReadOptions { layer: None, ..options.clone() }),
            None => {
                let message = format!("no such layer; the archive has {names:?}");
                return Err(Problem::new(Code::NOT_FOUND, message).into());
            }
        },
        (_, None) => {
            let message = format!("the archive has several files; select one of {names:?} with --layer");
            return Err(Problem::new(Code::NOT_FOUND, message).into());
        }
    };
    let unpacked = unpack(path, chosen, &all)?;
    let reader = super::open(&unpacked.path, &inner)?;
    Ok(Box::new(Zipped { reader, _unpacked: unpacked }))
}

/// The files that are data sets, without companions.
fn data_sets(all: &[ZipEntry]) -> Vec<&ZipEntry> {
    let is_one = |entry: &&ZipEntry| {
        // macOS and others add hidden files.
        !entry.name.starts_with('.') && Format::of_path(entry.path()).is_some()
    };
    let found: Vec<&ZipEntry> = all.iter().filter(is_one).collect();
    let is_shapes = |entry: &&&ZipEntry| Format::of_path(entry.path()) == Some(Format::Shapefile);
    let shapes: HashSet<&str> = found.iter().filter(is_shapes).map(|entry| entry.name.as_str()).collect();
    // `roads.shp.xml` describes `roads.shp`.
    let describes = |entry: &ZipEntry| {
        let mut ends = entry.name.rmatch_indices('.').take(3);
        ends.any(|(at, _)| entry.name.get(..at).is_some_and(|name| shapes.contains(name)))
    };
    found.into_iter().filter(|entry| !describes(entry)).collect()
}

/// A data set, unpacked into a temporary folder.
struct Unpacked {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn unpack(archive: &Path, chosen: &ZipEntry, all: &[ZipEntry]) -> Result<Unpacked, Error> {
    let mut parts: Vec<&ZipEntry> = vec![chosen];
    if Format::of_path(chosen.path()) == Some(Format::Shapefile) {
        parts.extend(all.iter().filter(|entry| entry.is_companion_of(chosen) && entry.name != chosen.name));
    }
    let total: u64 = parts.iter().fold(0, |sum, entry| sum.saturating_add(entry.size));
    if total > TOTAL_MAX {
        let message = format!("the archive would unpack to {total} bytes, more than {TOTAL_MAX}");
        return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).into());
    }
    let folder = tempfile::tempdir()?;
    let mut file = File::open(archive)?;
    for entry in parts {
        let place = |problem: Problem| Error::from(problem.at(entry.at).under(&entry.name));
        if entry.encrypted {
            return Err(place(Problem::new(Code::UNPROCESSABLE, "the file in the archive is encrypted")));
        }
        if entry.size > FREE && entry.size / entry.packed.max(1) > RATIO_MAX {
            let message = format!("the archive would unpack to over {RATIO_MAX} times its size");
            return Err(place(Problem::new(Code::PAYLOAD_TOO_LARGE, message)));
        }
        write_out(&mut file, entry, &folder.path().join(safe(entry)))?;
    }
    Ok(Unpacked { path: folder.path().join(safe(chosen)), _folder: folder })
}

/// A safe file name in the temporary folder, with its extension in lower case.
fn safe(entry: &ZipEntry) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
    let stem: String = entry.stem().chars().map(plain).take(100).collect();
    let extension = entry.path().extension().map_or_else(String::new, |e| e.to_string_lossy().to_lowercase());
    format!("{stem}.{}", extension.chars().filter(char::is_ascii_alphanumeric).collect::<String>())
}

fn write_out(file: &mut File, entry: &ZipEntry, to: &Path) -> Result<(), Error> {
    let differs = || broken(format!("{}: the content does not match its entry in the archive", entry.name));
    let mut head = [0; 30];
    file.seek(SeekFrom::Start(entry.at))?;
    file.read_exact(&mut head).map_err(|_| differs())?;
    if !head.starts_with(b"PK\x03\x04") {
        return Err(differs());
    }
    let skip = u64::from(short(&head, 26)) + u64::from(short(&head, 28));
    file.seek(SeekFrom::Start(entry.at.saturating_add(30).saturating_add(skip)))?;
    let packed = BufReader::with_capacity(1 << 16, (&*file).take(entry.packed));
    let mut plain: Box<dyn Read + '_> = match entry.method {
        0 => Box::new(packed),
        8 => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
        other => {
            let message =
                format!("{}: compression method {other} is not supported, only deflate", entry.name);
            return Err(Problem::new(Code::UNPROCESSABLE, message).into());
        }
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, File::create(to)?);
    let (mut crc, mut left, mut buffer) = (flate2::Crc::new(), entry.size, vec![0; 1 << 16]);
    loop {
        let read = plain.read(&mut buffer).map_err(|_| differs())?;
        let some = buffer.get(..read).unwrap_or_default();
        if some.is_empty() {
            break;
        }
        left = left.checked_sub(read as u64).ok_or_else(differs)?;
        crc.update(some);
        out.write_all(some)?;
    }
    out.flush()?;
    if left > 0 || crc.sum() != entry.crc {
        return Err(differs());
    }
    Ok(())
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn longest(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The central directory at the end of an archive.
fn directory(path: &Path) -> Result<Vec<ZipEntry>, Error> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let tail_len = len.min(66_000);
    file.seek(SeekFrom::Start(len - tail_len))?;
    let mut tail = Vec::new();
    (&file).take(tail_len).read_to_end(&mut tail)?;
    let end = memchr::memmem::rfind(&tail, b"PK\x05\x06");
    let end = end.ok_or_else(|| broken("the archive has no central directory; it may be truncated"))?;
    let record = tail.get(end..).unwrap_or_default();
    let (mut count, mut size, mut at) =
        (u64::from(short(record, 10)), u64::from(long(record, 12)), u64::from(long(record, 16)));
    // ZIP64 has the same fields in a record before it.
    let locator =
        end.checked_sub(20).and_then(|at| tail.get(at..end)).filter(|l| l.starts_with(b"PK\x06\x07"));
    if let Some(locator) = locator {
        let mut large = [0; 56];
        file.seek(SeekFrom::Start(longest(locator, 8)))?;
        file.read_exact(&mut large).map_err(|_| broken("the archive is truncated"))?;
        if large.starts_with(b"PK\x06\x06") {
            (count, size, at) = (longest(&large, 32), longest(&large, 40), longest(&large, 48));
        }
    }
    if count > FILES_MAX || size > DIRECTORY_LEN_MAX {
        return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, "the archive has too many files").into());
    }
    file.seek(SeekFrom::Start(at))?;
    let mut list = Vec::new();
    (&file).take(size).read_to_end(&mut list)?;
    let mut entries = Vec::new();
    let mut rest = list.as_slice();
    for _ in 0..count {
        let (entry, entry_len) =
            entry(rest).ok_or_else(|| broken("the central directory of the archive is damaged"))?;
        rest = rest.get(entry_len..).unwrap_or_default();
        entries.extend(entry);
    }
    Ok(entries)
}

/// An entry of the central directory and its length; `None` for a folder.
fn entry(line: &[u8]) -> Option<(Option<ZipEntry>, usize)> {
    if !line.starts_with(b"PK\x01\x02") {
        return None;
    }
    let [name_len, extra_len, comment_len] = [28, 30, 32].map(|at| usize::from(short(line, at)));
    let name = line.get(46..46 + name_len)?;
    let extra = line.get(46 + name_len..46 + name_len + extra_len)?;
    let (mut packed, mut size, mut at) =
        (u64::from(long(line, 20)), u64::from(long(line, 24)), u64::from(long(line, 42)));
    let mut field = extra;
    while field.len() >= 4 {
        let (kind, len) = (short(field, 0), usize::from(short(field, 2)));
        let value = field.get(4..4 + len)?;
        if kind == 1 {
            // The fields that do not fit into 32 bits, in this order.
            let mut from = 0;
            for number in [&mut size, &mut packed, &mut at] {
                if *number == u64::from(u32::MAX) {
                    *number = longest(value, from);
                    from += 8;
                }
            }
        }
        field = field.get(4 + len..)?;
    }
    let full = String::from_utf8_lossy(name).replace('\\', "/");
    let name = full.rsplit('/').next().unwrap_or_default().to_owned();
    let hidden = full.starts_with("__MACOSX/");
    let made = (!name.is_empty() && !hidden).then(|| ZipEntry {
        name,
        method: short(line, 10),
        encrypted: short(line, 8) & 1 != 0,
        crc: long(line, 16),
        packed,
        size,
        at,
    });
    Some((made, 46 + name_len + extra_len + comment_len))
}

/// A reader of an unpacked file.
struct Zipped {
    reader: Box<dyn Reader>,
    _unpacked: Unpacked,
}

impl Reader for Zipped {
    fn layer(&self) -> &Layer {
        self.reader.layer()
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        self.reader.next_batch(rejected)
    }
}
