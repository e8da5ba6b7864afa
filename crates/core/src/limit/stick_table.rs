//! A mirror of a request rate in two counters, as in HAProxy's stick tables, that counts refused calls too.
//!
//! Such a server weighs the calls of the last period by what is left of this one, and adds those of this
//! period. What it counts does not depend on its answers, so the lane knows for every common length of the
//! period how full the table was when a call came. For the right length there is a limit: every call that was
//! accepted came below it, and every one that was refused came above. The other lengths accepted a call at
//! which they were fuller than at a refused one, and are out.
//!
//! A window that does not count refused calls looks alike where it is never overrun. So there must be a proof: a
//! call that was refused although such a window of the same length had room for it, wherever it began.

use super::call_slots::CallSlots;
use super::rate_estimate::secs;
use crate::time::{Mono, seconds};
use core::time::Duration;

/// Lengths of periods that are common, in seconds.
const PERIODS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0];

/// How full each table was when a call came, the call included, in calls.
pub(super) type Levels = [f64; PERIODS.len()];

/// The table of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Table {
    /// Length of the period, in seconds.
    period: f64,
    /// When the period began, in seconds: as eight tables are looked at for every call, times are converted once.
    begin: f64,
    /// Calls in this period and in the last one.
    count: f64,
    last: f64,
    /// The highest level at which a call was accepted, and the lowest at which one was refused.
    accepted: f64,
    refused: f64,
    /// The least that a window could hold when it refused, if it did not count refused calls.
    unfilled: f64,
}

impl Table {
    /// As it is at `now`.
    fn rotated(mut self, now: f64) -> Table {
        let passed = now - self.begin;
        if passed >= 2.0 * self.period || self.count + self.last == 0.0 {
            (self.begin, self.count, self.last) = (now, 0.0, 0.0);
        } else if passed >= self.period {
            (self.begin, self.last, self.count) = (self.begin + self.period, self.count, 0.0);
        }
        self
    }

    /// How full it is for one more call at `now`, at which it is.
    fn level(&self, now: f64) -> f64 {
        self.last * (1.0 - (now - self.begin) / self.period) + self.count + 1.0
    }

    /// When its level is at most `limit`, if no call comes before.
    fn ready(self, limit: f64, now: f64) -> f64 {
        let table = self.rotated(now);
        if table.level(now) <= limit {
            return now;
        }
        // In this period, in the next one, or when both are over.
        for (begin, last, count) in
            [(table.begin, table.last, table.count), (table.begin + table.period, table.count, 0.0)]
        {
            let room = limit - count - 1.0;
            if room > 0.0 {
                let share = (1.0 - room / last).max(0.0);
                if share < 1.0 {
                    return now.max(begin + share * table.period);
                }
            }
        }
        table.begin + 2.0 * table.period
    }
}

/// Share of the limit by which the lane may be wrong about what the server counted: calls overtake each other.
const TOLERANCE: f64 = 0.025;
/// The same at least, in calls.
const TOLERANCE_MIN: f64 = 2.0;
/// Share of the limit for which a window that does not count refused calls must have had room at a refusal.
const PROOF_SHARE: f64 = 0.05;
/// Lowest limit, in calls, that is told from a bucket.
const LIMIT_MIN: f64 = 8.0;
/// Share of the period for which the server must have refused: a bucket does so for one interval.
const CLOSED_SHARE: f64 = 0.25;
/// Share of refused calls at which the limit is sought.
const REFUSED_SHARE: f64 = 0.0035;
/// First step, in calls, by which the limit is sought.
const STEP: f64 = 0.5;
/// The factor of the next step in the same direction, ...
const STEP_GROWTH: f64 = 2.0;
/// ... and the largest step upwards, as a share of the limit.
const STEP_MAX_SHARE: f64 = 0.01;
/// A call came at the limit if the table had room for fewer calls than this.
const NEAR: f64 = 2.0;
/// More falls of the limit in a row than this refute the table, ...
const FALLS_MAX: u32 = 4;
/// ... and so does a limit below this share of the one that was found.
const FALLEN_SHARE: f64 = 0.9;

/// The tables of all common lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StickTables {
    tables: [Table; PERIODS.len()],
    /// The calls that were not refused, for each length.
    slots: [CallSlots; PERIODS.len()],
    /// The refusals since the server was last open: when the first and the last of them were sent.
    closure: Option<(Mono, Mono)>,
    /// The longest time, in seconds, for which it refused.
    closed: f64,
    /// The table that explains all answers.
    found: Option<FoundTable>,
    /// A table was found and proved wrong.
    refuted: bool,
}

