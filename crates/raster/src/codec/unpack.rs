//! From packed bytes to values.

use std::cell::RefCell;

use libdeflater::{DecompressionError, Decompressor};
use weezl::{BitOrder, LzwStatus, decode};

use super::{BlockForm, bits, pictures, predict};
use crate::error::RasterError;
use crate::head::{Compression, Predictor};
use crate::sample::SampleData;

thread_local! {
    /// Made once for each thread: the tables of a codec cost more than a small block.
    static DEFLATE: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Unpacks a block of so many rows. A strip at the lower edge may be packed with all rows of a strip
/// (`rows_full`), of which only the first count.
pub(crate) fn unpack(
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
) -> Result<SampleData, RasterError> {
    let values_of_row = form.width as usize * form.together as usize;
    let count = values_of_row
        .checked_mul(rows as usize)
        .filter(|count| *count > 0)
        .ok_or_else(|| RasterError::block("the block has no pixels, or too many"))?;
    let turned: Vec<u8>;
    let packed = if form.reversed && !matches!(form.compression, Compression::Jpeg) {
        turned = packed.iter().map(|byte| byte.reverse_bits()).collect();
        &turned
    } else {
        packed
    };
    if let Some(kind) = pictures::kind_of(form.compression) {
        return pictures::unpack(kind, packed, form, rows, rows_full);
    }
    let mut data = SampleData::zeros(form.sample, count);
    if form.is_plain() {
        fill(packed, form, rows, rows_full, data.bytes_mut())?;
        if form.predictor == Predictor::Float {
            // The bytes of a number are in their own order, whatever that of the file is.
            predict::undo_float(data.bytes_mut(), values_of_row, form.together as usize, form.sample.size());
            if cfg!(target_endian = "big") {
                swap(&mut data);
            }
            return Ok(data);
        }
        if form.big_endian != cfg!(target_endian = "big") {
            swap(&mut data);
        }
        if form.predictor == Predictor::Horizontal {
            predict::undo_horizontal(&mut data, values_of_row, form.together as usize);
        }
        return Ok(data);
    }
    let len = form.row_len() * u64::from(rows);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    fill(packed, form, rows, rows_full, &mut bytes)?;
    match form.predictor {
        Predictor::None => bits::widen(&bytes, form, &mut data),
        Predictor::Float if form.sample.is_float() => {
            predict::undo_float(
                &mut bytes,
                values_of_row,
                form.together as usize,
                usize::from(form.bits / 8),
            );
            bits::widen(&bytes, &BlockForm { big_endian: false, ..form.clone() }, &mut data);
        }
        _ => {
            return Err(RasterError::unsupported(format!(
                "a predictor over values of {} bits is not read",
                form.bits
            )));
        }
    }
    Ok(data)
}

fn swap(data: &mut SampleData) {
    let size = data.sample().size();
    if size > 1 {
        data.bytes_mut().chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Unpacks into a buffer, which is filled completely.
fn fill(
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
    out: &mut [u8],
) -> Result<(), RasterError> {
    let wanted = out.len();
    let got = match form.compression {
        Compression::None => {
            let len = packed.len().min(wanted);
            out[..len].copy_from_slice(&packed[..len]);
            len
        }
        Compression::Deflate => match inflate(packed, out) {
            Err(DecompressionError::InsufficientSpace) if rows < rows_full => {
                let full = form.row_len() * u64::from(rows_full);
                let mut all = vec![0; usize::try_from(full).unwrap_or(0)];
                let got = inflate(packed, &mut all).map_err(|error| broken(error, wanted))?;
                let got = got.min(wanted);
                out[..got].copy_from_slice(&all[..got]);
                got
            }
            result => result.map_err(|error| broken(error, wanted))?,
        },
        Compression::Zstd => unzstd(packed, out).map_err(|why| {
            RasterError::block(format!(
                "the zstd data of the block are broken or longer than its {wanted} bytes: {why}"
            ))
        })?,
        Compression::Lzw => lzw(packed, out)?,
        Compression::PackBits => packbits(packed, out),
        other => {
            return Err(RasterError::unsupported(format!("blocks packed by {other} are not read")));
        }
    };
    if got < wanted {
        return Err(RasterError::block(format!(
            "the block has {wanted} bytes, and {} bytes of {} unpack to {got}",
            packed.len(),
            form.compression
        )));
    }
    Ok(())
}

fn broken(error: DecompressionError, wanted: usize) -> RasterError {
    RasterError::block(match error {
        DecompressionError::BadData => {
            "the deflate data of the block are broken, or their checksum is another".to_owned()
        }
        DecompressionError::InsufficientSpace => {
            format!("the block has {wanted} bytes, and its deflate data unpack to more")
        }
    })
}

pub(super) fn inflate(packed: &[u8], out: &mut [u8]) -> Result<usize, DecompressionError> {
    DEFLATE.with_borrow_mut(|codec| codec.zlib_decompress(packed, out))
}

pub(super) fn unzstd(packed: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    ZSTD.with_borrow_mut(|slot| {
        let codec = match slot {
            Some(codec) => codec,
            None => slot.insert(zstd::bulk::Decompressor::new()?),
        };
        codec.decompress_to_buffer(packed, out)
    })
}

fn lzw(packed: &[u8], out: &mut [u8]) -> Result<usize, RasterError> {
    // Before 1993 the codes began with the lowest bit; the first of them then makes these two bytes.
    let is_old = matches!(packed, [0, second, ..] if second & 1 == 1);
    let config = if is_old {
        decode::Configuration::new(BitOrder::Lsb, 8)
    } else {
        decode::Configuration::with_tiff_size_switch(BitOrder::Msb, 8)
    };
    let mut decoder = config.with_yield_on_full_buffer(true).build();
    let (mut from, mut to) = (0, 0);
    while to < out.len() {
        let done = decoder.decode_bytes(&packed[from..], &mut out[to..]);
        from += done.consumed_in;
        to += done.consumed_out;
        match done.status {
            Err(error) => {
                return Err(RasterError::block(format!("the LZW data of the block are broken: {error}")));
            }
            Ok(LzwStatus::Done | LzwStatus::NoProgress) => break,
            Ok(LzwStatus::Ok) if done.consumed_in == 0 && done.consumed_out == 0 => break,
            Ok(LzwStatus::Ok) => {}
        }
    }
    Ok(to)
}

fn packbits(mut packed: &[u8], out: &mut [u8]) -> usize {
    let mut to = 0;
    while let [head, rest @ ..] = packed {
        packed = rest;
        let room = out.len() - to;
        if room == 0 {
            break;
        }
        if *head < 128 {
            let len = (usize::from(*head) + 1).min(packed.len());
            let taken = len.min(room);
            out[to..to + taken].copy_from_slice(&packed[..taken]);
            packed = &packed[len..];
            to += taken;
        } else if *head > 128 {
            let [byte, rest @ ..] = packed else { break };
            let len = (257 - usize::from(*head)).min(room);
            out[to..to + len].fill(*byte);
            packed = rest;
            to += len;
        }
    }
    to
}
