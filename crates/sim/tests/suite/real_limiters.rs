//! What real proxies and machines do, in virtual time: bounds that must hold. What is better passes,
//! what is worse fails; a bound is loosened by hand, with a reason.
//!
//! The whole table is printed by `bench-limiter --real`, and that of the drawn families by
//! `bench-limiter --random`.

use tidegate_sim::drain::pause::{PauseOf, Pauses};
use tidegate_sim::drain::{DrainOutcome, DrainWorld, ServerHints};
use tidegate_sim::family::ServerFamily;
use tidegate_sim::limiter::drain_shipped;
use tidegate_sim::real_limiter::{REQUESTS, RealLimiter, TIMER_LATE, drain_lanes};
use tidegate_sim::server::ServerLimit;

/// Runs of each row.
const SEEDS: core::ops::RangeInclusive<u64> = 1..=5;

/// The worst of the seeds: times the least time, and refused calls in per cent. Nothing is lost.
fn worst(limiter: RealLimiter, status: u16, pauses: Option<PauseOf>, clients: usize) -> (f64, f64) {
    let runs = SEEDS.map(|seed| {
        let world = DrainWorld { pauses: pauses.map(Pauses::usual), ..limiter.world(status) };
        let outs = drain_lanes(&world, clients, seed);
        assert!(outs.iter().all(|out| out.left == 0), "{limiter:?} {status} {pauses:?} {seed}: {outs:?}");
        let finish = outs.iter().map(|out| out.finish).fold(0.0, f64::max);
        let calls: u64 = outs.iter().map(|out| out.calls).sum();
        let refused: u64 = outs.iter().map(|out| out.refused).sum();
        (finish / outs[0].earliest, 100.0 * refused as f64 / calls as f64)
    });
    runs.fold((0.0, 0.0), |worst, run| (run.0.max(worst.0), run.1.max(worst.1)))
}

/// One client does all rows, in so many times the least time.
#[track_caller]
fn assert_within(times_max: f64, world: &DrainWorld, seed: u64) {
    let out = drain_lanes(world, 1, seed)[0];
    assert!(out.left == 0 && out.finish <= times_max * out.earliest, "seed {seed}: {out:?} of {world:?}");
}

#[test]
fn a_client_alone_needs_hardly_more_than_the_least_time() {
    for limiter in RealLimiter::ALL {
        for &status in limiter.statuses() {
            let (times, refused) = worst(limiter, status, None, 1);
            let (times_max, refused_max) = match limiter {
                RealLimiter::RequestsStrict => (1.05, 2.0),
                RealLimiter::Connections => (1.10, 1.3),
                RealLimiter::Tarpit => (1.05, 2.0),
                RealLimiter::StickTable | RealLimiter::StickTableLong => (1.03, 1.6),
                RealLimiter::RequestsBurst | RealLimiter::RequestsDelay => (1.05, 2.0),
            };
            let row = format!("{}, {status}: {times:.3} x, {refused:.2} %", limiter.name());
            assert!(times <= times_max && refused <= refused_max, "{row}");
        }
    }
}

/// A bucket of one token loses what a timer is late, and refuses the call after a late one if that comes on time.
#[test]
fn late_timers_cost_little() {
    for limiter in RealLimiter::ALL {
        for (late, times_max) in [(TIMER_LATE, 1.12), (3.0 * TIMER_LATE, 1.13)] {
            for &status in limiter.statuses() {
                let world = DrainWorld { timer_late: late, ..limiter.world(status) };
                for seed in SEEDS {
                    let out = drain_lanes(&world, 1, seed)[0];
                    let times = out.finish / out.earliest;
                    let ok = out.left == 0 && times <= times_max && out.refused_percent() <= 2.8;
                    assert!(ok, "{}, {status}, {seed}: {times:.3} x, {out:?}", limiter.name());
                }
            }
        }
    }
}

#[test]
fn pauses_of_the_client_cost_little() {
    for (limiter, status, times_max) in [
        (RealLimiter::RequestsBurst, 429, 1.10),
        (RealLimiter::RequestsBurst, 503, 1.10),
        (RealLimiter::RequestsDelay, 429, 1.10),
        (RealLimiter::RequestsStrict, 503, 1.12),
        (RealLimiter::StickTableLong, 429, 1.10),
        (RealLimiter::Tarpit, 429, 1.20),
        (RealLimiter::Tarpit, 500, 1.20),
    ] {
        let (times, refused) = worst(limiter, status, Some(PauseOf::Client), 1);
        assert!(times <= times_max, "{}, {status}: {times:.3} x, {refused:.2} %", limiter.name());
    }
}

