//! What the server is told to do: every misbehaviour is a value here, and all of it is seeded.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{Chance, Rng};
use tidegate_sim::server::ServerLimit;

use super::layer::Unrest;
use super::quirk::Quirk;
use super::quota_headers::Dialect;

/// The whole behaviour of one server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names that requests may be sent to, besides loopback addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The address to listen on; loopback only. Port 0 takes a free one.
    pub addr: SocketAddr,
    /// The seed of every draw.
    pub seed: u64,
    /// The number of features in the generated data set.
    pub features: u64,
    /// The most features on one page, whatever the client asks for.
    pub page_max: u64,
    /// The throttle.
    pub limit: ServerLimit,
    /// The scope of one throttle: the server, a key or a prefix.
    pub scope: Scope,
    /// Status of a throttled call; 200 puts the refusal into the body, as some providers do.
    pub throttle_status: u16,
    /// The time before a throttled call is answered (a tarpit).
    pub throttle_after: Duration,
    /// The dialect of the rate-limit headers.
    pub headers: Dialect,
    /// The service time of an accepted call.
    pub service: Service,
    /// The outages.
    pub outages: Vec<Outage>,
    /// The other faults.
    pub faults: Vec<FaultRule>,
    /// Share (0 to 1) of addresses that are refused for good.
    pub bad_rows: f64,
    /// Status of a bad row.
    pub bad_status: u16,
    /// Share (0 to 1) of addresses that have no match.
    pub no_match: f64,
    /// Share (0 to 1) of hints that are malformed.
    pub garbage: f64,
    /// The error of the `Date` header, in seconds.
    pub skew: i64,
    /// Whether WFS and OGC answers hide the total, as the standards allow.
    pub unknown_total: bool,
    /// How the layer, and what is said of it, change between pages.
    pub unrest: Unrest,
    /// Habits of real servers.
    pub quirks: Vec<Quirk>,
    /// A directory whose files are served by ranges.
    pub rasters: Option<PathBuf>,
    /// The inputs of a draw.
    pub draw: Draw,
    /// The fewest distinct requests that are remembered.
    pub remember: usize,
    /// An arrival this soon after a hint was sent may have left before the hint came.
    pub grace: Duration,
    /// The number of requests after which the server stops.
    pub stop_after: Option<u64>,
    /// The number of worker threads; 0 takes one per core.
    pub threads: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hosts: Vec::new(),
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            seed: 0,
            features: 10_000,
            page_max: 1_000,
            limit: ServerLimit::Open,
            scope: Scope::Server,
            throttle_status: 429,
            throttle_after: Duration::ZERO,
            headers: Dialect::default(),
            service: Service::default(),
            outages: Vec::new(),
            faults: Vec::new(),
            bad_rows: 0.0,
            bad_status: 400,
            no_match: 0.0,
            garbage: 0.0,
            skew: 0,
            unknown_total: false,
            unrest: Unrest::default(),
            quirks: Vec::new(),
            rasters: None,
            draw: Draw::Content,
            remember: 4_000_000,
            grace: Duration::from_millis(50),
            stop_after: None,
            threads: 0,
        }
    }
}

/// What shares one throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Scope {
    /// The whole server.
    Server,
    /// Each first path segment; in the object store each bucket and first key segment.
    Prefix,
    /// Each API key.
    Key,
}

/// What a draw depends on, beside the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Draw {
    /// The request and which attempt at it this is: the same whatever the order of arrival.
    Content,
    /// The running number of the request.
    Number,
}

/// How long an accepted call takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Uniform between the two.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
}

impl Default for Service {
    fn default() -> Service {
        Service::Uniform(0.0, 0.0)
    }
}

impl Service {
    /// One draw.
    pub(crate) fn draw(self, chance: &mut Rng) -> Duration {
        tidegate_core::time::seconds(match self {
            Service::Uniform(lo, hi) => chance.between(lo, hi),
            Service::Exponential(mean) => -mean * (1.0 - chance.unit()).ln(),
        })
    }
}

