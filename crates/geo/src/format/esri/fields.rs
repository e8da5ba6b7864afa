//! The metadata of a feature set: fields, dates and the coordinate reference system.

use serde_json::{Number, Value as Json};
use tidegate_core::Code;

use super::super::time;
use crate::crs::Crs;
use crate::error::Problem;
use crate::schema::{Kind, Schema};

/// The fields that a feature set or a layer declares.
#[derive(Clone, Debug, Default)]
pub struct EsriFields {
    /// Their names and kinds.
    pub schema: Schema,
    /// Name of the field of object ids.
    pub key: Option<String>,
    /// For each field whether its numbers are dates, in milliseconds since 1970.
    pub(super) dates: Vec<bool>,
}

impl EsriFields {
    /// Reads the member `fields`.
    #[must_use]
    pub fn declared(fields: &[Json]) -> EsriFields {
        let mut found = EsriFields::default();
        for field in fields {
            let Some(name) = field["name"].as_str() else { continue };
            let esri_type = field["type"].as_str().unwrap_or_default();
            let kind = match esri_type {
                "esriFieldTypeOID"
                | "esriFieldTypeInteger"
                | "esriFieldTypeSmallInteger"
                | "esriFieldTypeBigInteger" => Kind::Int,
                "esriFieldTypeDouble" | "esriFieldTypeSingle" => Kind::Real,
                "esriFieldTypeDate" | "esriFieldTypeTimestampOffset" => Kind::DateTime,
                "esriFieldTypeDateOnly" => Kind::Date,
                "esriFieldTypeGeometry" => continue,
                _ => Kind::Text,
            };
            if found.schema.position(name).is_none() {
                found.schema.add(name, kind);
                found.dates.push(esri_type == "esriFieldTypeDate");
            }
            if esri_type == "esriFieldTypeOID" {
                found.key.get_or_insert_with(|| name.to_owned());
            }
        }
        found
    }

    /// Whether numbers of this field, by its index, are dates.
    pub(super) fn counts_milliseconds(&self, at: usize) -> bool {
        self.dates.get(at).copied().unwrap_or(false)
    }

    /// Whether numbers of this field are dates, in milliseconds since 1970.
    #[must_use]
    pub fn is_date(&self, name: &str) -> bool {
        self.schema.position(name).is_some_and(|at| self.counts_milliseconds(at))
    }
}

/// A date in milliseconds since 1970 as ISO 8601 in UTC.
#[must_use]
pub fn date_text(millis: &Number) -> Option<String> {
    let millis = millis.as_i64().or_else(|| millis.as_f64().map(|x| x as i64))?;
    Some(time::moment_text(i128::from(millis) * 1_000_000, true))
}

/// The system that a spatial reference means: the newer number first.
///
/// # Errors
/// When it names none that is known.
pub fn crs(reference: &Json) -> Result<Crs, Problem> {
    for name in ["latestWkid", "wkid"] {
        let Some(number) = reference[name].as_u64() else { continue };
        let found = format!("EPSG:{number}").parse::<Crs>().or_else(|_| format!("ESRI:{number}").parse());
        if let Ok(crs) = found {
            return Ok(crs);
        }
    }
    match ["wkt2", "wkt"].into_iter().find_map(|name| reference[name].as_str()) {
        Some(text) => text.parse(),
        None => Err(Problem::new(
            Code::CRS_NOT_FOUND,
            format!("unknown coordinate reference system {reference:.100}"),
        )),
    }
}
