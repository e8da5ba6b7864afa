//! The window of a quota, and the lane's own log of its calls.
//!
//! Some headers name the window; the others tell it nevertheless, rounded up to a whole second: a
//! quota that was full ends one window after its first call, be it a fixed or a sliding window. So the
//! window is known within about a second, and whole seconds, mostly round ones, lie between.
//!
//! Whether the log then tells what is restored is checked where much was restored at once: what is
//! restored evenly would be told by anything. From then on calls go by the log, without a probe. A
//! window of two counters, or a bucket, never comes to that.

use super::call_log::CallLog;
use super::quota_meter::AnswerContext;
use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// How much later than the log says a slot is used: as a share of the round trip at first,
const GUARD_ROUND_TRIPS: f64 = 0.03;
/// in seconds at first,
const GUARD_START_MIN: f64 = 0.001;
/// at least,
const GUARD_MIN: f64 = 0.0005;
/// and at most.
const GUARD_MAX: f64 = 0.1;
/// Factor of the guard with each call that went by the log,
const GUARD_DECAY: f64 = 0.9999;
/// and with each such call that was refused.
const GUARD_GROWTH: f64 = 1.5;
/// Decay of the strikes with each call that went by the log.
const STRIKES_DECAY: f64 = 0.99;
/// Strikes beyond which the log is not trusted any more.
const STRIKES_MAX: f64 = 6.0;

/// A window guessed as one second, and below two, may be half a second if its lower bound is below this,
const HALF_SECOND_MIN: f64 = 0.52;
/// and is then probed after this many seconds.
const HALF_SECOND_PROBE: f64 = 0.53;
/// What is taken for a second has an upper bound within this, in seconds.
const SECOND: core::ops::Range<f64> = 1.0..2.0;
/// Any other window is probed after this many times its length.
const PROBE_FACTOR: f64 = 1.0005;

/// A wait of up to this many seconds, rounded up, may be any shorter one: no window is inferred.
const ROUNDED_MAX: f64 = 1.5;
/// Uncertainty of an inferred window in seconds, beyond the round trip.
const INFER_SLACK: f64 = 0.02;
/// A sliding window's next wait ends less than this share of the window, and a second, later.
const SLIDING_SHARE: f64 = 0.25;
/// A lower bound that is doubted falls to this share,
const DOUBTED_SHARE: f64 = 0.6;
/// this often.
const DOUBTS_MAX: u32 = 2;
/// A probe later than this many times the upper bound says nothing about the window.
const LONGER_MAX: f64 = 1.5;
/// Factor of the upper bound above a probe that was refused.
const LONGER_FACTOR: f64 = 1.02;

/// Checks of the log from which on a refusal does not change the window's length.
const TRUST_LENGTH: u32 = 3;
/// Checks of the log from which on it is followed without probes.
const TRUST_NO_PROBE: u32 = 4;
/// A prediction that was wrong divides the trust by this.
const TRUST_DIVISOR: u32 = 2;
/// A call is the first after a long time if this share of a window passed.
const PROBE_GAP: f64 = 0.2;
/// How long calls are remembered beyond the window, in seconds.
const LOG_BEYOND: f64 = 1.0;

/// Smallest quota, in calls, whose log is checked.
const CHECK_SIZE_MIN: f64 = 4.0;
/// The quota is restored slowly if it takes longer than this share of the window it would take.
const CHECK_SLOW: f64 = 0.5;
/// Share of the quota that must be restored at once for a check.
const CHECK_RESTORED: f64 = 0.2;
/// Share of the quota that may be in flight at a check.
const CHECK_IN_FLIGHT: f64 = 0.2;
/// Calls, and share of the quota, by which the log may be off.
const CHECK_TOLERANCE: (f64, f64) = (2.0, 0.1);

/// Lengths of windows below a minute that somebody would choose, in seconds.
const ROUND_SECONDS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0];
/// Seconds of a minute.
const MINUTE: f64 = 60.0;

