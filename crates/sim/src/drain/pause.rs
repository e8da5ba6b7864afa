//! Pauses: a process that stands still for a while, as on a machine that is overloaded.
//!
//! Whatever should happen during a pause happens at its end. A paused client sends nothing and
//! reads no answer; a paused server looks at no call and sends no answer, but its clock runs on, so
//! a bucket fills meanwhile. Pauses begin at a fixed distance and last for a time drawn from an
//! exponential distribution. The same seed gives the same pauses, so that a client that knows the
//! limit can be measured under them too.

use serde::Deserialize;
use tidegate_core::{Chance, Rng};

/// A pause ends at the latest after this share of the distance to the next one.
const SHARE_MAX: f64 = 0.9;

/// Who is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseOf {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Both at the same time, as on one machine.
    Both,
}

/// The pauses of a world. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Pauses {
    /// Who is paused.
    pub of: PauseOf,
    /// Mean length of a pause.
    pub mean: f64,
    /// From the begin of one pause to the begin of the next.
    pub every: f64,
}

impl Pauses {
    /// The pauses that every kind of world is measured with: 0.3 s on average, every 3 s.
    #[must_use]
    pub const fn usual(of: PauseOf) -> Pauses {
        Pauses { of, mean: 0.3, every: 3.0 }
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let span = |x: f64| (1e-3..=3600.0).contains(&x);
        let ok = span(self.mean) && span(self.every) && self.mean < self.every;
        (!ok).then_some("pauses need a `mean` below `every`, both from a millisecond to an hour")
    }
}

/// When one process stands still.
#[derive(Clone, Debug)]
pub struct PauseSchedule {
    pauses: Option<Pauses>,
    rng: Rng,
    /// Begin and end of the pauses so far, in nanoseconds.
    spans: Vec<(u64, u64)>,
    phase: f64,
}

impl PauseSchedule {
    /// The schedule of the server and that of a client. With [`PauseOf::Both`] they are the same.
    #[must_use]
    pub fn pair(pauses: Option<Pauses>, seed: u64) -> (PauseSchedule, PauseSchedule) {
        let one = |wanted: &[PauseOf]| {
            let mut rng = Rng::fork(seed, 0x7061_7573);
            let phase = rng.unit();
            let pauses = pauses.filter(|p| wanted.contains(&p.of));
            PauseSchedule { pauses, rng, spans: Vec::new(), phase }
        };
        (one(&[PauseOf::Server, PauseOf::Both]), one(&[PauseOf::Client, PauseOf::Both]))
    }

    /// The first time from `at` on, in nanoseconds, that is in no pause.
    pub fn after(&mut self, at: u64) -> u64 {
        let Some(pauses) = self.pauses else { return at };
        while self.spans.last().is_none_or(|last| last.0 <= at) {
            let begin = (self.spans.len() as f64 + self.phase) * pauses.every;
            let drawn = -pauses.mean * (1.0 - self.rng.unit()).ln();
            let end = begin + drawn.min(SHARE_MAX * pauses.every);
            self.spans.push(((begin * 1e9) as u64, (end * 1e9) as u64));
        }
        let next = self.spans.partition_point(|span| span.0 <= at);
        let last = next.checked_sub(1).and_then(|i| self.spans.get(i));
        last.map_or(at, |span| span.1.max(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_come_every_three_seconds_and_last_a_third_on_average() {
        let (_, mut client) = PauseSchedule::pair(Some(Pauses::usual(PauseOf::Client)), 5);
        let step = 1_000_000;
        let still = (0..3_000_000).filter(|i| client.after(i * step) > i * step).count();
        let share = still as f64 / 3e6;
        assert!((0.09..0.11).contains(&share), "{share}");
        assert_eq!(client.after(5_000_000_000), client.after(5_000_000_000));
    }

    #[test]
    fn both_stand_still_together_and_the_other_does_not() {
        let (mut server, mut client) = PauseSchedule::pair(Some(Pauses::usual(PauseOf::Both)), 5);
        let (mut alone, mut free) = PauseSchedule::pair(Some(Pauses::usual(PauseOf::Server)), 5);
        for at in (0..60_000_000_000).step_by(7_000_000) {
            assert_eq!(server.after(at), client.after(at));
            assert_eq!(server.after(at), alone.after(at));
            assert_eq!(free.after(at), at);
        }
    }
}
