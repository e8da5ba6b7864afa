#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`lane`] | lanes in real time: permits, queues, a registry by host and credential |
//! | [`call`] | drives one call: attempts, waits, the outcome with its history |
//! | [`http`] | requests, connections and responses, with checked addresses and redirects |
//! | [`objects`] | what may be opened when its name came in data |
//! | [`profile`] | provider profiles: hints, errors with status 200, queries and answers, as data |
//! | [`secret`] | references to secrets, and their redaction |
//! | [`telemetry`] | counters and spans of calls, the Prometheus text format and OTLP |
//! | `cache` | the response cache, with the feature `cache` |
//! | [`store`] | object stores through lanes, with the feature `object-store` |
//! | `postgres_tls` | TLS to PostgreSQL, with the feature `postgres` |
//! | [`child`] | starts programs, with no more of the environment than they need |
//! | [`adapter`] | adapters for other HTTP clients; a tower layer, with the feature `tower` |
//! | [`duration`] | durations with units, such as `1m30s` |
//! | [`durable`] | atomic, durable replacement of small files |
//! | [`lock`] | locks a mutex even if it is poisoned |
#![forbid(unsafe_code)]

pub use tidegate_core;

/// The examples of the page about this crate are compiled as its doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
mod page {}

pub mod adapter;
#[cfg(feature = "cache")]
pub mod cache;
pub mod call;
pub mod child;
pub mod durable;
pub mod duration;
pub mod http;
pub mod lane;
pub mod lock;
pub mod objects;
#[cfg(feature = "postgres")]
pub mod postgres_tls;
pub mod profile;
pub mod secret;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
pub mod telemetry;
