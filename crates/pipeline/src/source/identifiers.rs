//! Which features have been received, so that none comes twice.
//!
//! Most identifiers are a name and a number (`parcels.17`, `17`), and most numbers come in
//! sequence. So numbers are kept as ranges: a million of them in order take one entry, and the
//! whole set fits into a position. Other identifiers, and numbers that would need too many ranges,
//! are kept as marks: 16 bytes of their SHA-256. Marks do not fit into a position; whoever keeps
//! the features keeps them, and brings them back ([`super::Pager::remember`]).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};

/// Different names before numbers; further ones are kept by hash.
const NAMES_MAX: usize = 64;
/// A position carries at most so many ranges.
const CARRIED_MAX: usize = 4096;

/// What stands for an identifier that no range holds.
pub type IdentifierHash = [u8; 16];

/// A set of identifiers.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentifierSet {
    numbered: BTreeMap<Box<str>, Ranges>,
    hashed: HashSet<IdentifierHash>,
    /// Ranges in all.
    ranges: usize,
}

/// What became of an identifier that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It was there.
    Known,
    /// It is new, and a position carries it.
    New,
    /// It is new, and only this mark stands for it.
    Marked(IdentifierHash),
}

/// Ranges of numbers, first to last, that do not touch.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

/// A set that is small enough to travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried(Vec<(String, Vec<(u64, u64)>)>);

