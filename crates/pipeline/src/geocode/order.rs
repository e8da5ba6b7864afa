//! Answers come in any order, rows leave in the order of the file.
//!
//! A slow row holds back the rows behind it in the output, never in the work: they are asked and
//! answered meanwhile and wait here. [`Credit`] bounds how many: the reader takes credit for each
//! row by its size and the output gives it back, so that memory does not depend on the file.

use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

/// Puts numbered things back into their order, counting from 1.
#[derive(Debug)]
pub(super) struct Order<T> {
    next: u64,
    waiting: VecDeque<Option<T>>,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { next: 1, waiting: VecDeque::new() }
    }
}

impl<T> Order<T> {
    /// Takes in number `n`. A number that has left already, or is there already, is dropped.
    pub(super) fn put(&mut self, n: u64, thing: T) {
        let Some(place) = n.checked_sub(self.next) else { return };
        let place = place as usize;
        if place >= self.waiting.len() {
            self.waiting.resize_with(place + 1, || None);
        }
        if let Some(slot) = self.waiting.get_mut(place) {
            slot.get_or_insert(thing);
        }
    }

    /// The next in order, if it is there.
    pub(super) fn take(&mut self) -> Option<T> {
        let thing = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.next += 1;
        Some(thing)
    }

    /// How many have left.
    #[must_use]
    pub(super) const fn left(&self) -> u64 {
        self.next - 1
    }
}

/// A counter that blocks at zero.
#[derive(Debug)]
pub(super) struct Credit {
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Credit {
    /// So many.
    #[must_use]
    pub(super) const fn new(n: usize) -> Credit {
        Credit { left: Mutex::new(Some(n)), changed: Condvar::new() }
    }

    /// Takes `n`, waiting for them; false when there will be no more. Never ask for more than
    /// there are.
    pub(super) fn take(&self, n: usize) -> bool {
        let mut left = lock(&self.left);
        loop {
            match left.as_mut() {
                None => return false,
                Some(has) if *has < n => {
                    left = self.changed.wait(left).unwrap_or_else(PoisonError::into_inner);
                }
                Some(has) => {
                    *has -= n;
                    return true;
                }
            }
        }
    }

    /// Gives some back.
    pub(super) fn give(&self, n: usize) {
        let mut left = lock(&self.left);
        if let Some(left) = left.as_mut() {
            *left += n;
        }
        self.changed.notify_all();
    }

    /// There will be no more: whoever waits stops waiting.
    pub(super) fn close(&self) {
        *lock(&self.left) = None;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_leave_in_order_once_each() {
        let mut order = Order::default();
        order.put(3, 'c');
        assert_eq!(order.take(), None);
        order.put(1, 'a');
        order.put(1, 'x');
        assert_eq!(order.take(), Some('a'));
        order.put(1, 'y');
        assert_eq!(order.take(), None);
        order.put(2, 'b');
        assert_eq!((order.take(), order.take(), order.take()), (Some('b'), Some('c'), None));
        assert_eq!(order.left(), 3);
    }

    #[test]
    fn credit_blocks_until_given_or_closed() {
        let credit = std::sync::Arc::new(Credit::new(1));
        assert!(credit.take(1));
        let other = std::sync::Arc::clone(&credit);
        let waiting = std::thread::spawn(move || (other.take(1), other.take(1)));
        credit.give(1);
        credit.close();
        assert!(!waiting.join().unwrap().1);
        assert!(!credit.take(1));
    }
}
