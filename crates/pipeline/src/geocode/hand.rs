//! Rows on their way from the reader to the work, by the handful: to wake somebody for each row costs
//! more than to read it.

use super::source::Item;
use tokio::sync::mpsc;

/// Rows in a handful, at most.
const HANDFUL: usize = 64;

/// Hands rows on. Whoever waits gets what there is; else rows are gathered.
pub(super) struct Giver {
    gathered: Vec<Item>,
    to: mpsc::Sender<Vec<Item>>,
}

/// Takes rows.
pub(super) struct Taker {
    from: mpsc::Receiver<Vec<Item>>,
    hand: std::vec::IntoIter<Item>,
}

/// A way for `rows` rows.
pub(super) fn way(rows: usize) -> (Giver, Taker) {
    let (to, from) = mpsc::channel(rows.div_ceil(HANDFUL));
    (Giver { gathered: Vec::new(), to }, Taker { from, hand: Vec::new().into_iter() })
}

impl Giver {
    /// Hands a row on; false when nobody takes it.
    pub(super) fn give(&mut self, item: Item) -> bool {
        self.gathered.push(item);
        let waiting = self.to.capacity() == self.to.max_capacity();
        if self.gathered.len() < HANDFUL && !waiting {
            return true;
        }
        self.flush()
    }

    /// Hands on what is gathered; false when nobody takes it.
    pub(super) fn flush(&mut self) -> bool {
        self.gathered.is_empty() || self.to.blocking_send(std::mem::take(&mut self.gathered)).is_ok()
    }
}

impl Drop for Giver {
    /// What was read before the reading failed is done all the same.
    fn drop(&mut self) {
        self.flush();
    }
}

impl Taker {
    /// The next row; none after the last.
    pub(super) async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.hand.next() {
                return Some(item);
            }
            self.hand = self.from.recv().await?.into_iter();
        }
    }

    /// The next row, if there is one at once.
    pub(super) fn next_at_once(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.hand.next() {
                return Some(item);
            }
            self.hand = self.from.try_recv().ok()?.into_iter();
        }
    }

    /// Takes no more.
    pub(super) fn close(&mut self) {
        self.from.close();
    }
}
