//! Comma-separated values, RFC 4180 with line feeds.

mod read;
mod write;

pub use read::Reader;
pub use write::{Geometry, Writer};