/// Ways and timers that vary by a millisecond. One run in a thousand took a limit for another and needed 2 to 44 times
/// the least time: a bucket of one token was taken for one call at once, and where calls at once were taken for
/// random failures, the breaker opened for half a minute.
#[test]
fn limits_are_not_mistaken_where_ways_and_timers_vary() {
    for (limiter, status, times_max) in [
        (RealLimiter::RequestsStrict, 429, 1.20),
        (RealLimiter::RequestsStrict, 503, 1.20),
        (RealLimiter::Connections, 429, 1.22),
        (RealLimiter::Connections, 503, 1.22),
    ] {
        for (jitter, timer_late) in [(0.2, TIMER_LATE), (0.2, 0.000_5), (1.0, 0.0), (1.0, 0.000_5)] {
            for seed in (1..=20).chain([67, 240, 387, 391, 406, 647, 751]) {
                let world = DrainWorld { jitter, timer_late, workers: 256, ..limiter.world(status) };
                assert_within(times_max, &world, seed);
            }
        }
    }
}

/// What waited while the server stood still is refused at its end, and teaches nothing: it took up to nine times the
/// least time when it did.
#[test]
fn pauses_of_the_server_cost_little() {
    for (limiter, status, times_max) in [
        (RealLimiter::RequestsStrict, 429, 1.14),
        (RealLimiter::RequestsStrict, 503, 1.08),
        (RealLimiter::Tarpit, 429, 1.20),
        (RealLimiter::Tarpit, 500, 1.20),
    ] {
        let (times, refused) = worst(limiter, status, Some(PauseOf::Server), 1);
        assert!(times <= times_max, "{}, {status}: {times:.3} x, {refused:.2} %", limiter.name());
    }
}

/// Pauses at the worst moment. Within the first hundred calls, the round trip was taken for half a second, and a tarpit
/// went unnoticed for its three seconds (seed 36: 3 to 6 times the least time). What went at once after a pause was
/// refused, and yet the burst was believed to be larger (nginx without a burst, client: 3.3 times). Short pauses of the
/// server made its limit seem ever lower (server, seed 407: 5.4 times). And once refusals had been taken for random
/// ones, they were taken for those of an outage (503, seed 31: 2.5 times).
#[test]
fn no_pause_teaches_what_is_wrong() {
    for (limiter, status, times_max) in [
        (RealLimiter::Tarpit, 429, 1.2),
        (RealLimiter::RequestsStrict, 429, 1.3),
        (RealLimiter::RequestsBurst, 503, 1.2),
    ] {
        for of in [PauseOf::Client, PauseOf::Server, PauseOf::Both] {
            for seed in (1..=40).chain([407]) {
                let world = DrainWorld { pauses: Some(Pauses::usual(of)), ..limiter.world(status) };
                assert_within(times_max, &world, seed);
            }
        }
    }
}

/// Runs of 100 s in which a pause came at a bad moment. A probe that waited for nothing went on for ever (1.96 times
/// the least time), and a server that was closed for a moment was taken for one that refuses at random and almost all
/// (5.2 and 12.8 times).
#[test]
fn no_pause_slows_a_lane_for_good() {
    for (limiter, of, times_max) in [
        (RealLimiter::RequestsStrict, PauseOf::Server, 1.1),
        (RealLimiter::RequestsStrict, PauseOf::Both, 1.1),
        (RealLimiter::StickTable, PauseOf::Server, 1.4),
        (RealLimiter::StickTable, PauseOf::Both, 1.3),
    ] {
        for seed in [9, 12].into_iter().chain(101..=112) {
            let pauses = Some(Pauses::usual(of));
            let world = DrainWorld { pauses, requests: 5 * REQUESTS, ..limiter.world(429) };
            assert_within(times_max, &world, seed);
        }
    }
}

#[test]
fn two_clients_share_what_counts_refused_calls_too() {
    for limiter in [RealLimiter::StickTable, RealLimiter::Tarpit] {
        let (times, refused) = worst(limiter, 429, None, 2);
        assert!(times <= 1.15 && refused <= 3.0, "{}: {times:.3} x, {refused:.2} %", limiter.name());
    }
}

