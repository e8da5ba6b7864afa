//! Selects how the letters of a pipeline are replayed.

use serde_json::Value;
use tidegate_ledger::letter::replay::{IntoFile, Rerun};
use tidegate_pipeline::run::{ManifestReplay, letters};

use crate::verb::calls;

/// The replay of a pipeline, from the specification stored when it ran.
pub(super) fn of(spec: &str, rate: Option<&str>) -> Result<Box<dyn Rerun>, String> {
    let spec: Value = serde_json::from_str(spec).map_err(|e| e.to_string())?;
    match spec["kind"].as_str() {
        Some("features") => {
            let output = spec["output"].as_str().ok_or("the output of the pipeline is unknown")?;
            Ok(Box::new(IntoFile { output: output.into() }))
        }
        Some(letters::KIND) => {
            let rate_max = rate.map(calls::rate).transpose()?;
            Ok(Box::new(ManifestReplay::new(spec, rate_max)?))
        }
        kind => Err(format!(
            "this version cannot replay letters of pipelines of kind {kind:?}; run the pipeline again"
        )),
    }
}
