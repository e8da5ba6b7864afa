//! Lanes as a tower layer, here around the client of hyper.
//!
//! ```sh
//! cargo run -p tidegate-client --example tower
//! ```
#![allow(clippy::print_stdout, reason = "an example says what it did")]

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tidegate_chaos::{Chaos, Config, Dialect, FaultKind, FaultRule, spec};
use tidegate_client::adapter::tower::LaneLayer;
use tidegate_client::lane::{Clock, Lanes};
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tower::{Service, ServiceBuilder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = Chaos::start(Config {
        limit: spec::throttle("bucket:50/s,burst=10")?,
        headers: Dialect::RetryAfter,
        faults: vec![FaultRule { kind: FaultKind::Status(503), when: spec::when("10%")? }],
        ..Config::default()
    })?;

    let lanes = Lanes::new(&LaneConfig::default(), Clock::system());
    let policy = CallPolicy { throttles_free: 20, ..CallPolicy::default() };
    let service = ServiceBuilder::new()
        .layer(LaneLayer::new(lanes, policy, 7))
        .service(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());

    let ask = async |n: u64| {
        let request = Request::get(format!("{}/geocode?q=Street+{n}", provider.url()));
        let response = service.clone().call(request.body(Full::default()).ok()?).await.ok()?;
        response.status().is_success().then_some(())
    };

    let answered = stream::iter(0..200).map(ask).buffer_unordered(32).filter_map(std::future::ready);
    let answered = answered.count().await;
    println!("{answered} of 200 answered with {} calls", provider.stats().requests);
    assert_eq!((answered, provider.stats().retry_after_violations), (200, 0));
    Ok(())
}
