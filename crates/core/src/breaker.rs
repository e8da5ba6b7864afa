//! The circuit breaker: stops calls to a service that is down.
//!
//! States and transitions:
//!
//! ```text
//!            failure rate ≥ threshold, or slow rate ≥ threshold,
//!            or `calls_min` consecutive failures (at least 5)
//!   closed ────────────────────────────────────────────────────▶ open
//!     ▲                                                        │    ▲
//!     │ all probes succeed                       cooldown over │    │ a probe fails:
//!     │                                                        ▼    │ the cooldown grows
//!     └──────────────────────────────────────────────────── half-open
//! ```
//!
//! The rates are computed over a sliding time window of [`SLOTS`] counters: memory and time per call
//! are constant, also after a long idle time. If a service fails after a minute of thousands of
//! successful calls, the failure rate alone would need thousands of failures to reach its threshold.
//! So consecutive failures open the breaker too. Throttles are neutral: a server that throttles is
//! running. A probe whose permit is dropped counts neither way and another may be sent. A probe
//! that is never settled is considered lost after a cooldown, so a lost permit cannot block the
//! breaker.
//!
//! Where some calls fail at once and good ones take their time, the failures of calls that were sent
//! together come back first. So calls that are out are taken for good until twice the usual time of a
//! good call has passed since the first of the failures in a row.

use crate::time::{Mono, nanos};
use core::time::Duration;

/// The number of counters in the sliding window; the window is exact to one slot.
pub const SLOTS: usize = 12;

/// The minimum number of consecutive failures that open a breaker, whatever its `calls_min`.
const IN_A_ROW: u32 = 5;
/// Calls that are out may still be good for this many times the usual duration of a good call, counted from the
/// first of the failures in a row.
const HOPED_FOR: u32 = 2;
/// A new duration counts for one part in this many of the usual one.
const USUAL_SMOOTHING: u32 = 8;

/// The settings of a [`Breaker`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerConfig {
    /// The length of the sliding window of the rates.
    pub window: Duration,
    /// The share (0 to 1) of failures in the window at which the breaker opens.
    pub failure_rate: f64,
    /// The minimum number of calls in the window before the breaker can open. This number of
    /// consecutive failures, and at least five, opens it whatever the rates, once they are more than
    /// the calls that are out and may still be good.
    pub calls_min: u32,
    /// The cooldown after the first opening.
    pub cooldown: Duration,
    /// The factor by which the cooldown grows with each consecutive opening.
    pub cooldown_factor: f64,
    /// The maximum cooldown.
    pub cooldown_max: Duration,
    /// The number of calls allowed while half-open; all must succeed.
    pub probes: u32,
    /// The duration above which a call counts as slow; `None` disables the slow rate.
    pub slow_after: Option<Duration>,
    /// The share (0 to 1) of slow calls in the window at which the breaker opens.
    pub slow_rate: f64,
}

impl Default for BreakerConfig {
    /// Window 60 s, failure rate 50 %, at least 10 calls; cooldown 30 s, doubling up to 10 min; 3
    /// probes; no slow rate.
    fn default() -> BreakerConfig {
        BreakerConfig {
            window: Duration::from_secs(60),
            failure_rate: 0.5,
            calls_min: 10,
            cooldown: Duration::from_secs(30),
            cooldown_factor: 2.0,
            cooldown_max: Duration::from_secs(600),
            probes: 3,
            slow_after: None,
            slow_rate: 0.8,
        }
    }
}

/// The result of a call, as the breaker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallHealth {
    /// The service answered.
    Good,
    /// The service failed.
    Bad,
    /// Not counted: throttled, or abandoned by the client.
    Neutral,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls are allowed.
    Closed,
    /// No call is allowed before this time.
    Open(Mono),
    /// Only probes are allowed.
    HalfOpen,
}

/// The breaker's part of a permit.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct BreakerPermit {
    /// The epoch of the breaker when the call was allowed.
    epoch: u32,
}

/// Whether a call is allowed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerReady {
    /// It is: call [`Breaker::pass`].
    Yes,
    /// It is not allowed before this time.
    Shut(Mono),
    /// All probes are in flight: ask again when one has been settled.
    Probing,
}

