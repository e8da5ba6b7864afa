//! A drain over an outage ends when its lane says so. If each record that met the outage slept for
//! itself, the last would come home long after the service did, and chance would say when.

use futures_util::future::join_all;
use std::time::Duration;
use tidegate_client::call::{AttemptOutcome, CallOutcome, Sent, run};
use tidegate_client::lane::{Clock, LaneHandle, LaneKey, Snapshot};
use tidegate_core::call::Call;
use tidegate_core::hint::Hints;
use tidegate_core::{Code, Mono, Rng, Verdict, VerdictKind};
use tidegate_pipeline::preset;

const DOWN: Verdict = Verdict {
    kind: VerdictKind::Transient { until: None },
    code: Code::SERVICE_UNAVAILABLE,
    status: Some(503),
};

fn reply(verdict: Verdict) -> Sent<u32> {
    AttemptOutcome { verdict, hints: Hints::default(), value: Some(7) }.into()
}

/// How long a call is on its way.
const TRIP: Duration = Duration::from_millis(5);
/// The service fails before this.
const BACK: Mono = Mono::from_millis(5_000);
/// How many calls a second a lane begins with after an outage, and keeps for as long as that lasted.
const PACE: u32 = 150;
/// Tokio's timer counts in milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// `records` that are all there at the beginning: when each ended, and the lane afterwards.
async fn drain(records: u64, seed: u64) -> (Vec<(Mono, CallOutcome<u32>)>, Snapshot) {
    let lane = LaneHandle::new(LaneKey::of_prefix("mem:", ""), &preset::lane(), Clock::system());
    let (clock, policy) = (lane.clock(), preset::policy());
    let one = async |n| {
        let outcome = run(&lane, &policy, Call::new(), Rng::fork(seed, n), |_| async {
            tokio::time::sleep(TRIP).await;
            reply(if clock.mono() < BACK { DOWN } else { Verdict::DONE })
        });
        let outcome = outcome.await;
        (clock.mono(), outcome)
    };
    let ended = join_all((0..records).map(one)).await;
    (ended, lane.snapshot())
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_the_pace_after_the_outage_explains_it() {
    let breaker = preset::lane().breaker;
    // The few show a record that sleeps alone, the many that the pace holds for all.
    for records in [40, 600] {
        for seed in 0..20 {
            let (ended, lane) = drain(records, seed).await;
            let what = format!("{records} records, seed {seed}");
            assert!(ended.iter().all(|(_, outcome)| outcome.is_accepted()), "{what}");
            let first = ended.iter().map(|(at, _)| *at).min().unwrap();
            let last = ended.iter().map(|(at, _)| *at).max().unwrap();

            // Opened, half open, opened, half open, … closed.
            let openings = lane.breaker_changes / 2;
            let growth = breaker.cooldown_factor.powi(openings.cast_signed() - 1);
            let cooldown = breaker.cooldown.mul_f64(growth);
            assert!(first <= BACK + cooldown + TRIP + TICK, "{what}: the first at {first:?}");
            let rest = Duration::from_secs(records - 1) / PACE + TRIP;
            assert!(last <= first + rest + TICK, "{what}: the first at {first:?}, the last at {last:?}");
        }
    }
}
