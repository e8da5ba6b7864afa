//! Wakes the timer of a lane on time.
//!
//! Tokio's timers count whole milliseconds, so they end up to two of them late. For most limits that evens out
//! (see [the module](super)), but not for a server that refuses a call which comes a millisecond too close to the
//! last: there the lane has to leave that much room between all calls, a tenth of its rate at 100 calls a second.
//! Linux has timers that are exact to some microseconds. They are used for waits of one call's length; where
//! there is none, tokio's serve alone.

#[cfg(target_os = "linux")]
use std::time::Duration;

use tidegate_core::Mono;

use super::clock::Clock;
#[cfg(target_os = "linux")]
use super::skip;

/// Shorter waits end with tokio's next tick: several calls then go together, for less processor time.
#[cfg(target_os = "linux")]
const SHORT: Duration = Duration::from_micros(500);
/// Longer waits end with tokio's next tick: a millisecond is a small share of them.
#[cfg(target_os = "linux")]
const LONG: Duration = Duration::from_secs(1);

/// The timer of one lane.
pub(super) struct LaneAlarm {
    clock: Clock,
    #[cfg(target_os = "linux")]
    timer: Option<exact::ExactTimer>,
}

impl LaneAlarm {
    /// An alarm on `clock`, exact where the runtime `has_io`; tokio cannot be asked for that.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    pub(super) fn new(clock: Clock, has_io: bool) -> LaneAlarm {
        LaneAlarm {
            clock,
            #[cfg(target_os = "linux")]
            timer: if has_io { exact::ExactTimer::new() } else { None },
        }
    }

    /// Waits until `at`. Under tokio's paused clock it may end early, once.
    pub(super) async fn until(&self, at: Mono) {
        #[cfg(target_os = "linux")]
        {
            let ahead = at.since(self.clock.mono());
            let timer = self.timer.as_ref().filter(|_| (SHORT..LONG).contains(&ahead) && !skip::is_on());
            if let Some(timer) = timer.filter(|timer| timer.set(ahead)) {
                tokio::select! {
                    () = timer.rings() => {}
                    () = self.clock.sleep_until(at) => {}
                }
                return;
            }
        }
        self.clock.sleep_until(at).await;
    }
}

#[cfg(target_os = "linux")]
mod exact {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timer of the system.
    pub(super) struct ExactTimer(AsyncFd<Descriptor>);

    struct Descriptor(TimerFd);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl ExactTimer {
        /// A new timer; `None` if the system has no more.
        #[allow(
            deprecated,
            reason = "what replaces it is unsafe; the timer owns its descriptor for as long as it is registered"
        )]
        pub(super) fn new() -> Option<ExactTimer> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).ok()?;
            AsyncFd::with_interest(Descriptor(timer), Interest::READABLE).ok().map(ExactTimer)
        }

        /// Sets the time until it rings. False if the system refuses.
        pub(super) fn set(&self, ahead: Duration) -> bool {
            let once = Expiration::OneShot(TimeSpec::from_duration(ahead));
            self.0.get_ref().0.set(once, TimerSetTimeFlags::empty()).is_ok()
        }

        /// Resolves when it rings.
        pub(super) async fn rings(&self) {
            // An error means that the runtime ends, and with it the other timer.
            while let Ok(mut ready) = self.0.readable().await {
                // What is left of an earlier time is no ring: reading would block.
                if ready.try_io(|timer| timer.get_ref().0.wait().map_err(io::Error::from)).is_ok() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn waits_are_never_short() {
        let clock = Clock::system();
        let alarm = LaneAlarm::new(clock, true);
        for us in [0, 300, 700, 1_500, 9_990, 1_000] {
            let at = clock.mono() + Duration::from_micros(us);
            alarm.until(at).await;
            assert!(clock.mono() >= at, "{us} µs");
        }
    }

    #[tokio::test]
    async fn a_time_that_was_given_up_does_not_ring() {
        let clock = Clock::system();
        let alarm = LaneAlarm::new(clock, true);
        let soon = clock.mono() + Duration::from_millis(2);
        tokio::select! {
            () = alarm.until(soon) => {}
            () = std::future::ready(()) => {}
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let later = clock.mono() + Duration::from_millis(20);
        alarm.until(later).await;
        assert!(clock.mono() >= later);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_decides() {
        let clock = Clock::system();
        let alarm = LaneAlarm::new(clock, true);
        for _ in 0..100 {
            let at = clock.mono() + Duration::from_millis(900);
            while clock.mono() < at {
                alarm.until(at).await;
            }
        }
        assert!(clock.mono() >= Mono::from_millis(90_000));
    }
}
