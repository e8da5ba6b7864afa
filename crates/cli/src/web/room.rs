//! Bounds the connections of the web server, for each client and in all.
//!
//! A client that opens connections and sends nothing must not keep others out. Turning new
//! connections away would do just that, so a new one displaces the oldest of those that wait for
//! their client: first of the same client, then of the client that has the most. Somebody who sends
//! a whole request at once is answered long before his turn to be displaced comes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The most connections of one client.
const CLIENT_MAX: usize = 64;
/// The most connections in all.
const ALL_MAX: usize = 256;

/// An open connection.
struct Guest {
    client: IpAddr,
    /// Whether we wait for the client, not the client for us.
    idle: bool,
    leave: Arc<Notify>,
}

/// The connections that are open, by age.
#[derive(Default)]
pub(super) struct ConnectionRoom {
    next: u64,
    guests: BTreeMap<u64, Guest>,
}

/// The place of a connection; given up on drop.
pub(super) struct ConnectionPlace {
    room: Arc<Mutex<ConnectionRoom>>,
    number: u64,
    /// Signalled when the connection is displaced.
    pub(super) leave: Arc<Notify>,
}

impl ConnectionRoom {
    /// A place for a connection of this client. `None` if nobody can be displaced for it.
    pub(super) fn enter(room: &Arc<Mutex<ConnectionRoom>>, client: IpAddr) -> Option<ConnectionPlace> {
        let mut inner = room.lock().unwrap_or_else(PoisonError::into_inner);
        let crowd = inner.crowd(client);
        if let Some(crowd) = crowd {
            let oldest = inner.guests.iter().find(|(_, guest)| guest.idle && guest.client == crowd);
            let number = oldest.map(|(number, _)| *number)?;
            inner.guests.remove(&number)?.leave.notify_one();
        }
        let (number, leave) = (inner.next, Arc::new(Notify::new()));
        inner.next += 1;
        inner.guests.insert(number, Guest { client, idle: true, leave: Arc::clone(&leave) });
        Some(ConnectionPlace { room: Arc::clone(room), number, leave })
    }

    /// The client that must give up a connection before this one can have another.
    fn crowd(&self, client: IpAddr) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for guest in self.guests.values() {
            *counts.entry(guest.client).or_default() += 1;
        }
        if counts.get(&client).is_some_and(|count| *count >= CLIENT_MAX) {
            return Some(client);
        }
        if self.guests.len() < ALL_MAX {
            return None;
        }
        // The first of the oldest among equals.
        let busiest = counts.values().copied().max()?;
        self.guests.values().map(|guest| guest.client).find(|client| counts.get(client) == Some(&busiest))
    }
}

impl ConnectionPlace {
    /// Whether the connection may be displaced: not while its request is answered.
    pub(super) fn idle(&self, idle: bool) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guest) = room.guests.get_mut(&self.number) {
            guest.idle = idle;
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, n])
    }

    #[test]
    fn a_client_displaces_its_own_oldest_connection_and_nobody_else() {
        let room = Arc::default();
        let other = ConnectionRoom::enter(&room, client(2)).unwrap();
        let mut own: Vec<ConnectionPlace> =
            (0..CLIENT_MAX).map(|_| ConnectionRoom::enter(&room, client(1)).unwrap()).collect();
        own[0].idle(false);
        own.push(ConnectionRoom::enter(&room, client(1)).unwrap());
        let numbers: Vec<u64> = room.lock().unwrap().guests.keys().copied().collect();
        assert_eq!(numbers.len(), CLIENT_MAX + 1);
        assert!(numbers.contains(&other.number) && numbers.contains(&own[0].number));
        assert!(!numbers.contains(&own[1].number), "the oldest that waits was displaced");
        drop(own);
        assert_eq!(room.lock().unwrap().guests.len(), 1);
    }

    #[test]
    fn a_full_room_is_relieved_by_the_client_with_the_most() {
        let room = Arc::default();
        let crowd = 10;
        let mut places: Vec<ConnectionPlace> =
            (0..crowd).map(|n| ConnectionRoom::enter(&room, client(200 + n % 2)).unwrap()).collect();
        places.push(ConnectionRoom::enter(&room, client(201)).unwrap());
        for n in 0..u8::MAX {
            if room.lock().unwrap().guests.len() == ALL_MAX {
                break;
            }
            places.push(ConnectionRoom::enter(&room, IpAddr::from([127, 0, 1, n])).unwrap());
        }
        let newcomer = ConnectionRoom::enter(&room, client(1)).unwrap();
        let room = room.lock().unwrap();
        assert_eq!(room.guests.len(), ALL_MAX);
        assert!(room.guests.contains_key(&newcomer.number));
        assert!(!room.guests.contains_key(&places[1].number), "the oldest of 127.0.0.201");
    }

    #[test]
    fn whoever_is_being_answered_is_not_displaced() {
        let room = Arc::default();
        let own: Vec<ConnectionPlace> =
            (0..CLIENT_MAX).map(|_| ConnectionRoom::enter(&room, client(1)).unwrap()).collect();
        own.iter().for_each(|place| place.idle(false));
        assert!(ConnectionRoom::enter(&room, client(1)).is_none());
        assert!(ConnectionRoom::enter(&room, client(2)).is_some());
    }
}
