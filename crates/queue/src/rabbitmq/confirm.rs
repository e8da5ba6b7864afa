//! Publisher confirms: which messages of which call the server has taken over.
//!
//! The server numbers the messages of a channel and confirms the numbers, singly or all up to one.
//! A message that no queue takes is returned first and confirmed then; so a return is remembered as
//! the fault of all that wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use amqprs::callbacks::ChannelCallback;
use amqprs::channel::Channel;
use amqprs::{Ack, BasicProperties, Cancel, CloseChannel, Nack, Return};
use async_trait::async_trait;
use tokio::sync::oneshot;

/// The end of a call: all confirmed, or why not.
pub(super) type Confirmed = oneshot::Receiver<Result<(), String>>;

struct UnconfirmedCall {
    left: usize,
    fault: Option<String>,
    done: oneshot::Sender<Result<(), String>>,
}

#[derive(Default)]
struct ConfirmTable {
    /// The call of each number that is not confirmed.
    tags: BTreeMap<u64, u64>,
    calls: HashMap<u64, UnconfirmedCall>,
    last_tag: u64,
    /// Why the channel was closed.
    closed: Option<String>,
}

/// The numbers of one channel. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Confirms(Arc<Mutex<ConfirmTable>>);

impl Confirms {
    fn with<T>(&self, change: impl FnOnce(&mut ConfirmTable) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the next `count` numbers for a call. The messages must be sent in this order, before
    /// another call takes numbers.
    pub(super) fn expect(&self, count: usize) -> Confirmed {
        let (done, confirmed) = oneshot::channel();
        self.with(|table| {
            let call = table.last_tag + 1;
            if let Some(why) = &table.closed {
                let _ = done.send(Err(why.clone()));
                return;
            }
            for _ in 0..count {
                table.last_tag += 1;
                table.tags.insert(table.last_tag, call);
            }
            table.calls.insert(call, UnconfirmedCall { left: count, fault: None, done });
        });
        confirmed
    }

    fn settle(&self, tag: u64, multiple: bool, fault: Option<&str>) {
        self.with(|table| {
            let settled: Vec<u64> = if multiple {
                let later = table.tags.split_off(&tag.saturating_add(1));
                std::mem::replace(&mut table.tags, later).into_values().collect()
            } else {
                table.tags.remove(&tag).into_iter().collect()
            };
            for call in settled {
                let Some(pending) = table.calls.get_mut(&call) else { continue };
                pending.left -= 1;
                if let Some(fault) = fault {
                    pending.fault = Some(fault.to_owned());
                }
                if pending.left == 0
                    && let Some(pending) = table.calls.remove(&call)
                {
                    let _ = pending.done.send(pending.fault.map_or(Ok(()), Err));
                }
            }
        });
    }

    fn close(&self, why: &str) {
        self.with(|table| {
            table.closed.get_or_insert_with(|| why.to_owned());
            table.tags.clear();
            for (_, pending) in table.calls.drain() {
                let _ = pending.done.send(Err(pending.fault.unwrap_or_else(|| why.to_owned())));
            }
        });
    }

    /// Why the channel was closed, if it was.
    pub(super) fn closed(&self) -> Option<String> {
        self.with(|table| table.closed.clone())
    }
}

/// Listens to a channel until it ends.
pub(super) struct ChannelWatch(pub(super) Confirms);

impl Drop for ChannelWatch {
    fn drop(&mut self) {
        self.0.close("the connection was lost");
    }
}

#[async_trait]
impl ChannelCallback for ChannelWatch {
    async fn close(&mut self, _: &Channel, close: CloseChannel) -> Result<(), amqprs::error::Error> {
        self.0.close(&format!("{} {}", close.reply_code(), close.reply_text()));
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), amqprs::error::Error> {
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, _: bool) -> Result<bool, amqprs::error::Error> {
        Ok(true)
    }

    async fn publish_ack(&mut self, _: &Channel, ack: Ack) {
        self.0.settle(ack.delivery_tag(), ack.mutiple(), None);
    }

    async fn publish_nack(&mut self, _: &Channel, nack: Nack) {
        self.0.settle(nack.delivery_tag(), nack.multiple(), Some("the server did not accept a message"));
    }

    async fn publish_return(&mut self, _: &Channel, returned: Return, _: BasicProperties, _: Vec<u8>) {
        let fault = format!("no queue {}: {}", returned.routing_key(), returned.reply_text());
        self.0.with(|table| {
            for pending in table.calls.values_mut() {
                pending.fault = Some(fault.clone());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_end_when_all_their_messages_are_confirmed() {
        let confirms = Confirms::default();
        let (mut a, mut b, c) = (confirms.expect(2), confirms.expect(2), confirms.expect(1));
        confirms.settle(2, false, None);
        confirms.settle(2, false, None);
        assert!(a.try_recv().is_err(), "confirmed with one message open");
        confirms.settle(3, true, None);
        assert_eq!(a.await, Ok(Ok(())));
        assert!(b.try_recv().is_err(), "confirmed with one message open");
        confirms.settle(4, false, Some("full"));
        assert_eq!(b.await, Ok(Err("full".into())));
        confirms.close("gone");
        assert_eq!(c.await, Ok(Err("gone".into())));
        assert_eq!(confirms.expect(1).await, Ok(Err("gone".into())));
    }
}
