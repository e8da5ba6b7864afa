use super::*;
use crate::hint::Quota;
use proptest::prelude::*;

pub(super) fn at(s: f64) -> Mono {
    Mono::from_secs_f64(s)
}

fn go(limiter: &mut Limiter, now: Mono) -> Ticket {
    match limiter.admit(now) {
        LimiterAdmit::Go(ticket) => ticket,
        other => panic!("{other:?} at {now:?}"),
    }
}

#[test]
fn a_hint_silences_the_whole_lane() {
    let mut l = Limiter::new(&LimitConfig::default());
    let (a, b) = (go(&mut l, at(0.0)), go(&mut l, at(0.0)));
    l.settle(a, at(0.1), Feedback::Throttled { until: Some(at(5.0)) }, &Hints::default());
    l.settle(b, at(0.2), Feedback::Accepted, &Hints::default());
    assert_eq!(l.admit(at(4.999)), LimiterAdmit::At(at(5.0)));
    assert_eq!(l.not_before(), at(5.0));
}

#[test]
fn of_two_limits_the_lower_of_each_holds() {
    let none = LimitConfig { in_flight_max: 9, learn: false, ..LimitConfig::default() };
    let slow = LimitConfig { rate_max: Some(2.0), burst: Some(5.0), in_flight_max: 20, learn: true };
    let fast = LimitConfig { rate_max: Some(7.0), burst: Some(1.0), in_flight_max: 3, learn: false };
    assert_eq!(none.and(slow), LimitConfig { in_flight_max: 9, ..slow });
    let both = LimitConfig { rate_max: Some(2.0), burst: Some(1.0), in_flight_max: 3, learn: true };
    assert_eq!((slow.and(fast), fast.and(slow)), (both, both));
}

#[test]
fn the_users_ceiling_holds_whatever_is_learned() {
    let config = LimitConfig { rate_max: Some(10.0), burst: Some(3.0), ..LimitConfig::default() };
    let mut l = Limiter::new(&config);
    let mut now = at(0.0);
    let mut sent = 0;
    while now < at(10.0) {
        match l.admit(now) {
            LimiterAdmit::Go(ticket) => {
                sent += 1;
                l.settle(ticket, now, Feedback::Accepted, &Hints::default());
            }
            LimiterAdmit::At(t) => now = t,
            LimiterAdmit::Full => panic!("nothing is out"),
        }
    }
    assert!((98..=103).contains(&sent), "{sent}");
}

/// Calls that go in ten seconds if the timer is always late by `late`, and when the first and the second went.
fn sent_late(l: &mut Limiter, late: f64) -> (u32, Mono, Mono) {
    let (mut now, mut sent) = (at(0.0), alloc::vec::Vec::new());
    while now < at(10.0) {
        match l.admit(now) {
            LimiterAdmit::Go(ticket) => {
                assert_eq!(ticket.sent, now, "a call is sent when it goes");
                sent.push(now);
                l.settle(ticket, now, Feedback::Accepted, &Hints::default());
            }
            LimiterAdmit::At(t) => now = t + Duration::from_secs_f64(late),
            LimiterAdmit::Full => panic!("nothing is out"),
        }
    }
    (sent.len() as u32, sent[0], sent[1])
}

#[test]
fn a_late_timer_costs_no_calls_unless_the_server_saves_none() {
    let paced = || {
        let mut l = Limiter::new(&LimitConfig::default());
        l.pace.set(Mono::ZERO, Some(100.0), 1.0);
        l
    };
    assert_eq!(sent_late(&mut paced(), 0.002), (1000, at(0.0), at(0.012)));
    let mut strict = paced();
    strict.single_token = Some(SingleTokenBucket::new(0.01));
    let mut sent = alloc::vec::Vec::new();
    let mut now = at(0.0);
    while sent.len() < 20 {
        match strict.admit(now) {
            LimiterAdmit::Go(ticket) => sent.push(ticket.sent),
            LimiterAdmit::At(t) => now = t + Duration::from_millis(2),
            LimiterAdmit::Full => break,
        }
    }
    assert!(sent.len() >= 3, "{sent:?}");
    assert!(sent.windows(2).all(|pair| secs(pair[0], pair[1]) >= 0.0119), "{sent:?}");
    // A lane that could not ask for a minute catches up with five milliseconds of it.
    let mut l = paced();
    l.pace.set(Mono::ZERO, Some(1000.0), 1.0);
    let _ = go(&mut l, at(0.0));
    assert!(matches!(l.admit(at(0.0)), LimiterAdmit::At(_)));
    let mut caught = 0;
    while let LimiterAdmit::Go(ticket) = l.admit(at(60.0)) {
        l.settle(ticket, at(60.0), Feedback::Accepted, &Hints::default());
        caught += 1;
    }
    assert!((5..=7).contains(&caught), "{caught}");
}

