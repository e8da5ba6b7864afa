//! A PostgreSQL table or view as a source, read in pages by its key.
//!
//! The position is the key of the last row, so that rows inserted or deleted between two pages
//! neither lose nor duplicate others.

use std::sync::Arc;

use postgres::Row;
use postgres::types::ToSql;
use tidegate_core::Code;
use tidegate_geo::batch::Span;
use tidegate_geo::format::{Layer, Rejected};
use tidegate_geo::mapping::coerce;
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};
use tidegate_ledger::bounded::BoundedClient;

use super::source::{Page, Source, whole};
use crate::lane::Clock;
use crate::manifest::{SinceSpec, SourceTable};
use crate::sink::SinkError;
use crate::sink::postgis::{config, could_not_connect, judge, quote};
use crate::source::{CountTolerance, IdentifierHash};
use crate::step::StepError;

/// Opens a table.
///
/// # Errors
/// The reason why it cannot be read.
pub(super) fn open(
    form: &SourceTable,
    rows: usize,
    how: (CountTolerance, Option<&SinceSpec>),
) -> Result<Box<dyn Source>, StepError> {
    Ok(Box::new(TableSource::open(form, rows, how)?))
}

/// Reads a table.
struct TableSource {
    client: BoundedClient,
    layer: Layer,
    select: String,
    /// The most rows on a page.
    rows: usize,
    key: Option<String>,
    /// The number of rows read.
    record: u64,
    name: String,
    ended: bool,
    count: String,
    tolerance: CountTolerance,
}

fn kind_of(udt: &str) -> Kind {
    match udt {
        "bool" => Kind::Bool,
        "int2" | "int4" | "int8" => Kind::Int,
        "float4" | "float8" | "numeric" => Kind::Real,
        "date" => Kind::Date,
        "timestamp" | "timestamptz" => Kind::DateTime,
        "json" | "jsonb" => Kind::Json,
        _ => Kind::Text,
    }
}

/// The error of the database: if it is down, a later run may succeed.
fn failed(error: SinkError) -> StepError {
    let said = error.to_string();
    match error {
        SinkError::Transient { code, .. } => {
            StepError::TryLater { code, until: Clock::system().wall(), said }
        }
        SinkError::Fatal(_) => StepError::Broken(said),
    }
}

fn say(e: postgres::Error) -> StepError {
    failed(judge(&e))
}

impl TableSource {
    fn open(
        form: &SourceTable,
        rows: usize,
        (tolerance, since): (CountTolerance, Option<&SinceSpec>),
    ) -> Result<TableSource, StepError> {
        let config = config(&form.url)?;
        let mut client = config.connect().map_err(|e| failed(could_not_connect(&config, &e)))?;
        let columns = client
            .query(
                "SELECT column_name::text, udt_name::text FROM information_schema.columns
                 WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position",
                &[&form.schema, &form.table],
            )
            .map_err(say)?;
        let columns: Vec<(String, String)> = columns.iter().map(|row| (row.get(0), row.get(1))).collect();
        let name = format!("{}.{}", form.schema, form.table);
        if columns.is_empty() {
            return Err(format!("table {name} does not exist or cannot be read").into());
        }
        let Some((_, key_type)) = columns.iter().find(|(column, _)| *column == form.key) else {
            return Err(format!("table {name} has no column `{}`", form.key).into());
        };
        let key = quote(&form.key)?;
        let table = format!("{}.{}", quote(&form.schema)?, quote(&form.table)?);
        let (mut schema, mut list, mut geometry, mut crs) =
            (Schema::default(), Vec::new(), "NULL::bytea".to_owned(), None);
        for (column, udt) in &columns {
            let quoted = quote(column)?;
            match udt.as_str() {
                "geometry" | "geography" => {
                    geometry = format!("ST_AsBinary({quoted}::geometry)");
                    let sql = format!(
                        "SELECT ST_SRID({quoted}::geometry) FROM {table} WHERE {quoted} IS NOT NULL LIMIT 1"
                    );
                    let srid = client.query_opt(&sql, &[]).map_err(say)?.map(|row| row.get::<_, i32>(0));
                    crs = srid
                        .and_then(|srid| u32::try_from(srid).ok())
                        .filter(|srid| *srid > 0)
                        .map(Crs::epsg);
                }
                // Written by a sink without PostGIS.
                "bytea" if geometry.starts_with("NULL") => geometry = quoted,
                udt => {
                    schema.add(column.clone(), kind_of(udt));
                    list.push(format!("{quoted}::text"));
                }
            }
        }
        let columns = if list.is_empty() { String::new() } else { format!(", {}", list.join(", ")) };
        // The key as text, cast to its own type for comparison; `t.` because a bare name in ORDER
        // BY would mean the text.
        let changed = match since {
            Some(SinceSpec { field, .. }) if schema.position(field).is_none() => {
                return Err(format!("since: table {name} has no column `{field}`").into());
            }
            Some(SinceSpec { field, from: Some(from), .. }) => {
                // A text of a time is taken for one of the type of the column.
                format!("t.{} >= '{from}'", quote(field)?)
            }
            _ => "true".to_owned(),
        };
        let select = format!(
            "SELECT {key}::text, {geometry}{columns} FROM {table} AS t WHERE {changed} AND ($1::text IS NULL OR t.{key} > $1::text::{}) ORDER BY t.{key} LIMIT {rows}",
            quote(key_type)?
        );
        let sql = format!("SELECT count(*) FROM {table} AS t WHERE {changed}");
        let count = client.query_one(&sql, &[]).map_err(say)?.get::<_, i64>(0);
        let layer = Layer {
            name: form.table.clone(),
            schema: Arc::new(schema),
            crs,
            records: u64::try_from(count).ok(),
        };
        Ok(TableSource {
            client,
            layer,
            select,
            rows,
            key: None,
            record: 0,
            name,
            ended: false,
            count: sql,
            tolerance,
        })
    }

