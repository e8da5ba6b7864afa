//! Unpacked blocks that the next window is likely to ask for again, oldest out first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use crate::sample::SampleData;

/// The picture and the block.
type BlockKey = (usize, u64);

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

    pub(crate) fn get(&self, key: BlockKey) -> Option<Arc<SampleData>> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.blocks.get(&key).cloned()
    }

    pub(crate) fn put(&self, key: BlockKey, block: &Arc<SampleData>) {
        let len = block.bytes().len();
        if len > self.len_max {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.blocks.insert(key, block.clone()).is_none() {
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
        for at in 0..3 {
            cache.put((0, at), &block);
        }
        assert!(cache.get((0, 0)).is_none() && cache.get((0, 1)).is_some() && cache.get((0, 2)).is_some());
        cache.put((0, 9), &Arc::new(SampleData::U8(vec![0; 101])));
        assert!(cache.get((0, 9)).is_none() && cache.get((0, 2)).is_some());
    }
}
