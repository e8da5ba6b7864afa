//! What a repair may cost.
//!
//! A ring of n edges may cross itself n²/2 times: the star of ten thousand corners fifty million times, and its
//! repair has as many faces. No machine should end for one record, so that pieces and comparisons are
//! counted and a repair that has too many is given up. The limits leave room for what people draw: a drawing of a million
//! edges that cross each other a million times, and ten seconds to compare them.

/// Edges of a drawing once they are cut; each takes some 300 bytes.
const PIECES_MAX: usize = 4_000_000;

/// Pairs of edges that are compared in all rounds together.
const PAIRS_MAX: u64 = 400_000_000;

/// Faces times rings, of which the method by structure keeps a list.
const COVERS_MAX: usize = 1_000_000_000;

/// A repair would cost more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooCostly;

/// What the repair of one geometry has cost so far.
#[derive(Debug, Default)]
pub(super) struct Effort {
    pairs: u64,
}

impl Effort {
    /// A pair has been compared, and there will be at least so many pieces.
    #[inline]
    pub(super) fn saw_pair(&mut self, pieces: usize) -> Result<(), TooCostly> {
        self.pairs += 1;
        if self.pairs > PAIRS_MAX || pieces > PIECES_MAX { Err(TooCostly) } else { Ok(()) }
    }

    /// The covers of so many rings over so many faces.
    pub(super) fn covers(&self, rings: usize, faces: usize) -> Result<(), TooCostly> {
        if rings.saturating_mul(faces) > COVERS_MAX { Err(TooCostly) } else { Ok(()) }
    }
}
