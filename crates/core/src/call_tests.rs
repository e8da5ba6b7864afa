use super::*;
use crate::chance::Rng;
use crate::retry::backoff::{Backoff, Jitter};
use crate::retry::budget::{BudgetConfig, OnEmpty};
use proptest::prelude::*;

fn at(s: f64) -> Mono {
    Mono::from_secs_f64(s)
}

fn http(kind: VerdictKind, status: u16) -> Verdict {
    Verdict { kind, code: crate::classify::code_of(status), status: Some(status) }
}

fn policy() -> CallPolicy {
    let backoff = Backoff::new(Duration::from_secs(2), 2.0, Duration::from_secs(60), Jitter::None);
    CallPolicy { attempts_max: 3, backoff, deadline: Duration::from_secs(100), ..CallPolicy::default() }
}

fn run(policy: &CallPolicy, verdicts: &[Verdict]) -> (Next, Call) {
    let mut call = Call::new();
    let mut budget = Budget::new(&BudgetConfig::default());
    let mut rng = Rng::new(1);
    let (mut now, mut next) = (Mono::ZERO, Next::Accept);
    for v in verdicts {
        call.send(policy, now);
        next = call.next(policy, v, now, &mut rng, &mut budget);
        match next {
            Next::RetryAt(t) => now = t,
            _ => break,
        }
    }
    (next, call)
}

#[test]
fn transient_failures_back_off_until_the_attempts_are_used() {
    let fail = http(VerdictKind::Transient { until: None }, 503);
    let (next, call) = run(&policy(), &[fail, fail, fail, fail]);
    assert_eq!(next, Next::GiveUp(GiveUpReason::Exhausted));
    assert_eq!(call.attempts(), 3);
    assert_eq!(outcome(&fail, &next), "transient_503_exhausted");
    let delays: Vec<u64> = call.history().iter().map(|a| a.delay.as_secs()).collect();
    assert_eq!(delays, [2, 4, 0]);
    assert_eq!(call.history()[2].sent, at(6.0));
}

#[test]
fn answers_end_a_call_at_once() {
    for (verdict, name) in [
        (http(VerdictKind::Done, 200), "done"),
        (http(VerdictKind::NoMatch, 200), "no_match"),
        (http(VerdictKind::Permanent, 400), "permanent_400"),
    ] {
        let (next, call) = run(&policy(), &[verdict, verdict]);
        assert_eq!((call.attempts(), outcome(&verdict, &next).as_str()), (1, name));
    }
}

#[test]
fn names_of_network_failures_and_an_open_circuit() {
    let timeout = Verdict { kind: VerdictKind::Transient { until: None }, code: Code::TIMEOUT, status: None };
    let (next, _) = run(&policy(), &[timeout; 3]);
    assert_eq!(outcome(&timeout, &next), "network_timeout_exhausted");
    let call = Call::new();
    assert_eq!(
        call.shut(&policy(), at(1e6)),
        Next::RetryAt(at(1e6)),
        "nothing sent, nothing lost by waiting"
    );
    let mut call = Call::new();
    call.send(&policy(), at(0.0));
    let next = call.shut(&policy(), at(100.0));
    assert_eq!(outcome(&timeout, &next), "circuit_open");
    assert_eq!(next, Next::Park(at(100.0), GiveUpReason::CircuitOpen));
    assert_eq!(call.shut(&policy(), at(99.0)), Next::RetryAt(at(99.0)));
}

