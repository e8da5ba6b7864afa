//! The repaired file: the packed blocks as they were, behind a header that tells the truth.
//!
//! Blocks are copied, not packed anew: what a checksum proved stays what it was. Blocks that are lost are
//! marked as absent, and a mask says which pixels that concerns.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::blocks::BlockFate;
use super::directory::{RawDirectory, RawTag, TiffForm};
use super::input::RepairInput;
use super::layout::RepairLayout;
use super::report::RepairError;
use super::settle::SettledPicture;

/// Classic TIFF ends at 4 GiB; a file that might come near is written as BigTIFF.
const CLASSIC_LEN_MAX: u64 = (4 << 30) - (256 << 20);
const COPY_LEN: u64 = 1 << 20;

/// Writes the pictures, each with its blocks.
pub(super) fn write(
    input: &RepairInput,
    pictures: &[SettledPicture],
    is_partial: bool,
    to: &mut (impl Write + Seek),
) -> Result<(), RepairError> {
    let Some(first) = pictures.first() else { return Ok(()) };
    let form = first.directory.form;
    let big = form.big || input.len() > CLASSIC_LEN_MAX;
    let form = TiffForm { big, ..form };
    let mut out = OutFile { to: BufWriter::new(to), form, at: 0 };
    out.header()?;
    let mut directories = Vec::new();
    for (i, picture) in pictures.iter().enumerate() {
        let mut directory = picture.directory.clone();
        let mut places = Vec::with_capacity(picture.table.fates.len());
        let mut lens = Vec::with_capacity(picture.table.fates.len());
        for fate in &picture.table.fates {
            let (at, len) = match fate {
                BlockFate::Whole { at, len, .. } => (out.copy(input, *at, *len)?, *len),
                BlockFate::Absent | BlockFate::Lost => (0, 0),
            };
            places.push(at);
            lens.push(len);
        }
        set_blocks(&mut directory, form, &picture.table.layout, &places, &lens);
        directories.push(directory);
        if i == 0 && is_partial {
            directories.push(out.mask(picture)?);
        }
    }
    out.directories(directories)?;
    Ok(())
}

fn set_blocks(
    directory: &mut RawDirectory,
    form: TiffForm,
    layout: &RepairLayout,
    places: &[u64],
    lens: &[u64],
) {
    let (place_tag, len_tag) = layout.tags();
    directory.unset(273);
    directory.unset(279);
    let kind = if form.big { 16 } else { 4 };
    directory.set_numbers(place_tag, kind, places);
    directory.set_numbers(len_tag, kind, lens);
}

struct OutFile<W: Write + Seek> {
    to: BufWriter<W>,
    form: TiffForm,
    at: u64,
}

impl<W: Write + Seek> OutFile<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn number(&mut self, number: u64, len: usize) -> io::Result<()> {
        let bytes = self.form.bytes(number, len);
        self.put(&bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        let odd = self.at % 2 == 1;
        if odd { self.put(&[0]) } else { Ok(()) }
    }

    /// The header; the place of the first directory is set at the end.
    fn header(&mut self) -> io::Result<()> {
        self.put(&self.form.mark())?;
        if self.form.big {
            self.number(8, 2)?;
            self.number(0, 2)?;
        }
        self.number(0, self.form.place_len())
    }

    fn copy(&mut self, input: &RepairInput, from: u64, len: u64) -> io::Result<u64> {
        self.align()?;
        let at = self.at;
        let mut done = 0;
        while done < len {
            let bytes = input.up_to(from + done, (len - done).min(COPY_LEN))?;
            if bytes.is_empty() {
                return Err(io::Error::other("the file became shorter while it was read"));
            }
            done += bytes.len() as u64;
            self.put(&bytes)?;
        }
        Ok(at)
    }

    /// A mask of one bit a pixel in the same blocks: 1 is there, 0 is lost.
    fn mask(&mut self, picture: &SettledPicture) -> io::Result<RawDirectory> {
        let layout = &picture.table.layout;
        let in_plane = (layout.across() * layout.down()) as usize;
        let row_len = layout.block_width.div_ceil(8);
        let (mut places, mut lens) = (Vec::new(), Vec::new());
        for i in 0..in_plane {
            let planes = picture.table.fates.iter().skip(i).step_by(in_plane.max(1));
            let is_lost = planes.into_iter().any(|fate| *fate == BlockFate::Lost);
            let bits = vec![if is_lost { 0 } else { 0xff }; (row_len * layout.rows(i as u64)) as usize];
            let mut packer = ZlibEncoder::new(Vec::new(), Compression::new(6));
            packer.write_all(&bits)?;
            let packed = packer.finish()?;
            self.align()?;
            places.push(self.at);
            lens.push(packed.len() as u64);
            self.put(&packed)?;
        }
        let mut mask = RawDirectory { tags: Vec::new(), ..picture.directory.clone() };
        let block = if layout.tiled {
            vec![(322, layout.block_width), (323, layout.block_height)]
        } else {
            vec![(278, layout.block_height)]
        };
        let one =
            [(254, 4), (256, layout.width), (257, layout.height), (258, 1), (259, 8), (262, 4), (277, 1)];
        for (tag, number) in one.into_iter().chain(block) {
            mask.set_numbers(tag, if matches!(tag, 258 | 259 | 262 | 277) { 3 } else { 4 }, &[number]);
        }
        set_blocks(&mut mask, self.form, layout, &places, &lens);
        Ok(mask)
    }

    /// Writes the directories as a chain and sets the place of the first.
    fn directories(&mut self, all: Vec<RawDirectory>) -> io::Result<()> {
        // Where the place of the next directory is to be written.
        let mut link = if self.form.big { 8 } else { 4 };
        for mut directory in all {
            directory.tags.sort_by_key(|raw| raw.tag);
            let values = self.values(&directory.tags)?;
            self.align()?;
            let at = self.at;
            self.number(directory.tags.len() as u64, self.form.count_len())?;
            for (raw, value) in directory.tags.iter().zip(values) {
                self.number(u64::from(raw.tag), 2)?;
                self.number(u64::from(raw.kind), 2)?;
                self.number(raw.count, self.form.place_len())?;
                self.put(&value)?;
            }
            let next = self.at;
            self.number(0, self.form.place_len())?;
            let end = self.at;
            self.to.seek(SeekFrom::Start(link))?;
            self.to.write_all(&self.form.bytes(at, self.form.place_len()))?;
            self.to.seek(SeekFrom::Start(end))?;
            link = next;
        }
        self.to.flush()
    }

    /// What stands in the entry of each tag: its value, or the place of it.
    fn values(&mut self, tags: &[RawTag]) -> io::Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for raw in tags {
            let mut value = raw.bytes.clone();
            if value.len() > self.form.place_len() {
                self.align()?;
                let at = self.at;
                self.put(&value)?;
                value = self.form.bytes(at, self.form.place_len());
            }
            value.resize(self.form.place_len(), 0);
            all.push(value);
        }
        Ok(all)
    }
}
