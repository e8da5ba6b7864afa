//! The rows of the file, each with its question and what the cache knows about it.

use super::answer::{Finished, Kept};
use super::hand::Giver;
use super::order::Credit;
use super::sink::weight;
use super::{By, Job, JobError, Run};
use crate::cache::{CacheKey, CacheReader};
use crate::http::Request;
use crate::profile::{self, GeocodeInput};
use crate::spool::Spool;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use tidegate_core::Code;
use tidegate_core::suggest::nearest;
use tidegate_geo::format::csv::{CsvRow, Rewind, RowReader};

/// A row on its way.
pub(super) struct Item {
    pub(super) row: CsvRow,
    pub(super) step: Step,
}

/// What is to be done with a row.
pub(super) enum Step {
    /// Nothing: it cannot be asked, or has been.
    Ready(Finished),
    /// Ask.
    Ask(Box<Request>, CacheKey),
}

/// The opened input.
pub(super) struct Source {
    csv: RowReader<Box<dyn Rewind + Send>>,
    columns: Vec<usize>,
}

impl Source {
    /// Opens the input and finds the columns.
    pub(super) fn open(job: &Job) -> Result<(Source, u64), JobError> {
        let at = |what: String| JobError::Setup(format!("{}: {what}", job.input.display()));
        let (input, size): (Box<dyn Rewind + Send>, u64) = if job.input == Path::new("-") {
            (Box::new(Spool::new(std::io::stdin()).map_err(|e| at(format!("it cannot be kept: {e}")))?), 0)
        } else {
            let file = File::open(&job.input).map_err(|e| at(e.to_string()))?;
            let about = file.metadata().map_err(|e| at(e.to_string()))?;
            if about.is_dir() {
                return Err(at("it is a directory".into()));
            }
            (Box::new(file), about.len())
        };
        let csv = RowReader::open(input, &job.csv).map_err(|e| at(e.to_string()))?;
        let wanted: Vec<&str> = match &job.by {
            By::Address(columns) => columns.iter().map(String::as_str).collect(),
            By::Place { lon, lat } => vec![lon, lat],
        };
        let columns =
            wanted.iter().map(|name| find(csv.header(), name).map_err(&at)).collect::<Result<_, _>>()?;
        Ok((Source { csv, columns }, size))
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        self.csv.header()
    }

    /// Reads all rows, each for its credit, and hands them on. Ends early when nobody takes them.
    pub(super) fn read(
        mut self,
        job: &Job,
        run: &Run,
        credit: &Credit,
        cache: Option<&CacheReader>,
        mut giver: Giver,
    ) -> Result<(), JobError> {
        let asker = Asker::new(job).map_err(JobError::Setup)?;
        let mut row = CsvRow::default();
        loop {
            let more = self
                .csv
                .read(&mut row)
                .map_err(|e| JobError::Broken(format!("{}: line {}: {e}", job.input.display(), row.line)))?;
            let weight = weight(&row);
            // What is gathered has credit that a large row may have to wait for.
            if weight > 1 {
                giver.flush();
            }
            if !more || run.is_stopping() || !credit.take(weight) {
                return Ok(());
            }
            run.telemetry.records.read(1);
            run.bytes.0.store(self.csv.offset(), Ordering::Relaxed);
            let step = match self.question(&row, job, &asker) {
                Err(finished) => Step::Ready(*finished),
                Ok(request) => {
                    let key = request.idempotency_key.unwrap_or_else(|| request.key_bytes());
                    match cache.map(|c| asker.look(c, &key)).transpose()?.flatten() {
                        Some(finished) => Step::Ready(finished),
                        None => Step::Ask(Box::new(request), key),
                    }
                }
            };
            if !giver.give(Item { row: row.clone(), step }) {
                return Ok(());
            }
        }
    }

