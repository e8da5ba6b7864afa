//! How many permits a member asks for.

use core::time::Duration;

/// How long a permit is held for which the member's own rate allows no call yet.
const HELD_FOR_OWN_RATE_MAX: Duration = Duration::from_millis(50);

/// What a member looks at before it asks for permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberDemand {
    /// Calls that wait for a permit.
    pub waiting: usize,
    /// Calls beside those in flight that its own user allows.
    pub room: u32,
    /// The most permits that its own rate allows at once, if it has one.
    pub burst: Option<u32>,
    /// The server asked for a wait, or the breaker is open: no call goes.
    pub is_held: bool,
    /// The time until its own lane lets a call go, if that is later.
    pub own_wait: Option<Duration>,
    /// Its own lane has as many calls out as it may have; one that comes back asks.
    pub is_full: bool,
}

impl MemberDemand {
    /// Whether permits that no call has taken are held: their call goes in a moment.
    #[must_use]
    pub fn holds_stock(&self) -> bool {
        let soon = self.own_wait.is_some_and(|wait| wait <= HELD_FOR_OWN_RATE_MAX);
        self.waiting > 0 && !self.is_held && soon
    }

    /// The calls that should have a permit each. None while no call could use one.
    #[must_use]
    pub fn wants(&self) -> usize {
        if self.is_held || self.is_full || self.own_wait.is_some() {
            return 0;
        }
        let most = self.burst.map_or(u32::MAX, |burst| burst.max(1)).min(self.room);
        self.waiting.min(most as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_that_could_not_be_used() {
        let demand = MemberDemand { waiting: 9, room: 4, ..MemberDemand::default() };
        assert_eq!(demand.wants(), 4);
        assert_eq!(MemberDemand { burst: Some(0), ..demand }.wants(), 1);
        assert_eq!(MemberDemand { waiting: 3, ..demand }.wants(), 3);
        let wait = Some(Duration::from_millis(1));
        for none in [
            MemberDemand { is_held: true, ..demand },
            MemberDemand { is_full: true, ..demand },
            MemberDemand { own_wait: wait, ..demand },
        ] {
            assert_eq!(none.wants(), 0, "{none:?}");
        }
    }

    #[test]
    fn permits_are_held_only_for_a_moment() {
        let soon = Some(HELD_FOR_OWN_RATE_MAX);
        let demand = MemberDemand { waiting: 1, room: 1, own_wait: soon, ..MemberDemand::default() };
        assert!(demand.holds_stock());
        for not in [
            MemberDemand { waiting: 0, ..demand },
            MemberDemand { is_held: true, ..demand },
            MemberDemand { own_wait: None, ..demand },
            MemberDemand { own_wait: Some(HELD_FOR_OWN_RATE_MAX * 2), ..demand },
        ] {
            assert!(!not.holds_stock(), "{not:?}");
        }
    }
}
