//! A layer of a remote service as the source of a run.
//!
//! A page is a batch: it is committed together with the position after it, so that a killed run
//! does not request a committed page again. Hashes of ids that are not numbers do not fit into the
//! position; they are committed beside it as seen keys. The service is not called before the first
//! page is needed, unless its fields are unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_geo::Bounds;
use tidegate_geo::format::Layer;
use tidegate_geo::wkb::Shape;
use tokio::runtime::Runtime;

use super::described::Described;
use super::source::{Left, Page, Source, Told};
use crate::lane::Clock;
use crate::source::{IdentifierHash, Job, LayerBefore, Position, SourceError, Trouble};
use crate::step::StepError;
use crate::traffic::Traffic;

/// How often a wait checks whether the run is to stop.
const LOOK: Duration = Duration::from_millis(100);

pub(super) type Make = Box<dyn Fn() -> Result<Job, String> + Send>;

/// Reads a layer of a service.
pub(super) struct Paged {
    open: Option<Box<dyn crate::source::FeatureSource>>,
    runtime: Arc<Runtime>,
    make: Make,
    known: LayerBefore,
    layer: Layer,
    shape: Option<Shape>,
    id: String,
    /// The number of records received by an earlier attempt at this run.
    resumed: u64,
    stop: Arc<AtomicBool>,
}

/// The error of a source as the error of a step.
pub(super) fn stuck(error: SourceError) -> StepError {
    match error.trouble {
        Trouble::TryLater(until) => StepError::TryLater { code: error.code, until, said: error.message },
        // No end is known: it may be called again at once.
        Trouble::Down => {
            let (code, said) = (error.code, error.to_string());
            StepError::TryLater { code, until: Clock::system().wall(), said }
        }
        Trouble::Broken | Trouble::Mismatch => {
            StepError::Failed { code: error.code, said: error.to_string() }
        }
        Trouble::Setup | Trouble::Disk => StepError::Broken(error.to_string()),
    }
}

/// Waits for a future, unless the run is stopped.
pub(super) async fn unless<T>(
    stop: &AtomicBool,
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, StepError> {
    tokio::pin!(work);
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(done) => return done.map_err(stuck),
            Err(_) if stop.load(Ordering::Relaxed) => return Err(StepError::Cancelled),
            Err(_) => {}
        }
    }
}

impl Paged {
    /// A layer, with the description of an earlier run. If only `changes` are read, that one has read
    /// other records of it, and its fields hold all the same.
    pub(super) fn new(
        make: Make,
        (described, changes): (Option<&Described>, bool),
        stop: Arc<AtomicBool>,
        traffic: &Traffic,
    ) -> Result<Paged, StepError> {
        let broken = StepError::Broken;
        let job = make().map_err(broken)?;
        let id = job.id();
        let runtime = traffic.runtime()?;
        if let Some(described) = described.filter(|described| changes || described.stamp == id) {
            let mut layer = described.layer()?;
            layer.records = layer.records.filter(|_| !changes);
            let (shape, crs) = (described.shape(), layer.crs.clone());
            let known = LayerBefore { schema: Some(layer.schema.clone()), shape, crs, marks: Vec::new() };
            return Ok(Paged { open: None, runtime, make, known, layer, shape, id, resumed: 0, stop });
        }
        let open =
            runtime.block_on(unless(&stop, job.source(Clock::system(), None, LayerBefore::default())))?;
        let (layer, shape) = (open.layer().clone(), open.shape());
        let known = LayerBefore {
            schema: Some(layer.schema.clone()),
            shape,
            crs: layer.crs.clone(),
            marks: Vec::new(),
        };
        Ok(Paged { open: Some(open), runtime, make, known, layer, shape, id, resumed: 0, stop })
    }

    fn connect(&mut self, from: Option<Position>, marks: Vec<IdentifierHash>) -> Result<(), StepError> {
        // End the requests of the previous position first.
        self.open = None;
        let job = (self.make)().map_err(StepError::Broken)?;
        let known = LayerBefore { marks, ..self.known.clone() };
        let open = self.runtime.block_on(unless(&self.stop, job.source(Clock::system(), from, known)))?;
        self.open = Some(open);
        Ok(())
    }
}

impl Source for Paged {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn shape(&self) -> Option<Shape> {
        self.shape
    }

    fn stamp(&self) -> String {
        self.id.clone()
    }

    fn extent(&self) -> Option<Bounds> {
        self.open.as_ref()?.extent()
    }

    fn seek(&mut self, position: &str, marks: Vec<IdentifierHash>) -> Result<(), StepError> {
        let from = Position::from_json(position)?;
        self.resumed = from.tally.received;
        self.connect(Some(from), marks)
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        if self.open.is_none() {
            self.connect(None, Vec::new())?;
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let chunk = self.runtime.block_on(unless(&self.stop, open.next()))?;
        let Some(mut chunk) = chunk else { return Ok(None) };
        chunk.batch.count_from(chunk.first_record);
        for rejected in &mut chunk.rejected {
            rejected.record += chunk.first_record;
            for problem in &mut rejected.problems {
                problem.record = problem.record.map(|record| record + chunk.first_record);
            }
        }
        let position = chunk.position.to_json();
        Ok(Some(Page { batch: chunk.batch, rejected: chunk.rejected, position, marks: chunk.marks }))
    }

    fn left(&self) -> Option<Left> {
        let (requests, page) = self.open.as_ref()?.foreseen();
        Some(Left { requests, page })
    }

    fn told(&self) -> Option<Told> {
        let open = self.open.as_ref()?;
        let mut told = Told { layer: self.layer.name.clone(), resumed: self.resumed, ..Told::default() };
        told.tally(&open.tally(), open.agreement());
        told.sent(open.wire());
        Some(told)
    }
}
