//! Decides which faults an accepted request meets.
//!
//! Every draw is a pure function of the seed, the request and the number of the attempt (or of the
//! seed and the number of the request). So a retry is drawn again, yet the seed determines the whole
//! run, whatever the order of concurrent requests. One draw decides between all faults with a
//! probability, so that their probabilities add up.

use std::time::Duration;

use tidegate_core::{Chance, Rng};

use super::config::{Config, Draw, FaultKind, FaultRule, RangeFault, When};
use super::hash;

/// A salt per purpose, so that draws are independent.
mod salt {
    pub(super) const FAULT: u64 = 0xfa17;
    pub(super) const ROW: u64 = 0x0bad;
    pub(super) const SERVICE: u64 = 0x5e4c;
}

/// How the response is delivered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BodyDelivery {
    Whole,
    ResetAtOnce,
    ResetInBody,
    CutLength,
    CutChunk,
    Hang(Duration),
    Slow(Duration),
}

/// The kind of response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mood {
    Well,
    Error200,
    Short,
    Status(u16),
    Redirect(String),
    Range(RangeFault),
}

/// The outcome of a row, the same for every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowFate {
    #[default]
    Good,
    Bad,
    NoMatch,
}

/// The seed of the draws for one attempt.
pub(crate) fn tape(config: &Config, identity: u64, attempt: u64, number: u64) -> u64 {
    let seed = hash::mix(config.seed);
    match config.draw {
        Draw::Content => hash::mix(seed ^ identity).wrapping_add(hash::mix(attempt)),
        Draw::Number => seed.wrapping_add(hash::mix(number ^ 0x4e75_6d62)),
    }
}

/// The service time of a call.
pub(crate) fn service(config: &Config, tape: u64) -> Duration {
    config.service.draw(&mut Rng::new(tape ^ salt::SERVICE))
}

/// The fault of a request. `number` counts requests and `attempt` attempts, both from 1.
pub(crate) fn fault(config: &Config, tape: u64, number: u64, attempt: u64) -> (Mood, BodyDelivery) {
    let mut rng = Rng::new(tape ^ salt::FAULT);
    let mut left = rng.unit();
    let hit = config.faults.iter().find(|fault| match fault.when {
        When::Chance(p) => {
            let hit = (0.0..p).contains(&left);
            left -= p;
            hit
        }
        When::Numbers(lo, hi) => (lo..=hi).contains(&number),
        When::Every(n) => number.is_multiple_of(n),
        When::First(n) => attempt <= n,
    });
    let heads = rng.bits() & 1 == 0;
    let Some(FaultRule { kind, .. }) = hit else { return (Mood::Well, BodyDelivery::Whole) };
    match kind {
        FaultKind::Status(status) => (Mood::Status(*status), BodyDelivery::Whole),
        FaultKind::Error200 => (Mood::Error200, BodyDelivery::Whole),
        FaultKind::Short => (Mood::Short, BodyDelivery::Whole),
        FaultKind::Redirect(url) => (Mood::Redirect(url.clone()), BodyDelivery::Whole),
        FaultKind::Range(fault) => (Mood::Range(*fault), BodyDelivery::Whole),
        FaultKind::Reset if heads => (Mood::Well, BodyDelivery::ResetAtOnce),
        FaultKind::Reset => (Mood::Well, BodyDelivery::ResetInBody),
        FaultKind::Cut if heads => (Mood::Well, BodyDelivery::CutLength),
        FaultKind::Cut => (Mood::Well, BodyDelivery::CutChunk),
        FaultKind::Hang(span) => (Mood::Well, BodyDelivery::Hang(*span)),
        FaultKind::Slow(span) => (Mood::Well, BodyDelivery::Slow(*span)),
    }
}

/// The outcome of the row `subject`, the hash of its address.
pub(crate) fn row(config: &Config, subject: u64) -> RowFate {
    let draw = hash::unit(hash::mix(config.seed ^ salt::ROW) ^ subject);
    if draw < config.bad_rows {
        RowFate::Bad
    } else if draw < config.bad_rows + config.no_match {
        RowFate::NoMatch
    } else {
        RowFate::Good
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    fn config(faults: &[(FaultKind, &str)]) -> Config {
        let faults = faults.iter().map(|(kind, when)| {
            let when = spec::when(when).unwrap();
            FaultRule { kind: kind.clone(), when }
        });
        Config { faults: faults.collect(), ..Config::default() }
    }

    #[test]
    fn shares_come_out_and_add_up() {
        let config =
            config(&[(FaultKind::Status(500), "10%"), (FaultKind::Cut, "20%"), (FaultKind::Error200, "30%")]);
        let mut counts = [0u32; 4];
        for identity in 0..100_000u64 {
            let tape = tape(&config, hash::mix(identity), 1, 1);
            counts[match fault(&config, tape, 1, 1) {
                (Mood::Status(500), _) => 0,
                (_, BodyDelivery::CutLength | BodyDelivery::CutChunk) => 1,
                (Mood::Error200, _) => 2,
                _ => 3,
            }] += 1;
        }
        for (count, share) in counts.iter().zip([0.1, 0.2, 0.3, 0.4]) {
            assert!((f64::from(*count) / 100_000.0 - share).abs() < 0.005, "{counts:?}");
        }
    }

    #[test]
    fn a_retry_draws_anew_and_a_rerun_does_not() {
        let config = config(&[(FaultKind::Status(500), "50%")]);
        let run = |identity| -> Vec<bool> {
            (1..=20)
                .map(|n| fault(&config, tape(&config, identity, n, n), n, n).0 == Mood::Status(500))
                .collect()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).contains(&true) && run(7).contains(&false));
    }

    #[test]
    fn schedules_hold() {
        let config = config(&[(FaultKind::Status(500), "@3..4"), (FaultKind::Status(502), "first:1")]);
        let moods = [(3, 9, 500), (4, 1, 500), (5, 1, 502), (5, 2, 0)];
        for (number, attempt, status) in moods {
            let want = if status == 0 { Mood::Well } else { Mood::Status(status) };
            assert_eq!(fault(&config, 1, number, attempt).0, want);
        }
    }
}
