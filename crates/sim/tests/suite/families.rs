//! Servers drawn at random: whatever the limit is and whatever it tells, the lane drains its queue,
//! keeps every promise of a wait, and never hammers.
//!
//! The distributions are printed by `bench-limiter --random`; here stand only the bounds that hold for
//! every single one.

use tidegate_sim::drain::DrainOutcome;
use tidegate_sim::family::ServerFamily;
use tidegate_sim::limiter::{HINT_COLUMNS, HintColumn, drain_shipped};

/// Refused calls in per cent, in the worst of them.
const WORST: f64 = 25.0;

fn run(family: ServerFamily, seed: u64, n: u64, told: &HintColumn) -> DrainOutcome {
    drain_shipped(&family.world(seed, n, told.tells), n)
}

#[test]
fn no_drawn_server_is_hammered_and_no_queue_given_up() {
    for told in &HINT_COLUMNS {
        for family in ServerFamily::ALL {
            for n in 0..12 {
                let out = run(family, 7, n, told);
                let world = format!("{} {family:?} #{n}: {out:?}", told.name);
                assert_eq!((out.left, out.early), (0, 0), "{world}");
                assert!(out.refused_percent() < WORST, "{world}");
            }
        }
    }
}

/// Worlds in which an earlier limiter ended badly: it took a limit for noise and hammered it, never
/// found out that a limit had fallen, or stayed far below a limit that it could have known.
#[test]
fn what_once_went_wrong_goes_well() {
    for (family, seed, n, told, least, most) in [
        (ServerFamily::Combined, 7, 30, 0, 97.0, 2.0),
        (ServerFamily::Combined, 7, 6, 0, 93.0, 2.0),
        (ServerFamily::Steps, 7, 16, 0, 95.0, 3.0),
        (ServerFamily::Tiny, 7, 29, 0, 80.0, 9.0),
        (ServerFamily::Tiny, 7, 41, 0, 75.0, 2.0),
        (ServerFamily::Counter, 7, 46, 0, 73.0, 5.0),
        (ServerFamily::Steps, 7, 29, 1, 85.0, 1.0),
        (ServerFamily::Steps, 7, 73, 1, 80.0, 1.0),
        (ServerFamily::Concurrent, 7, 93, 1, 90.0, 0.5),
        (ServerFamily::Tiny, 7, 36, 1, 70.0, 1.0),
        (ServerFamily::Steps, 23, 7, 1, 70.0, 1.0),
        (ServerFamily::Steps, 23, 28, 1, 88.0, 2.0),
        (ServerFamily::Steps, 23, 93, 1, 85.0, 1.0),
        (ServerFamily::Sliding, 7, 14, 1, 88.0, 1.0),
        (ServerFamily::Counter, 7, 21, 1, 97.0, 1.0),
        (ServerFamily::Combined, 23, 96, 1, 97.0, 1.0),
        (ServerFamily::Tiny, 7, 62, 3, 80.0, 8.0),
        // Slow again after each fall: the shut time of a window was taken for its rate.
        (ServerFamily::Combined, 23, 33, 0, 85.0, 1.0),
        (ServerFamily::Combined, 7, 71, 0, 98.0, 1.0),
        (ServerFamily::Tiny, 7, 99, 0, 90.0, 3.0),
        // Headers in whole seconds say nothing about windows and buckets that are back sooner.
        (ServerFamily::Fixed, 7, 4, 2, 93.0, 1.0),
        (ServerFamily::Sliding, 7, 94, 2, 90.0, 1.0),
        (ServerFamily::Counter, 7, 114, 2, 93.0, 1.0),
        (ServerFamily::Fixed, 7, 22, 3, 98.0, 1.0),
        (ServerFamily::Fixed, 7, 105, 3, 88.0, 1.5),
        (ServerFamily::Steps, 7, 40, 3, 94.0, 1.0),
        (ServerFamily::Steps, 7, 80, 3, 85.0, 2.0),
        (ServerFamily::Bucket, 23, 3, 3, 87.0, 1.0),
        (ServerFamily::Sliding, 7, 64, 3, 97.0, 1.0),
        (ServerFamily::Combined, 7, 96, 3, 99.0, 0.2),
    ] {
        let told = &HINT_COLUMNS[told];
        let out = run(family, seed, n, told);
        let (utilisation, refused) = (out.utilisation(), out.refused_percent());
        assert!(
            utilisation >= least && refused <= most,
            "{} {family:?} {seed}#{n}: {utilisation:.1}/{refused:.2}",
            told.name
        );
    }
}