#[test]
fn without_learning_refusals_change_nothing_but_the_gate() {
    let mut l = Limiter::new(&LimitConfig { learn: false, in_flight_max: 8, ..LimitConfig::default() });
    for i in 0..100 {
        let now = at(f64::from(i));
        let ticket = go(&mut l, now);
        l.settle(ticket, now, Feedback::Throttled { until: None }, &Hints::default());
    }
    assert_eq!((l.cap(), l.rate()), (8, None));
}

/// One client against a bucket, one call at a time: the smallest world.
fn drain(rate: f64, burst: f64, calls: u32) -> (f64, u32, f64) {
    let mut l = Limiter::new(&LimitConfig::default());
    let (mut level, mut last, mut now) = (burst, 0.0, 0.0);
    let (mut done, mut refused) = (0, 0);
    while done < calls {
        match l.admit(at(now)) {
            LimiterAdmit::At(t) => now = t.as_secs_f64().max(now + 1e-9),
            LimiterAdmit::Full => panic!("one call at a time is never too many"),
            LimiterAdmit::Go(ticket) => {
                level = f64::min(burst, level + (now - last) * rate);
                last = now;
                now += 0.001;
                let seen = if level >= 1.0 {
                    level -= 1.0;
                    done += 1;
                    Feedback::Accepted
                } else {
                    refused += 1;
                    Feedback::Throttled { until: None }
                };
                l.settle(ticket, at(now), seen, &Hints::default());
            }
        }
    }
    (now, refused, l.rate().unwrap_or(0.0))
}

#[test]
fn a_bucket_is_learned_from_its_refusals() {
    for (rate, burst) in [(10.0, 10.0), (50.0, 100.0), (200.0, 20.0), (37.0, 5.0)] {
        let calls = 5000;
        let (took, refused, learned) = drain(rate, burst, calls);
        let ideal = (f64::from(calls) - burst) / rate;
        assert!(took <= ideal * 1.02, "{rate}/s: {took} of {ideal}");
        assert!(f64::from(refused) <= 0.012 * f64::from(calls), "{rate}/s: {refused} refused");
        assert!((learned / rate - 1.0).abs() < 0.01, "{rate}/s learned as {learned}");
    }
}

#[test]
fn after_an_outage_the_lane_begins_gently() {
    let mut l = Limiter::new(&LimitConfig::default());
    let mut now = at(0.0);
    for _ in 0..2000 {
        match l.admit(now) {
            LimiterAdmit::Go(ticket) => {
                l.settle(ticket, now + Duration::from_millis(2), Feedback::Accepted, &Hints::default());
            }
            LimiterAdmit::At(t) => now = t,
            LimiterAdmit::Full => {}
        }
        now += Duration::from_millis(2);
    }
    for _ in 0..5 {
        let ticket = go(&mut l, now);
        l.settle(ticket, now, Feedback::Failed { until: None }, &Hints::default());
        now += Duration::from_secs(1);
    }
    // It went at 500 calls a second: after the outage it begins with a quarter of that.
    let (from, mut sent) = (now, 0);
    while now < from + Duration::from_millis(100) {
        match l.admit(now) {
            LimiterAdmit::Go(ticket) => {
                sent += 1;
                l.settle(ticket, now + Duration::from_millis(2), Feedback::Accepted, &Hints::default());
            }
            LimiterAdmit::At(t) => now = t,
            LimiterAdmit::Full => now += Duration::from_millis(1),
        }
    }
    assert!((10..=14).contains(&sent), "{sent}");
}

