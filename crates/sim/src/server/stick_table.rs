//! The request rate of an HAProxy stick table (`http_req_rate`), counted as HAProxy counts it.
//!
//! Two counters, for this period and for the last one. The rate is this period's count plus the
//! last one's, weighted by what is left of this period, in whole calls. Periods begin with the first
//! call and follow each other; after two silent periods the next call begins anew. The clock is in
//! milliseconds.
//!
//! Why a kind of its own and not the two-counter window: here a refused call counts too, so a
//! client that keeps asking is refused for as long as it asks.

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// The settings of a [`StickTable`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StickTableSpec {
    /// The rate above which calls are refused, in calls per period.
    pub limit: u64,
    /// Length of the period, in seconds.
    pub window: f64,
}

impl StickTableSpec {
    fn period(&self) -> u64 {
        ((self.window * 1000.0).round() as u64).max(1)
    }
}

/// One entry of a stick table at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StickTable {
    /// The millisecond in which the period began; `None` before the first call.
    begin: Option<u64>,
    /// Calls in this period.
    count: u64,
    /// Calls in the last period.
    last: u64,
}

impl StickTable {
    /// The table with its period at `now`, in milliseconds.
    fn rotated(self, period: u64, now: u64) -> StickTable {
        match self.begin {
            Some(begin) if now < begin + period => self,
            Some(begin) if now < begin + 2 * period => {
                StickTable { begin: Some((begin + period) & !1), count: 0, last: self.count }
            }
            _ => StickTable { begin: Some(now & !1), count: 0, last: 0 },
        }
    }

    /// Counts a call, whether it is taken or refused.
    pub fn count(&mut self, spec: &StickTableSpec, now: u64) {
        *self = self.rotated(spec.period(), now / MILLI);
        self.count += 1;
    }

    /// Nanoseconds until a call would be taken, if none comes before; 0 means now.
    pub fn wait(&self, spec: &StickTableSpec, now: u64) -> u64 {
        let (period, ms) = (spec.period(), now / MILLI);
        let table = self.rotated(period, ms);
        if table.ready(spec, ms) == Some(ms) {
            return 0;
        }
        let begin = table.begin.unwrap_or(ms);
        // In this period, in the next one, or when both are over.
        let ready = table.ready(spec, ms).or_else(|| {
            let next = table.rotated(period, begin + period);
            next.ready(spec, next.begin.unwrap_or(begin + period).max(begin + period))
        });
        (ready.unwrap_or(begin + 2 * period) * MILLI).saturating_sub(now).max(1)
    }

    /// The first millisecond of this period, from `from` on, in which a call would be taken.
    fn ready(&self, spec: &StickTableSpec, from: u64) -> Option<u64> {
        let period = spec.period();
        let end = self.begin? + period;
        // Taken if last · left + (count + 1) · period < (limit + 1) · period.
        let room = spec.limit.checked_sub(self.count)?.saturating_mul(period);
        let left_max = match room {
            0 => return None,
            room if self.last == 0 => room,
            room => (room - 1) / self.last,
        };
        let ready = from.max(end.saturating_sub(left_max));
        (ready < end).then_some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: StickTableSpec = StickTableSpec { limit: 100, window: 1.0 };

    fn offer(table: &mut StickTable, ms: u64) -> bool {
        let taken = table.wait(&SPEC, ms * MILLI) == 0;
        table.count(&SPEC, ms * MILLI);
        taken
    }

    #[test]
    fn a_hundred_at_once_and_then_one_every_ten_milliseconds() {
        let mut table = StickTable::default();
        let taken = (0..100).filter(|_| offer(&mut table, 0)).count();
        assert_eq!(taken, 100);
        // The next period weighs the hundred by what is left of it; the rate is cut to whole calls,
        // so one call has room from the first millisecond on.
        assert_eq!(table.wait(&SPEC, 500 * MILLI), 501 * MILLI);
        assert!(!offer(&mut { table }, 1000));
        assert!(offer(&mut table, 1001));
        assert_eq!(table.wait(&SPEC, 1001 * MILLI), 10 * MILLI);
        assert!(offer(&mut table, 1011));
    }

    #[test]
    fn a_refused_call_counts() {
        let mut table = StickTable::default();
        (0..100).for_each(|_| assert!(offer(&mut table, 0)));
        (0..100).for_each(|_| assert!(!offer(&mut table, 500)));
        // Two hundred are remembered: not before half of the next period.
        assert_eq!(table.wait(&SPEC, 500 * MILLI), 1001 * MILLI);
        assert!(!offer(&mut { table }, 1500));
        assert!(offer(&mut table, 1501));
    }

    #[test]
    fn two_silent_periods_forget_everything() {
        let mut table = StickTable::default();
        (0..300).for_each(|_| _ = offer(&mut table, 7));
        assert!(!offer(&mut { table }, 1008));
        assert_eq!((0..300).filter(|_| offer(&mut table, 2006)).count(), 100);
    }

    #[test]
    fn whoever_waits_as_told_is_taken() {
        let mut table = StickTable::default();
        let (mut now, mut taken) = (0, 0);
        while taken < 1000 {
            now += table.wait(&SPEC, now);
            assert!(offer(&mut table, now / MILLI), "after {taken} at {now}");
            taken += 1;
        }
        assert_eq!(now / MILLI, 9991, "a hundred, and a hundred in every further second");
    }
}
