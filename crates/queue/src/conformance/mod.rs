//! The suite that every transport passes, against a real server.
//!
//! A test of a transport implements [`Broker`] and calls the macro [`conformance!`](crate::conformance!),
//! which makes one test of each case. A case returns what it found wrong, as a sentence.

mod ask;
mod delivery;
mod promise;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::QueueError;
use crate::transport::Transport;

pub use delivery::*;
pub use promise::*;

pub use crate::promise_page::promises_what_is_documented;

/// A server with an empty queue that belongs to one test.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Another worker on the queue, with this lease. The name was not used before.
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError>;

    /// Another queue on the same server, for dead letters.
    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError>;

    /// Stops the server without warning and starts it again with what it has stored. `false` if
    /// the server is shared with others and cannot be restarted.
    async fn restart(&self) -> Result<bool, QueueError>;
}

/// What a case found wrong.
pub type CaseResult = Result<(), String>;

/// The lease in the cases that wait for its end. Pub/Sub has none below 10 s.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long a case waits for a message that must come.
const SOON: Duration = Duration::from_secs(30);
/// How long a server may take to start on a busy machine.
const RESTART: Duration = Duration::from_secs(180);

/// Makes one test of each case: `conformance!(|| async { Ok(MyBroker::start().await?) });`. Each
/// test gets a broker of its own.
#[macro_export]
macro_rules! conformance {
    ($start:expr) => {
        $crate::conformance!(@each $start;
            carries_messages, receives_a_bounded_number, waits_for_messages, delays_messages, requeues,
            leases_hold_and_end, survives_a_crash, keeps_the_order_of_a_key, prefers_higher_priorities,
            is_unique_while_queued, dead_letters_with_a_reason, tells_its_depth, refuses_what_is_too_large,
            survives_a_restart, promises_what_is_documented);
    };
    (@each $start:expr; $($case:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() -> Result<(), String> {
                let broker = ($start)().await?;
                $crate::conformance::$case(&broker).await
            }
        )*
    };
}