/// Five calls in each fifth of a second, told with a reset as coarse as `step`: calls accepted and refused in
/// twenty seconds, by a lane one millisecond away.
fn fifths(step: Duration) -> (u32, u32) {
    let mut l = Limiter::new(&LimitConfig { in_flight_max: 1, ..LimitConfig::default() });
    let (mut now, mut window, mut left) = (0.0, 0.0, 5u64);
    let (mut accepted, mut refused) = (0, 0);
    while now < 20.0 {
        match l.admit(at(now)) {
            LimiterAdmit::Go(ticket) => {
                let this = libm::floor(now / 0.2);
                (left, window) = if this > window { (5, this) } else { (left, window) };
                let seen = if left > 0 { Feedback::Accepted } else { Feedback::Throttled { until: None } };
                (accepted, refused) = (accepted + u32::from(left > 0), refused + u32::from(left == 0));
                left = left.saturating_sub(1);
                let unit = step.as_secs_f64();
                let reset = libm::ceil((0.2 * (this + 1.0) - now) / unit) * unit;
                let quota = Quota {
                    limit: Some(5),
                    window: None,
                    remaining: Some(left),
                    reset: Some(Duration::from_secs_f64(reset)),
                    reset_step: step,
                };
                let hints = Hints { quotas: [Some(quota), None, None, None], ..Hints::default() };
                now += 0.001;
                l.settle(ticket, at(now), seen, &hints);
            }
            LimiterAdmit::At(t) => now = t.as_secs_f64().max(now + 1e-6),
            LimiterAdmit::Full => panic!("nothing is out"),
        }
    }
    (accepted, refused)
}

#[test]
fn a_short_window_told_in_milliseconds_is_followed_and_in_seconds_it_is_learned() {
    let (accepted, refused) = fifths(Duration::from_millis(1));
    assert!(accepted >= 490 && refused == 0, "{accepted} of 500, {refused} refused");
    let (accepted, refused) = fifths(Duration::from_secs(1));
    assert!(accepted >= 400 && refused <= 15, "{accepted} of 500, {refused} refused");
}

#[test]
fn nothing_left_until_a_reset_is_a_promise_whatever_else_is_missing() {
    let spent =
        |reset| Quota { remaining: Some(0), reset: Some(Duration::from_secs(reset)), ..Quota::default() };
    let answers = [Feedback::Accepted, Feedback::Throttled { until: None }, Feedback::Failed { until: None }];
    for (answer, learn) in answers.into_iter().flat_map(|answer| [(answer, true), (answer, false)]) {
        let mut l = Limiter::new(&LimitConfig { learn, ..LimitConfig::default() });
        let LimiterAdmit::Go(ticket) = l.admit(at(0.0)) else { panic!() };
        let hints = Hints { quotas: [Some(spent(2)), Some(spent(4)), None, None], ..Hints::default() };
        l.settle(ticket, at(1.0), answer, &hints);
        assert_eq!(l.not_before(), at(5.0), "{answer:?} {learn}");
        assert!(matches!(l.admit(at(4.9)), LimiterAdmit::At(t) if t >= at(5.0)), "{answer:?} {learn}");
    }
    // What is left is no such promise, and neither is a reset alone.
    for quota in [Quota { remaining: Some(1), ..spent(4) }, Quota { remaining: None, ..spent(4) }] {
        let mut l = Limiter::new(&LimitConfig::default());
        let LimiterAdmit::Go(ticket) = l.admit(at(0.0)) else { panic!() };
        let hints = Hints { quotas: [Some(quota), None, None, None], ..Hints::default() };
        l.settle(ticket, at(1.0), Feedback::Accepted, &hints);
        assert_eq!(l.not_before(), Mono::ZERO, "{quota:?}");
    }
}

fn any_quota() -> impl Strategy<Value = Option<Quota>> {
    let n = || prop::option::of(prop_oneof![0u64..200, Just(u64::MAX), any::<u64>()]);
    let span = || prop::option::of((0u64..100_000_000_000).prop_map(Duration::from_nanos));
    prop::option::of((n(), n(), span(), span()).prop_map(|(limit, remaining, window, reset)| Quota {
        limit,
        window,
        remaining,
        reset,
        reset_step: Duration::from_secs(1),
    }))
}

