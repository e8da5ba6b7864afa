//! A lane around calls of reqwest: admit, send, settle, retry.
//!
//! The provider here throttles at 50 calls a second and fails one call in ten; every address is
//! answered, and no call comes earlier than the provider asked.
//!
//! ```sh
//! cargo run -p tidegate-client --example reqwest
//! ```
#![allow(clippy::print_stdout, reason = "an example says what it did")]

use futures_util::{StreamExt, stream};
use tidegate_chaos::{Chaos, Config, Dialect, FaultKind, FaultRule, spec};
use tidegate_client::adapter::{answered, failed};
use tidegate_client::call;
use tidegate_client::lane::{Clock, LaneHandle, LaneKey};
use tidegate_core::Rng;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::lane::LaneConfig;
use tidegate_core::signal::Network;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = Chaos::start(Config {
        limit: spec::throttle("bucket:50/s,burst=10")?,
        headers: Dialect::RetryAfter,
        faults: vec![FaultRule { kind: FaultKind::Status(503), when: spec::when("10%")? }],
        ..Config::default()
    })?;

    // One lane for all calls that the provider counts together; one client, one policy.
    let key = LaneKey::of_url(&provider.url().parse()?, "");
    let lane = LaneHandle::new(key, &LaneConfig::default(), Clock::system());
    let (http, policy) = (reqwest::Client::new(), CallPolicy { throttles_free: 20, ..CallPolicy::default() });

    let ask = async |n: u64| {
        let url = format!("{}/geocode?q=Street+{n}", provider.url());
        let request = || http.get(&url).send(); // for what must not be sent twice: `Call::once()`
        call::run(&lane, &policy, Call::new(), Rng::fork(7, n), |_| async {
            match request().await {
                Ok(answer) => answered(&lane, answer.status(), &answer.headers().clone(), Ok(answer)),
                Err(error) if error.is_timeout() => failed(&lane, Network::Timeout, Err(error)),
                Err(error) => failed(&lane, Network::Reset, Err(error)),
            }
        })
        .await
    };

    let outcomes: Vec<_> = stream::iter(0..200).map(ask).buffer_unordered(32).collect().await;
    let accepted = outcomes.iter().filter(|outcome| outcome.is_accepted()).count();
    let sent: u32 = outcomes.iter().map(call::CallOutcome::attempts).sum();
    println!("{accepted} of {} answered with {sent} calls", outcomes.len());
    assert_eq!((accepted, provider.stats().retry_after_violations), (200, 0));
    Ok(())
}
