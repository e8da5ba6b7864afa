//! The envelope: everything known about a record that was given up.
//!
//! What changes during the life of a letter (state, times, hold, lease) is stored in columns; the
//! rest is written once as JSON without empty fields. The payload is stored beside it as bytes,
//! because it may be sealed and need not be text.

use super::text;
use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_core::letter::{FailureClass, Fingerprint, LetterId, LetterState, fingerprint};

/// A day in milliseconds.
pub const DAY_MS: i64 = 86_400_000;
/// The default retention, in days from the first failure.
pub const RETENTION_DAYS: u32 = 60;
/// The retention that may be configured, in days.
pub const RETENTION_RANGE: std::ops::RangeInclusive<u32> = 30..=90;

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Letter {
    /// Its id; given by the store if it is zero.
    #[serde(with = "text")]
    pub id: LetterId,
    /// The name of the pipeline that gave up.
    pub pipeline: String,
    /// The stage of the pipeline.
    pub stage: String,
    /// The task of the stage, such as `record 7`, or `task KEY` for a task of a queue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// The idempotency key of the request.
    pub idempotency_key: String,
    /// The key of the row in the sink. Never changes.
    pub effect_key: String,
    /// The letters that it descends from.
    pub lineage: Lineage,
    /// The record.
    #[serde(skip)]
    pub payload: Payload,
    /// The media type of the payload, such as `application/geo+json`.
    pub content_type: String,
    /// The versions of the software and data that produced the letter.
    pub versions: Versions,
    /// The source of the record.
    pub source: LetterSource,
    /// The location of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spatial: Option<Spatial>,
    /// The failure for which it was given up.
    pub failure: Failure,
    /// The changes to its payload since.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedied>,
    /// The id of the run that gave up; a letter is counted once per run. Empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// In how many runs the record failed like this while the letter was open. Counted by the store.
    pub times: u64,
    /// Time of the last of these failures, in milliseconds since 1970. Set by the store.
    pub last_seen_ms: i64,
    /// Its state in the life cycle of a letter.
    #[serde(with = "text")]
    pub state: LetterState,
    /// The earliest time of a replay, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<i64>,
    /// The end of its retention, in milliseconds since 1970; 0 for [`RETENTION_DAYS`] from the first
    /// failure.
    pub retain_until_ms: i64,
    /// The reason why it may not be purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The object key of the manifest of the archive that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
}

/// The ancestry of a letter. The time of the first failure is never reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lineage {
    /// The id of the first letter of the ancestry; the letter itself if zero.
    #[serde(with = "text")]
    pub root: LetterId,
    /// The id of the letter whose replay failed.
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub parent: Option<LetterId>,
    /// How many times the record had died before.
    pub generation: u32,
    /// The idempotency key of the first letter.
    pub root_key: String,
    /// Time of the first failure, in milliseconds since 1970; if 0, the time of this failure.
    pub first_failed_ms: i64,
}

/// The record, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The bytes as received.
    pub received: Vec<u8>,
    /// The bytes as they were when the record failed, or as a remedy changed them; `None` if
    /// unchanged.
    pub current: Option<Vec<u8>>,
}

impl Payload {
    /// The bytes that a replay uses.
    #[must_use]
    pub fn current(&self) -> &[u8] {
        self.current.as_deref().unwrap_or(&self.received)
    }
}

/// The versions of the software and data that produced a letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// The hash of the pipeline's manifest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The version of Tidegate.
    pub binary: String,
    /// The version of the table of coordinate reference systems.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crs_data: String,
}

/// The source of the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LetterSource {
    /// The URI of the file, table or service.
    pub uri: String,
    /// The position in it: a row, a record, a byte or an offset.
    pub position: String,
}

/// The location of the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spatial {
    /// The bounding box: west, south, east, north in degrees on WGS 84.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbox: Option<[f64; 4]>,
    /// The bounding box in the units of the record's own coordinate reference system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_bbox: Option<[f64; 4]>,
    /// The coordinate reference system that the record names, or the one assumed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_crs: String,
    /// The coordinate reference system of the sink.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_crs: String,
    /// The axis order of the source: `xy` or `yx`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub axis_order: String,
    /// The geometry type, such as `Polygon`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub geometry_type: String,
    /// The number of vertices.
    pub vertices: u64,
    /// The first defect of the geometry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<Defect>,
}

/// A defect of a geometry and its location.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Defect {
    /// Longitude in degrees.
    pub lon: f64,
    /// Latitude in degrees.
    pub lat: f64,
    /// The violated rule.
    pub reason: String,
}

/// Why a record was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The class of the failure.
    #[serde(with = "text")]
    pub class: FailureClass,
    /// Its code of the taxonomy.
    #[serde(with = "text")]
    pub code: Code,
    /// The error message, secrets redacted.
    pub message: String,
    /// The messages of its causes, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// The service or sink, such as a host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// The name of the service in the manifest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// The driver, such as the name of a profile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The last HTTP exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// The state of the breaker at the time of the failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub breaker: String,
    /// All attempts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<LetterAttempt>,
    /// The trace of the run, if traces are sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// The worker that processed the record: [`super::worker`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Time at which it was given up, in milliseconds since 1970.
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
            service_name: String::new(),
            driver: String::new(),
            http: None,
            breaker: String::new(),
            attempts: Vec::new(),
            trace_id: String::new(),
            worker: String::new(),
            failed_ms: 0,
        }
    }
}

/// An HTTP exchange. Whoever fills it in redacts secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Http {
    /// The HTTP method, such as `GET`.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The last HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The beginning of the last response body, as text.
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
    /// The delay before the attempt, in milliseconds.
    pub delay_ms: u64,
    /// The time until its verdict, in milliseconds.
    pub took_ms: u64,
    /// The wait that the server asked for, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint_ms: Option<u64>,
}

/// A change to the payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remedied {
    /// The rule with its version, such as `make_valid/1`, or `edit`.
    pub rule: String,
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
    /// The user who changed it.
    pub who: String,
    /// A description of the change.
    pub note: String,
    /// SHA-256 of the payload before, in hex.
    pub before: String,
    /// SHA-256 of the payload after, in hex.
    pub after: String,
}

/// Stands before the key of a task of a queue in [`Letter::task`].
const GEOTASK: &str = "task ";

impl Letter {
    /// The text of [`Letter::task`] for a task of a queue.
    #[must_use]
    pub fn geotask_text(key: &str) -> String {
        format!("{GEOTASK}{key}")
    }

    /// The key of the task of a queue that the record belongs to.
    #[must_use]
    pub fn geotask(&self) -> Option<&str> {
        self.task.strip_prefix(GEOTASK)
    }

    /// The fingerprint of the failure, by which letters are grouped.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let f = &self.failure;
        Fingerprint::of(f.code, &self.stage, &f.message, &f.driver)
    }

    /// The message without the parts that differ from record to record.
    #[must_use]
    pub fn normal_message(&self) -> String {
        fingerprint::normalise(&self.failure.message)
    }

    /// Sets the retention in days from the first failure.
    #[must_use]
    pub fn retained_for(mut self, days: u32) -> Letter {
        self.retain_until_ms = self.first_failed_ms() + i64::from(days) * DAY_MS;
        self
    }

    /// Time of the first failure of the record, in milliseconds since 1970.
    #[must_use]
    pub fn first_failed_ms(&self) -> i64 {
        match self.lineage.first_failed_ms {
            0 => self.failure.failed_ms,
            first => first,
        }
    }
}
