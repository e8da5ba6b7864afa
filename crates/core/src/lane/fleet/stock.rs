//! The permits that a member has and waits for.

use super::{PERMIT_VALID, WANTED_MAX};
use crate::time::Mono;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A member's permits that no call has taken yet, oldest first, and how many more it has asked for. `G` names a
/// permit.
#[derive(Clone, Debug)]
pub struct PermitStock<G> {
    permits: VecDeque<(G, Mono)>,
    wanted: u32,
}

impl<G> Default for PermitStock<G> {
    fn default() -> PermitStock<G> {
        PermitStock { permits: VecDeque::new(), wanted: 0 }
    }
}

impl<G> PermitStock<G> {
    /// How many more permits to ask for, so that `waiting` calls have one each. They count as asked for.
    pub fn want(&mut self, waiting: usize) -> u32 {
        let waiting = u32::try_from(waiting).unwrap_or(WANTED_MAX).min(WANTED_MAX);
        let coming = self.wanted.saturating_add(u32::try_from(self.permits.len()).unwrap_or(WANTED_MAX));
        let more = waiting.saturating_sub(coming);
        self.wanted += more;
        more
    }

    /// A permit came.
    pub fn granted(&mut self, permit: G, now: Mono) {
        self.wanted = self.wanted.saturating_sub(1);
        self.permits.push_back((permit, now));
    }

    /// A permit that was asked for does not come.
    pub fn denied(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
    }

    /// Whether there is a permit for a call.
    #[must_use]
    pub fn has_permit(&self) -> bool {
        !self.permits.is_empty()
    }

    /// Takes a permit for a call that goes now. To be called after [`PermitStock::expired`].
    /// Says when it came, too.
    pub fn take(&mut self) -> Option<(G, Mono)> {
        self.permits.pop_front()
    }

    /// Takes out the permits that must not be used any more.
    #[must_use]
    pub fn expired(&mut self, now: Mono) -> Vec<G> {
        let fresh = |came: &Mono| now.since(*came) <= PERMIT_VALID;
        let old = self.permits.iter().take_while(|(_, came)| !fresh(came)).count();
        self.permits.drain(..old).map(|(permit, _)| permit).collect()
    }

    /// Takes out all permits, to be given up.
    #[must_use]
    pub fn release(&mut self) -> Vec<G> {
        self.permits.drain(..).map(|(permit, _)| permit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn it_asks_once_for_each_call() {
        let mut stock = PermitStock::default();
        assert_eq!((stock.want(3), stock.want(3), stock.want(5)), (3, 0, 2));
        stock.granted('a', Mono::ZERO);
        stock.denied();
        assert_eq!(stock.want(5), 1);
        assert_eq!(stock.take(), Some(('a', Mono::ZERO)));
        assert_eq!(stock.want(5), 1);
        assert_eq!(PermitStock::<u64>::default().want(usize::MAX), WANTED_MAX);
    }

    #[test]
    fn a_permit_that_was_not_used_in_time_is_not_used() {
        let mut stock = PermitStock::default();
        let late = Mono::ZERO + PERMIT_VALID + Duration::from_millis(1);
        stock.granted('a', Mono::ZERO);
        stock.granted('b', late);
        assert!(stock.expired(Mono::ZERO + PERMIT_VALID).is_empty());
        assert_eq!(stock.expired(late), ['a']);
        assert_eq!((stock.take(), stock.has_permit()), (Some(('b', late)), false));
        stock.granted('c', late);
        assert_eq!(stock.release(), ['c']);
    }
}
