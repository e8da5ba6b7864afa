//! What is known of an object, and what is asked of it.

use std::ops::Range;
use tidegate_core::Wall;

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its key, as it was put.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// The time of the last write.
    pub modified: Wall,
    /// Its ETag, which identifies the content.
    pub etag: Option<String>,
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetRange {
    /// These bytes; those beyond the end do not count.
    Bounded(Range<u64>),
    /// All from this byte on.
    Offset(u64),
    /// The last bytes.
    Suffix(u64),
}

/// How far a store has confirmed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The size is right. The store gives no checksum that can be compared.
    Size,
    /// Size and checksum are right.
    Checksum,
}
