//! The only place that reads a clock.
//!
//! Monotonic time comes from tokio, so a test that pauses tokio's clock controls every wait. Wall
//! time comes from the system or, in such a test, from a fixed date that advances with the
//! monotonic clock.

use std::time::{Duration, SystemTime};
use tidegate_core::{Mono, Now, Wall};
use tokio::time::Instant;

use super::skip;

/// A handle to both clocks. Clones share the same origin, so their times are comparable.
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
        Clock { start: skip::now(), fixed: None }
    }

    /// A wall clock that shows `wall` now and advances with the monotonic clock.
    #[must_use]
    pub fn starting_at(wall: Wall) -> Clock {
        Clock { start: skip::now(), fixed: Some(wall) }
    }

    /// The current monotonic time.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono::ZERO + self.elapsed()
    }

    /// The current wall time.
    #[must_use]
    pub fn wall(&self) -> Wall {
        match self.fixed {
            Some(wall) => Wall::from_millis(wall.millis().saturating_add(millis(self.elapsed()))),
            None => match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) if skip::is_on() => {
                    Wall::from_millis(millis(since.saturating_add(skip::skipped())))
                }
                Ok(since) => Wall::from_millis(millis(since)),
                Err(before) => Wall::from_millis(-millis(before.duration())),
            },
        }
    }

    /// A wall time as monotonic time; now if it has passed.
    #[must_use]
    pub fn mono_of(&self, date: Wall) -> Mono {
        let now = self.now();
        let ms = u64::try_from(date.millis_since(now.wall)).unwrap_or(0);
        now.mono + Duration::from_millis(ms)
    }

    /// A monotonic time as wall time; now if it has passed.
    #[must_use]
    pub fn wall_of(&self, point: Mono) -> Wall {
        let now = self.now();
        Wall::from_millis(now.wall.millis().saturating_add(millis(point.since(now.mono))))
    }

    /// The current time of both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: self.wall() }
    }

    /// Sleeps until `at`; forever if a timer cannot represent it.
    pub async fn sleep_until(&self, at: Mono) {
        match self.instant(at) {
            Some(_) if skip::is_on() => skip::until(self.start + at.since(Mono::ZERO)).await,
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the deadline `at` has passed; never if a timer cannot represent it. Unlike
    /// [`Clock::sleep_until`], this is no wait that tests may skip.
    pub async fn passed(&self, at: Mono) {
        match self.instant(at) {
            Some(_) if skip::is_on() => skip::passed(self.start + at.since(Mono::ZERO)).await,
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }

    /// The time `at` as a tokio instant; `None` if it is years away.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Option<Instant> {
        const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
        let since = at.since(Mono::ZERO);
        if since > YEARS {
            return None;
        }
        let at = self.start.checked_add(since)?;
        Some(at.checked_sub(skip::skipped()).unwrap_or(at))
    }

    fn elapsed(&self) -> Duration {
        skip::now().saturating_duration_since(self.start)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
