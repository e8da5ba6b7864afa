//! How each peer asks for one row.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ClientOptions, ObjectStoreExt};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_retry::{Jitter, RetryTransientMiddleware};

use crate::pace::Pacer;
use crate::{Ended, Job};

const RETRIES: u32 = 10;
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);
const BODY: &[u8] = &[b'x'; 64];

/// A peer, ready to ask.
pub enum Client {
    /// reqwest alone: one attempt.
    Bare(reqwest::Client),
    /// reqwest-middleware with reqwest-retry.
    ReqwestRetry(ClientWithMiddleware),
    /// reqwest with backon.
    Backon(reqwest::Client),
    /// object_store with its own retries.
    ObjectStore(Box<AmazonS3>),
    /// Not a library but the physical bound: a client that was told everything.
    Knows(reqwest::Client, Pacer),
}

impl Client {
    pub fn new(name: &str, job: &Job) -> Client {
        let http = http();
        match name {
            "reqwest" => Client::Bare(http),
            "reqwest-retry" => {
                let policy = ExponentialBackoff::builder()
                    .retry_bounds(DELAY_MIN, DELAY_MAX)
                    .jitter(Jitter::Full)
                    .build_with_max_retries(RETRIES);
                let retry = RetryTransientMiddleware::new_with_policy(policy);
                Client::ReqwestRetry(ClientBuilder::new(http).with(retry).build())
            }
            "backon" => Client::Backon(http),
            "object_store" => Client::ObjectStore(Box::new(
                AmazonS3Builder::new()
                    .with_endpoint(format!("{}/s3", job.url))
                    .with_bucket_name("bench")
                    .with_region("us-east-1")
                    .with_skip_signature(true)
                    .with_client_options(ClientOptions::new().with_allow_http(true))
                    .build()
                    .expect("a store"),
            )),
            "knows" => Client::Knows(http, Pacer::new(job.told)),
            other => panic!("no peer is called {other:?}"),
        }
    }

    /// Asks for one row until the library is done with it.
    pub async fn ask(&self, job: &Job, row: u64) -> Ended {
        match self {
            Client::Bare(http) => ended(once(http, job, row).await),
            Client::ReqwestRetry(http) => {
                let url = job.target(row);
                let sent = if job.put { http.put(url).body(BODY).send() } else { http.get(url).send() }.await;
                match sent {
                    Ok(answer) => {
                        let status = answer.status().as_u16();
                        if answer.bytes().await.is_ok() { ended(Ok(status)) } else { Ended::Lost }
                    }
                    Err(_) => Ended::Lost,
                }
            }
            Client::Backon(http) => {
                let policy = ExponentialBuilder::default()
                    .with_min_delay(DELAY_MIN)
                    .with_max_delay(DELAY_MAX)
                    .with_max_times(RETRIES as usize)
                    .with_jitter();
                let attempt = || async { once(http, job, row).await };
                ended(attempt.retry(policy).when(Failed::is_transient).adjust(Failed::hint).await)
            }
            Client::ObjectStore(store) => {
                let path = object_store::path::Path::from(format!("hot/{row}"));
                if store.put(&path, BODY.into()).await.is_ok() { Ended::Answered } else { Ended::Lost }
            }
            Client::Knows(http, pacer) => {
                for _ in 0..100 {
                    let _permit = pacer.turn().await;
                    match once(http, job, row).await {
                        Err(failed) if failed.is_transient() => pacer.refused().await,
                        outcome => return ended(outcome),
                    }
                }
                Ended::Lost
            }
        }
    }
}

/// reqwest as every peer has it.
pub fn http() -> reqwest::Client {
    reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build().expect("a client")
}

struct Failed {
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl Failed {
    fn is_transient(&self) -> bool {
        self.status.is_none_or(|s| s == 408 || s == 429 || s >= 500)
    }

    fn hint(&self, delay: Option<Duration>) -> Option<Duration> {
        delay.map(|delay| self.retry_after.map_or(delay, |hint| hint.max(delay)))
    }
}

async fn once(http: &reqwest::Client, job: &Job, row: u64) -> Result<u16, Failed> {
    let network = |_| Failed { status: None, retry_after: None };
    let url = job.target(row);
    let request = if job.put { http.put(url).body(BODY) } else { http.get(url) };
    let answer = request.send().await.map_err(network)?;
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse().ok());
    answer.bytes().await.map_err(network)?;
    match status {
        200..300 => Ok(status),
        _ => Err(Failed { status: Some(status), retry_after: retry_after.map(Duration::from_secs) }),
    }
}

fn ended(outcome: Result<u16, Failed>) -> Ended {
    match outcome {
        Ok(200..300) => Ended::Answered,
        Ok(400..=407) | Err(Failed { status: Some(400..=407), .. }) => Ended::Refused,
        _ => Ended::Lost,
    }
}