/// A limit of calls at once whose refusals ask for a wait, over a minute's work. Each refusal costs the
/// whole lane that wait, so a longer one costs more.
#[test]
fn calls_at_once_are_learned_from_few_refusals_with_a_wait() {
    for (seconds, utilisation_min, utilisation_min_32) in [(1, 85.5, 85.5), (2, 84.0, 79.0), (5, 81.0, 71.0)]
    {
        for service in [0.02, 0.1, 0.5] {
            for limit in [2_u32, 4, 8, 16, 32] {
                let world = DrainWorld {
                    limit: ServerLimit::Concurrency { limit: limit as usize },
                    requests: (60.0 * f64::from(limit) / service) as u64,
                    service,
                    tells: ServerHints::FixedRetryAfter(seconds),
                    ..RealLimiter::Connections.world(429)
                };
                for seed in SEEDS {
                    let out = drain_lanes(&world, 1, seed)[0];
                    let row =
                        format!("{limit} calls of {service} s, Retry-After: {seconds}, {seed}: {out:?}");
                    assert!(out.left == 0 && out.early == 0, "{row}");
                    let least = if limit == 32 { utilisation_min_32 } else { utilisation_min };
                    assert!(out.utilisation() >= least, "{:.1} % of {row}", out.utilisation());
                }
            }
        }
    }
}

/// The same far away, where an answer takes its time by chance: what was accepted between two waits is a lower bound
/// of the rate. Without that, a tenth of the limit was used.
#[test]
fn what_was_accepted_between_two_long_waits_is_not_forgotten() {
    for (limit, seconds, utilisation_min) in [(8, 2, 38.0), (32, 2, 35.5), (16, 5, 31.5), (32, 5, 31.5)] {
        let service = 0.065;
        let world = DrainWorld {
            limit: ServerLimit::Concurrency { limit },
            requests: (60.0 * limit as f64 / service) as u64,
            service,
            rtt: 0.04,
            tells: ServerHints::FixedRetryAfter(seconds),
            ..RealLimiter::Connections.world(429)
        };
        for seed in SEEDS {
            let out = drain_lanes(&world, 1, seed)[0];
            assert!(out.left == 0 && out.early == 0, "{limit}, {seconds} s, {seed}: {out:?}");
            assert!(out.utilisation() >= utilisation_min, "{limit}, {seconds} s, {seed}: {out:?}");
        }
    }
}

/// A limit of calls at once where the way takes time: a place is taken before its call is back, so less is lost
/// than the way (10, 15 and 20 % here).
#[test]
fn places_are_taken_before_their_calls_are_back() {
    for (rtt, times_max) in [(0.002, 1.10), (0.003, 1.12), (0.004, 1.14)] {
        for &status in RealLimiter::Connections.statuses() {
            let world = DrainWorld { rtt, jitter: 0.05, ..RealLimiter::Connections.world(status) };
            let runs: Vec<DrainOutcome> = SEEDS.map(|seed| drain_lanes(&world, 1, seed)[0]).collect();
            let mean =
                |value: fn(&DrainOutcome) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
            let (times, refused) =
                (mean(|out| out.finish / out.earliest), mean(DrainOutcome::refused_percent));
            assert!(times <= times_max && refused <= 1.4, "{rtt} s, {status}: {times:.3} x, {refused:.2} %");
        }
    }
}

/// A server that refuses everything at first says nothing about its limit: the lane comes back at once.
#[test]
fn a_server_that_opens_late_is_used_soon() {
    let opens = |at: f64| ServerLimit::Steps(vec![(0.0, ServerLimit::Closed), (at, ServerLimit::Open)]);
    let world = DrainWorld { service: 0.06, ..RealLimiter::RequestsBurst.world(429) };
    for seed in SEEDS {
        // An exponential handler needs 23 s.
        let silent = DrainWorld { limit: opens(10.0), requests: 300, ..world.clone() };
        let out = drain_lanes(&silent, 1, seed)[0];
        assert!(out.left == 0 && out.finish <= 17.0 && out.refused <= 25, "{seed}: {out:?}");
        let tells = ServerHints::FixedRetryAfter(5);
        let hinted = DrainWorld { limit: opens(0.01), requests: 50, tells, ..world.clone() };
        let out = drain_lanes(&hinted, 1, seed)[0];
        assert!(out.left == 0 && out.finish <= 5.5 && out.early == 0, "{seed}: {out:?}");
    }
}

