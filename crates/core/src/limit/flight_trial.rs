//! Refusals at random that ask for a wait.
//!
//! Where a refusal comes with Retry-After, the whole lane waits, whatever the refusal means. If a server refuses a
//! tenth of all calls whatever their number, a lane that then goes on slowly is refused after some ten calls each
//! time, and nearly all of its time is waiting. To go on sooner is no way out, because that would break a promise.
//! To send more between two waits is one: calls that are out together (a flight) share one wait.
//!
//! So after each wait the run of calls before it is weighed (`WaitRun::random` and `limited`): how likely is it if
//! every call is refused with the same chance, and how likely under a limit? The odds are the product of all these
//! ratios. While they are above one, flights go, and the larger the odds, the larger the flight. A flight that met a
//! limit is a mistake: it costs refusals. So the first one is small, and each mistake sets the odds back twice as far
//! as the one before, but never for good.

use super::rate_estimate::secs;
use crate::time::Mono;

/// At random: calls that count as refused and as accepted before there were any. One in ten is usual.
const COUNTED_FIRST: (f64, f64) = (1.0, 9.0);
/// Under a limit: a run may be so many factors of e long, each as likely,
const LENGTHS: f64 = 6.0;
/// from this many calls on.
const LENGTH_MIN: f64 = 2.0;
/// Share of the limits whose runs are those of a token bucket,
const BUCKET_SHARE: f64 = 0.7;
/// which explains any two of them.
const BUCKET_RUNS: usize = 3;
/// Calls, and share of the calls, by which a run may differ from what a bucket gives.
const MISFIT: (f64, f64) = (1.0, 0.1);
/// Runs that are compared with a bucket.
const RUNS: usize = 8;
/// Slowest rate of a bucket that is tried, in calls per second,
const RATE_MIN: f64 = 0.1;
/// how many are, and by how much each is faster than the one before.
const RATES: u32 = 80;
const RATE_STEP: f64 = 1.15;

/// Runs before the first flight.
const RUNS_MIN: usize = 2;
/// Calls of the first flight. A lane that may have fewer out has nothing to gain.
const SIZE_FIRST: u32 = 16;
/// Refused share of all calls with which flights go: with a smaller one they gain nothing, and a larger one is
/// rather that of a limit.
const SHARES: core::ops::Range<f64> = 0.025..0.3;
/// Logarithm of the odds before the first run: a limit is a little more likely.
const ODDS_FIRST: f64 = -0.2;
/// Logarithm of the odds against random refusals after the first mistake; it doubles with each.
const SETBACK: f64 = 2.0;
/// Bounds of that logarithm, so that a server that changes is found out after some runs.
const ODDS: core::ops::RangeInclusive<f64> = -20.0..=5.0;
/// Most accepted calls of one run that count for the refused share: how long a server was fine says nothing now.
const RUN_COUNTED: f64 = 100.0;

/// A run of calls between two waits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WaitRun {
    /// Seconds since the refusal before it.
    wait: f64,
    /// Seconds from its first call to the first refused one.
    time: f64,
    /// Calls before that one,
    before: f64,
    /// and of those after it the accepted and the refused ones.
    accepted_after: f64,
    refused_after: f64,
}

impl WaitRun {
    const NONE: WaitRun =
        WaitRun { wait: f64::INFINITY, time: 0.0, before: 0.0, accepted_after: 0.0, refused_after: 0.0 };

    const fn accepted(&self) -> f64 {
        self.before + self.accepted_after
    }

    /// Calls by which it may differ from what a bucket gives.
    const fn slack(&self, calls: f64) -> f64 {
        MISFIT.0 + MISFIT.1 * calls
    }

    /// How likely it is at random (the logarithm), after so many refused and accepted calls.
    fn random(&self, (refused, accepted): (f64, f64)) -> f64 {
        ln_beta(refused + 1.0 + self.refused_after, accepted + self.accepted()) - ln_beta(refused, accepted)
    }

    /// How likely it is under a limit (the logarithm): of the calls after the first refused one any share is refused.
    /// `fits` is whether a bucket explains it, if that is known.
    fn limited(&self, fits: Option<bool>) -> f64 {
        let any = 1.0 / (LENGTHS * (self.before + LENGTH_MIN));
        let expected = 1.0 / (1.0 + 2.0 * self.slack(self.before));
        let length = match fits {
            None => any,
            Some(fits) => (1.0 - BUCKET_SHARE) * any + if fits { BUCKET_SHARE * expected } else { 0.0 },
        };
        libm::log(length) + ln_beta(1.0 + self.refused_after, 1.0 + self.accepted_after)
    }
}

/// The logarithm of the beta function.
fn ln_beta(a: f64, b: f64) -> f64 {
    libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
}

