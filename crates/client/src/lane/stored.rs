//! What lanes have left behind, for people: to be looked at, and to be forgotten.
//!
//! A lane keeps its waits in a file of the state directory, and a lane that machines share at a server.
//! Both are listed as they are there. A process that runs keeps what it knows, and writes it again.

use super::share::LaneKnowledge;
use super::states::{self, LaneStateRecord};
use std::fs;
use std::io;
use std::path::Path;
use tidegate_core::lane::LaneState;

/// What a lane has left.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLane {
    /// Its id: a hash over its host and its credential.
    pub id: String,
    /// Its host; empty if an older version did not write it down.
    pub host: String,
    /// The waits that its server asked for, as they are stored.
    pub state: LaneState,
    /// The learned rate in calls per second, where it is kept.
    pub rate: Option<f64>,
    /// The learned number of calls at once, where it is kept.
    pub in_flight: Option<u32>,
    /// Whether a process uses the lane now, where that is known.
    pub is_owned: Option<bool>,
}

impl StoredLane {
    fn of_record(id: String, record: &LaneStateRecord) -> StoredLane {
        let (host, state) = (record.host.clone(), record.state());
        StoredLane { id, host, state, rate: None, in_flight: None, is_owned: None }
    }

    /// One of a fleet; `checkpoint` is what its owner has left, if that can be read.
    pub(super) fn of_fleet(id: String, checkpoint: Option<&LaneKnowledge>, is_owned: bool) -> StoredLane {
        StoredLane {
            id,
            host: checkpoint.map(|left| left.host().to_owned()).unwrap_or_default(),
            state: checkpoint.map(LaneKnowledge::promises).unwrap_or_default(),
            rate: checkpoint.and_then(|left| left.rate),
            in_flight: checkpoint.and_then(LaneKnowledge::in_flight),
            is_owned: Some(is_owned),
        }
    }

    /// Whether it is the lane of this host, or has this id. A host may be written without its port.
    #[must_use]
    pub fn is_of(&self, host: &str) -> bool {
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        self.id == host
            || (!host.is_empty() && (self.host.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(host)))
    }
}

/// The lanes of a state directory, by their ids.
///
/// # Errors
/// When the file cannot be read, or is damaged.
pub fn stored(dir: &Path) -> Result<Vec<StoredLane>, String> {
    let lanes = states::read(dir).map_err(|why| format!("{}: {why}", dir.join(states::FILE).display()))?;
    Ok(lanes.into_iter().map(|(id, record)| StoredLane::of_record(id, &record)).collect())
}

/// Forgets lanes of a state directory: those of a host, or all. Returns those that were forgotten.
///
/// # Errors
/// When the file cannot be read or written. A damaged one is removed if all are to be forgotten.
pub fn clear_stored(dir: &Path, host: Option<&str>) -> io::Result<Vec<StoredLane>> {
    let path = dir.join(states::FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let _held = states::hold(dir)?;
    let lanes = match (states::read(dir), host) {
        (Ok(lanes), _) => lanes,
        (Err(_), None) => {
            fs::remove_file(&path)?;
            return Ok(Vec::new());
        }
        (Err(why), Some(_)) => return Err(io::Error::other(format!("{}: {why}", path.display()))),
    };
    let is_named = |lane: &StoredLane| host.is_none_or(|host| lane.is_of(host));
    let (mut cleared, mut kept) = (Vec::new(), std::collections::BTreeMap::new());
    for (id, record) in lanes {
        let lane = StoredLane::of_record(id.clone(), &record);
        if is_named(&lane) {
            cleared.push(lane);
        } else {
            kept.insert(id, record);
        }
    }
    if !cleared.is_empty() {
        states::replace(dir, kept)?;
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{Clock, LaneKey, LaneStates};
    use tidegate_core::Wall;

    #[tokio::test]
    async fn lanes_of_a_host_are_forgotten_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!((stored(dir.path()), clear_stored(dir.path(), None).unwrap()), (Ok(vec![]), vec![]));
        let states = LaneStates::open(dir.path(), Clock::starting_at(Wall::from_millis(1_000)));
        for (url, key) in
            [("https://a.test/x", ""), ("https://a.test/x", "env:A"), ("https://b.test:8443/x", "")]
        {
            let id = states.id(&LaneKey::of_url(&url.parse().unwrap(), key));
            let quota_until = Some(Wall::from_millis(900_000));
            states.put(&id, &LaneState { quota_until, ..LaneState::default() });
        }
        states.flush();
        assert_eq!(stored(dir.path()).unwrap().len(), 3);
        assert!(clear_stored(dir.path(), Some("test")).unwrap().is_empty());
        assert_eq!(clear_stored(dir.path(), Some("A.test")).unwrap().len(), 2);
        let left = stored(dir.path()).unwrap();
        assert_eq!(left.iter().map(|lane| lane.host.as_str()).collect::<Vec<_>>(), ["b.test:8443"]);
        assert!(left[0].is_of("b.test") && left[0].is_of(&left[0].id) && !left[0].is_of(""));
        assert_eq!(clear_stored(dir.path(), None).unwrap().len(), 1);
        fs::write(dir.path().join(states::FILE), "{").unwrap();
        assert!(stored(dir.path()).is_err() && clear_stored(dir.path(), Some("a.test")).is_err());
        clear_stored(dir.path(), None).unwrap();
        assert_eq!(stored(dir.path()), Ok(vec![]));
    }
}
