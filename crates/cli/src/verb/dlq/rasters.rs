//! The rasters that letters are about: where they lie, and with `--reveal` what they look like.
//!
//! Which letters are about rasters is known from the stored definition of their pipeline. A picture
//! shows what is in a record, so it needs the same right as its exact coordinates.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_ledger::letter::feature::FeaturePayload;
use tidegate_ledger::letter::{Letter, LetterError, LetterStore};

use crate::report::rasters::Album;

/// What a map shows of the rasters of letters.
#[derive(Default)]
pub(super) struct RasterLetters {
    /// The field with the address of a raster, by pipeline.
    fields: HashMap<String, Option<String>>,
    album: Album,
}

impl RasterLetters {
    /// Adds the extent, and with `exact` the picture, to what the map knows of a letter.
    pub(super) fn add(
        &mut self,
        store: &mut LetterStore,
        letter: &Letter,
        exact: bool,
        shown: &mut Value,
    ) -> Result<(), LetterError> {
        if !self.fields.contains_key(&letter.pipeline) {
            let spec = store.pipeline(&letter.pipeline)?;
            self.fields.insert(letter.pipeline.clone(), spec.as_deref().and_then(field));
        }
        let Some(Some(field)) = self.fields.get(&letter.pipeline) else { return Ok(()) };
        let bounds = letter.spatial.as_ref().and_then(|spatial| spatial.bbox);
        shown["extent"] = bounds.and_then(|bounds| extent(bounds, exact)).map_or(Value::Null, |b| json!(b));
        if !exact || !self.album.has_room() {
            return Ok(());
        }
        let kept = store.get(letter.id).ok().flatten();
        let view = match kept.and_then(|row| address(field, &row.letter)) {
            None => return Ok(()),
            Some(address) if is_elsewhere(&address) => return Ok(()),
            Some(address) => self.album.look(&address),
        };
        match view.picture {
            Ok(picture) => shown["picture"] = picture.into(),
            Err(why) => shown["no_picture"] = why.into(),
        }
        shown["raster"] = view.facts.into();
        Ok(())
    }
}

/// Whether a path starts at the directory of a run that is not known here.
fn is_elsewhere(address: &str) -> bool {
    !tidegate_pipeline::raster::is_remote(address) && !Path::new(address).is_absolute()
}

/// A box within the range of degrees; rounded outwards to a tenth of a degree unless it may be exact.
fn extent([w, s, e, n]: [f64; 4], exact: bool) -> Option<[f64; 4]> {
    // A corner on a whole tenth comes out of a transformation a little beside it.
    let down = |x: f64| if exact { x } else { (x * 10.0 + 1e-6).floor() / 10.0 };
    let up = |x: f64| if exact { x } else { (x * 10.0 - 1e-6).ceil() / 10.0 };
    let found = [down(w).max(-180.0), down(s).max(-90.0), up(e).min(180.0), up(n).min(90.0)];
    (found[0] < found[2] && found[1] < found[3]).then_some(found)
}

/// The field with the address of a raster in the stored definition of a pipeline.
fn field(spec: &str) -> Option<String> {
    let spec: Value = serde_json::from_str(spec).ok()?;
    let pipeline = &spec["manifest"]["pipeline"];
    let step = pipeline["steps"].as_array().into_iter().flatten().rfind(|step| step["raster"].is_object());
    let has_list = pipeline["source"]["rasters"].as_array().is_some_and(|list| !list.is_empty());
    match step {
        Some(step) => Some(step["raster"]["field"].as_str().unwrap_or("path").to_owned()),
        None => has_list.then(|| "path".to_owned()),
    }
}

/// The address of the raster; nothing if the payload is sealed.
fn address(field: &str, letter: &Letter) -> Option<String> {
    let feature = FeaturePayload::parse(letter.payload.current()).ok()?;
    Some(feature.json.get("properties")?.get(field)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_with_rasters_are_known_by_their_definition() {
        let step = r#"{"manifest":{"pipeline":{"steps":[{"raster":{"field":"scene"}},{"rename":{}}]}}}"#;
        assert_eq!(field(step).as_deref(), Some("scene"));
        let list = r#"{"manifest":{"pipeline":{"source":{"rasters":["*.tif"]}}}}"#;
        assert_eq!(field(list).as_deref(), Some("path"));
        assert_eq!(field(r#"{"manifest":{"pipeline":{"source":{"file":"a.csv"}}}}"#), None);
        assert_eq!(field("nonsense"), None);
    }

    #[test]
    fn an_extent_is_rounded_outwards() {
        let bounds = [15.01, 47.99, 15.98, 48.51];
        assert_eq!(extent(bounds, false), Some([15.0, 47.9, 16.0, 48.6]));
        assert_eq!(extent(bounds, true), Some(bounds));
        assert_eq!(extent([14.999_999_999_9, 47.5, 15.2, 47.6], false), Some([15.0, 47.5, 15.2, 47.6]));
        assert_eq!(extent([500_000.0, 1.0, 600_000.0, 2.0], true), None, "not in degrees");
        assert!(is_elsewhere("out/a.tif") && !is_elsewhere("s3://b/a.tif"));
    }
}
