//! The dashboard for Grafana: one row per question that a person asks, in the order in which they
//! are asked.

use serde_json::{Value as Json, json};
use tidegate_pipeline::telemetry::metric::{self as m, Metric, MetricKind};

/// How a panel is drawn.
#[derive(Clone, Copy)]
enum PanelKind {
    Number,
    Lines,
    Stack,
    Heat,
}

struct Panel {
    title: &'static str,
    draw: PanelKind,
    unit: &'static str,
    width: u32,
    asks: Vec<(String, &'static str)>,
    help: &'static str,
}

const ON: &str = "{pipeline=~\"$pipeline\"}";

fn rate(metric: &Metric, by: &str) -> String {
    format!("sum by ({by}) (rate({}{ON}[$__rate_interval]))", metric.name)
}

fn now(metric: &Metric) -> String {
    format!("{}{ON}", metric.name)
}

/// The quantile of a histogram.
fn quantile(metric: &Metric, share: f64) -> String {
    debug_assert_eq!(metric.kind, MetricKind::Histogram);
    format!("histogram_quantile({share}, sum by (le) (rate({}_bucket{ON}[$__rate_interval])))", metric.name)
}

/// The dashboard as JSON.
pub(super) fn dashboard() -> String {
    let mut panels = Vec::new();
    let (mut x, mut y, mut id) = (0, 0, 0);
    let mut next = || {
        id += 1;
        id
    };
    for (row, members) in rows() {
        if x > 0 {
            (x, y) = (0, y + 8);
        }
        panels.push(json!({
            "id": next(), "type": "row", "title": row, "collapsed": false, "panels": [],
            "gridPos": { "h": 1, "w": 24, "x": 0, "y": y },
        }));
        y += 1;
        let mut tallest = 0;
        for panel in members {
            let height = if matches!(panel.draw, PanelKind::Number) { 4 } else { 8 };
            if x + panel.width > 24 {
                (x, y) = (0, y + tallest);
                tallest = 0;
            }
            tallest = tallest.max(height);
            panels.push(draw(&panel, next(), json!({ "h": height, "w": panel.width, "x": x, "y": y })));
            x += panel.width;
        }
        (x, y) = (0, y + tallest);
    }
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let board = json!({
        "uid": "tidegate",
        "title": "Tidegate",
        "description": "Is the pipeline fighting its provider? Written by `tidegate deploy`.",
        "tags": ["tidegate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0 },
            {
                "name": "pipeline", "label": "Pipeline", "type": "query", "datasource": source,
                "query": { "query": format!("label_values({{__name__=~\"{}\"}}, pipeline)", known()), "refId": "pipelines" },
                "refresh": 2, "sort": 1, "includeAll": true, "multi": true, "current": { "text": "All", "value": "$__all" },
            },
        ] },
        "annotations": { "list": [{
            "name": "Alerts", "enable": true, "iconColor": "red", "datasource": source,
            "expr": format!("{} == 1", now(&m::ALERT)), "titleFormat": "{{alert}}", "textFormat": "{{pipeline}}",
        }] },
        "panels": panels,
    });
    format!("{board:#}\n")
}

/// What tells that there is a pipeline or a store: its own run, or `serve`.
fn known() -> String {
    [&m::RECORDS, &m::LAST_RUN, &m::LETTERS].map(|metric| metric.name).join("|")
}

