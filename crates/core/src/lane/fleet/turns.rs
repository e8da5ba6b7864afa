//! Whose turn it is.
//!
//! Those that wait are asked in turn, and each gets one permit. So a member that wants less than an equal
//! share gets all that it wants, and the others share the rest equally (max-min fairness), however many permits
//! each of them asks for. First come, first served would give most to the one with the most workers.

use alloc::collections::{BTreeSet, VecDeque};

/// What a member answers when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// It takes a permit.
    Takes,
    /// It waits for one, and must not have it now.
    Waits,
    /// It wants none.
    Idle,
}

/// The order in which members get permits. `M` names a member.
#[derive(Clone, Debug)]
pub struct Turns<M> {
    order: VecDeque<M>,
    /// Those that are in `order`.
    waiting: BTreeSet<M>,
}

impl<M> Default for Turns<M> {
    fn default() -> Turns<M> {
        Turns { order: VecDeque::new(), waiting: BTreeSet::new() }
    }
}

impl<M: Copy + Ord> Turns<M> {
    /// A member wants a permit. Its turn comes after those that wait already.
    pub fn join(&mut self, member: M) {
        if self.waiting.insert(member) {
            self.order.push_back(member);
        }
    }

    /// The member whose turn it is. Each is asked once at most.
    pub fn next(&mut self, mut state: impl FnMut(M) -> TurnState) -> Option<M> {
        for _ in 0..self.order.len() {
            let member = self.order.pop_front()?;
            match state(member) {
                TurnState::Idle => {
                    self.waiting.remove(&member);
                }
                TurnState::Waits => self.order.push_back(member),
                TurnState::Takes => {
                    self.order.push_back(member);
                    return Some(member);
                }
            }
        }
        None
    }

    /// The number of members that wait, as far as is known.
    #[must_use]
    pub fn sharers(&self) -> u32 {
        u32::try_from(self.order.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn who_asks_for_more_gets_no_more() {
        let mut turns = Turns::default();
        let mut wants = BTreeMap::from([('a', 100), ('b', 2), ('c', 100)]);
        ['a', 'b', 'c', 'a'].into_iter().for_each(|member| turns.join(member));
        assert_eq!(turns.sharers(), 3);
        let mut got = Vec::new();
        while got.len() < 10 {
            let state = |m| if wants[&m] > 0 { TurnState::Takes } else { TurnState::Idle };
            let member = turns.next(state).unwrap();
            *wants.get_mut(&member).unwrap() -= 1;
            got.push(member);
        }
        assert_eq!(got, ['a', 'b', 'c', 'a', 'b', 'c', 'a', 'c', 'a', 'c']);
        assert_eq!(turns.sharers(), 2);
    }

    #[test]
    fn who_must_wait_is_asked_after_the_others_and_not_forgotten() {
        let mut turns = Turns::default();
        turns.join(1);
        turns.join(2);
        let held = |m| if m == 1 { TurnState::Waits } else { TurnState::Takes };
        assert_eq!((turns.next(held), turns.next(held)), (Some(2), Some(2)));
        assert_eq!(turns.next(|_| TurnState::Waits), None);
        assert_eq!(turns.next(|_| TurnState::Takes), Some(1));
        assert_eq!((turns.next(|_| TurnState::Idle), turns.sharers()), (None, 0));
        turns.join(1);
        assert_eq!(turns.next(|_| TurnState::Takes), Some(1));
    }

    proptest! {
        /// Nobody who still wants has more than one permit less than anybody else.
        #[test]
        fn shares_are_max_min_fair(demand in prop::collection::vec(0u32..50, 1..12), permits in 0u32..300) {
            let (mut turns, mut left) = (Turns::default(), demand.clone());
            (0..demand.len()).for_each(|member| turns.join(member));
            for _ in 0..permits {
                let state = |m: usize| if left[m] > 0 { TurnState::Takes } else { TurnState::Idle };
                let Some(member) = turns.next(state) else { break };
                left[member] -= 1;
            }
            let got: Vec<u32> = demand.iter().zip(&left).map(|(all, left)| all - left).collect();
            prop_assert_eq!(got.iter().sum::<u32>(), permits.min(demand.iter().sum()));
            let most = got.iter().max().unwrap();
            for (member, got) in got.iter().enumerate().filter(|(member, _)| left[*member] > 0) {
                prop_assert!(got + 1 >= *most, "{}", member);
            }
        }
    }
}
