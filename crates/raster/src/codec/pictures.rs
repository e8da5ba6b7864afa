//! Blocks that are pictures of their own: JPEG and WebP. Their headers are believed only when they
//! fit the block, before anything is decoded.

use std::io::Cursor;

use jpeg_decoder::{ColorTransform, Decoder};

use super::BlockForm;
use crate::error::RasterError;
use crate::sample::{SampleData, SampleType};

fn fits(
    kind: &str,
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
    size: (u32, u32),
) -> Result<(), RasterError> {
    if form.sample != SampleType::U8 || form.bits != 8 {
        return Err(RasterError::unsupported(format!("{kind} of {} bits is not read", form.bits)));
    }
    if size.0 != form.width || !(rows..=rows_full.max(rows)).contains(&size.1) {
        return Err(RasterError::block(format!(
            "the {kind} of the block has {} x {} pixels, and the block {} x {rows}",
            size.0, size.1, form.width
        )));
    }
    Ok(())
}

pub(super) fn jpeg(
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
) -> Result<SampleData, RasterError> {
    let broken = |error: jpeg_decoder::Error| match error {
        jpeg_decoder::Error::Unsupported(_) => {
            RasterError::unsupported(format!("the JPEG of the block: {error}"))
        }
        _ => RasterError::block(format!("the JPEG of the block is broken: {error}")),
    };
    // The tables that all blocks share come first, without their end; then the block without its start.
    let mut whole = Vec::new();
    let packed = match &form.jpeg_tables {
        Some(tables) if tables.len() > 4 && packed.starts_with(&[0xff, 0xd8]) => {
            let end = tables.len() - if tables.ends_with(&[0xff, 0xd9]) { 2 } else { 0 };
            whole.extend_from_slice(&tables[..end]);
            whole.extend_from_slice(&packed[2..]);
            &whole[..]
        }
        _ => packed,
    };
    let mut decoder = Decoder::new(Cursor::new(packed));
    decoder.read_info().map_err(broken)?;
    let info = decoder.info().ok_or_else(|| RasterError::block("the JPEG of the block has no head"))?;
    fits("JPEG", form, rows, rows_full, (info.width.into(), info.height.into()))?;
    let values = info.pixel_format.pixel_bytes();
    if values != form.together as usize {
        return Err(RasterError::unsupported(format!(
            "the JPEG of a block has {values} bands, and its picture {}",
            form.together
        )));
    }
    // No transform at all panics in jpeg-decoder 0.3.2 where rows are padded; that of RGB copies as well.
    decoder.set_color_transform(match (form.photometric, values) {
        (6, 3) => ColorTransform::YCbCr,
        (_, 1) => ColorTransform::Grayscale,
        (_, 3) => ColorTransform::RGB,
        _ => return Err(RasterError::unsupported(format!("JPEG of {values} bands is not read"))),
    });
    decoder.set_max_decoding_buffer_size(values * form.width as usize * rows_full.max(rows) as usize);
    let mut out = decoder.decode().map_err(broken)?;
    let wanted = values * form.width as usize * rows as usize;
    if out.len() < wanted {
        return Err(RasterError::block("the JPEG of the block has fewer pixels than it claims"));
    }
    out.truncate(wanted);
    Ok(SampleData::U8(out))
}

pub(super) fn webp(
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
) -> Result<SampleData, RasterError> {
    let broken = |error: image_webp::DecodingError| {
        RasterError::block(format!("the WebP of the block is broken: {error}"))
    };
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(packed)).map_err(broken)?;
    let (width, height) = decoder.dimensions();
    fits("WebP", form, rows, rows_full, (width, height))?;
    let (has, wanted) = (if decoder.has_alpha() { 4 } else { 3 }, form.together as usize);
    if !(3..=4).contains(&wanted) {
        return Err(RasterError::unsupported(format!("WebP of {wanted} bands is not read")));
    }
    let pixels = width as usize * height as usize;
    decoder.set_memory_limit(pixels * 64);
    let mut bytes = vec![0; pixels * has];
    decoder.read_image(&mut bytes).map_err(broken)?;
    if has != wanted {
        let opaque = [0, 0, 0, 255];
        bytes = bytes
            .chunks_exact(has)
            .flat_map(|pixel| {
                let mut made = opaque;
                made[..has].copy_from_slice(pixel);
                made.into_iter().take(wanted)
            })
            .collect();
    }
    bytes.truncate(form.width as usize * rows as usize * wanted);
    Ok(SampleData::U8(bytes))
}
