//! The queue of future events: earliest first, and first in, first out at the same time.
//!
//! Why not a binary heap: simulated time never goes backwards, and a heap cannot use that. This is
//! a radix heap with digits of six bits: an event waits in the slot of the highest digit in which
//! its time differs from the present. When the present reaches that slot, its events are
//! distributed to finer slots. Every step is an append to a vector, so a million waiting events
//! cost sequential memory accesses, not a cache miss per comparison.
//!
//! Why the order is first in, first out without a sequence number: two events of the same time
//! always share a slot (the slot depends only on the time and the present, and the present cannot
//! enter a slot without emptying it), and every move keeps the order within a slot.

use core::mem;

/// The number of bits of a digit.
const BITS: u32 = 6;
/// The number of slots of a level, one per digit.
const SLOTS: usize = 1 << BITS;
/// The number of levels: the digits of a 64-bit time.
const LEVELS: usize = 11;
/// A slot's vector with a larger capacity than this, in events, is freed once it is empty.
const KEEP: usize = 1 << 12;

/// A monotone priority queue of `(time, event)`.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// The present, in nanoseconds.
    now: u64,
    /// The number of waiting events.
    len: usize,
    /// The events of the present time, the next one last.
    due: Vec<E>,
    /// The bit set of occupied slots, per level.
    full: [u64; LEVELS],
    /// The bit set of occupied levels.
    levels: u32,
    slots: Vec<Vec<(u64, E)>>,
    /// Swapped with a slot while it is distributed, so that no vector is allocated twice.
    spare: Vec<(u64, E)>,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue at time 0.
    #[must_use]
    pub fn new() -> EventQueue<E> {
        let slots = (0..LEVELS * SLOTS).map(|_| Vec::new()).collect();
        EventQueue { now: 0, len: 0, due: Vec::new(), full: [0; LEVELS], levels: 0, slots, spare: Vec::new() }
    }

    /// Empties the queue and returns to time 0; keeps the memory.
    pub fn reset(&mut self) {
        if self.len > 0 {
            self.slots.iter_mut().for_each(Vec::clear);
            self.due.clear();
        }
        (self.now, self.len, self.full, self.levels) = (0, 0, [0; LEVELS], 0);
    }

    /// The time of the last event taken.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// The number of waiting events.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. A time in the past means now.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        self.len += 1;
        self.place(at.max(self.now), event);
    }

    #[inline]
    fn place(&mut self, at: u64, event: E) {
        let level = ((63 - ((at ^ self.now) | 1).leading_zeros()) / BITS) as usize;
        let digit = (at >> (level as u32 * BITS)) as usize & (SLOTS - 1);
        self.full[level] |= 1 << digit;
        self.levels |= 1 << level;
        self.slots[level * SLOTS + digit].push((at, event));
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if let Some(event) = self.due.pop() {
            self.len -= 1;
            return Some((self.now, event));
        }
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.full[level].trailing_zeros() as usize;
        self.full[level] &= !(1 << digit);
        if self.full[level] == 0 {
            self.levels &= !(1 << level);
        }
        let slot = &mut self.slots[level * SLOTS + digit];
        if slot.len() == 1 {
            let (at, event) = slot.pop()?;
            self.now = at;
            return Some((at, event));
        }
        self.spread(level * SLOTS + digit);
        let event = self.due.pop()?;
        Some((self.now, event))
    }

    /// Advances the present to the earliest event of a slot and distributes the others to finer
    /// slots.
    fn spread(&mut self, index: usize) {
        let mut events = mem::replace(&mut self.slots[index], mem::take(&mut self.spare));
        let first = events.iter().map(|&(at, _)| at).min().unwrap_or(self.now);
        self.now = first;
        for &(at, event) in &events {
            if at == first {
                self.due.push(event);
            } else {
                self.place(at, event);
            }
        }
        self.due.reverse();
        events.clear();
        if events.capacity() <= KEEP {
            self.spare = events;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn the_past_means_now() {
        let mut queue = EventQueue::new();
        queue.push(10, 'a');
        assert_eq!(queue.pop(), Some((10, 'a')));
        queue.push(3, 'b');
        queue.push(u64::MAX, 'c');
        assert_eq!(queue.pop(), Some((10, 'b')));
        assert_eq!(queue.pop(), Some((u64::MAX, 'c')));
        assert_eq!(queue.pop(), None);
        queue.reset();
        assert_eq!((queue.now(), queue.len(), queue.is_empty()), (0, 0, true));
    }

    proptest! {
        #[test]
        fn order_is_time_then_sequence(
            steps in prop::collection::vec((0u32..40, 0u64..200, 0usize..3), 1..400),
        ) {
            let (mut queue, mut model) = (EventQueue::new(), BinaryHeap::new());
            let mut now = 0;
            for (sequence, (shift, delay, pops)) in steps.into_iter().enumerate() {
                let at = now + (delay << shift) / 64;
                queue.push(at, sequence);
                model.push(Reverse((at, sequence)));
                for _ in 0..pops {
                    let expected = model.pop().map(|Reverse(x)| x);
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |(at, _)| at);
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            while let Some(Reverse(expected)) = model.pop() {
                prop_assert_eq!(queue.pop(), Some(expected));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
