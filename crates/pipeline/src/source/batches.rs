//! From pages to batches of one schema.

use super::error::SourceError;
use super::pager::{Pager, Pulled};
use super::position::FeatureTally;
use super::reconcile::Agreement;
use super::wire::Wire;
use super::{Chunk, FeatureSource, LayerBefore};
use async_trait::async_trait;
use std::sync::Arc;
use tidegate_core::Code;
use tidegate_geo::format::Layer;
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions, infer};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Bounds, Crs};

/// What helps if a record does not fit the fields that the description and the first page showed.
const LATE: &str = "; the schema comes from the description and the first page; with `source.spool: true` \
    it comes from all pages";

/// A pager whose pages come as batches.
pub(super) struct Batches {
    pager: Pager,
    layer: Layer,
    options: ReadOptions,
    /// The first page, which told the schema.
    held: Option<Pulled>,
    records: u64,
    shape: Option<Shape>,
    /// The next page is the first after a resume: its link may be forgotten.
    fresh: bool,
}

impl Batches {
    pub(super) async fn open(
        mut pager: Pager,
        known: LayerBefore,
        resumed: bool,
    ) -> Result<Batches, SourceError> {
        for mark in known.marks {
            pager.remember_mark(mark);
        }
        let records = pager.tally().received;
        let mut fresh = resumed;
        let held = pull(&mut pager, &mut fresh).await?;
        let options = ReadOptions {
            keep_raw: true,
            batch_rows_max: usize::MAX,
            batch_bytes_max: usize::MAX,
            ..ReadOptions::default()
        };
        let (schema, shape) = match known.schema {
            Some(schema) => (schema, known.shape),
            None => {
                let text = held.as_ref().map(lines).unwrap_or_default();
                let shown =
                    infer(text.as_slice(), options.limits.record_bytes_max).map_err(unreadable)?.schema;
                let mut all = pager.described().cloned().unwrap_or_default();
                for field in shown.fields() {
                    all.add(field.name.clone(), field.kind);
                }
                all.dim = shown.dim;
                // Only the last page tells that no other shape follows.
                let whole = held.as_ref().is_none_or(|held| held.position.is_end());
                all.shape = shown.shape.filter(|_| whole);
                (Arc::new(all), shown.shape)
            }
        };
        let crs = match (known.crs, pager.crs()) {
            (Some(crs), _) => crs,
            (None, Some(name)) => name.parse::<Crs>().map_err(|p| SourceError::broken(p.code, p.message))?,
            (None, None) => Crs::wgs84(),
        };
        let name = pager.name().to_owned();
        let layer = Layer { name, schema, crs: Some(crs), records: pager.tally().declared };
        Ok(Batches { pager, layer, options, held, records, shape, fresh })
    }
}

impl Batches {
    /// Features may name a system of their own, as GeoJSON of 2008 had it.
    fn same_system(&self, reader: &GeoJsonReader<&[u8]>) -> Result<(), SourceError> {
        let named = reader.named_crs().map_err(|p| SourceError::broken(p.code, p.message))?;
        let (Some(named), Some(crs)) = (named, &self.layer.crs) else { return Ok(()) };
        if named == *crs || (named.is_wgs84() && crs.is_wgs84()) {
            return Ok(());
        }
        let name = &self.layer.name;
        let message = format!("{name}: features say that they are in {named}, and the layer is in {crs}");
        Err(SourceError::broken(Code::CRS_MISMATCH, message))
    }
}

/// The next page. A service may have forgotten the link of the first page after a resume: the
/// layer is then read from its start, and what is known is left out.
async fn pull(pager: &mut Pager, fresh: &mut bool) -> Result<Option<Pulled>, SourceError> {
    match pager.next().await {
        Err(error) if std::mem::take(fresh) && error.is_forgotten() => {
            pager.rewind();
            pager.next().await
        }
        other => {
            *fresh = false;
            other
        }
    }
}

#[async_trait]
impl FeatureSource for Batches {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn shape(&self) -> Option<Shape> {
        self.shape
    }

    fn wire(&self) -> &Wire {
        self.pager.wire()
    }

    async fn next(&mut self) -> Result<Option<Chunk>, SourceError> {
        let pulled = match self.held.take() {
            Some(held) => held,
            None => match pull(&mut self.pager, &mut self.fresh).await? {
                Some(pulled) => pulled,
                None => return Ok(None),
            },
        };
        let text = lines(&pulled);
        let schema = self.layer.schema.clone();
        let mut reader = GeoJsonReader::new(text.as_slice(), schema.clone(), self.options.clone());
        let mut rejected = Vec::new();
        let batch = reader.next_batch(&mut rejected).map_err(unreadable)?;
        self.same_system(&reader)?;
        let problems = rejected.iter_mut().flat_map(|rejected| &mut rejected.problems);
        for problem in problems.filter(|problem| problem.code == Code::SCHEMA_MISMATCH) {
            problem.message.push_str(LATE);
        }
        let first_record = self.records;
        self.records += pulled.len() as u64;
        let batch = batch.unwrap_or_else(|| Batch::new(schema));
        Ok(Some(Chunk { batch, rejected, first_record, marks: pulled.marks, position: pulled.position }))
    }

    fn tally(&self) -> FeatureTally {
        *self.pager.tally()
    }

    fn agreement(&self) -> Option<Agreement> {
        self.pager.agreement()
    }

    fn extent(&self) -> Option<Bounds> {
        self.pager.extent()
    }

    fn foreseen(&self) -> (Option<u64>, u64) {
        (self.pager.requests_left(), self.pager.page_features())
    }
}

/// The new features of a page, one after another.
fn lines(pulled: &Pulled) -> Vec<u8> {
    let mut text = Vec::new();
    for feature in pulled.features() {
        text.extend_from_slice(feature);
        text.push(b'\n');
    }
    text
}

fn unreadable(error: tidegate_geo::Error) -> SourceError {
    let code = match error.code() {
        Code::UNKNOWN => Code::UNEXPECTED_BODY,
        code => code,
    };
    SourceError::broken(code, format!("cannot read the features of a page: {error}"))
}
