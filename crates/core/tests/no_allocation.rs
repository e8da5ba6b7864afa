//! A backoff decision, the next step of a call, and admit and settle of a lane do not allocate,
//! for every verdict and with or without hints.

mod counting;

use counting::allocations;
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::hint::{Hints, Quota};
use tidegate_core::lane::{Admit, Lane, LaneConfig};
use tidegate_core::retry::{Backoff, Jitter};
use tidegate_core::{Code, Mono, Rng, Verdict, VerdictKind};

/// The hints of a response: none, or a quota.
fn told() -> [Hints; 2] {
    let quota = Quota {
        limit: Some(100),
        window: Some(Duration::from_secs(5)),
        remaining: Some(40),
        reset: Some(Duration::from_secs(3)),
        reset_step: Duration::from_secs(1),
    };
    [Hints::default(), Hints { quotas: [Some(quota), None, None, None], ..Hints::default() }]
}

#[test]
fn the_hot_paths_allocate_nothing() {
    let policy = CallPolicy { history: false, ..CallPolicy::default() };
    let backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), Jitter::Decorrelated);
    let mut rng = Rng::new(5);
    for hints in told() {
        let mut lane = Lane::new(&LaneConfig::default());
        let mut previous = Duration::ZERO;
        let mut went = [0u32; 8];
        let before = allocations();
        for i in 0..300_000u64 {
            let now = Mono::from_millis(i * 50);
            previous = backoff.delay((i % 40) as u32, previous, &mut rng);
            lane.start(now);
            let Admit::Go(permit) = lane.admit(now) else { continue };
            let kinds = [
                VerdictKind::Done,
                VerdictKind::NoMatch,
                VerdictKind::Permanent,
                VerdictKind::Throttled { until: None },
                VerdictKind::Throttled { until: Some(now + Duration::from_millis(40)) },
                VerdictKind::Transient { until: None },
                VerdictKind::QuotaSpent { until: Some(now + Duration::from_millis(200)) },
            ];
            let gone: u32 = went.iter().sum();
            let which = if gone.is_multiple_of(9) { (gone / 9 % 8) as usize } else { 0 };
            went[which] += 1;
            let Some(&kind) = kinds.get(which) else {
                lane.release(permit, now + Duration::from_millis(5));
                continue;
            };
            let verdict = Verdict { kind, code: Code::UNKNOWN, status: None };
            lane.settle(permit, &verdict, &hints, now + Duration::from_millis(5));
            let mut call = Call::new();
            call.send(&policy, now);
            let _ = lane.next(&mut call, &policy, &verdict, now, &mut rng);
        }
        assert_eq!(allocations() - before, 0, "{hints:?}");
        assert!(went.iter().all(|&n| n > 10), "every way must have been gone: {went:?}");
    }
}
