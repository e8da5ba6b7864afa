//! Checks the coordinates of a source against the coordinate reference system that it declares,
//! page by page.
//!
//! A wrong declaration does not show in a single row, and a sink accepts it silently. So the
//! bounding box of every page is checked before the page continues, and a contradiction ends the
//! run before that page is committed. `source.trust_crs` disables the check.

use tidegate_geo::crs::Plausibility;
use tidegate_geo::format::Layer;
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Bounds, Crs};

use super::source::{Left, Page, Source, Told};
use crate::manifest;
use crate::source::IdentifierHash;
use crate::step::{self, StepError};

/// The advice if the coordinates are right nevertheless.
const ACCEPT: &str = "to accept them, set `source.trust_crs: true` (`fetch --trust-crs`)";

struct Plausible {
    source: Box<dyn Source>,
    plausibility: Plausibility,
    /// Whether the source was asked for the extent that it declares.
    asked: bool,
}

/// Adds the check to a source, unless the manifest trusts it.
pub(super) fn watched(
    source: Box<dyn Source>,
    pipeline: &manifest::Pipeline,
    declared: Option<&Crs>,
) -> Result<Box<dyn Source>, String> {
    // The tasks of a queue are judged one by one.
    if source.is_endless() || pipeline.source.as_ref().is_some_and(|form| form.trust_crs) {
        return Ok(source);
    }
    // An explicit coordinate reference system overrides that of the source.
    let first = pipeline.steps.iter().find(|form| form.set_crs.is_some() || form.reproject.is_some());
    let crs = match first.and_then(|form| form.set_crs.as_deref()) {
        Some(name) => Some(step::crs(name)?),
        None => declared.cloned(),
    };
    let Some(crs) = crs else { return Ok(source) };
    let plausibility = Plausibility::new(&crs).accepted_by(ACCEPT);
    Ok(Box::new(Plausible { source, plausibility, asked: false }))
}

impl Source for Plausible {
    fn layer(&self) -> &Layer {
        self.source.layer()
    }

    fn shape(&self) -> Option<Shape> {
        self.source.shape()
    }

    fn stamp(&self) -> String {
        self.source.stamp()
    }

    fn seek(&mut self, position: &str, marks: Vec<IdentifierHash>) -> Result<(), StepError> {
        self.source.seek(position, marks)
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        let page = self.source.next()?;
        if !self.asked {
            self.asked = true;
            if let Some(extent) = self.source.extent() {
                self.plausibility.expect(extent);
            }
        }
        if let Some(page) = &page {
            self.plausibility.see_batch(&page.batch).map_err(|problem| {
                let said = format!("{} ({})", problem.message, problem.code);
                StepError::Failed { code: problem.code, said }
            })?;
        }
        Ok(page)
    }

    fn is_endless(&self) -> bool {
        self.source.is_endless()
    }

    fn extent(&self) -> Option<Bounds> {
        self.source.extent()
    }

    fn told(&self) -> Option<Told> {
        self.source.told()
    }

    fn left(&self) -> Option<Left> {
        self.source.left()
    }
}
