//! Names the record of a letter for people: its key, and its address if it was to be geocoded.
//!
//! The address is read from the payload with the fields that the manifest names, not stored in the
//! envelope, because the envelope of a sealed letter is readable by everybody.

use std::collections::HashMap;

use serde_json::Value;
use tidegate_ledger::letter::feature::FeaturePayload;
use tidegate_ledger::letter::{Letter, LetterError, LetterStore};
use tidegate_pipeline::run::StoredDefinition;

/// The key of the record: that of its row in the sink, its id, or its position in the source.
pub(super) fn record(letter: &Letter) -> String {
    let key = letter.effect_key.split_once('#').map_or(letter.effect_key.as_str(), |(_, key)| key);
    // A key is written as JSON values with commas between them.
    match serde_json::from_str::<Vec<Value>>(&format!("[{key}]")) {
        Ok(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        Err(_) => key.to_owned(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The fields of each pipeline that hold addresses.
#[derive(Default)]
pub(super) struct AddressFields(HashMap<String, Vec<String>>);

impl AddressFields {
    /// The address of the record, if its pipeline geocodes addresses and its payload is readable.
    pub(super) fn address(
        &mut self,
        store: &mut LetterStore,
        letter: &Letter,
    ) -> Result<Option<String>, LetterError> {
        if !self.0.contains_key(&letter.pipeline) {
            let stored = StoredDefinition::read(store, &letter.pipeline)?;
            let fields = stored.map(|stored| stored.address_fields()).unwrap_or_default();
            self.0.insert(letter.pipeline.clone(), fields);
        }
        let fields = self.0.get(&letter.pipeline).map(Vec::as_slice).unwrap_or_default();
        Ok(join(fields, letter))
    }
}

fn join(fields: &[String], letter: &Letter) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let feature = FeaturePayload::parse(letter.payload.current()).ok()?;
    let properties = feature.json.get("properties")?;
    let parts = fields.iter().filter_map(|name| properties.get(name)).filter(|value| !value.is_null());
    let parts: Vec<String> = parts.map(text).filter(|part| !part.trim().is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_without_the_quotes_of_json() {
        let record = |key: &str| record(&Letter { effect_key: key.into(), ..Letter::default() });
        assert_eq!(record("out.gpkg#\"A#1\",7"), "A#1,7");
        assert_eq!((record("out.gpkg#record 3"), record("parcels#12")), ("record 3".into(), "12".into()));
        assert_eq!(record("no sink"), "no sink");
    }

    #[test]
    fn an_address_is_joined_from_the_fields_of_the_manifest() {
        let fields = ["street".to_owned(), "city".to_owned()];
        let mut letter = Letter::default();
        letter.payload.received =
            br#"{"type":"Feature","properties":{"street":"Ring 1","city":null},"geometry":null}"#.to_vec();
        assert_eq!(join(&fields, &letter).as_deref(), Some("Ring 1"));
        letter.payload.received.clear();
        assert_eq!(join(&fields, &letter), None, "sealed");
    }
}
