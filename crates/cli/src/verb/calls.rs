//! The options of `geocode` and `fetch` about their calls, and the state directory of all commands.
//!
//! Both commands have the same options with the same limits; a command may override a help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use tidegate_client::profile::{Profile, Profiles};
use tidegate_core::patience;
use tidegate_core::quote::scheme;
use tidegate_pipeline::manifest::duration;

/// Reads a state directory, which is on this machine: a URL would become a directory of that name.
pub(crate) fn state_dir() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str().and_then(scheme) {
        Some(scheme) => Err(format!("{scheme}:// cannot hold the state; use a local directory")),
        None => Ok(path),
    })
}

/// Options for rate, attempts and time limits.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct CallArgs {
    /// Maximum call rate, such as 10, 10/s or 600/min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Maximum attempts per row; throttled calls and outages do not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) attempts: u32,

    /// Timeout of one attempt [default: from the profile]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) timeout: Option<Duration>,

    /// Deadline for one row, from its first attempt; stop with exit code 75 if the service asks to
    /// wait, or fails, for longer [default: 5m, without that stop]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) deadline: Option<Duration>,

    /// Stop with exit code 75 if the service asks to wait, or fails, for longer than this
    /// [default: 15m, or --deadline if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) patience: Option<Duration>,
}

impl CallArgs {
    /// How long the command waits for a service. Whoever sets a deadline and asks for no more
    /// patience does not want to wait beyond it.
    pub(super) fn patience(&self) -> Duration {
        let deadline = self.deadline.unwrap_or(patience::DEFAULT);
        self.patience.unwrap_or(deadline.min(patience::DEFAULT))
    }
}

/// Options for profiles and permitted addresses.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Reach {
    /// Additional profiles: a file or a directory
    #[arg(long, value_name = "PATH")]
    pub(super) profiles: Option<PathBuf>,

    /// Allow host names and redirects to resolve to private and loopback addresses
    #[arg(long)]
    pub(super) allow_private: bool,

    /// Additional host that redirects may lead to, or another port of the same host
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(super) allow_host: Vec<String>,
}

impl Reach {
    /// The profile of this name.
    pub(super) fn profile(&self, name: &str) -> Result<Profile, String> {
        Profiles::one(name, self.profiles.as_deref()).map_err(|e| e.to_string())
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("invalid duration {text:?}; expected a value such as 30s, 5m or 1h30m"))
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per.trim() {
        "s" | "sec" | "second" => 1.0,
        "min" | "m" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        _ => return Err(format!("invalid rate unit {per:?}; expected one of /s, /min, /h")),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if n > 0.0 && n.is_finite() => Ok(n / seconds),
        _ => Err(format!("invalid rate {text:?}; expected a value such as 10/s")),
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