/// A window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QuotaWindow {
    /// Length in seconds, where the headers name it.
    named: Option<f64>,
    /// Bounds of the length in seconds, where the headers do not name it.
    bounds: Option<(f64, f64)>,
    /// Longest reset, in seconds since the start of the first quota, while that was spent, if it was whole.
    first_reset: Option<f64>,
    log: CallLog,
    /// How often the log has told how much was restored.
    trust: u32,
    /// When the log was last checked, and what the server had granted then, in calls.
    checked: (Mono, f64),
    /// How many seconds later than the log says a slot is used.
    guard: f64,
    /// Refusals of calls that went by the log; decays.
    strikes: f64,
    /// Another quota may be spent without its headers being seen.
    has_others: bool,
    /// How often the lower bound was doubted.
    doubts: u32,
}

impl QuotaWindow {
    /// A window, named in seconds or not, after `calls` calls, of which the server has granted `granted`.
    /// The answer to the call sent at `sent` had this round trip, in seconds.
    pub(super) fn new(
        named: Option<f64>,
        sent: Mono,
        calls: f64,
        granted: f64,
        round_trip: f64,
    ) -> QuotaWindow {
        QuotaWindow {
            named: named.filter(|w| *w > 0.0),
            bounds: None,
            first_reset: None,
            log: CallLog::new(sent, calls),
            trust: 0,
            checked: (sent, granted),
            guard: (GUARD_ROUND_TRIPS * round_trip).max(GUARD_START_MIN),
            strikes: 0.0,
            has_others: false,
            doubts: 0,
        }
    }

    /// Length in seconds, named or guessed: a whole second within the bounds, rather a round one.
    pub(super) fn length(&self) -> Option<f64> {
        let guess = |(low, high): (f64, f64)| {
            let (first, last) = (libm::floor(low) + 1.0, libm::floor(high));
            match () {
                () if first > last => high,
                () if is_round(first) => first,
                () => last,
            }
        };
        self.named.or(self.bounds.map(guess))
    }

    /// After how many seconds to probe whether the quota is restored. What is taken for a second may be
    /// half a second, until a call was refused by then.
    pub(super) fn probe_after(&self) -> Option<f64> {
        let short = self.bounds.is_some_and(|(low, high)| low < HALF_SECOND_MIN && SECOND.contains(&high));
        self.length().map(|length| if short { HALF_SECOND_PROBE } else { PROBE_FACTOR * length })
    }

    /// Length in seconds, if the headers name it.
    pub(super) const fn named(&self) -> Option<f64> {
        self.named
    }

    /// Whether calls go by the log.
    pub(super) const fn is_trusted(&self) -> bool {
        self.trust > 0
    }

    /// Another quota may be spent without its headers being seen: long silences end with one call.
    pub(super) const fn set_has_others(&mut self) {
        self.has_others = true;
    }

    /// An answer told when the first quota, a whole one, is restored, in seconds after its start.
    pub(super) fn first_reset(&mut self, after: f64) {
        self.first_reset = Some(self.first_reset.map_or(after, |first| first.max(after)));
    }

    /// A few calls were restored at the reset, and the next reset is `later` seconds later. A sliding
    /// window goes on where it was; any other says when it ends the next time.
    pub(super) fn slid(&mut self, later: f64, round_trip: f64) {
        if let Some(first) = self.first_reset.filter(|first| later < SLIDING_SHARE * first + 1.0) {
            self.infer(first, round_trip);
        }
    }

    /// The quota was restored as a whole after `after` seconds: all of it or, in a sliding window, not.
    pub(super) fn restored(&mut self, after: f64, all: bool, round_trip: f64) {
        if let Some((low, high)) = &mut self.bounds {
            if after > *low {
                *high = high.min(after);
            }
            // What refused a call before may have been something else.
            if all && self.doubts < DOUBTS_MAX {
                (*low, self.doubts) = (DOUBTED_SHARE * *low, self.doubts + 1);
            }
        } else if let Some(first) = self.first_reset.take().filter(|_| !all) {
            self.infer(first, round_trip);
        }
    }

