//! When a server that refuses everything is asked again, and whether what is known explains that it refuses.

use super::*;

/// Seconds for which the end of a first window is waited for where refusals come late.
const LATE_PROBE_WAIT: f64 = 1.5;
/// A window is expected to open this share of its length after it opened last.
const WINDOW_EARLY: f64 = 0.97;
/// After an expected opening that did not come: the next probe after this share of the delay ...
const LATE_PROBE_SHARE: f64 = 0.5;
/// ... but not before this share of the window.
const LATE_PROBE_WINDOW: f64 = 0.025;
/// A closure up to this many seconds, of a server of which nothing is known, is probed ...
const BLIND_CLOSURE: f64 = 0.05;
/// ... after this many times its length.
const BLIND_PROBE: f64 = 2.0;
/// A closure up to this many seconds is probed after its own length again,
const SHORT_CLOSURE: f64 = 0.25;
/// a longer one after this share of it.
const LONG_PROBE_SHARE: f64 = 0.5;
/// Longest pause between two probes of a closed server, in seconds.
const PROBE_PAUSE_MAX: f64 = 60.0;

impl RateEstimate {
    /// When to probe a closed server next, not before `pause_min` seconds: half as long again as it has
    /// been closed, longer at first, and more so when nothing is known (`blind`). A window that was seen
    /// to open will open one window later.
    pub(in crate::limit) fn next_probe(&mut self, now: Mono, pause_min: f64, blind: bool) -> Mono {
        let from = self.closure.map_or(now, |closure| closure.first);
        let expected = self
            .window_opening
            .map_or(Mono::ZERO, |opening| opening.at + seconds(WINDOW_EARLY * self.window - opening.slack));
        let due = expected > from && secs(from, expected) <= CLOSURE_FACTOR * self.closure_max;
        if due && now < expected {
            return expected;
        }
        let closed = secs(from, now);
        let pause = match () {
            () if due => (LATE_PROBE_SHARE * secs(expected, now)).max(LATE_PROBE_WINDOW * self.window),
            () if blind && closed < BLIND_CLOSURE => BLIND_PROBE * closed,
            () if closed < SHORT_CLOSURE => closed,
            () => LONG_PROBE_SHARE * closed,
        };
        let next = now + seconds(pause.max(pause_min).min(PROBE_PAUSE_MAX));
        if self.window_opening.is_some() {
            return next;
        }
        // A probe that is refused late costs as much as the wait for a short window.
        let late = self.late > 0.0;
        let latest = if late { next.max(now + seconds(LATE_PROBE_WAIT)) } else { next };
        self.first_window.probe(now + seconds(pause_min), latest, late).unwrap_or(next)
    }

    /// Whether what is known of the server explains that it refuses now: not more often, or not longer, than
    /// it has been seen to.
    pub(in crate::limit) fn explains(&self, now: Mono) -> bool {
        let closed = self.closure.map_or(0.0, |closure| secs(closure.first, now));
        self.refusals <= REFUSALS_KNOWN || closed <= CLOSURE_FACTOR * self.closure_max
    }
}
