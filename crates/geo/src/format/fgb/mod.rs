//! FlatGeobuf 3: a header, a packed index, and features in the order of the index.
//!
//! Why our own writer: the crate's spends half of its time seeking in its temporary file. We append
//! features to an unnamed file, sort only their bounding boxes, and copy the features in that order. The
//! index comes before the features but is known only after them; its size is known, so both are written
//! at the same time.
//!
//! Why our own reader: the crate (`flatgeobuf` 6.0) emits a geometry as events of `geozero`, from which
//! well-known binary would have to be built again. It brings six crates (`flatbuffers`, `geozero`,
//! `geo-types` and theirs) in place of 600 lines that copy the coordinates and check each offset.
//!
//! The records are FlatBuffers. A short builder (`flat`) writes them forwards, which suits a stream:
//! parents come before their children, and their offsets are filled in later.

mod flat;
mod geometry;
mod read;
mod table;
#[cfg(test)]
mod verify;
mod write;

pub use read::FlatGeobufReader;
pub use write::FlatGeobufWriter;
