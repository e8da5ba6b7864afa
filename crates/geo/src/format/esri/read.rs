//! Reading feature sets.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_core::Code;

use super::super::geojson::ReadOptions;
use super::super::geojson::stream::{Found, Stream};
use super::fields::{EsriFields, crs, date_text};
use super::{geometry, text};
use crate::batch::{Batch, Span};
use crate::error::{Error, Problem};
use crate::format::{Layer, Rejected};
use crate::mapping::Owned;
use crate::schema::{FIELDS_MAX, Kind, Schema, too_many_fields};
use crate::wkb::{Dim, Shape};

/// A feature set being read.
pub struct EsriJsonReader {
    stream: Stream<File>,
    layer: Layer,
    fields: EsriFields,
    dim: Dim,
    key: Option<String>,
    options: ReadOptions,
}

impl EsriJsonReader {
    /// Opens a file and finds its fields and its system.
    ///
    /// # Errors
    /// If it is not JSON, holds a server's error, or names a system that is unknown.
    pub fn open(path: &Path, options: ReadOptions) -> Result<EsriJsonReader, Error> {
        let mut first = Stream::new(File::open(path)?, options.limits.record_bytes_max);
        first.untyped = true;
        let mut inferred = Schema::default();
        let records = loop {
            match first.step(|scan, _| scan.skip())? {
                Found::End if !first.seen => {
                    let problem = Problem::new(Code::UNEXPECTED_BODY, "the file contains no JSON");
                    return Err(problem.at(0).into());
                }
                Found::End => break first.records(),
                Found::Broken(problem) => return Err(problem.into()),
                Found::Record(span) => {
                    let feature = text::feature(first.bytes(span)).ok();
                    if let Some(error) = feature.as_ref().and_then(|feature| feature.error.as_ref()) {
                        return Err(server_error(error));
                    }
                    infer(feature.as_ref().and_then(|feature| feature.attributes.as_object()), &mut inferred);
                    if inferred.fields().len() > FIELDS_MAX {
                        return Err(too_many_fields().of_record(first.records() - 1).into());
                    }
                }
            }
        };
        let member = |name: &str| {
            let text = first.members.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str());
            text.and_then(|text| serde_json::from_str::<Json>(text).ok())
        };
        if let Some(error) = member("error") {
            return Err(server_error(&error));
        }
        let fields = match member("fields").as_ref().and_then(Json::as_array) {
            Some(fields) => EsriFields::declared(fields),
            None => EsriFields { schema: inferred, ..EsriFields::default() },
        };
        let mut schema = fields.schema.clone();
        let flag = |name: &str| member(name).and_then(|value| value.as_bool()).unwrap_or(false);
        let dim = Dim::new(flag("hasZ"), flag("hasM"));
        schema.dim = dim;
        schema.shape = match member("geometryType").as_ref().and_then(Json::as_str) {
            Some("esriGeometryPoint") => Some(Shape::Point),
            Some("esriGeometryMultipoint") => Some(Shape::MultiPoint),
            Some("esriGeometryPolyline") => Some(Shape::MultiLineString),
            Some("esriGeometryPolygon" | "esriGeometryEnvelope") => Some(Shape::MultiPolygon),
            _ => None,
        };
        let crs = member("spatialReference").map(|reference| crs(&reference)).transpose()?;
        let key = member("objectIdFieldName").and_then(|name| name.as_str().map(str::to_owned));
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let layer = Layer { name, schema: Arc::new(schema), crs, records: Some(records) };
        let mut stream = Stream::new(File::open(path)?, options.limits.record_bytes_max);
        stream.untyped = true;
        Ok(EsriJsonReader { stream, layer, fields, dim, key, options })
    }

    fn push(&self, text: &[u8], batch: &mut Batch) -> Result<(), Problem> {
        let feature = text::feature(text)?;
        let mut values = Vec::with_capacity(self.layer.schema.fields().len());
        for (at, field) in self.layer.schema.fields().iter().enumerate() {
            let value = &feature.attributes[field.name.as_str()];
            let is_date = self.fields.counts_milliseconds(at);
            values.push(owned(value, field.kind, is_date).map_err(|problem| problem.under(&field.name))?);
        }
        let write = |out: &mut Vec<u8>| {
            geometry::write(feature.geometry, self.dim, out).map_err(|problem| problem.under("geometry"))
        };
        batch.push_with(write, values.iter().map(Owned::value))?;
        let id = self.key.as_ref().map(|key| &feature.attributes[key.as_str()]);
        if let Some(id) = id.filter(|id| id.is_number() || id.is_string()) {
            batch.set_id(&id.to_string());
        }
        Ok(())
    }
}

impl crate::format::Reader for EsriJsonReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.stream.records());
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            let span: Span = match self.stream.step(|scan, _| scan.skip())? {
                Found::End => return Ok((!batch.is_empty()).then_some(batch)),
                Found::Broken(problem) => return Err(problem.into()),
                Found::Record(span) => span,
            };
            let record = self.stream.records() - 1;
            let raw = self.stream.bytes(span);
            match self.push(raw, &mut batch) {
                Ok(()) => batch.set_origin(span, if self.options.keep_raw { raw } else { &[] }),
                Err(problem) => {
                    let problems = vec![problem.of_record(record).at(span.offset)];
                    rejected.push(Rejected { record, span, raw: raw.to_vec(), problems });
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                    batch.go_to_record(record + 1);
                }
            }
        }
        Ok(Some(batch))
    }
}

fn server_error(error: &Json) -> Error {
    let message = error["message"].as_str().unwrap_or("no message");
    Problem::new(Code::SERVICE_EXCEPTION, format!("the server answered with an error: {message:.200}")).into()
}

fn infer(attributes: Option<&serde_json::Map<String, Json>>, schema: &mut Schema) {
    for (name, value) in attributes.into_iter().flatten() {
        let kind = match value {
            Json::Null => continue,
            Json::Bool(_) => Kind::Bool,
            Json::Number(n) if n.is_i64() => Kind::Int,
            Json::Number(_) => Kind::Real,
            Json::String(_) => Kind::Text,
            _ => Kind::Json,
        };
        schema.add(name.clone(), kind);
    }
}

fn owned(value: &Json, kind: Kind, is_date: bool) -> Result<Owned, Problem> {
    let refuse = || Problem::new(Code::SCHEMA_MISMATCH, format!("{value:.80} is not of kind {kind}"));
    Ok(match (value, kind) {
        (Json::Null, _) => Owned::Null,
        (value, Kind::Json) => Owned::Json(value.to_string()),
        (Json::Bool(b), Kind::Bool) => Owned::Bool(*b),
        (Json::Number(n), _) if is_date => Owned::Text(date_text(n).ok_or_else(refuse)?),
        (Json::Number(n), Kind::Int) => {
            // Some servers write 3.0 for 3.
            let whole = n.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 9e15).map(|x| x as i64);
            Owned::Int(n.as_i64().or(whole).ok_or_else(refuse)?)
        }
        (Json::Number(n), Kind::Real) => Owned::Real(n.as_f64().ok_or_else(refuse)?),
        (Json::Number(n), Kind::Text) => Owned::Text(n.to_string()),
        (Json::String(text), Kind::Real) if text == "NaN" => Owned::Null,
        (Json::String(text), Kind::Text | Kind::Date | Kind::DateTime) => Owned::Text(text.clone()),
        _ => return Err(refuse()),
    })
}
