//! Refusals at random that ask for a wait.
//!
//! Where a refusal comes with Retry-After, the whole lane waits, whatever the refusal means. If a server refuses a
//! tenth of all calls whatever their number, a lane that then goes on slowly is refused after some ten calls each
//! time, and nearly all of its time is waiting. To go on sooner is no way out, because that would break a promise.
//! To send more between two waits is one: calls that are out together share one wait.
//!
//! A lane that has learned a limit is seldom refused. So when several runs between waits were short, a flight of
//! calls goes at once after the next wait, and then ever four times as many. A limit accepts about as many calls
//! however many come, and refuses the rest of the flight. If the refusals stay a small share of a flight, they have
//! nothing to do with the number of calls, and flights go on.

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
const CALLS_PER_REFUSAL_PROVEN: u32 = 2;
/// How often a limit may be mistaken for random refusals.
const MISTAKES_MAX: u32 = 1;

/// Counts the calls between two waits, and tries flights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlightTrial {
    /// Calls of the current run, and those of them that were refused.
    calls: u32,
    refused: u32,
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
    pub(super) const NEW: FlightTrial =
        FlightTrial { calls: 0, refused: 0, short_runs: 0, size: 0, proven: false, mistakes: 0 };

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

    /// A call was refused: the run is over.
    pub(super) const fn refused(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// A call goes; at most `size_max` may be out. True if flights have begun or ended with it.
    pub(super) fn sent(&mut self, size_max: u32) -> bool {
        let was_on = self.is_on();
        if self.refused > 0 {
            self.judge(size_max);
            (self.calls, self.refused) = (0, 0);
        }
        self.calls = self.calls.saturating_add(1);
        self.is_on() != was_on
    }

    /// Judges the run that was ended by refusals.
    fn judge(&mut self, size_max: u32) {
        if self.is_on() {
            // A run that was cut off says nothing.
            if self.calls >= self.size {
                let per_refusal = if self.proven { CALLS_PER_REFUSAL_PROVEN } else { CALLS_PER_REFUSAL };
                let random = self.refused <= self.calls / per_refusal + 1;
                self.proven |= random && self.size > SIZE_FIRST.min(size_max);
                self.mistakes += u32::from(!random);
                self.size = if random { (self.size * SIZE_FACTOR).min(size_max) } else { 0 };
                self.proven &= random;
            }
            return;
        }
        self.short_runs = match self.calls.saturating_sub(self.refused) {
            LONG_CALLS.. => 0,
            RUN_CALLS_MIN..SHORT_CALLS => self.short_runs + 1,
            _ => self.short_runs,
        };
        if self.short_runs >= SHORT_RUNS && self.mistakes < MISTAKES_MAX {
            (self.size, self.short_runs) = (SIZE_FIRST.min(size_max), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of so many calls, of which the last are refused.
    fn run(trial: &mut FlightTrial, calls: u32, refused: u32) {
        (0..calls).for_each(|_| {
            let _ = trial.sent(64);
        });
        (0..refused).for_each(|_| trial.refused());
    }

    /// Some short runs, until the first flight.
    fn first_flight(trial: &mut FlightTrial) {
        (0..SHORT_RUNS).for_each(|_| run(trial, 10, 1));
        assert!(!trial.is_on());
        run(trial, 4, 1);
        assert_eq!((trial.size(), trial.is_random()), (Some(4), false));
        run(trial, 16, 2);
        assert_eq!((trial.size(), trial.is_random()), (Some(16), false));
    }

    #[test]
    fn a_share_that_stays_in_larger_flights_is_random() {
        let mut trial = FlightTrial::NEW;
        first_flight(&mut trial);
        run(&mut trial, 64, 7);
        assert_eq!((trial.size(), trial.is_random()), (Some(64), true));
    }

    #[test]
    fn a_flight_that_is_refused_for_the_most_part_met_a_limit() {
        let mut trial = FlightTrial::NEW;
        for _ in 0..MISTAKES_MAX {
            first_flight(&mut trial);
            run(&mut trial, 64, 40);
            run(&mut trial, 1, 0);
            assert_eq!((trial.size(), trial.is_random()), (None, false));
        }
        (0..20).for_each(|_| run(&mut trial, 10, 1));
        assert_eq!(trial.size(), None, "it was mistaken often enough");
    }

    #[test]
    fn a_long_run_is_that_of_a_limit_which_is_known() {
        let mut trial = FlightTrial::NEW;
        (0..40).for_each(|i| run(&mut trial, if i % SHORT_RUNS == 0 { LONG_CALLS + 1 } else { 10 }, 1));
        assert_eq!(trial.size(), None);
    }
}
