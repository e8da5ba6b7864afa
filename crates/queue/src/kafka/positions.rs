//! Which records are read, handed out and finished: the decisions, without a server.
//!
//! Kafka keeps one position per partition and group; everything before it is finished. Records are
//! finished in any order, so the position is that of the lowest record that is not. What is finished
//! beyond it is known only here: after a crash it is delivered again.

use std::collections::{BTreeMap, HashSet};

use crate::message::{Delivery, Message, Receipt};

/// A record that was read.
pub(super) struct ReadRecord {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) message: Message,
    pub(super) published: Option<i64>,
}

enum OpenRecord {
    /// Can be handed out when its time has come. With the time at which it was read.
    Here(Box<ReadRecord>, i64),
    Leased {
        ordering_key: Option<String>,
    },
}

struct OwnedPartition {
    /// Numbers the assignments, so that a receipt belongs to one of them.
    epoch: u64,
    /// What is read and not finished.
    open: BTreeMap<i64, OpenRecord>,
    /// The next offset that was not read.
    end: i64,
    committed: i64,
}

impl OwnedPartition {
    /// Everything before it is finished.
    fn position(&self) -> i64 {
        self.open.keys().next().copied().unwrap_or(self.end)
    }
}

/// The partitions of this worker.
#[derive(Default)]
pub(super) struct OwnedPositions {
    partitions: BTreeMap<i32, OwnedPartition>,
    epochs: u64,
    /// Where the next call begins, so that no partition starves.
    turn: i32,
}

/// How many records are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PositionCounts {
    pub(super) ready: u64,
    pub(super) waiting: u64,
    pub(super) leased: u64,
    /// Finished, but beyond the position.
    pub(super) ahead: u64,
}

impl OwnedPositions {
    /// `epochs` is where the numbers of assignments begin.
    pub(super) fn new(epochs: u64) -> OwnedPositions {
        OwnedPositions { epochs, ..OwnedPositions::default() }
    }

    /// Adds a record. One that was read before is ignored.
    pub(super) fn add(&mut self, read: ReadRecord, now: i64) {
        let (offset, epochs) = (read.offset, &mut self.epochs);
        let partition = self.partitions.entry(read.partition).or_insert_with(|| {
            *epochs += 1;
            OwnedPartition { epoch: *epochs, open: BTreeMap::new(), end: offset, committed: offset }
        });
        if offset >= partition.end {
            partition.end = offset + 1;
            partition.open.insert(offset, OpenRecord::Here(Box::new(read), now));
        }
    }

    /// Hands out records whose time has come. Of each ordering key only the first that is not
    /// finished.
    pub(super) fn take(&mut self, most: usize, now: i64) -> Vec<Delivery> {
        let mut taken = Vec::new();
        let turn = self.turn;
        let ids: Vec<i32> =
            self.partitions.range(turn..).chain(self.partitions.range(..turn)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            let epoch = partition.epoch;
            let mut keys: HashSet<String> = HashSet::new();
            for (offset, entry) in &mut partition.open {
                if taken.len() >= most {
                    break;
                }
                let (key, is_due) = match entry {
                    OpenRecord::Here(read, _) => {
                        let is_due = read.message.not_before.is_none_or(|at| at <= now);
                        (&read.message.ordering_key, is_due)
                    }
                    OpenRecord::Leased { ordering_key } => (&*ordering_key, false),
                };
                let key = key.clone();
                let is_first = key.as_ref().is_none_or(|key| keys.insert(key.clone()));
                if !is_first || !is_due {
                    continue;
                }
                if let OpenRecord::Here(read, _) =
                    std::mem::replace(entry, OpenRecord::Leased { ordering_key: key })
                {
                    taken.push(Delivery {
                        message: read.message,
                        receipt: Receipt(format!("{epoch}:{id}:{offset}")),
                        deliveries: 1,
                        published: read.published,
                    });
                }
            }
            self.turn = id.saturating_add(1);
            if taken.len() >= most {
                break;
            }
        }
        taken
    }

