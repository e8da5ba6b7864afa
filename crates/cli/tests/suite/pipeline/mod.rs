//! Pipelines through the built binary: each step and gate with exact counts, each sink, and what a
//! kill leaves behind.

pub(crate) mod bench;
mod billing;
mod calls;
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
mod remedied;
mod remote;
mod replay;
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
