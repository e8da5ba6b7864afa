//! WebP.

use std::io::Cursor;

use super::fits;
use crate::codec::BlockForm;
use crate::error::RasterError;
use crate::sample::SampleData;

pub(super) fn unpack(
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