/// Weighs the runs between waits, and tries flights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlightTrial {
    /// The last runs, newest first; so many are known.
    runs: [WaitRun; RUNS],
    len: usize,
    /// When the last run was ended by a refusal, when this one began, and when it was ended.
    refused_before: Option<Mono>,
    began: Mono,
    ended: Mono,
    /// First and last call of the current run, and the first that was refused.
    first: u64,
    last: u64,
    first_refused: u64,
    /// Its calls, and those of them that were refused.
    calls: u32,
    refused: u32,
    /// Calls that were refused and accepted in all runs before.
    counted: (f64, f64),
    /// Logarithm of the odds that refusals are random.
    odds: f64,
    /// Calls of a flight; 0 while there are none.
    size: u32,
    /// A flight did not meet a limit.
    proven: bool,
    /// How often a limit was mistaken for random refusals.
    mistakes: u32,
}

impl FlightTrial {
    pub(super) const NEW: FlightTrial = FlightTrial {
        runs: [WaitRun::NONE; RUNS],
        len: 0,
        refused_before: None,
        began: Mono::ZERO,
        ended: Mono::ZERO,
        first: 0,
        last: 0,
        first_refused: 0,
        calls: 0,
        refused: 0,
        counted: COUNTED_FIRST,
        odds: ODDS_FIRST,
        size: 0,
        proven: false,
        mistakes: 0,
    };

    /// Whether calls go in flights.
    pub(super) const fn is_on(&self) -> bool {
        self.size > 0
    }

    /// Calls that may be out together, if they go in flights.
    pub(super) fn size(&self) -> Option<u32> {
        self.is_on().then_some(self.size)
    }

    /// Whether refusals are known to have nothing to do with the number of calls.
    pub(super) const fn is_random(&self) -> bool {
        self.is_on() && self.proven
    }

    /// Call `seq`, which was sent then, was refused with a wait: the run is over.
    pub(super) fn refused(&mut self, seq: u64, sent: Mono) {
        if seq < self.first {
            // It belongs to the run before.
            return;
        }
        if self.refused == 0 || seq < self.first_refused {
            (self.first_refused, self.ended) = (seq, sent);
        }
        self.refused = self.refused.saturating_add(1);
    }

    /// Call `seq` goes; at most `size_max` may be out. True if flights have begun or ended with it.
    pub(super) fn sent(&mut self, seq: u64, now: Mono, size_max: u32) -> bool {
        let was_on = self.is_on();
        if self.refused > 0 {
            self.judge(size_max);
            self.refused_before = Some(self.ended);
            (self.calls, self.refused) = (0, 0);
        }
        if self.calls == 0 {
            (self.first, self.began) = (seq, now);
        }
        (self.calls, self.last) = (self.calls.saturating_add(1), seq);
        if self.share(self.calls) < SHARES.start {
            self.size = 0;
        }
        self.is_on() != was_on
    }

    /// Share of all calls that was refused, with so many accepted ones more.
    fn share(&self, more: u32) -> f64 {
        self.counted.0 / (self.counted.0 + self.counted.1 + f64::from(more))
    }

    /// The run that was ended by refusals.
    fn run(&self) -> WaitRun {
        let after = self.last.saturating_sub(self.first_refused) as f64;
        let refused_after = f64::from(self.refused - 1).min(after);
        WaitRun {
            wait: self.refused_before.map_or(f64::INFINITY, |at| secs(at, self.began)),
            time: secs(self.began, self.ended),
            before: self.first_refused.saturating_sub(self.first) as f64,
            accepted_after: after - refused_after,
            refused_after,
        }
    }

    /// Whether a token bucket, of whatever rate and size, explains all runs. It is empty at a refusal, so it has
    /// earned what a run got, and it refuses when it has given what it earned or what it holds.
    fn fits_bucket(&self) -> bool {
        let runs = &self.runs[..self.len];
        let fits = |rate: f64| {
            let burst = runs.iter().map(|run| run.accepted() - rate * run.time - 1.0).fold(1.0, f64::max);
            runs.iter().all(|run| {
                let (calls, earned) = (run.accepted(), rate * (run.wait + run.time));
                let given = earned.min(burst + rate * run.time);
                calls <= earned + run.slack(calls) && given <= calls + run.slack(calls)
            })
        };
        let mut rate = RATE_MIN;
        (0..RATES).any(|_| {
            rate *= RATE_STEP;
            fits(rate)
        })
    }

