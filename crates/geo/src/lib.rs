#![doc = include_str!("../README.md")]
//!
//! The flow, in the words of the code:
//!
//! bytes → reader ([`format`](mod@format)) → [`Batch`] ([`schema`], [`column`](mod@column), [`wkb`]) → [`mapping`] →
//! [`validity`], [`repair`] → [`crs`] → writer ([`format`](mod@format)) → file
//!
//! [`convert`](mod@convert) and [`check`](mod@check) do this for whole files.
//!
//! There is one form of a feature, the [`Batch`]: columns of typed properties beside an arena of
//! well-known binary. No step converts it. The module [`batch`] gives the reasons.
#![forbid(unsafe_code)]

pub mod batch;
pub mod bounds;
pub mod check;
pub mod column;
pub mod convert;
pub mod crs;
pub mod densify;
pub mod error;
pub mod filter;
pub mod format;
pub mod guard;
pub mod limits;
pub mod mapping;
mod number;
pub mod raster;
pub mod repair;
pub mod schema;
pub mod tile;
pub mod validity;
pub mod wkb;
pub mod wkt;
pub mod xml;

pub use batch::Batch;
pub use bounds::Bounds;
pub use column::Value;
pub use crs::Crs;
pub use error::{Error, Problem};
pub use schema::{Field, Kind, Schema};
