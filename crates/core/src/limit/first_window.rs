//! The first window of a server that counts in windows: when it may open.
//!
//! A lane that goes as fast as it opens spends a window at once, and then the server refuses until the
//! window ends. Nothing is known of its length then, but servers count in few lengths, and many begin a
//! window with the first call. So a closed server is probed at these lengths after the first answer, and
//! a probe that is accepted there tells the length exactly.
//!
//! Some servers count refused calls too (HAProxy's stick tables). They open later by the share of
//! refused calls: so much of the next window must pass before what was counted has room in it.

use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// Lengths of windows that servers commonly count in, in seconds.
pub(super) const COMMON_WINDOWS: [f64; 16] =
    [0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0];
/// Seconds after the end of a window at which it is probed: servers count in whole milliseconds, and begin
/// windows at even ones.
const LATE: f64 = 0.003;
/// A later opening of a server that counts refused calls is worth a probe of its own if it is later by
/// this share of the window.
const LATER_SHARE: f64 = 0.01;
/// Shortest window, in seconds, that is probed for: how long a shorter one is closed is soon found out.
const PROBED_MIN: f64 = 1.0;
/// Fewest calls of a window that says something.
const CALLS_MIN: f64 = 8.0;

/// The first window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FirstWindow {
    /// When the first accepted call came back: the window had begun then.
    from: Option<Mono>,
    /// Calls accepted in it, and refused so far.
    accepted: f64,
    refused: f64,
    /// The length, in seconds, that the probe under way is for.
    probed: Option<f64>,
    /// Lengths, in seconds, up to which it was probed on time, and later for refused calls that count.
    on_time: f64,
    later: f64,
    /// The last length, in seconds, for which a probe on time was refused.
    missed: f64,
    /// The server counts refused calls too.
    counts_refused: bool,
}

impl FirstWindow {
    pub(super) const NEW: FirstWindow = FirstWindow {
        from: None,
        accepted: 0.0,
        refused: 0.0,
        probed: None,
        on_time: 0.0,
        later: 0.0,
        missed: 0.0,
        counts_refused: false,
    };

    /// A call was accepted and came back.
    pub(super) fn answered(&mut self, now: Mono) {
        self.from.get_or_insert(now);
    }

    /// A call was refused after `accepted` accepted ones.
    pub(super) fn refused(&mut self, accepted: u64) {
        if let Some(window) = self.probed.take() {
            self.missed = window;
        }
        self.accepted = accepted as f64;
        self.refused += 1.0;
    }

    /// When to probe next, if before `latest` and not before `earliest`: one of the common lengths is over
    /// then. Only once for each length if a probe is `dear`.
    pub(super) fn probe(&mut self, earliest: Mono, latest: Mono, dear: bool) -> Option<Mono> {
        let from = self.from.filter(|_| self.accepted >= CALLS_MIN)?;
        // The probe itself is counted too.
        let share = (self.refused + 1.0) / (self.accepted + self.refused + 1.0);
        let share = if share > LATER_SHARE { share } else { 0.0 };
        let (soonest, last) = (secs(from, earliest), secs(from, latest));
        let mut found: Option<(f64, f64)> = None;
        for window in COMMON_WINDOWS.into_iter().filter(|window| *window >= PROBED_MIN) {
            for (done, at) in [(self.on_time, window + LATE), (self.later, window * (1.0 + share) + LATE)] {
                let skipped = dear && at < window * (1.0 + share);
                let due = window > done && soonest < at && at < last && !skipped;
                if due && found.is_none_or(|(_, first)| at < first) {
                    found = Some((window, at));
                }
            }
        }
        let (window, at) = found?;
        if at > window + LATE || share == 0.0 {
            self.later = window;
        }
        self.on_time = self.on_time.max(window);
        self.probed = Some(window);
        Some(from + seconds(at))
    }

    /// The server has opened: the length of its window in seconds, if a probe has found it.
    pub(super) fn opened(&mut self) -> Option<f64> {
        // On time it was still closed.
        self.counts_refused |=
            self.probed.is_some_and(|window| window == self.later && self.missed == window);
        self.probed.take()
    }

    /// Whether the server counts refused calls too, as far as the first window told.
    pub(super) const fn counts_refused(&self) -> bool {
        self.counts_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Mono {
        Mono::from_secs_f64(s)
    }

    /// A window of a hundred calls that began at zero and is spent.
    fn spent() -> FirstWindow {
        let mut window = FirstWindow::NEW;
        window.answered(at(0.02));
        window.refused(100);
        window
    }

    #[test]
    fn a_window_is_probed_where_it_may_end_and_later_if_refused_calls_count() {
        let mut window = spent();
        assert_eq!(window.probe(at(0.3), at(0.5), false), None, "nothing ends then");
        assert_eq!(window.probe(at(0.7), at(1.1), false), Some(at(1.023)));
        window.refused(100);
        let later = window.probe(at(1.03), at(1.6), false).unwrap();
        assert!(at(1.04) < later && later < at(1.07), "{later:?}");
        assert_eq!((window.opened(), window.counts_refused()), (Some(1.0), true));
    }

    #[test]
    fn a_window_that_opens_on_time_counts_accepted_calls_only() {
        let mut window = spent();
        assert!(window.probe(at(0.7), at(1.1), false).is_some());
        assert_eq!((window.opened(), window.counts_refused()), (Some(1.0), false));
    }

    #[test]
    fn each_length_is_probed_twice_at_most() {
        let mut window = spent();
        let mut now = at(0.1);
        let mut probes = 0;
        while let Some(next) = window.probe(now, at(100.0), false) {
            (now, probes) = (next, probes + 1);
            window.refused(100);
        }
        assert!(probes <= 2 * 8, "{probes}");
    }
}
