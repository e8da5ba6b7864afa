//! What `geocode` and `fetch` can be told about their calls, and what that makes of them.
//!
//! Both hold their calls to the same rules, so the options, their bounds and what they become are
//! written once. A verb changes words where it speaks of other things.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_client::http::{Allow, ClientConfig};
use tidegate_client::profile::{Profile, Profiles};
use tidegate_client::secret::{Secret, SecretRef};
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tidegate_pipeline::manifest::duration;
use tidegate_pipeline::preset;
use url::Url;

/// How often, how long and how fast to ask.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Calls {
    /// Never ask faster than this, such as 10 or 10/s or 600/min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Attempts per row, at most; throttles and outages do not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) attempts: u32,

    /// Time for one attempt [default: the profile's]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) timeout: Option<Duration>,

    /// Time for one row, from its first attempt
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(super) deadline: Duration,

    /// If the service asks for a longer wait than this, stop with exit code 75
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time)]
    pub(super) patience: Duration,

    /// Decides all jitter, for a run that can be repeated
    #[arg(long, value_name = "N", display_order = LAST)]
    seed: Option<u64>,
}

/// Behind everything that a verb adds, before `--help`.
const LAST: usize = 900;

/// Whom to ask, and where that may lead.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Reach {
    /// Own profiles: a file or a directory of them
    #[arg(long, value_name = "PATH")]
    pub(super) profiles: Option<PathBuf>,

    /// Let names and redirects lead to private and loopback addresses
    #[arg(long)]
    pub(super) allow_private: bool,

    /// A further host that redirects may lead to
    #[arg(long, value_name = "HOST")]
    pub(super) allow_host: Vec<String>,
}

/// What the calls of a job are held to.
pub(super) struct Held {
    /// Where the key came from, and its value.
    pub(super) key: Option<(String, Secret)>,
    pub(super) client: ClientConfig,
    pub(super) policy: CallPolicy,
    pub(super) lane: LaneConfig,
    pub(super) patience: Duration,
    pub(super) seed: u64,
}

impl Calls {
    /// What calls with this profile to `url` are held to.
    pub(super) fn held(
        &self,
        reach: &Reach,
        key: Option<&SecretRef>,
        profile: &Profile,
        url: &Url,
    ) -> Result<Held, String> {
        let key = match key {
            None => None,
            Some(from) => Some((from.to_string(), from.fetch().map_err(|e| format!("--key: {e}"))?)),
        };
        let allow = Allow::meant(url, reach.allow_private, &reach.allow_host);
        let mut client = ClientConfig { allow, ..ClientConfig::default() };
        client.body.bytes_max = profile.body_bytes_max();
        let policy = CallPolicy {
            attempts_max: self.attempts,
            deadline: self.deadline,
            attempt_timeout: self.timeout.unwrap_or(profile.timeout()),
            ..preset::policy()
        };
        let mut lane = preset::lane();
        lane.limit.rate_max = self.rate;
        lane.limit.in_flight_max = profile.in_flight();
        Ok(Held { key, client, policy, lane, patience: self.patience, seed: self.seed.unwrap_or_else(seed) })
    }

    /// The rate, in words.
    pub(super) fn pace(&self) -> String {
        self.rate.map_or_else(|| "learned".into(), |rate| format!("{rate} per second at most"))
    }
}

impl Reach {
    /// The profile of this name.
    pub(super) fn profile(&self, name: &str) -> Result<Profile, String> {
        Profiles::one(name, self.profiles.as_deref())
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| format!("{text:?} is no time; say 30s, 5m or 1h30m"))
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per.trim() {
        "s" | "sec" | "second" => 1.0,
        "min" | "m" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        _ => return Err(format!("{per:?} is no unit of a rate; say /s, /min or /h")),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if n > 0.0 && n.is_finite() => Ok(n / seconds),
        _ => Err(format!("{text:?} is no rate; say 10/s")),
    }
}

/// A seed from the operating system's own randomness, through the hasher of the standard library.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate("10"), Ok(10.0));
        assert_eq!(rate("600/min"), Ok(10.0));
        assert_eq!(rate("36/h"), Ok(0.01));
        assert!(rate("0").is_err() && rate("x/s").is_err() && rate("1/day").is_err());
    }
}
