//! A backoff decision and a lane's admit and settle allocate nothing, whatever the verdict.
#![allow(unsafe_code)] // The counting allocator; nothing else.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::hint::Hints;
use tidegate_core::lane::{Admit, Lane, LaneConfig};
use tidegate_core::retry::{Backoff, Jitter};
use tidegate_core::{Code, Kind, Mono, Rng, Verdict};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn the_hot_paths_allocate_nothing() {
    let mut lane = Lane::new(&LaneConfig::default());
    let backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), Jitter::Decorrelated);
    let mut rng = Rng::new(5);
    let kinds = [
        Kind::Done,
        Kind::NoMatch,
        Kind::Permanent,
        Kind::Throttled { until: None },
        Kind::Throttled { until: Some(Mono::from_millis(1)) },
        Kind::Transient { until: None },
    ];
    let mut previous = Duration::ZERO;
    let mut went = 0;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for i in 0..100_000u64 {
        let now = Mono::from_millis(i * 50);
        previous = backoff.delay((i % 40) as u32, previous, &mut rng);
        if let Admit::Go(permit) = lane.admit(now) {
            went += 1;
            let kind = if i % 7 == 0 { kinds[(i / 7 % 6) as usize] } else { Kind::Done };
            let verdict = Verdict { kind, code: Code::UNKNOWN, status: None };
            lane.settle(permit, &verdict, &Hints::default(), now + Duration::from_millis(5));
        }
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(after - before, 0);
    assert!(went > 10_000, "{went}");
}
