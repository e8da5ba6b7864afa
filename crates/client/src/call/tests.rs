use super::*;
use crate::lane::{Clock, LaneKey};
use std::sync::Mutex;
use tidegate_core::Rng;
use tidegate_core::call::ThrottleWait;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_core::retry::backoff::{Backoff, Jitter};

fn lane(in_flight_max: u32) -> LaneHandle {
    let limit = LimitConfig { in_flight_max, learn: false, ..LimitConfig::default() };
    LaneHandle::new(
        LaneKey::of_prefix("mem:", ""),
        &LaneConfig { limit, ..LaneConfig::default() },
        Clock::system(),
    )
}

/// Backoff delays of exactly 1, 2 and 4 s.
fn policy() -> CallPolicy {
    let backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), Jitter::None);
    CallPolicy { backoff, ..CallPolicy::default() }
}

fn verdict(kind: VerdictKind, code: Code) -> Verdict {
    Verdict { kind, code, status: None }
}

fn reply(verdict: Verdict) -> Sent<u32> {
    AttemptOutcome { verdict, hints: Hints::default(), value: Some(7) }.into()
}

const DOWN: Verdict = Verdict {
    kind: VerdictKind::Transient { until: None },
    code: Code::SERVICE_UNAVAILABLE,
    status: Some(503),
};

