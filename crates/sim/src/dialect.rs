//! The rate-limit headers of a simulated server.
//!
//! The simulator and the chaos server represent a limit as an [`AdvertisedQuota`]. A [`Dialect`]
//! formats it as headers the way real services do, with the same rounding and omissions, and
//! [`tidegate_core::hint::read`] has to parse it: simulated headers go through the shipped parsers.
//!
//! Servers round waits up, so a client that obeys is never early. Dialects with absolute times also
//! send the Date header, as every HTTP server does. The wall clock of a simulation must be later
//! than 2001, or its epochs will look like deltas.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::Deserialize;
use tidegate_core::Wall;
use tidegate_core::hint::{HintProfile, TimeUnit, date};

use tidegate_core::suggest::question;

/// A limit as the server knows it, at the time of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedQuota {
    /// The number of calls per window.
    pub limit: u64,
    /// The length of the window.
    pub window: Duration,
    /// The number of calls left in the window.
    pub remaining: u64,
    /// The time until the quota is restored.
    pub reset: Duration,
    /// The wait that the server asks for, if any.
    pub retry_after: Option<Duration>,
    /// Whether this response refuses the call. Only then is a wait sent.
    pub throttled: bool,
}

/// The header format of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// No headers.
    #[default]
    None,
    /// `Retry-After: 2`.
    RetryAfter,
    /// `Retry-After: Sun, 06 Nov 1994 08:49:37 GMT`.
    RetryAfterDate,
    /// `retry-after-ms: 1500`.
    RetryAfterMs,
    /// `x-amz-retry-after: 1500`.
    Amz,
    /// `Retry-After: 1500`, in milliseconds; needs [`Dialect::profile`].
    SentinelHub,
    /// `RateLimit: "default";r=50;t=30` with its policy.
    Ietf,
    /// `RateLimit: limit=100, remaining=50, reset=30` with its policy.
    IetfOlder,
    /// `RateLimit-Limit: 100, 100;w=60`, `RateLimit-Remaining`, `RateLimit-Reset`.
    IetfOldest,
    /// `X-RateLimit-*`, the reset as epoch seconds.
    XRatelimitEpoch,
    /// `X-RateLimit-*`, the reset as epoch milliseconds.
    XRatelimitEpochMs,
    /// `X-RateLimit-*`, the reset as seconds from now.
    XRatelimitDelta,
    /// `X-Rate-Limit-*`, the reset as seconds from now.
    XRateLimit,
    /// As GitHub: lower case, with used and resource, reset as epoch seconds.
    Github,
    /// As OpenAI: requests and tokens, reset as a duration, retry-after-ms.
    Openai,
    /// As Mapbox: interval, limit and reset; no remaining calls and no wait.
    Mapbox,
    /// As Esri: usage and maximum per minute; no reset and no wait.
    Esri,
    /// As the control-flow module of GeoServer: reset as epoch seconds; no wait.
    Geoserver,
    /// As Kong: the oldest IETF form, and the same again per scope.
    Kong,
    /// As Pelias: the remaining calls per scope; no reset.
    Pelias,
    /// As Discord: reset as a delta in milliseconds beside the epoch.
    Discord,
}

impl Dialect {
    /// Every dialect, in the order of the documentation.
    pub const ALL: [Dialect; 21] = [
        Dialect::None,
        Dialect::RetryAfter,
        Dialect::RetryAfterDate,
        Dialect::RetryAfterMs,
        Dialect::Amz,
        Dialect::SentinelHub,
        Dialect::Ietf,
        Dialect::IetfOlder,
        Dialect::IetfOldest,
        Dialect::XRatelimitEpoch,
        Dialect::XRatelimitEpochMs,
        Dialect::XRatelimitDelta,
        Dialect::XRateLimit,
        Dialect::Github,
        Dialect::Openai,
        Dialect::Mapbox,
        Dialect::Esri,
        Dialect::Geoserver,
        Dialect::Kong,
        Dialect::Pelias,
        Dialect::Discord,
    ];