/// The server is down for a while, and may collapse again when it comes back.
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// The start, as time after the first request.
    pub from: Duration,
    /// The end, as time after the first request.
    pub to: Duration,
    /// The HTTP status while down; 0 resets the connection.
    pub status: u16,
    /// Whether the answer says with `Retry-After` when the server will be back.
    pub hint: bool,
    /// The number of requests in flight, or arriving within `within`, above which the server collapses
    /// again.
    pub collapse: Option<u64>,
    /// The window in which arrivals are counted for `collapse`.
    pub within: Duration,
    /// The duration of a collapse.
    pub again: Duration,
    /// The time after an outage in which the server can collapse.
    pub fragile: Duration,
}

/// A fault rule: a kind of fault and its trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The requests that it hits.
    pub when: When,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// This status with the provider's error body.
    Status(u16),
    /// A TCP reset, before the headers or in the middle of the body.
    Reset,
    /// No answer for this long, then the connection is closed.
    Hang(Duration),
    /// The body comes in pieces over this long.
    Slow(Duration),
    /// The body ends early: `Content-Length` too large, or chunks without an end.
    Cut,
    /// Status 200 with an error in the body, in the provider's dialect.
    Error200,
    /// A page without its last half of features, and in every other way whole.
    Short,
    /// A redirect to this URL.
    Redirect(String),
    /// A spoiled answer to a request for a range of a file.
    Range(RangeFault),
}

/// How an answer to a request for a range is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeFault {
    /// Half of the bytes, under the headers of all.
    WrongLength,
    /// The right bytes under another ETag, as of a file that was replaced.
    WrongEtag,
    /// The whole file with status 200.
    Whole,
    /// The right number of bytes, from a few bytes further on.
    Shifted,
    /// The right number of bytes, from another part of the file.
    Swapped,
    /// The right number of zero bytes.
    Zeros,
}

impl RangeFault {
    /// All of them, with their names.
    pub const ALL: [(&'static str, RangeFault); 6] = [
        ("length", RangeFault::WrongLength),
        ("etag", RangeFault::WrongEtag),
        ("whole", RangeFault::Whole),
        ("shifted", RangeFault::Shifted),
        ("swapped", RangeFault::Swapped),
        ("zeros", RangeFault::Zeros),
    ];
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// With this probability.
    Chance(f64),
    /// For request numbers in this range, from 1, both ends included.
    Numbers(u64, u64),
    /// For every n-th request.
    Every(u64),
    /// For the first n attempts at each request.
    First(u64),
}

impl Config {
    /// Whether the server has this habit.
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// Why this cannot be served, if so.
    pub(crate) fn refusal(&self) -> Option<String> {
        if !self.addr.ip().is_loopback() {
            return Some(format!("{} is not a loopback address; chaos listens on loopback only", self.addr));
        }
        if self.page_max == 0 {
            return Some("the page size must be at least 1".into());
        }
        let sum: f64 = self.faults.iter().map(|f| if let When::Chance(p) = f.when { p } else { 0.0 }).sum();
        if sum > 1.0 + 1e-9 {
            return Some(format!(
                "the probabilities of the faults add up to {:.1} %, more than 100 %",
                sum * 100.0
            ));
        }
        if self.bad_rows + self.no_match > 1.0 + 1e-9 {
            return Some("the shares of bad rows and rows without a match add up to more than 100 %".into());
        }
        None
    }

    /// What is configured, for `/__config`.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "hosts": self.hosts,
            "seed": self.seed,
            "features": self.features,
            "page_max": self.page_max,
            "throttle": format!("{:?}", self.limit),
            "scope": format!("{:?}", self.scope),
            "throttle_status": self.throttle_status,
            "throttle_after_seconds": self.throttle_after.as_secs_f64(),
            "headers": format!("{:?}", self.headers),
            "service": format!("{:?}", self.service),
            "outages": self.outages.iter().map(|o| format!("{o:?}")).collect::<Vec<_>>(),
            "faults": self.faults.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>(),
            "bad_rows": self.bad_rows,
            "bad_status": self.bad_status,
            "no_match": self.no_match,
            "garbage": self.garbage,
            "skew_seconds": self.skew,
            "unknown_total": self.unknown_total,
            "unrest": format!("{:?}", self.unrest),
            "quirks": self.quirks.iter().map(|q| format!("{q:?}")).collect::<Vec<_>>(),
            "rasters": self.rasters,
            "draw": format!("{:?}", self.draw),
            "stop_after": self.stop_after,
        })
    }
}