/// The counts of one slot of the sliding window, or of the whole window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    /// The number of calls that were good or bad.
    calls: u32,
    /// The number of these that failed.
    bad: u32,
    /// The number of these that took longer than `slow_after`.
    slow: u32,
}

/// The circuit breaker of one lane.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: BreakerState,
    /// The number of state changes. A permit of an earlier epoch is ignored.
    epoch: u32,
    /// The number of consecutive openings.
    streak: u32,
    /// The time of the last close.
    closed_at: Mono,
    /// The number of probes in flight while half-open.
    probes_out: u32,
    /// The number of successful probes while half-open.
    probes_good: u32,
    /// The time of the last probe.
    probe_sent: Mono,
    /// The sliding window, as a ring indexed by `tick`.
    slots: [WindowCounts; SLOTS],
    /// The sum of all slots.
    sum: WindowCounts,
    /// The number of consecutive failures, and when the first of them came back.
    in_a_row: u32,
    row_began: Mono,
    /// The number of calls in flight that were allowed in this state.
    out: u32,
    /// The usual duration of a good call, smoothed; zero before the first.
    usual: Duration,
    /// The length of a slot, in nanoseconds.
    slot_nanos: u64,
    /// The number of the current slot, counted from the start of the clock.
    tick: u64,
}

