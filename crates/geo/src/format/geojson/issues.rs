//! The problems of one record, each with its path.
//!
//! While parsing, the path is a stack of steps, which costs one store per position. It becomes text only if
//! there is a problem.

use std::fmt::Write;

use tidegate_core::Code;

use crate::error::Problem;

/// A step down into a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathStep {
    Name(&'static str),
    Index(usize),
}

/// Most problems reported for one record.
const PER_RECORD_MAX: usize = 100;

/// The position of the parser, and the problems so far.
#[derive(Debug, Default)]
pub(super) struct Issues {
    pub(super) found: Vec<Problem>,
    steps: Vec<PathStep>,
    root: String,
    record: u64,
    /// The place in the source of the first byte of the scanned text.
    base: u64,
}

impl Issues {
    /// A new record begins: its path from the document's root, and where the scanned text begins.
    pub(super) fn begin(&mut self, record: u64, in_collection: Option<u64>, base: u64) {
        self.found.clear();
        self.steps.clear();
        self.root.clear();
        self.root.push('$');
        if let Some(at) = in_collection {
            let _ = write!(self.root, ".features[{at}]");
        }
        (self.record, self.base) = (record, base);
    }

    pub(super) fn push(&mut self, step: PathStep) {
        self.steps.push(step);
    }

    pub(super) fn pop(&mut self) {
        self.steps.pop();
    }

    #[inline]
    pub(super) fn set_index(&mut self, index: usize) {
        if let Some(last) = self.steps.last_mut() {
            *last = PathStep::Index(index);
        }
    }

    pub(super) fn path(&self) -> String {
        let mut path = self.root.clone();
        for step in &self.steps {
            let _ = match step {
                PathStep::Name(name) => write!(path, ".{name}"),
                PathStep::Index(index) => write!(path, "[{index}]"),
            };
        }
        path
    }

    pub(super) fn add(&mut self, code: Code, at: usize, message: impl Into<String>) {
        self.add_under(code, at, message, "");
    }

    pub(super) fn add_under(&mut self, code: Code, at: usize, message: impl Into<String>, member: &str) {
        if self.found.len() >= PER_RECORD_MAX {
            return;
        }
        let mut path = self.path();
        if !member.is_empty() {
            let _ = write!(path, ".{member}");
        }
        let place = self.base.saturating_add(at as u64);
        self.found.push(Problem::new(code, message).of_record(self.record).at(place).under(path));
    }
}