proptest! {
    /// Under any answers: never before a hint, never more out than the cap, and never shut for
    /// ever: when the server accepts again, calls flow again.
    #[test]
    fn the_promises_of_a_limiter(
        steps in prop::collection::vec((0u64..500_000_000, 0u8..8, 0u64..5_000_000_000, any_quota()), 1..200),
        max in 1u32..40,
    ) {
        let mut l = Limiter::new(&LimitConfig { in_flight_max: max, ..LimitConfig::default() });
        let (mut now, mut gate, mut out) = (at(1.0), Mono::ZERO, alloc::vec::Vec::new());
        for (gap, what, wait, quota) in steps {
            now += Duration::from_nanos(gap);
            if what < 4 {
                match l.admit(now) {
                    LimiterAdmit::Go(ticket) => {
                        prop_assert!(now >= gate);
                        out.push(ticket);
                        prop_assert!(out.len() as u32 <= max);
                    }
                    LimiterAdmit::At(t) => prop_assert!(t > now),
                    LimiterAdmit::Full => prop_assert!(!out.is_empty()),
                }
            } else if let Some(ticket) = out.pop() {
                let until = (wait % 3 == 0).then(|| now + Duration::from_nanos(wait));
                let hints = Hints { quotas: [quota, None, None, None], ..Hints::default() };
                match what {
                    4 => l.release(ticket, now),
                    5 => l.settle(ticket, now, Feedback::Accepted, &hints),
                    6 => l.settle(ticket, now, Feedback::Throttled { until }, &hints),
                    _ => l.settle(ticket, now, Feedback::Failed { until }, &hints),
                }
                if what >= 6 {
                    gate = gate.max(until.unwrap_or(Mono::ZERO));
                }
                let spent = quota.filter(|q| what > 4 && q.limit.is_none() && q.remaining == Some(0));
                gate = gate.max(spent.and_then(|q| q.reset).map_or(Mono::ZERO, |reset| now + reset));
            }
        }
        for ticket in out {
            l.settle(ticket, now, Feedback::Accepted, &Hints::default());
        }
        let mut accepted = 0;
        for _ in 0..200 {
            match l.admit(now) {
                LimiterAdmit::Go(ticket) => {
                    accepted += 1;
                    l.settle(ticket, now, Feedback::Accepted, &Hints::default());
                }
                LimiterAdmit::At(t) => {
                    prop_assert!(t > now);
                    now = t;
                }
                LimiterAdmit::Full => prop_assert!(false, "full with nothing out"),
            }
        }
        prop_assert!(accepted >= 20, "{accepted}");
    }
}

/// A server that refuses by `refuse(call number, seconds since the last accepted call)`; what got through
/// per second in the second half of the run, and the share refused there.
fn steady(seconds: f64, rtt: f64, mut refuse: impl FnMut(u64, f64) -> bool) -> (f64, f64) {
    let mut l = Limiter::new(&LimitConfig::default());
    let (mut now, mut n, mut last) = (0.0, 0u64, -1.0);
    let mut out: alloc::collections::VecDeque<(f64, Ticket, bool)> = alloc::collections::VecDeque::new();
    let (mut accepted, mut refused) = (0u32, 0u32);
    while now < seconds {
        let wake = match l.admit(at(now)) {
            LimiterAdmit::Go(ticket) => {
                n += 1;
                let no = refuse(n, now - last);
                last = if no { last } else { now };
                out.push_back((now + rtt, ticket, no));
                continue;
            }
            LimiterAdmit::At(t) => t.as_secs_f64().max(now + 1e-9),
            LimiterAdmit::Full => f64::INFINITY,
        };
        match out.front() {
            Some(front) if front.0 <= wake => {
                let Some((back, ticket, no)) = out.pop_front() else { break };
                now = back;
                if now > seconds / 2.0 {
                    accepted += u32::from(!no);
                    refused += u32::from(no);
                }
                let seen = if no { Feedback::Throttled { until: None } } else { Feedback::Accepted };
                l.settle(ticket, at(now), seen, &Hints::default());
            }
            _ => now = wake,
        }
    }
    (f64::from(accepted) / (seconds / 2.0), f64::from(refused) / f64::from(accepted + refused).max(1.0))
}

