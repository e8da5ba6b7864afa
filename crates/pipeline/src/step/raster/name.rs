//! The file name of a result: a text with `{field}` in it, or the name of the raster. A name stays in the
//! directory of the step, whatever the fields hold.

use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind};

use crate::objects::{ObjectAddress, shown};
use crate::step::Flow;

/// A text with fields in it.
pub(super) struct NameTemplate(Vec<NamePart>);

enum NamePart {
    Text(String),
    Field(usize, String),
}

impl NameTemplate {
    pub(super) fn parse(text: &str, flow: &Flow) -> Result<NameTemplate, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("`{` is not closed by `}` in `name`")?;
            parts.push(NamePart::Text(before.to_owned()));
            parts.push(NamePart::Field(flow.field(name)?, name.to_owned()));
            rest = after;
        }
        parts.push(NamePart::Text(rest.to_owned()));
        Ok(NameTemplate(parts))
    }

    /// The name for a record.
    pub(super) fn of(&self, batch: &Batch, row: usize) -> Result<String, String> {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                NamePart::Text(text) => name.push_str(text),
                NamePart::Field(at, field) => match coerce(batch.value(row, *at), Kind::Text, &[], None) {
                    Ok(Owned::Text(text)) => name.push_str(&text),
                    _ => return Err(format!("the field `{field}` of `name` has no value")),
                },
            }
        }
        tiff_name(&name)
    }
}

/// The extensions of files of features: parcels.gpkg becomes parcels.tif.
const FEATURES: [&str; 10] =
    ["gpkg", "geojson", "geojsonl", "geojsons", "json", "csv", "fgb", "parquet", "gml", "shp"];

/// The name of the raster at an address, without its query.
pub(super) fn of_address(address: &ObjectAddress) -> Result<String, String> {
    let shown = shown(address.text());
    let name = shown.rsplit('/').next().unwrap_or_default();
    tiff_name(name.rsplit_once('.').filter(|(_, end)| FEATURES.contains(end)).map_or(name, |(stem, _)| stem))
}

/// A safe file name with the extension of a TIFF.
fn tiff_name(text: &str) -> Result<String, String> {
    let plain = |c: char| if c.is_control() || "/\\:".contains(c) { '_' } else { c };
    let name: String = text.chars().map(plain).collect();
    let name = name.trim().trim_start_matches('.');
    if name.is_empty() || name.len() > 200 {
        return Err(format!("{text:?} is no name of a file"));
    }
    let is_tiff = [".tif", ".tiff"].iter().any(|end| name.to_ascii_lowercase().ends_with(end));
    Ok(if is_tiff { name.to_owned() } else { format!("{name}.tif") })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_name_stays_in_its_directory() {
        let of = |text: &str| of_address(&ObjectAddress::written(text, Path::new(""), false).unwrap());
        for (address, name) in [
            ("https://x.test/a/B04.tif?sig=1#2", "B04.tif"),
            ("/data/scene.TIFF", "scene.TIFF"),
            ("/data/parcels.gpkg", "parcels.tif"),
            ("/data/.hidden.tif", "hidden.tif"),
            ("plain", "plain.tif"),
        ] {
            assert_eq!(of(address), Ok(name.to_owned()), "{address}");
        }
        assert_eq!(tiff_name("../../etc/passwd"), Ok("_.._etc_passwd.tif".to_owned()));
        assert_eq!(tiff_name("zone 12.5"), Ok("zone 12.5.tif".to_owned()));
        assert_eq!(tiff_name("a\nb.tif"), Ok("a_b.tif".to_owned()));
        for nothing in ["", "..", "  "] {
            assert!(tiff_name(nothing).is_err(), "{nothing:?}");
        }
        assert!(of("https://x.test/").is_err());
    }
}
