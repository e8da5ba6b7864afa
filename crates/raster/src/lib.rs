#![doc = include_str!("../README.md")]
//!
//! The flow, in the words of the code:
//!
//! [`ByteSource`] → [`GeoTiff`] ([`RasterHead`]) → [`Samples`] of a [`PixelWindow`] → [`CogWriter`] → file
//!
//! A crate of its own, so that those who move vectors do not pay for its codecs.
#![forbid(unsafe_code)]

mod calc;
mod clip;
mod codec;
mod convert;
mod error;
mod geotiff;
mod grid;
mod head;
mod limits;
mod mosaic;
mod paint;
mod rasterize;
pub mod repair;
mod sample;
mod source;
#[cfg(test)]
mod testing;
mod thumbnail;
mod validate;
mod warp;
mod write;

pub use calc::{Calc, CalcBand};
pub use clip::{ClipExtent, ClipShapes, RasterClip};
pub use convert::to_cog;
pub use error::{RasterCause, RasterError};
pub use geotiff::GeoTiff;
pub use grid::{Affine, PixelWindow, RasterGrid};
pub use head::{
    BandInfo, BlockLayout, Compression, MaskKind, NoData, PlacedBy, Predictor, RasterHead, RasterLevel,
};
pub use limits::RasterLimits;
pub use mosaic::{Mosaic, MosaicOptions, Priority};
pub use paint::{Painted, Painter, paint_file, paint_tiles};
pub use rasterize::{Rasterize, RasterizeOptions};
pub use sample::{Pixel, SampleData, SampleType, Samples};
pub use source::{ByteSource, FileBytes, MemoryBytes, SidecarName, merge};
pub use thumbnail::{Thumbnail, outline, thumbnail};
pub use validate::{Validation, validate};
pub use warp::{GridRequest, KernelScale, Resampling, TOLERANCE, Warp, WarpOptions, system_of};
pub use write::{CogOptions, CogSummary, CogWriter, OverviewMethod, RasterSpec};