    /// The question about a row, or why there is none.
    fn question(&self, row: &CsvRow, job: &Job, asker: &Asker<'_>) -> Result<Request, Box<Finished>> {
        let place = |column: Option<usize>| match column.and_then(|c| self.csv.header().get(c)) {
            Some(name) => format!("row {} (line {}), column {name:?}", row.number, row.line),
            None => format!("row {} (line {})", row.number, row.line),
        };
        let bad = |code, column, what: String| {
            Box::new(Finished::failed(code, format!("{}: {what}", place(column))))
        };
        // A row with a problem is asked all the same if the problem is not where we look.
        if let Some(problem) = &row.problem {
            let concerns = problem.column().is_none_or(|c| self.columns.contains(&c));
            if concerns {
                return Err(bad(Code::SCHEMA_MISMATCH, problem.column(), problem.to_string()));
            }
        }
        match &job.by {
            By::Address(_) => {
                let parts: Vec<&str> = self
                    .columns
                    .iter()
                    .map(|&c| row.cell(c).trim())
                    .filter(|part| !part.is_empty())
                    .collect();
                let address = parts.join(", ");
                if address.is_empty() {
                    return Err(bad(
                        Code::BAD_REQUEST,
                        self.columns.first().copied(),
                        "the address is empty".into(),
                    ));
                }
                asker.request(GeocodeInput::Forward(&address)).map_err(|e| bad(Code::BAD_REQUEST, None, e))
            }
            By::Place { .. } => {
                let number = |i: usize| {
                    let column = self.columns.get(i).copied();
                    let text = column.map_or("", |c| row.cell(c).trim());
                    match text.parse::<f64>() {
                        Ok(x) if x.is_finite() => Ok(x),
                        _ => Err(bad(Code::BAD_REQUEST, column, format!("{text:?} is not a coordinate"))),
                    }
                };
                let (lon, lat) = (number(0)?, number(1)?);
                asker.request(GeocodeInput::Reverse { lon, lat }).map_err(|e| bad(Code::BAD_REQUEST, None, e))
            }
        }
    }
}

/// What makes requests and looks answers up.
struct Asker<'a> {
    job: &'a Job,
    asker: profile::ProfileRequestBuilder,
    id: u64,
    now_ms: i64,
}

impl<'a> Asker<'a> {
    fn new(job: &'a Job) -> Result<Asker<'a>, String> {
        let asker = job.profile.asker(job.key.as_ref())?;
        Ok(Asker { job, asker, id: super::work::job_id(job), now_ms: super::work::now_ms() })
    }

    fn request(&self, what: GeocodeInput<'_>) -> Result<Request, String> {
        self.asker.request(&self.job.ask(what))
    }

    /// What the cache knows: an answer that is young enough, or a failure of this very job.
    fn look(&self, cache: &CacheReader, key: &CacheKey) -> Result<Option<Finished>, JobError> {
        let stored = cache.get(key).map_err(|e| JobError::Broken(e.to_string()))?;
        Ok(stored.and_then(|stored| {
            let young = self.now_ms.saturating_sub(stored.at_ms) <= self.job.ttl.as_millis() as i64;
            let ours = self.job.resume && stored.job == self.id;
            let usable = if stored.failed { ours } else { ours || young };
            let finished =
                usable.then(|| Kept::from_bytes(&stored.answer)).flatten()?.finish(&self.job.profile)?;
            Some(Finished { cached: true, ..finished })
        }))
    }
}

/// The place of a column by its name, or what it may have been meant to be.
fn find(header: &[String], name: &str) -> Result<usize, String> {
    let exact = header.iter().position(|h| h == name);
    let loose = || header.iter().position(|h| h.eq_ignore_ascii_case(name));
    exact.or_else(loose).ok_or_else(|| {
        let hint = match nearest(name, header.iter().map(String::as_str)) {
            Some(h) => format!("did you mean {h:?}?"),
            None => format!("it has {}", header.join(", ")),
        };
        format!("there is no column {name:?}; {hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn columns_are_found_or_suggested() {
        let header = ["Street".to_string(), "city".to_string()];
        assert_eq!(find(&header, "city"), Ok(1));
        assert_eq!(find(&header, "street"), Ok(0));
        assert!(find(&header, "citty").unwrap_err().contains("did you mean \"city\"?"));
        assert!(find(&header, "zip").unwrap_err().contains("it has Street, city"));
    }
}
