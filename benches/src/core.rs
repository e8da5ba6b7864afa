//! Nanoseconds and allocations per decision of the core.
//!
//! Each figure is the median of eleven rounds of a million decisions, in CPU time of this thread,
//! so that a busy machine changes it little. The targets stand beside the figures.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Duration;
use tidegate_core::breaker::{Breaker, BreakerConfig, CallHealth};
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::hint::{HintProfile, Hints, read};
use tidegate_core::lane::{Admit, Lane, LaneConfig};
use tidegate_core::retry::{Backoff, Budget, BudgetConfig, Jitter};
use tidegate_core::{Code, Mono, Rng, Verdict, VerdictKind, Wall};

#[path = "../../crates/core/tests/counting/mod.rs"]
mod counting;

use counting::allocations;

const PER_ROUND: u32 = 1_000_000;

fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn measure(what: &str, target: &str, mut one: impl FnMut(u32)) {
    let mut rounds: Vec<f64> = Vec::with_capacity(16);
    one(0);
    let before = allocations();
    let mut read = 0;
    for _ in 0..11 {
        let from_allocs = allocations();
        let from = cpu_nanos();
        let mid_allocs = allocations();
        for i in 0..PER_ROUND {
            one(i);
        }
        let to_allocs = allocations();
        let to = cpu_nanos();
        rounds.push((to - from) as f64 / f64::from(PER_ROUND));
        read += (mid_allocs - from_allocs) + (allocations() - to_allocs);
    }
    let made = allocations() - before - read;
    rounds.sort_by(f64::total_cmp);
    println!(
        "{what:<36} {:>8.1} ns  {:>10}  {:>6.2} allocations",
        rounds[5],
        target,
        made as f64 / (11.0 * f64::from(PER_ROUND))
    );
}

type Headers = &'static [(&'static str, &'static str)];

/// Responses as they come: a name, a target and the headers.
const HEADERS: [(&str, &str, Headers); 5] = [
    ("hints, 8 ordinary headers", "≤ 100 ns", ORDINARY),
    ("hints, Retry-After", "", &[("Retry-After", "120")]),
    (
        "hints, Retry-After and Date",
        "",
        &[("Date", "Sun, 15 Nov 2026 05:00:00 GMT"), ("Retry-After", "Sun, 15 Nov 2026 05:02:00 GMT")],
    ),
    (
        "hints, X-RateLimit triple",
        "",
        &[("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "59"), ("X-RateLimit-Reset", "1794718830")],
    ),
    (
        "hints, IETF pair",
        "",
        &[("RateLimit-Policy", "\"default\";q=100;w=60"), ("RateLimit", "\"default\";r=50;t=30")],
    ),
];

const ORDINARY: Headers = &[
    ("date", "Sun, 15 Nov 2026 05:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "48213"),
    ("cache-control", "no-store"),
    ("vary", "Accept-Encoding"),
    ("x-request-id", "5f3c2b1a-0d4e-4c8b-9a7f-1e2d3c4b5a69"),
    ("x-frame-options", "DENY"),
    ("server", "nginx"),
];

/// One call through a lane: asked until it may go, at the times that the lane names, and settled
/// 5 ms later.
fn through(lane: &mut Lane, now: &mut Mono, verdict: &Verdict, hints: &Hints) {
    *now += Duration::from_millis(10);
    loop {
        match lane.admit(*now) {
            Admit::Go(permit) => {
                *now += Duration::from_millis(5);
                return lane.settle(permit, verdict, hints, *now);
            }
            Admit::Wait(until) | Admit::Shut(until, _) => *now = until.max(*now + Duration::from_nanos(1)),
            Admit::Full => return,
        }
    }
}

fn main() {
    println!("{:<36} {:>11}  {:>10}  {:>6}", "decision", "median", "target", "per decision");
    let ms = Duration::from_millis;
    let additive = Jitter::Additive { min: ms(1), max: ms(50) };
    let proportional = Jitter::Proportional { share: 0.25 };
    for jitter in [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated, additive, proportional] {
        let backoff = Backoff::new(ms(100), 2.0, ms(60_000), jitter);
        let mut rng = Rng::new(1);
        let name = format!("{jitter:?}").to_lowercase();
        let name = name.split([' ', '{']).next().unwrap_or_default();
        measure(&format!("backoff, {name}"), "≤ 20 ns", |i| {
            black_box(backoff.delay_nanos(black_box(i & 15), 1_000_000, &mut rng));
        });
    }

    let mut lane = Lane::new(&LaneConfig::default());
    let mut now = Mono::ZERO;
    measure("lane admit + settle, accepted", "≤ 150 ns", |_| {
        through(&mut lane, &mut now, &Verdict::DONE, &Hints::default());
    });

    let throttled =
        Verdict { kind: VerdictKind::Throttled { until: None }, code: Code::RATE_LIMITED, status: Some(429) };
    let mut lane = Lane::new(&LaneConfig::default());
    measure("lane admit + settle, 1 in 100 a 429", "≤ 150 ns", |i| {
        let verdict = if i % 100 == 0 { &throttled } else { &Verdict::DONE };
        through(&mut lane, &mut now, verdict, &Hints::default());
    });
    let told = [("RateLimit-Policy", "\"default\";q=100;w=1"), ("RateLimit", "\"default\";r=50;t=1")];
    let told = read(told, Wall::from_secs(0), &HintProfile::default());
    let mut lane = Lane::new(&LaneConfig::default());
    measure("lane admit + settle, told a quota", "≤ 150 ns", |_| {
        through(&mut lane, &mut now, &Verdict::DONE, &told);
    });

    let mut breaker = Breaker::new(&BreakerConfig::default());
    measure("breaker pass + settle", "", |i| {
        let t = Mono::from_nanos(u64::from(i) * 1_000_000);
        let pass = breaker.pass(t);
        black_box(breaker.settle(pass, CallHealth::Good, Duration::ZERO, t));
    });

    let failed = Verdict { kind: VerdictKind::Transient { until: None }, code: Code::TIMEOUT, status: None };
    let policy = CallPolicy { history: false, ..CallPolicy::default() };
    let mut budget = Budget::new(&BudgetConfig { floor_per_second: 1e9, ..BudgetConfig::default() });
    let mut rng = Rng::new(2);
    measure("call, retry decided", "", |i| {
        let t = Mono::from_nanos(u64::from(i) * 1_000_000);
        let mut call = Call::new();
        call.send(&policy, t);
        black_box(call.next(&policy, &failed, t, &mut rng, &mut budget));
    });

    for (what, target, headers) in HEADERS {
        let (wall, profile) = (Wall::from_secs(1_794_718_800), HintProfile::default());
        measure(what, target, |_| {
            black_box(read(black_box(headers).iter().copied(), wall, &profile));
        });
    }
}
