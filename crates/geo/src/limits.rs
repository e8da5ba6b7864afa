//! What one record may cost: the one place for bounds of work, bytes and rows.
//!
//! A polygon of two thousand corners can cross itself half a million times, and a view of a database can have
//! rows without end. No machine should stand still for one record. So everything that may grow faster than
//! its input is counted, in steps and never by a clock: the same record is refused on every machine, or on
//! none. What is past a bound is a problem of its record, which says the bound and what was needed.

use std::fmt;

/// The bounds of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// The largest record of a file, in bytes.
    pub record_bytes_max: usize,
    /// Steps of geometric work on one record, beyond [`STEPS_PER_EDGE`] for each of its edges: a step is a
    /// comparison of two edges; an edge that is made takes [`STEPS_PER_PIECE`].
    pub work_steps_max: u64,
    /// Instructions of SQLite's virtual machine between two rows.
    pub query_steps_max: u64,
    /// Rows of a view, if its file has fewer bytes: more cannot be in the file.
    pub view_rows_max: u64,
    /// Bytes of the values of a view, if its file has fewer.
    pub view_bytes_max: u64,
}

impl Default for RecordLimits {
    fn default() -> RecordLimits {
        RecordLimits {
            record_bytes_max: 64 << 20,
            work_steps_max: 25_000_000,
            query_steps_max: 20_000_000,
            view_rows_max: 100_000,
            view_bytes_max: 256 << 20,
        }
    }
}

/// The steps that each edge of a record is good for: what is linear always passes.
pub const STEPS_PER_EDGE: u64 = 100;
/// The steps of an edge that is made, which is sorted, walked along and checked, and takes some 300 bytes.
pub const STEPS_PER_PIECE: u64 = 40;

/// A bound of work that a record met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkBound {
    /// The bound, without what the edges are good for.
    pub steps_max: u64,
    /// The edges of the record.
    pub edges: u64,
    /// The crossings that were found until then.
    pub crossings: u64,
}

impl fmt::Display for WorkBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkBound { steps_max, edges, crossings } = self;
        let all = steps_max.saturating_add(edges.saturating_mul(STEPS_PER_EDGE));
        write!(f, "Too much work: more than {all} steps are needed for {edges} edges")?;
        if *crossings > 0 {
            write!(f, " with {crossings} crossings or more")?;
        }
        write!(f, ", and `limits.work_steps` is {steps_max} beside {STEPS_PER_EDGE} for each edge")
    }
}

/// The work on one record so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkMeter {
    steps: u64,
    bound: WorkBound,
}

impl Default for WorkMeter {
    fn default() -> WorkMeter {
        WorkMeter::within(&RecordLimits::default())
    }
}

impl WorkMeter {
    pub(crate) fn within(limits: &RecordLimits) -> WorkMeter {
        let bound = WorkBound { steps_max: limits.work_steps_max, edges: 0, crossings: 0 };
        WorkMeter { steps: 0, bound }
    }

    /// The work on a record of so many edges begins.
    pub(crate) fn begin(&mut self, edges: usize) {
        (self.steps, self.bound.edges, self.bound.crossings) = (0, edges as u64, 0);
    }

    /// So many more steps.
    #[inline]
    pub(crate) fn take(&mut self, steps: usize) -> Result<(), WorkBound> {
        self.steps = self.steps.saturating_add(steps as u64);
        let WorkBound { steps_max, edges, .. } = self.bound;
        if self.steps > steps_max
            && self.steps > steps_max.saturating_add(edges.saturating_mul(STEPS_PER_EDGE))
        {
            return Err(self.bound);
        }
        Ok(())
    }

    /// So many edges are made.
    #[inline]
    pub(crate) fn made(&mut self, pieces: usize) -> Result<(), WorkBound> {
        self.take(pieces.saturating_mul(STEPS_PER_PIECE as usize))
    }

    /// Two edges cross: each is cut in two.
    #[inline]
    pub(crate) fn crossed(&mut self) -> Result<(), WorkBound> {
        self.bound.crossings += 1;
        self.made(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linear_passes_and_a_bound_says_what_was_needed() {
        let mut work = WorkMeter::within(&RecordLimits { work_steps_max: 1000, ..RecordLimits::default() });
        work.begin(7);
        assert_eq!(work.take(1700), Ok(()));
        let bound = WorkBound { steps_max: 1000, edges: 7, crossings: 0 };
        assert_eq!(work.take(1), Err(bound));
        assert_eq!(
            bound.to_string(),
            "Too much work: more than 1700 steps are needed for 7 edges, and `limits.work_steps` is 1000 beside 100 for each edge"
        );
        work.begin(0);
        assert_eq!((work.take(usize::MAX).is_err(), work.crossed().unwrap_err().crossings), (true, 1));
    }
}