    /// Rows may be inserted and deleted while a table is read: the number read must lie between the
    /// two counts.
    fn whole(&mut self) -> Result<(), StepError> {
        let now = self.client.query_one(&self.count, &[]).map_err(say)?.get::<_, i64>(0).unsigned_abs();
        let first = self.layer.records.unwrap_or(now);
        let nearest = self.record.clamp(first.min(now), first.max(now));
        whole(Some(nearest), self.record, self.tolerance)
    }
}

impl Source for TableSource {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn stamp(&self) -> String {
        // A table may change while it is read; the key suffices to continue.
        self.name.clone()
    }

    fn seek(&mut self, position: &str, _: Vec<IdentifierHash>) -> Result<(), StepError> {
        let no = || StepError::Broken(format!("invalid table position {position:?}"));
        let (record, key) = position.split_once(' ').ok_or_else(no)?;
        self.record = record.parse().map_err(|_| no())?;
        self.key = Some(key.to_owned());
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        if self.ended {
            self.whole()?;
            return Ok(None);
        }
        let after: &(dyn ToSql + Sync) = &self.key;
        let rows = self.client.query(&self.select, &[after]).map_err(say)?;
        self.ended = rows.len() < self.rows;
        let Some(last) = rows.last() else {
            self.whole()?;
            return Ok(None);
        };
        let last: Option<String> = last.get(0);
        let Some(last) = last else {
            return Err(StepError::Broken(format!("the key of {} is null in at least one row", self.name)));
        };
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut rejected = Vec::new();
        for row in &rows {
            if let Err(problem) = push(row, &mut batch) {
                let record = self.record;
                let raw = format!("{{\"key\":{:?}}}", row.get::<_, Option<String>>(0).unwrap_or_default())
                    .into_bytes();
                rejected.push(Rejected {
                    record,
                    span: Span::default(),
                    raw,
                    problems: vec![problem.of_record(record)],
                });
                batch.go_to_record(record + 1);
            }
            self.record += 1;
        }
        let position = format!("{} {last}", self.record);
        self.key = Some(last);
        Ok(Some(Page { batch, rejected, position, marks: Vec::new() }))
    }
}

fn push(row: &Row, batch: &mut Batch) -> Result<(), Problem> {
    let schema = batch.schema().clone();
    let mut values = Vec::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        let text: Option<String> = row
            .try_get(at + 2)
            .map_err(|e| Problem::new(Code::DATA_EXCEPTION, e.to_string()).under(&field.name))?;
        let value = text.as_deref().map_or(Value::Null, |text| {
            if field.kind == Kind::Json { Value::Json(text) } else { Value::Text(text) }
        });
        values.push(coerce(value, field.kind, &[], None).map_err(|problem| problem.under(&field.name))?);
    }
    let geometry: Option<Vec<u8>> =
        row.try_get(1).map_err(|e| Problem::new(Code::INVALID_GEOMETRY, e.to_string()))?;
    batch.push(geometry.as_deref(), values.iter().map(tidegate_geo::mapping::Owned::value))
}
