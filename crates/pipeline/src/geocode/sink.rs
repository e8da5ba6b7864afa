//! Rows into the output, in the order of the file.
//!
//! The row's own cells come first, as text, then what became of it. Where a name is taken by the
//! file, ours gets `geocode_` in front.

use super::answer::Finished;
use super::dead::Dead;
use super::order::{Credit, Order};
use super::{By, Job, JobError, Run};
use crate::letter::now_ms;
use crate::telemetry::{Ended, Mark, trace};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use tidegate_geo::format::csv::CsvRow;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs, Kind, Schema, Value, format};

/// A row that has ended.
pub(super) struct Out {
    pub(super) row: CsvRow,
    pub(super) finished: Arc<Finished>,
}

/// Between one handful of rows and the next.
const REST: std::time::Duration = std::time::Duration::from_millis(3);

/// Rows between the reader and the output, or KiB of them.
pub(super) const CREDIT: usize = 64 * 1024;
const ROWS_PER_BATCH: usize = 1024;
/// A batch is written when it holds so much text.
const BATCH_BYTES: usize = 4 << 20;

const OURS: [(&str, Kind); 9] = [
    ("outcome", Kind::Text),
    ("label", Kind::Text),
    ("score", Kind::Real),
    ("match_type", Kind::Text),
    ("attempts", Kind::Int),
    ("elapsed_ms", Kind::Int),
    ("cache_hit", Kind::Bool),
    ("error_code", Kind::Text),
    ("error", Kind::Text),
];

/// The output being written.
pub(super) struct Sink {
    writer: Box<dyn format::Writer>,
    batch: Batch,
    bytes: usize,
    cells: usize,
    reverse: Option<(usize, usize)>,
    dead: Option<Dead>,
}

fn schema(header: &[String]) -> Schema {
    let is_in = |names: &[String], name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    let mut names: Vec<String> = Vec::new();
    for (i, name) in header.iter().enumerate() {
        // `lon` and `lat` are what the output itself calls the geometry in CSV.
        let clash = ["lon", "lat", "geom", "fid"].iter().any(|g| name.eq_ignore_ascii_case(g));
        let wanted = match (name.is_empty(), clash) {
            (true, _) => format!("column_{}", i + 1),
            (_, true) => format!("input_{name}"),
            _ => {
                names.push(name.clone());
                continue;
            }
        };
        names.push(free(wanted, |n| is_in(header, n) || is_in(&names, n)));
    }
    for (name, _) in OURS {
        let wanted = if is_in(&names, name) { format!("geocode_{name}") } else { name.to_string() };
        names.push(free(wanted, |n| is_in(&names, n)));
    }
    let kinds = header.iter().map(|_| Kind::Text).chain(OURS.map(|(_, kind)| kind));
    Schema::new(names.into_iter().zip(kinds)).of_shape(Shape::Point)
}

/// The name, or the name with a number, that is not taken.
fn free(name: String, taken: impl Fn(&str) -> bool) -> String {
    if !taken(&name) {
        return name;
    }
    (2u64..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).unwrap_or(name)
}

/// What a row costs of the credit: one, and one more for each KiB of it.
pub(super) fn weight(row: &CsvRow) -> usize {
    (1 + row.bytes() / 1024).min(CREDIT)
}

impl Sink {
    /// Opens the output.
    pub(super) fn open(job: &Job, header: &[String]) -> Result<Sink, JobError> {
        let at = |e: String| JobError::Setup(format!("{}: {e}", job.output.display()));
        if format::Format::of_path(&job.output).is_none() {
            return Err(at("its name must tell the format: .gpkg, .geojson, .geojsonl or .csv".into()));
        }
        let dead = Dead::open(job, header)?;
        let schema = Arc::new(schema(header));
        let options = format::Options::default();
        let writer =
            format::create(&job.output, &schema, &Crs::wgs84(), &options).map_err(|e| at(e.to_string()))?;
        let column = |name: &String| header.iter().position(|h| h.eq_ignore_ascii_case(name));
        let reverse = match &job.by {
            By::Address(_) => None,
            By::Place { lon, lat } => column(lon).zip(column(lat)),
        };
        Ok(Sink { writer, batch: Batch::new(schema), bytes: 0, cells: header.len(), reverse, dead })
    }

