//! Conditions between keys that a schema cannot express.
//!
//! They examine what the checker accepted, with the defaults of the schema for the rest, so that a
//! contradiction is reported together with the other errors.

use serde_json::Value as Json;

use super::problem::ManifestProblem;
use super::tree::{ByteRange, YamlNode};

/// Reports every contradiction in `json`, which is the part of `root` that fits the schema.
pub(super) fn check(json: &Json, schema: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let pipeline = [RETRY.to_vec()];
    code_in_both(&pipeline[0], json, root, problems);
    success(&pipeline[0], json, root, problems);
    let services = json.pointer("/pipeline/services").and_then(Json::as_object);
    for (name, _) in services.into_iter().flatten().filter(|(_, form)| form.get("retry_policy").is_some()) {
        let own = vec!["pipeline", "services", name, "retry_policy"];
        code_in_both(&own, json, root, problems);
        success(&own, json, root, problems);
        let sections = [own, RETRY.to_vec()];
        order(json, schema, root, (&sections, "base_delay_seconds", "max_delay_seconds"), problems);
    }
    for (first, largest) in
        [("base_delay_seconds", "max_delay_seconds"), ("jitter_min_seconds", "jitter_max_seconds")]
    {
        order(json, schema, root, (&pipeline, first, largest), problems);
    }
    let breaker = [vec!["pipeline", "circuit_breaker"]];
    order(json, schema, root, (&breaker, "cooldown_seconds", "cooldown_max_seconds"), problems);
}

/// The section with the retry policy of the pipeline.
const RETRY: [&str; 2] = ["pipeline", "retry_policy"];
/// The keys of the status lists.
const RETRYABLE: &str = "retryable_status_codes";
const TERMINAL: &str = "terminal_status_codes";

/// The value of a key in a section. Not by a JSON pointer: the name of a service may hold a slash.
fn value<'a>(json: &'a Json, section: &[&str], key: &str) -> Option<&'a Json> {
    section.iter().try_fold(json, |json, name| json.get(name))?.get(key)
}

/// The node of a key in a section.
fn node<'a>(root: &'a YamlNode, section: &[&str], key: &str) -> Option<&'a YamlNode> {
    root.at(section)?.at(&[key])
}

/// The statuses in a list.
fn codes(json: &Json, section: &[&str], key: &str) -> Vec<i64> {
    let list = value(json, section, key).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_i64).collect()
}

/// The position of a status in a list.
fn place_of(root: &YamlNode, section: &[&str], key: &str, code: i64) -> ByteRange {
    node(root, section, key).map_or(ByteRange::default(), |list| list.place_of(i128::from(code)))
}

/// A status cannot be both retryable and terminal.
fn code_in_both(section: &[&str], json: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    let retryable = codes(json, section, RETRYABLE);
    for code in codes(json, section, TERMINAL).into_iter().filter(|code| retryable.contains(code)) {
        let place = place_of(root, section, TERMINAL, code);
        let message = format!("status {code} is in both lists: retryable and terminal");
        problems.push(
            ManifestProblem::new("code_in_both", place, message).help("keep it in one of the two lists"),
        );
    }
}

/// A success is neither retryable nor terminal; listing one would have no effect.
fn success(section: &[&str], json: &Json, root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    for key in [RETRYABLE, TERMINAL] {
        for code in codes(json, section, key).into_iter().filter(|code| (200..300).contains(code)) {
            let message = format!("status {code} means success and cannot be in `{key}`");
            let help = "remove it; successful responses are checked by their body, not by their status";
            let place = place_of(root, section, key, code);
            problems.push(ManifestProblem::new("success_code", place, message).help(help));
        }
    }
}

/// The first value must not exceed the second. A key that the first section leaves out is that of
/// the next, and at last the default of the schema.
fn order(
    json: &Json,
    schema: &Json,
    root: &YamlNode,
    keys: (&[Vec<&str>], &str, &str),
    problems: &mut Vec<ManifestProblem>,
) {
    let (sections, first, largest) = keys;
    let find = |key| sections.iter().find_map(|section| Some((section, node(root, section, key)?)));
    let given = |key| find(key).and_then(|(section, _)| value(json, section, key)?.as_f64());
    let default = |key| {
        let path: String = sections.last()?.iter().map(|name| format!("/properties/{name}")).collect();
        schema.pointer(&format!("{path}/properties/{key}/default")).and_then(Json::as_f64)
    };
    // A rejected value is unknown; only an absent one means the default.
    let value = |key| if find(key).is_some() { given(key) } else { default(key) };
    let (Some(low), Some(high)) = (value(first), value(largest)) else { return };
    if low <= high {
        return;
    }
    // What the section itself says is where to look; the pipeline's alone is reported there.
    let own =
        sections.first().and_then(|section| node(root, section, first).or(node(root, section, largest)));
    let Some(own) = own else { return };
    let by_default = |key| if given(key).is_none() { " by default" } else { "" };
    let message = format!(
        "`{first}` is {low}{}, more than `{largest}`, which is {high}{}",
        by_default(first),
        by_default(largest)
    );
    problems.push(
        ManifestProblem::new("order", own.place.clone(), message)
            .help(format!("raise `{largest}` or lower `{first}`")),
    );
}
