//! A run: from source through steps and gates into the sink, completely or loudly not.
//!
//! ```text
//!   source (thread)      steps and gates (thread)            sink (this thread)
//!   pages            ──▶ batches, judged; one held back  ──▶ rejects durable, then rows and
//!                        until the next one is there         checkpoint in one transaction
//! ```
//!
//! Both queues hold two batches, so memory does not depend on the source. One batch is held back
//! so that the gates on the whole run are asked before the last commit. The counts travel with the
//! checkpoint: after any number of kills and resumes they are those of one run.
//!
//! | file | holds |
//! |---|---|
//! | `build` | from a manifest to its parts |
//! | [`source`], `table` | where pages come from |
//! | [`rejects`] | where rejected records go |
//! | `state` | lock, checkpoint, result |
//! | `counts` | what became of the records |
//! | `drive` | the three threads |
//! | `plan` | what would happen |

mod build;
mod counts;
mod crash;
mod drive;
mod plan;
pub mod rejects;
pub mod source;
mod state;
mod table;

pub use build::{Parts, build};
pub use counts::Counts;
pub use drive::{End, Options, Report, RunError, Watch, run};
pub use plan::{Plan, plan};
pub use state::{Checkpoint, State, Status};
