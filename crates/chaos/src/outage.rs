//! Outages, and the collapse when all clients come back at once.
//!
//! A real server is cold after an outage: if all waiting clients call at the same moment, it fails
//! again. Here the server is fragile for a while after an outage: more than a given number of
//! requests in flight, or within a short time, bring it down again and make it fragile again.

use std::collections::VecDeque;

use tidegate_core::time::nanos;

use super::config::Outage;

/// The outages of one server, in nanoseconds since the start.
#[derive(Clone, Debug)]
pub(crate) struct Outages {
    plan: Vec<Outage>,
    /// The number of planned outages that have begun.
    begun: usize,
    current: Option<Current>,
    /// The number of collapses after outages.
    pub(crate) collapses: u64,
}

#[derive(Clone, Debug)]
struct Current {
    outage: Outage,
    /// The end of the outage, in nanoseconds since the start.
    down_until: u64,
    /// The end of the fragile time after it, in nanoseconds since the start.
    fragile_until: u64,
    recent: VecDeque<u64>,
}

/// The server is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Down {
    /// The end of the outage, in nanoseconds since the start.
    pub(crate) until: u64,
    /// The status of the response; 0 resets the connection.
    pub(crate) status: u16,
    /// Whether to send a Retry-After.
    pub(crate) hint: bool,
}

impl Outages {
    /// The planned outages, sorted by start.
    pub(crate) fn new(plan: &[Outage]) -> Outages {
        let mut plan = plan.to_vec();
        plan.sort_by_key(|o| o.from);
        Outages { plan, begun: 0, current: None, collapses: 0 }
    }

    /// Decides on a request that arrives at `now`. `first` is the time of the first request;
    /// `in_flight` includes this one.
    pub(crate) fn arrive(&mut self, now: u64, first: u64, in_flight: u64) -> Option<Down> {
        while let Some(outage) = self.plan.get(self.begun) {
            if now < first.saturating_add(nanos(outage.from)) {
                break;
            }
            self.begun += 1;
            let down_until = first.saturating_add(nanos(outage.to));
            let fragile_until = down_until.saturating_add(nanos(outage.fragile));
            let outage = outage.clone();
            self.current = Some(Current { outage, down_until, fragile_until, recent: VecDeque::new() });
        }
        let current = self.current.as_mut()?;
        let fragile = now >= current.down_until && now < current.fragile_until;
        if let Some(most) = current.outage.collapse.filter(|_| fragile) {
            let window = nanos(current.outage.within);
            while current.recent.front().is_some_and(|&t| t.saturating_add(window) <= now) {
                current.recent.pop_front();
            }
            current.recent.push_back(now);
            if current.recent.len() as u64 > most || in_flight > most {
                self.collapses += 1;
                current.recent.clear();
                current.down_until = now.saturating_add(nanos(current.outage.again));
                current.fragile_until = current.down_until.saturating_add(nanos(current.outage.fragile));
            }
        }
        let Outage { status, hint, .. } = current.outage;
        (now < current.down_until).then_some(Down { until: current.down_until, status, hint })
    }

    /// The earliest time from `at` on when a request is accepted, for a client that knows the plan
    /// and causes no collapse. `sent` holds its latest requests, oldest first.
    pub(crate) fn open_from(plan: &[Outage], first: u64, at: u64, sent: &VecDeque<u64>) -> u64 {
        let mut at = at;
        for outage in plan {
            let from = first.saturating_add(nanos(outage.from));
            let to = first.saturating_add(nanos(outage.to));
            if (from..to).contains(&at) {
                at = to;
            }
            let fragile = to..to.saturating_add(nanos(outage.fragile));
            if let (Some(most), true) = (outage.collapse, fragile.contains(&at)) {
                let back = usize::try_from(most).unwrap_or(usize::MAX);
                let nth = sent.len().checked_sub(back).and_then(|i| sent.get(i));
                if let Some(&nth) = nth.filter(|&&t| t >= to) {
                    at = at.max(nth.saturating_add(nanos(outage.within)));
                }
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn outage() -> Outage {
        super::super::spec::outage("5s..10s,collapse=3,within=100ms,again=2s,fragile=5s").unwrap()
    }

    #[test]
    fn a_rush_after_the_outage_brings_it_down_again() {
        let mut outages = Outages::new(&[outage()]);
        assert_eq!(outages.arrive(0, 0, 1), None);
        let down = outages.arrive(7 * SECOND, 0, 1).unwrap();
        assert_eq!((down.until, down.status), (10 * SECOND, 503));
        let rush: Vec<bool> = (0..5).map(|i| outages.arrive(10 * SECOND + i, 0, 1).is_some()).collect();
        assert_eq!(rush, [false, false, false, true, true]);
        assert_eq!(outages.collapses, 1);
        // Spread out, all are accepted, although the server is fragile.
        for i in 0..10 {
            assert_eq!(outages.arrive(13 * SECOND + i * SECOND / 20, 0, 1), None);
        }
        assert_eq!(outages.collapses, 1);
    }

    #[test]
    fn nobody_calling_during_the_outage_does_not_make_it_less_fragile() {
        let mut outages = Outages::new(&[outage()]);
        assert_eq!(outages.arrive(11 * SECOND, 0, 1), None);
        assert!(outages.arrive(11 * SECOND, 0, 4).is_some(), "more than three in flight");
        assert_eq!(outages.collapses, 1);
    }

    #[test]
    fn the_bound_goes_round_the_outage_and_the_rush() {
        let plan = [Outage { from: Duration::ZERO, ..outage() }];
        let mut sent = VecDeque::new();
        let times: Vec<u64> = (0..7)
            .map(|_| {
                let at = Outages::open_from(&plan, 0, sent.back().copied().unwrap_or(0), &sent);
                sent.push_back(at);
                at / 1_000_000
            })
            .collect();
        assert_eq!(times, [10_000, 10_000, 10_000, 10_100, 10_100, 10_100, 10_200]);
    }
}
