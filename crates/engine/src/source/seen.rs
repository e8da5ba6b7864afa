//! Which features have been received, so that none comes twice.
//!
//! Most identifiers are a name and a number (`parcels.17`, `17`), and most numbers come in
//! sequence. So numbers are kept as ranges: a million of them in order take one entry, and the
//! whole set fits into a position. Other identifiers are kept as 16 bytes of their SHA-256.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};

/// Different names before numbers; further ones are kept by hash.
const NAMES_MAX: usize = 64;
/// A position carries at most so many ranges.
const CARRIED_MAX: usize = 4096;

/// A set of identifiers.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    numbered: BTreeMap<Box<str>, Ranges>,
    hashed: HashSet<[u8; 16]>,
}

/// Ranges of numbers, first to last, that do not touch.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

/// A set that is small enough to travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried(Vec<(String, Vec<(u64, u64)>)>);

impl Ranges {
    fn insert(&mut self, n: u64) -> bool {
        let before = self.0.range(..=n).next_back().map(|(first, last)| (*first, *last));
        let mut first = n;
        if let Some((start, last)) = before {
            if n <= last {
                return false;
            }
            if last.checked_add(1) == Some(n) {
                first = start;
            }
        }
        let after = n.checked_add(1).and_then(|next| self.0.remove(&next));
        self.0.insert(first, after.unwrap_or(n));
        true
    }

    fn contains(&self, n: u64) -> bool {
        self.0.range(..=n).next_back().is_some_and(|(_, last)| n <= *last)
    }
}

/// The name and the number of an identifier, if writing them again gives the same text.
fn split(id: &str) -> Option<(&str, u64)> {
    let id = id.strip_prefix('"').and_then(|id| id.strip_suffix('"')).unwrap_or(id);
    let digits = id.bytes().rev().take_while(u8::is_ascii_digit).count().min(18);
    let (name, number) = id.split_at(id.len() - digits);
    if number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((name, number.parse().ok()?))
}

fn hash(id: &str) -> [u8; 16] {
    let whole: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    whole.first_chunk().copied().unwrap_or_default()
}

impl Seen {
    /// Adds one; whether it is new.
    pub(super) fn insert(&mut self, id: &str) -> bool {
        if let Some((name, number)) = split(id) {
            if let Some(ranges) = self.numbered.get_mut(name) {
                return ranges.insert(number);
            }
            if self.numbered.len() < NAMES_MAX {
                return self.numbered.entry(name.into()).or_default().insert(number);
            }
        }
        self.hashed.insert(hash(id))
    }

    /// Whether it was added.
    pub(super) fn contains(&self, id: &str) -> bool {
        match split(id).and_then(|(name, number)| Some((self.numbered.get(name)?, number))) {
            Some((ranges, number)) => ranges.contains(number),
            None => self.hashed.contains(&hash(id)),
        }
    }

    /// Adds all of another set.
    pub(super) fn absorb(&mut self, other: Seen) {
        for (name, ranges) in other.numbered {
            let into = self.numbered.entry(name).or_default();
            for n in ranges.0.into_iter().flat_map(|(first, last)| first..=last) {
                into.insert(n);
            }
        }
        self.hashed.extend(other.hashed);
    }

    /// The set for a position, if it is small enough.
    pub(super) fn carry(&self) -> Option<Carried> {
        let ranges: usize = self.numbered.values().map(|r| r.0.len()).sum();
        (self.hashed.is_empty() && ranges <= CARRIED_MAX).then(|| {
            let all = self.numbered.iter();
            Carried(
                all.map(|(name, r)| (name.to_string(), r.0.iter().map(|(a, b)| (*a, *b)).collect()))
                    .collect(),
            )
        })
    }
}

impl From<Carried> for Seen {
    fn from(carried: Carried) -> Seen {
        let all = carried.0.into_iter();
        let numbered =
            all.map(|(name, ranges)| (name.into(), Ranges(ranges.into_iter().collect()))).collect();
        Seen { numbered, hashed: HashSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_any_order_become_ranges() {
        let mut seen = Seen::default();
        for n in [3, 1, 2, 9, 7, 8, 5] {
            assert!(seen.insert(&format!("\"p.{n}\"")), "{n}");
        }
        for n in [1, 2, 3, 5, 7, 8, 9] {
            assert!(!seen.insert(&format!("\"p.{n}\"")), "{n}");
            assert!(seen.contains(&format!("\"p.{n}\"")));
        }
        assert!(!seen.contains("\"p.4\"") && !seen.contains("4") && !seen.contains("\"q.1\""));
        let carried = seen.carry().unwrap();
        assert_eq!(carried, Carried(vec![("p.".into(), vec![(1, 3), (5, 5), (7, 9)])]));
        let mut again = Seen::from(carried);
        assert!(!again.insert("\"p.8\"") && again.insert("\"p.6\""));
    }

    #[test]
    fn what_is_no_number_is_kept_too() {
        let mut seen = Seen::default();
        for id in ["\"a\"", "\"b007\"", "\"b7\"", "\"ffffffffffffffffffff\"", "\"99999999999999999999999\""] {
            assert!(seen.insert(id) && !seen.insert(id) && seen.contains(id), "{id}");
        }
        assert!(seen.carry().is_none());
        assert!(seen.insert("18446744073709551615") && !seen.insert("18446744073709551615"));
    }
}
