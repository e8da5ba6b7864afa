//! `tidegate dlq` and `tidegate keys` through the built binary, end to end.

mod auto;
mod coarse;
mod desk;
mod geocode;
mod keep;
mod kill;
mod mend;
mod nightly;
mod put;
mod rot;
mod seal;
mod triage;
