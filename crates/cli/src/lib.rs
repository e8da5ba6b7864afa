//! The parts of the `tidegate` command that tests, benches and other programs may also start.
#![forbid(unsafe_code)]

pub mod chaos;
