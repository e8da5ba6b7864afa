//! From packed bytes to values.

use std::cell::RefCell;

use libdeflater::{DecompressionError, Decompressor};
use tidegate_geo::guard::guarded;
use weezl::{BitOrder, LzwStatus, decode};

use super::{BlockForm, bits, pictures, predict};
use crate::error::RasterError;
use crate::head::{Compression, Predictor};
use crate::limits::RasterLimits;
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
    match form.compression {
        Compression::Jpeg => return careful("JPEG", || pictures::jpeg(packed, form, rows, rows_full)),
        Compression::WebP => return careful("WebP", || pictures::webp(packed, form, rows, rows_full)),
        Compression::Lerc => return careful("LERC", || lerc(packed, form, rows, rows_full)),
        _ => {}
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

/// Calls a decoder that may panic on damaged bytes; that is an error of the block.
fn careful(
    kind: &str,
    decode: impl FnOnce() -> Result<SampleData, RasterError>,
) -> Result<SampleData, RasterError> {
    let broken = || RasterError::block(format!("the {kind} of the block is broken: its decoder failed"));
    guarded(decode).unwrap_or_else(|| Err(broken()))
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

fn inflate(packed: &[u8], out: &mut [u8]) -> Result<usize, DecompressionError> {
    DEFLATE.with_borrow_mut(|codec| codec.zlib_decompress(packed, out))
}

fn unzstd(packed: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
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

/// LERC, whose own header is believed only when it fits.
fn lerc(packed: &[u8], form: &BlockForm, rows: u32, rows_full: u32) -> Result<SampleData, RasterError> {
    let broken = |why: &str| RasterError::block(format!("the LERC data of the block are broken: {why}"));
    let mut unwrapped = Vec::new();
    let packed = if form.lerc_in == 0 {
        packed
    } else {
        let most = RasterLimits::packed_len_max(form.compression, form.row_len() * u64::from(rows_full));
        unwrapped.resize(usize::try_from(most).unwrap_or(0), 0);
        let got = if form.lerc_in == 1 {
            inflate(packed, &mut unwrapped).map_err(|_| broken("the deflate around them"))?
        } else {
            unzstd(packed, &mut unwrapped).map_err(|_| broken("the zstd around them"))?
        };
        unwrapped.get(..got).unwrap_or_default()
    };
    let field = |at: usize| {
        let bytes: [u8; 4] = packed.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    if !packed.starts_with(b"Lerc2 ") {
        return Err(RasterError::unsupported("only version 2 of LERC is read"));
    }
    let at = if field(6).unwrap_or(0) >= 3 { 14 } else { 10 };
    let (Some(height), Some(width)) = (field(at), field(at + 4)) else { return Err(broken("cut off")) };
    if width != form.width || !(rows..=rows_full).contains(&height) {
        return Err(broken(&format!(
            "they claim {width} x {height} pixels, and the block has {} x {rows}",
            form.width
        )));
    }
    let info = lerc_reader::inspect_first(packed).map_err(|error| broken(&error.to_string()))?;
    let alpha_from_mask = info.depth + 1 == form.together;
    if info.depth != form.together && !alpha_from_mask {
        return Err(broken(&format!("they claim {} bands, and the block has {}", info.depth, form.together)));
    }
    let decoded = lerc_reader::decode_first(packed).map_err(|error| broken(&error.to_string()))?;
    let made = lerc_values(decoded.pixels);
    if made.sample() != form.sample {
        return Err(broken(&format!("they are {}, and the file claims {}", made.sample(), form.sample)));
    }
    let (depth, pixels) = (info.depth as usize, form.width as usize * rows as usize);
    let (size, together) = (form.sample.size(), form.together as usize);
    let mut data = SampleData::zeros(form.sample, pixels * together);
    let (from, to) = (made.bytes(), data.bytes_mut());
    if from.len() < pixels * depth * size {
        return Err(broken("fewer pixels than claimed"));
    }
    for (to, from) in to.chunks_exact_mut(together * size).zip(from.chunks_exact(depth * size)) {
        to[..depth * size].copy_from_slice(from);
    }
    let valid =
        |at: usize| decoded.mask.as_ref().is_none_or(|mask| mask.get(at).is_some_and(|byte| *byte != 0));
    let spread = |at: usize| if alpha_from_mask { at % together < depth } else { true };
    match &mut data {
        SampleData::F32(values) => values.iter_mut().enumerate().for_each(|(at, value)| {
            if !valid(at / together) && spread(at) {
                *value = f32::NAN;
            }
        }),
        SampleData::F64(values) => values.iter_mut().enumerate().for_each(|(at, value)| {
            if !valid(at / together) && spread(at) {
                *value = f64::NAN;
            }
        }),
        SampleData::U8(values) if alpha_from_mask => {
            for (at, pixel) in values.chunks_exact_mut(together).enumerate() {
                pixel[depth] = if valid(at) { 255 } else { 0 };
            }
        }
        _ if alpha_from_mask => return Err(broken("a band is missing")),
        _ => {}
    }
    Ok(data)
}

fn lerc_values(pixels: lerc_core::PixelData) -> SampleData {
    use lerc_core::PixelData;
    match pixels {
        PixelData::I8(values) => SampleData::I8(values),
        PixelData::U8(values) => SampleData::U8(values),
        PixelData::I16(values) => SampleData::I16(values),
        PixelData::U16(values) => SampleData::U16(values),
        PixelData::I32(values) => SampleData::I32(values),
        PixelData::U32(values) => SampleData::U32(values),
        PixelData::F32(values) => SampleData::F32(values),
        PixelData::F64(values) => SampleData::F64(values),
    }
}
