//! OTLP: exports metrics and spans to a collector, over HTTP, in protobuf.
//!
//! Why our own encoder and not the opentelemetry crates: they add some forty crates and a second
//! HTTP client, where a few dozen field numbers suffice, and they bring their own registry. The
//! HTTP client, retries and timeouts are those of all other calls.
//!
//! | file | holds |
//! |---|---|
//! | `env` | the standard `OTEL_*` variables |
//! | `proto` | the required part of the protobuf wire format |
//! | `metrics`, `spans` | the messages |
//! | `push` | sends exports to the collector |

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

/// The resource attributes of all messages.
pub type Attributes = Vec<(String, String)>;

/// `KeyValue` with a text.
fn text(out: &mut Proto, field: u32, key: &str, value: &str) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.text(1, value));
    });
}

/// `KeyValue` with an integer.
fn int(out: &mut Proto, field: u32, key: &str, value: i64) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.int(3, value));
    });
}

/// `KeyValue` with a floating-point number.
fn double(out: &mut Proto, field: u32, key: &str, value: f64) {
    out.message(field, |kv| {
        kv.text(1, key);
        kv.message(2, |any| any.double(4, value));
    });
}

/// `Resource`, field 1 of the enclosing message.
fn resource(out: &mut Proto, attributes: &Attributes) {
    out.message(1, |resource| attributes.iter().for_each(|(key, value)| text(resource, 1, key, value)));
}

/// `InstrumentationScope`, field 1 of the enclosing message.
fn scope(out: &mut Proto) {
    out.message(1, |scope| {
        scope.text(1, "tidegate");
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
}
