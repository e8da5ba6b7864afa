//! The server of a world, with layers that a call passes in order:
//! outage → throttle → random fault → service.
//!
//! It announces limits and waits as header text in one of the dialects, and the client parses this
//! text with the production parser.
//!
//! A service becomes slower with the number of concurrent calls, which is enough to sustain a retry
//! storm. After an outage it can be weak for a while: too many arrivals in one tick cause another
//! outage. This models the danger of many clients that return at the same time.

use core::time::Duration;

use serde::Deserialize;
use tidegate_core::{Chance, Rng, Wall};

use super::limit::ServerLimitSpec;
use crate::dialect::Dialect;
use crate::distribution::Normal;
use crate::drain::RefusalForm;
use crate::server::Throttle;
use crate::server::headers::{Headers, write_quota, write_wait};

/// The server section of a scenario. Without it, every call is answered immediately.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct ServerSpec {
    /// Service time of a call.
    pub service: ServiceTime,
    /// The rate or concurrency limit; none by default.
    pub limit: Option<ServerLimitSpec>,
    /// How calls beyond the limit are refused; 429 at once by default.
    pub refusal: RefusalForm,
    /// The dialect of its rate-limit headers; none by default.
    pub headers: Dialect,
    /// Whether a refusal carries Retry-After beside the quota; yes by default.
    pub retry_after: bool,
    /// The time by which its clock is ahead of the clients', in seconds; for dialects with dates.
    pub clock_ahead_seconds: f64,
    /// The share (0 to 1) of calls that fail with 503, drawn independently.
    pub fault_rate: f64,
    /// The outages.
    pub outages: Vec<ServerOutage>,
}

impl Default for ServerSpec {
    fn default() -> ServerSpec {
        ServerSpec {
            service: ServiceTime::default(),
            limit: None,
            refusal: RefusalForm::default(),
            headers: Dialect::None,
            retry_after: true,
            clock_ahead_seconds: 0.0,
            fault_rate: 0.0,
            outages: Vec::new(),
        }
    }
}

/// The service time of a call: `(base + per_in_flight · calls being served) · (1 + spread · z)` with z
/// standard normal, at least zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct ServiceTime {
    /// Service time on an idle server, in seconds.
    pub base_seconds: f64,
    /// Additional service time for each call that is being served, this one included, in seconds.
    pub per_in_flight_seconds: f64,
    /// Relative standard deviation of the service time.
    pub spread: f64,
    /// Whether the server stops serving a call whose client has disconnected.
    pub abandons: bool,
}

/// A time during which every call is immediately answered 503.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct ServerOutage {
    /// The start, in seconds from the start of the run.
    pub from: f64,
    /// The end, in seconds from the start of the run.
    pub until: f64,
    /// The recovery that follows; none by default.
    pub recovery: Option<Recovery>,
}

/// Recovery after an outage: too many arrivals bring the server down again.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Recovery {
    /// Length of the recovery, in seconds.
    pub seconds: f64,
    /// The most arrivals in one tick that cause no relapse.
    pub arrivals_max: u32,
    /// Length of the outage that more arrivals cause, in seconds.
    pub relapse_seconds: f64,
}

/// The answer to one arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerAnswer {
    /// HTTP status.
    pub status: u16,
    /// Service time, in nanoseconds.
    pub service: u64,
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct Server {
    spec: ServerSpec,
    normal: Normal,
    throttle: Option<Throttle>,
    /// The length of a tick, in nanoseconds.
    tick: u64,
    /// The number of calls being served.
    pub in_flight: u32,
    /// The end of the current or last outage, in nanoseconds.
    down_until: u64,
    /// The end of the recovery, in nanoseconds.
    weak_until: u64,
    recovery: Option<Recovery>,
    /// The current tick and its arrivals.
    arrivals: (u64, u32),
    /// The headers of the last answer.
    pub headers: Headers,
    /// The number of outages caused by too many arrivals during a recovery.
    pub relapses: u32,
}

/// The date at a simulated time; the simulation starts on Sunday, 15 November 2026, 05:00 GMT.
#[must_use]
pub fn wall(now: u64) -> Wall {
    const START_MS: i64 = 1_794_718_800_000;
    Wall::from_millis(START_MS.saturating_add_unsigned(now / 1_000_000))
}

