//! Refusals at random that ask for a wait.
//!
//! Where a refusal comes with Retry-After, the whole lane waits, whatever the refusal means. If a server refuses a
//! tenth of all calls whatever their number, a lane that then goes on slowly is refused after some ten calls each
//! time, and nearly all of its time is waiting. To go on sooner is no way out, because that would break a promise.
//! To send more between two waits is one: calls that are out together share one wait.
//!
//! A lane that has learned a limit is seldom refused. So when several runs between waits were short, a flight of
//! calls goes at once after the next wait, and then ever four times as many. Where runs are so uneven that no token
//! bucket explains them, two short ones are enough, and the first flight is larger. A limit accepts about as many calls
//! however many come, and refuses the rest of the flight. If the refusals stay a small share of a flight, they have
//! nothing to do with the number of calls, and flights go on.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Accepted calls from which on a run between two waits is not short.
const SHORT_CALLS: u32 = 25;
/// Short runs, none of them long in between, after which a flight is tried; the first is always short.
const SHORT_RUNS: u32 = 4;
/// Calls of the first flight,
const SIZE_FIRST: u32 = 4;
/// and how many times as many the next has.
const SIZE_FACTOR: u32 = 4;
/// Fewer accepted calls than this say nothing: the server was still closed, or takes a call now and then.
const RUN_CALLS_MIN: u32 = 3;
/// Accepted calls from which on a run is so long that the limit is known.
const LONG_CALLS: u32 = 100;
/// One refused call in this many of a flight, and one more, are random; more are those of a limit.
const CALLS_PER_REFUSAL: u32 = 4;
/// The same once larger flights were accepted too.
const CALLS_PER_REFUSAL_PROVEN: u32 = 3;
/// From so many refusals on, the first of a flight aside, it is looked at where they are: a limit refuses most of
/// the calls after the first that it refused.
const TAIL_REFUSALS: u32 = 2;
/// More than one in this many of those calls are most of them.
const TAIL_PARTS: u64 = 2;
/// A run of this many flights is too long for refusals that are worth a flight.
const LONG_FLIGHTS: u32 = 4;
/// How often a limit may be mistaken for random refusals,
const MISTAKES_MAX: u32 = 4;
/// and by how many times more runs the next trial needs.
const RUNS_AFTER_MISTAKE: u32 = 2;
/// Short runs after which a flight is tried if no bucket explains all runs,
const MISFIT_RUNS: u32 = 2;
/// and its calls.
const MISFIT_SIZE: u32 = 16;
/// Runs that are compared.
const RUNS: usize = 8;
/// Slowest rate of a bucket that is tried, in calls per second,
const RATE_MIN: f64 = 0.1;
/// how many are, and by how much each is faster than the one before.
const RATES: u32 = 80;
const RATE_STEP: f64 = 1.15;
/// Calls, and share of the calls, by which a run may differ from what a bucket gives.
const MISFIT: (f64, f64) = (1.0, 0.1);

/// The calls between two waits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WaitRun {
    /// Seconds since the refusal before it.
    wait: f64,
    /// Seconds from its first call to the refused one.
    time: f64,
    /// Calls accepted.
    calls: f64,
}

impl WaitRun {
    const NEW: WaitRun = WaitRun { wait: f64::INFINITY, time: 0.0, calls: 0.0 };
}

/// Counts the calls between two waits, and tries flights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlightTrial {
    /// The last runs, newest first; so many are known.
    runs: [WaitRun; RUNS],
    len: usize,
    /// When the last run was ended by a refusal, when this one began, and when it was ended.
    refused_before: Option<Mono>,
    began: Mono,
    ended: Mono,
    /// Calls of the current run, and those of them that were refused.
    calls: u32,
    refused: u32,
    /// The first of these, and the last call of the run.
    first_refused: u64,
    last: u64,
    /// Short runs since the last long one.
    short_runs: u32,
    /// Calls of a flight; 0 while there are none.
    size: u32,
    /// A flight of the first size was accepted.
    proven: bool,
    /// How often a limit was mistaken for random refusals.
    mistakes: u32,
}

