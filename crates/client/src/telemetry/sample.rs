//! Current values of metrics, and the Prometheus text format.

use super::metric::{ALL, Metric, MetricKind};
use std::fmt::Write;

/// The current value of one time series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric.
    pub metric: &'static Metric,
    /// The values of its labels, in the order of their names.
    pub labels: Vec<String>,
    /// The value.
    pub value: SampleValue,
}

/// The value of a time series.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A counter or a gauge.
    Number(f64),
    /// A histogram: the upper bounds of the buckets with the count in each; the last bucket has no bound.
    Histogram {
        /// The upper bounds of the buckets.
        ends: Vec<f64>,
        /// The count of each bucket: one more than there are bounds.
        counts: Vec<u64>,
        /// The sum of all values.
        sum: f64,
    },
}

impl Sample {
    /// A counter or a gauge without labels of its own.
    #[must_use]
    pub fn number(metric: &'static Metric, value: f64) -> Sample {
        Sample { metric, labels: Vec::new(), value: SampleValue::Number(value) }
    }

    /// A counter or a gauge.
    #[must_use]
    pub fn of(metric: &'static Metric, labels: &[&str], value: f64) -> Sample {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Sample { metric, labels, value: SampleValue::Number(value) }
    }
}

/// Merges equal series, as of two services on one host: counters are added, of gauges the larger
/// applies.
#[must_use]
pub fn merged(samples: Vec<Sample>) -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::with_capacity(samples.len());
    for sample in samples {
        let same = |s: &&mut Sample| std::ptr::eq(s.metric, sample.metric) && s.labels == sample.labels;
        match (all.iter_mut().find(same).map(|s| &mut s.value), &sample.value) {
            (Some(SampleValue::Number(a)), SampleValue::Number(b))
                if sample.metric.kind == MetricKind::Counter =>
            {
                *a += b;
            }
            (Some(SampleValue::Number(a)), SampleValue::Number(b)) => *a = a.max(*b),
            (
                Some(SampleValue::Histogram { counts, sum, .. }),
                SampleValue::Histogram { counts: more, sum: s, .. },
            ) => {
                counts.iter_mut().zip(more).for_each(|(a, b)| *a += b);
                *sum += s;
            }
            _ => all.push(sample),
        }
    }
    all
}

/// The samples of one pipeline; without a name the label is omitted.
pub type Of<'a> = (Option<&'a str>, &'a [Sample]);

/// The samples of one metric over all pipelines.
pub(super) fn series<'a>(
    all: &'a [Of<'a>],
    metric: &'static Metric,
) -> impl Iterator<Item = (Option<&'a str>, &'a Sample)> {
    let each = |of: &'a Of<'a>| of.1.iter().map(move |sample| (of.0, sample));
    all.iter().flat_map(each).filter(move |(_, sample)| std::ptr::eq(sample.metric, metric))
}

/// The Prometheus text format, in the order of the table.
#[must_use]
pub fn prometheus(all: &[Of<'_>]) -> String {
    let mut out = String::with_capacity(8192);
    for metric in ALL {
        let mut of = series(all, metric).peekable();
        if of.peek().is_none() {
            continue;
        }
        let (name, kind) = (metric.name, metric.kind.word());
        // Writing to a string cannot fail.
        let _ = write!(out, "# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
        for (pipeline, sample) in of {
            let mut labels: Vec<String> =
                pipeline.map(|p| format!("pipeline=\"{}\"", escape(p))).into_iter().collect();
            let own = metric.labels.iter().zip(&sample.labels);
            labels.extend(own.map(|(name, value)| format!("{name}=\"{}\"", escape(value))));
            line(&mut out, sample, &labels);
        }
    }
    out
}

fn line(out: &mut String, sample: &Sample, labels: &[String]) {
    let name = sample.metric.name;
    let mut say = |suffix: &str, more: Option<String>, value: f64| {
        let all: Vec<&str> = labels.iter().map(String::as_str).chain(more.as_deref()).collect();
        let _ = if all.is_empty() {
            writeln!(out, "{name}{suffix} {value}")
        } else {
            writeln!(out, "{name}{suffix}{{{}}} {value}", all.join(","))
        };
    };
    match &sample.value {
        SampleValue::Number(value) => say("", None, *value),
        SampleValue::Histogram { ends, counts, sum } => {
            let ends = ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            let mut so_far = 0;
            for (end, count) in ends.zip(counts) {
                so_far += count;
                say("_bucket", Some(format!("le=\"{end}\"")), so_far as f64);
            }
            say("_sum", None, *sum);
            say("_count", None, so_far as f64);
        }
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
