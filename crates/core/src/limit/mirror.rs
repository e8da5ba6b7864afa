//! The server's own counter, mirrored from its headers.
//!
//! Each answer says how many calls were left after it. What the server has granted in all, the
//! calls accepted so far plus those left, grows with time and with nothing else: in steps where
//! the quota is one of windows, steadily where it is a bucket. So no refusal is needed to know
//! both what may be sent now and how fast the quota refills:
//!
//! - what is left, less what was sent since, may go at once;
//! - a bucket is then followed at the slope of its grants, a hair below, and whatever that leaves
//!   shows up as calls left and is spent;
//! - a window is awaited until its reset, and given up as soon as it shows itself by coming back
//!   whole: it is paced by the refusals, which need no boundary.
//!
//! Headers lie, count only some calls, or are shared with other clients. When refusals come where
//! calls should be left, the mirror is given up and the refusals themselves are the measure.

use crate::hint::{Hints, Quota};
use crate::time::{Mono, seconds};

/// Grants that a slope must rest on.
const GRANTS_MIN: f64 = 6.0;

/// When the next call may go by the mirror.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Left {
    /// Now.
    Now,
    /// Not before.
    At(Mono),
    /// When an answer has come.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: Mono,
    granted: f64,
}

/// The mirror of one quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mirror {
    /// The newest call whose answer told something, when it was sent, and what it told.
    seq: u64,
    at: Mono,
    left: f64,
    limit: f64,
    granted: f64,
    reset: Mono,
    /// Two points behind, for the slope.
    old: Option<Point>,
    mid: Option<Point>,
    /// The quota comes in steps.
    steps: bool,
    /// Calls let go past the last reset.
    past: u32,
    calls: f64,
    misses: f64,
    /// Refusals in a row without a grant between them.
    idle: u32,
    /// The last slope that was measured.
    known: Option<f64>,
    /// How far the order of answers may differ from that of the calls.
    blur: f64,
    /// Calls sent from the reserve while no slope is known.
    spared: u32,
}

impl Mirror {
    /// A mirror from the first answer that told a quota.
    pub(super) fn new(hints: &Hints, seq: u64, sent: Mono, now: Mono, accepted: u64) -> Option<Mirror> {
        let quota = tightest(hints)?;
        let mut mirror = Mirror {
            seq,
            at: sent,
            left: 0.0,
            limit: -1.0,
            granted: 0.0,
            reset: Mono::ZERO,
            old: None,
            mid: None,
            steps: false,
            past: 0,
            calls: 0.0,
            misses: 0.0,
            idle: 0,
            known: None,
            blur: 0.0,
            spared: 0,
        };
        mirror.take(&quota, seq, sent, now, accepted);
        Some(mirror)
    }

    /// Whether it has been wrong too often: a counter that is mirrored well brings no refusal.
    pub(super) fn lies(&self) -> bool {
        self.misses > 2.0 + 0.001 * self.calls
    }

    /// Whether the quota comes back in steps. Then there is nothing to follow, and the refusals
    /// themselves are the better measure.
    pub(super) const fn stepped(&self) -> bool {
        self.steps
    }

    /// Calls per second by the slope of the grants.
    pub(super) const fn slope(&self) -> Option<f64> {
        self.known
    }

    fn measure(&mut self) {
        let Some(from) = self.old.filter(|_| !self.steps) else { return };
        let span = self.at.since(from.at).as_nanos() as f64 * 1e-9;
        let grants = self.granted - from.granted;
        if grants >= GRANTS_MIN + self.blur && span > 0.0 {
            self.known = Some((grants - 0.5) / span * 0.9995);
        }
    }

    /// Another answer. `accepted` counts accepted calls up to and including this one.
    pub(super) fn told(
        &mut self,
        hints: &Hints,
        seq: u64,
        sent: Mono,
        now: Mono,
        accepted: u64,
        in_flight: u32,
    ) {
        self.calls += 1.0;
        // Calls that are out may overtake each other.
        self.blur = f64::from(in_flight);
        if let Some(quota) = tightest(hints) {
            self.take(&quota, seq, sent, now, accepted);
        }
    }