#[test]
fn refusals_at_random_do_not_bring_the_lane_to_a_standstill() {
    // 64 calls at once of 20 ms could be 3,200 a second.
    for noise in [0.01, 0.05, 0.1, 0.2] {
        let mut rng = crate::Rng::new(11);
        let (rate, share) = steady(240.0, 0.02, |_, _| crate::Chance::unit(&mut rng) < noise);
        assert!(rate > 1500.0, "{noise}: {rate}");
        assert!((0.5 * noise..1.5 * noise).contains(&share), "{noise}: {share}");
    }
}

/// A pace that is far too low is no trap: without refusals it goes on growing.
#[test]
fn a_limit_that_rises_a_hundredfold_is_followed() {
    let mut l = Limiter::new(&LimitConfig::default());
    let (mut level, mut last, mut now) = (1.0, 0.0, 0.0);
    let (mut risen, mut done) = (None, 0);
    while now < 2000.0 {
        match l.admit(at(now)) {
            LimiterAdmit::At(t) => now = t.as_secs_f64().max(now + 1e-9),
            LimiterAdmit::Full => panic!("one call at a time is never too many"),
            LimiterAdmit::Go(ticket) => {
                let rate = if now < 200.0 { 2.0 } else { 200.0 };
                level = f64::min(1.0, level + (now - last) * rate);
                last = now;
                now += 0.001;
                let seen =
                    if level >= 0.999 { Feedback::Accepted } else { Feedback::Throttled { until: None } };
                level -= f64::from(u8::from(seen == Feedback::Accepted));
                l.settle(ticket, at(now), seen, &Hints::default());
                done += u32::from(now >= 200.0);
                if now > 200.0 && l.rate().is_some_and(|rate| rate > 150.0) {
                    risen.get_or_insert((now, done));
                }
            }
        }
    }
    let (when, calls) = risen.expect("the pace rose");
    assert!(calls < 1500, "after {calls} calls, at {when} s");
}

#[test]
fn a_bucket_of_one_token_is_followed_at_its_interval() {
    let (rate, share) = steady(60.0, 0.005, |_, gap| gap < 0.0499);
    assert!((19.0..=20.1).contains(&rate), "{rate}");
    assert!(share < 0.02, "{share}");
}

/// A server's answer: what comes back, and after how many seconds.
struct TestAnswer {
    seen: Feedback,
    after: f64,
}

/// How a drain went.
#[derive(Debug)]
struct TestDrain {
    /// Seconds until the last call was done.
    took: f64,
    /// Calls that were not accepted.
    refused: u32,
}

/// Drains `calls` calls, at most 64 at once, from a server that is asked with the time and gives an answer.
fn drain_with(l: &mut Limiter, calls: u32, mut server: impl FnMut(f64) -> TestAnswer) -> TestDrain {
    let (mut now, mut waiting, mut done, mut refused) = (0.0, calls, 0, 0);
    let mut out: alloc::vec::Vec<(f64, Ticket, Feedback)> = alloc::vec::Vec::new();
    while done < calls && now < 1000.0 {
        let mut wake = f64::INFINITY;
        while waiting > 0 && out.len() < 64 {
            match l.admit(at(now)) {
                LimiterAdmit::Go(ticket) => {
                    let answer = server(now);
                    out.push((now + answer.after, ticket, answer.seen));
                    waiting -= 1;
                }
                LimiterAdmit::At(t) => {
                    wake = t.as_secs_f64().max(now + 1e-9);
                    break;
                }
                LimiterAdmit::Full => break,
            }
        }
        let next = (0..out.len()).min_by(|a, b| out[*a].0.total_cmp(&out[*b].0));
        match next {
            Some(i) if out[i].0 <= wake => {
                let (at_time, ticket, seen) = out.swap_remove(i);
                now = at_time;
                let accepted = seen == Feedback::Accepted;
                (done, refused) = (done + u32::from(accepted), refused + u32::from(!accepted));
                waiting += u32::from(!accepted);
                l.settle(ticket, at(now), seen, &Hints::default());
            }
            _ => now = wake,
        }
    }
    TestDrain { took: now, refused }
}

