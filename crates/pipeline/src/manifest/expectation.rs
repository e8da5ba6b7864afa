//! The values of `expect`: `0`, `"<= 20m"`, `">= 99%"`.
//!
//! They are texts with a meaning of their own, so the schema cannot check them. They are checked
//! here, with their position, when the manifest is read: an expectation that nobody can meet or
//! miss must not wait for the simulation to be found.

use std::collections::BTreeMap;

use tidegate_core::suggest::nearest;

use super::duration;
use super::form::{ExpectSpec, YamlScalar};
use super::problem::{ManifestProblem, quoted};
use super::tree::{YamlNode, YamlValue};
use super::words::found;

/// The metrics of `expect`, and the unit of each.
const METRICS: [(&str, MetricUnit); 12] = [
    ("success", MetricUnit::Share),
    ("done", MetricUnit::Count),
    ("dead", MetricUnit::Count),
    ("parked", MetricUnit::Count),
    ("calls", MetricUnit::Count),
    ("load", MetricUnit::Count),
    ("throttled_share", MetricUnit::Share),
    ("early", MetricUnit::Count),
    ("timeouts", MetricUnit::Count),
    ("in_flight_max", MetricUnit::Count),
    ("time", MetricUnit::Time),
    ("wait_max", MetricUnit::Time),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricUnit {
    Count,
    Share,
    Time,
}

impl MetricUnit {
    fn of(metric: &str) -> Option<MetricUnit> {
        METRICS.iter().find(|(name, _)| *name == metric).map(|(_, unit)| *unit)
    }

    fn example(self) -> &'static str {
        match self {
            MetricUnit::Count => "a number such as `0`, or a bound such as `\"<= 5\"` or `\">= 5\"`",
            MetricUnit::Share => "a bound such as `\">= 99%\"` or `\"<= 0.02\"`",
            MetricUnit::Time => "a bound such as `\"<= 20m\"`",
        }
    }

    fn number(self, text: &str) -> Option<f64> {
        let number = match (self, text.strip_suffix('%')) {
            (MetricUnit::Share, Some(percent)) => percent.trim().parse::<f64>().ok()? / 100.0,
            (MetricUnit::Time, _) => text.parse::<f64>().ok().or_else(|| duration::seconds(text).ok())?,
            _ => text.parse::<f64>().ok()?,
        };
        (number.is_finite() && number >= 0.0).then_some(number)
    }
}

/// What a metric of the simulation must be, in seconds if it is a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricBound {
    /// Exactly this.
    Equals(f64),
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl MetricBound {
    /// The bound that a value stands for; `None` if it is none.
    fn of(metric: &str, value: &YamlScalar) -> Option<MetricBound> {
        let unit = MetricUnit::of(metric)?;
        let text = match value {
            YamlScalar::Int(number) => number.to_string(),
            YamlScalar::Float(number) => number.to_string(),
            YamlScalar::Text(text) => text.trim().to_owned(),
            YamlScalar::Null | YamlScalar::Bool(_) => return None,
        };
        for (sign, bound) in [
            ("<=", MetricBound::AtMost as fn(f64) -> MetricBound),
            (">=", MetricBound::AtLeast),
            ("=", MetricBound::Equals),
        ] {
            if let Some(rest) = text.strip_prefix(sign) {
                return unit.number(rest.trim()).map(bound);
            }
        }
        unit.number(&text).map(MetricBound::Equals)
    }
}

impl ExpectSpec {
    /// What the metrics must be at one of the servers.
    #[must_use]
    pub fn at(&self, server: &str) -> BTreeMap<String, MetricBound> {
        let own = self.servers.get(server);
        let bound = |metric: &str, value| Some((metric.to_owned(), MetricBound::of(metric, value)?));
        let shared = self.metrics().filter(|(metric, _)| own.is_none_or(|own| !own.contains_key(*metric)));
        let own = own.into_iter().flatten().filter_map(|(metric, value)| bound(metric, value));
        own.chain(shared.filter_map(|(metric, value)| bound(metric, value))).collect()
    }
}

