//! The writer of letters: [`Letters`].
//!
//! A pipeline puts letters and waits until they are durable; only then may it acknowledge the
//! records to the source. One thread writes: it takes everything queued, from any number of
//! producers, and commits it in one transaction while the next batch queues. So 64 producers of
//! single letters share one commit. After a failed commit the writer refuses all further letters:
//! nothing more may be acknowledged.

use super::envelope::Letter;
use super::error::{LetterError, Result};
use super::seal::Recipient;
use super::store::{LetterStore, LetterStoreLocation, Packed, Put};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_client::lock::lock;
use tidegate_core::Rng;
use tidegate_core::letter::{LetterId, LetterIds};
use tidegate_core::quote::shell;

/// The most letters in one transaction.
const COMMIT_MAX: usize = 4096;
/// The most batches in the queue; a producer waits while it is full.
const QUEUE: usize = 1024;
/// The fill level, as a fraction of the capacity, at which a warning is given.
const WARN_AT: f64 = 0.7;

/// The current time, in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

/// The reply to a put: the result for each letter.
type PutReply = tokio::sync::oneshot::Sender<Result<Vec<Put>>>;

/// A command to the writer thread.
enum LetterCommand {
    Put(Vec<Packed>, PutReply),
    Close,
}

/// A handle to the writer. All clones share one writer thread.
#[derive(Clone)]
pub struct Letters {
    inner: Arc<LetterWriterInner>,
}

struct LetterWriterInner {
    place: LetterStoreLocation,
    commands: SyncSender<LetterCommand>,
    recipient: Option<Recipient>,
    names: Mutex<(LetterIds, Rng)>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    warning: Option<String>,
}

impl std::fmt::Debug for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letters").field("place", &self.inner.place).finish_non_exhaustive()
    }
}

/// A receipt for letters being written; wait for it before acknowledging the source.
#[derive(Debug)]
#[must_use = "letters are durable when this has been waited for"]
pub struct LetterTicket(tokio::sync::oneshot::Receiver<Result<Vec<Put>>>);

impl LetterTicket {
    /// Blocks until the letters are durable.
    ///
    /// # Errors
    /// When the letters could not be stored: acknowledge nothing, and stop.
    pub fn wait(self) -> Result<Vec<Put>> {
        self.0.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits until the letters are durable, on tokio.
    ///
    /// # Errors
    /// As [`LetterTicket::wait`].
    pub async fn done(self) -> Result<Vec<Put>> {
        self.0.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> LetterError {
    LetterError::Store("its writer has stopped; acknowledge nothing".into())
}

impl Letters {
    /// Opens the store, purges letters whose retention has ended, and starts the writer.
    ///
    /// # Errors
    /// When the store cannot be created, reached or verified.
    pub fn open(place: &LetterStoreLocation) -> Result<Letters> {
        let mut store = LetterStore::open(place)?;
        store.retain(now_ms(), &[])?;
        let recipient = store.setting("recipient")?.map(|text| Recipient::from_text(&text)).transpose()?;
        let (held, capacity) = (store.count(&super::LetterFilter::default())?, store.capacity()?);
        let warning = (held as f64 > capacity as f64 * WARN_AT).then(|| {
            format!(
                "the dead letter store {place} holds {held} of {capacity} letters; archive and purge letters"
            )
        });
        let (commands, received) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("letters".into())
            .spawn(move || write(store, &received, held, capacity))
            .map_err(|e| LetterError::Store(e.to_string()))?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|e| LetterError::Store(e.to_string()))?;
        let names = Mutex::new((LetterIds::default(), Rng::new(u64::from_le_bytes(seed))));
        let thread = Mutex::new(Some(thread));
        Ok(Letters {
            inner: Arc::new(LetterWriterInner {
                place: place.clone(),
                commands,
                recipient,
                names,
                thread,
                warning,
            }),
        })
    }

    /// A warning if the store is nearly full.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.inner.warning.as_deref()
    }

    /// A new id for a letter.
    #[must_use]
    pub fn name(&self) -> LetterId {
        let mut names = lock(&self.inner.names);
        let (ids, rng) = &mut *names;
        ids.next(now_ms(), rng)
    }

    /// Queues letters to be stored, all or none. Those without an id get one. It blocks while the
    /// queue is full; the ticket resolves when they are durable.
    pub fn put(&self, letters: &[Letter]) -> LetterTicket {
        self.put_all(letters.to_vec())
    }

    /// As [`Letters::put`], for letters that the caller needs no more: their payloads are not copied.
    pub fn put_all(&self, letters: Vec<Letter>) -> LetterTicket {
        let (answer, ticket) = tokio::sync::oneshot::channel();
        let packed: Result<Vec<Packed>> = letters
            .into_iter()
            .map(|letter| {
                let id = if letter.id == LetterId(0) { self.name() } else { letter.id };
                Packed::new(letter, id, self.inner.recipient.as_ref())
            })
            .collect();
        match packed {
            // A failed send means that nobody waits any more.
            Err(why) => drop(answer.send(Err(why))),
            Ok(packed) => {
                if let Err(std::sync::mpsc::SendError(LetterCommand::Put(_, answer))) =
                    self.inner.commands.send(LetterCommand::Put(packed, answer))
                {
                    drop(answer.send(Err(gone())));
                }
            }
        }
        LetterTicket(ticket)
    }

    /// Packs a letter for methods of [`LetterStore`] that store it in a larger transaction.
    pub(super) fn pack(&self, letter: &Letter) -> Result<Packed> {
        Packed::new(letter.clone(), self.name(), self.inner.recipient.as_ref())
    }

    /// Writes the queued letters and stops the writer.
    pub fn close(&self) {
        let _ = self.inner.commands.send(LetterCommand::Close);
        let thread = lock(&self.inner.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn write(mut store: LetterStore, commands: &Receiver<LetterCommand>, mut held: u64, capacity: u64) {
    let mut dead: Option<LetterError> = None;
    let mut open = true;
    while open {
        let Ok(first) = commands.recv() else { return };
        let mut batch: Vec<(Vec<Packed>, PutReply)> = Vec::new();
        let mut count = 0;
        let mut next = Some(first);
        while let Some(command) = next.take() {
            match command {
                LetterCommand::Put(rows, answer) => {
                    count += rows.len();
                    batch.push((rows, answer));
                }
                LetterCommand::Close => open = false,
            }
            if open && count < COMMIT_MAX {
                next = commands.try_recv().ok();
            }
        }
        if dead.is_none() && held + count as u64 > capacity {
            dead = Some(LetterError::Full(format!(
                "the dead letter store is full: {held} letters, capacity {capacity}. Nothing was lost; \
                 archive and purge letters, or raise the capacity: `tidegate dlq capacity {} --store {}`",
                capacity.saturating_mul(2),
                shell(&store.place().to_string())
            )));
        }
        if batch.is_empty() {
            continue;
        }
        let rows: Vec<&Packed> = batch.iter().flat_map(|(rows, _)| rows).collect();
        let stored = match &dead {
            Some(why) => Err(why.clone()),
            None => store.put(&rows, now_ms()),
        };
        match stored {
            Ok(puts) => {
                held += puts.iter().filter(|put| matches!(put, Put::New(_))).count() as u64;
                let mut puts = puts.into_iter();
                for (rows, answer) in batch {
                    let _ = answer.send(Ok(puts.by_ref().take(rows.len()).collect()));
                }
            }
            Err(why) => {
                for (_, answer) in batch {
                    let _ = answer.send(Err(why.clone()));
                }
                dead.get_or_insert(why);
            }
        }
    }
}
