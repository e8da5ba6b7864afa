//! The limiter against throttled servers, beside the limiters of the incumbents.
//!
//! `bench-limiter` prints the table of `scenarios/limiter.yaml`: utilisation in per cent (the
//! physically earliest finish over ours) and the share of calls answered 429. Everything runs in
//! virtual time with a seed, so the table is the same on every machine.
//!
//! `bench-limiter --random SEED COUNT [TOLD [FAMILY [WORST]]]` draws COUNT servers of each family
//! instead and prints the distribution, and the WORST worlds that miss the target.
//!
//! `bench-limiter --real [SEED]` prints the table of `bench-real` in virtual time: nginx and HAProxy
//! as they compute, with pauses, and for one, two and four clients on one limiter.
#![allow(clippy::print_stdout)]

use std::error::Error;

use tidegate_sim::drain::pause::{PauseOf, Pauses};
use tidegate_sim::drain::{DrainOutcome, DrainWorld, ServerHints, earliest};
use tidegate_sim::family::ServerFamily;
use tidegate_sim::limiter::{HINT_COLUMNS, HintColumn, drain_shipped};
use tidegate_sim::real_limiter::{RealLimiter, TIMER_LATE, drain_lanes};
use tidegate_sim::rival::Rival;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::server::ServerLimit;

const SCENARIO: &str = include_str!("../../scenarios/limiter.yaml");
/// Less than this is no difference: per cent of utilisation, per cent of calls.
const SAME: (f64, f64) = (0.05, 0.005);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => table(),
        ["--real", ref rest @ ..] => {
            real(rest.first().map_or(Ok(1), |seed| seed.parse())?);
            Ok(())
        }
        ["--random", seed, count, ref rest @ ..] => {
            let told = rest.first().copied().filter(|told| *told != "all");
            let family = rest.get(1).copied().unwrap_or("");
            let worst = rest.get(2).map_or(Ok(4), |n| n.parse())?;
            random(seed.parse()?, count.parse()?, told, family, worst);
            Ok(())
        }
        _ => Err("usage: bench-limiter [--real [SEED] | --random SEED COUNT [TOLD [FAMILY [WORST]]]]".into()),
    }
}

/// What must be reached: a server that has no quota to tell is judged as one that tells nothing.
fn aim(told: &'static HintColumn, world: &DrainWorld) -> &'static HintColumn {
    let silent = matches!(world.limit, ServerLimit::Open | ServerLimit::Concurrency { .. });
    if silent && matches!(told.tells, ServerHints::Quota(_)) { &HINT_COLUMNS[0] } else { told }
}

fn misses(told: &HintColumn, out: &DrainOutcome) -> bool {
    out.utilisation() < told.utilisation || out.refused_percent() > told.refused
}

/// A rival that gets as much through with as few refusals, and one of the two is better.
fn beats(rival: &DrainOutcome, own: &DrainOutcome) -> bool {
    let more = rival.utilisation() - own.utilisation();
    let fewer = own.refused_percent() - rival.refused_percent();
    more > -SAME.0 && fewer > -SAME.1 && (more > SAME.0 || fewer > SAME.1)
}

fn cell(out: &DrainOutcome, mark: &str) -> String {
    format!("{:.1}/{:.2}{mark:1}", out.utilisation(), out.refused_percent())
}

fn table() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(SCENARIO)?;
    let limiter = scenario.limiter.ok_or("the scenario has no limiter section")?;
    println!(
        "Utilisation % / 429s % of calls. The first four columns are Tidegate's, by what the server tells."
    );
    println!("  !  Tidegate misses its target here");
    println!("  <  this rival beats Tidegate: as much through, as few refused, and one of them better");
    println!("  +  this rival gets more through, and is refused more often\n");
    let names = HINT_COLUMNS.iter().map(|t| t.name).chain(Rival::ALL.map(Rival::name));
    println!("{:30}{}", "", names.map(|name| format!("{name:>14} ")).collect::<String>());
    let (mut missed, mut beaten, mut cells) = (0, 0, 0);
    for (row, world) in limiter.worlds() {
        let mut line = String::new();
        let own = HINT_COLUMNS
            .map(|told| drain_shipped(&DrainWorld { tells: told.tells, ..world.clone() }, scenario.seed));
        for (told, out) in HINT_COLUMNS.iter().zip(&own) {
            let miss = misses(aim(told, &world), out);
            (missed, cells) = (missed + u32::from(miss), cells + 1);
            line += &format!("{:>15}", cell(out, if miss { "!" } else { "" }));
        }
        for rival in Rival::ALL {
            let out = rival.drain(&world, scenario.seed);
            let own = if rival == Rival::FixedHinted { &own[1] } else { &own[0] };
            let mark = match () {
                () if beats(&out, own) => "<",
                () if out.utilisation() > own.utilisation() + SAME.0 => "+",
                () => "",
            };
            beaten += u32::from(mark == "<");
            line += &format!("{:>15}", cell(&out, mark));
        }
        println!("{row:30}{line}");
    }
    println!("\nTidegate misses {missed} of {cells} targets and is beaten {beaten} times.");
    Ok(())
}

