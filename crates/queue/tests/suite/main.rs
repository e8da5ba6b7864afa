//! The conformance suite over every transport, against a real server each, as one program: it is linked
//! once. Most of its time it waits for leases to end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "a test starts programs and reaches databases in its own way")]

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "pubsub")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "nats", feature = "redis"))]
mod server;
mod sqlite;
#[cfg(feature = "sqs")]
mod sqs;