    /// Weighs the run that was ended by refusals.
    fn judge(&mut self, size_max: u32) {
        let (run, was_on) = (self.run(), self.is_on());
        if run.accepted() == 0.0 && self.counted == COUNTED_FIRST {
            // It has refused everything so far: that says nothing about a share.
            return;
        }
        self.runs.rotate_right(1);
        self.runs[0] = run;
        self.len = (self.len + 1).min(RUNS);
        let fits = (self.len >= BUCKET_RUNS).then(|| self.fits_bucket());
        self.odds += run.random(self.counted) - run.limited(fits);
        self.odds = self.odds.clamp(*ODDS.start(), *ODDS.end());
        self.counted.0 += 1.0 + run.refused_after;
        self.counted.1 += run.accepted().min(RUN_COUNTED);
        let random = self.odds > 0.0;
        if was_on && !random {
            self.odds = self.odds.min(-SETBACK * libm::exp2(f64::from(self.mistakes)));
            self.mistakes = self.mistakes.saturating_add(1);
        }
        self.proven = was_on && random;
        let worth = self.len >= RUNS_MIN && size_max >= SIZE_FIRST && SHARES.contains(&self.share(0));
        self.size = match () {
            () if !random || !worth => 0,
            // A float that is too large becomes the largest size.
            () if was_on => ((f64::from(SIZE_FIRST) * libm::exp(self.odds)) as u32).min(size_max),
            () => SIZE_FIRST,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial, the second of its next run, and its next call.
    struct Runs(FlightTrial, f64, u64);

    impl Runs {
        const NEW: Runs = Runs(FlightTrial::NEW, 0.0, 0);

        /// A run of so many calls at once, of which these are refused, and a wait of a second.
        fn run(&mut self, calls: u32, refused: impl IntoIterator<Item = u64>) {
            let (now, first) = (Mono::from_secs_f64(self.1), self.2);
            for _ in 0..calls {
                let _ = self.0.sent(self.2, now, 64);
                self.2 += 1;
            }
            refused.into_iter().for_each(|n| self.0.refused(first + n, now));
            self.1 += 1.0;
        }

        /// Runs of so many calls, the last of which is refused.
        fn runs(&mut self, lengths: &[u32]) {
            lengths.iter().for_each(|calls| self.run(*calls, [u64::from(calls - 1)]));
        }

        /// The calls of a flight and whether refusals are known to be random, with the next call.
        fn state(&mut self) -> (Option<u32>, bool) {
            self.run(1, []);
            (self.0.size(), self.0.is_random())
        }
    }

    #[test]
    fn runs_of_any_length_bring_a_flight_and_a_share_that_stays_the_next() {
        let mut runs = Runs::NEW;
        runs.runs(&[15, 4]);
        assert_eq!(runs.state(), (Some(SIZE_FIRST), false));
        runs.run(15, [3, 9]);
        let (size, random) = runs.state();
        assert!(size > Some(SIZE_FIRST) && random, "{size:?}");
        runs.run(63, (0..63).step_by(10));
        assert_eq!(runs.state(), (Some(64), true));
    }

    /// Ten in each second are those of a bucket, or of a window.
    #[test]
    fn runs_that_a_bucket_explains_bring_one_flight_at_most() {
        let mut runs = Runs::NEW;
        for _ in 0..100 {
            runs.runs(&[11]);
            assert!(runs.0.len < BUCKET_RUNS || !runs.0.is_on());
        }
        assert!(runs.0.mistakes <= 1 && runs.0.odds >= *ODDS.start(), "{} {}", runs.0.mistakes, runs.0.odds);
    }

    /// A server that was fine for 10,000 calls, or had a limit for long, begins to refuse at random.
    #[test]
    fn what_was_long_ago_does_not_hide_random_refusals() {
        for before in [&[10_000][..], &[11; 200]] {
            let mut runs = Runs::NEW;
            runs.runs(before);
            let tried = (0..80).any(|n| {
                runs.runs(&[[3, 14][n % 2]]);
                runs.0.is_on()
            });
            assert!(tried, "{} {:?}", runs.0.odds, runs.0.counted);
        }
    }

    #[test]
    fn each_flight_that_met_a_limit_sets_the_odds_back_twice_as_far_but_not_for_good() {
        let (mut runs, mut odds_max) = (Runs::NEW, -SETBACK);
        for _ in 0..4 {
            let tried = (0..100).any(|n| {
                runs.runs(&[[3, 14][n % 2]]);
                runs.state().0.is_some()
            });
            assert!(tried, "{odds_max}");
            runs.run(SIZE_FIRST - 1, 5..15);
            assert_eq!(runs.state(), (None, false));
            assert!(runs.0.odds <= odds_max, "{} {odds_max}", runs.0.odds);
            odds_max *= 2.0;
        }
    }

    #[test]
    fn a_server_that_is_closed_brings_none() {
        let mut runs = Runs::NEW;
        runs.runs(&[1; 50]);
        assert_eq!((runs.state(), runs.0.odds), ((None, false), ODDS_FIRST));
    }

    /// A limit that takes most of a flight refuses its end, and nothing before.
    #[test]
    fn a_flight_whose_end_is_refused_met_a_limit() {
        for refused in [40..64, 50..64] {
            let mut runs = Runs::NEW;
            runs.runs(&[15, 4]);
            assert_eq!(runs.state(), (Some(SIZE_FIRST), false));
            runs.run(63, refused);
            assert_eq!(runs.state(), (None, false));
        }
    }

    #[test]
    fn runs_that_are_too_long_for_random_refusals_bring_none() {
        let mut runs = Runs::NEW;
        (0..40).for_each(|i| runs.runs(&[if i % 2 == 0 { 300 } else { 40 }]));
        assert_eq!(runs.state(), (None, false));
    }
}
