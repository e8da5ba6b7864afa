//! The panels about queues and workers.

use tidegate_pipeline::telemetry::metric as m;

use super::grafana::PanelKind::{Lines, Stack};
use super::grafana::{Row, now, panel, rate};

/// The row of the dashboard.
pub(super) fn row() -> Row {
    // Each worker of a group reports the same queue: the largest report counts.
    let until_empty = format!(
        "max by (pipeline) (sum by (pipeline, instance) ({})) / sum by (pipeline) (rate({}{{pipeline=~\"$pipeline\",outcome=~\"done|dead\"}}[$__rate_interval]))",
        now(&m::QUEUE_MESSAGES),
        m::TASKS.name
    );
    (
        "Queue (from `worker`)",
        vec![
            panel(
                "Messages",
                Stack,
                "short",
                8,
                vec![(
                    format!("max by (pipeline, state) ({})", now(&m::QUEUE_MESSAGES)),
                    "{{pipeline}} {{state}}",
                )],
                &m::QUEUE_MESSAGES,
            ),
            panel(
                "Age of the oldest message",
                Lines,
                "s",
                8,
                vec![(format!("max by (pipeline) ({})", now(&m::QUEUE_OLDEST)), "{{pipeline}}")],
                &m::QUEUE_OLDEST,
            ),
            panel(
                "Time until the queue is empty",
                Lines,
                "s",
                8,
                vec![(until_empty, "{{pipeline}}")],
                &m::QUEUE_MESSAGES,
            ),
            panel(
                "Tasks by outcome",
                Stack,
                "cps",
                8,
                vec![(rate(&m::TASKS, "outcome"), "{{outcome}}")],
                &m::TASKS,
            ),
            panel(
                "Share of redeliveries",
                Lines,
                "percentunit",
                8,
                vec![(
                    format!(
                        "{} / {}",
                        rate(&m::TASKS_REDELIVERED, "pipeline"),
                        rate(&m::TASKS_RECEIVED, "pipeline")
                    ),
                    "{{pipeline}}",
                )],
                &m::TASKS_REDELIVERED,
            ),
            panel(
                "Dead tasks per hour",
                Lines,
                "short",
                8,
                vec![(
                    format!(
                        "sum by (pipeline) (increase({}{{pipeline=~\"$pipeline\",outcome=\"dead\"}}[1h]))",
                        m::TASKS.name
                    ),
                    "{{pipeline}}",
                )],
                &m::TASKS,
            ),
        ],
    )
}
