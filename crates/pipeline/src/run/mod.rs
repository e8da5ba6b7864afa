//! A run: from source through steps and gates into the sink, completely or with an error.
//!
//! ```text
//!   source (thread)      steps and gates (thread)            sink (this thread)
//!   pages            ──▶ batches, judged; one held back  ──▶ rejects durable, then rows and
//!                        until the next one has come         checkpoint in one transaction
//! ```
//!
//! Both queues hold two batches, and a step that calls a service as many as its window admits, so
//! memory does not depend on the size of the source. One batch is held back, so that the gates on
//! the whole run are evaluated before the last commit. The counts are part of the checkpoint: after
//! any number of kills and resumes they are those of one run.
//!
//! | file | holds |
//! |---|---|
//! | `build` | builds the parts of a manifest |
//! | [`source`], `csv_rows`, `table`, `paged` | the sources: files, tables, services |
//! | `service` | builds the job for a service of the manifest |
//! | `fetched` | downloads files from web servers and buckets |
//! | `spooled` | downloads all pages of a service before they are read |
//! | `described` | the description of a source when the run began |
//! | `definition` | what a letter store says of a pipeline, and the pipeline that a person named |
//! | [`rejects`], [`letters`] | stores rejected records: a file, or the store of dead letters |
//! | [`auto`] | repairs and replays letters unasked |
//! | `replay`, `in_place` | replays dead letters into the sink, or into their row there |
//! | `fitting` | fits repaired geometries into what the sink holds |
//! | `payload` | reads the payload of a letter as the record that it was at its stage |
//! | `lifecycle` | the states of a run, one type each; its id, durable before the first I/O |
//! | `state`, `last` | lock and files; the last runs, for monitoring |
//! | `in_work`, `alone` | the records in work when the process died; tries them alone, in a process of their own |
//! | `begin` | decides: continue the unfinished run, or start a new one |
//! | `counts` | the outcomes of the records |
//! | `drive` | drives the run: its starting point, its threads, its result |
//! | `transform` | the second thread: steps and gates |
//! | `stream` | the threads before it, one for each step that calls a service |
//! | `landing`, `row_keys` | the third: rejects, rows and checkpoint; the rows of rejected records |
//! | `report` | the result of a run |
//! | `plan` | plans a run without executing it |

mod alone;
mod answers;
mod assets;
pub mod auto;
mod begin;
mod build;
mod counts;
pub(crate) mod crash;
mod csv_rows;
mod definition;
mod described;
mod drive;
mod fetched;
mod fitting;
mod in_place;
mod in_work;
mod landing;
mod last;
pub mod letters;
mod lifecycle;
mod paged;
mod patience;
mod payload;
mod plan;
mod plausible;
mod rasters;
pub mod rejects;
mod replay;
mod report;
mod row_keys;
mod service;
mod since;
pub mod source;
mod spooled;
mod state;
mod stream;
#[cfg(not(feature = "postgres"))]
#[path = "no_table.rs"]
mod table;
#[cfg(feature = "postgres")]
mod table;
mod trail;
mod transform;

pub use alone::{PoisonRecord, TRY_VERB, try_records};
pub use build::{PipelineParts, build, look};
pub(crate) use build::{grids, step_label};
pub use counts::RecordCounts;
pub use csv_rows::{csv_delimiter, csv_encoding, csv_fields, csv_header};
pub use definition::{DefinitionKind, NamedPipeline, StoredDefinition, of_capture};
pub use described::Described;
pub use drive::{RunOptions, RunWatch, run};
pub use last::{HaltedBy, LastRun, last_runs};
pub use lifecycle::{Last, RunEntry, RunStatus, Unfinished};
pub(crate) use patience::patiently;
pub use plan::{PagePlan, Plan, RetryPlan, ServiceLoad, plan};
pub use replay::ManifestReplay;
pub use report::{Began, End, RunError, RunReport, operation};
pub use state::{RunCheckpoint, StateDir, StateError};
pub use trail::{AUDIT_COPIES, AUDIT_FILE, PendingEntries};
