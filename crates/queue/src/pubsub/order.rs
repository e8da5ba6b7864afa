//! One message of an ordering key at a time.
//!
//! Pub/Sub delivers the messages of a key in order, but several of them in one answer, and workers
//! would process them at the same time. So all but the first are kept here until it is
//! acknowledged. Their leases are extended with that of the first. If it is returned, they are
//! returned with it, and the server delivers all of them in order again.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::message::Delivery;

/// The messages of each ordering key that this worker holds.
#[derive(Default)]
pub(super) struct OrderGate {
    lines: HashMap<String, KeyLine>,
    /// The key of each message that is with the caller.
    keys: HashMap<String, String>,
}

/// The messages of one key.
struct KeyLine {
    /// The message that is with the caller, and the end of its lease.
    working: Option<(String, Instant)>,
    /// Those behind it.
    behind: VecDeque<(Delivery, Instant)>,
}

impl OrderGate {
    /// Takes a message in. Returns it if it may be delivered now.
    pub(super) fn admit(&mut self, delivery: Delivery, now: Instant, until: Instant) -> Option<Delivery> {
        let Some(key) = delivery.message.ordering_key.clone() else { return Some(delivery) };
        let line = self
            .lines
            .entry(key.clone())
            .or_insert_with(|| KeyLine { working: None, behind: VecDeque::new() });
        // What was held too long is delivered again by the server.
        line.behind.retain(|(_, until)| *until > now);
        if line.working.as_ref().is_some_and(|(_, until)| *until > now) || !line.behind.is_empty() {
            line.behind.push_back((delivery, until));
            return None;
        }
        if let Some((former, _)) = line.working.replace((delivery.receipt.0.clone(), until)) {
            self.keys.remove(&former);
        }
        self.keys.insert(delivery.receipt.0.clone(), key);
        Some(delivery)
    }

    /// The next messages of keys whose message was acknowledged, or whose lease has ended.
    pub(super) fn free(&mut self, most: usize, now: Instant) -> Vec<Delivery> {
        let mut free = Vec::new();
        for (key, line) in &mut self.lines {
            line.behind.retain(|(_, until)| *until > now);
            if free.len() >= most || line.working.as_ref().is_some_and(|(_, until)| *until > now) {
                continue;
            }
            let next = line.behind.pop_front();
            let former = std::mem::replace(
                &mut line.working,
                next.as_ref().map(|(delivery, until)| (delivery.receipt.0.clone(), *until)),
            );
            if let Some((former, _)) = former {
                self.keys.remove(&former);
            }
            if let Some((delivery, _)) = next {
                self.keys.insert(delivery.receipt.0.clone(), key.clone());
                free.push(delivery);
            }
        }
        self.lines.retain(|_, line| line.working.is_some() || !line.behind.is_empty());
        free
    }

    /// The number of messages that are kept.
    pub(super) fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.behind.len()).sum()
    }

    /// Extends the leases of these messages and of those behind them, whose receipts are returned.
    pub(super) fn extend(&mut self, receipts: &[String], until: Instant) -> Vec<String> {
        let mut behind = Vec::new();
        for receipt in receipts {
            let Some(line) = self.keys.get(receipt).and_then(|key| self.lines.get_mut(key)) else { continue };
            line.working = Some((receipt.clone(), until));
            for (delivery, end) in &mut line.behind {
                *end = until;
                behind.push(delivery.receipt.0.clone());
            }
        }
        behind
    }

    /// These messages are acknowledged. Returns whether others may be delivered now.
    pub(super) fn acknowledge(&mut self, receipts: &[String]) -> bool {
        let mut any = false;
        for receipt in receipts {
            let Some(line) = self.keys.remove(receipt).and_then(|key| self.lines.get_mut(&key)) else {
                continue;
            };
            line.working = None;
            any |= !line.behind.is_empty();
        }
        any
    }

    /// These messages are returned. Returns the receipts of those behind them, which must be returned
    /// as well.
    pub(super) fn release(&mut self, receipts: &[String]) -> Vec<String> {
        let mut behind = Vec::new();
        for receipt in receipts {
            let Some(line) = self.keys.remove(receipt).and_then(|key| self.lines.remove(&key)) else {
                continue;
            };
            behind.extend(line.behind.into_iter().map(|(delivery, _)| delivery.receipt.0));
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Receipt};
    use std::time::Duration;

    fn ordered(n: u32, key: Option<&str>) -> Delivery {
        let message = Message { ordering_key: key.map(str::to_owned), ..Message::new(format!("m{n}"), "") };
        Delivery { message, receipt: Receipt(format!("r{n}")), deliveries: 1, published: None }
    }

    fn receipts(deliveries: &[Delivery]) -> Vec<String> {
        deliveries.iter().map(|one| one.receipt.0.clone()).collect()
    }

    #[test]
    fn one_message_of_a_key_at_a_time() {
        let (mut gate, now) = (OrderGate::default(), Instant::now());
        let until = now + Duration::from_secs(10);
        let admitted: Vec<Delivery> =
            [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, None), (5, Some("a"))]
                .into_iter()
                .filter_map(|(n, key)| gate.admit(ordered(n, key), now, until))
                .collect();
        assert_eq!(receipts(&admitted), ["r1", "r3", "r4"]);
        assert_eq!((gate.waiting(), gate.free(9, now).len()), (2, 0));
        assert_eq!(gate.extend(&["r1".into(), "r4".into()], until), ["r2", "r5"]);
        assert!(!gate.acknowledge(&["r3".into(), "r4".into()]));
        assert!(gate.acknowledge(&["r1".into()]));
        assert_eq!(receipts(&gate.free(9, now)), ["r2"]);
        assert_eq!(gate.release(&["r2".into()]), ["r5"]);
        assert_eq!((gate.waiting(), gate.lines.len(), gate.keys.len()), (0, 0, 0));
    }

    #[test]
    fn what_was_kept_too_long_is_left_to_the_server() {
        let (mut gate, now) = (OrderGate::default(), Instant::now());
        let until = now + Duration::from_secs(10);
        assert!(gate.admit(ordered(1, Some("a")), now, until).is_some());
        assert!(gate.admit(ordered(2, Some("a")), now, until).is_none());
        assert_eq!(gate.free(9, until).len(), 0);
        // Delivered again, both are new.
        let later = until + Duration::from_secs(10);
        assert!(gate.admit(ordered(11, Some("a")), until, later).is_some());
        assert!(gate.admit(ordered(12, Some("a")), until, later).is_none());
        // The late acknowledgement of the first lease frees nothing.
        assert!(!gate.acknowledge(&["r1".into()]));
        assert!(gate.acknowledge(&["r11".into()]));
        assert_eq!(receipts(&gate.free(9, until)), ["r12"]);
        assert_eq!(gate.keys.len(), 1);
    }
}
