//! One peer of Tidegate doing one job over loopback: `rows` questions by `workers` tasks.
//!
//! Every peer is set up as its own documentation shows and as a careful person would: exponential
//! backoff from 0.1 s to 10 s with jitter, ten retries, `Retry-After` obeyed where the library lets
//! one. What is measured is the library's policy, so all of them share one worker loop here and
//! differ only in how one row is asked.
//!
//! The last line on standard output is the account: rows answered, refused for good, and lost. Of
//! a layer (`fetch`) it is the features themselves.

mod ask;
mod fetch;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How one row ended.
#[derive(Clone, Copy, PartialEq)]
pub enum Ended {
    /// With an answer; "no match" is one.
    Answered,
    /// Refused for good; asking again is no use.
    Refused,
    /// Given up.
    Lost,
}

/// What is asked.
#[derive(Clone)]
pub struct Job {
    pub url: String,
    pub put: bool,
    pub rows: u64,
    pub workers: u64,
    pub told: pace::Told,
}

impl Job {
    /// The address of a row.
    pub fn target(&self, row: u64) -> String {
        if self.put {
            format!("{}/s3/bench/hot/{row}", self.url)
        } else {
            format!("{}/geocode?q={row}+Harbour+Street", self.url)
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, client, what, url, rows, workers, told @ ..] = args.as_slice() else {
        eprintln!(
            "bench-peer CLIENT geocode|put|fetch URL ROWS WORKERS [rate=R burst=B in-flight=N after=S]"
        );
        std::process::exit(2);
    };
    // Loopback needs no TLS, but reqwest and object_store want to know whose it would be.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if what == "fetch" {
        // What came before stands on standard output.
        if let Err(why) = runtime.block_on(fetch::layer(&ask::http(), url)) {
            eprintln!("{why}");
        }
        return;
    }
    let number = |text: &String| text.parse().expect("a number");
    let job = Job {
        url: url.clone(),
        put: what == "put",
        rows: number(rows),
        workers: number(workers),
        told: pace::Told::read(told),
    };
    let tally = runtime.block_on(run(ask::Client::new(client, &job), job));
    let [answered, refused, lost] = tally;
    println!("{}", serde_json::json!({"answered": answered, "refused": refused, "lost": lost}));
}

async fn run(client: ask::Client, job: Job) -> [u64; 3] {
    let client = Arc::new(client);
    let job = Arc::new(job);
    let next = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..job.workers)
        .map(|_| {
            let (client, job, next) = (Arc::clone(&client), Arc::clone(&job), Arc::clone(&next));
            tokio::spawn(async move {
                let mut tally = [0; 3];
                loop {
                    let row = next.fetch_add(1, Ordering::Relaxed);
                    if row >= job.rows {
                        return tally;
                    }
                    tally[client.ask(&job, row).await as usize] += 1;
                }
            })
        })
        .collect();
    let mut sum = [0; 3];
    for worker in workers {
        let tally = worker.await.expect("a worker that ends");
        sum.iter_mut().zip(tally).for_each(|(sum, n)| *sum += n);
    }
    sum
}
