//! The owner's account of one member: what it wants, what it holds, when it was last heard.

use super::{PERMIT_SILENT_MAX, WANTED_MAX, hold_max};
use crate::time::Mono;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// The account of one member. `P` is a permit of the lane.
#[derive(Clone, Debug)]
pub struct MemberAccount<P> {
    /// Permits that it wants and that do not wait for their turn yet.
    wanted: u32,
    /// Permits that wait for their turn.
    queued: u32,
    /// The permits that it holds, by number, and when they were sent.
    granted: BTreeMap<u64, (P, Mono)>,
    /// The number of the last permit.
    last: u64,
    /// When it was last heard.
    heard: Mono,
}

impl<P> MemberAccount<P> {
    /// The account of a member that has just come.
    #[must_use]
    pub const fn new(now: Mono) -> MemberAccount<P> {
        MemberAccount { wanted: 0, queued: 0, granted: BTreeMap::new(), last: 0, heard: now }
    }

    /// The member said something.
    pub fn heard(&mut self, now: Mono) {
        self.heard = self.heard.max(now);
    }

    /// It wants so many permits more.
    pub fn want(&mut self, calls: u32) {
        let room = WANTED_MAX.saturating_sub(self.wanted + self.queued);
        self.wanted += calls.min(room);
    }

    /// How many of its wants join the queue of the lane now; they count as queued. `cap` are the calls at once
    /// of the lane, `sharers` those that wait for a permit, itself included.
    pub fn enqueue(&mut self, cap: u32, sharers: u32, now: Mono) -> u32 {
        if self.is_silent(now) {
            return 0;
        }
        let out = self.queued.saturating_add(self.held());
        let more = self.wanted.min(hold_max(cap, sharers).saturating_sub(out));
        self.wanted -= more;
        self.queued += more;
        more
    }

    /// Its turn came, and the permit is sent at this time. Says the permit's number.
    pub fn grant(&mut self, permit: P, at: Mono) -> u64 {
        self.queued = self.queued.saturating_sub(1);
        self.last += 1;
        self.granted.insert(self.last, (permit, at));
        self.last
    }

    /// Its turn came, and there is no permit: it must ask again.
    pub fn deny(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }

    /// A permit comes to an end. `None` if it was taken back before.
    pub fn give_up(&mut self, number: u64) -> Option<P> {
        self.granted.remove(&number).map(|(permit, _)| permit)
    }

    /// The time that a permit and the report of it were on their way, if the member had it for `held`.
    #[must_use]
    pub fn round_trip(&self, number: u64, held: Duration, now: Mono) -> Option<Duration> {
        let (_, sent) = self.granted.get(&number)?;
        Some(now.since(*sent).saturating_sub(held))
    }

    /// Whether it has said nothing for so long that its permits are free for others.
    #[must_use]
    pub fn is_silent(&self, now: Mono) -> bool {
        now.since(self.heard) > PERMIT_SILENT_MAX
    }

    /// Takes back the permits of a member that is silent. What it wants leaves the queue, and joins it again when
    /// the member is heard.
    #[must_use]
    pub fn take_expired(&mut self, now: Mono) -> Vec<P> {
        if !self.is_silent(now) {
            return Vec::new();
        }
        self.wanted += core::mem::take(&mut self.queued);
        self.take_all()
    }

    /// Takes back all permits: the member is gone.
    #[must_use]
    pub fn take_all(&mut self) -> Vec<P> {
        core::mem::take(&mut self.granted).into_values().map(|(permit, _)| permit).collect()
    }

    /// The permits that it holds.
    #[must_use]
    pub fn held(&self) -> u32 {
        u32::try_from(self.granted.len()).unwrap_or(u32::MAX)
    }

    /// The permits that wait for their turn.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_no_more_than_twice_its_share() {
        let (now, mut account) = (Mono::ZERO, MemberAccount::new(Mono::ZERO));
        account.want(10);
        assert_eq!(account.enqueue(16, 8, now), 4);
        assert_eq!([account.grant('a', now), account.grant('b', now)], [1, 2]);
        assert_eq!((account.held(), account.queued(), account.enqueue(16, 8, now)), (2, 2, 0));
        assert_eq!(account.give_up(1), Some('a'));
        account.deny();
        assert_eq!(account.enqueue(16, 8, now), 2);
        // Alone it may have all.
        assert_eq!(account.enqueue(16, 1, now), 4);
        account.want(u32::MAX);
        let _ = account.enqueue(u32::MAX, 1, now);
        assert_eq!(account.queued(), WANTED_MAX, "what is asked for has a bound");
    }

    #[test]
    fn a_silent_member_loses_its_permits_and_gets_none_until_it_is_heard() {
        let (start, mut account) = (Mono::from_millis(100), MemberAccount::new(Mono::from_millis(100)));
        account.want(3);
        assert_eq!(account.enqueue(1, 2, start), 1);
        let number = account.grant('a', start);
        let held = Duration::from_millis(70);
        let way = |at| account.round_trip(number, held, at);
        assert_eq!(way(start + Duration::from_millis(80)), Some(Duration::from_millis(10)));
        assert_eq!((way(start), account.round_trip(9, held, start)), (Some(Duration::ZERO), None));
        assert_eq!(account.enqueue(2, 1, start), 1);
        let (last, late) = (start + PERMIT_SILENT_MAX, start + PERMIT_SILENT_MAX + Duration::from_nanos(1));
        assert!(account.take_expired(last).is_empty());
        assert_eq!(account.take_expired(late), ['a']);
        assert_eq!((account.give_up(number), account.queued(), account.enqueue(9, 1, late)), (None, 0, 0));
        account.heard(late);
        assert_eq!(account.enqueue(9, 1, late), 2);
        assert_eq!(account.grant('b', late), number + 1, "numbers are not used twice");
    }
}