/// A table that explains all answers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FoundTable {
    /// Its number.
    index: usize,
    /// The limit, in calls, as it is sought now, and as it was found.
    limit: f64,
    first: f64,
    /// Step of the next change, in calls, accepted calls since the last one, and falls in a row.
    step: f64,
    accepted: f64,
    falls: u32,
}

impl StickTables {
    pub(super) const NEW: StickTables = {
        let table = Table {
            period: 1.0,
            begin: 0.0,
            count: 0.0,
            last: 0.0,
            accepted: 0.0,
            refused: f64::INFINITY,
            unfilled: f64::INFINITY,
        };
        let mut tables = [table; PERIODS.len()];
        let mut i = 0;
        while i < PERIODS.len() {
            tables[i].period = PERIODS[i];
            i += 1;
        }
        StickTables {
            tables,
            slots: [CallSlots::NEW; PERIODS.len()],
            closure: None,
            closed: 0.0,
            found: None,
            refuted: false,
        }
    };

    /// The rate in calls per second, if a table was found.
    pub(super) fn rate(&self) -> Option<f64> {
        self.found.map(|found| found.limit / self.tables[found.index].period)
    }

    /// The length of its period in seconds, if a table was found.
    pub(super) fn period(&self) -> Option<f64> {
        self.found.map(|found| self.tables[found.index].period)
    }

    /// When the table that was found has room for a call.
    pub(super) fn ready(&self, now: Mono) -> Option<Mono> {
        let (found, from) = (self.found?, secs(Mono::ZERO, now));
        let at = self.tables[found.index].ready(found.limit, from);
        // A nanosecond too early is too early.
        Some(if at > from { now + seconds(at - from) + Duration::from_nanos(1) } else { now })
    }

    /// A call goes out: how full the tables are with it.
    pub(super) fn sent(&mut self, now: Mono) -> Levels {
        if self.refuted {
            return Levels::default();
        }
        let now = secs(Mono::ZERO, now);
        if self.found.is_none() {
            for (table, slots) in self.tables.iter().zip(&mut self.slots) {
                slots.sent(table.period, now);
            }
        }
        let mut levels = [0.0; PERIODS.len()];
        for (table, level) in self.tables.iter_mut().zip(&mut levels) {
            *table = table.rotated(now);
            *level = table.level(now);
            table.count += 1.0;
        }
        levels
    }

    /// The server has no such table, or tells its limit.
    pub(super) fn refute(&mut self) {
        if !self.refuted {
            *self = StickTables { refuted: true, ..StickTables::NEW };
        }
    }

    /// What was taken for refusals was none. The server goes on counting.
    pub(super) fn forget(&mut self) {
        for table in &mut self.tables {
            (table.accepted, table.refused, table.unfilled) = (0.0, f64::INFINITY, f64::INFINITY);
        }
        (self.closure, self.closed, self.found) = (None, 0.0, None);
    }

    /// A call that was sent at `sent` was accepted. A refusal costs `cost` calls. True if a table was found by it.
    pub(super) fn accepted(&mut self, levels: Levels, sent: Mono, cost: f64) -> bool {
        if self.refuted {
            return false;
        }
        if let Some(found) = &mut self.found {
            // A call that came while there was room says nothing about the limit.
            found.accepted += f64::from(u8::from(levels[found.index] + NEAR >= found.limit));
            if found.accepted > cost / REFUSED_SHARE {
                found.step = if found.falls > 0 { STEP } else { found.step };
                (found.limit, found.accepted, found.falls) = (found.limit + found.step, 0.0, 0);
                found.step = (STEP_GROWTH * found.step).min((STEP_MAX_SHARE * found.limit).max(STEP));
            }
            return false;
        }
        for (table, level) in self.tables.iter_mut().zip(levels) {
            table.accepted = table.accepted.max(level);
        }
        if self.closure.is_none_or(|(_, last)| sent <= last) {
            return false;
        }
        self.closure = None;
        self.find();
        self.found.is_some()
    }