/// Reports every value of `expect` that means nothing.
pub(super) fn check(root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let Some(expect) = root.at(&["expect"]) else { return };
    for (key, node) in expect.entries() {
        if MetricUnit::of(&key.name).is_some() {
            value(&key.name, node, problems);
        }
    }
    for (_, server) in expect.at(&["servers"]).map(YamlNode::entries).unwrap_or_default() {
        for (key, node) in server.entries() {
            if MetricUnit::of(&key.name).is_none() {
                let known = METRICS.map(|(name, _)| name);
                let help = match nearest(&key.name, known) {
                    Some(guess) => format!("did you mean `{guess}`?"),
                    None => format!("expected one of {}", known.map(|name| format!("`{name}`")).join(", ")),
                };
                let message = format!("unknown metric {}", quoted(&key.name));
                problems.push(ManifestProblem::new("unknown_key", key.place.clone(), message).help(help));
            } else if !matches!(node.value, YamlValue::Null) {
                value(&key.name, node, problems);
            }
        }
    }
}

fn value(metric: &str, node: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let scalar = match &node.value {
        YamlValue::Integer(number) => YamlScalar::Float(*number as f64),
        YamlValue::Float(number) => YamlScalar::Float(*number),
        YamlValue::Text(text) | YamlValue::Env(text) => YamlScalar::Text(text.clone()),
        YamlValue::Null | YamlValue::Bool(_) => YamlScalar::Null,
        // The schema reports these, and an open value may be anything.
        YamlValue::List(_) | YamlValue::Map(_) | YamlValue::Open(_) => return,
    };
    if MetricBound::of(metric, &scalar).is_none() {
        let message = format!("`{metric}` cannot be {}", found(&node.value));
        let help = format!("use {}", MetricUnit::of(metric).map_or("", MetricUnit::example));
        problems.push(ManifestProblem::new("range", node.place.clone(), message).help(help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_bound_in_the_unit_of_its_metric() {
        for (metric, text, bound) in [
            ("dead", "0", Some(MetricBound::Equals(0.0))),
            ("dead", "<= 5", Some(MetricBound::AtMost(5.0))),
            ("done", ">=1990", Some(MetricBound::AtLeast(1990.0))),
            ("time", "<= 20m", Some(MetricBound::AtMost(1200.0))),
            ("time", "<= 90", Some(MetricBound::AtMost(90.0))),
            ("wait_max", "= 1m30s", Some(MetricBound::Equals(90.0))),
            ("success", ">= 99%", Some(MetricBound::AtLeast(0.99))),
            ("success", ">= 0.99", Some(MetricBound::AtLeast(0.99))),
            ("dead", "< 5", None),
            ("dead", "5%", None),
            ("dead", "-1", None),
            ("dead", "<= inf", None),
            ("time", "<= 20 minutes", None),
            ("offered", "3", None),
        ] {
            assert_eq!(MetricBound::of(metric, &YamlScalar::Text(text.into())), bound, "{metric}: {text}");
        }
    }

    #[test]
    fn a_server_has_its_own_values_instead_of_the_common_ones() {
        let text = |text: &str| YamlScalar::Text(text.to_owned());
        let spec = ExpectSpec {
            dead: Some(YamlScalar::Int(0)),
            time: Some(text("<= 1m")),
            servers: BTreeMap::from([(
                "flaky".to_owned(),
                BTreeMap::from([("dead".to_owned(), text("<= 3")), ("time".to_owned(), YamlScalar::Null)]),
            )]),
            ..ExpectSpec::default()
        };
        let both =
            [("dead".to_owned(), MetricBound::Equals(0.0)), ("time".to_owned(), MetricBound::AtMost(60.0))];
        assert_eq!(spec.at("steady"), BTreeMap::from(both));
        assert_eq!(spec.at("flaky"), BTreeMap::from([("dead".to_owned(), MetricBound::AtMost(3.0))]));
    }
}
