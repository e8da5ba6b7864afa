//! Conditions between keys that a schema cannot express.
//!
//! They examine what the checker accepted, with the defaults of the schema for the rest, so that a
//! contradiction is reported together with the other errors.

use serde_json::Value as Json;

use super::problem::ManifestProblem;
use super::tree::{ByteRange, YamlNode};

/// Reports every contradiction in `json`, which is the part of `root` that fits the schema.
pub(super) fn check(json: &Json, schema: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    code_in_both(json, root, problems);
    success(json, root, problems);
    for (section, first, largest) in [
        ("retry_policy", "base_delay_seconds", "max_delay_seconds"),
        ("retry_policy", "jitter_min_seconds", "jitter_max_seconds"),
        ("circuit_breaker", "cooldown_seconds", "cooldown_max_seconds"),
    ] {
        order(json, schema, root, (section, first, largest), problems);
    }
}

/// The keys of the status lists.
const RETRYABLE: &str = "retryable_status_codes";
const TERMINAL: &str = "terminal_status_codes";

/// The statuses in a list.
fn codes(json: &Json, key: &str) -> Vec<i64> {
    let list = json.pointer(&format!("/pipeline/retry_policy/{key}")).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_i64).collect()
}

/// The position of a status in a list.
fn place_of(root: &YamlNode, key: &str, code: i64) -> ByteRange {
    let list = root.at(&["pipeline", "retry_policy", key]);
    list.map_or(ByteRange::default(), |list| list.place_of(i128::from(code)))
}

/// A status cannot be both retryable and terminal.
fn code_in_both(json: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let retryable = codes(json, RETRYABLE);
    for code in codes(json, TERMINAL).into_iter().filter(|code| retryable.contains(code)) {
        let place = place_of(root, TERMINAL, code);
        let message = format!("status {code} is in both lists: retryable and terminal");
        problems.push(
            ManifestProblem::new("code_in_both", place, message).help("keep it in one of the two lists"),
        );
    }
}

/// A success is neither retryable nor terminal; listing one would have no effect.
fn success(json: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    for key in [RETRYABLE, TERMINAL] {
        for code in codes(json, key).into_iter().filter(|code| (200..300).contains(code)) {
            let message = format!("status {code} means success and cannot be in `{key}`");
            let help = "remove it; successful responses are checked by their body, not by their status";
            problems
                .push(ManifestProblem::new("success_code", place_of(root, key, code), message).help(help));
        }
    }
}

/// The first value must not exceed the second.
fn order(
    json: &Json,
    schema: &Json,
    root: &YamlNode,
    keys: (&str, &str, &str),
    problems: &mut Vec<ManifestProblem>,
) {
    let (section, first, largest) = keys;
    let given = |key| json.pointer(&format!("/pipeline/{section}/{key}")).and_then(Json::as_f64);
    let default = |key| {
        let property = format!("/properties/pipeline/properties/{section}/properties/{key}/default");
        schema.pointer(&property).and_then(Json::as_f64)
    };
    let node = |key| root.at(&["pipeline", section, key]);
    // A rejected value is unknown; only an absent one means the default.
    let value = |key| if node(key).is_some() { given(key) } else { default(key) };
    let (Some(low), Some(high)) = (value(first), value(largest)) else { return };
    if low <= high {
        return;
    }
    let place = node(first).or_else(|| node(largest)).map_or(ByteRange::default(), |node| node.place.clone());
    let by_default = |key| if given(key).is_none() { " by default" } else { "" };
    let message = format!(
        "`{first}` is {low}{}, more than `{largest}`, which is {high}{}",
        by_default(first),
        by_default(largest)
    );
    problems.push(
        ManifestProblem::new("order", place, message).help(format!("raise `{largest}` or lower `{first}`")),
    );
}
