//! Pipelines through the built binary: each step and gate with exact counts, each sink, and what a
//! kill leaves behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may fail loudly")]

mod bench;
mod billing;
mod calls;
#[path = "../common/canned.rs"]
mod canned;
mod deadline;
mod examples;
mod fallback;
mod files;
mod gates;
mod identity;
mod init;
mod journeys;
mod keys;
mod kill;
mod letter_detail;
mod letters;
mod limits;
mod manifest;
mod poison;
mod postgis;
#[path = "../common/provider.rs"]
mod provider;
mod remedied;
mod remote;
mod replay;
#[path = "../common/running.rs"]
mod running;
mod service;
mod service_policy;
mod sink_down;
mod spliced;
mod steps;
mod stranger;
mod stream;
mod sync;
mod tls;
mod traffic;
mod twin;
mod web;
#[path = "../common/workdir.rs"]
mod workdir;
