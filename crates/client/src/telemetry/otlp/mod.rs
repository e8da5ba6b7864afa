//! OTLP: metrics and spans pushed to a collector, over HTTP, in protobuf.
//!
//! Why our own encoder and not the opentelemetry crates: they bring some forty crates and a second
//! HTTP client for what is a few dozen field numbers here, and the numbers come from one registry
//! that they do not know. The client, its retries and its patience with a collector are the ones
//! that every other call of ours uses.
//!
//! | file | holds |
//! |---|---|
//! | `env` | the standard `OTEL_*` variables |
//! | `proto` | protobuf's wire format, the part that is needed |
//! | `metrics`, `spans` | the messages |
//! | `push` | the way to the collector |

pub mod env;
mod metrics;
mod proto;
mod push;
mod spans;
#[cfg(test)]
mod tests;

pub use env::{OtlpConfig, OtlpEnvError};
pub use push::{PushError, Pusher};

use proto::Proto;

/// What all messages say about the process.
pub type Attributes = Vec<(String, String)>;

/// `KeyValue` with a text.
fn text(out: &mut Proto, field: u32, key: &str, value: &str) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.text(1, value));
    });
}

/// `KeyValue` with a whole number.
fn int(out: &mut Proto, field: u32, key: &str, value: i64) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.int(3, value));
    });
}

/// `KeyValue` with a number.
fn double(out: &mut Proto, field: u32, key: &str, value: f64) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.double(4, value));
    });
}

/// `Resource`, field 1 of what it stands in.
fn resource(out: &mut Proto, attributes: &Attributes) {
    out.message(1, |resource| attributes.iter().for_each(|(key, value)| text(resource, 1, key, value)));
}

/// `InstrumentationScope`, field 1 of what it stands in.
fn scope(out: &mut Proto) {
    out.message(1, |scope| {
        scope.text(1, "tidegate");
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
}