    fn leased(&mut self, receipt: &Receipt) -> Option<(&mut OwnedPartition, i64)> {
        let mut parts = receipt.0.split(':');
        let (epoch, id, offset) = (parts.next()?, parts.next()?, parts.next()?);
        let (epoch, id, offset) = (epoch.parse::<u64>().ok()?, id.parse().ok()?, offset.parse().ok()?);
        let partition = self.partitions.get_mut(&id).filter(|partition| partition.epoch == epoch)?;
        matches!(partition.open.get(&offset), Some(OpenRecord::Leased { .. })).then_some((partition, offset))
    }

    /// Whether the record of a receipt is still this worker's.
    pub(super) fn holds(&mut self, receipt: &Receipt) -> bool {
        self.leased(receipt).is_some()
    }

    /// The record of a receipt is finished. One that is no longer this worker's is ignored.
    pub(super) fn finish(&mut self, receipt: &Receipt) {
        if let Some((partition, offset)) = self.leased(receipt) {
            partition.open.remove(&offset);
        }
    }

    /// Leases records that have waited here since before `read_before` and still have to wait
    /// after `due_after`: they are to be copied to the end of the topic.
    pub(super) fn take_waiting(&mut self, read_before: i64, due_after: i64) -> Vec<Delivery> {
        let mut taken = Vec::new();
        for (id, partition) in &mut self.partitions {
            for (offset, entry) in &mut partition.open {
                let OpenRecord::Here(read, since) = entry else { continue };
                if *since > read_before || read.message.not_before.is_none_or(|at| at <= due_after) {
                    continue;
                }
                taken.push(Delivery {
                    message: read.message.clone(),
                    receipt: Receipt(format!("{}:{id}:{offset}", partition.epoch)),
                    deliveries: 1,
                    published: read.published,
                });
                *entry = OpenRecord::Leased { ordering_key: read.message.ordering_key.clone() };
            }
        }
        taken
    }

    /// When the next record can be handed out that cannot be now.
    pub(super) fn next_due(&self) -> Option<i64> {
        let open = self.partitions.values().flat_map(|partition| partition.open.values());
        open.filter_map(|entry| match entry {
            OpenRecord::Here(read, _) => read.message.not_before,
            OpenRecord::Leased { .. } => None,
        })
        .min()
    }

    /// The positions that have moved and are not committed.
    pub(super) fn uncommitted(&self) -> Vec<(i32, i64)> {
        let moved =
            self.partitions.iter().filter(|(_, partition)| partition.position() > partition.committed);
        moved.map(|(id, partition)| (*id, partition.position())).collect()
    }

    /// These positions are committed.
    pub(super) fn committed(&mut self, positions: &[(i32, i64)]) {
        for (id, position) in positions {
            if let Some(partition) = self.partitions.get_mut(id) {
                partition.committed = partition.committed.max(*position);
            }
        }
    }

