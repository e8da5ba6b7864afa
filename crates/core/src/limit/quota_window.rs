//! The window behind a quota, and the lane's own log of it.
//!
//! Some headers name the window; the others tell it nevertheless, rounded up to a whole second: a
//! quota that was full ends one window after its first call, be it fixed or sliding. So the window is
//! known within about a second, and whole seconds, mostly round ones, lie between.
//!
//! Whether the log then tells what comes back is checked where much came back at once: what comes
//! back evenly would be told by anything. From then on calls go by the log, and nobody waits for an
//! answer that says what is known. A window of two counters, or a bucket, never comes to that.

use super::call_log::Log;
use super::quota_meter::Stand;
use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// A window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    told: Option<f64>,
    /// The least and the most that it may be, where it is not told.
    guess: Option<(f64, f64)>,
    /// What the answers told of it while the first quota was spent, if that was whole.
    first: Option<f64>,
    log: Log,
    /// How often the log has told how much had come back.
    trust: u32,
    checked: (Mono, f64),
    /// The log says so much later that a slot is free than it is.
    guard: f64,
    /// Refusals of calls that went by the log, of late.
    strikes: f64,
    /// Another quota may be spent without being told.
    wary: bool,
    /// How often its least length was doubted.
    doubted: u32,
}

impl Window {
    /// A window, told or not, after so many calls, of which the server has granted some. The answer to a
    /// call sent then took so long.
    pub(super) fn new(told: Option<f64>, sent: Mono, calls: f64, granted: f64, way: f64) -> Window {
        Window {
            told: told.filter(|w| *w > 0.0),
            guess: None,
            first: None,
            log: Log::new(sent, calls),
            trust: 0,
            checked: (sent, granted),
            guard: (0.03 * way).max(0.001),
            strikes: 0.0,
            wary: false,
            doubted: 0,
        }
    }

    /// Its seconds, told or guessed.
    pub(super) fn length(&self) -> Option<f64> {
        let guess = |(low, high): (f64, f64)| {
            let (first, last) = (libm::floor(low) + 1.0, libm::floor(high));
            match () {
                () if first > last => high,
                () if is_round(first) => first,
                () => last,
            }
        };
        self.told.or(self.guess.map(guess))
    }

    /// After how many seconds to ask whether it has come back. What is taken for a second may be half a
    /// second, until a call was refused by then.
    pub(super) fn due(&self) -> Option<f64> {
        let short = self.guess.is_some_and(|(low, high)| low < 0.52 && 1.0 < high && high < 2.0);
        self.length().map(|length| if short { 0.53 } else { 1.0005 * length })
    }

    /// Its seconds, if the headers name them.
    pub(super) const fn told(&self) -> Option<f64> {
        self.told
    }

    /// Whether calls go by the log.
    pub(super) const fn is_trusted(&self) -> bool {
        self.trust > 0
    }

    /// Another quota may be spent without being told: long silences end with one call.
    pub(super) const fn beware(&mut self) {
        self.wary = true;
    }

    /// An answer told when the first quota, a whole one, comes back after its beginning.
    pub(super) fn first(&mut self, after: f64) {
        self.first = Some(self.first.map_or(after, |first| first.max(after)));
    }

    /// A few calls came back when the quota was to, and the next wait ends so much later. A window that
    /// slides goes on where it was; any other says when it ends the next time.
    pub(super) fn slid(&mut self, later: f64, way: f64) {
        if let Some(first) = self.first.filter(|first| later < 0.25 * first + 1.0) {
            self.infer(first, way);
        }
    }

    /// The quota came back as a whole, after that time: all of it or, where the window slides, not.
    pub(super) fn returned(&mut self, after: f64, all: bool, way: f64) {
        if let Some((low, high)) = &mut self.guess {
            if after > *low {
                *high = high.min(after);
            }
            // What refused a call before may have been something else.
            if all && self.doubted < 2 {
                (*low, self.doubted) = (0.6 * *low, self.doubted + 1);
            }
        } else if let Some(first) = self.first.take().filter(|_| !all) {
            self.infer(first, way);
        }
    }