#[tokio::test(start_paused = true)]
async fn retries_at_the_times_that_the_core_says() {
    let lane = lane(1);
    let clock = lane.clock();
    let mut sent = Vec::new();
    let outcome = run(&lane, &policy(), Call::new(), Rng::new(1), |t: Try| {
        sent.push((t.number, clock.mono().nanos() / 1_000_000));
        std::future::ready(reply(if t.number < 3 { DOWN } else { Verdict::DONE }))
    })
    .await;
    assert_eq!(sent, [(1, 0), (2, 1000), (3, 3000)]);
    assert!(outcome.is_accepted());
    assert_eq!((outcome.attempts(), outcome.value), (3, Some(7)));
    assert_eq!(outcome.spans.backoff, Duration::from_secs(3));
    assert_eq!(outcome.elapsed, Duration::from_secs(3));
    assert_eq!(outcome.history().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_send_is_a_timeout_and_the_deadline_bounds_them_all() {
    let lane = lane(1);
    let outcome = run(&lane, &policy(), Call::new(), Rng::new(1), |_| async {
        std::future::pending::<()>().await;
        reply(Verdict::DONE)
    })
    .await;
    // Timeout after 10 s, wait 1 s, timeout after 10 s, wait 2 s; the deadline of 30 s ends the
    // third.
    assert_eq!(outcome.elapsed, Duration::from_secs(30));
    assert_eq!((outcome.attempts(), outcome.verdict.code), (3, Code::TIMEOUT));
    assert_eq!(outcome.word(), "network_timeout_deadline");
    assert_eq!(lane.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_in_backoff_stands_in_nobodys_way() {
    let lane = lane(1);
    let clock = lane.clock();
    let policy = policy();
    let fails = run(&lane, &policy, Call::new(), Rng::new(1), |t: Try| async move {
        reply(if t.number == 1 { DOWN } else { Verdict::DONE })
    });
    let others = async {
        for n in 0..100 {
            let outcome =
                run(&lane, &policy, Call::new(), Rng::new(n), |_| async { reply(Verdict::DONE) }).await;
            assert!(outcome.is_accepted());
        }
        clock.mono()
    };
    let (failed, done_at) = tokio::join!(fails, others);
    assert_eq!(done_at, Mono::ZERO, "all hundred went while the one waited");
    assert_eq!(failed.elapsed, Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_spent_quota_parks_the_record_and_those_who_wait() {
    let lane = lane(1);
    let policy = policy();
    let until = Mono::from_millis(7_200_000);
    let spent = verdict(VerdictKind::QuotaSpent { until: Some(until) }, Code::QUOTA_EXHAUSTED);
    let asks = Mutex::new(0);
    let ask = || {
        run(&lane, &policy, Call::new(), Rng::new(1), |_| async {
            *asks.lock().unwrap() += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
            reply(spent)
        })
    };
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    for outcome in [a, b, c] {
        assert_eq!(outcome.next, Next::Park(until, GiveUpReason::QuotaSpent));
        assert_eq!(outcome.elapsed, Duration::from_millis(10));
    }
    assert_eq!(asks.into_inner().unwrap(), 1, "the quota was asked once");
}

/// One record is told to come back in 200 s while another backs off, with a deadline of 10 s. The
/// wait was asked of the lane, so the other one ends as if it had been told itself.
#[tokio::test(start_paused = true)]
async fn a_wait_asked_of_another_record_is_no_deadline_of_this_one() {
    use tidegate_core::call::LongWait;
    let until = Mono::from_millis(200_000);
    let told = Verdict { kind: VerdictKind::Transient { until: Some(until) }, ..DOWN };
    for (long_wait, expected) in [
        (LongWait::Park, Next::Park(until, GiveUpReason::Deadline)),
        (LongWait::GiveUp, Next::GiveUp(GiveUpReason::Deadline)),
    ] {
        let lane = lane(2);
        let policy = CallPolicy { deadline: Duration::from_secs(10), long_wait, ..policy() };
        let waits = run(&lane, &policy, Call::new(), Rng::new(1), |_| async { reply(DOWN) });
        let other = run(&lane, &policy, Call::new(), Rng::new(2), |_| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            reply(told)
        });
        let (waits, _) = tokio::join!(waits, other);
        assert_eq!(waits.next, expected);
        assert_eq!(waits.verdict.until(), Some(until));
        assert_ne!(waits.verdict.code, Code::DEADLINE_EXCEEDED);
        assert_eq!((waits.attempts(), waits.history().len()), (1, 1));
        assert_eq!(waits.elapsed, Duration::from_secs(1), "its own backoff, and no longer");
    }
}

/// The lane is held by another record until the deadline is over: the record ends with its last
/// answer, as it does if that answer leaves no time for another attempt.
#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_lane_ends_with_the_last_answer() {
    let lane = lane(1);
    let short = CallPolicy { deadline: Duration::from_secs(5), ..policy() };
    let long = policy();
    let waits = run(&lane, &short, Call::new(), Rng::new(1), |_| async { reply(DOWN) });
    let other = run(&lane, &long, Call::new(), Rng::new(2), |_| async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        reply(Verdict::DONE)
    });
    let (waits, _) = tokio::join!(waits, other);
    assert_eq!((waits.verdict, waits.next), (DOWN, Next::GiveUp(GiveUpReason::Deadline)));
    assert_eq!((waits.word().as_str(), waits.attempts()), ("transient_503_deadline", 1));
    assert_eq!(waits.elapsed, short.deadline);
}

#[tokio::test(start_paused = true)]
async fn a_hop_pays_in_the_lane_where_it_goes() {
    let (here, there) = (lane(1), lane(1));
    let hops = Mutex::new(Vec::new());
    let outcome = run(&here, &policy(), Call::new(), Rng::new(1), |t: Try| {
        hops.lock().unwrap().push((t.number, t.hop, here.snapshot().in_flight, there.snapshot().in_flight));
        std::future::ready(match t.hop {
            0 => Sent::Hop { lane: there.clone(), status: 302, hints: Hints::default() },
            _ => reply(Verdict::DONE),
        })
    })
    .await;
    assert!(outcome.is_accepted());
    assert_eq!(hops.into_inner().unwrap(), [(1, 0, 1, 0), (1, 1, 0, 1)]);
    assert_eq!((here.snapshot().counts.sent, there.snapshot().counts.sent), (1, 1));
    assert_eq!(here.snapshot().counts.statuses, [(302, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_be_repeated_is_not() {
    let lane = lane(1);
    let outcome = run(&lane, &policy(), Call::once(), Rng::new(1), |_| async { reply(DOWN) }).await;
    assert_eq!(outcome.next, Next::GiveUp(GiveUpReason::NotRepeatable));
    assert_eq!(outcome.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_makes_records_wait_and_costs_them_nothing() {
    let lane = lane(1);
    let policy = CallPolicy { attempts_max: 1, ..policy() };
    for n in 0..10 {
        run(&lane, &policy, Call::new(), Rng::new(n), |_| async { reply(DOWN) }).await;
    }
    let clock = lane.clock();
    let outcome = run(&lane, &policy, Call::new(), Rng::new(1), |_| async {
        assert_eq!(clock.mono(), Mono::from_millis(30_000));
        reply(Verdict::DONE)
    })
    .await;
    assert!(outcome.is_accepted());
    assert_eq!((outcome.attempts(), outcome.spans.queued), (1, Duration::from_secs(30)));
}

#[tokio::test]
async fn calls_can_be_spawned() {
    let lane = lane(4);
    let policy = policy();
    let task = tokio::spawn(async move {
        run(&lane, &policy, Call::new(), Rng::new(1), |_| async { reply(Verdict::DONE) }).await.is_accepted()
    });
    assert!(task.await.unwrap());
}

/// Backoff in the metrics is the wait of a record after a failed attempt. Waiting for a lane that
/// paces is not backoff.
#[tokio::test(start_paused = true)]
async fn a_lane_that_paces_is_not_backoff() {
    let limit = LimitConfig { rate_max: Some(10.0), burst: Some(1.0), learn: true, in_flight_max: 64 };
    let config = LaneConfig { limit, ..LaneConfig::default() };
    let lane = LaneHandle::new(LaneKey::of_prefix("mem:", ""), &config, Clock::system());
    let policy = CallPolicy { throttle_wait: ThrottleWait::Lane, ..policy() };
    let counted = crate::telemetry::Calls::default();
    let throttled = |until| Verdict {
        kind: VerdictKind::Throttled { until },
        code: Code::RATE_LIMITED,
        status: Some(429),
    };
    let mut queued = Duration::ZERO;
    for n in 0..20 {
        let outcome = run(&lane, &policy, Call::new(), Rng::new(n), |_| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            reply(Verdict::DONE)
        })
        .await;
        counted.call(outcome.history());
        queued += outcome.spans.queued;
    }
    assert!(queued > Duration::from_millis(1500), "the lane paced: {queued:?}");
    assert_eq!((counted.in_backoff(), counted.in_calls()), (0.0, Duration::from_millis(100)));
    // After a throttle without a hint the call waits for its lane, which is pacing.
    let outcome = run(&lane, &policy, Call::new(), Rng::new(1), |t: Try| {
        std::future::ready(reply(if t.number == 1 { throttled(None) } else { Verdict::DONE }))
    })
    .await;
    counted.call(outcome.history());
    assert_eq!((outcome.attempts(), counted.in_backoff(), outcome.spans.backoff), (2, 0.0, Duration::ZERO));
    // A wait that the server asked for is backoff.
    let clock = lane.clock();
    let outcome = run(&lane, &policy, Call::new(), Rng::new(1), |t: Try| {
        let until = clock.mono() + Duration::from_secs(2);
        std::future::ready(reply(if t.number == 1 { throttled(Some(until)) } else { Verdict::DONE }))
    })
    .await;
    counted.call(outcome.history());
    assert_eq!((outcome.attempts(), counted.in_backoff()), (2, 2.0));
}
