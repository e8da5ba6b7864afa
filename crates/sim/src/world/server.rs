//! The server's side of a world, composed of layers that a call passes in order:
//! outage → throttle → random fault → service.
//!
//! A service slows down with the calls it serves at once, which is all that a retry storm needs
//! to feed itself. After an outage it can be weak for a while: too many arrivals in one tick and
//! it falls over again, which is what makes a herd dangerous.

use serde::Deserialize;
use tidegate_core::hint::Hints;
use tidegate_core::{Chance, Rng};

use super::limit::LimitSpec;
use crate::draw::Normal;
use crate::server::Throttle;

/// The server section of a scenario. Left out means: answers every call at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct ServerSpec {
    /// How long a call takes.
    pub service: Service,
    /// What it allows; everything by default. More is answered 429 at once.
    pub limit: Option<LimitSpec>,
    /// The share of calls that fail with 503, drawn independently.
    pub fault_rate: f64,
    /// When it is down.
    pub outages: Vec<Outage>,
}

/// How long a call takes: `(base + per_in_flight · calls being served) · (1 + spread · z)`, z
/// standard normal, not below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct Service {
    /// Seconds on an idle server.
    pub base_seconds: f64,
    /// More seconds for each call that is being served, this one included.
    pub per_in_flight_seconds: f64,
    /// Relative standard deviation.
    pub spread: f64,
    /// Whether the server stops working for a caller that went away.
    pub abandons: bool,
}

/// A time during which every call is answered 503 at once.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Outage {
    /// From this second on.
    pub from: f64,
    /// Until this second.
    pub until: f64,
    /// Weakness afterwards.
    pub recovery: Option<Recovery>,
}

/// Weakness after an outage.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Recovery {
    /// So long after it was last down.
    pub seconds: f64,
    /// More arrivals than this in one tick of the world …
    pub arrivals_max: u32,
    /// … and it is down again for so long.
    pub relapse_seconds: f64,
}

/// The answer to one arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Nanoseconds of work.
    pub service: u64,
    /// What the headers say.
    pub hints: Hints,
}

/// A server at work.
#[derive(Clone, Debug)]
pub struct Server {
    spec: ServerSpec,
    normal: Normal,
    throttle: Option<Throttle>,
    tick: u64,
    /// Calls being served.
    pub in_flight: u32,
    /// Down until this time, whatever the plan says, and weak until the next.
    down_until: u64,
    weak_until: u64,
    recovery: Option<Recovery>,
    arrivals: (u64, u32),
    /// How often it fell over again.
    pub relapses: u32,
}

impl ServerSpec {
    /// What is wrong with it, if anything.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let s = &self.service;
        let numbers = [s.base_seconds, s.per_in_flight_seconds, s.spread];
        if !numbers.iter().all(|x| (0.0..=1e6).contains(x)) {
            return Some("service times must lie between 0 and 1e6 seconds");
        }
        if !(0.0..=1.0).contains(&self.fault_rate) {
            return Some("`fault_rate` must lie between 0 and 1");
        }
        self.limit.as_ref().and_then(LimitSpec::flaw)
    }
}

impl Server {
    /// A server at rest; `tick` is the world's, in nanoseconds.
    #[must_use]
    pub fn new(spec: &ServerSpec, tick: u64) -> Server {
        Server {
            spec: spec.clone(),
            normal: Normal::new(),
            throttle: spec.limit.as_ref().map(|limit| Throttle::new(&limit.limit())),
            tick: tick.max(1),
            in_flight: 0,
            down_until: 0,
            weak_until: 0,
            recovery: None,
            arrivals: (0, 0),
            relapses: 0,
        }
    }

    /// Whether it stops working for a caller that went away.
    #[must_use]
    pub const fn abandons(&self) -> bool {
        self.spec.service.abandons
    }

    /// A call arrives.
    pub fn arrive(&mut self, now: u64, chance: &mut Rng) -> Answer {
        let refused = |status| Answer { status, service: 0, hints: Hints::default() };
        if !self.spec.outages.is_empty() && self.is_down(now) {
            return refused(503);
        }
        let service = self.service(chance);
        if let Some(throttle) = &mut self.throttle {
            let answer = throttle.offer(now, service);
            if !answer.accepted {
                return refused(429);
            }
        }
        if self.spec.fault_rate > 0.0 && chance.unit() < self.spec.fault_rate {
            return Answer { status: 503, service, hints: Hints::default() };
        }
        Answer { status: 200, service, hints: Hints::default() }
    }

    fn service(&self, chance: &mut Rng) -> u64 {
        let s = &self.spec.service;
        let mean = s.base_seconds + s.per_in_flight_seconds * f64::from(self.in_flight + 1);
        if mean <= 0.0 {
            return 0;
        }
        let spread = if s.spread > 0.0 { 1.0 + s.spread * self.normal.draw(chance) } else { 1.0 };
        (mean * spread.max(0.0) * 1e9) as u64
    }

    fn is_down(&mut self, now: u64) -> bool {
        let nanos = |s: f64| (s * 1e9) as u64;
        if let Some(outage) =
            self.spec.outages.iter().find(|o| (nanos(o.from)..nanos(o.until)).contains(&now))
        {
            self.recovery = outage.recovery;
            self.down_until = nanos(outage.until);
            self.weak_until = outage.recovery.map_or(0, |r| self.down_until + nanos(r.seconds));
        }
        if now < self.down_until {
            return true;
        }
        let Some(recovery) = self.recovery.filter(|_| now < self.weak_until) else { return false };
        let tick = now / self.tick;
        self.arrivals = if self.arrivals.0 == tick { (tick, self.arrivals.1 + 1) } else { (tick, 1) };
        if self.arrivals.1 <= recovery.arrivals_max {
            return false;
        }
        self.relapses += 1;
        self.down_until = now + nanos(recovery.relapse_seconds);
        self.weak_until = self.down_until + nanos(recovery.seconds);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn too_many_at_once_and_it_falls_over_again() {
        let spec: ServerSpec = serde_saphyr::from_str(
            "outages: [{from: 1, until: 2, recovery: {seconds: 10, arrivals_max: 2, relapse_seconds: 3}}]",
        )
        .unwrap();
        let mut server = Server::new(&spec, SECOND / 10);
        let mut rng = Rng::new(1);
        let mut status = |at: u64| server.arrive(at, &mut rng).status;
        assert_eq!(status(0), 200);
        assert_eq!(status(SECOND), 503);
        assert_eq!(status(2 * SECOND - 1), 503);
        assert_eq!([status(2 * SECOND), status(2 * SECOND), status(2 * SECOND)], [200, 200, 503]);
        assert_eq!(status(5 * SECOND - 1), 503);
        assert_eq!(status(5 * SECOND), 200);
        // Strong again ten seconds after the relapse.
        assert!((0..100).all(|_| status(15 * SECOND) == 200));
        assert_eq!(server.relapses, 1);
    }

    #[test]
    fn it_slows_down_with_its_load() {
        let spec: ServerSpec =
            serde_saphyr::from_str("service: {base_seconds: 1, per_in_flight_seconds: 0.01}").unwrap();
        let mut server = Server::new(&spec, 1);
        let mut rng = Rng::new(1);
        assert_eq!(server.arrive(0, &mut rng).service, 1_010_000_000);
        server.in_flight = 99;
        assert_eq!(server.arrive(0, &mut rng).service, 2_000_000_000);
    }
}
