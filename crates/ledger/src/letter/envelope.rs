//! The envelope: everything that is known about a record that was given up.
//!
//! What changes during a letter's life (state, times, hold, lease) lies in columns of the store;
//! the rest is written once as JSON, without what is empty. The payload lies beside it as bytes,
//! because it may be sealed and because it may be anything.

use super::text;
use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_core::letter::{FailureClass, Fingerprint, LetterId, LetterState, fingerprint};

/// A day in milliseconds.
pub const DAY_MS: i64 = 86_400_000;
/// How long letters are kept, in days from the first failure, unless told otherwise.
pub const RETENTION_DAYS: u32 = 60;
/// Between which bounds that may be set.
pub const RETENTION_RANGE: std::ops::RangeInclusive<u32> = 30..=90;

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Letter {
    /// Its name, given by the store if it is zero.
    #[serde(with = "text")]
    pub id: LetterId,
    /// Which pipeline gave up,
    pub pipeline: String,
    /// at which stage of it,
    pub stage: String,
    /// on which task.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// How services and ledgers know the request again.
    pub idempotency_key: String,
    /// Which row of the sink it is about. Never changes.
    pub effect_key: String,
    /// Where it comes from.
    pub lineage: Lineage,
    /// What the record is.
    #[serde(skip)]
    pub payload: Payload,
    /// The media type of the payload, such as `application/geo+json`.
    pub content_type: String,
    /// By what it was made.
    pub versions: Versions,
    /// The source of the record.
    pub source: LetterSource,
    /// Where on earth it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spatial: Option<Spatial>,
    /// Why it was given up.
    pub failure: Failure,
    /// What was done to its payload since.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedied>,
    /// Where it is in its life.
    #[serde(with = "text")]
    pub state: LetterState,
    /// Not to be replayed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<i64>,
    /// Kept until; 0 for [`RETENTION_DAYS`] from the first failure.
    pub retain_until_ms: i64,
    /// Why it may not be purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Which archive holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
}

/// Where a letter comes from. The first failure's time is never reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lineage {
    /// The first letter of the line: the letter itself if zero.
    #[serde(with = "text")]
    pub root: LetterId,
    /// The letter whose replay died.
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub parent: Option<LetterId>,
    /// How often the record has died before.
    pub generation: u32,
    /// The key of the first letter.
    pub root_key: String,
    /// When it first failed; the failure's own time if 0.
    pub first_failed_ms: i64,
}

/// The record, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// As it was received.
    pub received: Vec<u8>,
    /// As it was when it failed, or as a remedy made it; `None` if that is the same.
    pub current: Option<Vec<u8>>,
}

impl Payload {
    /// What a replay would use.
    #[must_use]
    pub fn current(&self) -> &[u8] {
        self.current.as_deref().unwrap_or(&self.received)
    }
}

/// By what a letter was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// The pipeline's manifest, by hash.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// Tidegate.
    pub binary: String,
    /// The table of coordinate systems.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crs_data: String,
}

/// The source of the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LetterSource {
    /// The file, table or service.
    pub uri: String,
    /// The position in it: a row, a record, a byte or an offset.
    pub position: String,
}

/// Where on earth the record is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spatial {
    /// West, south, east, north in degrees on WGS 84.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbox: Option<[f64; 4]>,
    /// The same in the record's own system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_bbox: Option<[f64; 4]>,
    /// The system that the record says, or that was assumed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_crs: String,
    /// The system of the sink.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_crs: String,
    /// `xy` or `yx`, as the source writes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub axis_order: String,
    /// Such as `Polygon`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub geometry_type: String,
    /// Its positions.
    pub vertices: u64,
    /// What is wrong, and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<Defect>,
}

/// What is wrong with a geometry, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Defect {
    /// Degrees east.
    pub lon: f64,
    /// Degrees north.
    pub lat: f64,
    /// In words.
    pub reason: String,
}

/// Why a record was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// What kind of failure.
    #[serde(with = "text")]
    pub class: FailureClass,
    /// Its code of the taxonomy.
    #[serde(with = "text")]
    pub code: Code,
    /// In words, secrets redacted.
    pub message: String,
    /// What caused it, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Which service or sink, such as a host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// By which driver, such as a profile's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// What was asked and answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// The breaker at that time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub breaker: String,
    /// Every attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<LetterAttempt>,
    /// Who worked on it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// When it was given up, in milliseconds since 1970.
    pub failed_ms: i64,
}

impl Default for Failure {
    fn default() -> Failure {
        Failure {
            class: FailureClass::Fatal,
            code: Code::UNKNOWN,
            message: String::new(),
            causes: Vec::new(),
            service: String::new(),
            driver: String::new(),
            http: None,
            breaker: String::new(),
            attempts: Vec::new(),
            worker: String::new(),
            failed_ms: 0,
        }
    }
}

/// An HTTP exchange, secrets redacted by whoever fills it in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Http {
    /// Such as `GET`.
    pub method: String,
    /// What was asked.
    pub url: String,
    /// The last status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The beginning of the last body.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// One attempt of the call that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LetterAttempt {
    /// Time of sending, in milliseconds since 1970.
    pub at_ms: i64,
    /// The code of the verdict.
    pub verdict: String,
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The delay before it, in milliseconds.
    pub delay_ms: u64,
}

/// A change to the payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remedied {
    /// The rule with its version, such as `make_valid/1`, or `edit`.
    pub rule: String,
    /// When.
    pub at_ms: i64,
    /// Who.
    pub who: String,
    /// What it did, in words.
    pub note: String,
    /// SHA-256 of the payload before and after, in hex.
    pub before: String,
    /// After.
    pub after: String,
}

impl Letter {
    /// The letter's group.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let f = &self.failure;
        Fingerprint::of(f.code, &self.stage, &f.message, &f.driver)
    }

    /// The message without what differs from record to record.
    #[must_use]
    pub fn normal_message(&self) -> String {
        fingerprint::normalise(&self.failure.message)
    }

    /// Keeps the letter for so many days from the first failure.
    #[must_use]
    pub fn retained_for(mut self, days: u32) -> Letter {
        self.retain_until_ms = self.first_failed_ms() + i64::from(days) * DAY_MS;
        self
    }

    /// When the line first failed.
    #[must_use]
    pub fn first_failed_ms(&self) -> i64 {
        match self.lineage.first_failed_ms {
            0 => self.failure.failed_ms,
            first => first,
        }
    }
}
