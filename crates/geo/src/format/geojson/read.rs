//! Reading GeoJSON into batches.

use std::io::Read;
use std::sync::Arc;

use super::feature::Features;
use super::geometry::Rules;
use super::named;
use super::stream::{Found, Stream};
use crate::batch::{Batch, Span};
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::{Format, Rejected};
use crate::limits::RecordLimits;
use crate::schema::Schema;

/// Options for readers.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The format, if neither the file's name nor its first bytes are to decide it.
    pub format: Option<Format>,
    /// The layer to read, of a file that has several; the first by default.
    pub layer: Option<String>,
    /// The system of a source that declares none: GeoJSON without a member `crs`, a table without a `.prj`
    /// file. By default that of the format.
    pub crs: Option<Crs>,
    /// What to do with geometry that RFC 7946 forbids.
    pub rules: Rules,
    /// Drop properties that are not in the schema, instead of refusing the record.
    pub drop_unknown: bool,
    /// Keep foreign members of features. Only GeoJSON can hold them.
    pub keep_foreign: bool,
    /// Keep the bytes of every record, for dead letters.
    pub keep_raw: bool,
    /// What one record may cost.
    pub limits: RecordLimits,
    /// Most features of a batch.
    pub batch_rows_max: usize,
    /// Size of a batch at which it ends, in bytes.
    pub batch_bytes_max: usize,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            format: None,
            layer: None,
            crs: None,
            rules: Rules::Refuse,
            drop_unknown: false,
            keep_foreign: false,
            keep_raw: false,
            limits: RecordLimits::default(),
            batch_rows_max: 4096,
            batch_bytes_max: 4 << 20,
        }
    }
}

/// A GeoJSON source being read.
pub struct GeoJsonReader<R> {
    stream: Stream<R>,
    features: Features,
    schema: Arc<Schema>,
    options: ReadOptions,
}

impl<R: Read> GeoJsonReader<R> {
    /// Reads records of this schema. [`super::infer`] finds the schema of a file.
    #[must_use]
    pub fn new(input: R, schema: Arc<Schema>, options: ReadOptions) -> GeoJsonReader<R> {
        let mut features = Features::new(schema.clone(), options.rules, options.drop_unknown);
        features.keep_foreign = options.keep_foreign;
        GeoJsonReader {
            stream: Stream::new(input, options.limits.record_bytes_max),
            features,
            schema,
            options,
        }
    }

    /// The text of the legacy `crs` members passed so far, which agree.
    #[must_use]
    pub fn legacy_crs(&self) -> Option<&str> {
        self.stream.named.text()
    }

    /// The system that those members name; `None` if there are none, or if they say that it is unknown.
    ///
    /// # Errors
    /// If what they name is no system.
    pub fn named_crs(&self) -> Result<Option<Crs>, Problem> {
        self.legacy_crs().map_or(Ok(None), named::system)
    }

    /// The next batch; `None` after the end. Records that cannot be read are added to `rejected`,
    /// with all their problems.
    ///
    /// # Errors
    /// If reading fails, the text of a collection is not JSON or says that it is something else, a record is too
    /// large, or the records are in several systems.
    pub fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.schema.clone()).from_record(self.stream.records());
        let mut aside = 0;
        loop {
            let features = &mut self.features;
            let found = self.stream.step(|scan, place| {
                features.issues.begin(place.record, place.in_collection, place.base);
                features.record(scan)
            })?;
            let span = match found {
                Found::End => return Ok((!batch.is_empty()).then_some(batch)),
                Found::Broken(problem) => {
                    let record = problem.record.unwrap_or_default();
                    rejected.push(Rejected {
                        record,
                        span: Span::default(),
                        raw: Vec::new(),
                        problems: vec![problem],
                    });
                    batch.go_to_record(self.stream.records());
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                    if aside >= self.options.batch_bytes_max {
                        return Ok(Some(batch));
                    }
                    continue;
                }
                Found::Record(span) => span,
            };
            if self.features.has_place() {
                self.stream.saw_crs(self.features.own_crs(), span.offset)?;
            }
            let raw = self.stream.bytes(span);
            let keep = if self.options.keep_raw { raw } else { &[] };
            if self.features.issues.found.is_empty()
                && let Err(problem) = self.features.push(self.stream.window(), span, keep, &mut batch)
            {
                let problem =
                    Problem { offset: Some(span.offset), record: Some(self.stream.records() - 1), ..problem };
                let path = format!("{}.properties.{}", self.features.issues.path(), problem.path);
                self.features.issues.found.push(problem.under(path));
            }
            if !self.features.issues.found.is_empty() {
                let problems = std::mem::take(&mut self.features.issues.found);
                rejected.push(Rejected {
                    record: self.stream.records() - 1,
                    span,
                    raw: raw.to_vec(),
                    problems,
                });
                batch.go_to_record(self.stream.records());
                aside += rejected.last().map_or(0, Rejected::byte_len);
            }
            if batch.len() >= self.options.batch_rows_max
                || batch.full_len() + aside >= self.options.batch_bytes_max
            {
                return Ok(Some(batch));
            }
        }
    }
}
