//! Unpacked blocks that the next window is likely to ask for again, oldest out first.
//!
//! A block is known by its place in the file and not by its number: a file may name one block for
//! thousands of numbers, and it is unpacked once.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::sample::SampleData;

/// A block as it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) picture: usize,
    pub(crate) place: Range<u64>,
    /// The last strip of a picture has fewer rows than others.
    pub(crate) rows: u32,
}

#[derive(Default)]
struct CacheState {
    blocks: HashMap<BlockKey, Arc<SampleData>>,
    order: VecDeque<BlockKey>,
    len: usize,
}

/// A bounded cache.
pub(crate) struct BlockCache {
    state: Mutex<CacheState>,
    len_max: usize,
}

impl BlockCache {
    pub(crate) fn new(len_max: usize) -> BlockCache {
        BlockCache { state: Mutex::default(), len_max }
    }

    pub(crate) fn get(&self, key: &BlockKey) -> Option<Arc<SampleData>> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.blocks.get(key).cloned()
    }

    pub(crate) fn put(&self, key: BlockKey, block: &Arc<SampleData>) {
        let len = block.bytes().len();
        if len > self.len_max {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.blocks.insert(key.clone(), block.clone()).is_none() {
            state.order.push_back(key);
            state.len += len;
        }
        while state.len > self.len_max {
            let Some(oldest) = state.order.pop_front() else { break };
            if let Some(block) = state.blocks.remove(&oldest) {
                state.len -= block.bytes().len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_when_it_is_full() {
        let cache = BlockCache::new(100);
        let block = Arc::new(SampleData::U8(vec![0; 40]));
        let key = |at: u64| BlockKey { picture: 0, place: at..at + 1, rows: 1 };
        for at in 0..3 {
            cache.put(key(at), &block);
        }
        let has = |at: u64| cache.get(&key(at)).is_some();
        assert!(!has(0) && has(1) && has(2));
        cache.put(key(9), &Arc::new(SampleData::U8(vec![0; 101])));
        assert!(!has(9) && has(2));
    }
}