/// A bucket that answers a call that it takes after 20 ms, and any other at once with `no`.
fn bucket(rate: f64, burst: f64, no: Feedback) -> impl FnMut(f64) -> TestAnswer {
    let (mut level, mut last) = (burst, 0.0);
    move |now| {
        level = f64::min(burst, level + (now - last) * rate);
        last = now;
        if level < 1.0 {
            return TestAnswer { seen: no, after: 0.001 };
        }
        level -= 1.0;
        TestAnswer { seen: Feedback::Accepted, after: 0.021 }
    }
}

const FAILED: Feedback = Feedback::Failed { until: None };
const THROTTLED: Feedback = Feedback::Throttled { until: None };

#[test]
fn a_limit_that_says_503_is_found_like_one_that_says_429() {
    for burst in [1.0, 21.0] {
        let mut l = Limiter::new(&LimitConfig::default());
        let drained = drain_with(&mut l, 2000, bucket(100.0, burst, FAILED));
        assert!(drained.took < 23.0 && drained.refused < 80, "burst {burst}: {drained:?}");
        assert!(l.failures_are_limit(), "burst {burst}");
        let belief = l.belief();
        assert!(belief.by_failures && belief.rate.is_some_and(|r| (95.0..105.0).contains(&r)), "{belief}");
    }
}

#[test]
fn calls_at_once_that_fail_with_503_are_a_ceiling() {
    let mut l = Limiter::new(&LimitConfig::default());
    let mut ends: alloc::vec::Vec<f64> = alloc::vec::Vec::new();
    let drained = drain_with(&mut l, 2000, move |now| {
        ends.retain(|end| *end > now);
        if ends.len() >= 8 {
            return TestAnswer { seen: FAILED, after: 0.001 };
        }
        ends.push(now + 0.02);
        TestAnswer { seen: Feedback::Accepted, after: 0.021 }
    });
    assert!(drained.took < 6.5 && drained.refused < 60, "{drained:?}");
    assert_eq!(l.belief().kind, BelievedKind::Concurrency);
}

#[test]
fn failures_at_random_are_not_taken_for_a_limit() {
    // 64 at once of 20 ms are 3,200 a second, 6.25 s. Of a tenth, three in a row are an outage now and then.
    for (share, most) in [(0.02, 7.0), (0.1, 64.0)] {
        let (mut l, mut rng) = (Limiter::new(&LimitConfig::default()), crate::Rng::new(4));
        let drained = drain_with(&mut l, 20_000, |_| {
            let seen = if crate::Chance::unit(&mut rng) < share { FAILED } else { Feedback::Accepted };
            TestAnswer { seen, after: 0.02 }
        });
        assert!(drained.took < most, "{share}: {drained:?}");
    }
}

#[test]
fn an_open_server_after_ten_seconds_of_refusals_is_used_at_once() {
    let mut l = Limiter::new(&LimitConfig::default());
    let drained = drain_with(&mut l, 300, |now| {
        let seen = if now < 10.0 { THROTTLED } else { Feedback::Accepted };
        TestAnswer { seen, after: 0.02 }
    });
    assert!(drained.took < 16.5 && drained.refused < 40, "{drained:?}");
}

#[test]
fn what_is_not_explained_is_left_to_the_backoff_of_the_record() {
    let mut l = Limiter::new(&LimitConfig::default());
    let ticket = go(&mut l, at(0.0));
    l.settle(ticket, at(0.1), THROTTLED, &Hints::default());
    assert!(!l.explains_refusal(at(0.1)), "nothing was ever accepted");
    let mut l = Limiter::new(&LimitConfig::default());
    drain_with(&mut l, 500, bucket(50.0, 5.0, THROTTLED));
    assert!(l.explains_refusal(at(11.0)), "the limit is known");
}

