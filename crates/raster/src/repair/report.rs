//! What a repair says of itself: what was changed, on what evidence, and what is lost.
//!
//! A program that repairs in silence is a program that corrupts. So every repair carries its list of
//! changed fields, and every refusal its code and its reason.

use std::fmt;
use std::io;

use serde::Serialize;
use tidegate_core::Code;

/// How a repair ended, other than in a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairOutcome {
    /// Nothing is wrong that can be proven; the copy equals the input byte for byte.
    Sound,
    /// All pixels are there.
    Repaired,
    /// Some pixels are lost; the mask of the output says which.
    Partial,
}

impl RepairOutcome {
    /// The word for people and for scripts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RepairOutcome::Sound => "sound",
            RepairOutcome::Repaired => "repaired",
            RepairOutcome::Partial => "partial",
        }
    }
}

/// What proves that the pixels are those that were written, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The blocks are there, and the codec has nothing to check them by.
    None,
    /// Every block has exactly the size that the header explains.
    Size,
    /// Every block passed the checksum of its codec.
    Checksum,
}

impl Proof {
    /// The word for people and for scripts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Proof::None => "none",
            Proof::Size => "size",
            Proof::Checksum => "checksum",
        }
    }
}

/// One field that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The name of the field, such as `StripByteCounts`.
    pub field: String,
    /// What the file says.
    pub from: String,
    /// What the output says.
    pub to: String,
    /// What speaks for it.
    pub evidence: String,
}

impl FieldChange {
    pub(super) fn new(
        field: &str,
        from: impl ToString,
        to: impl ToString,
        evidence: impl ToString,
    ) -> FieldChange {
        FieldChange {
            field: field.to_owned(),
            from: from.to_string(),
            to: to.to_string(),
            evidence: evidence.to_string(),
        }
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {} ({})", self.field, self.from, self.to, self.evidence)
    }
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepairReport {
    /// How it ended.
    pub outcome: RepairOutcome,
    /// What proves the pixels.
    pub proof: Proof,
    /// The fields that were changed.
    pub changes: Vec<FieldChange>,
    /// What looks wrong and cannot be proven; nothing was changed for it.
    pub warnings: Vec<String>,
    /// The blocks of the full picture.
    pub blocks: u64,
    /// The blocks that the file says are not there, and that never were.
    pub blocks_absent: u64,
    /// How many blocks are lost.
    pub blocks_lost_count: u64,
    /// The blocks that are lost, by their number; at most the first thousand.
    pub blocks_lost: Vec<u64>,
    /// How many pixels are lost.
    pub pixels_lost: u64,
    /// How many pixels the picture has.
    pub pixels: u64,
}

impl RepairReport {
    /// The share of pixels that are there, in percent, rounded down so that 100 means all.
    #[must_use]
    pub fn percent_recovered(&self) -> f64 {
        let there = self.pixels.saturating_sub(self.pixels_lost);
        if self.pixels == 0 { 0.0 } else { (there as f64 / self.pixels as f64 * 1000.0).floor() / 10.0 }
    }
}

/// Why there is no output.
#[derive(Debug)]
pub enum RepairError {
    /// The file cannot be repaired.
    Refused(RepairRefusal),
    /// The operating system refused.
    Io(io::Error),
}

/// Why a file cannot be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairRefusal {
    /// The code of the taxonomy.
    pub code: Code,
    /// The reason, in one sentence without a full stop. It quotes nothing of the file.
    pub reason: String,
    /// The beginning of a file that is a document, for whoever named the file.
    pub excerpt: Option<String>,
    /// Whether the file is what a service answered when it had no time: fetch it again.
    pub transient: bool,
}

impl RepairRefusal {
    pub(super) fn new(code: Code, reason: impl Into<String>) -> RepairRefusal {
        RepairRefusal { code, reason: reason.into(), excerpt: None, transient: false }
    }
}

impl From<RepairRefusal> for RepairError {
    fn from(refusal: RepairRefusal) -> RepairError {
        RepairError::Refused(refusal)
    }
}

impl From<io::Error> for RepairError {
    fn from(error: io::Error) -> RepairError {
        RepairError::Io(error)
    }
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::Refused(refusal) => write!(f, "{}: {}", refusal.code, refusal.reason),
            RepairError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RepairError {}

/// A refusal because of a broken header.
pub(super) fn broken(reason: impl Into<String>) -> RepairError {
    RepairRefusal::new(Code::CORRUPTED_HEADER, reason).into()
}

/// A refusal because of a limit.
pub(super) fn too_large(reason: impl Into<String>) -> RepairError {
    RepairRefusal::new(Code::PAYLOAD_TOO_LARGE, reason).into()
}
