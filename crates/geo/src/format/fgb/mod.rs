//! FlatGeobuf 3: a header, a packed index, and features in the order of the index.
//!
//! Why our own writer: the crate's spends half of its time seeking in its temporary file. We keep
//! features in the order they come in an unnamed file, sort only their boxes, and copy the features
//! out in that order. The index stands before the features but is known only when they are
//! written; its size is known before, so that both are written side by side.
//!
//! Why our own reader: the crate (`flatgeobuf` 6.0) gives a geometry as events of `geozero`, of which
//! well-known binary would be built again; it brings six crates (`flatbuffers`, `geozero`, `geo-types` and
//! theirs) in place of 600 lines that copy the coordinates and check each distance before it is followed.
//!
//! The records are FlatBuffers. A builder of a page (`flat`) writes them forwards, which suits
//! a stream; parents come before their children and are given the places of the children when
//! those are known.

mod flat;
mod geometry;
mod read;
mod table;
mod write;

pub use read::FlatGeobufReader;
pub use write::FlatGeobufWriter;
