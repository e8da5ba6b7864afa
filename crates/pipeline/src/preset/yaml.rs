//! JSON as YAML, for people: blocks for maps, one line for short lists and for scalars.

use serde_json::Value;

/// The longest list that stays on one line, in characters.
const LINE_MAX: usize = 80;

/// A JSON value as YAML.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&"  ".repeat(indent));
                out.push_str(&scalar(key));
                out.push(':');
                member(value, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                let start = out.len();
                block(item, indent + 1, out);
                // The dash takes the place of the item's indentation.
                let dash = format!("{}- ", "  ".repeat(indent));
                let end = (start + dash.len()).min(out.len());
                out.replace_range(start..end, &dash);
            }
        }
        other => {
            out.push_str(&"  ".repeat(indent));
            out.push_str(&flow(other));
            out.push('\n');
        }
    }
}

/// What stands behind a key.
fn member(value: &Value, indent: usize, out: &mut String) {
    let short = match value {
        Value::Object(map) if map.is_empty() => Some("{}".to_owned()),
        Value::Object(_) => None,
        Value::Array(items) => {
            let text = flow(value);
            let flat = items.iter().all(|item| !item.is_object() && !item.is_array());
            (flat && text.len() <= LINE_MAX).then_some(text)
        }
        other => Some(flow(other)),
    };
    match short {
        Some(text) => {
            out.push(' ');
            out.push_str(&text);
            out.push('\n');
        }
        None => {
            out.push('\n');
            block(value, indent + 1, out);
        }
    }
}

/// On one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A text, in quotes where YAML would take it for something else; `${` is no variable.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let word = text.to_ascii_lowercase();
    let taken = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&word.as_str());
    if plain && !taken { text.to_owned() } else { Value::from(text.replace("${", "$${")).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_reads_as_a_person_would_write_it() {
        let value = json!({
            "pipeline": {
                "id": "geocode:in",
                "codes": [408, 429],
                "yes": "no",
                "steps": [{ "rename": { "a b": "x" } }, { "drop": ["row_error"] }, "plain"],
                "none": {},
            }
        });
        let text = to_yaml(&value);
        assert_eq!(
            text,
            "pipeline:\n  id: \"geocode:in\"\n  codes: [408, 429]\n  \"yes\": \"no\"\n  steps:\n    - rename:\n        \"a b\": x\n    - drop: [row_error]\n    - plain\n  none: {}\n"
        );
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let pipeline = json!({
            "id": "fetch:a ${b}: $${c} \"d\" # é",
            "retry_policy": { "max_attempts": 5, "base_delay_seconds": 1.0, "retryable_status_codes": [429] },
            "tolerance": { "max_null_rate": 1.0, "halt_on_geometry_invalid": false },
            "source": { "file": "no", "layer": "1.50", "tolerate": "0.1%" },
            "steps": [{ "rename": { "a b": "c: d", "yes": "- x" } }, { "reproject": "EPSG:4326" }],
            "sink": { "file": "a/b.gpkg", "key": ["yes"] },
        });
        let text = to_yaml(&json!({ "pipeline": pipeline }));
        let read = crate::manifest::from_bytes("test", text.as_bytes());
        let read = read.unwrap_or_else(|e| panic!("{text}{}", e.render(false)));
        let read = serde_json::to_value(read.pipeline).unwrap();
        for (name, section) in pipeline.as_object().unwrap() {
            match section {
                Value::Object(keys) => {
                    keys.iter().for_each(|(key, value)| assert_eq!(&read[name][key], value, "{text}"));
                }
                other => assert_eq!(&read[name], other, "{text}"),
            }
        }
    }
}