    /// Answers say that it is so long, rounded up; on their way they took so long.
    pub(super) fn infer(&mut self, told: f64, way: f64) {
        if self.told.is_some() || told <= 1.5 {
            return;
        }
        let slack = way + 0.02;
        let (low, high) = self.guess.unwrap_or((0.0, f64::INFINITY));
        let new = (told - 1.0 - slack, told + slack);
        let (low, high) = (low.max(new.0), high.min(new.1));
        // Where that does not fit, the limit has changed.
        self.guess = Some(if low < high { (low, high) } else { new });
    }

    /// A call that asked after so long was refused. True if the window was guessed too short.
    pub(super) fn is_longer(&mut self, after: f64) -> bool {
        let unsure = self.trust < 3;
        let Some((low, high)) = self.guess.as_mut().filter(|(_, high)| unsure && after < 1.5 * *high) else {
            return false;
        };
        (*low, *high) = (low.max(after), high.max(1.02 * after));
        self.trust = 0;
        true
    }

    /// A call goes with so many committed before.
    pub(super) fn sent(&mut self, now: Mono, committed: f64) {
        let since = self.length().map_or(Mono::ZERO, |w| now.back(seconds(w + 1.0)));
        self.log.sent(now, committed + 1.0, since);
    }

    /// That call went by the log.
    pub(super) fn relied(&mut self) {
        self.guard = (0.9999 * self.guard).max(0.0005);
        self.strikes *= 0.99;
    }

    /// A call sent then was refused.
    pub(super) fn refused(&mut self, sent: Mono) {
        self.log.refused(sent);
        if self.trust > 0 {
            self.guard = (1.5 * self.guard).min(0.1);
            self.strikes += 1.0;
            if self.strikes > 6.0 {
                (self.trust, self.strikes) = (0, 0.0);
            }
        }
    }

    /// When a slot is free by the log, with so many committed of `size` that may go at once.
    pub(super) fn free(&self, committed: f64, size: f64) -> Option<Mono> {
        let window = self.length().filter(|_| self.trust > 0)?;
        Some(self.log.when(committed + 1.0 - size) + seconds(window + self.guard))
    }

    /// Whether a call would be the first after a long time, by a log that is not sure yet: it asks.
    pub(super) fn asks(&self, last: Mono, now: Mono) -> bool {
        (self.trust < 4 || self.wary) && self.length().is_some_and(|w| secs(last, now) > 0.2 * w)
    }

    /// An answer tells how many calls are left, and whether the quota came back as a whole: would the
    /// log have told it?
    pub(super) fn check(&mut self, stand: &Stand, left: f64, whole: bool, size: f64) {
        let Some(window) = self.length().filter(|_| size >= 4.0) else { return };
        let (at, before) = self.checked;
        let granted = stand.accepted + left;
        let grown = granted - before;
        let slow = secs(at, stand.sent) > 0.5 * window * grown / size;
        let enough = whole || (grown >= 0.2 * size && !slow);
        if enough || slow {
            self.checked = (stand.sent, granted);
        }
        // Calls that were out with this one may have overtaken it.
        let out = stand.out.max(stand.others);
        let young = secs(Mono::ZERO, stand.sent) < window;
        if !enough || young || out > 0.2 * size {
            return;
        }
        let own = size + self.log.until(stand.sent.back(seconds(window))) - stand.accepted;
        let same = (left - own).abs() <= 2.0 + 0.1 * size + out;
        self.trust = if same { self.trust + 1 } else { self.trust / 2 };
    }
}