impl FlightTrial {
    pub(super) const NEW: FlightTrial = FlightTrial {
        runs: [WaitRun::NEW; RUNS],
        len: 0,
        refused_before: None,
        began: Mono::ZERO,
        ended: Mono::ZERO,
        calls: 0,
        refused: 0,
        first_refused: 0,
        last: 0,
        short_runs: 0,
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
        if self.refused == 0 {
            (self.first_refused, self.ended) = (seq, sent);
        }
        (self.first_refused, self.ended) = (self.first_refused.min(seq), self.ended.min(sent));
        self.refused = self.refused.saturating_add(1);
    }

    /// Call `seq` goes; at most `size_max` may be out. True if flights have begun or ended with it.
    pub(super) fn sent(&mut self, seq: u64, now: Mono, size_max: u32) -> bool {
        let was_on = self.is_on();
        if self.refused > 0 {
            self.judge(size_max);
            (self.calls, self.refused) = (0, 0);
            self.refused_before = Some(self.ended);
        }
        if self.calls == 0 {
            self.began = now;
        }
        (self.calls, self.last) = (self.calls.saturating_add(1), seq);
        self.is_on() != was_on
    }

    /// Whether most calls were refused from the first on that was.
    fn refused_the_tail(&self) -> bool {
        let (refused, after) = (self.refused.saturating_sub(1), self.last.saturating_sub(self.first_refused));
        refused >= TAIL_REFUSALS && TAIL_PARTS * u64::from(refused) > after
    }

    /// Remembers the run that was ended by refusals.
    fn note_run(&mut self) {
        self.runs.rotate_right(1);
        self.runs[0] = WaitRun {
            wait: self.refused_before.map_or(f64::INFINITY, |at| secs(at, self.began)),
            time: secs(self.began, self.ended),
            calls: f64::from(self.calls.saturating_sub(self.refused)),
        };
        self.len = (self.len + 1).min(RUNS);
    }

    /// Whether the waits took longer than the runs after them: else flights have little to gain.
    fn mostly_waits(&self) -> bool {
        let after_waits = self.runs[..self.len].iter().filter(|run| run.wait.is_finite());
        after_waits.map(|run| run.wait - run.time).sum::<f64>() > 0.0
    }

    /// Whether a token bucket, of whatever rate and size, explains all runs. It is empty at a refusal, so it has
    /// earned what a run got, and it refuses when it has given what it earned or what it holds.
    fn fits_bucket(&self) -> bool {
        let runs = &self.runs[..self.len];
        let slack = |run: &WaitRun| MISFIT.0 + MISFIT.1 * run.calls;
        let fits = |rate: f64| {
            let burst = runs.iter().map(|run| run.calls - rate * run.time - 1.0).fold(1.0, f64::max);
            runs.iter().all(|run| {
                let earned = rate * (run.wait + run.time);
                let given = earned.min(burst + rate * run.time);
                run.calls <= earned + slack(run) && given <= run.calls + slack(run)
            })
        };
        let mut rate = RATE_MIN;
        (0..RATES).any(|_| {
            rate *= RATE_STEP;
            fits(rate)
        })
    }

