//! Promises that hold for any input. Each target under `fuzz_targets/` feeds one of
//! [`checks`], [`geo`] or [`manifest`].
pub mod checks;
pub mod geo;
pub mod manifest;
pub mod raster;
