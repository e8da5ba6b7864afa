//! Encodes samples as `ExportMetricsServiceRequest`.

use super::proto::Proto;
use super::{Attributes, resource, scope, text};
use crate::telemetry::metric::{ALL, MetricKind};
use crate::telemetry::sample::{Of, Sample, SampleValue, series};

/// The aggregation temporality: values since the start, not since the last export.
const CUMULATIVE: i64 = 2;

/// Encodes the message; times are in nanoseconds since 1970.
pub(super) fn encode(attributes: &Attributes, all: &[Of<'_>], start: u64, now: u64) -> Vec<u8> {
    let mut out = Proto::default();
    out.message(1, |of| {
        resource(of, attributes);
        of.message(2, |of| {
            scope(of);
            for metric in ALL {
                let mut series = series(all, metric).peekable();
                if series.peek().is_none() {
                    continue;
                }
                of.message(2, |out| {
                    out.text(1, metric.name);
                    out.text(2, metric.help);
                    out.text(3, metric.unit);
                    let field = match metric.kind {
                        MetricKind::Gauge => 5,
                        MetricKind::Counter => 7,
                        MetricKind::Histogram => 9,
                    };
                    out.message(field, |data| {
                        series.for_each(|(pipeline, sample)| point(data, sample, pipeline, start, now));
                        if metric.kind != MetricKind::Gauge {
                            data.int(2, CUMULATIVE);
                        }
                        if metric.kind == MetricKind::Counter {
                            data.int(3, 1);
                        }
                    });
                });
            }
        });
    });
    out.into_bytes()
}

/// One data point, field 1 of its metric.
fn point(out: &mut Proto, sample: &Sample, pipeline: Option<&str>, start: u64, now: u64) {
    out.message(1, |point| {
        point.fixed64(2, start);
        point.fixed64(3, now);
        let labels = match &sample.value {
            SampleValue::Number(value) => {
                point.double(4, *value);
                7
            }
            SampleValue::Histogram { ends, counts, sum } => {
                point.fixed64(4, counts.iter().sum());
                point.double(5, *sum);
                point.packed(6, counts.iter().copied());
                point.packed(7, ends.iter().map(|end| end.to_bits()));
                9
            }
        };
        if let Some(pipeline) = pipeline {
            text(point, labels, "pipeline", pipeline);
        }
        for (name, value) in sample.metric.labels.iter().zip(&sample.labels) {
            text(point, labels, name, value);
        }
    });
}