    /// Judges the run that was ended by refusals.
    fn judge(&mut self, size_max: u32) {
        if self.is_on() {
            // A run that was cut off says nothing.
            if self.calls >= self.size {
                let per_refusal = if self.proven { CALLS_PER_REFUSAL_PROVEN } else { CALLS_PER_REFUSAL };
                // However long the run was, at the end of it a flight was out.
                let few = self.refused <= self.size / per_refusal + 1;
                let random =
                    few && !self.refused_the_tail() && self.calls < LONG_FLIGHTS * self.size.max(MISFIT_SIZE);
                self.proven |= random && self.size > SIZE_FIRST.min(size_max);
                self.mistakes += u32::from(!random);
                self.size = if random { (self.size * SIZE_FACTOR).min(size_max) } else { 0 };
                self.proven &= random;
            }
            return;
        }
        self.note_run();
        self.short_runs = match self.calls.saturating_sub(self.refused) {
            LONG_CALLS.. => 0,
            RUN_CALLS_MIN..SHORT_CALLS => self.short_runs + 1,
            _ => self.short_runs,
        };
        if self.mistakes >= MISTAKES_MAX {
            return;
        }
        let times = RUNS_AFTER_MISTAKE.pow(self.mistakes);
        if self.short_runs >= MISFIT_RUNS * times && self.mostly_waits() && !self.fits_bucket() {
            (self.size, self.short_runs) = (MISFIT_SIZE.min(size_max), 0);
        } else if self.short_runs >= SHORT_RUNS * times {
            (self.size, self.short_runs) = (SIZE_FIRST.min(size_max), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial, the second of its next run, and its next call.
    struct Runs(FlightTrial, f64, u64);

    impl Runs {
        const NEW: Runs = Runs(FlightTrial::NEW, 0.0, 0);

        /// A run of so many calls at once, of which some are refused, and a wait of a second.
        fn run(&mut self, calls: u32, refused: u32) {
            let spread = u64::from(calls / refused.max(1));
            self.run_refused(calls, (0..u64::from(refused)).map(|n| n * spread));
        }

        /// The same with the calls that are refused.
        fn run_refused(&mut self, calls: u32, refused: impl Iterator<Item = u64>) {
            let (now, first) = (Mono::from_secs_f64(self.1), self.2);
            for _ in 0..calls {
                let _ = self.0.sent(self.2, now, 64);
                self.2 += 1;
            }
            refused.for_each(|n| self.0.refused(first + n, now));
            self.1 += 1.0;
        }

        fn state(&self) -> (Option<u32>, bool) {
            (self.0.size(), self.0.is_random())
        }

        /// Some short runs that a bucket of ten explains, until the first flights.
        fn first_flights(&mut self, runs: u32) {
            (0..runs).for_each(|_| self.run(10, 1));
            assert!(!self.0.is_on());
            self.run(4, 1);
            assert_eq!(self.state(), (Some(4), false));
            self.run(16, 2);
            assert_eq!(self.state(), (Some(16), false));
        }
    }

    #[test]
    fn a_share_that_stays_in_larger_flights_is_random() {
        let mut runs = Runs::NEW;
        runs.first_flights(SHORT_RUNS);
        runs.run(64, 7);
        assert_eq!(runs.state(), (Some(64), true));
    }

    #[test]
    fn runs_that_no_bucket_explains_need_no_more_of_them() {
        let mut runs = Runs::NEW;
        // Fifteen calls a second are taken, and the next time four.
        for calls in [15, 5, 16] {
            assert!(!runs.0.is_on());
            runs.run(calls, 1);
        }
        runs.run(16, 2);
        assert_eq!(runs.state(), (Some(16), false));
        runs.run(64, 7);
        assert_eq!(runs.state(), (Some(64), true));
    }

    #[test]
    fn a_flight_that_is_refused_for_the_most_part_met_a_limit() {
        let mut runs = Runs::NEW;
        for mistake in 0..MISTAKES_MAX {
            // The next trial needs more runs, of which the last of the flights before is one.
            runs.first_flights(SHORT_RUNS * RUNS_AFTER_MISTAKE.pow(mistake));
            runs.run(64, 40);
            runs.run(1, 0);
            assert_eq!(runs.state(), (None, false));
            (runs.0.runs, runs.0.len, runs.0.calls) = ([WaitRun::NEW; RUNS], 0, 0);
        }
        (0..100).for_each(|_| runs.run(10, 1));
        assert_eq!(runs.0.size(), None, "it was mistaken often enough");
    }

    /// A limit that takes most of a flight refuses its end, and nothing before.
    #[test]
    fn a_flight_whose_end_is_refused_met_a_limit() {
        for (calls, refused) in [(64, 50..64), (64, 61..64), (300, 299..300)] {
            let mut runs = Runs::NEW;
            runs.first_flights(SHORT_RUNS);
            runs.run(64, 7);
            assert_eq!(runs.state(), (Some(64), true));
            runs.run_refused(calls, refused);
            runs.run(1, 0);
            assert_eq!(runs.state(), (None, false));
        }
    }

    #[test]
    fn a_long_run_is_that_of_a_limit_which_is_known() {
        let mut runs = Runs::NEW;
        (0..40).for_each(|i| runs.run(if i % MISFIT_RUNS == 0 { LONG_CALLS + 1 } else { 10 }, 1));
        runs.run(1, 0);
        assert_eq!(runs.0.size(), None);
    }
}
