//! The one place where the engine reads a clock.
//!
//! Monotonic time comes from tokio, so that a test that pauses tokio's clock owns every wait of
//! the engine. Wall time comes from the system, or, for such a test, from a date fixed at the
//! start that moves with the monotonic clock.

use std::time::{Duration, SystemTime};
use tidegate_core::{Mono, Now, Wall};
use tokio::time::Instant;

/// A handle on both clocks. Clones share the same start, so their times compare.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    fixed: Option<Wall>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl Clock {
    /// The clocks of this machine.
    #[must_use]
    pub fn system() -> Clock {
        Clock { start: Instant::now(), fixed: None }
    }

    /// A wall clock that shows `wall` now and goes on with the monotonic one.
    #[must_use]
    pub fn starting_at(wall: Wall) -> Clock {
        Clock { start: Instant::now(), fixed: Some(wall) }
    }

    /// The monotonic clock.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono::ZERO + self.start.elapsed()
    }

    /// The wall clock.
    #[must_use]
    pub fn wall(&self) -> Wall {
        match self.fixed {
            Some(wall) => Wall::from_millis(wall.millis().saturating_add(millis(self.start.elapsed()))),
            None => match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => Wall::from_millis(millis(since)),
                Err(before) => Wall::from_millis(-millis(before.duration())),
            },
        }
    }

    /// A date as a point of the monotonic clock; now if it has passed.
    #[must_use]
    pub fn mono_of(&self, date: Wall) -> Mono {
        let now = self.now();
        let ms = u64::try_from(date.millis_since(now.wall)).unwrap_or(0);
        now.mono + Duration::from_millis(ms)
    }

    /// A point of the monotonic clock as a date; now if it has passed.
    #[must_use]
    pub fn wall_of(&self, point: Mono) -> Wall {
        let now = self.now();
        Wall::from_millis(now.wall.millis().saturating_add(millis(point.since(now.mono))))
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: self.wall() }
    }

    /// Waits until `at`; for ever if that is beyond what a timer can hold.
    pub async fn sleep_until(&self, at: Mono) {
        match self.instant(at) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }

    /// The point `at` as tokio counts; `None` if that is years away.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Option<Instant> {
        const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
        let since = at.since(Mono::ZERO);
        if since > YEARS { None } else { self.start.checked_add(since) }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