impl ServerSpec {
    /// The reason why it is invalid, if it is.
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
        if !(-1e6..=1e6).contains(&self.clock_ahead_seconds) {
            return Some("`clock_ahead_seconds` must lie between -1e6 and 1e6");
        }
        if !self.retry_after && !self.headers.tells_quota() {
            return Some("`retry_after: false` leaves nothing to tell: give `headers` that tell a quota");
        }
        self.limit.as_ref().and_then(ServerLimitSpec::flaw).or_else(|| self.refusal.flaw())
    }
}

impl Server {
    /// Creates an idle server; `tick` is that of the world, in nanoseconds.
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
            headers: Vec::new(),
            relapses: 0,
        }
    }

    /// Whether it stops serving a call whose client has disconnected.
    #[must_use]
    pub const fn abandons(&self) -> bool {
        self.spec.service.abandons
    }

    /// Answers a call that arrives. Afterwards `headers` contains the headers of the answer.
    pub fn arrive(&mut self, now: u64, chance: &mut Rng) -> ServerAnswer {
        let tells = self.spec.headers != Dialect::None;
        if tells {
            self.headers.clear();
        }
        if !self.spec.outages.is_empty() && self.is_down(now) {
            if tells && self.spec.retry_after {
                let wait = Duration::from_nanos(self.down_until - now);
                write_wait(self.spec.headers, wait, self.wall(now), &mut self.headers);
            }
            return ServerAnswer { status: 503, service: 0 };
        }
        let mut service = self.service(chance);
        if let Some(throttle) = &mut self.throttle {
            let answer = throttle.offer(now, service);
            if tells {
                let wait = self.spec.retry_after.then(|| Duration::from_nanos(answer.wait));
                write_quota(self.spec.headers, &answer, wait, self.wall(now), &mut self.headers);
            }
            if !answer.accepted {
                let held = (self.spec.refusal.after_seconds * 1e9) as u64;
                return ServerAnswer { status: self.spec.refusal.status, service: held };
            }
            service += answer.delay;
        }
        if self.spec.fault_rate > 0.0 && chance.unit() < self.spec.fault_rate {
            return ServerAnswer { status: 503, service };
        }
        ServerAnswer { status: 200, service }
    }

    /// The server's clock.
    fn wall(&self, now: u64) -> Wall {
        let ahead = (self.spec.clock_ahead_seconds * 1e3) as i64;
        Wall::from_millis(wall(now).millis() + ahead)
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
        // Recovered ten seconds after the relapse.
        assert!((0..100).all(|_| status(15 * SECOND) == 200));
        assert_eq!(server.relapses, 1);
    }

    #[test]
    fn it_tells_its_limit_and_the_end_of_an_outage_in_words() {
        let spec = |more: &str| -> ServerSpec {
            let text = format!(
                "{{limit: {{fixed: {{limit: 2, window: 10}}}}, outages: [{{from: 20, until: 22.5}}], {more}}}"
            );
            serde_saphyr::from_str(&text).unwrap()
        };
        let heard = |spec: &ServerSpec, at: u64| {
            let (mut server, mut rng) = (Server::new(spec, 1), Rng::new(1));
            for _ in 0..3 {
                let _ = server.arrive(at, &mut rng);
            }
            server.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        let ietf = spec("headers: ietf");
        let quota = ["RateLimit-Policy: \"default\";q=2;w=10", "RateLimit: \"default\";r=0;t=9"];
        assert_eq!(heard(&ietf, SECOND), [quota[0], quota[1], "Retry-After: 9"]);
        assert_eq!(heard(&ietf, 20 * SECOND), ["Retry-After: 3"]);
        assert_eq!(heard(&spec("headers: ietf, retry_after: false"), SECOND), quota);
        let ahead = heard(&spec("headers: retry-after-date, clock_ahead_seconds: 3600"), SECOND);
        assert_eq!(
            ahead,
            ["Date: Sun, 15 Nov 2026 06:00:01 GMT", "Retry-After: Sun, 15 Nov 2026 06:00:10 GMT"]
        );
        assert_eq!(heard(&spec("headers: none"), SECOND), [""; 0]);
        assert!(spec("headers: retry-after, retry_after: false").flaw().is_some());
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
