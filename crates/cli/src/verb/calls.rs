//! What `geocode` and `fetch` can be told about their calls, and what that makes of them.
//!
//! Both hold their calls to the same rules, so the options, their bounds and what they become are
//! written once. A verb changes words where it speaks of other things.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_client::profile::{Profile, Profiles};
use tidegate_pipeline::manifest::duration;

/// How often, how long and how fast to ask.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct CallArgs {
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
}

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