    /// The name in scenario files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::None => "none",
            Dialect::RetryAfter => "retry-after",
            Dialect::RetryAfterDate => "retry-after-date",
            Dialect::RetryAfterMs => "retry-after-ms",
            Dialect::Amz => "amz",
            Dialect::SentinelHub => "sentinel-hub",
            Dialect::Ietf => "ietf",
            Dialect::IetfOlder => "ietf-older",
            Dialect::IetfOldest => "ietf-oldest",
            Dialect::XRatelimitEpoch => "x-ratelimit-epoch",
            Dialect::XRatelimitEpochMs => "x-ratelimit-epoch-ms",
            Dialect::XRatelimitDelta => "x-ratelimit-delta",
            Dialect::XRateLimit => "x-rate-limit",
            Dialect::Github => "github",
            Dialect::Openai => "openai",
            Dialect::Mapbox => "mapbox",
            Dialect::Esri => "esri",
            Dialect::Geoserver => "geoserver",
            Dialect::Kong => "kong",
            Dialect::Pelias => "pelias",
            Dialect::Discord => "discord",
        }
    }

    /// The profile with which a client can parse it.
    #[must_use]
    pub fn profile(self) -> HintProfile {
        let unit = if self == Dialect::SentinelHub { TimeUnit::Milliseconds } else { TimeUnit::Seconds };
        HintProfile { retry_after_unit: unit, ..HintProfile::default() }
    }

    /// Whether it sends the quota, not only a wait.
    #[must_use]
    pub const fn tells_quota(self) -> bool {
        !matches!(
            self,
            Dialect::None
                | Dialect::RetryAfter
                | Dialect::RetryAfterDate
                | Dialect::RetryAfterMs
                | Dialect::Amz
                | Dialect::SentinelHub
        )
    }

    /// Appends the headers of a response sent at `wall`.
    pub fn emit(self, quota: &AdvertisedQuota, wall: Wall, out: &mut Vec<(&'static str, String)>) {
        let AdvertisedQuota { limit, remaining, .. } = *quota;
        let (window, reset) = (whole_seconds(quota.window), whole_seconds(quota.reset));
        let used = limit.saturating_sub(remaining);
        let wait = quota.retry_after.filter(|_| quota.throttled);
        let mut say = |name, value: String| out.push((name, value));
        match self {
            Dialect::None | Dialect::RetryAfter => {}
            Dialect::RetryAfterDate => {
                if let Some(wait) = wait {
                    say("Date", date::imf_fixdate(wall));
                    say("Retry-After", date::imf_fixdate(Wall::from_secs(epoch_after(wall, wait))));
                }
            }
            Dialect::RetryAfterMs => say_ms("retry-after-ms", wait, &mut say),
            Dialect::Amz => say_ms("x-amz-retry-after", wait, &mut say),
            Dialect::SentinelHub => say_ms("Retry-After", wait, &mut say),
            Dialect::Ietf => {
                say("RateLimit-Policy", format!("\"default\";q={limit};w={window}"));
                say("RateLimit", format!("\"default\";r={remaining};t={reset}"));
            }
            Dialect::IetfOlder => {
                say("RateLimit-Policy", format!("{limit};w={window}"));
                say("RateLimit", format!("limit={limit}, remaining={remaining}, reset={reset}"));
            }
            Dialect::IetfOldest => {
                say("RateLimit-Limit", format!("{limit}, {limit};w={window}"));
                say("RateLimit-Remaining", remaining.to_string());
                say("RateLimit-Reset", reset.to_string());
            }
            Dialect::XRatelimitEpoch | Dialect::XRatelimitEpochMs | Dialect::XRatelimitDelta => {
                say("X-RateLimit-Limit", limit.to_string());
                say("X-RateLimit-Remaining", remaining.to_string());
                match self {
                    Dialect::XRatelimitDelta => say("X-RateLimit-Reset", reset.to_string()),
                    Dialect::XRatelimitEpochMs => {
                        let ms = i64::try_from(whole_ms(quota.reset)).unwrap_or(i64::MAX);
                        say("X-RateLimit-Reset", wall.millis().saturating_add(ms).to_string());
                    }
                    _ => {
                        say("Date", date::imf_fixdate(wall));
                        say("X-RateLimit-Reset", epoch_after(wall, quota.reset).to_string());
                    }
                }
            }
            Dialect::XRateLimit => {
                say("X-Rate-Limit-Limit", limit.to_string());
                say("X-Rate-Limit-Remaining", remaining.to_string());
                say("X-Rate-Limit-Reset", reset.to_string());
            }
            Dialect::Github => {
                say("Date", date::imf_fixdate(wall));
                say("x-ratelimit-limit", limit.to_string());
                say("x-ratelimit-remaining", remaining.to_string());
                say("x-ratelimit-used", used.to_string());
                say("x-ratelimit-resource", "core".to_string());
                say("x-ratelimit-reset", epoch_after(wall, quota.reset).to_string());
            }
            Dialect::Openai => {
                say("x-ratelimit-limit-requests", limit.to_string());
                say("x-ratelimit-remaining-requests", remaining.to_string());
                say("x-ratelimit-reset-requests", go_duration(quota.reset));
                say("x-ratelimit-limit-tokens", "150000".to_string());
                say("x-ratelimit-remaining-tokens", "149984".to_string());
                say("x-ratelimit-reset-tokens", "6ms".to_string());
                say_ms("retry-after-ms", wait, &mut say);
            }
            Dialect::Mapbox => {
                say("Date", date::imf_fixdate(wall));
                say("X-Rate-Limit-Interval", window.to_string());
                say("X-Rate-Limit-Limit", limit.to_string());
                say("X-Rate-Limit-Reset", epoch_after(wall, quota.reset).to_string());
            }
            Dialect::Esri => say("X-Esri-Org-Request-Units-Per-Min", format!("usage={used};max={limit}")),
            Dialect::Geoserver => {
                say("Date", date::imf_fixdate(wall));
                say("X-Rate-Limit-Context", "Any OGC request".to_string());
                say("X-Rate-Limit-Limit", limit.to_string());
                say("X-Rate-Limit-Remaining", remaining.to_string());
                say("X-Rate-Limit-Reset", epoch_after(wall, quota.reset).to_string());
                say("X-Rate-Limit-Action", "Reject excess requests".to_string());
            }
            Dialect::Kong => {
                say("RateLimit-Limit", limit.to_string());
                say("RateLimit-Remaining", remaining.to_string());
                say("RateLimit-Reset", reset.to_string());
                let (limit_name, remaining_name) = scope_names(window);
                say(limit_name, limit.to_string());
                say(remaining_name, remaining.to_string());
            }
            Dialect::Pelias => {
                let (limit_name, remaining_name) = scope_names(window);
                say(limit_name, limit.to_string());
                say(remaining_name, remaining.to_string());
            }
            Dialect::Discord => {
                let ms = whole_ms(quota.reset);
                say("Date", date::imf_fixdate(wall));
                say("X-RateLimit-Limit", limit.to_string());
                say("X-RateLimit-Remaining", remaining.to_string());
                say("X-RateLimit-Reset", epoch_after(wall, quota.reset).to_string());
                say("X-RateLimit-Reset-After", format!("{}.{:03}", ms / 1000, ms % 1000));
                say("X-RateLimit-Bucket", "tide".to_string());
            }
        }
        if let Some(wait) = wait.filter(|_| self.asks_in_seconds()) {
            say("Retry-After", whole_seconds(wait).to_string());
        }
    }

    /// Whether the wait is sent as plain Retry-After.
    pub(crate) const fn asks_in_seconds(self) -> bool {
        match self {
            Dialect::None
            | Dialect::RetryAfterDate
            | Dialect::RetryAfterMs
            | Dialect::Amz
            | Dialect::SentinelHub
            | Dialect::Mapbox
            | Dialect::Esri
            | Dialect::Geoserver => false,
            Dialect::RetryAfter
            | Dialect::Ietf
            | Dialect::IetfOlder
            | Dialect::IetfOldest
            | Dialect::XRatelimitEpoch
            | Dialect::XRatelimitEpochMs
            | Dialect::XRatelimitDelta
            | Dialect::XRateLimit
            | Dialect::Github
            | Dialect::Openai
            | Dialect::Kong
            | Dialect::Pelias
            | Dialect::Discord => true,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No dialect has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDialect(pub String);

impl fmt::Display for UnknownDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Dialect::ALL.map(Dialect::name);
        let guess = question(&self.0, &names);
        write!(f, "no header dialect is called `{}`{guess}; known are {}", self.0, names.join(", "))
    }
}

impl core::error::Error for UnknownDialect {}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Dialect, UnknownDialect> {
        let found = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| UnknownDialect(name.to_string()))
    }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The first whole second that is not before `span` after `wall`.
