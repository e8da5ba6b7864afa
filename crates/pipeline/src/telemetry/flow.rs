//! Records the progress of a pipeline in the registry, to keep that out of the run itself.

use super::trace::{self, BatchSpan};
use super::{PlaceKind, RecordEnd, SeenRaster, Telemetry};
use crate::gate::Reading;
use crate::letter::now_ms;
use crate::run::{RecordCounts, RunCheckpoint};
use crate::step::Reject;
use serde_json::Value as Json;
use std::collections::HashSet;
use std::time::Duration;
use tidegate_core::letter::blur;
use tidegate_geo::crs::Transform;
use tidegate_geo::{Batch, Bounds, Crs, Value};
use tracing::{Level, debug, enabled, info};

impl Telemetry {
    /// A run starts, possibly as a resume.
    pub fn begin(&self, gates: Vec<Reading>, counts: &RecordCounts) {
        self.gates(gates);
        self.records.set_read(counts.read);
        self.records.set_written(counts.written());
        self.ended(counts);
    }

    /// Sets the outcomes. Every record has one: a record written without a match is not counted
    /// twice.
    fn ended(&self, counts: &RecordCounts) {
        let r = &self.records;
        r.set_ended(RecordEnd::Matched, counts.written().saturating_sub(counts.no_match + counts.failed));
        r.set_ended(RecordEnd::NoMatch, counts.no_match.min(counts.written()));
        r.set_ended(RecordEnd::Failed, counts.unsuccessful());
        r.set_ended(RecordEnd::Filtered, counts.filtered);
        r.set_ended(RecordEnd::Deduped, counts.deduped);
        r.set_deleted(counts.deleted);
        r.set_writes(counts.written(), counts.dead());
    }
}

/// How the coordinates of one stage are transformed to degrees.
enum Way {
    Degrees,
    By(Box<Transform>),
    Unknown,
}

impl Way {
    fn of(crs: Option<&Crs>) -> Way {
        match crs {
            Some(crs) if crs.is_wgs84() => Way::Degrees,
            Some(crs) => Transform::new(crs, &Crs::wgs84()).map_or(Way::Unknown, |t| Way::By(Box::new(t))),
            None => Way::Unknown,
        }
    }

    fn degrees(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        match self {
            Way::Degrees => Some((x, y)),
            Way::By(transform) => transform.position(x, y, 0.0).ok().map(|(x, y, _)| (x, y)),
            Way::Unknown => None,
        }
    }

    /// A ring in degrees; nothing if a part of it has no place.
    fn ring(&self, ring: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
        ring.map(|(x, y)| self.degrees(x, y)).collect::<Option<_>>().unwrap_or_default()
    }
}

/// The corners of a box, as a closed ring.
fn corners(b: Bounds) -> [(f64, f64); 5] {
    [(b.min_x, b.max_y), (b.min_x, b.min_y), (b.max_x, b.min_y), (b.max_x, b.max_y), (b.min_x, b.max_y)]
}

/// The grid to which a bounding box is rounded outwards: one degree, or a hundred kilometres.
fn coarse(size: f64) -> f64 {
    if size <= 360.0 { 1.0 } else { 100_000.0 }
}

/// A committed batch.
pub struct CommittedBatch<'b> {
    /// Its records.
    pub batch: &'b Batch,
    /// Records rejected.
    pub rejects: &'b [Reject],
    /// Records that failed and are written nevertheless.
    pub failed: &'b [Reject],
    /// Records without a match.
    pub missed: &'b [u64],
    /// The span of the batch.
    pub span: Option<BatchSpan>,
    /// The duration of the commit.
    pub took: Duration,
}

/// Records each committed batch in the registry.
pub struct Teller<'a> {
    telemetry: &'a Telemetry,
    /// The coordinate reference system of the sink.
    crs: String,
    /// The stages with the transformation of the records there; the last is the sink.
    ways: Vec<(String, Way)>,
}

