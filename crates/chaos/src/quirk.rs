//! Habits of real servers, each found by the suite in `tools/real` and kept here, so that it stays
//! found without the server. They are no faults: the server means it, every time.

/// One habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Quirk {
    /// WFS: a row without geometry stands on the first page, counts for `startIndex` and `count` and
    /// is not sent; a page that is short for it says that it is the last, with a total of its own
    /// (MapServer).
    HiddenRow,
    /// WFS 1.1: `hits` is never more than a page holds (MapServer).
    CappedHits,
    /// WFS: every page begins at the first feature, whatever `startIndex` says.
    IgnoredStart,
    /// OGC API and STAC: a `limit` above the largest page is refused with 422 (tipg).
    RefusedLimit,
}
