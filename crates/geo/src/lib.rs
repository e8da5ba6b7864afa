//! Spatial truth for Tidegate: what a feature is, whether it is right, where it lies, and how it
//! enters and leaves in the formats of this field.
//!
//! Whatever enters is understood as GEOS, PROJ and GDAL would understand it, or refused with a
//! reason and a place. Whatever leaves opens everywhere.
//!
//! The flow, in the words of the code:
//!
//! bytes → reader ([`format`](mod@format)) → [`Batch`] ([`schema`], [`column`](mod@column), [`wkb`]) → [`mapping`] →
//! [`validity`], [`repair`] → [`crs`] → writer ([`format`](mod@format)) → file
//!
//! [`convert`](mod@convert) and [`check`](mod@check) put it together for whole files. `oracle/run`
//! compares all of it with GEOS, PROJ and GDAL.
//!
//! There is one form of a feature, the [`Batch`]: columns of typed properties beside an arena of
//! well-known binary. No step converts it. See the essay of [`batch`] for the reasons.
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
pub mod mapping;
mod number;
pub mod raster;
pub mod repair;
pub mod schema;
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
