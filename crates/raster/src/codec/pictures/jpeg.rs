//! JPEG.

use std::io::Cursor;

use jpeg_decoder::{ColorTransform, Decoder};

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