    /// A call that was sent at `sent` was refused; `fresh` if it was sent after the last refusal was known.
    pub(super) fn refused(&mut self, levels: Levels, sent: Mono, fresh: bool) {
        if self.refuted {
            return;
        }
        if let Some(found) = &mut self.found {
            if !fresh {
                return;
            }
            found.step = if found.falls > 0 { STEP_GROWTH * found.step } else { STEP };
            found.limit = found.limit.min(levels[found.index]) - found.step;
            (found.accepted, found.falls) = (0.0, found.falls + 1);
            if found.falls > FALLS_MAX || found.limit < FALLEN_SHARE * found.first - TOLERANCE_MIN {
                self.refute();
            }
            return;
        }
        let at = secs(Mono::ZERO, sent);
        for ((table, slots), level) in self.tables.iter_mut().zip(&mut self.slots).zip(levels) {
            table.refused = table.refused.min(level);
            table.unfilled = slots.refused(table.period, at).unwrap_or(f64::INFINITY).min(table.unfilled);
        }
        let (first, last) =
            self.closure.map_or((sent, sent), |(first, last)| (first.min(sent), last.max(sent)));
        self.closure = Some((first, last));
        self.closed = self.closed.max(secs(first, last));
    }

    /// Whether one table, and no other, explains all answers.
    fn find(&mut self) {
        let tolerance = |table: &Table| (TOLERANCE * table.refused).max(TOLERANCE_MIN);
        let mut possible = self
            .tables
            .iter()
            .enumerate()
            .filter(|(_, table)| table.accepted <= table.refused + tolerance(table));
        let (Some((index, table)), None) = (possible.next(), possible.next()) else { return };
        let near = table.accepted + tolerance(table) >= table.refused;
        let proof = table.unfilled + (PROOF_SHARE * table.accepted).max(TOLERANCE_MIN) <= table.accepted;
        if proof && near && table.refused >= LIMIT_MIN && self.closed >= CLOSED_SHARE * table.period {
            let limit = f64::midpoint(table.accepted, table.refused).min(table.accepted);
            self.found = Some(FoundTable { index, limit, first: limit, step: STEP, accepted: 0.0, falls: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Limit, in calls, and length, in seconds, of the servers.
    const LIMIT: f64 = 100.0;
    const WINDOW: f64 = 2.0;

    /// A server with the calls that it counted: it accepts a call at `t` seconds if it has room.
    type Room = fn(&[f64], f64) -> bool;

    fn between(calls: &[f64], from: f64, to: f64) -> f64 {
        calls.iter().filter(|&&call| call >= from && call < to).count() as f64
    }

    fn two_counters(calls: &[f64], t: f64) -> bool {
        let begin = (t / WINDOW).floor() * WINDOW;
        let last = between(calls, begin - WINDOW, begin);
        last * (1.0 - (t - begin) / WINDOW) + between(calls, begin, f64::INFINITY) < LIMIT
    }

    fn fixed(calls: &[f64], t: f64) -> bool {
        between(calls, ((t - 0.7) / WINDOW).floor() * WINDOW + 0.7, f64::INFINITY) < LIMIT
    }

    fn sliding(calls: &[f64], t: f64) -> bool {
        between(calls, t - WINDOW, f64::INFINITY) < LIMIT
    }

    /// A client that calls every 4 ms, 40 times more once it was refused, and then probes every 50 ms.
    fn learned(room: Room, counts_refused: bool) -> StickTables {
        let mut tables = StickTables::NEW;
        let (mut calls, mut t, mut refused) = (Vec::new(), 0.0, 0);
        for _ in 0..2_000 {
            let at = Mono::from_secs_f64(t);
            let levels = tables.sent(at);
            let accepted = room(&calls, t);
            if accepted || counts_refused {
                calls.push(t);
            }
            if accepted {
                refused = 0;
                if tables.accepted(levels, at, 1.0) {
                    break;
                }
            } else {
                refused += 1;
                tables.refused(levels, at, refused == 1);
            }
            t += if refused > 40 { 0.05 } else { 0.004 };
        }
        tables
    }

    #[test]
    fn a_table_that_counts_refused_calls_is_found() {
        let rate = learned(two_counters, true).rate().expect("a table");
        assert!((rate * WINDOW - LIMIT).abs() < 0.05 * LIMIT, "{rate}");
    }

    #[test]
    fn windows_that_do_not_count_refused_calls_are_none() {
        for room in [two_counters as Room, fixed, sliding] {
            assert_eq!(learned(room, false).rate(), None);
        }
    }

    #[test]
    fn a_table_that_refuses_while_it_is_empty_is_given_up() {
        let mut tables = learned(two_counters, true);
        let later = Mono::from_secs_f64(100.0);
        assert_eq!(tables.ready(later), Some(later), "it is empty by then");
        let levels = tables.sent(later);
        tables.refused(levels, later, true);
        assert_eq!((tables.rate(), tables.ready(later)), (None, None));
        assert!(tables.refuted);
    }
}
