//! Encodes spans as `ExportTraceServiceRequest`, with the names of the OpenTelemetry conventions.

use super::proto::Proto;
use super::{Attributes, double, int, resource, scope, text};
use crate::telemetry::trace::{CallSpan, TraceSpan, Tracer, attempt_id};
use tidegate_core::VerdictKind;

const INTERNAL: i64 = 1;
const CLIENT: i64 = 3;
const FAILED: i64 = 2;

/// Encodes the message.
pub(super) fn encode(
    attributes: &Attributes,
    pipeline: &str,
    tracer: &Tracer,
    spans: &[TraceSpan],
) -> Vec<u8> {
    let mut out = Proto::default();
    out.message(1, |of| {
        resource(of, attributes);
        of.message(2, |of| {
            scope(of);
            spans.iter().for_each(|span| write(of, tracer, pipeline, span));
        });
    });
    out.into_bytes()
}

/// The fields that every span of the protocol has.
struct SpanHeader<'a> {
    /// The span id.
    id: u64,
    /// The id of the parent span; 0 for none.
    parent: u64,
    name: &'a str,
    kind: i64,
    /// Start and end, in nanoseconds since 1970.
    at: (u64, u64),
}

fn span(out: &mut Proto, tracer: &Tracer, head: &SpanHeader<'_>, more: impl FnOnce(&mut Proto)) {
    out.message(2, |span| {
        span.bytes(1, &tracer.trace());
        span.bytes(2, &head.id.to_be_bytes());
        if head.parent != 0 {
            span.bytes(4, &head.parent.to_be_bytes());
        }
        span.text(5, head.name);
        span.int(6, head.kind);
        span.fixed64(7, head.at.0);
        span.fixed64(8, head.at.1);
        more(span);
    });
}

/// `Status`, field 15.
fn failed(out: &mut Proto, why: &str) {
    out.message(15, |status| {
        status.text(2, why);
        status.int(3, FAILED);
    });
}

fn write(out: &mut Proto, tracer: &Tracer, pipeline: &str, what: &TraceSpan) {
    let (root, parent) = tracer.root();
    match what {
        TraceSpan::Run { at, outcome, failed: bad } => {
            let head = SpanHeader { id: root, parent, name: "run", kind: INTERNAL, at: *at };
            span(out, tracer, &head, |out| {
                text(out, 9, "tidegate.pipeline", pipeline);
                text(out, 9, "tidegate.outcome", outcome);
                if *bad {
                    failed(out, outcome);
                }
            });
        }
        TraceSpan::Batch { id, at, records, dead } => {
            let head = SpanHeader { id: *id, parent: root, name: "batch", kind: INTERNAL, at: *at };
            span(out, tracer, &head, |out| {
                int(out, 9, "tidegate.records", *records as i64);
                int(out, 9, "tidegate.dead", *dead as i64);
            });
        }
        TraceSpan::Call(call) => self::call(out, tracer, call),
    }
}

/// Host and port, which are separate attributes in the conventions.
fn server(out: &mut Proto, host: &str) {
    let port = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
    match port {
        Some((name, port)) if !name.is_empty() => {
            text(out, 9, "server.address", name.trim_matches(['[', ']']));
            int(out, 9, "server.port", i64::from(port));
        }
        _ => text(out, 9, "server.address", host),
    }
}

fn call(out: &mut Proto, tracer: &Tracer, call: &CallSpan) {
    let head = SpanHeader { id: call.id, parent: call.parent, name: "call", kind: INTERNAL, at: call.at };
    span(out, tracer, &head, |out| {
        server(out, &call.host);
        text(out, 9, "tidegate.outcome", &call.outcome);
        double(out, 9, "tidegate.queued_seconds", call.spans.queued.as_secs_f64());
        double(out, 9, "tidegate.backoff_seconds", call.spans.backoff.as_secs_f64());
        if call.failed {
            text(out, 9, "error.type", &call.outcome);
            failed(out, &call.outcome);
        }
    });
    for (number, attempt) in (1u32..).zip(&call.attempts) {
        let head = SpanHeader {
            id: attempt_id(call.id, number),
            parent: call.id,
            name: call.method,
            kind: CLIENT,
            at: (call.nanos(attempt.sent), call.nanos(attempt.settled)),
        };
        span(out, tracer, &head, |out| {
            text(out, 9, "http.request.method", call.method);
            server(out, &call.host);
            if number > 1 {
                int(out, 9, "http.request.resend_count", i64::from(number - 1));
            }
            if let Some(status) = attempt.verdict.status {
                int(out, 9, "http.response.status_code", i64::from(status));
            }
            if !matches!(attempt.verdict.kind, VerdictKind::Done | VerdictKind::NoMatch) {
                let code = attempt.verdict.code;
                text(out, 9, "error.type", code.as_str());
                failed(out, code.as_str());
            }
        });
    }
}