    /// Takes rows until there are no more, and says how many it wrote. The file is not yet in its place.
    pub(super) fn take(
        mut self,
        rows: &Receiver<(u64, Out)>,
        credit: &Credit,
        run: &Run,
    ) -> Result<(Sink, u64), JobError> {
        let mut order = Order::default();
        while let Ok((number, out)) = rows.recv() {
            order.put(number, out);
            for (number, out) in rows.try_iter() {
                order.put(number, out);
            }
            let mut left = 0;
            while let Some(out) = order.take() {
                self.push(&out, run)?;
                left += weight(&out.row);
            }
            if left > 0 {
                credit.give(left);
            }
            // To be woken for each row would cost more than to write it.
            std::thread::sleep(REST);
        }
        // Rows that were refused with the whole run are no dead letters.
        if run.is_refused() {
            self.dead = None;
        }
        self.flush(run)?;
        let written = order.left();
        Ok((self, written))
    }

    /// Puts the file in its place.
    pub(super) fn finish(self) -> Result<(), JobError> {
        self.writer.finish().map(|_| ()).map_err(|e| JobError::Broken(e.to_string()))
    }

    fn push(&mut self, out: &Out, run: &Run) -> Result<(), JobError> {
        let Out { row, finished: f } = out;
        let cells = (0..self.cells).map(|i| Value::Text(row.cell(i)));
        let answer = f.answer.as_ref();
        let failed = f.ended == Ended::Failed;
        let ours = [
            Value::Text(f.ended.word()),
            text(answer.and_then(|a| a.label.as_deref())),
            answer.and_then(|a| a.score).map_or(Value::Null, Value::Real),
            text(answer.and_then(|a| a.kind.as_deref())),
            Value::Int(i64::from(f.attempts)),
            Value::Int(f.elapsed.as_millis() as i64),
            Value::Bool(f.cached),
            if failed { Value::Text(f.code.as_str()) } else { Value::Null },
            if failed { Value::Text(&f.message) } else { Value::Null },
        ];
        let asked = self.reverse.and_then(|(lon, lat)| {
            let number = |i: usize| row.cell(i).trim().parse::<f64>().ok().filter(|x| x.is_finite());
            Some((number(lon)?, number(lat)?))
        });
        let point = asked.or_else(|| answer.map(|a| (a.lon, a.lat)));
        let pushed = match point {
            Some((x, y)) => self.batch.push_point(x, y, cells.chain(ours)),
            None => self.batch.push(None, cells.chain(ours)),
        };
        pushed.map_err(|e| JobError::Broken(format!("row {}: {e}", row.number)))?;
        if let Some(point) = point {
            let mark = match f.ended {
                Ended::Matched => Mark::Committed,
                Ended::NoMatch => Mark::NoMatch,
                _ => Mark::Dead,
            };
            run.telemetry.places.add(mark, point);
        }
        if let Some(dead) = &mut self.dead {
            dead.take(row, f, run);
        }
        self.bytes += row.bytes();
        if self.batch.len() >= ROWS_PER_BATCH || self.bytes >= BATCH_BYTES {
            self.flush(run)?;
        }
        Ok(())
    }

    fn flush(&mut self, run: &Run) -> Result<(), JobError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if let Some(dead) = &mut self.dead {
            dead.flush()?;
        }
        let began = Instant::now();
        self.writer.write(&self.batch).map_err(|e| JobError::Broken(e.to_string()))?;
        let (records, took) = (self.batch.len() as u64, began.elapsed());
        run.telemetry.records.committed(records, took, now_ms());
        if let Some(tracer) = trace::tracer() {
            tracer.written(took, records);
        }
        self.batch.clear(0);
        self.bytes = 0;
        Ok(())
    }
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_are_told_apart() {
        let header = ["id", "score", "lon", "", "input_lon", "geocode_score"].map(String::from);
        let names: Vec<String> = schema(&header).fields().iter().map(|f| f.name.to_string()).collect();
        let given = ["id", "score", "input_lon_2", "column_4", "input_lon", "geocode_score"];
        assert_eq!(&names[..6], given);
        assert!(names.contains(&"geocode_score_2".to_string()));
        assert!(names.contains(&"outcome".to_string()));
    }
}
