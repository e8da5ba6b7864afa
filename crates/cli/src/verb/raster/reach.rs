//! The options for remote rasters, for all subcommands that read one.
//!
//! They are set before the subcommand runs, for its thread: what opens a raster has only its address. Not
//! for the process, because a host calls one command after another, or several at once.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use tidegate_client::objects::ObjectAddress;
use tidegate_client::secret::{Given, Secret};
use tidegate_core::quote::scheme;
use tidegate_pipeline::raster::RasterReach;
use tidegate_raster::RasterError;

use super::super::calls::time;
use super::super::cloud::CloudArgs;

thread_local! {
    static REACH: RefCell<Option<RasterReach>> = const { RefCell::new(None) };
}

/// Options for remote rasters.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct ReachArgs {
    /// Maximum attempts per range of a remote raster; throttled calls and outages do not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), global = true)]
    attempts: u32,
    /// Wait before the first retry, before jitter; each further wait is twice as long
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = time, global = true)]
    base_delay: Duration,
    /// Deadline of a range, from its first attempt
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time, global = true)]
    deadline: Duration,
    /// Stop with exit code 75 if the server asks to wait, or fails, for longer than this
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time, global = true)]
    patience: Duration,
    /// Allow host names to resolve to private addresses
    #[arg(long, global = true)]
    allow_private: bool,
    /// Look for .aux.xml and .msk beside remote COGs too, which have their position and mask inside
    #[arg(long, global = true)]
    sidecars: bool,
    #[command(flatten)]
    cloud: CloudArgs,
}

/// Sets them for this thread.
pub(super) fn set(args: &ReachArgs) {
    let mut reach = RasterReach {
        patience: args.patience,
        private: args.allow_private,
        looks_beside_cogs: args.sidecars,
        cloud: args.cloud.settings(args.allow_private),
        ..RasterReach::default()
    };
    reach.policy.attempts_max = args.attempts;
    reach.policy.deadline = args.deadline;
    reach.policy.backoff = reach.policy.backoff.bounded(Some(args.base_delay), None);
    let mut seed = [0; 8];
    // Without randomness the jitter is always the same.
    let _ = getrandom::fill(&mut seed);
    reach.seed = u64::from_le_bytes(seed);
    REACH.set(Some(reach));
}

/// How remote rasters are reached.
pub(super) fn get() -> RasterReach {
    REACH.with_borrow(Clone::clone).unwrap_or_default()
}

/// An address that a person wrote on the command line.
pub(super) fn written(file: &Path) -> Result<ObjectAddress, RasterError> {
    let file = file.to_string_lossy();
    // The parser of options has refused what only looks like a reference. `file:///dir` is an address.
    let held = match file.parse::<Given>() {
        Ok(given) if scheme(&file).is_none() => Some(given.fetch()),
        _ => None,
    };
    let held = held.transpose().map_err(|error| RasterError::invalid(error.to_string()))?;
    let address = held.as_ref().map_or(&*file, Secret::reveal);
    let written = ObjectAddress::written(address, Path::new(""), get().private);
    written.map_err(|error| RasterError::invalid(error.to_string()))
}
