//! How much the driver costs: rows per second and CPU time against a trivial server on loopback.
//!
//! ```text
//! cargo run --release -p tidegate-client --example http_throughput -- [ROWS] [CONCURRENCY]
//! ```
//!
//! The server runs in this process on the same threads for every client, so the differences
//! between the lines are the clients'. CPU seconds are of the whole process.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::expect_used)]

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_client::http::{
    Allow, Client, ClientConfig, Exchange, Request, ServiceDialect, Trace, address::Addresses,
};
use tidegate_client::lane::{Clock, Lanes};
use tidegate_client::secret::Redactor;
use tidegate_core::Rng;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use url::Url;

const BODY: &str = r#"{"type":"FeatureCollection","features":[{"type":"Feature","geometry":{"type":"Point","coordinates":[8.54,47.37]},"properties":{"label":"Bahnhofstrasse 1, 8001 Zürich"}}]}"#;

async fn serve() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let service = service_fn(|_| async {
                    Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(BODY.as_bytes()))))
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// CPU seconds of this process, from the clock ticks that the kernel counts.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Runs `rows` calls in `tasks` tasks, `concurrency` at a time in all.
async fn drive<F, Fut>(rows: u64, concurrency: u64, tasks: u64, f: F) -> (f64, f64)
where
    F: Fn(u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = usize> + Send,
{
    let (began, cpu_began) = (Instant::now(), cpu());
    let mut handles = Vec::new();
    for task in 0..tasks {
        let f = f.clone();
        handles.push(tokio::spawn(async move {
            stream::iter((task..rows).step_by(tasks as usize))
                .map(f)
                .buffer_unordered((concurrency / tasks) as usize)
                .fold(0usize, |sum, n| async move { sum + usize::from(n == BODY.len()) })
                .await
        }));
    }
    let mut good = 0;
    for handle in handles {
        good += handle.await.unwrap();
    }
    assert_eq!(good as u64, rows, "every row has its body");
    (rows as f64 / began.elapsed().as_secs_f64(), cpu() - cpu_began)
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (rows, concurrency) = (args.next().unwrap_or(60_000), args.next().unwrap_or(64));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("http://{}/search?q=", serve().await);
        println!("{rows} rows, {concurrency} at a time; medians of 5");
        println!("{:<12} {:>10} {:>14}", "client", "rows/s", "CPU us/row");
        let hyper: legacy::Client<_, Full<Bytes>> =
            legacy::Client::builder(TokioExecutor::new()).build_http();
        let reqwest = reqwest::Client::builder().build().unwrap();
        let exchange = Arc::new(exchange(concurrency as u32));
        let mut seen: [Vec<(f64, f64)>; 3] = Default::default();
        for round in 0..6 {
            let (client, base) = (hyper.clone(), url.clone());
            let a =
                drive(rows, concurrency, 2, move |n| {
                    let (client, uri) = (client.clone(), format!("{base}{n}").parse().unwrap());
                    async move {
                        client.get(uri).await.unwrap().into_body().collect().await.unwrap().to_bytes().len()
                    }
                })
                .await;
            let (client, base) = (reqwest.clone(), url.clone());
            let b = drive(rows, concurrency, 2, move |n| {
                let request = client.get(format!("{base}{n}"));
                async move { request.send().await.unwrap().bytes().await.unwrap().len() }
            })
            .await;
            let (exchange, base) = (exchange.clone(), url.clone());
            let lane = exchange.lane(&Request::get(Url::parse(&base).unwrap()));
            let c = drive(rows, concurrency, 2, move |n| {
                let request = Request::get(Url::parse(&format!("{base}{n}")).unwrap());
                let (exchange, lane) = (exchange.clone(), lane.clone());
                async move {
                    let outcome = exchange.call_in(&lane, &request, Rng::fork(7, n)).await;
                    outcome.value.map_or(0, |answer| answer.map_or(0, |answer| answer.response.body.len()))
                }
            })
            .await;
            if round > 0 {
                for (all, one) in seen.iter_mut().zip([a, b, c]) {
                    all.push(one);
                }
            }
        }
        for (name, all) in ["hyper-util", "reqwest", "tidegate"].iter().zip(&mut seen) {
            all.sort_by(|x, y| x.1.total_cmp(&y.1));
            let (_, cpu) = all[all.len() / 2];
            all.sort_by(|x, y| x.0.total_cmp(&y.0));
            let (rate, _) = all[all.len() / 2];
            println!("{name:<12} {rate:>10.0} {:>14.2}", cpu / rows as f64 * 1e6);
        }
    });
}

fn exchange(in_flight_max: u32) -> Exchange {
    let allow = Allow { addresses: Addresses { private: true, exact: vec![] }, ..Allow::default() };
    let client = Client::new(ClientConfig { allow, ..ClientConfig::default() }, []).expect("certificates");
    let limit = LimitConfig { in_flight_max, ..LimitConfig::default() };
    let lanes = Lanes::new(&LaneConfig { limit, ..LaneConfig::default() }, Clock::system());
    let policy = CallPolicy { attempt_timeout: Duration::from_secs(10), ..CallPolicy::default() };
    Exchange {
        client,
        lanes,
        dialect: ServiceDialect::default(),
        policy,
        redactor: Arc::new(Redactor::new()),
        trace: Trace::Off,
    }
}