impl Breaker {
    /// Creates a closed breaker.
    #[must_use]
    pub fn new(config: &BreakerConfig) -> Breaker {
        Breaker {
            config: *config,
            state: BreakerState::Closed,
            epoch: 0,
            streak: 0,
            closed_at: Mono::ZERO,
            probes_out: 0,
            probes_good: 0,
            probe_sent: Mono::ZERO,
            slots: [WindowCounts::default(); SLOTS],
            sum: WindowCounts::default(),
            in_a_row: 0,
            row_began: Mono::ZERO,
            out: 0,
            usual: Duration::ZERO,
            slot_nanos: (nanos(config.window) / SLOTS as u64).max(1),
            tick: 0,
        }
    }

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Mono) -> BreakerState {
        match self.state {
            BreakerState::Open(until) if now >= until => BreakerState::HalfOpen,
            state => state,
        }
    }

    /// The number of state changes.
    #[must_use]
    pub const fn changes(&self) -> u32 {
        self.epoch
    }

    /// Opens the breaker until `until`, to restore the state of an earlier one. A breaker that is
    /// open for longer is not changed.
    pub fn open_until(&mut self, until: Mono) {
        if matches!(self.state, BreakerState::Open(known) if known >= until) {
            return;
        }
        self.enter(BreakerState::Open(until));
        self.streak = self.streak.max(1);
    }

    /// Whether a call is allowed now. Does not change the breaker, so the limiter can be asked before
    /// [`Breaker::pass`].
    #[must_use]
    pub fn ready(&self, now: Mono) -> BreakerReady {
        match self.state {
            BreakerState::Open(until) if now < until => BreakerReady::Shut(until),
            BreakerState::HalfOpen if self.probes_full() && now < self.probe_lost_at() => {
                BreakerReady::Probing
            }
            BreakerState::Closed | BreakerState::HalfOpen | BreakerState::Open(_) => BreakerReady::Yes,
        }
    }

    /// Allows a call, after [`Breaker::ready`] returned [`BreakerReady::Yes`].
    pub fn pass(&mut self, now: Mono) -> BreakerPermit {
        if self.state != BreakerState::Closed {
            if matches!(self.state, BreakerState::Open(_)) || self.probes_full() {
                self.half_open();
            }
            self.probes_out += 1;
            self.probe_sent = now;
        }
        self.out = self.out.saturating_add(1);
        BreakerPermit { epoch: self.epoch }
    }

    fn probes_full(&self) -> bool {
        self.probes_out + self.probes_good >= self.config.probes.max(1)
    }

    fn probe_lost_at(&self) -> Mono {
        self.probe_sent + self.cooldown()
    }

    /// Counts the result of a call that took `took`. Returns whether the state has changed.
    pub fn settle(&mut self, pass: BreakerPermit, health: CallHealth, took: Duration, now: Mono) -> bool {
        let BreakerPermit { epoch } = pass;
        if epoch != self.epoch {
            return false;
        }
        self.out = self.out.saturating_sub(1);
        if health == CallHealth::Good {
            let rest = self.usual / USUAL_SMOOTHING * (USUAL_SMOOTHING - 1);
            self.usual = if self.usual.is_zero() { took } else { rest + took / USUAL_SMOOTHING };
        }
        let slow = self.config.slow_after.is_some_and(|limit| took > limit);
        match self.state {
            BreakerState::Closed => self.count(health, slow, now),
            BreakerState::HalfOpen => self.probed(health, slow, now),
            BreakerState::Open(_) => false,
        }
    }

    fn count(&mut self, health: CallHealth, slow: bool, now: Mono) -> bool {
        if health == CallHealth::Neutral {
            return false;
        }
        self.slide(now);
        let bad = health == CallHealth::Bad;
        let before = if self.sum.calls > 0 { self.in_a_row } else { 0 };
        self.in_a_row = if bad { before.saturating_add(1) } else { 0 };
        if self.in_a_row == 1 {
            self.row_began = now;
        }
        let slot = &mut self.slots[(self.tick % SLOTS as u64) as usize];
        for s in [slot, &mut self.sum] {
            s.calls = s.calls.saturating_add(1);
            s.bad = s.bad.saturating_add(u32::from(bad));
            s.slow = s.slow.saturating_add(u32::from(slow));
        }
        if self.streak > 0 && now.since(self.closed_at) >= self.config.window {
            self.streak = 0;
        }
        let calls = f64::from(self.sum.calls);
        let enough = self.sum.calls >= self.config.calls_min.max(1);
        let hoped = self.hoped_for(now);
        let all = calls + f64::from(hoped);
        let failing = self.sum.bad > 0 && f64::from(self.sum.bad) >= self.config.failure_rate * all;
        let slowing = self.sum.slow > 0 && f64::from(self.sum.slow) >= self.config.slow_rate * calls;
        let down = self.in_a_row >= self.config.calls_min.max(IN_A_ROW) && self.in_a_row > hoped;
        if enough && (failing || slowing || down) {
            self.open(now);
            return true;
        }
        false
    }

    /// The number of calls that are out and may still be good.
    fn hoped_for(&self, now: Mono) -> u32 {
        if now.since(self.row_began) < self.usual.saturating_mul(HOPED_FOR) { self.out } else { 0 }
    }

    fn probed(&mut self, health: CallHealth, slow: bool, now: Mono) -> bool {
        self.probes_out = self.probes_out.saturating_sub(1);
        match health {
            CallHealth::Neutral => false,
            CallHealth::Good if !slow => {
                self.probes_good += 1;
                if self.probes_good < self.config.probes.max(1) {
                    return false;
                }
                self.enter(BreakerState::Closed);
                self.closed_at = now;
                self.slots = [WindowCounts::default(); SLOTS];
                self.sum = WindowCounts::default();
                true
            }
            CallHealth::Good | CallHealth::Bad => {
                self.open(now);
                true
            }
        }
    }

    fn open(&mut self, now: Mono) {
        self.streak = self.streak.saturating_add(1);
        self.enter(BreakerState::Open(now + self.cooldown()));
    }

    fn half_open(&mut self) {
        self.enter(BreakerState::HalfOpen);
        self.probes_out = 0;
        self.probes_good = 0;
    }

    /// Changes the state. Calls that are out count for nothing any more.
    fn enter(&mut self, state: BreakerState) {
        self.state = state;
        self.epoch = self.epoch.wrapping_add(1);
        self.out = 0;
    }

    /// `min(cooldown_max, cooldown · factor^(consecutive openings − 1))`.
    fn cooldown(&self) -> Duration {
        let factor = if self.config.cooldown_factor >= 1.0 { self.config.cooldown_factor } else { 1.0 };
        let grown = self.config.cooldown.as_secs_f64()
            * libm::pow(factor, f64::from(self.streak.saturating_sub(1).min(64)));
        crate::time::seconds(grown).min(self.config.cooldown_max.max(self.config.cooldown))
    }

    /// Clears the slots that have left the window, in at most [`SLOTS`] steps after any idle time.
    fn slide(&mut self, now: Mono) {
        let tick = now.nanos() / self.slot_nanos;
        if tick <= self.tick {
            return;
        }
        let gone = (tick - self.tick).min(SLOTS as u64);
        for i in 0..gone {
            let old = core::mem::take(&mut self.slots[((tick - i) % SLOTS as u64) as usize]);
            self.sum.calls = self.sum.calls.saturating_sub(old.calls);
            self.sum.bad = self.sum.bad.saturating_sub(old.bad);
            self.sum.slow = self.sum.slow.saturating_sub(old.slow);
        }
        self.tick = tick;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: f64) -> Mono {
        Mono::from_secs_f64(s)
    }

    fn call(b: &mut Breaker, health: CallHealth, now: Mono) -> bool {
        assert_eq!(b.ready(now), BreakerReady::Yes);
        let pass = b.pass(now);
        b.settle(pass, health, Duration::ZERO, now)
    }

    #[test]
    fn opens_at_half_of_ten_and_heals_by_three_probes() {
        let mut b = Breaker::new(&BreakerConfig::default());
        for _ in 0..5 {
            assert!(!call(&mut b, CallHealth::Good, at(1.0)));
        }
        for _ in 0..4 {
            assert!(!call(&mut b, CallHealth::Bad, at(2.0)));
        }
        assert!(call(&mut b, CallHealth::Bad, at(2.0)));
        assert_eq!(b.ready(at(2.0)), BreakerReady::Shut(at(32.0)));
        assert_eq!(b.ready(at(31.9)), BreakerReady::Shut(at(32.0)));
        for _ in 0..3 {
            assert_eq!(b.state(at(32.0)), BreakerState::HalfOpen);
            call(&mut b, CallHealth::Good, at(32.0));
        }
        assert_eq!(b.state(at(32.0)), BreakerState::Closed);
    }

    #[test]
    fn each_opening_in_a_row_lasts_longer_and_health_forgets_it() {
        let config = BreakerConfig { calls_min: 1, probes: 1, ..Default::default() };
        let mut b = Breaker::new(&config);
        let mut now = at(0.0);
        for cooldown in [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0] {
            assert!(call(&mut b, CallHealth::Bad, now));
            assert_eq!(b.state(now), BreakerState::Open(now + crate::time::seconds(cooldown)));
            now += crate::time::seconds(cooldown);
        }
        call(&mut b, CallHealth::Good, now);
        assert_eq!(b.state(now), BreakerState::Closed);
        now += Duration::from_secs(61);
        call(&mut b, CallHealth::Good, now);
        call(&mut b, CallHealth::Bad, now);
        assert_eq!(b.state(now), BreakerState::Open(now + Duration::from_secs(30)));
    }

    #[test]
    fn failures_in_a_row_open_it_whatever_was_good_before() {
        let mut b = Breaker::new(&BreakerConfig::default());
        for _ in 0..10_000 {
            call(&mut b, CallHealth::Good, at(1.0));
        }
        for i in 0..40 {
            let good = i % 10 == 9;
            assert!(!call(&mut b, if good { CallHealth::Good } else { CallHealth::Bad }, at(2.0)));
        }
        for i in 0..10 {
            assert!(!call(&mut b, CallHealth::Neutral, at(3.0)), "a throttle is no failure");
            assert_eq!(call(&mut b, CallHealth::Bad, at(3.0)), i == 9);
        }
        assert_eq!(b.state(at(3.0)), BreakerState::Open(at(33.0)));
    }

    #[test]
    fn four_failures_in_a_row_are_no_outage() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, ..Default::default() });
        for _ in 0..100 {
            call(&mut b, CallHealth::Good, at(1.0));
        }
        for i in 0..5 {
            assert_eq!(call(&mut b, CallHealth::Bad, at(2.0)), i == 4);
        }
    }

    #[test]
    fn the_window_forgets() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 4, ..Default::default() });
        for _ in 0..3 {
            call(&mut b, CallHealth::Bad, at(0.0));
        }
        assert!(!call(&mut b, CallHealth::Bad, at(61.0)));
        assert!(!call(&mut b, CallHealth::Bad, at(1e8)));
        assert_eq!(b.sum.calls, 1);
    }

    #[test]
    fn throttles_are_neutral_also_for_a_probe() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        for _ in 0..100 {
            assert!(!call(&mut b, CallHealth::Neutral, at(0.0)));
        }
        call(&mut b, CallHealth::Bad, at(0.0));
        assert!(!call(&mut b, CallHealth::Neutral, at(30.0)));
        assert!(call(&mut b, CallHealth::Good, at(30.0)), "the throttled probe freed its place");
    }

    #[test]
    fn a_lost_probe_does_not_lock_the_breaker() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        call(&mut b, CallHealth::Bad, at(0.0));
        let _lost = b.pass(at(30.0));
        assert_eq!(b.ready(at(59.9)), BreakerReady::Probing);
        assert!(call(&mut b, CallHealth::Good, at(60.0)));
    }

    /// A tenth of 128 calls at once fails within a millisecond, and the others are good after 60 ms.
    #[test]
    fn failures_that_come_back_first_are_seen_beside_what_is_out() {
        let mut b = Breaker::new(&BreakerConfig::default());
        let ms = |ms: u64| Mono::from_millis(ms);
        let good =
            |b: &mut Breaker, pass, now| b.settle(pass, CallHealth::Good, Duration::from_millis(60), now);
        let first = b.pass(ms(0));
        assert!(!good(&mut b, first, ms(60)));
        for flight in 1..20 {
            let (sent, back) = (ms(100 * flight), ms(100 * flight + 1));
            let mut out: alloc::vec::Vec<_> = (0..128).map(|_| b.pass(sent)).collect();
            for pass in out.drain(..13) {
                assert!(!b.settle(pass, CallHealth::Bad, Duration::from_millis(1), back), "{flight}");
            }
            out.into_iter().for_each(|pass| assert!(!good(&mut b, pass, ms(100 * flight + 60))));
        }
        // What is out comes back too late: that is an outage, and it is known at once.
        let sent = ms(3000);
        let hangs: alloc::vec::Vec<_> = (0..100).map(|_| b.pass(sent)).collect();
        for i in 0..10 {
            let pass = b.pass(sent);
            let now = if i == 9 { ms(3122) } else { ms(3001) };
            assert_eq!(b.settle(pass, CallHealth::Bad, Duration::from_millis(1), now), i == 9);
        }
        drop(hangs);
    }

    #[test]
    fn slow_calls_open_it() {
        let config = BreakerConfig { slow_after: Some(Duration::from_secs(1)), ..Default::default() };
        let mut b = Breaker::new(&config);
        for i in 0..10 {
            let pass = b.pass(at(0.0));
            let took = Duration::from_secs(if i < 2 { 0 } else { 2 });
            assert_eq!(b.settle(pass, CallHealth::Good, took, at(0.0)), i == 9);
        }
    }

    #[test]
    fn answers_of_an_earlier_state_count_for_nothing() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        let early = b.pass(at(0.0));
        call(&mut b, CallHealth::Bad, at(0.0));
        let probe = b.pass(at(30.0));
        assert!(!b.settle(early, CallHealth::Good, Duration::ZERO, at(30.0)));
        assert!(b.settle(probe, CallHealth::Good, Duration::ZERO, at(30.0)));
    }

    proptest! {
        /// Open: no call. Half-open: no more probes than configured. The running sum equals the sum of
        /// the slots.
        #[test]
        fn open_means_no_call(
            steps in prop::collection::vec((0u64..20_000, 0u8..6), 1..300), probes in 1u32..5, calls_min in 1u32..8,
        ) {
            let config = BreakerConfig { probes, calls_min, ..Default::default() };
            let mut b = Breaker::new(&config);
            let (mut now, mut out) = (Mono::ZERO, alloc::vec::Vec::new());
            for (gap, what) in steps {
                now += Duration::from_millis(gap);
                let before = b.state(now);
                if what < 3 {
                    match b.ready(now) {
                        BreakerReady::Yes => {
                            prop_assert!(!matches!(before, BreakerState::Open(_)));
                            out.push(b.pass(now));
                        }
                        BreakerReady::Shut(t) => prop_assert!(t > now),
                        BreakerReady::Probing => prop_assert!(b.probes_out > 0),
                    }
                } else if let Some(pass) = out.pop() {
                    let health = [CallHealth::Good, CallHealth::Bad, CallHealth::Neutral][usize::from(what - 3)];
                    b.settle(pass, health, Duration::ZERO, now);
                }
                if b.state == BreakerState::HalfOpen {
                    prop_assert!(b.probes_out + b.probes_good <= probes);
                }
                let calls: u32 = b.slots.iter().map(|s| s.calls).sum();
                prop_assert_eq!(calls, b.sum.calls);
            }
        }
    }
}
