//! The rasters that letters are about: where they lie, and with `--reveal` what they look like.
//!
//! Which letters are about rasters is known from the stored definition of their pipeline. A picture
//! shows what is in a record, so it needs the same right as its exact coordinates. Where a raster lies is
//! what the record says, so it is opened only in a directory that a person named (`--rasters`).

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_client::objects::{AllowedObjects, ObjectsKey};
use tidegate_ledger::letter::feature::FeaturePayload;
use tidegate_ledger::letter::{Letter, LetterError, LetterStore};
use tidegate_pipeline::run::StoredDefinition;

use crate::report::rasters::Album;

/// What a map shows of the rasters of letters.
#[derive(Default)]
pub(super) struct RasterLetters {
    /// The field with the address of a raster, by pipeline.
    fields: HashMap<String, Option<String>>,
    album: Album,
    allowed: AllowedObjects,
}

impl RasterLetters {
    /// Those in a directory.
    pub(super) fn in_directory(directory: Option<&Path>) -> RasterLetters {
        let mut allowed = AllowedObjects::nothing(ObjectsKey::Option("--rasters"), Path::new(""));
        if let Some(directory) = directory {
            allowed.folder(&directory.display().to_string());
        }
        RasterLetters { allowed, ..RasterLetters::default() }
    }

    /// Adds the extent, and with `exact` the picture, to what the map knows of a letter.
    pub(super) fn add(
        &mut self,
        store: &mut LetterStore,
        letter: &Letter,
        exact: bool,
        shown: &mut Value,
    ) -> Result<(), LetterError> {
        if !self.fields.contains_key(&letter.pipeline) {
            let stored = StoredDefinition::read(store, &letter.pipeline)?;
            let field = stored.and_then(|stored| stored.raster_field());
            self.fields.insert(letter.pipeline.clone(), field);
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
            Some(address) => self.album.look(&address, &self.allowed),
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

/// The address of the raster; nothing if the payload is sealed.
fn address(field: &str, letter: &Letter) -> Option<String> {
    let feature = FeaturePayload::parse(letter.payload.current()).ok()?;
    Some(feature.json.get("properties")?.get(field)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