    /// Answers with this round trip say that the window is `told` seconds long, rounded up.
    pub(super) fn infer(&mut self, told: f64, round_trip: f64) {
        if self.named.is_some() || told <= ROUNDED_MAX {
            return;
        }
        let slack = round_trip + INFER_SLACK;
        let (low, high) = self.bounds.unwrap_or((0.0, f64::INFINITY));
        let new = (told - 1.0 - slack, told + slack);
        let (low, high) = (low.max(new.0), high.min(new.1));
        // Where that does not fit, the limit has changed.
        self.bounds = Some(if low < high { (low, high) } else { new });
    }

    /// A call that probed after `after` seconds was refused. True if the window was guessed too short.
    pub(super) fn is_longer(&mut self, after: f64) -> bool {
        let unsure = self.trust < TRUST_LENGTH;
        let bounds = self.bounds.as_mut().filter(|(_, high)| unsure && after < LONGER_MAX * *high);
        let Some((low, high)) = bounds else { return false };
        (*low, *high) = (low.max(after), high.max(LONGER_FACTOR * after));
        self.trust = 0;
        true
    }

    /// A call goes, after `committed` that were sent and not refused.
    pub(super) fn sent(&mut self, now: Mono, committed: f64) {
        let since = self.length().map_or(Mono::ZERO, |w| now.saturating_sub(seconds(w + LOG_BEYOND)));
        self.log.sent(now, committed + 1.0, since);
    }

    /// That call went by the log.
    pub(super) fn relied(&mut self) {
        self.guard = (GUARD_DECAY * self.guard).max(GUARD_MIN);
        self.strikes *= STRIKES_DECAY;
    }

    /// A call sent at `sent` was refused.
    pub(super) fn refused(&mut self, sent: Mono) {
        self.log.refused(sent);
        if self.trust > 0 {
            self.guard = (GUARD_GROWTH * self.guard).min(GUARD_MAX);
            self.strikes += 1.0;
            if self.strikes > STRIKES_MAX {
                (self.trust, self.strikes) = (0, 0.0);
            }
        }
    }

    /// When a slot is free by the log, with `committed` calls sent and not refused and `size` per window.
    pub(super) fn slot_free(&self, committed: f64, size: f64) -> Option<Mono> {
        let window = self.length().filter(|_| self.trust > 0)?;
        Some(self.log.time_of(committed + 1.0 - size) + seconds(window + self.guard))
    }

    /// Whether a call would be the first after a long time, by a log that is not sure yet: it is a probe.
    pub(super) fn is_probe(&self, last: Mono, now: Mono) -> bool {
        (self.trust < TRUST_NO_PROBE || self.has_others)
            && self.length().is_some_and(|w| secs(last, now) > PROBE_GAP * w)
    }

    /// An answer tells how many calls are left, and whether the quota was restored as a whole: would the
    /// log have told it?
    pub(super) fn check(&mut self, answer: &AnswerContext, left: f64, whole: bool, size: f64) {
        let Some(window) = self.length().filter(|_| size >= CHECK_SIZE_MIN) else { return };
        let (at, before) = self.checked;
        let granted = answer.accepted + left;
        let grown = granted - before;
        let slow = secs(at, answer.sent) > CHECK_SLOW * window * grown / size;
        let enough = whole || (grown >= CHECK_RESTORED * size && !slow);
        if enough || slow {
            self.checked = (answer.sent, granted);
        }
        // Calls that were in flight with this one may have overtaken it.
        let in_flight = answer.in_flight.max(answer.in_flight_sent);
        let young = secs(Mono::ZERO, answer.sent) < window;
        if !enough || young || in_flight > CHECK_IN_FLIGHT * size {
            return;
        }
        let own = size + self.log.calls_until(answer.sent.saturating_sub(seconds(window))) - answer.accepted;
        let same = (left - own).abs() <= CHECK_TOLERANCE.0 + CHECK_TOLERANCE.1 * size + in_flight;
        self.trust = if same { self.trust + 1 } else { self.trust / TRUST_DIVISOR };
    }
}

