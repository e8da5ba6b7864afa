//! A manifest from memory: a CSV file into a GeoPackage, filtered on the way.
//!
//! ```sh
//! cargo run -p tidegate-pipeline --example run
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tidegate_pipeline::manifest;
use tidegate_pipeline::run::{self, End, RunOptions, RunWatch};

const MANIFEST: &str = "
version: 1
pipeline:
  id: parcels
  retry_policy: {max_attempts: 5, base_delay: 1s, retryable_status_codes: [429, 503]}
  tolerance: {max_null_rate: 0.05, halt_on_geometry_invalid: true}
  source: {file: parcels.csv}
  steps: [{filter: 'id > 1'}]
  sink: {file: parcels.gpkg, key: [id]}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("parcels.csv"), "id,lon,lat\n1,16.37,48.21\n2,16.38,48.20\n")?;
    let manifest = manifest::from_bytes("parcels.yaml", MANIFEST.as_bytes()).map_err(|e| format!("{e:?}"))?;
    let (folder, state) = (dir.path().to_owned(), dir.path().join("state"));
    let options = RunOptions {
        folder,
        state,
        resume: true,
        atomic: false,
        keep_going: false,
        full: false,
        from_options: false,
        program: None,
        tasks: None,
    };
    let report = run::run(&manifest, &options, &RunWatch::default()).map_err(|e| e.to_string())?;
    println!("{:?}: {} read, {} written", report.end, report.counts.read, report.counts.written());
    assert_eq!((report.end, report.counts.filtered, report.sink_rows), (End::Done, 1, Some(1)));
    Ok(())
}
