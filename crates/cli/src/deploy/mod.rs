//! Generates the files for monitoring and operating Tidegate from the table of metrics.

mod grafana;
mod kubernetes;
mod queue_panels;
mod queue_rules;
mod rules;

/// The systemd units and the cron file are written by hand: a template for pipelines with a timer,
/// one for workers, and `serve`.
const RUN: &str = include_str!("../../../../deploy/systemd/tidegate@.service");
const WORKER: &str = include_str!("../../../../deploy/systemd/tidegate-worker@.service");
const TIMER: &str = include_str!("../../../../deploy/systemd/tidegate@.timer");
const CRON: &str = include_str!("../../../../deploy/cron/tidegate");
const SERVE: &str = include_str!("../../../../deploy/systemd/tidegate-serve.service");

/// All files: the path relative to the output directory, and the content.
pub(crate) fn files() -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("grafana/tidegate.json", grafana::dashboard()),
        ("prometheus/tidegate.rules.yml", rules::rules()),
        ("systemd/tidegate@.service", RUN.to_owned()),
        ("systemd/tidegate@.timer", TIMER.to_owned()),
        ("systemd/tidegate-worker@.service", WORKER.to_owned()),
        ("systemd/tidegate-serve.service", SERVE.to_owned()),
        ("cron/tidegate", CRON.to_owned()),
    ];
    files.extend(kubernetes::FILES.iter().map(|(path, text)| (*path, (*text).to_owned())));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_pipeline::telemetry::metric::{self, MetricKind};

    /// The metric names in a PromQL expression that start like ours.
    fn names(text: &str) -> Vec<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !word(c))
            .filter(|w| {
                w.starts_with("tidegate_")
                    || w.starts_with("spatial_")
                    || w.starts_with("retry_")
                    || w.starts_with("backoff_")
                    || w.starts_with("rate_limit_")
            })
            .map(str::to_owned)
            .collect()
    }

    fn known(name: &str) -> bool {
        metric::ALL.iter().any(|m| {
            let suffixes: &[&str] =
                if m.kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            suffixes.iter().any(|suffix| name == format!("{}{suffix}", m.name))
        })
    }

    #[test]
    fn every_name_is_measured() {
        let dashboard: serde_json::Value = serde_json::from_str(&grafana::dashboard()).unwrap();
        let mut asked = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                asked.extend(names(target["expr"].as_str().unwrap()));
            }
        }
        let rules = rules::rules();
        asked.extend(rules.lines().filter(|l| l.contains("expr:")).flat_map(names));
        assert!(asked.len() > 40, "{asked:?}");
        for name in &asked {
            assert!(known(name), "{name} is not measured");
        }
        // Conversely, each metric is on the dashboard or in a rule.
        let hidden = ["tidegate_build_info", "tidegate_alert_firing", "tidegate_letter_bytes"];
        for m in metric::ALL.iter().filter(|m| !hidden.contains(&m.name)) {
            assert!(asked.iter().any(|name| name.starts_with(m.name)), "{} is nowhere shown", m.name);
        }
    }

    #[test]
    fn the_committed_files_are_those_that_are_generated() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        for (name, text) in files() {
            let path = root.join(name);
            if std::env::var_os("TIDEGATE_BLESS").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "deploy/{name} is not what `tidegate deploy -o deploy` writes");
        }
    }
}
