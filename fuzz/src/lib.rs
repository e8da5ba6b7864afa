//! Promises that hold for any input. Each target under `fuzz_targets/` feeds one of
//! [`checks`] or [`manifest`].
pub mod checks;
pub mod manifest;
