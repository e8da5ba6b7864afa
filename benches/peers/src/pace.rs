//! The pace of the client that was told the limit: it shows what is physically possible.

use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// What the client was told.
#[derive(Clone, Copy)]
pub struct Told {
    /// Calls per second.
    pub rate: f64,
    /// Calls that may go at once.
    pub burst: f64,
    /// Calls under way at once.
    pub in_flight: usize,
    /// Seconds after the first call when the service will be there.
    pub after: f64,
    /// Seconds to stay away when a call is refused all the same.
    pub again: f64,
}

impl Told {
    /// Reads `name=number` words.
    pub fn read(words: &[String]) -> Told {
        let mut told = Told { rate: f64::INFINITY, burst: 1.0, in_flight: 64, after: 0.0, again: 0.0 };
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            let value: f64 = value.parse().expect("a number");
            match name {
                "rate" => told.rate = value,
                "burst" => told.burst = value,
                "in-flight" => told.in_flight = value as usize,
                "after" => told.after = value,
                "again" => told.again = value,
                _ => panic!("{name:?} cannot be told"),
            }
        }
        told
    }
}

/// A bucket that is never overdrawn, and a limit on calls under way.
pub struct Pacer {
    told: Told,
    permits: Semaphore,
    state: Mutex<State>,
}

struct State {
    /// When a full bucket's worth would be spent: the theoretical arrival time.
    due: Option<Instant>,
    open: Option<Instant>,
}

impl Pacer {
    pub fn new(told: Told) -> Pacer {
        let state = Mutex::new(State { due: None, open: None });
        Pacer { told, permits: Semaphore::new(told.in_flight), state }
    }

    /// A call was refused: this client's knowledge was not enough.
    pub async fn refused(&self) {
        let open = Instant::now() + Duration::from_secs_f64(self.told.again);
        let mut state = self.state.lock().await;
        state.open = state.open.max(Some(open));
    }

    /// Waits for a turn.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        let permit = self.permits.acquire().await.expect("an open semaphore");
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let Some(open) = state.open else {
            // The very first call starts the clock of the service's outage.
            state.open = Some(now + Duration::from_secs_f64(self.told.after));
            return permit;
        };
        let step = Duration::from_secs_f64(1.0 / self.told.rate);
        let slack = step.mul_f64(self.told.burst - 1.0);
        let due = state.due.unwrap_or(open).max(now).max(open);
        state.due = Some(due + step);
        drop(state);
        sleep_until((due.checked_sub(slack).unwrap_or(due)).max(open)).await;
        permit
    }
}
