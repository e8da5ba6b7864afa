use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_core::breaker::BreakerConfig;
use tidegate_core::hint::Hints;
use tidegate_core::limit::LimitConfig;
use tidegate_core::{Code, Verdict, VerdictKind};

fn lane_of(limit: LimitConfig) -> LaneHandle {
    let config = LaneConfig { limit, ..LaneConfig::default() };
    LaneHandle::new(LaneKey::of_prefix("mem:", ""), &config, Clock::system())
}

fn wide(in_flight_max: u32) -> LaneHandle {
    lane_of(LimitConfig { in_flight_max, learn: false, ..LimitConfig::default() })
}

fn paced(rate: f64) -> LaneHandle {
    lane_of(LimitConfig {
        rate_max: Some(rate),
        in_flight_max: 1_000_000,
        learn: false,
        ..LimitConfig::default()
    })
}

fn done(permit: LanePermit) {
    permit.settle(&Verdict::DONE, &Hints::default(), |_, _| ());
}

fn ms(lane: &LaneHandle) -> u64 {
    lane.clock().mono().nanos() / 1_000_000
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    let lane = wide(1);
    let first = lane.acquire(None).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..100 {
        let (lane, order) = (lane.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let permit = lane.acquire(None).await.unwrap();
            order.lock().unwrap().push(n);
            done(permit);
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(lane.snapshot().waiting, 100);
    done(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
    let counts = lane.snapshot().counts;
    assert_eq!((counts.sent, counts.settled, counts.waited, counts.released), (101, 101, 100, 0));
}

/// Exact timers need I/O, and a lane of one process alone may not have it.
#[test]
fn a_lane_waits_on_a_runtime_without_io() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let lane = paced(200.0);
        for _ in 0..3 {
            done(lane.acquire(None).await.unwrap());
        }
        assert!(lane.clock().mono() >= Mono::from_millis(10));
    });
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_has_brought_enough_is_told_when_none_is_left() {
    let lane = wide(1);
    let first = lane.acquire(None).await.unwrap();
    lane.wants(2).await;
    let waiting = [lane.clone(), lane.clone()]
        .map(|lane| tokio::spawn(async move { lane.acquire(None).await.unwrap() }));
    tokio::task::yield_now().await;
    assert_eq!(lane.snapshot().waiting, 2);
    let driver = tokio::spawn({
        let lane = lane.clone();
        async move { lane.wants(2).await }
    });
    tokio::task::yield_now().await;
    let [second, third] = waiting;
    done(first);
    let second = second.await.unwrap();
    assert!(!driver.is_finished(), "one still waits");
    done(second);
    driver.await.unwrap();
    done(third.await.unwrap());
    assert_eq!(lane.snapshot().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_brings_as_many_as_can_be_out() {
    let lane = wide(32);
    let coming = AtomicU32::new(0);
    let mut out = Vec::new();
    for _ in 0..31 {
        lane.has_room(&coming).await;
        out.push(lane.acquire(None).await.unwrap());
    }
    coming.store(1, Ordering::Relaxed);
    let driver = tokio::spawn({
        let lane = lane.clone();
        async move { lane.has_room(&AtomicU32::new(1)).await }
    });
    tokio::task::yield_now().await;
    assert!(!driver.is_finished(), "31 are out and one is coming");
    // A single free slot is noticed after a delay, several at once.
    done(out.pop().unwrap());
    tokio::task::yield_now().await;
    assert!(!driver.is_finished() && !lane.is_crowded());
    let before = ms(&lane);
    driver.await.unwrap();
    assert!(ms(&lane) - before >= 9);
    out.extend([lane.acquire(None).await.unwrap(), lane.acquire(None).await.unwrap()]);
    let driver = tokio::spawn({
        let lane = lane.clone();
        async move { lane.has_room(&AtomicU32::new(0)).await }
    });
    tokio::task::yield_now().await;
    let before = ms(&lane);
    out.drain(..4).for_each(done);
    driver.await.unwrap();
    assert_eq!(ms(&lane), before);
    out.extend([lane.acquire(None).await.unwrap()]);
    assert_eq!(lane.snapshot().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_told_when_the_lane_is_closed() {
    let lane = wide(1);
    let first = lane.acquire(None).await.unwrap();
    let waiting = tokio::spawn({
        let lane = lane.clone();
        async move { lane.acquire(None).await.is_err() }
    });
    tokio::task::yield_now().await;
    let driver = tokio::spawn({
        let lane = lane.clone();
        async move { lane.wants(1).await }
    });
    tokio::task::yield_now().await;
    lane.close();
    driver.await.unwrap();
    assert!(waiting.await.unwrap());
    done(first);
}

#[tokio::test(start_paused = true)]
async fn records_sent_before_go_first() {
    let lane = wide(1);
    let first = lane.acquire(None).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (n, by) in
        [(0, None), (1, None), (2, Some(Mono::from_millis(9_000))), (3, Some(Mono::from_millis(5_000)))]
    {
        let (lane, order) = (lane.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let permit = lane.acquire(by).await.unwrap();
            order.lock().unwrap().push(n);
            done(permit);
        }));
        tokio::task::yield_now().await;
    }
    done(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [2, 3, 0, 1]);
}

/// At 2,500 calls per second there are two and a half calls per tick of the timer. The rate must
/// hold nevertheless.
#[tokio::test(start_paused = true)]
async fn the_pace_is_exact_in_spite_of_the_timer() {
    for (rate, calls, want) in [(2_500.0, 10_001, 4_000), (500.0, 5_001, 10_000), (3.0, 31, 10_000)] {
        let lane = paced(rate);
        let left = Arc::new(AtomicU32::new(calls));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (lane, left) = (lane.clone(), left.clone());
                tokio::spawn(async move {
                    while left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                        .is_ok()
                    {
                        done(lane.acquire(None).await.unwrap());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = ms(&lane);
        assert!((want..=want + 2).contains(&took), "{rate}/s: {calls} calls took {took} ms");
        assert_eq!(lane.snapshot().counts.sent, u64::from(calls));
    }
}

/// A suspended process does not make up for lost time.
#[tokio::test(start_paused = true)]
async fn a_long_stop_is_not_followed_by_a_burst() {
    let lane = paced(1_000.0);
    let sent = Arc::new(AtomicU32::new(0));
    for _ in 0..5_000 {
        let (lane, sent) = (lane.clone(), sent.clone());
        tokio::spawn(async move {
            done(lane.acquire(None).await.unwrap());
            sent.fetch_add(1, Ordering::Relaxed);
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = sent.load(Ordering::Relaxed);
    assert!((99..=103).contains(&before), "{before}");
    // Nothing runs while the clock advances by two seconds.
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let burst = sent.load(Ordering::Relaxed) - before;
    assert!(burst <= 1 + tidegate_core::limit::LATE_MAX.as_millis() as u32, "{burst}");
}

#[tokio::test(start_paused = true)]
async fn one_hint_holds_all_and_nobody_spins() {
    let lane = wide(10);
    let clock = lane.clock();
    let permit = lane.acquire(None).await.unwrap();
    let until = Mono::from_millis(7_000);
    let throttled = Verdict {
        kind: VerdictKind::Throttled { until: Some(until) },
        code: Code::RATE_LIMITED,
        status: Some(429),
    };
    permit.settle(&throttled, &Hints::default(), |_, _| ());
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let lane = lane.clone();
            tokio::spawn(async move {
                let permit = lane.acquire(None).await.unwrap();
                let at = lane.clock().mono();
                done(permit);
                at
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let snapshot = lane.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight, snapshot.gate), (100, 0, until));
    assert_eq!(snapshot.due, Some(Due { at: until, shut: None }));
    for task in tasks {
        assert!(task.await.unwrap() >= until);
    }
    assert!(clock.mono() < until + Duration::from_secs(1));
    let counts = lane.snapshot().counts;
    assert_eq!((counts.throttled, counts.statuses), (1, vec![(429, 1), (0, 100)]));
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_deadline_is_before_the_gate_is_sent_away_at_once() {
    let lane = wide(10);
    let waiting = lane.clone();
    let mut holders = Vec::new();
    for _ in 0..lane.snapshot().cap {
        holders.push(lane.acquire(None).await.unwrap());
    }
    let waiter = tokio::spawn(async move { waiting.acquire(Some(Mono::from_millis(5_000))).await.map(drop) });
    tokio::task::yield_now().await;
    let until = Mono::from_millis(7_000);
    let failed = Verdict {
        kind: VerdictKind::Transient { until: Some(until) },
        code: Code::INTERNAL_ERROR,
        status: None,
    };
    holders.pop().unwrap().settle(&failed, &Hints::default(), |_, _| ());
    assert_eq!(waiter.await.unwrap(), Err(Refused::Late(until)));
    assert_eq!(lane.acquire(Some(Mono::from_millis(6_999))).await.map(drop), Err(Refused::Late(until)));
    assert_eq!(ms(&lane), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_deadline_passes_in_the_queue_is_told() {
    let lane = wide(1);
    let holder = lane.acquire(None).await.unwrap();
    let waiting = lane.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(Some(Mono::from_millis(5_000))).await.map(drop) });
    tokio::time::sleep(Duration::from_secs(6)).await;
    done(holder);
    assert_eq!(waiter.await.unwrap(), Err(Refused::Late(Mono::from_millis(5_000))));
    assert_eq!(lane.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_futures_and_permits_leave_no_trace() {
    let lane = wide(1);
    let holder = lane.acquire(None).await.unwrap();
    for _ in 0..10_000 {
        let waiting = lane.acquire(None);
        tokio::select! {
            biased;
            _ = waiting => panic!("the lane is full"),
            () = std::future::ready(()) => {}
        }
    }
    assert!(lane.snapshot().waiting <= 130, "{}", lane.snapshot().waiting);
    drop(holder);
    let next = lane.acquire(None).await.unwrap();
    assert_eq!((lane.snapshot().in_flight, lane.snapshot().counts.released), (1, 1));
    // A permit granted to a future that is never polled again is released too.
    let mut granted = Box::pin(lane.acquire(None));
    assert!(futures_util::poll!(granted.as_mut()).is_pending());
    done(next);
    assert_eq!(lane.snapshot().in_flight, 1);
    drop(granted);
    assert_eq!(lane.snapshot().in_flight, 0);
    done(lane.acquire(None).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_shuts_out_those_who_cannot_wait() {
    let breaker = BreakerConfig { calls_min: 1, probes: 1, ..BreakerConfig::default() };
    let limit = LimitConfig { learn: false, ..LimitConfig::default() };
    let lane = LaneHandle::new(
        LaneKey::of_prefix("mem:", ""),
        &LaneConfig { breaker, limit, ..LaneConfig::default() },
        Clock::system(),
    );
    let failed = Verdict { kind: VerdictKind::Transient { until: None }, code: Code::TIMEOUT, status: None };
    lane.acquire(None).await.unwrap().settle(&failed, &Hints::default(), |_, _| ());
    let shut = Refused::Shut(Mono::from_millis(30_000), Code::CIRCUIT_OPEN);
    assert_eq!(lane.acquire(Some(Mono::from_millis(29_000))).await.map(drop), Err(shut));
    let probe = lane.acquire(Some(Mono::from_millis(31_000))).await.unwrap();
    assert_eq!(ms(&lane), 30_000);
    let waiting = lane.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(None).await.map(drop) });
    tokio::task::yield_now().await;
    assert_eq!(lane.snapshot().waiting, 1, "one probe at a time");
    drop(probe);
    assert_eq!(waiter.await.unwrap(), Ok(()), "a dropped probe frees its place");
}

#[tokio::test(start_paused = true)]
async fn the_timer_ends_with_its_lane() {
    let lane = paced(1.0);
    done(lane.acquire(None).await.unwrap());
    done(lane.acquire(None).await.unwrap());
    let weak = Arc::downgrade(&lane.0);
    drop(lane);
    tokio::task::yield_now().await;
    assert!(weak.upgrade().is_none());
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(metrics.num_alive_tasks(), 0);
}
