//! `submit` and `queue` through the built binary, on the queue in a SQLite file and a GeoPackage.

mod bench;
mod inputs;
mod journeys;
mod verbs;