/// Whether somebody would choose a window of so many seconds.
fn is_round(seconds: f64) -> bool {
    matches!(seconds, 1.0 | 2.0 | 5.0 | 10.0 | 15.0 | 20.0 | 30.0) || seconds % 60.0 == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;

    /// The server has accepted so many when an answer to a call sent then comes, alone.
    fn stand(seconds: f64, accepted: f64) -> Stand {
        Stand { sent: at(seconds), now: at(seconds), accepted, out: 0.0, others: 0.0 }
    }

    #[test]
    fn a_window_is_a_whole_second_and_rather_a_round_one() {
        for (told, way, length) in
            [(60.99, 0.001, 60.0), (59.99, 0.05, 60.0), (10.5, 0.0, 10.0), (7.4, 0.0, 7.0), (1.98, 0.0, 1.0)]
        {
            let mut window = Window::new(None, at(0.0), 1.0, 30.0, way);
            window.infer(told, way);
            assert_eq!(window.length(), Some(length), "{told}");
        }
        // A wait of a second may be any shorter one.
        let mut window = Window::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.0, 0.0);
        assert_eq!(window.length(), None);
        // What is named is not guessed.
        let mut window = Window::new(Some(60.0), at(0.0), 1.0, 30.0, 0.0);
        window.infer(61.9, 0.0);
        assert_eq!(window.length(), Some(60.0));
    }

    #[test]
    fn what_is_taken_for_a_second_is_asked_for_after_half_of_one() {
        let mut window = Window::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.51, 0.0);
        assert_eq!((window.length(), window.due()), (Some(1.0), Some(0.53)));
        assert!(window.is_longer(0.53));
        assert_eq!(window.due(), Some(1.0005));
    }

    #[test]
    fn a_window_that_always_comes_back_whole_may_be_shorter() {
        let mut window = Window::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(2.98, 0.0);
        assert!(window.is_longer(2.01));
        assert_eq!(window.length(), Some(3.0));
        window.returned(3.0, true, 0.0);
        assert_eq!(window.length(), Some(2.0));
    }

    #[test]
    fn a_refused_call_says_that_the_window_is_longer() {
        let mut window = Window::new(None, at(0.0), 1.0, 30.0, 0.0);
        window.infer(1.98, 0.0);
        assert!(window.is_longer(1.001));
        assert_eq!(window.length(), Some(2.0));
    }

    /// Ten calls at once at 0 s and twenty at 4 s, of thirty in a window of ten seconds.
    fn two_bursts() -> Window {
        let mut window = Window::new(Some(10.0), at(0.0), 1.0, 30.0, 0.0);
        (1..10).for_each(|n| window.sent(at(0.0), f64::from(n)));
        (10..30).for_each(|n| window.sent(at(4.0), f64::from(n)));
        window
    }

    #[test]
    fn a_log_that_told_what_came_back_says_when_slots_are_free() {
        let mut window = two_bursts();
        assert_eq!(window.free(30.0, 30.0), None);
        // Ten came back at once, as the log has it.
        window.check(&stand(10.01, 31.0), 9.0, true, 30.0);
        let free = |committed: f64| window.free(committed, 30.0).map(|t| secs(at(0.0), t));
        assert!(free(30.0).is_some_and(|t| (10.0..10.01).contains(&t)), "{:?}", free(30.0));
        assert!(free(39.0).is_some_and(|t| (10.0..10.01).contains(&t)), "{:?}", free(39.0));
        assert!(free(40.0).is_some_and(|t| (14.0..14.01).contains(&t)), "{:?}", free(40.0));
    }

    #[test]
    fn a_log_that_told_something_else_is_not_followed() {
        let mut window = two_bursts();
        window.check(&stand(10.01, 31.0), 24.0, true, 30.0);
        assert_eq!(window.free(30.0, 30.0), None);
        // What comes back evenly proves nothing.
        let mut window = two_bursts();
        window.check(&stand(10.01, 31.0), 9.0, false, 30.0);
        assert_eq!(window.free(30.0, 30.0), None);
    }
}