#[test]
fn a_hint_is_obeyed_and_jittered_after() {
    let full = CallPolicy { backoff: Backoff::default(), ..policy() };
    let hinted = http(VerdictKind::Transient { until: Some(at(20.0)) }, 503);
    for seed in 0..200 {
        let mut call = Call::new();
        call.send(&full, at(1.0));
        let mut budget = Budget::new(&BudgetConfig::default());
        match call.next(&full, &hinted, at(1.0), &mut Rng::new(seed), &mut budget) {
            Next::RetryAt(t) => assert!(t >= at(20.0) && t < at(21.0), "{t:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_hint_of_zero_is_floored_at_half_the_base() {
    let full = CallPolicy { backoff: Backoff::default(), ..policy() };
    for seed in 0..200 {
        let mut call = Call::new();
        call.send(&full, at(5.0));
        let mut budget = Budget::new(&BudgetConfig::default());
        let zero = http(VerdictKind::Throttled { until: Some(at(5.0)) }, 429);
        match call.next(&full, &zero, at(5.0), &mut Rng::new(seed), &mut budget) {
            Next::RetryAt(t) => assert!(t >= at(5.5)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_hint_too_far_parks_instead_of_coming_early() {
    let beyond_cap = http(VerdictKind::Throttled { until: Some(at(61.0)) }, 429);
    assert_eq!(run(&policy(), &[beyond_cap]).0, Next::Park(at(61.0), GiveUpReason::HintTooFar));
    let short = CallPolicy { deadline: Duration::from_secs(30), ..policy() };
    let beyond_deadline = http(VerdictKind::Transient { until: Some(at(45.0)) }, 503);
    assert_eq!(run(&short, &[beyond_deadline]).0, Next::Park(at(45.0), GiveUpReason::Deadline));
    let impatient = CallPolicy { long_wait: LongWait::GiveUp, ..short };
    assert_eq!(run(&impatient, &[beyond_deadline]).0, Next::GiveUp(GiveUpReason::Deadline));
    assert_eq!(run(&impatient, &[beyond_cap]).0, Next::GiveUp(GiveUpReason::HintTooFar));
    let quota = http(VerdictKind::QuotaSpent { until: None }, 402);
    let (next, _) = run(&policy(), &[quota]);
    assert_eq!(next, Next::Park(at(3600.0), GiveUpReason::QuotaSpent));
    assert_eq!(outcome(&quota, &next), "quota_spent");
}

#[test]
fn what_the_server_asked_of_the_lane_holds_for_a_record_in_backoff() {
    let (mut call, short) = (Call::new(), CallPolicy { deadline: Duration::from_secs(10), ..policy() });
    assert_eq!(
        call.held(&short, at(200.0)),
        Next::RetryAt(at(200.0)),
        "no deadline before the first attempt"
    );
    call.send(&short, at(0.0));
    assert_eq!(call.held(&short, at(9.0)), Next::RetryAt(at(9.0)));
    assert_eq!(call.held(&short, at(200.0)), Next::Park(at(200.0), GiveUpReason::Deadline));
    let impatient = CallPolicy { long_wait: LongWait::GiveUp, ..short };
    assert_eq!(call.held(&impatient, at(200.0)), Next::GiveUp(GiveUpReason::Deadline));
    assert_eq!(call.attempts(), 1);
}

#[test]
fn the_deadline_ends_a_call_before_a_useless_wait() {
    let fail = http(VerdictKind::Transient { until: None }, 500);
    let short = CallPolicy { deadline: Duration::from_secs(5), ..policy() };
    let (next, call) = run(&short, &[fail; 3]);
    assert_eq!((next, call.attempts()), (Next::GiveUp(GiveUpReason::Deadline), 2));
    assert_eq!(outcome(&fail, &next), "transient_500_deadline");
}

#[test]
fn one_attempt_may_not_outlive_the_deadline() {
    let p = CallPolicy {
        attempt_timeout: Duration::from_secs(10),
        deadline: Duration::from_secs(15),
        ..policy()
    };
    let mut call = Call::new();
    assert_eq!(call.send(&p, at(0.0)), at(10.0));
    assert_eq!(call.send(&p, at(9.0)), at(15.0));
}

#[test]
fn in_a_lane_that_learns_a_throttle_waits_for_the_lane() {
    let p = CallPolicy { throttle_wait: ThrottleWait::Lane, throttles_free: 4, ..policy() };
    let throttle = http(VerdictKind::Throttled { until: None }, 429);
    let (next, call) = run(&p, &[throttle; 6]);
    assert_eq!((next, call.attempts()), (Next::RetryAt(at(0.0)), 6));
    let (next, call) = run(&p, &[throttle; 20]);
    assert_eq!(
        (next, call.attempts()),
        (Next::GiveUp(GiveUpReason::Exhausted), 7),
        "four free ones and three attempts"
    );
}

#[test]
fn failures_by_a_limit_that_the_lane_knows_cost_no_attempts_and_no_budget() {
    let p = policy();
    let fail = http(VerdictKind::Transient { until: None }, 503);
    let mut budget = Budget::new(&BudgetConfig { size: 0.0, ..BudgetConfig::default() });
    let throttle = http(VerdictKind::Throttled { until: None }, 429);
    // Three attempts: the twenty-third refusal is the last.
    for refusal in [fail, throttle] {
        let (mut call, mut rng) = (Call::new(), Rng::new(0));
        for sent in 1..=p.attempts_bound(true) {
            call.send(&p, at(0.0));
            call.limited();
            let next = call.next(&p, &refusal, at(0.0), &mut rng, &mut budget);
            let last = Next::GiveUp(GiveUpReason::Exhausted);
            assert_eq!(next, if sent < 23 { Next::RetryAt(at(0.0)) } else { last }, "{sent}");
        }
        assert_eq!(call.attempts(), 23);
    }
}

/// As long as nobody sends it, a record that a known limit has refused is like one that was never sent.
#[test]
fn the_time_of_a_record_stands_still_while_it_waits_for_a_lane_that_is_limited() {
    let p = policy();
    let refusal = http(VerdictKind::Transient { until: None }, 503);
    let (mut call, mut rng) = (Call::new(), Rng::new(0));
    let mut budget = Budget::new(&BudgetConfig::default());
    call.send(&p, at(0.0));
    call.limited();
    assert_eq!(call.next(&p, &refusal, at(1.0), &mut rng, &mut budget), Next::RetryAt(at(1.0)));
    assert_eq!(call.deadline(&p), Some(Mono::FAR));
    assert_eq!(call.send(&p, at(500.0)), at(500.0) + p.attempt_timeout);
    assert_eq!(call.deadline(&p), Some(at(600.0)), "of its 100 s none is used");
    // What no limit explains takes its time.
    assert!(matches!(call.next(&p, &refusal, at(501.0), &mut rng, &mut budget), Next::RetryAt(_)));
    assert_eq!(call.deadline(&p), Some(at(600.0)));
    call.send(&p, at(580.0));
    assert_eq!(call.deadline(&p), Some(at(600.0)));
    // Nor does a wait that the server asked for: that has rules of its own.
    call.limited();
    let told = http(VerdictKind::Throttled { until: Some(at(590.0)) }, 429);
    assert_eq!(call.next(&p, &told, at(581.0), &mut rng, &mut budget), Next::RetryAt(at(590.0)));
    assert_eq!(call.deadline(&p), Some(at(600.0)));
}

#[test]
fn who_waits_for_the_breaker_beyond_its_deadline_is_put_aside() {
    let p = CallPolicy { outages_free: 1, ..policy() };
    let failed = http(VerdictKind::Transient { until: None }, 503);
    for outage in [false, true] {
        let (mut call, mut rng) = (Call::new(), Rng::new(0));
        let mut budget = Budget::new(&BudgetConfig::default());
        call.send(&p, at(0.0));
        if outage {
            call.outage();
        }
        assert!(matches!(call.next(&p, &failed, at(1.0), &mut rng, &mut budget), Next::RetryAt(_)));
        assert_eq!(call.deadline(&p), Some(at(100.0)));
        let aside = Next::Park(at(100.0), GiveUpReason::CircuitOpen);
        assert_eq!(call.late(at(100.0)), if outage { aside } else { Next::GiveUp(GiveUpReason::Deadline) });
    }
}

#[test]
fn refusals_by_a_limit_and_others_share_what_is_free() {
    let throttle = http(VerdictKind::Throttled { until: None }, 429);
    for (throttles_free, sent) in [(0, 23), (4, 23), (30, 33)] {
        let p = CallPolicy { throttle_wait: ThrottleWait::Lane, throttles_free, ..policy() };
        assert_eq!((p.attempts_bound(true), p.attempts_bound(false)), (sent, 3 + throttles_free));
        let mut budget = Budget::new(&BudgetConfig::default());
        let (mut call, mut rng) = (Call::new(), Rng::new(0));
        // The first four are explained by nothing, the rest by a limit.
        for n in 1..=sent {
            call.send(&p, at(0.0));
            if n > throttles_free.min(4) {
                call.limited();
            }
            let next = call.next(&p, &throttle, at(0.0), &mut rng, &mut budget);
            assert_eq!(next == Next::GiveUp(GiveUpReason::Exhausted), n == sent, "{throttles_free} {n}");
        }
    }
}

#[test]
fn failures_of_an_outage_are_free_up_to_a_bound() {
    let p = CallPolicy { outages_free: 2, deadline: Duration::from_secs(1000), ..policy() };
    let fail = http(VerdictKind::Transient { until: None }, 503);
    let mut budget = Budget::new(&BudgetConfig::default());
    let (mut call, mut rng, mut now) = (Call::new(), Rng::new(0), at(0.0));
    let mut waits = Vec::new();
    loop {
        call.send(&p, now);
        call.outage();
        match call.next(&p, &fail, now, &mut rng, &mut budget) {
            Next::RetryAt(t) => {
                waits.push(t.since(now));
                now = t;
            }
            end => break assert_eq!(end, Next::GiveUp(GiveUpReason::Exhausted)),
        }
    }
    assert_eq!(call.attempts(), 5);
    // The lane says when, and the record's own backoff begins with what counts.
    assert_eq!(waits[..2], [Duration::ZERO; 2]);
    let (first, second) = (p.backoff.base(), p.backoff.base() * 2);
    assert!(Duration::ZERO < waits[2] && waits[2] <= first, "{waits:?}");
    assert!(Duration::ZERO < waits[3] && waits[3] <= second, "{waits:?}");
}

#[test]
fn what_may_have_been_executed_is_not_repeated() {
    let p = policy();
    let mut budget = Budget::new(&BudgetConfig::default());
    let mut rng = Rng::new(0);
    let cases = [
        (Code::CONNECTION_RESET, Next::GiveUp(GiveUpReason::NotRepeatable)),
        (Code::CONNECTION_REFUSED, Next::RetryAt(at(2.0))),
    ];
    for (code, want) in cases {
        let mut call = Call::once();
        call.send(&p, at(0.0));
        let verdict = Verdict { kind: VerdictKind::Transient { until: None }, code, status: None };
        assert_eq!(call.next(&p, &verdict, at(0.0), &mut rng, &mut budget), want);
    }
    let mut call = Call::once();
    call.send(&p, at(0.0));
    let refused = http(VerdictKind::Throttled { until: None }, 429);
    assert_eq!(call.next(&p, &refused, at(0.0), &mut rng, &mut budget), Next::RetryAt(at(2.0)));
}

#[test]
fn an_empty_budget_refuses_or_delays() {
    let fail = http(VerdictKind::Transient { until: None }, 503);
    let p = policy();
    let mut rng = Rng::new(0);
    let config = BudgetConfig { ratio: 0.0, floor_per_second: 0.1, size: 1.0, on_empty: OnEmpty::Wait };
    let mut budget = Budget::new(&config);
    let mut go = |budget: &mut Budget| {
        let mut call = Call::new();
        call.send(&p, at(0.0));
        call.next(&p, &fail, at(0.0), &mut rng, budget)
    };
    assert_eq!(go(&mut budget), Next::RetryAt(at(2.0)));
    assert_eq!(go(&mut budget), Next::RetryAt(at(10.0)));
    let mut strict = Budget::new(&BudgetConfig { on_empty: OnEmpty::GiveUp, size: 0.0, ..config });
    assert_eq!(go(&mut strict), Next::GiveUp(GiveUpReason::BudgetEmpty));
}

#[test]
fn attempts_before_a_restart_count() {
    let fail = http(VerdictKind::Transient { until: None }, 503);
    let mut call = Call::resumed(2);
    call.send(&policy(), at(0.0));
    let mut budget = Budget::new(&BudgetConfig::default());
    assert_eq!(
        call.next(&policy(), &fail, at(0.0), &mut Rng::new(0), &mut budget),
        Next::GiveUp(GiveUpReason::Exhausted)
    );
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let until = prop::option::of(0u64..200_000_000_000).prop_map(|t| t.map(Mono::from_nanos));
    (0u8..6, until, 100u16..600).prop_map(|(k, until, status)| {
        let kind = match k {
            0 => VerdictKind::Done,
            1 => VerdictKind::NoMatch,
            2 => VerdictKind::Permanent,
            3 => VerdictKind::Throttled { until },
            4 => VerdictKind::Transient { until },
            _ => VerdictKind::QuotaSpent { until },
        };
        http(kind, status)
    })
}

proptest! {
    /// Never before the hint, never beyond the deadline, never more attempts than the bound.
    #[test]
    fn the_promises_of_a_call(
        verdicts in prop::collection::vec(any_verdict(), 1..40), attempts_max in 0u32..8, free in 0u32..4,
        lane in any::<bool>(), deadline in 0u64..300, seed in any::<u64>(),
    ) {
        let p = CallPolicy {
            attempts_max,
            throttles_free: free,
            deadline: Duration::from_secs(deadline),
            throttle_wait: if lane { ThrottleWait::Lane } else { ThrottleWait::Backoff },
            ..CallPolicy::default()
        };
        let (mut call, mut rng) = (Call::new(), Rng::new(seed));
        let mut budget = Budget::new(&BudgetConfig::default());
        let mut now = at(3.0);
        let mut sent = 0;
        for v in &verdicts {
            call.send(&p, now);
            sent += 1;
            match call.next(&p, v, now, &mut rng, &mut budget) {
                Next::RetryAt(t) => {
                    prop_assert!(t >= now);
                    prop_assert!(t >= v.until().unwrap_or(t));
                    prop_assert!(t < at(3.0) + p.deadline || t < now + Duration::from_secs(120));
                    now = t;
                }
                Next::Park(t, _) => {
                    prop_assert!(t >= v.until().unwrap_or(t) && t >= now);
                    break;
                }
                Next::Accept => {
                    prop_assert!(matches!(v.kind, VerdictKind::Done | VerdictKind::NoMatch));
                    break;
                }
                Next::GiveUp(_) => break,
            }
        }
        prop_assert!(sent <= attempts_max.max(1) + free);
        prop_assert_eq!(call.history().len() as u32, sent);
    }
}
