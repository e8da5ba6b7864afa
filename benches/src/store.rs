//! The hot prefix: 1,000 PUTs into one prefix that takes 5 per 100 ms, and the same keys spread.
//!
//! Time is counted by the server, from the first arrival to the last answer, against the earliest
//! finish that its throttle allows. Wasted are the calls that it refused. Lost are the PUTs that
//! failed or that the server did not work out. Run it with
//! `cargo run --release -p tidegate-benches --bin bench-store`; numbers after it choose other
//! limits: `-- 20 1000` is 20 per second.

use futures_util::{StreamExt, stream};
use std::error::Error;
use std::io::Write;
use tidegate_chaos::{Chaos, Config, Scope, ServerLimit, Service};
use tidegate_client::store::{CloudSettings, KeySpread, ObjectStoreClient, StoreSettings};

const PUTS: usize = 1_000;
const WORKERS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let per_window = numbers.first().copied().unwrap_or(5.0);
    let window = numbers.get(1).copied().unwrap_or(100.0) / 1e3;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{PUTS} PUTs, {WORKERS} at once, {per_window} per {:.0} ms and prefix", window * 1e3)?;
    writeln!(
        out,
        "{:<12} {:>8} {:>10} {:>8} {:>9} {:>6}",
        "key_spread", "seconds", "× earliest", "wasted %", "refused", "lost"
    )?;
    for (name, key_spread) in [("none", KeySpread::None), ("hash", KeySpread::Hash)] {
        let limit = ServerLimit::FixedWindow { limit: per_window as u64, window, phase: 0.0 };
        let server = Chaos::start(Config {
            limit,
            scope: Scope::Prefix,
            throttle_status: 503,
            service: Service::Uniform(0.002, 0.005),
            threads: 1,
            ..Config::default()
        })?;
        let endpoint = Some(format!("{}/s3", server.url()).parse()?);
        let settings = StoreSettings {
            key_spread,
            cloud: CloudSettings { endpoint, ..CloudSettings::default() },
            ..StoreSettings::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (failed, stats) = runtime.block_on(async {
            let store = ObjectStoreClient::open("s3://bucket", &settings)?;
            let put = |n| {
                let store = store.clone();
                async move { store.put(&format!("tiles/{n:05}.png"), vec![7; 1000].into()).await }
            };
            let done: Vec<_> = stream::iter(0..PUTS).map(put).buffer_unordered(WORKERS).collect().await;
            let stats = server.stats();
            let failed = done.iter().filter(|d| d.is_err()).count();
            Ok::<_, Box<dyn Error>>((failed, stats))
        })?;
        let kept = stats.executed.saturating_sub(stats.duplicates_executed + stats.redone_after_loss);
        let lost = failed.max(PUTS.saturating_sub(kept as usize));
        // Spread keys meet hundreds of throttles that hold nobody up: no bound is near.
        let times = match key_spread {
            KeySpread::None => format!("{:.3}", stats.times_earliest),
            KeySpread::Hash => "-".to_owned(),
        };
        writeln!(
            out,
            "{name:<12} {:>8.2} {times:>10} {:>8.2} {:>9} {lost:>6}",
            stats.elapsed_seconds, stats.wasted_percent, stats.wasted_calls
        )?;
    }
    Ok(())
}
