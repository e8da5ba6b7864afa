//! A letter from one's own code: [`LetterDraft`].
//!
//! A program that is no pipeline gives up a record too. It states what it knows, and gets a letter
//! that can be listed, drawn, repaired and archived as those of a run.

use super::envelope::{Failure, Letter, LetterSource, Payload, RETENTION_DAYS, Versions};
use super::feature::{FeaturePayload, PayloadError};
use super::now_ms;
use super::record_key::RecordKeys;
use super::worker;
use tidegate_core::Code;
use tidegate_core::key::{KeyValue, key};
use tidegate_core::letter::FailureClass;
use tidegate_geo::Crs;

/// The stage of letters from one's own code. If the pipeline has a manifest, their replay starts at
/// its first step.
pub const PUT_STAGE: &str = "put";

/// What a program knows about a record that it gave up.
///
/// ```
/// use tidegate_core::Code;
/// use tidegate_ledger::letter::{LetterDraft, Letters, Put};
///
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("letters.db").display().to_string();
/// let draft = LetterDraft {
///     pipeline: "import".into(),
///     key: Some("parcel 17".into()),
///     code: Code::SCHEMA_MISMATCH,
///     message: "the owner is missing".into(),
///     payload: br#"{"parcel": 17}"#.to_vec(),
///     ..LetterDraft::default()
/// };
/// let letters = Letters::open(&file.parse()?)?;
/// assert!(matches!(letters.put(&[draft.letter("monday")?]).wait()?[..], [Put::New(_)]));
/// // The same failure of the same record, in the next run: the open letter counts it.
/// assert_eq!(letters.put(&[draft.letter("tuesday")?]).wait()?, [Put::Known]);
/// # letters.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LetterDraft {
    /// The pipeline, or the program that takes its place.
    pub pipeline: String,
    /// The name of the record, unique in the pipeline; `None` to use its content.
    pub key: Option<String>,
    /// The code of the failure.
    pub code: Code,
    /// The error message, without secrets.
    pub message: String,
    /// The service that refused the record; may be empty.
    pub service: String,
    /// The record: a GeoJSON feature or geometry, or any other JSON.
    pub payload: Vec<u8>,
    /// The coordinate reference system of the feature; `None` for the one that it declares, else
    /// WGS 84.
    pub crs: Option<String>,
    /// The source of the record.
    pub source: LetterSource,
    /// How many days the letter is retained.
    pub retention_days: u32,
}

impl Default for LetterDraft {
    fn default() -> LetterDraft {
        LetterDraft {
            pipeline: String::new(),
            key: None,
            code: Code::UNKNOWN,
            message: String::new(),
            service: String::new(),
            payload: Vec::new(),
            crs: None,
            source: LetterSource::default(),
            retention_days: RETENTION_DAYS,
        }
    }
}

impl LetterDraft {
    /// The letter. The same code for the same key is one letter while it is open; it is counted once
    /// per `run`.
    ///
    /// # Errors
    /// When the payload is not JSON, is a collection of features, or the coordinate reference system
    /// is unknown.
    pub fn letter(&self, run: &str) -> Result<Letter, PayloadError> {
        let json: serde_json::Value = serde_json::from_slice(&self.payload).map_err(PayloadError::Json)?;
        let kind = json.get("type").and_then(serde_json::Value::as_str).map(str::to_owned);
        if kind.as_deref() == Some("FeatureCollection") {
            return Err(PayloadError::Collection);
        }
        if let Some(Err(problem)) = self.crs.as_deref().map(str::parse::<Crs>) {
            return Err(PayloadError::Crs(problem.message));
        }
        let payload = FeaturePayload { json };
        // Other JSON may have a `type` too; it is a geometry if it can be read as one.
        let spatial = payload.spatial(self.crs.as_deref());
        let is_feature = kind.as_deref() == Some("Feature") || spatial.is_some();
        let media = if is_feature { "application/geo+json" } else { "application/json" };
        let record = match &self.key {
            Some(name) => key(&self.pipeline, &[("$key", KeyValue::Text(name))], None),
            None if is_feature => RecordKeys::default().of_feature(&self.pipeline, &payload, 0),
            None => RecordKeys::default().of_bytes(&self.pipeline, &payload.to_bytes(), 0),
        };
        let said = payload.json.get("id").filter(|id| is_feature && !id.is_null()).map(|id| match id {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let name = self.key.clone().or(said).unwrap_or_else(|| record.clone());
        let letter = Letter {
            pipeline: self.pipeline.clone(),
            stage: PUT_STAGE.into(),
            // A run knows one failure per record and stage; a program may report several.
            idempotency_key: key(
                &self.pipeline,
                &[("$record", KeyValue::Text(&record)), ("$code", KeyValue::Text(self.code.as_str()))],
                None,
            ),
            effect_key: format!("{}#{name}", self.pipeline),
            content_type: media.into(),
            payload: Payload { received: self.payload.clone(), current: None },
            versions: Versions { binary: env!("CARGO_PKG_VERSION").into(), ..Versions::default() },
            source: self.source.clone(),
            spatial,
            failure: Failure {
                class: FailureClass::of(self.code, None),
                code: self.code,
                message: self.message.clone(),
                service: self.service.clone(),
                worker: worker(),
                failed_ms: now_ms(),
                ..Failure::default()
            },
            run: run.to_owned(),
            ..Letter::default()
        };
        Ok(letter.retained_for(self.retention_days))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(payload: &str) -> LetterDraft {
        LetterDraft { pipeline: "p".into(), payload: payload.into(), ..LetterDraft::default() }
    }

    #[test]
    fn the_key_and_the_code_are_the_identity() {
        let one = LetterDraft { key: Some("a".into()), ..draft("{\"v\": 1}") };
        let same = LetterDraft { payload: b"{\"v\": 2}".to_vec(), message: "x".into(), ..one.clone() };
        let other = LetterDraft { code: Code::TIMEOUT, ..one.clone() };
        let id = |draft: &LetterDraft| draft.letter("").unwrap().idempotency_key;
        assert_eq!(id(&one), id(&same));
        assert_ne!(id(&one), id(&other));
        // Without a key it is the content, however it is spelled.
        assert_eq!(id(&draft("{\"v\": 1, \"w\": 2}")), id(&draft("{\"v\":1,\"w\":2}")));
        assert_ne!(id(&draft("{\"v\": 1}")), id(&draft("{\"v\": 2}")));
    }

    #[test]
    fn what_is_no_geometry_is_plain_json() {
        for (payload, media) in [
            ("{\"type\": \"order\", \"v\": 1}", "application/json"),
            ("[1, 2]", "application/json"),
            ("{\"type\":\"Point\",\"coordinates\":[1,2]}", "application/geo+json"),
            ("{\"type\":\"Feature\",\"properties\":{},\"geometry\":null}", "application/geo+json"),
        ] {
            assert_eq!(draft(payload).letter("").unwrap().content_type, media, "{payload}");
        }
        assert!(draft("no json").letter("").is_err());
        assert!(draft("{\"type\":\"FeatureCollection\",\"features\":[]}").letter("").is_err());
        let nowhere = LetterDraft { crs: Some("EPSG:1".into()), ..draft("{}") };
        assert!(nowhere.letter("").is_err());
    }
}
