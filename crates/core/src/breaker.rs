//! Keeps calls away from a service that is down.
//!
//! States and what moves between them:
//!
//! ```text
//!            failure rate ≥ threshold, or slow rate ≥ threshold,
//!            or so many failures in a row as decide anything
//!   closed ────────────────────────────────────────────────────▶ open
//!     ▲                                                        │    ▲
//!     │ all probes succeed                       cooldown over │    │ a probe fails:
//!     │                                                        ▼    │ the cooldown grows
//!     └──────────────────────────────────────────────────── half-open
//! ```
//!
//! The rates are taken over a sliding window of time, held as [`SLOTS`] counters: memory and time
//! per call are constant, also after a year of silence. A service that goes down after a minute of
//! thousands of good calls would take thousands of failures to be noticed by rates alone; so failures
//! in a row, with no good call between them, open the breaker too. Throttles are neutral: a server that
//! says "slower" is alive. A probe whose permit was dropped frees its place; one that never came back
//! is given up after a cooldown, so that no lost permit can lock the breaker.

use crate::time::{Mono, nanos};
use core::time::Duration;

/// Counters in the sliding window; the window is exact to one part in this many.
pub const SLOTS: usize = 12;

/// Fewer failures in a row than this are no outage, whatever the settings say.
const IN_A_ROW: u32 = 5;

/// The settings of a [`Breaker`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerConfig {
    /// Over how long the rates are taken.
    pub window: Duration,
    /// Opens at this share of failures.
    pub failure_rate: f64,
    /// Fewer calls than this in the window decide nothing; so many failures in a row, and five at least,
    /// open it.
    pub calls_min: u32,
    /// How long it stays open the first time.
    pub cooldown: Duration,
    /// Each opening in a row lasts this many times longer.
    pub cooldown_factor: f64,
    /// The longest that it stays open.
    pub cooldown_max: Duration,
    /// Calls let through half-open; all must succeed.
    pub probes: u32,
    /// A call is slow when it takes longer than this.
    pub slow_after: Option<Duration>,
    /// Opens at this share of slow calls.
    pub slow_rate: f64,
}

impl Default for BreakerConfig {
    /// 60 s, 50 %, 10 calls; 30 s growing twofold to 10 min; 3 probes; slowness off.
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

/// What a call told the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The service works.
    Good,
    /// The service fails.
    Bad,
    /// Neither: throttled, or abandoned by us.
    Neutral,
}

/// The state as a person would name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls pass.
    Closed,
    /// No call passes before this time.
    Open(Mono),
    /// A few probes pass.
    HalfOpen,
}

/// The breaker's part of a permit.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    epoch: u32,
}

/// May a call pass?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Yes: take a [`Breaker::pass`].
    Yes,
    /// Not before this time.
    Shut(Mono),
    /// All probes are out: ask again when one has come back.
    Probing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    calls: u32,
    bad: u32,
    slow: u32,
}

