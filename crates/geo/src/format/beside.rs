//! Reading and writing on two threads, with a bounded queue of batches between them.

use std::sync::mpsc::sync_channel;

use tidegate_core::Code;

use super::{Reader, Rejected};
use crate::batch::Batch;
use crate::error::{Error, Problem};

/// Capacity of the queue, in batches.
const WAITING: usize = 2;

/// Reads to the end and applies `work` to each batch on another thread, and passes the result to `put` on
/// this one, with the rejected records. The last call may have only those.
///
/// # Errors
/// The first error of reading, `work` or `put`.
pub fn beside(
    mut reader: Box<dyn Reader>,
    mut work: impl FnMut(Batch, &mut Vec<Rejected>) -> Result<Batch, Error> + Send,
    mut put: impl FnMut(Option<Batch>, Vec<Rejected>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || {
            loop {
                let mut rejected = Vec::new();
                let made = match reader.next_batch(&mut rejected) {
                    Ok(Some(batch)) => work(batch, &mut rejected).map(Some),
                    other => other,
                };
                let last = !matches!(made, Ok(Some(_)));
                if sender.send(made.map(|batch| (batch, rejected))).is_err() || last {
                    break;
                }
            }
        });
        for made in receiver {
            let (batch, rejected) = made?;
            put(batch, rejected)?;
        }
        producer.join().map_err(|_| Error::from(Problem::new(Code::UNKNOWN, "the reading thread failed")))
    })
}
