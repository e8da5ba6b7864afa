use super::*;
use crate::telemetry::metric;
use crate::telemetry::sample::{Sample, SampleValue};
use crate::telemetry::trace::{TraceSpan, Tracer};
use std::collections::HashMap;
use std::time::Duration;

/// The value of a field.
#[derive(Debug, PartialEq)]
enum Held<'a> {
    Int(u64),
    Eight(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Held<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            n |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return n;
            }
        }
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let held = match tag & 7 {
            0 => Held::Int(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                Held::Eight(u64::from_le_bytes(*eight))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Held::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, held));
    }
    all
}

/// The messages that a path of field numbers leads to.
fn at<'a>(bytes: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    let Some((first, rest)) = path.split_first() else { return vec![bytes] };
    fields(bytes)
        .into_iter()
        .filter_map(|(field, held)| match held {
            Held::Bytes(inner) if field == *first => Some(inner),
            _ => None,
        })
        .flat_map(|inner| at(inner, rest))
        .collect()
}

fn said<'a>(bytes: &'a [u8], path: &[u64]) -> Vec<&'a str> {
    at(bytes, path).into_iter().map(|text| std::str::from_utf8(text).unwrap()).collect()
}

fn env(vars: &[(&str, &str)]) -> Result<Option<OtlpConfig>, OtlpEnvError> {
    let vars: HashMap<String, String> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    OtlpConfig::from_env(&|name| vars.get(name).cloned())
}

#[test]
fn the_variables_mean_what_the_standard_says() {
    assert_eq!(env(&[]), Ok(None));
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/");
    assert_eq!(env(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
    let config = env(&[
        endpoint,
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.example/in"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x=2"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=old,deployment.environment=lab"),
        ("OTEL_SERVICE_NAME", "parcels"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ])
    .unwrap()
    .unwrap();
    let (metrics, traces) = (config.metrics.unwrap(), config.traces.unwrap());
    assert_eq!(metrics.url.as_str(), "http://collector:4318/base/v1/metrics");
    assert_eq!(traces.url.as_str(), "https://traces.example/in");
    assert_eq!(
        (&metrics.headers["api-key"], &metrics.headers["x"], &traces.headers["x"]),
        (&"a b".parse().unwrap(), &"1".parse().unwrap(), &"2".parse().unwrap())
    );
    assert!(metrics.headers["api-key"].is_sensitive());
    let is = |key: &str| config.attributes.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    assert_eq!((is("service.name"), is("deployment.environment")), (Some("parcels"), Some("lab")));
    assert_eq!((config.interval, config.gzip), (Duration::from_millis(2500), true));
    let off = env(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().unwrap();
    assert!(off.traces.is_none() && off.metrics.is_some());
    let unsampled =
        env(&[endpoint, ("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")]);
    assert!(unsampled.unwrap().unwrap().traces.is_none(), "the parent is not sampled");
    assert!(env(&[endpoint, ("OTEL_TRACES_SAMPLER", "always_off")]).unwrap().unwrap().traces.is_none());
}

#[test]
fn what_cannot_be_followed_is_said_by_name_and_without_secrets() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRICS_EXPORTER", "console"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
    ] {
        let error = env(&[endpoint, (name, value)]).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
    let error =
        env(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key:hunter2secret")]).unwrap_err().to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_HEADERS") && !error.contains("hunter2"), "{error}");
    let error =
        env(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2%0asecret")]).unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn readings_are_metrics() {
    let histogram = SampleValue::Histogram { ends: vec![1.0, 2.0], counts: vec![3, 0, 1], sum: 9.5 };
    let samples = [
        Sample::of(&metric::RETRIES, &["geo.example"], 7.0),
        Sample { metric: &metric::COMMIT, labels: vec![], value: histogram },
    ];
    let bytes =
        metrics::encode(&vec![("service.name".into(), "s".into())], &[(Some("parcels"), &samples)], 11, 22);
    assert_eq!(said(&bytes, &[1, 1, 1, 1]), ["service.name"]);
    assert_eq!(said(&bytes, &[1, 2, 2, 1]), ["retry_count_total", "tidegate_commit_seconds"]);
    let point = at(&bytes, &[1, 2, 2, 7, 1])[0];
    assert!(fields(point).contains(&(2, Held::Eight(11))) && fields(point).contains(&(3, Held::Eight(22))));
    assert!(fields(point).contains(&(4, Held::Eight(7f64.to_bits()))));
    assert_eq!(said(point, &[7, 1]), ["pipeline", "host"]);
    assert_eq!(said(point, &[7, 2, 1]), ["parcels", "geo.example"]);
    let sum = at(&bytes, &[1, 2, 2, 7])[0];
    assert!(fields(sum).contains(&(2, Held::Int(2))) && fields(sum).contains(&(3, Held::Int(1))));
    let point = at(&bytes, &[1, 2, 2, 9, 1])[0];
    assert!(fields(point).contains(&(4, Held::Eight(4))));
    assert_eq!(at(point, &[6])[0].len(), 24);
    assert_eq!(at(point, &[7])[0], [1f64.to_le_bytes(), 2f64.to_le_bytes()].concat());
}

#[test]
fn spans_hang_together() {
    let tracer = Tracer::new(None, [9; 24], 100);
    let (root, _) = tracer.root();
    let batch = tracer.batch();
    tracer.committed(batch, 10, 1);
    tracer.ended(5, "done", false);
    let (all, dropped) = tracer.drain();
    assert_eq!((all.len(), dropped), (2, 0));
    let bytes = spans::encode(&vec![], "parcels", &tracer, &all);
    let messages = at(&bytes, &[1, 2, 2]);
    assert_eq!(said(&bytes, &[1, 2, 2, 5]), ["batch", "run"]);
    assert_eq!(at(messages[0], &[4]), [root.to_be_bytes()]);
    assert_eq!(at(messages[1], &[2]), [root.to_be_bytes()]);
    assert!(at(messages[1], &[4]).is_empty(), "the run has no parent");
    assert!(at(&bytes, &[1, 2, 2, 1]).iter().all(|trace| *trace == [9; 16]));
    assert!(matches!(all[1], TraceSpan::Run { failed: false, .. }));
}
