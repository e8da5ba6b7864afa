//! Blocks that are pictures of their own: JPEG, WebP and LERC, each by a feature of this crate. Their
//! headers are believed only when they fit the block, before anything is decoded.

#[cfg(feature = "jpeg")]
mod jpeg;
#[cfg(feature = "lerc")]
mod lerc;
#[cfg(feature = "webp")]
mod webp;

use tidegate_core::part::{MissingPart, OptionalPart};
use tidegate_geo::guard::guarded;

use super::BlockForm;
use crate::error::RasterError;
use crate::head::Compression;
use crate::sample::SampleData;
#[cfg(any(feature = "jpeg", feature = "webp"))]
use crate::sample::SampleType;

type Unpack = fn(&[u8], &BlockForm, u32, u32) -> Result<SampleData, RasterError>;

/// The kind of the pictures that are packed in this way; nothing if they are not pictures.
pub(crate) fn kind_of(compression: Compression) -> Option<OptionalPart> {
    match compression {
        Compression::Jpeg => Some(OptionalPart::Jpeg),
        Compression::Lerc => Some(OptionalPart::Lerc),
        Compression::WebP => Some(OptionalPart::WebP),
        _ => None,
    }
}

/// The decoder of a kind, if this build has it.
fn decoder(kind: OptionalPart) -> Option<Unpack> {
    match kind {
        #[cfg(feature = "jpeg")]
        OptionalPart::Jpeg => Some(jpeg::unpack),
        #[cfg(feature = "lerc")]
        OptionalPart::Lerc => Some(lerc::unpack),
        #[cfg(feature = "webp")]
        OptionalPart::WebP => Some(webp::unpack),
        _ => None,
    }
}

/// Unpacks a picture. A decoder that panics on damaged bytes is an error of the block.
pub(super) fn unpack(
    kind: OptionalPart,
    packed: &[u8],
    form: &BlockForm,
    rows: u32,
    rows_full: u32,
) -> Result<SampleData, RasterError> {
    let Some(unpack) = decoder(kind) else {
        return Err(RasterError::unsupported(MissingPart(kind).to_string()));
    };
    let broken =
        || RasterError::block(format!("the {} of the block is broken: its decoder failed", kind.name()));
    guarded(|| unpack(packed, form, rows, rows_full)).unwrap_or_else(|| Err(broken()))
}

#[cfg(any(feature = "jpeg", feature = "webp"))]
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
