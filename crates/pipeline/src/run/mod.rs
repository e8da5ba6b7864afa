//! A run: from source through steps and gates into the sink, completely or loudly not.
//!
//! ```text
//!   source (thread)      steps and gates (thread)            sink (this thread)
//!   pages            ──▶ batches, judged; one held back  ──▶ rejects durable, then rows and
//!                        until the next one has come         checkpoint in one transaction
//! ```
//!
//! Both queues hold two batches, and a step that asks a service as many as its window admits, so
//! memory does not depend on the source. One batch is held back so that the gates on the whole run
//! are asked before the last commit. The counts travel with the checkpoint: after any number of
//! kills and resumes they are those of one run.
//!
//! | file | holds |
//! |---|---|
//! | `build` | from a manifest to its parts |
//! | [`source`], `csv_rows`, `table`, `paged` | where pages come from: files, tables, services |
//! | `service` | from a service of the manifest to a job |
//! | `fetched` | files of web servers and buckets |
//! | `spooled` | pages of services that are kept before they are read |
//! | `described` | what a source said of itself when the run began |
//! | [`rejects`], [`letters`] | where rejected records go: a file, or the store of dead letters |
//! | `replay`, `in_place` | dead letters back into the sink, or into the row that they have there |
//! | `lifecycle` | the states of a run, one type each; its id, durable before the first I/O |
//! | `state`, `last` | lock and files; the results as others read them |
//! | `begin` | continue the unfinished run, or start a new one |
//! | `counts` | what became of the records |
//! | `drive` | the run: what it starts from, its threads, what it leaves |
//! | `transform` | the second thread: steps and gates |
//! | `stream` | the threads before it, one for each step that asks a service |
//! | `landing` | the third: rejects, rows and checkpoint |
//! | `report` | how it ended |
//! | `plan` | what would happen |

mod begin;
mod build;
mod counts;
mod crash;
mod csv_rows;
mod described;
mod drive;
mod fetched;
mod in_place;
mod landing;
mod last;
pub mod letters;
mod lifecycle;
mod paged;
mod plan;
mod plausible;
pub mod rejects;
mod replay;
mod report;
mod service;
pub mod source;
mod spooled;
mod state;
mod stream;
#[cfg(feature = "postgres")]
mod table;
mod trail;
mod transform;

pub(crate) use build::grids;
pub use build::{PipelineParts, build, look};
pub use counts::RecordCounts;
pub use csv_rows::{csv_delimiter, csv_encoding, csv_fields, csv_header};
pub use described::Described;
pub use drive::{RunOptions, RunWatch, run};
pub use last::{HaltedBy, LastRun, last_runs};
pub use lifecycle::{Last, RunEntry, RunStatus, Unfinished};
pub use plan::{PagePlan, Plan, ServiceLoad, plan};
pub use replay::ManifestReplay;
pub use report::{Began, End, RunError, RunReport, operation};
pub use state::{RunCheckpoint, StateDir, StateError};
pub use trail::{AUDIT_COPIES, AUDIT_FILE, PendingEntries};
