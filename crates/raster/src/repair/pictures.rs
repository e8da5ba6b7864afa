//! Blocks that are pictures of their own (JPEG, WebP, LERC): those that cannot be decoded are lost.
//!
//! These codecs have no checksum that everybody writes, so a block that can be decoded proves nothing;
//! but one that cannot be decoded has no pixels, whatever the header says.

use std::io;

use bytes::Bytes;

use super::blocks::{BlockFate, BlockFates};
use super::directory::RawDirectory;
use super::input::RepairInput;
use crate::codec::{BlockForm, picture_kind, unpack};
use crate::error::RasterCause;
use crate::geotiff::sample_of;
use crate::head::{Compression, Predictor};

/// Marks the blocks as lost that cannot be decoded.
pub(super) fn lose_broken(
    input: &RepairInput,
    directory: &RawDirectory,
    table: &mut BlockFates,
) -> io::Result<()> {
    let Some(form) = form(directory, table) else { return Ok(()) };
    let rows_full = table.layout.block_height as u32;
    // A hostile file names one block a million times.
    let mut last: Option<((u64, u64, u64), bool)> = None;
    for (i, fate) in (0u64..).zip(&mut table.fates) {
        let BlockFate::Whole { at, len, .. } = *fate else { continue };
        let asked = (at, len, table.layout.rows(i));
        let is_broken = match last {
            Some((before, is_broken)) if before == asked => is_broken,
            _ => match unpack(&input.up_to(at, len)?, &form, asked.2 as u32, rows_full) {
                Ok(_) => false,
                Err(error) if error.cause == RasterCause::CorruptBlock => true,
                // A kind that is not read, so nothing is known of any block.
                Err(_) => return Ok(()),
            },
        };
        last = Some((asked, is_broken));
        if is_broken {
            *fate = BlockFate::Lost;
        }
    }
    Ok(())
}

/// How its blocks are packed; nothing if they are no pictures, or of a kind that is not read.
fn form(directory: &RawDirectory, table: &BlockFates) -> Option<BlockForm> {
    let layout = &table.layout;
    let compression = Compression::of_tag(layout.compression);
    picture_kind(compression)?;
    Some(BlockForm {
        compression,
        predictor: Predictor::None,
        sample: sample_of(directory.number(339).unwrap_or(1), layout.bits).ok()?,
        bits: layout.bits as u16,
        width: u32::try_from(layout.block_width).ok()?,
        together: u32::try_from(layout.samples_in_block()).ok()?,
        big_endian: directory.form.big_endian,
        reversed: directory.number(266) == Some(2),
        photometric: directory.number(262).unwrap_or(1) as u16,
        jpeg_tables: directory.tag(347).map(|raw| Bytes::from(raw.bytes.clone())),
        lerc_in: directory.numbers(50674).and_then(|all| all.get(1).copied()).unwrap_or(0),
    })
}