    fn take(&mut self, quota: &Quota, seq: u64, sent: Mono, now: Mono, accepted: u64) {
        let (Some(left), limit) = (quota.remaining, quota.limit.map_or(0.0, |l| l as f64)) else { return };
        let left = left as f64;
        let granted = left + accepted as f64;
        let reset = quota.reset.map(|r| now + r);
        if limit != self.limit {
            // Another quota is the tightest now, or the first.
            (self.limit, self.old, self.mid) = (limit, None, None);
            self.known = None;
            (self.seq, self.at, self.left, self.granted) = (seq, sent, left, granted);
            self.reset = reset.unwrap_or(Mono::ZERO);
            self.past = 0;
            return;
        }
        if seq < self.seq {
            return;
        }
        let grown = granted - self.granted;
        if self.past > 0 && grown > 0.5 && grown >= 0.8 * self.limit {
            // The quota comes back at its reset, as a whole: it has no slope.
            self.steps = true;
            (self.known, self.old, self.mid) = (None, None, None);
        }
        let same = granted <= self.granted + 0.5;
        if !same {
            self.idle = 0;
        }
        if let Some(reset) = reset {
            // Within one window the earliest reset told is the truest.
            self.reset = if same && self.reset > now { self.reset.min(reset) } else { reset };
        }
        if self.past > 0 && seq + 1 >= self.seq {
            self.past = 0;
        }
        (self.seq, self.at, self.left, self.granted) = (seq, sent, left, granted);
        let point = Point { at: sent, granted };
        if left + 1.0 >= self.limit {
            // A full quota earns nothing: the slope begins anew.
            (self.old, self.mid) = (Some(point), None);
            return;
        }
        self.measure();
        match (self.old, self.mid) {
            (None, _) => self.old = Some(point),
            (Some(_), None) if self.enough(&point) => self.mid = Some(point),
            (Some(_), Some(mid)) if point.granted - mid.granted >= 200.0 => {
                (self.old, self.mid) = (Some(mid), Some(point));
            }
            _ => {}
        }
    }

    fn enough(&self, point: &Point) -> bool {
        self.old.is_some_and(|old| point.granted - old.granted >= 200.0)
    }

    /// When the call with number `next` may go.
    pub(super) fn ready(&self, next: u64, now: Mono, in_flight: u32) -> Left {
        let since = next.saturating_sub(self.seq + 1) as f64;
        let steady = self.known.is_some() && !self.steps;
        // Calls overtake each other: of a quota that does not refill meanwhile, all that are out
        // are taken as not yet counted.
        let left = self.left - if steady { since } else { since.max(f64::from(in_flight)) };
        if left >= 1.0 + self.reserve() {
            return Left::Now;
        }
        if left >= 1.0 {
            // The last calls are spread, to see whether the quota grows meanwhile.
            let at = self.at + seconds(0.005 * f64::from(1u32 << self.spared.min(8)));
            return if in_flight > 0 {
                Left::Unknown
            } else if now >= at {
                Left::Now
            } else {
                Left::At(at)
            };
        }
        if let Some(slope) = self.slope().filter(|_| !self.steps) {
            let earned = slope * now.since(self.at).as_secs_f64();
            let have = left + earned;
            return if have >= 1.0 { Left::Now } else { Left::At(now + seconds((1.0 - have) / slope)) };
        }
        if now < self.reset {
            return Left::At(self.reset);
        }
        // Past the reset one call asks.
        if self.past == 0 { Left::Now } else { Left::Unknown }
    }

    /// Calls kept back while it is not known how the quota refills.
    fn reserve(&self) -> f64 {
        if self.known.is_some() || self.steps { 0.0 } else { (self.limit / 4.0).min(8.0) }
    }

    /// The call went; it counts against what is thought to be there past a reset.
    pub(super) fn sent(&mut self, next: u64, now: Mono) {
        let since = next.saturating_sub(self.seq + 1) as f64;
        let waits = self.steps || self.slope().is_none();
        if self.left - since < 1.0 + self.reserve() {
            self.spared += 1;
        }
        if waits && self.left - since < 1.0 && now >= self.reset {
            self.past += 1;
        }
    }

    /// A call was refused although something should have been left. `granted` before it is known.
    pub(super) fn missed(&mut self, hints: &Hints, accepted: u64) {
        self.misses += 1.0;
        let granted = tightest(hints).and_then(|q| q.remaining).map(|r| r as f64 + accepted as f64);
        let idle = granted.is_some_and(|g| g < self.granted + 0.5);
        self.idle = if idle { self.idle + 1 } else { 0 };
        self.steps |= self.idle >= 3;
    }
}

/// The quota with the least left.
fn tightest(hints: &Hints) -> Option<Quota> {
    let left = |q: &&Quota| q.remaining.unwrap_or(u64::MAX);
    // A quota of one or two says nothing between its calls.
    let tells = |q: &&Quota| q.remaining.is_some() && q.limit.is_none_or(|l| l > 2);
    hints.quotas.iter().flatten().filter(tells).min_by_key(left).copied()
}
