//! Equal questions are asked once.
//!
//! While a question is out, equal ones join it and share its answer. An answer stays known for a
//! while after it has come, so that a row that was looked up in the cache just before the answer
//! was stored there does not ask again. Memory is bounded by two generations: when the young one
//! is full, it becomes the old one and the old one is forgotten.

use super::answer::Finished;
use crate::cache::CacheKey;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// More than the rows that can be between being looked up in the cache and being asked.
const GENERATION: usize = 8 * 1024;

/// A key is a hash already: its beginning serves.
#[derive(Default)]
pub(super) struct Beginning(u64);

impl Hasher for Beginning {
    fn write(&mut self, bytes: &[u8]) {
        // The key comes last, behind its length.
        self.0 = bytes.first_chunk().map_or(self.0, |first| u64::from_le_bytes(*first));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type ByKey<T> = HashMap<CacheKey, T, BuildHasherDefault<Beginning>>;

/// Answers that are not known any more. There are many: whoever holds the questions for others lets
/// go of them first.
pub(super) type Forgotten = ByKey<Arc<Finished>>;

/// What a question finds.
#[derive(Debug)]
pub(super) enum Known<T> {
    /// Nobody asked: it is yours to ask, and to answer.
    Ask(T),
    /// Somebody asks: you will be answered with them.
    Joined,
    /// It has been answered.
    Answered(T, Arc<Finished>),
}

/// The questions that are out, and the answers of late.
#[derive(Debug)]
pub(super) struct Questions<T> {
    out: ByKey<Vec<T>>,
    young: ByKey<Arc<Finished>>,
    old: ByKey<Arc<Finished>>,
}

impl<T> Default for Questions<T> {
    fn default() -> Questions<T> {
        Questions { out: ByKey::default(), young: ByKey::default(), old: ByKey::default() }
    }
}

impl<T> Questions<T> {
    /// A question comes.
    pub(super) fn come(&mut self, key: CacheKey, who: T) -> Known<T> {
        match self.out.entry(key) {
            Entry::Occupied(mut joined) => {
                joined.get_mut().push(who);
                Known::Joined
            }
            Entry::Vacant(out) => match self.young.get(&key).or_else(|| self.old.get(&key)) {
                Some(finished) => Known::Answered(who, Arc::clone(finished)),
                None => {
                    out.insert(Vec::new());
                    Known::Ask(who)
                }
            },
        }
    }

    /// Its answer comes: who else waits for it?
    pub(super) fn answer(&mut self, key: CacheKey, finished: &Arc<Finished>) -> (Vec<T>, Option<Forgotten>) {
        let forgotten = (self.young.len() >= GENERATION).then(|| {
            let full = std::mem::replace(
                &mut self.young,
                ByKey::with_capacity_and_hasher(GENERATION, <_>::default()),
            );
            std::mem::replace(&mut self.old, full)
        });
        self.young.insert(key, Arc::clone(finished));
        (self.out.remove(&key).unwrap_or_default(), forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Code;

    #[test]
    fn equal_questions_are_asked_once() {
        let mut q = Questions::default();
        let key = [1; 32];
        assert!(matches!(q.come(key, 1), Known::Ask(1)));
        assert!(matches!(q.come(key, 2), Known::Joined));
        assert!(matches!(q.come([2; 32], 3), Known::Ask(3)));
        let finished = Arc::new(Finished::failed(Code::UNKNOWN, String::new()));
        assert_eq!(q.answer(key, &finished).0, [2]);
        assert!(matches!(q.come(key, 4), Known::Answered(4, _)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut q = Questions::<()>::default();
        let finished = Arc::new(Finished::failed(Code::UNKNOWN, String::new()));
        for n in 0..200_000u64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_le_bytes());
            q.come(key, ());
            q.answer(key, &finished);
        }
        assert!(q.young.len() + q.old.len() <= 2 * GENERATION);
        assert!(q.out.is_empty());
    }
}