/// Calls are refused at random, and each refusal asks for a wait of a second. The wait is kept, but many calls share
/// one. A client in which each worker waits alone needs 7 s for these 300 rows where a tenth is refused.
#[test]
fn random_refusals_with_a_wait_are_waited_for_together() {
    for (share, median, nine_of_ten, worst) in
        [(0.05, 9.1, 12.0, 66.0), (0.1, 9.1, 11.5, 35.0), (0.2, 11.0, 14.0, 75.0)]
    {
        let mut times: Vec<f64> = (52_001..52_201)
            .map(|seed| {
                let world = DrainWorld {
                    limit: ServerLimit::Random { share, seed },
                    requests: 300,
                    service: 0.06,
                    tells: ServerHints::FixedRetryAfter(1),
                    ..RealLimiter::RequestsBurst.world(429)
                };
                let out = drain_lanes(&world, 1, seed)[0];
                let refused_max = 100.0 * (share + 4.0 * (share * (1.0 - share) / 300.0).sqrt());
                let few = out.refused_percent() <= refused_max;
                assert!(out.left == 0 && out.early == 0 && few, "{share}, {seed}: {out:?}");
                out.finish
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let got = [times[100], times[180], times[199]];
        assert!(got[0] <= median && got[1] <= nine_of_ten && got[2] <= worst, "{share}: {got:.1?}");
    }
}

/// Calls are refused at random, and nothing tells why: once that is known, the lane goes as fast as before. Of 100 runs
/// with a fifth refused, nine were not done after three hundred times the least time.
#[test]
fn random_refusals_do_not_slow_a_lane_for_good() {
    for (status, share, [median, nine_of_ten, worst]) in [
        (429, 0.1, [5.0, 9.0, 30.0]),
        (429, 0.2, [5.0, 9.0, 40.0]),
        (429, 0.3, [6.5, 18.0, 250.0]),
        (503, 0.1, [5.0, 9.0, 30.0]),
        (503, 0.2, [4.5, 8.0, 20.0]),
        (503, 0.3, [5.5, 10.0, 60.0]),
    ] {
        let mut times: Vec<f64> = (61_001..61_101)
            .map(|seed| {
                let limit = ServerLimit::Random { share, seed };
                let out =
                    drain_lanes(&DrainWorld { limit, ..RealLimiter::RequestsBurst.world(status) }, 1, seed)
                        [0];
                assert_eq!(out.left, 0, "{status}, {share}, {seed}: {out:?}");
                out.finish / out.earliest
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let got = [times[50], times[90], times[99]];
        assert!(got[0] <= median && got[1] <= nine_of_ten && got[2] <= worst, "{status}, {share}: {got:.1?}");
    }
}

/// Utilisation and share of refused calls of so many drawn servers, in per cent, each sorted.
fn drawn(family: ServerFamily, worlds: u64) -> [Vec<f64>; 2] {
    let runs: Vec<DrainOutcome> =
        (0..worlds).map(|n| drain_shipped(&family.world(9091, n, ServerHints::Nothing), n)).collect();
    let sorted = |value: fn(&DrainOutcome) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    [sorted(DrainOutcome::utilisation), sorted(DrainOutcome::refused_percent)]
}

#[test]
fn servers_drawn_at_random_stay_within_bounds() {
    for (family, [median, lowest, refused, highest]) in [
        (ServerFamily::Leaky, [99.0, 93.0, 1.0, 2.5]),
        (ServerFamily::StickTable, [97.5, 62.0, 1.2, 2.6]),
        (ServerFamily::Tarpit, [69.0, 52.8, 3.1, 38.5]),
        (ServerFamily::Unavailable, [96.5, 88.0, 0.8, 1.8]),
    ] {
        let [done, share] = drawn(family, 12);
        let got = [done[6], done[0], share[6], share[11]];
        let ok = got[0] >= median && got[1] >= lowest && got[2] <= refused && got[3] <= highest;
        assert!(ok, "{family:?}: {got:.2?}");
    }
}

/// When a pause comes is a matter of luck: one server of these is used 80 % in the median of 200
/// seeds, and 62 % with one of them. So the worst quarter of more servers is bounded.
#[test]
fn servers_drawn_at_random_that_stall_stay_within_bounds() {
    let [done, share] = drawn(ServerFamily::Paused, 48);
    let got = [done[24], done[12], share[24], share[36]];
    let ok = got[0] >= 99.1 && got[1] >= 95.0 && got[2] <= 1.3 && got[3] <= 2.25;
    assert!(ok, "{got:.2?}");
}