/// What a row of [`real`] is: one lane alone, with late timers, under pauses, or several lanes.
const SETTINGS: [(&str, f64, Option<PauseOf>, usize); 7] = [
    ("alone", 0.0, None, 1),
    ("late timers", TIMER_LATE, None, 1),
    ("client paused", 0.0, Some(PauseOf::Client), 1),
    ("server paused", 0.0, Some(PauseOf::Server), 1),
    ("both paused", 0.0, Some(PauseOf::Both), 1),
    ("two clients", 0.0, None, 2),
    ("four clients", 0.0, None, 4),
];

fn real(seed: u64) {
    println!("Seconds / times the least / refused % of calls / shares of the clients, % of an equal share");
    for limiter in RealLimiter::ALL {
        for &status in limiter.statuses() {
            let least = earliest(&limiter.world(status), seed);
            println!("{}, {status}: least {least:.1} s", limiter.name());
            for (name, timer_late, of, clients) in SETTINGS {
                let world = DrainWorld { pauses: of.map(Pauses::usual), timer_late, ..limiter.world(status) };
                let outs = drain_lanes(&world, clients, seed);
                let finish = outs.iter().map(|o| o.finish).fold(0.0, f64::max);
                let (calls, refused, left) = outs
                    .iter()
                    .fold((0u64, 0u64, 0u64), |(c, r, l), o| (c + o.calls, r + o.refused, l + o.left));
                let shares: Vec<String> =
                    outs.iter().map(|o| format!("{:.0}", 100.0 * o.share * clients as f64)).collect();
                println!(
                    "  {name:14} {finish:7.1} s {:6.2} x {:6.1} % {:>20}{}",
                    finish / outs.first().map_or(1.0, |o| o.earliest),
                    100.0 * refused as f64 / calls.max(1) as f64,
                    if clients > 1 { shares.join(" ") } else { String::new() },
                    if left > 0 { format!("  {left} left") } else { String::new() },
                );
            }
        }
    }
}

fn random(seed: u64, count: u64, only: Option<&str>, family: &str, worst: usize) {
    for told in HINT_COLUMNS.iter().filter(|t| only.is_none_or(|name| t.name == name)) {
        println!("{}: target {} / {}", told.name, told.utilisation, told.refused);
        let wanted = |f: &ServerFamily| format!("{f:?}").to_lowercase().contains(&family.to_lowercase());
        for family in ServerFamily::ALL.into_iter().chain(ServerFamily::REAL).filter(wanted) {
            if told.tells != ServerHints::Nothing && ServerFamily::REAL.contains(&family) {
                continue;
            }
            let mut runs: Vec<(u64, DrainWorld, DrainOutcome)> = (0..count)
                .map(|n| {
                    let world = family.world(seed, n, told.tells);
                    let out = drain_shipped(&world, n);
                    (n, world, out)
                })
                .collect();
            let good = runs.iter().filter(|r| !misses(aim(told, &r.1), &r.2)).count();
            let early: u64 = runs.iter().map(|r| r.2.early).sum();
            let utilisation = sorted(runs.iter().map(|r| r.2.utilisation()));
            let refused = sorted(runs.iter().map(|r| r.2.refused_percent()));
            println!(
                "  {:10} ok {good:3}/{count}  utilisation p50 {:5.1} p25 {:5.1} p5 {:5.1} worst {:5.1}  429s p50 {:.2} p75 {:.2} p95 {:.2} worst {:.2}  early {early}",
                format!("{family:?}"),
                at(&utilisation, 0.5),
                at(&utilisation, 0.25),
                at(&utilisation, 0.05),
                at(&utilisation, 0.0),
                at(&refused, 0.5),
                at(&refused, 0.75),
                at(&refused, 0.95),
                at(&refused, 1.0),
            );
            runs.retain(|r| misses(aim(told, &r.1), &r.2));
            let badness = |o: &DrainOutcome| {
                (told.utilisation - o.utilisation()).max(0.0)
                    + 5.0 * (o.refused_percent() - told.refused).max(0.0)
            };
            runs.sort_by(|a, b| badness(&b.2).total_cmp(&badness(&a.2)));
            for (n, w, o) in runs.iter().take(worst) {
                println!(
                    "    #{n} {:?} N {} workers {} rtt {:.4} service {:.4} jitter {} -> {:.1}/{:.2}, earliest {:.1} s",
                    w.limit,
                    w.requests,
                    w.workers,
                    w.rtt,
                    w.service,
                    w.jitter,
                    o.utilisation(),
                    o.refused_percent(),
                    o.earliest
                );
            }
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which a share `q` of them lies; 0 of none.
fn at(sorted: &[f64], q: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1)) as f64 * q;
    sorted.get(index as usize).copied().unwrap_or(0.0)
}