impl<'a> Teller<'a> {
    /// `stages` are the steps in order, each with the coordinate reference system of the records
    /// that reach it; `end` is that of the sink.
    #[must_use]
    pub fn new<'c>(
        telemetry: &'a Telemetry,
        stages: impl Iterator<Item = (&'c str, Option<&'c Crs>)>,
        end: Option<&'c Crs>,
    ) -> Teller<'a> {
        let mut ways = Vec::new();
        if telemetry.places.wanted() {
            ways.extend(stages.map(|(label, crs)| (label.to_owned(), Way::of(crs))));
            ways.push((String::new(), Way::of(end)));
        }
        let crs = end.map_or_else(String::new, ToString::to_string);
        info!(target: "tidegate::run", crs, resumed = telemetry.records.offered(), "run started");
        Teller { telemetry, crs, ways }
    }

    /// Records a committed batch.
    pub fn landed(&self, checkpoint: &RunCheckpoint, landed: &CommittedBatch<'_>) {
        let counts = &checkpoint.counts;
        let records = &self.telemetry.records;
        let new = counts.written().saturating_sub(records.written());
        records.committed(new, landed.took, now_ms());
        self.telemetry.ended(counts);
        self.telemetry.tallies(&checkpoint.gates);
        for reject in landed.rejects.iter().chain(landed.failed) {
            let first = reject.problems.first();
            let code = first.map_or("UNKNOWN", |problem| problem.code.as_str());
            let said = first.map_or("unknown reason", |problem| problem.message.as_str());
            let example = || format!("record {}: {}", reject.record, blur(said));
            self.telemetry.dead(code, &reject.stage, example);
            // Logged at `debug`, because a message may quote a coordinate.
            debug!(target: "tidegate::record", code, stage = reject.stage, record = reject.record, "rejected: {said}");
        }
        if let (Some(tracer), Some(span)) = (trace::tracer(), landed.span) {
            tracer.committed(span, new, landed.rejects.len() as u64);
        }
        self.say(new, landed);
        if !self.ways.is_empty() {
            self.place(landed);
        }
        let places = &self.telemetry.places;
        if places.extent_wanted() {
            let gone: HashSet<u64> = landed.rejects.iter().map(|reject| reject.record).collect();
            let kept = (0..landed.batch.len()).filter(|row| !gone.contains(&landed.batch.record(*row)));
            let bounds = kept.filter_map(|row| landed.batch.bounds(row)).reduce(Bounds::union);
            bounds.into_iter().for_each(|bounds| places.extend(bounds));
        }
    }

    /// Logs a batch, with its rounded extent; the exact one only at `debug`.
    fn say(&self, new: u64, landed: &CommittedBatch<'_>) {
        if !enabled!(target: "tidegate::batch", Level::INFO) {
            return;
        }
        let exact = enabled!(target: "tidegate::batch", Level::DEBUG);
        let all = (0..landed.batch.len()).filter_map(|row| landed.batch.bounds(row));
        let bbox = all.reduce(Bounds::union).map_or_else(String::new, |b| {
            let grid = if exact { 0.0 } else { coarse(b.max_x.abs().max(b.max_y.abs())) };
            let down = |x: f64| if grid > 0.0 { (x / grid).floor() * grid } else { x };
            let up = |x: f64| if grid > 0.0 { (x / grid).ceil() * grid } else { x };
            format!("{},{},{},{}", down(b.min_x), down(b.min_y), up(b.max_x), up(b.max_y))
        });
        info!(
            target: "tidegate::batch",
            records = new,
            dead = landed.rejects.len() as u64,
            crs = self.crs,
            bbox,
            took_ms = landed.took.as_millis() as u64,
            "committed"
        );
    }

    fn place(&self, landed: &CommittedBatch<'_>) {
        let CommittedBatch { batch, rejects, .. } = landed;
        let places = &self.telemetry.places;
        let Some((_, end)) = self.ways.last() else { return };
        let gone: HashSet<u64> = rejects.iter().map(|reject| reject.record).collect();
        let missed: HashSet<u64> = landed.missed.iter().copied().collect();
        let failed: HashSet<u64> = landed.failed.iter().map(|reject| reject.record).collect();
        let rasters = &self.telemetry.rasters;
        let raster_at = rasters.field().and_then(|field| batch.schema().position(field));
        for row in 0..batch.len() {
            let record = batch.record(row);
            if gone.contains(&record) {
                continue;
            }
            let kind = if failed.contains(&record) {
                PlaceKind::Dead
            } else if missed.contains(&record) {
                PlaceKind::NoMatch
            } else {
                PlaceKind::Committed
            };
            let bounds = batch.bounds(row);
            if let Some(Value::Text(address)) = raster_at.map(|at| batch.value(row, at)) {
                let outline = bounds.map(|bounds| end.ring(corners(bounds).into_iter())).unwrap_or_default();
                rasters.add(SeenRaster { kind, address: address.to_owned(), outline, code: None });
            }
            let Some(bounds) = bounds else { continue };
            let (x, y) =
                (f64::midpoint(bounds.min_x, bounds.max_x), f64::midpoint(bounds.min_y, bounds.max_y));
            if let Some(place) = end.degrees(x, y) {
                places.add(kind, place);
            }
        }
        for reject in *rejects {
            // Unreadable records have the coordinate reference system of the first step.
            let at = self.ways.iter().position(|(label, _)| *label == reject.stage);
            let at = at.unwrap_or(if reject.stage == "read" { 0 } else { self.ways.len() - 1 });
            let feature = reject.feature();
            if feature.len() > DRAWN_BYTES_MAX {
                continue;
            }
            let json: Json = serde_json::from_str(feature).unwrap_or_default();
            let Some((_, way)) = self.ways.get(at) else { continue };
            let code = reject.problems.first().map(|problem| problem.code);
            let nothing = code == Some(tidegate_core::Code::NO_MATCH);
            let kind = if nothing { PlaceKind::NoMatch } else { PlaceKind::Dead };
            let place = position(&json["geometry"]["coordinates"]);
            if let Some(place) = place.and_then(|(x, y)| way.degrees(x, y)) {
                places.add(kind, place);
            }
            if let Some(address) = rasters.field().and_then(|field| json["properties"][field].as_str()) {
                let outer = &json["geometry"]["coordinates"][0];
                let ring = outer.as_array().into_iter().flatten().filter_map(position);
                rasters.add(SeenRaster {
                    kind,
                    address: address.to_owned(),
                    outline: way.ring(ring),
                    code: code.map(|code| code.as_str().to_owned()),
                });
            }
        }
    }
}

/// The largest rejected record, in bytes, that is read for its place on the map of the run.
const DRAWN_BYTES_MAX: usize = 256 << 10;

/// The first position in nested GeoJSON coordinates.
fn position(json: &Json) -> Option<(f64, f64)> {
    match json.as_array()?.as_slice() {
        [x, y, ..] if x.is_number() => Some((x.as_f64()?, y.as_f64()?)),
        list => list.iter().find_map(position),
    }
}