fn draw(panel: &Panel, id: u32, place: Json) -> Json {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let targets: Vec<Json> = ('A'..)
        .zip(&panel.asks)
        .map(|(letter, (expr, legend))| {
            let heat = matches!(panel.draw, PanelKind::Heat);
            json!({
                "refId": letter.to_string(), "datasource": source, "expr": expr, "legendFormat": legend,
                "format": if heat { "heatmap" } else { "time_series" },
            })
        })
        .collect();
    let stack = json!({ "mode": if matches!(panel.draw, PanelKind::Stack) { "normal" } else { "none" } });
    let fill = if matches!(panel.draw, PanelKind::Stack) { 40 } else { 10 };
    let custom = json!({ "lineWidth": 2, "fillOpacity": fill, "showPoints": "never", "stacking": stack });
    let (kind, custom, options) = match panel.draw {
        PanelKind::Number => (
            "stat",
            json!({}),
            json!({ "reduceOptions": { "calcs": ["lastNotNull"] }, "colorMode": "value" }),
        ),
        PanelKind::Heat => {
            ("heatmap", json!({}), json!({ "calculate": false, "yAxis": { "unit": panel.unit } }))
        }
        PanelKind::Lines | PanelKind::Stack => (
            "timeseries",
            custom,
            json!({ "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } }),
        ),
    };
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.help, "datasource": source,
        "gridPos": place, "targets": targets, "options": options,
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0, "custom": custom }, "overrides": [] },
    })
}