/// The circuit breaker of one lane.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
    /// Grows with every change of state, so that late answers of an earlier state count for nothing.
    epoch: u32,
    /// Openings in a row.
    streak: u32,
    closed_at: Mono,
    probes_out: u32,
    probes_good: u32,
    probe_sent: Mono,
    slots: [Slot; SLOTS],
    sum: Slot,
    /// Failures since the last good call of the window.
    in_a_row: u32,
    slot_nanos: u64,
    tick: u64,
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(config: &BreakerConfig) -> Breaker {
        Breaker {
            config: *config,
            state: State::Closed,
            epoch: 0,
            streak: 0,
            closed_at: Mono::ZERO,
            probes_out: 0,
            probes_good: 0,
            probe_sent: Mono::ZERO,
            slots: [Slot::default(); SLOTS],
            sum: Slot::default(),
            in_a_row: 0,
            slot_nanos: (nanos(config.window) / SLOTS as u64).max(1),
            tick: 0,
        }
    }

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Mono) -> State {
        match self.state {
            State::Open(until) if now >= until => State::HalfOpen,
            state => state,
        }
    }

    /// How often the state has changed.
    #[must_use]
    pub const fn changes(&self) -> u32 {
        self.epoch
    }

    /// Keeps calls away until `until`: what was known before this breaker was made. One that is
    /// open for longer stays so.
    pub fn open_until(&mut self, until: Mono) {
        if matches!(self.state, State::Open(known) if known >= until) {
            return;
        }
        self.state = State::Open(until);
        self.epoch = self.epoch.wrapping_add(1);
        self.streak = self.streak.max(1);
    }

    /// May a call pass now? Changes nothing, so that the limiter can be asked in between.
    #[must_use]
    pub fn ready(&self, now: Mono) -> Ready {
        match self.state {
            State::Open(until) if now < until => Ready::Shut(until),
            State::HalfOpen if self.probes_full() && now < self.probe_lost_at() => Ready::Probing,
            State::Closed | State::HalfOpen | State::Open(_) => Ready::Yes,
        }
    }

    /// Lets a call pass, after [`Breaker::ready`] said yes.
    pub fn pass(&mut self, now: Mono) -> Pass {
        if self.state != State::Closed {
            if matches!(self.state, State::Open(_)) || self.probes_full() {
                self.half_open();
            }
            self.probes_out += 1;
            self.probe_sent = now;
        }
        Pass { epoch: self.epoch }
    }

    fn probes_full(&self) -> bool {
        self.probes_out + self.probes_good >= self.config.probes.max(1)
    }

    fn probe_lost_at(&self) -> Mono {
        self.probe_sent + self.cooldown()
    }

    /// A call came back after `took`. Returns true if it changed the state.
    pub fn settle(&mut self, pass: Pass, health: Health, took: Duration, now: Mono) -> bool {
        let Pass { epoch } = pass;
        if epoch != self.epoch {
            return false;
        }
        let slow = self.config.slow_after.is_some_and(|limit| took > limit);
        match self.state {
            State::Closed => self.count(health, slow, now),
            State::HalfOpen => self.probed(health, slow, now),
            State::Open(_) => false,
        }
    }

    fn count(&mut self, health: Health, slow: bool, now: Mono) -> bool {
        if health == Health::Neutral {
            return false;
        }
        self.slide(now);
        let bad = health == Health::Bad;
        let before = if self.sum.calls > 0 { self.in_a_row } else { 0 };
        self.in_a_row = if bad { before.saturating_add(1) } else { 0 };
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
        let failing = self.sum.bad > 0 && f64::from(self.sum.bad) >= self.config.failure_rate * calls;
        let slowing = self.sum.slow > 0 && f64::from(self.sum.slow) >= self.config.slow_rate * calls;
        let down = self.in_a_row >= self.config.calls_min.max(IN_A_ROW);
        if enough && (failing || slowing || down) {
            self.open(now);
            return true;
        }
        false
    }

    fn probed(&mut self, health: Health, slow: bool, now: Mono) -> bool {
        self.probes_out = self.probes_out.saturating_sub(1);
        match health {
            Health::Neutral => false,
            Health::Good if !slow => {
                self.probes_good += 1;
                if self.probes_good < self.config.probes.max(1) {
                    return false;
                }
                self.state = State::Closed;
                self.epoch = self.epoch.wrapping_add(1);
                self.closed_at = now;
                self.slots = [Slot::default(); SLOTS];
                self.sum = Slot::default();
                true
            }
            Health::Good | Health::Bad => {
                self.open(now);
                true
            }
        }
    }

    fn open(&mut self, now: Mono) {
        self.streak = self.streak.saturating_add(1);
        self.state = State::Open(now + self.cooldown());
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn half_open(&mut self) {
        self.state = State::HalfOpen;
        self.epoch = self.epoch.wrapping_add(1);
        self.probes_out = 0;
        self.probes_good = 0;
    }

    /// `min(cooldown_max, cooldown · factor^(openings in a row − 1))`.
    fn cooldown(&self) -> Duration {
        let factor = if self.config.cooldown_factor >= 1.0 { self.config.cooldown_factor } else { 1.0 };
        let grown = self.config.cooldown.as_secs_f64()
            * libm::pow(factor, f64::from(self.streak.saturating_sub(1).min(64)));
        crate::time::seconds(grown).min(self.config.cooldown_max.max(self.config.cooldown))
    }

    /// Drops the slots that have left the window: at most [`SLOTS`] steps, however long the idling.
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

    fn call(b: &mut Breaker, health: Health, now: Mono) -> bool {
        assert_eq!(b.ready(now), Ready::Yes);
        let pass = b.pass(now);
        b.settle(pass, health, Duration::ZERO, now)
    }

    #[test]
    fn opens_at_half_of_ten_and_heals_by_three_probes() {
        let mut b = Breaker::new(&BreakerConfig::default());
        for _ in 0..5 {
            assert!(!call(&mut b, Health::Good, at(1.0)));
        }
        for _ in 0..4 {
            assert!(!call(&mut b, Health::Bad, at(2.0)));
        }
        assert!(call(&mut b, Health::Bad, at(2.0)));
        assert_eq!(b.ready(at(2.0)), Ready::Shut(at(32.0)));
        assert_eq!(b.ready(at(31.9)), Ready::Shut(at(32.0)));
        for _ in 0..3 {
            assert_eq!(b.state(at(32.0)), State::HalfOpen);
            call(&mut b, Health::Good, at(32.0));
        }
        assert_eq!(b.state(at(32.0)), State::Closed);
    }

    #[test]
    fn each_opening_in_a_row_lasts_longer_and_health_forgets_it() {
        let config = BreakerConfig { calls_min: 1, probes: 1, ..Default::default() };
        let mut b = Breaker::new(&config);
        let mut now = at(0.0);
        for cooldown in [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0] {
            assert!(call(&mut b, Health::Bad, now));
            assert_eq!(b.state(now), State::Open(now + crate::time::seconds(cooldown)));
            now += crate::time::seconds(cooldown);
        }
        call(&mut b, Health::Good, now);
        assert_eq!(b.state(now), State::Closed);
        now += Duration::from_secs(61);
        call(&mut b, Health::Good, now);
        call(&mut b, Health::Bad, now);
        assert_eq!(b.state(now), State::Open(now + Duration::from_secs(30)));
    }

    #[test]
    fn failures_in_a_row_open_it_whatever_was_good_before() {
        let mut b = Breaker::new(&BreakerConfig::default());
        for _ in 0..10_000 {
            call(&mut b, Health::Good, at(1.0));
        }
        for i in 0..40 {
            let good = i % 10 == 9;
            assert!(!call(&mut b, if good { Health::Good } else { Health::Bad }, at(2.0)));
        }
        for i in 0..10 {
            assert!(!call(&mut b, Health::Neutral, at(3.0)), "a throttle is no failure");
            assert_eq!(call(&mut b, Health::Bad, at(3.0)), i == 9);
        }
        assert_eq!(b.state(at(3.0)), State::Open(at(33.0)));
    }

    #[test]
    fn four_failures_in_a_row_are_no_outage() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, ..Default::default() });
        for _ in 0..100 {
            call(&mut b, Health::Good, at(1.0));
        }
        for i in 0..5 {
            assert_eq!(call(&mut b, Health::Bad, at(2.0)), i == 4);
        }
    }

    #[test]
    fn the_window_forgets() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 4, ..Default::default() });
        for _ in 0..3 {
            call(&mut b, Health::Bad, at(0.0));
        }
        assert!(!call(&mut b, Health::Bad, at(61.0)));
        assert!(!call(&mut b, Health::Bad, at(1e8)));
        assert_eq!(b.sum.calls, 1);
    }

    #[test]
    fn throttles_are_neutral_also_for_a_probe() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        for _ in 0..100 {
            assert!(!call(&mut b, Health::Neutral, at(0.0)));
        }
        call(&mut b, Health::Bad, at(0.0));
        assert!(!call(&mut b, Health::Neutral, at(30.0)));
        assert!(call(&mut b, Health::Good, at(30.0)), "the throttled probe freed its place");
    }

    #[test]
    fn a_lost_probe_does_not_lock_the_breaker() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        call(&mut b, Health::Bad, at(0.0));
        let _lost = b.pass(at(30.0));
        assert_eq!(b.ready(at(59.9)), Ready::Probing);
        assert!(call(&mut b, Health::Good, at(60.0)));
    }

    #[test]
    fn slow_calls_open_it() {
        let config = BreakerConfig { slow_after: Some(Duration::from_secs(1)), ..Default::default() };
        let mut b = Breaker::new(&config);
        for i in 0..10 {
            let pass = b.pass(at(0.0));
            let took = Duration::from_secs(if i < 2 { 0 } else { 2 });
            assert_eq!(b.settle(pass, Health::Good, took, at(0.0)), i == 9);
        }
    }

    #[test]
    fn answers_of_an_earlier_state_count_for_nothing() {
        let mut b = Breaker::new(&BreakerConfig { calls_min: 1, probes: 1, ..Default::default() });
        let early = b.pass(at(0.0));
        call(&mut b, Health::Bad, at(0.0));
        let probe = b.pass(at(30.0));
        assert!(!b.settle(early, Health::Good, Duration::ZERO, at(30.0)));
        assert!(b.settle(probe, Health::Good, Duration::ZERO, at(30.0)));
    }

    proptest! {
        /// Open: no call. Half-open: never more probes out than allowed. The running sum equals the slots.
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
                        Ready::Yes => {
                            prop_assert!(!matches!(before, State::Open(_)));
                            out.push(b.pass(now));
                        }
                        Ready::Shut(t) => prop_assert!(t > now),
                        Ready::Probing => prop_assert!(b.probes_out > 0),
                    }
                } else if let Some(pass) = out.pop() {
                    let health = [Health::Good, Health::Bad, Health::Neutral][usize::from(what - 3)];
                    b.settle(pass, health, Duration::ZERO, now);
                }
                if b.state == State::HalfOpen {
                    prop_assert!(b.probes_out + b.probes_good <= probes);
                }
                let calls: u32 = b.slots.iter().map(|s| s.calls).sum();
                prop_assert_eq!(calls, b.sum.calls);
            }
        }
    }
}