/// Whether somebody would choose a window of so many seconds.
fn is_round(seconds: f64) -> bool {
    ROUND_SECONDS.contains(&seconds) || seconds % MINUTE == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;

    /// The server has accepted so many when an answer to a call sent then comes, alone.
    fn answer(seconds: f64, accepted: f64) -> AnswerContext {
        AnswerContext { sent: at(seconds), now: at(seconds), accepted, in_flight: 0.0, in_flight_sent: 0.0 }
    }

    #[test]
    fn a_window_is_a_whole_second_and_rather_a_round_one() {
        for (told, way, length) in
            [(60.99, 0.001, 60.0), (59.99, 0.05, 60.0), (10.5, 0.0, 10.0), (7.4, 0.0, 7.0), (1.98, 0.0, 1.0)]
        {
            let mut window = QuotaWindow::new(None, at(0.0), 1.0, 30.0, way);
            window.infer(told, way);
            assert_eq!(window.length(), Some(length), "{told}");
        }
        // A wait of a second may be any shorter one.
        let mut window = QuotaWindow::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.0, 0.0);
        assert_eq!(window.length(), None);
        // What is named is not guessed.
        let mut window = QuotaWindow::new(Some(60.0), at(0.0), 1.0, 30.0, 0.0);
        window.infer(61.9, 0.0);
        assert_eq!(window.length(), Some(60.0));
    }

    #[test]
    fn what_is_taken_for_a_second_is_asked_for_after_half_of_one() {
        let mut window = QuotaWindow::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.51, 0.0);
        assert_eq!((window.length(), window.probe_after()), (Some(1.0), Some(0.53)));
        assert!(window.is_longer(0.53));
        assert_eq!(window.probe_after(), Some(1.0005));
    }

    #[test]
    fn a_window_that_always_comes_back_whole_may_be_shorter() {
        let mut window = QuotaWindow::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(2.98, 0.0);
        assert!(window.is_longer(2.01));
        assert_eq!(window.length(), Some(3.0));
        window.restored(3.0, true, 0.0);
        assert_eq!(window.length(), Some(2.0));
    }

    #[test]
    fn a_refused_call_says_that_the_window_is_longer() {
        let mut window = QuotaWindow::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.98, 0.0);
        assert!(window.is_longer(1.001));
        assert_eq!(window.length(), Some(2.0));
    }

    /// Ten calls at once at 0 s and twenty at 4 s, of thirty in a window of ten seconds.
    fn two_bursts() -> QuotaWindow {
        let mut window = QuotaWindow::new(Some(10.0), at(0.0), 1.0, 30.0, 0.0);
        (1..10).for_each(|n| window.sent(at(0.0), f64::from(n)));
        (10..30).for_each(|n| window.sent(at(4.0), f64::from(n)));
        window
    }

    #[test]
    fn a_log_that_told_what_came_back_says_when_slots_are_free() {
        let mut window = two_bursts();
        assert_eq!(window.slot_free(30.0, 30.0), None);
        // Ten came back at once, as the log has it.
        window.check(&answer(10.01, 31.0), 9.0, true, 30.0);
        let free = |committed: f64| window.slot_free(committed, 30.0).map(|t| secs(at(0.0), t));
        assert!(free(30.0).is_some_and(|t| (10.0..10.01).contains(&t)), "{:?}", free(30.0));
        assert!(free(39.0).is_some_and(|t| (10.0..10.01).contains(&t)), "{:?}", free(39.0));
        assert!(free(40.0).is_some_and(|t| (14.0..14.01).contains(&t)), "{:?}", free(40.0));
    }

    #[test]
    fn a_log_that_told_something_else_is_not_followed() {
        let mut window = two_bursts();
        window.check(&answer(10.01, 31.0), 24.0, true, 30.0);
        assert_eq!(window.slot_free(30.0, 30.0), None);
        // What comes back evenly proves nothing.
        let mut window = two_bursts();
        window.check(&answer(10.01, 31.0), 9.0, false, 30.0);
        assert_eq!(window.slot_free(30.0, 30.0), None);
    }
}