fn panel(
    title: &'static str,
    draw: PanelKind,
    unit: &'static str,
    width: u32,
    asks: Vec<(String, &'static str)>,
    metric: &'static Metric,
) -> Panel {
    Panel { title, draw, unit, width, asks, help: metric.help }
}

type Row = (&'static str, Vec<Panel>);

fn rows() -> Vec<Row> {
    use PanelKind::{Heat, Lines, Number, Stack};
    let one = |title, unit, metric: &'static Metric, expr: String| {
        panel(title, Number, unit, 4, vec![(expr, "")], metric)
    };
    let retry_share =
        format!("sum({}) / sum({})", rate(&m::RETRIES, "pipeline"), rate(&m::ATTEMPTS, "pipeline"));
    let first = "{pipeline=~\"$pipeline\",attempt=\"1\"}";
    let first_share = format!(
        "sum(rate({}{first}[$__rate_interval])) / sum(rate({}{first}[$__rate_interval]))",
        m::ATTEMPTS_SUCCEEDED.name,
        m::ATTEMPTS.name
    );
    let (waits, calls) = (rate(&m::BACKOFF_SECONDS, "host"), rate(&m::CALL_SECONDS, "host"));
    vec![
        (
            "Is it well?",
            vec![
                one(
                    "Records that are written",
                    "percentunit",
                    &m::WRITE_SUCCESS,
                    format!("min({})", now(&m::WRITE_SUCCESS)),
                ),
                one("Retries of all calls", "percentunit", &m::RETRIES, retry_share),
                one("Answered at the first attempt", "percentunit", &m::ATTEMPTS_SUCCEEDED, first_share),
                one(
                    "Open dead letters",
                    "short",
                    &m::LETTERS_OPEN,
                    format!("sum({})", now(&m::LETTERS_OPEN)),
                ),
                one(
                    "Since the last commit",
                    "s",
                    &m::LAST_COMMIT,
                    format!("time() - max({} > 0)", now(&m::LAST_COMMIT)),
                ),
                one("Records without an end", "short", &m::LAG, format!("sum({})", now(&m::LAG))),
            ],
        ),
        (
            "Records",
            vec![
                panel(
                    "Records by outcome",
                    Stack,
                    "cps",
                    12,
                    vec![
                        (rate(&m::RECORDS, "outcome"), "{{outcome}}"),
                        (rate(&m::READ, "pipeline"), "read by {{pipeline}}"),
                    ],
                    &m::RECORDS,
                ),
                panel(
                    "Time to commit a batch",
                    Lines,
                    "s",
                    12,
                    vec![(quantile(&m::COMMIT, 0.5), "p50"), (quantile(&m::COMMIT, 0.99), "p99")],
                    &m::COMMIT,
                ),
                panel(
                    "Run time",
                    Lines,
                    "s",
                    12,
                    vec![(format!("time() - {}", now(&m::STARTED)), "{{pipeline}}")],
                    &m::STARTED,
                ),
                panel(
                    "Answers without a call",
                    Lines,
                    "cps",
                    12,
                    vec![(rate(&m::REUSED, "host, from"), "{{host}} {{from}}")],
                    &m::REUSED,
                ),
            ],
        ),
        (
            "Is it fighting its provider?",
            vec![
                panel(
                    "Attempts by number",
                    Stack,
                    "cps",
                    12,
                    vec![(rate(&m::ATTEMPTS, "attempt"), "attempt {{attempt}}")],
                    &m::ATTEMPTS,
                ),
                panel(
                    "Responses by status",
                    Stack,
                    "cps",
                    12,
                    vec![(rate(&m::RESPONSES, "status"), "{{status}}")],
                    &m::RESPONSES,
                ),
                panel(
                    "Retries per call",
                    Lines,
                    "short",
                    12,
                    vec![
                        (quantile(&m::RETRIES_PER_CALL, 0.5), "p50"),
                        (quantile(&m::RETRIES_PER_CALL, 0.99), "p99"),
                        (now(&m::RETRIES_BOUND), "allowed by {{host}}"),
                    ],
                    &m::RETRIES_PER_CALL,
                ),
                panel(
                    "Waits between attempts",
                    Heat,
                    "s",
                    12,
                    vec![(
                        format!("sum by (le) (rate({}_bucket{ON}[$__rate_interval]))", m::BACKOFF_DELAY.name),
                        "{{le}}",
                    )],
                    &m::BACKOFF_DELAY,
                ),
                panel(
                    "Share of the time in backoff",
                    Lines,
                    "percentunit",
                    12,
                    vec![(format!("{waits} / ({waits} + {calls})"), "{{host}}")],
                    &m::BACKOFF_SECONDS,
                ),
                panel(
                    "Rate-limit headers",
                    Lines,
                    "percentunit",
                    12,
                    vec![
                        (now(&m::HEADER_PRESENT), "{{host}}"),
                        (rate(&m::MALFORMED, "host"), "unreadable per second, {{host}}"),
                    ],
                    &m::HEADER_PRESENT,
                ),
            ],
        ),
        (
            "Lanes",
            vec![
                panel("Learned rate", Lines, "cps", 8, vec![(now(&m::LANE_RATE), "{{host}}")], &m::LANE_RATE),
                panel(
                    "In flight",
                    Lines,
                    "short",
                    8,
                    vec![
                        (now(&m::LANE_IN_FLIGHT), "{{host}}"),
                        (now(&m::LANE_CAP), "allowed, {{host}}"),
                        (now(&m::LANE_WAITING), "waiting, {{host}}"),
                    ],
                    &m::LANE_IN_FLIGHT,
                ),
                panel(
                    "The server asks to wait",
                    Lines,
                    "s",
                    8,
                    vec![(now(&m::LANE_WAIT), "{{host}}")],
                    &m::LANE_WAIT,
                ),
                panel(
                    "Breaker",
                    Lines,
                    "short",
                    12,
                    vec![(
                        format!("{}{{pipeline=~\"$pipeline\",state!=\"closed\"}}", m::BREAKER.name),
                        "{{host}} {{state}}",
                    )],
                    &m::BREAKER,
                ),
                panel(
                    "Changes of the breaker",
                    Lines,
                    "cps",
                    12,
                    vec![(rate(&m::BREAKER_CHANGES, "host"), "{{host}}")],
                    &m::BREAKER_CHANGES,
                ),
            ],
        ),
        (
            "Gates",
            vec![
                panel(
                    "Checks that failed",
                    Lines,
                    "percentunit",
                    12,
                    vec![
                        (format!("{} / ({} > 0)", now(&m::GATE_FAILED), now(&m::GATE_CHECKED)), "{{gate}}"),
                        (format!("{} == 1", now(&m::GATE_HALTED)), "halted by {{gate}}"),
                    ],
                    &m::GATE_FAILED,
                ),
                panel(
                    "Nulls, and their limit",
                    Lines,
                    "percentunit",
                    6,
                    vec![(now(&m::NULL_RATE), "{{gate}}"), (now(&m::NULL_LIMIT), "limit of {{gate}}")],
                    &m::NULL_RATE,
                ),
                panel(
                    "Geometries that failed",
                    Lines,
                    "percentunit",
                    6,
                    vec![(now(&m::VALIDATION_FAILURES), "{{pipeline}}")],
                    &m::VALIDATION_FAILURES,
                ),
            ],
        ),
        (
            "Last runs, as `serve` sees them",
            vec![
                panel(
                    "How they ended",
                    Lines,
                    "short",
                    6,
                    vec![(format!("{} == 1", now(&m::LAST_RUN_STATUS)), "{{pipeline}} {{status}}")],
                    &m::LAST_RUN_STATUS,
                ),
                panel(
                    "Since the last run",
                    Lines,
                    "s",
                    6,
                    vec![(format!("time() - {}", now(&m::LAST_RUN)), "{{pipeline}}")],
                    &m::LAST_RUN,
                ),
                panel(
                    "What became of their records",
                    Lines,
                    "short",
                    6,
                    vec![
                        (now(&m::LAST_RUN_READ), "{{pipeline}} offered"),
                        (now(&m::LAST_RUN_RECORDS), "{{pipeline}} {{outcome}}"),
                    ],
                    &m::LAST_RUN_RECORDS,
                ),
                panel(
                    "How long they took",
                    Lines,
                    "s",
                    6,
                    vec![(now(&m::LAST_RUN_TOOK), "{{pipeline}}")],
                    &m::LAST_RUN_TOOK,
                ),
            ],
        ),
        (
            "Dead letters",
            vec![
                panel(
                    "Letters",
                    Lines,
                    "short",
                    8,
                    vec![
                        (now(&m::LETTERS), "all"),
                        (now(&m::LETTERS_OPEN), "open"),
                        (now(&m::LETTER_CAPACITY), "capacity"),
                        (now(&m::LETTER_ARRIVED), "arrived in the last hour"),
                    ],
                    &m::LETTERS,
                ),
                panel(
                    "Stores and suspended pipelines",
                    Lines,
                    "short",
                    8,
                    vec![
                        (now(&m::LETTER_INCIDENTS), "incidents of {{pipeline}}"),
                        (format!("{} == 0", now(&m::LETTER_READABLE)), "{{pipeline}} cannot be read"),
                        (
                            format!("increase({}{ON}[1h])", m::LETTER_PURGED.name),
                            "purged of {{pipeline}} in an hour",
                        ),
                    ],
                    &m::LETTER_INCIDENTS,
                ),
                panel(
                    "How full the store is",
                    Lines,
                    "percentunit",
                    8,
                    vec![(now(&m::LETTER_FULL), "{{pipeline}}")],
                    &m::LETTER_FULL,
                ),
                panel(
                    "Age of the oldest",
                    Lines,
                    "s",
                    8,
                    vec![(now(&m::LETTER_OLDEST), "{{pipeline}}")],
                    &m::LETTER_OLDEST,
                ),
                panel(
                    "Replays that worked",
                    Lines,
                    "percentunit",
                    8,
                    vec![
                        (now(&m::REPLAY_SUCCESS), "{{pipeline}}"),
                        (now(&m::LETTER_SPATIAL), "spatial, of the open"),
                    ],
                    &m::REPLAY_SUCCESS,
                ),
                panel(
                    "Letters resolved by replays",
                    Lines,
                    "cps",
                    8,
                    vec![(rate(&m::LETTER_DRAINED, "pipeline"), "{{pipeline}}")],
                    &m::LETTER_DRAINED,
                ),
                panel(
                    "Spans left out",
                    Lines,
                    "cps",
                    8,
                    vec![(rate(&m::SPANS_DROPPED, "pipeline"), "{{pipeline}}")],
                    &m::SPANS_DROPPED,
                ),
            ],
        ),
    ]
}