    /// Forgets partitions that belong to another worker now, with their receipts.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = i32>) {
        for id in ids {
            self.partitions.remove(&id);
        }
    }

    /// Finishes everything before an offset of a partition, with its receipts.
    pub(super) fn skip_to(&mut self, id: i32, end: i64) {
        self.epochs += 1;
        let skipped = OwnedPartition { epoch: self.epochs, open: BTreeMap::new(), end, committed: end };
        self.partitions.insert(id, skipped);
    }

    /// The position of a partition of this worker.
    pub(super) fn position(&self, id: i32) -> Option<i64> {
        self.partitions.get(&id).map(OwnedPartition::position)
    }

    pub(super) fn counts(&self, now: i64) -> PositionCounts {
        let mut counts = PositionCounts::default();
        for partition in self.partitions.values() {
            for entry in partition.open.values() {
                match entry {
                    OpenRecord::Leased { .. } => counts.leased += 1,
                    OpenRecord::Here(read, _) if read.message.not_before.is_some_and(|at| at > now) => {
                        counts.waiting += 1;
                    }
                    OpenRecord::Here(..) => counts.ready += 1,
                }
            }
            let read = u64::try_from(partition.end - partition.position()).unwrap_or(0);
            counts.ahead += read.saturating_sub(partition.open.len() as u64);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(partition: i32, offset: i64, ordering_key: Option<&str>, not_before: Option<i64>) -> ReadRecord {
        let ordering_key = ordering_key.map(str::to_owned);
        let message = Message { ordering_key, not_before, ..Message::new(offset.to_string(), "{}") };
        ReadRecord { partition, offset, message, published: None }
    }

    fn keys(deliveries: &[Delivery]) -> Vec<&str> {
        deliveries.iter().map(|delivery| delivery.message.key.as_str()).collect()
    }

    #[test]
    fn the_position_is_the_lowest_unfinished_record() {
        let mut positions = OwnedPositions::default();
        for offset in 10..14 {
            positions.add(read(0, offset, None, None), 0);
        }
        positions.add(read(0, 11, None, None), 0);
        let taken = positions.take(10, 0);
        assert_eq!(keys(&taken), ["10", "11", "12", "13"]);
        positions.finish(&taken[1].receipt);
        positions.finish(&taken[2].receipt);
        assert_eq!(positions.uncommitted(), []);
        assert_eq!(positions.counts(0), PositionCounts { leased: 2, ahead: 2, ..PositionCounts::default() });
        positions.finish(&taken[0].receipt);
        positions.finish(&taken[0].receipt);
        assert_eq!(positions.uncommitted(), [(0, 13)]);
        positions.committed(&[(0, 13)]);
        assert_eq!(positions.uncommitted(), []);
        positions.finish(&taken[3].receipt);
        assert_eq!(positions.uncommitted(), [(0, 14)]);
    }

    #[test]
    fn of_an_ordering_key_one_after_the_other() {
        let mut positions = OwnedPositions::default();
        for (offset, key) in [(0, Some("a")), (1, Some("a")), (2, Some("b")), (3, None)] {
            positions.add(read(0, offset, key, None), 0);
        }
        let first = positions.take(10, 0);
        assert_eq!(keys(&first), ["0", "2", "3"]);
        assert!(positions.take(10, 0).is_empty());
        positions.finish(&first[0].receipt);
        assert_eq!(keys(&positions.take(10, 0)), ["1"]);
    }

    #[test]
    fn what_waits_does_not_hold_up_others_and_is_copied_when_it_waits_long() {
        let mut positions = OwnedPositions::default();
        positions.add(read(0, 0, None, Some(100)), 0);
        positions.add(read(0, 1, None, None), 0);
        assert_eq!(keys(&positions.take(10, 50)), ["1"]);
        assert_eq!(positions.next_due(), Some(100));
        assert!(positions.take_waiting(-1, 0).is_empty());
        assert!(positions.take_waiting(0, 100).is_empty());
        let copied = positions.take_waiting(0, 99);
        assert_eq!(keys(&copied), ["0"]);
        assert!(positions.take(10, 200).is_empty());
        positions.finish(&copied[0].receipt);
        assert_eq!(positions.uncommitted(), [(0, 1)]);
    }

    #[test]
    fn a_receipt_ends_with_its_assignment() {
        let mut positions = OwnedPositions::default();
        positions.add(read(3, 5, None, None), 0);
        let taken = positions.take(1, 0);
        assert!(positions.holds(&taken[0].receipt));
        positions.forget([3]);
        positions.add(read(3, 5, None, None), 0);
        positions.take(1, 0);
        assert!(!positions.holds(&taken[0].receipt));
        positions.finish(&taken[0].receipt);
        assert_eq!(positions.uncommitted(), []);
        positions.skip_to(3, 9);
        assert_eq!((positions.position(3), positions.counts(0)), (Some(9), PositionCounts::default()));
        assert!(positions.take(1, 0).is_empty());
    }
}