#[test]
fn what_a_server_saved_during_a_stall_is_used_after_it() {
    // A bucket of 50/s that holds 25; the client stands still for 0.4 s every 3 s.
    let mut l = Limiter::new(&LimitConfig::default());
    let mut server = bucket(50.0, 25.0, THROTTLED);
    let (mut now, mut sent, mut refused) = (0.0f64, 0u32, 0u32);
    let mut out: alloc::collections::VecDeque<(f64, Ticket, Feedback)> = alloc::collections::VecDeque::new();
    let awake = |t: f64| if t % 3.0 < 0.4 { t - t % 3.0 + 0.4 } else { t };
    while sent - refused < 1000 {
        now = awake(now);
        let wake = match l.admit(at(now)) {
            LimiterAdmit::Go(ticket) => {
                let answer = server(now);
                sent += 1;
                refused += u32::from(answer.seen != Feedback::Accepted);
                out.push_back((now + 0.021, ticket, answer.seen));
                continue;
            }
            LimiterAdmit::At(t) => t.as_secs_f64().max(now + 1e-9),
            LimiterAdmit::Full => f64::INFINITY,
        };
        match out.front() {
            Some(front) if front.0 <= wake => {
                let Some((back, ticket, seen)) = out.pop_front() else { break };
                now = awake(back.max(now));
                l.settle(ticket, at(now), seen, &Hints::default());
            }
            _ => now = wake,
        }
    }
    // (1000 - 25) / 50 is 19.5 s: what is earned in 0.4 s fits into the bucket.
    assert!(now < 19.5 * 1.1, "{now}");
    assert!(refused < 40, "{refused}");
}

/// A lane that sends one call after the other: each answer comes after a silence, which is no stall for good.
#[test]
fn the_round_trip_follows_a_server_that_becomes_slow_and_not_a_stall() {
    let mut l = Limiter::new(&LimitConfig::default());
    let mut now = 0.0;
    let mut one = |l: &mut Limiter, took: f64| {
        let ticket = go(l, at(now));
        now += took;
        l.settle(ticket, at(now), Feedback::Accepted, &Hints::default());
        l.round_trip
    };
    (0..50).for_each(|_| _ = one(&mut l, 0.02));
    assert!(one(&mut l, 0.5) < 0.03, "a stall is one call of many");
    let slow = (0..60).position(|_| one(&mut l, 0.5) > 0.125);
    assert!(slow.is_some_and(|calls| calls < 30), "{slow:?}");
    (0..30).for_each(|_| _ = one(&mut l, 0.5));
    assert!(l.round_trip > 0.4, "{}", l.round_trip);

    // Of all calls that wait in one stall, one counts.
    let mut l = Limiter::new(&LimitConfig::default());
    let mut flight = |sent: f64, took: f64| {
        let all = core::iter::from_fn(|| match l.admit(at(sent)) {
            LimiterAdmit::Go(ticket) => Some(ticket),
            _ => None,
        });
        let out: alloc::vec::Vec<_> = all.collect();
        let calls = out.len();
        for ticket in out {
            l.settle(ticket, at(sent + took), Feedback::Accepted, &Hints::default());
        }
        (calls, l.round_trip)
    };
    (0..20).for_each(|i| _ = flight(f64::from(i), 0.02));
    let (calls, round_trip) = flight(100.0, 0.6);
    assert!(calls >= 30 && round_trip < 0.03, "{calls}, {round_trip}");
}

/// A call that does not come back for minutes: the answers of all others are no end of a stall.
#[test]
fn a_call_that_hangs_makes_no_stall_of_the_answers_beside_it() {
    let mut l = Limiter::new(&LimitConfig::default());
    let stalled = |l: &mut Limiter, now: f64, took: f64| {
        let ticket = go(l, at(now));
        let before = l.stall;
        l.settle(ticket, at(now + took), Feedback::Accepted, &Hints::default());
        l.stall != before
    };
    assert!((0..20).all(|i| !stalled(&mut l, f64::from(i), 0.02)));
    let hangs = go(&mut l, at(20.0));
    let stalls = (21..200).filter(|i| stalled(&mut l, f64::from(*i), 0.02)).count();
    assert_eq!(stalls, 1, "the first answer after it came late");
    assert!(stalled(&mut l, 200.0, 0.5), "that is one");
    l.release(hangs, at(201.0));
}
