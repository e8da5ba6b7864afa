//! Prometheus rules about queues and workers. They compare the workers of a group, which no single one of
//! them can, so they are rules and not alerts of a run.

use std::fmt::Write;

use tidegate_pipeline::telemetry::metric as m;

use super::rules::quoted;

/// Ten minutes.
const OLDEST_SECONDS: u32 = 600;
/// The share of redeliveries, and the number of tasks below which it says nothing.
const REDELIVERED: f64 = 0.1;
const RECEIVED_MIN: u32 = 100;

struct QueueRule {
    title: &'static str,
    name: &'static str,
    expression: String,
    patience: &'static str,
    severity: &'static str,
    summary: &'static str,
    advice: &'static str,
}

/// The group of rules.
pub(super) fn group() -> String {
    let mut out = String::from("  - name: tidegate-queue\n    rules:\n");
    for rule in rules() {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "      - alert: {}\n        expr: {}\n        for: {}\n        labels:\n          \
             severity: {}\n          alert: {}\n        annotations:\n          summary: {}\n          \
             description: {}\n",
            rule.title,
            quoted(&rule.expression),
            rule.patience,
            rule.severity,
            rule.name,
            quoted(rule.summary),
            quoted(rule.advice),
        );
    }
    out
}

fn rules() -> Vec<QueueRule> {
    let increase = |metric: &m::Metric, labels: &str, window: &str| {
        format!("sum by (pipeline) (increase({}{labels}[{window}]))", metric.name)
    };
    let ready = format!("max by (pipeline) ({}{{state=\"ready\"}}) > 0", m::QUEUE_MESSAGES.name);
    let ended = increase(&m::TASKS, "{outcome=~\"done|dead|repeated\"}", "5m");
    let (again, received) =
        (increase(&m::TASKS_REDELIVERED, "", "15m"), increase(&m::TASKS_RECEIVED, "", "15m"));
    vec![
        QueueRule {
            title: "TidegateQueueOldest",
            name: "queue_oldest",
            expression: format!("max by (pipeline) ({}) > {OLDEST_SECONDS}", m::QUEUE_OLDEST.name),
            patience: "1m",
            severity: "warning",
            summary: "{{ $labels.pipeline }}: the oldest message has waited for {{ $value | humanizeDuration }}",
            advice: "the workers do not keep up; start more of them, or look at what limits them",
        },
        QueueRule {
            title: "TidegateQueueStalled",
            name: "queue_stalled",
            expression: format!("{ready} unless {ended} > 0"),
            patience: "10m",
            severity: "critical",
            summary: "{{ $labels.pipeline }}: {{ $value }} messages are ready, and no task has ended for ten minutes",
            advice: "look at the log of the workers: the sink may be down, or a service may ask them to wait",
        },
        QueueRule {
            title: "TidegateRedeliveries",
            name: "redeliveries",
            expression: format!("{again} / {received} > {REDELIVERED} and {received} >= {RECEIVED_MIN}"),
            patience: "5m",
            severity: "warning",
            summary: "{{ $labels.pipeline }}: {{ $value | humanizePercentage }} of the tasks were delivered before",
            advice: "workers crash, or lose their leases; look at their restarts and raise source.tasks.lease_seconds if the queue is far away",
        },
        QueueRule {
            title: "TidegateDeadTasks",
            name: "dead_tasks",
            expression: format!("{} > 0", increase(&m::TASKS, "{outcome=\"dead\"}", "1h")),
            patience: "0s",
            severity: "warning",
            summary: "{{ $labels.pipeline }}: {{ $value | humanize }} tasks became dead letters within the last hour",
            advice: "look at them with tidegate dlq ls, then repair and replay them",
        },
    ]
}
