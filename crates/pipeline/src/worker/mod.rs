//! Workers: pipelines whose source is a queue.
//!
//! A worker takes the one path of a run, with a queue as its source: a message is a task, a task is
//! one record or a few. What a run has that ends, a worker has that does not: its pages are committed
//! as they come, and what it has committed it acknowledges.
//!
//! ```text
//!   queue ─receive─▶ inbox ─claim─▶ page ─▶ steps, gates ─▶ sink: rows and ends of tasks ─▶ acknowledge
//!           leased            running                       committed                       acknowledged
//! ```
//!
//! The three rules behind it:
//!
//! - Nobody but the sink knows whether a task was done ([`crate::sink::TaskTable`]). The end of a task
//!   and its rows are one transaction, and the token of the claim is checked in it.
//! - A message is acknowledged after that, never before. What is not acknowledged comes again and
//!   changes nothing.
//! - What is received is held under a lease that is extended while it waits or is worked on. So no more is
//!   received than fits.
//!
//! | file | holds |
//! |---|---|
//! | `desk` | the tasks of one pipeline: received, in work, committed |
//! | `feed` | the threads of one queue: receive, extend leases, acknowledge |
//! | `link` | what a run knows of its desk |
//! | `source` | the tasks as pages of a run |
//! | `records` | from the payload of a task to records |
//! | `serve` | runs pipelines until they are told to stop |

mod desk;
mod feed;
mod link;
mod records;
mod serve;
mod source;

pub use desk::{DeskCounts, TaskDesk};
pub use link::TaskLink;
pub use serve::{PipelineEnd, WorkerJob, WorkerOptions, address_of, run_once, serve, worker_name};

pub(crate) use source::{QueueSource, layer_of};
