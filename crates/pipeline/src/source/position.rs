//! Where a source stands: small, serialisable, and enough to go on from.

use super::identifiers::Carried;
use crate::error::SetupError;
use serde::{Deserialize, Serialize};

/// What is asked for next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NextPage {
    /// Features from this one on, counted in the order of the service.
    Offset {
        /// The first, from 0.
        start: u64,
        /// Whether the first is one that is known.
        overlap: bool,
    },
    /// Features whose key is from here up to there, not included.
    Keys {
        /// The lowest; the smallest number is no bound.
        from: i64,
        /// The end; none is no bound.
        to: Option<i64>,
    },
    /// What a link of the page before points to.
    Link {
        /// Its address.
        url: String,
        /// The body to post there; none asks with GET.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    },
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureTally {
    /// Features that the service declared at the start; `None` if it does not say.
    pub declared: Option<u64>,
    /// Features that it declared last.
    pub latest: Option<u64>,
    /// Different features received.
    pub received: u64,
    /// Of those, received in the pass that is under way or was the last.
    pub in_pass: u64,
    /// Features that came again and were left out.
    pub repeated: u64,
    /// Pages received.
    pub pages: u64,
    /// How often the layer was read from its start.
    pub passes: u32,
    /// How often the place was lost and found again further up.
    pub steps_back: u64,
    /// Whether the layer showed that it changes.
    pub moved: bool,
}

/// Where a source stands after a chunk. It belongs to the job that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub(super) version: u32,
    pub(super) job: String,
    /// Nothing when all pages were read.
    pub(super) next: Option<NextPage>,
    /// What was counted up to here.
    pub tally: FeatureTally,
    pub(super) seen: Option<Carried>,
    /// What passes before this one brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Carried>,
    /// Marks stand for some of what was seen, and are not in here.
    #[serde(default)]
    pub(super) marked: bool,
    /// The last feature, with which the next page begins.
    #[serde(default)]
    pub(super) last: Option<String>,
    /// The field that holds the identifiers of features; empty if none is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id_field: Option<String>,
    /// The reference system of the pages so far, as they name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crs: Option<String>,
}

/// The form of a position.
pub(super) const VERSION: u32 = 1;

impl Position {
    /// As text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From its text.
    ///
    /// # Errors
    /// It is none of this version.
    pub fn from_json(text: &str) -> Result<Position, SetupError> {
        let position: Position =
            serde_json::from_str(text).map_err(|e| format!("cannot read the saved position: {e}"))?;
        if position.version != VERSION {
            return Err(
                format!("the saved position has version {}, expected {VERSION}", position.version).into()
            );
        }
        Ok(position)
    }

    /// Whether the identifiers received so far are in it. If not, whoever resumes names them with
    /// [`super::Pager::remember`], or their marks with [`super::Pager::remember_mark`].
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.seen.is_some() && !self.marked
    }

    /// Whether all pages were read.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.next.is_none()
    }
}
