//! LERC.

use crate::codec::BlockForm;
use crate::codec::unpack::{inflate, unzstd};
use crate::error::RasterError;
use crate::limits::RasterLimits;
use crate::sample::SampleData;

/// LERC, whose own header is believed only when it fits.
pub(super) fn unpack(
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
) -> Result<SampleData, RasterError> {
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
    let made = values(decoded.pixels);
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

fn values(pixels: lerc_core::PixelData) -> SampleData {
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
