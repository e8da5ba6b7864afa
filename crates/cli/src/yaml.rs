//! A manifest that a verb made of its options, as the YAML that a person would write.

use serde_json::Value;

/// The sections of `pipeline`, in this order.
pub(crate) fn manifest(sections: &[(&str, Value)]) -> String {
    let mut out = String::from("pipeline:\n");
    for (name, value) in sections {
        entry(name, value, 1, &mut out);
    }
    out
}

fn entry(name: &str, value: &Value, depth: usize, out: &mut String) {
    out.push_str(&"  ".repeat(depth));
    out.push_str(name);
    out.push(':');
    match value {
        Value::Object(keys) if !keys.is_empty() => {
            out.push('\n');
            for (key, value) in keys {
                entry(key, value, depth + 1, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            out.push('\n');
            for item in items {
                out.push_str(&format!("{}- {}\n", "  ".repeat(depth + 1), flow(item)));
            }
        }
        other => out.push_str(&format!(" {}\n", flow(other))),
    }
}

/// A value in one line.
fn flow(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Object(keys) if keys.is_empty() => "{}".to_owned(),
        Value::Object(keys) => {
            let each = keys.iter().map(|(key, value)| format!("{key}: {}", flow(value)));
            format!("{{ {} }}", list(each.collect()))
        }
        Value::Array(items) => format!("[{}]", list(items.iter().map(flow).collect())),
        // A text that looks like a variable is none.
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => Value::from(text.replace("${", "$${")).to_string(),
        other => other.to_string(),
    }
}

/// Whether a text is the same text without quotes, wherever it stands.
fn is_plain(text: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'))
        && !words.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_pipeline::manifest::from_bytes;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let sections = [
            ("id", json!("fetch:a ${b}: $${c} \"d\" # é")),
            (
                "retry_policy",
                json!({ "max_attempts": 5, "base_delay_seconds": 1.0, "retryable_status_codes": [429] }),
            ),
            ("tolerance", json!({ "max_null_rate": 1.0, "halt_on_geometry_invalid": false })),
            ("source", json!({ "file": "no", "layer": "1.50", "tolerate": "0.1%" })),
            ("steps", json!([{ "reproject": "EPSG:4326" }])),
            ("sink", json!({ "file": "a/b.gpkg", "key": ["yes"] })),
        ];
        let text = manifest(&sections);
        let read =
            from_bytes("test", text.as_bytes()).unwrap_or_else(|e| panic!("{text}{}", e.render(false)));
        let read = serde_json::to_value(read.pipeline).unwrap();
        for (name, section) in &sections {
            match section {
                Value::Object(keys) => {
                    for (key, value) in keys {
                        assert_eq!(&read[name][key], value, "{text}");
                    }
                }
                other => assert_eq!(&read[name], other, "{text}"),
            }
        }
    }
}
