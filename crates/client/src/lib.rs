#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`lane`] | lanes on real time: permits, queues, a registry by host and credential |
//! | [`call`] | the driver of one call: attempts, waits, the outcome with its history |
//! | [`http`] | requests, connections and answers, with filtered addresses and redirects |
//! | [`profile`] | how a provider speaks, as data: hints, errors in a 200, questions and answers |
//! | [`secret`] | references to secrets, and their redaction |
//! | [`telemetry`] | what calls count, spans of calls, Prometheus' text and OTLP |
//! | `cache` | the response cache, with the feature `cache` |
//! | `store` | object stores through lanes, with the feature `store` |
//! | [`adapter`] | for HTTP clients that are not ours; a tower layer, with the feature `tower` |
//! | [`duration`] | durations as people write them |
//! | [`durable`] | small files that are replaced whole, and survive a crash |
//! | [`lock`] | a lock that outlives a panic of another thread |
#![forbid(unsafe_code)]

pub mod adapter;
#[cfg(feature = "cache")]
pub mod cache;
pub mod call;
pub mod durable;
pub mod duration;
pub mod http;
pub mod lane;
pub mod lock;
pub mod profile;
pub mod secret;
#[cfg(feature = "store")]
pub mod store;
pub mod telemetry;
