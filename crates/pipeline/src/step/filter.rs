//! filter: records for which an expression is not true go.

use tidegate_geo::Batch;
use tidegate_geo::filter;

use super::{Aside, Flow, Step, StepError};

struct FilterStep {
    filter: filter::Filter,
}

pub(super) fn build(text: &str, flow: &Flow) -> Result<Box<dyn Step>, String> {
    let expr = filter::parse(text).map_err(|fault| fault.to_string())?;
    if let Some(name) = expr.unknown(&flow.schema) {
        flow.field(name)?;
    }
    let filter = filter::Filter::new(text, &flow.schema).map_err(|problem| problem.message)?;
    Ok(Box::new(FilterStep { filter }))
}

impl Step for FilterStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut refused = Vec::new();
        let mut keep = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            match self.filter.is_true(&batch, row) {
                Ok(is_true) => keep.push(is_true),
                Err(problem) => {
                    // Kept here, so that it is set aside and not filtered.
                    keep.push(true);
                    refused.push((row, problem));
                }
            }
        }
        aside.filtered += keep.iter().filter(|keep| !**keep).count() as u64;
        let mut stays: Vec<bool> = keep.clone();
        refused.iter().for_each(|(row, _)| {
            if let Some(flag) = stays.get_mut(*row) {
                *flag = false;
            }
        });
        if !refused.is_empty() {
            drop(aside.set_aside(batch.clone(), refused));
        }
        Ok(batch.filter(&stays))
    }
}