fn epoch_after(wall: Wall, span: Duration) -> i64 {
    let ms = wall.millis().saturating_add(i64::try_from(whole_ms(span)).unwrap_or(i64::MAX));
    ms.div_euclid(1000).saturating_add(i64::from(ms.rem_euclid(1000) > 0))
}

fn say_ms(name: &'static str, wait: Option<Duration>, say: &mut impl FnMut(&'static str, String)) {
    if let Some(wait) = wait {
        say(name, whole_ms(wait).to_string());
    }
}

/// `6m0s`, `1m30s`, `1.5s` or `500ms`, as Go prints durations.
fn go_duration(span: Duration) -> String {
    let ms = whole_ms(span);
    let (minutes, seconds, rest) = (ms / 60_000, ms / 1000 % 60, ms % 1000);
    match (minutes, seconds, rest) {
        (0, 0, _) => format!("{rest}ms"),
        (0, _, 0) => format!("{seconds}s"),
        (0, ..) => format!("{seconds}.{rest:03}s"),
        (_, _, 0) => format!("{minutes}m{seconds}s"),
        _ => format!("{minutes}m{seconds}.{rest:03}s"),
    }
}

/// The scope with the length of the window, or the next shorter one.
const fn scope_names(window_seconds: u64) -> (&'static str, &'static str) {
    match window_seconds {
        0..60 => ("X-RateLimit-Limit-Second", "X-RateLimit-Remaining-Second"),
        60..3_600 => ("X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute"),
        3_600..86_400 => ("X-RateLimit-Limit-Hour", "X-RateLimit-Remaining-Hour"),
        _ => ("X-RateLimit-Limit-Day", "X-RateLimit-Remaining-Day"),
    }
}