impl Ranges {
    /// Whether a number is new, or would be if there were room for it in these ranges.
    fn insert(&mut self, n: u64, room: bool) -> Option<bool> {
        let before = self.0.range(..=n).next_back().map(|(first, last)| (*first, *last));
        let mut first = n;
        if let Some((start, last)) = before {
            if n <= last {
                return Some(false);
            }
            if last.checked_add(1) == Some(n) {
                first = start;
            }
        }
        let next = n.checked_add(1).filter(|next| self.0.contains_key(next));
        if !room && first == n && next.is_none() {
            return None;
        }
        let after = next.and_then(|next| self.0.remove(&next));
        self.0.insert(first, after.unwrap_or(n));
        Some(true)
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

fn mark(id: &str) -> IdentifierHash {
    let whole: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    whole.first_chunk().copied().unwrap_or_default()
}

impl IdentifierSet {
    /// Adds one.
    pub(super) fn insert(&mut self, id: &str) -> Added {
        if !self.hashed.is_empty() && self.hashed.contains(&mark(id)) {
            return Added::Known;
        }
        if let Some((name, number)) = split(id) {
            let room = self.ranges < CARRIED_MAX;
            if !self.numbered.contains_key(name) && self.numbered.len() < NAMES_MAX {
                self.numbered.insert(name.into(), Ranges::default());
            }
            if let Some(ranges) = self.numbered.get_mut(name) {
                let before = ranges.0.len();
                if let Some(new) = ranges.insert(number, room) {
                    self.ranges = self.ranges + ranges.0.len() - before;
                    return if new { Added::New } else { Added::Known };
                }
            }
        }
        let mark = mark(id);
        self.hashed.insert(mark);
        Added::Marked(mark)
    }

    /// Adds what a mark stands for.
    pub(super) fn insert_mark(&mut self, mark: IdentifierHash) {
        self.hashed.insert(mark);
    }

    /// Whether it was added.
    pub(super) fn contains(&self, id: &str) -> bool {
        let numbered = split(id).and_then(|(name, number)| Some(self.numbered.get(name)?.contains(number)));
        numbered == Some(true) || (!self.hashed.is_empty() && self.hashed.contains(&mark(id)))
    }

    /// Adds all of another set.
    pub(super) fn absorb(&mut self, other: IdentifierSet) {
        for (name, ranges) in other.numbered {
            let into = self.numbered.entry(name).or_default();
            let before = into.0.len();
            for n in ranges.0.into_iter().flat_map(|(first, last)| first..=last) {
                into.insert(n, true);
            }
            self.ranges = self.ranges + into.0.len() - before;
        }
        self.hashed.extend(other.hashed);
    }

    /// What of the set travels with a position: all but the marks.
    pub(super) fn carry(&self) -> Carried {
        let all = self.numbered.iter();
        Carried(
            all.map(|(name, r)| (name.to_string(), r.0.iter().map(|(a, b)| (*a, *b)).collect())).collect(),
        )
    }

    /// Whether marks stand for some of them.
    pub(super) fn has_marks(&self) -> bool {
        !self.hashed.is_empty()
    }
}

impl From<Carried> for IdentifierSet {
    fn from(carried: Carried) -> IdentifierSet {
        let all = carried.0.into_iter();
        let numbered: BTreeMap<Box<str>, Ranges> =
            all.map(|(name, ranges)| (name.into(), Ranges(ranges.into_iter().collect()))).collect();
        let ranges = numbered.values().map(|ranges| ranges.0.len()).sum();
        IdentifierSet { numbered, hashed: HashSet::new(), ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_any_order_become_ranges() {
        let mut seen = IdentifierSet::default();
        for n in [3, 1, 2, 9, 7, 8, 5] {
            assert_eq!(seen.insert(&format!("\"p.{n}\"")), Added::New, "{n}");
        }
        for n in [1, 2, 3, 5, 7, 8, 9] {
            assert_eq!(seen.insert(&format!("\"p.{n}\"")), Added::Known, "{n}");
            assert!(seen.contains(&format!("\"p.{n}\"")));
        }
        assert!(!seen.contains("\"p.4\"") && !seen.contains("4") && !seen.contains("\"q.1\""));
        let carried = seen.carry();
        assert_eq!(carried, Carried(vec![("p.".into(), vec![(1, 3), (5, 5), (7, 9)])]));
        let mut again = IdentifierSet::from(carried);
        assert_eq!((again.insert("\"p.8\""), again.insert("\"p.6\"")), (Added::Known, Added::New));
        assert_eq!((again.ranges, again.has_marks()), (2, false));
    }

    #[test]
    fn what_is_no_number_is_kept_by_its_mark() {
        let mut seen = IdentifierSet::default();
        let mut again = IdentifierSet::default();
        for id in ["\"a\"", "\"b007\"", "\"ffffffffffffffffffff\"", "\"99999999999999999999999\""] {
            match seen.insert(id) {
                Added::Marked(mark) => again.insert_mark(mark),
                other => assert_eq!(other, Added::New, "{id}"),
            }
            assert!(seen.insert(id) == Added::Known && seen.contains(id), "{id}");
        }
        assert!(seen.has_marks() && again.contains("\"a\"") && again.insert("\"b007\"") == Added::Known);
        assert_eq!(seen.insert("\"b7\""), Added::New);
        assert_eq!(seen.insert("18446744073709551615"), Added::New);
        assert_eq!(seen.insert("18446744073709551615"), Added::Known);
    }

    #[test]
    fn too_many_ranges_become_marks_and_the_position_stays_small() {
        let mut seen = IdentifierSet::default();
        let ids = || (0..CARRIED_MAX as u64 + 100).map(|n| (n * 3).to_string());
        let marks: Vec<IdentifierHash> = ids()
            .filter_map(|id| match seen.insert(&id) {
                Added::Marked(mark) => Some(mark),
                _ => None,
            })
            .collect();
        assert_eq!(marks.len(), 100);
        let mut again = IdentifierSet::from(seen.carry());
        marks.into_iter().for_each(|mark| again.insert_mark(mark));
        assert!(ids().all(|id| again.insert(&id) == Added::Known && seen.insert(&id) == Added::Known));
        // What lies beside a range still widens it.
        assert_eq!(again.insert("1"), Added::New);
        assert_eq!((again.insert("2"), again.ranges), (Added::New, CARRIED_MAX - 1));
    }
}
