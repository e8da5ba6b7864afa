//! The published schema says what the checker does, and the reference page says what the schema
//! does. `docs/manifest.md` and the pages of the parts hold tables between markers; this test writes them from the schema
//! when `TIDEGATE_BLESS` is set, and fails when they differ.

use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use tidegate_pipeline::manifest;

/// Calls `visit` with every object of the schema that has properties, and its path.
fn sections(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    if schema["properties"].is_object() {
        visit(path, schema);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        sections(property, &path, visit);
        sections(&property["items"], &path, visit);
        if property["additionalProperties"].is_object() {
            sections(&property["additionalProperties"], &path, visit);
        }
    }
}

#[test]
fn no_section_takes_unknown_keys() {
    let mut count = 0;
    sections(&manifest::schema(), "", &mut |path, section| {
        assert_eq!(section["additionalProperties"], false, "{path}");
        count += 1;
    });
    assert_eq!(count, 45);
}

#[test]
fn every_key_is_described_and_every_number_is_bounded() {
    sections(&manifest::schema(), "", &mut |path, section| {
        for (name, key) in section["properties"].as_object().unwrap() {
            assert!(key["description"].is_string(), "{path}.{name} has no description");
            if key["type"] == "number" || key["type"] == "integer" {
                let low = key.get("minimum").or_else(|| key.get("exclusiveMinimum"));
                assert!(low.is_some() && key.get("maximum").is_some(), "{path}.{name} has no bounds");
            }
        }
    });
}

#[test]
fn the_mandatory_keys_are_those_of_the_form() {
    let mut found = Vec::new();
    sections(&manifest::schema(), "", &mut |path, section| {
        for key in section["required"].as_array().into_iter().flatten() {
            found.push(format!("{path}.{}", key.as_str().unwrap()));
        }
    });
    found.sort();
    assert_eq!(
        found,
        [
            ".pipeline",
            "pipeline.dead_letters.auto.code",
            "pipeline.dead_letters.remedies.rule",
            "pipeline.gates.check",
            "pipeline.id",
            "pipeline.retry_policy",
            "pipeline.retry_policy.max_attempts",
            "pipeline.sink.postgis.table",
            "pipeline.sink.postgis.url",
            "pipeline.source.postgis.key",
            "pipeline.source.postgis.table",
            "pipeline.source.postgis.url",
            "pipeline.source.since.field",
            "pipeline.source.tasks.fields",
            "pipeline.steps.coerce.fields",
            "pipeline.steps.flatten.field",
            "pipeline.steps.geocode.place.lat",
            "pipeline.steps.geocode.place.lon",
            "pipeline.steps.geocode.service",
            "pipeline.steps.http.path",
            "pipeline.steps.http.service",
            "pipeline.steps.http.take",
            "pipeline.steps.lookup.file",
            "pipeline.steps.lookup.on",
            "pipeline.steps.lookup.take",
            "pipeline.steps.raster.calc.expressions",
            "pipeline.tolerance",
            "pipeline.tolerance.halt_on_geometry_invalid",
            "pipeline.tolerance.max_null_rate",
        ]
    );
    // The base delay can be written in two ways; exactly one is mandatory.
    let schema = manifest::schema();
    let rules = schema["properties"]["pipeline"]["properties"]["retry_policy"]["allOf"].as_array().unwrap();
    let either = serde_json::json!({
        "oneOf": [{ "required": ["base_delay_seconds"] }, { "required": ["base_delay"] }]
    });
    assert!(rules.contains(&either));
}

#[test]
fn every_span_has_a_human_twin() {
    let mut count = 0;
    sections(&manifest::schema(), "", &mut |path, section| {
        let keys = section["properties"].as_object().unwrap();
        for name in keys.keys().filter_map(|name| name.strip_suffix("_seconds")) {
            assert_eq!(keys[name]["type"], "string", "{path}.{name}");
            count += 1;
        }
    });
    assert_eq!(count, 35);
}

/// The page that describes a section.
fn page_of(path: &str) -> &'static str {
    match path.split('.').nth(1) {
        None if path == "expect" => "simulate.md",
        Some("steps" | "services") => "steps.md",
        Some("gates") => "gates.md",
        Some("audit") => "audit.md",
        Some("alerts") => "alerts.md",
        Some("source" | "sink") => "pipeline.md",
        Some("dead_letters") => "dead-letters.md",
        _ => "manifest.md",
    }
}

#[test]
fn the_reference_pages_are_in_step() {
    for page in [
        "manifest.md",
        "pipeline.md",
        "steps.md",
        "gates.md",
        "audit.md",
        "alerts.md",
        "dead-letters.md",
        "simulate.md",
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = fs::read_to_string(&file).unwrap();
        let mut expected = text.clone();
        sections(&manifest::schema(), "", &mut |path, section| {
            if page_of(path) == page {
                let name = if path.is_empty() { "the manifest" } else { path };
                expected = replaced(&expected, name, &table(section));
            }
        });
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(&file, &expected).unwrap();
        } else {
            assert!(text == expected, "docs/{page} is out of step; TIDEGATE_BLESS=1 writes it anew");
        }
    }
}

/// The page with the text between the markers of a section replaced.
fn replaced(page: &str, section: &str, table: &str) -> String {
    let (start, end) = (format!("<!-- keys of {section} -->\n"), "<!-- end of keys -->".to_owned());
    assert!(page.contains(&start), "the page lacks {start}");
    let (before, rest) = page.split_once(&start).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{start}{table}{end}{after}")
}

/// The keys of a section as a table.
fn table(section: &Value) -> String {
    let keys = section["properties"].as_object().unwrap();
    let mut text = "| key | meaning | range | default | when to touch |\n|---|---|---|---|---|\n".to_owned();
    for (name, key) in keys {
        if keys.contains_key(&format!("{name}_seconds")) {
            continue;
        }
        let spelling = match name.strip_suffix("_seconds") {
            Some(twin) => format!("`{name}`, `{twin}`"),
            None => format!("`{name}`"),
        };
        let description = key["description"].as_str().unwrap();
        let (meaning, touch) = description.split_once("\n\nTouch it ").unwrap_or((description, ""));
        let line = |text: &str| text.replace(['\n', '|'], " ");
        writeln!(
            text,
            "| {spelling} | {} | {} | {} | {} |",
            line(meaning),
            range(key),
            default(name, key, section),
            line(touch)
        )
        .unwrap();
    }
    text
}

/// What a key takes.
fn range(key: &Value) -> String {
    let texts = choices(key);
    if !texts.is_empty() {
        return texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
    }
    let number = |word: &str| key.get(word).and_then(Value::as_f64);
    let low =
        number("minimum").map(|n| format!("≥ {n}")).or(number("exclusiveMinimum").map(|n| format!("> {n}")));
    let high = number("maximum").filter(|n| *n < f64::from(u32::MAX)).map(|n| format!("≤ {n}"));
    let bounds = [low, high].into_iter().flatten().collect::<Vec<_>>().join(", ");
    if key["additionalProperties"].is_object() {
        return match range(&key["additionalProperties"]).as_str() {
            "section" => "names with a section each".to_owned(),
            each => format!("names with {each} each"),
        };
    }
    if key["minItems"] == key["maxItems"] && key["minItems"].is_u64() {
        return format!("{} numbers", key["minItems"]);
    }
    let branches = key["anyOf"].as_array().into_iter().flatten();
    if branches.map(|branch| &branch["type"]).eq([&Value::from("string"), &Value::from("object")]) {
        return "text or section".to_owned();
    }
    let Some(kind) = key["type"].as_str() else { return "text, number, `true`, `false`, `null`".to_owned() };
    match kind {
        "integer" => format!("whole number {bounds}"),
        "number" => format!("number {bounds}"),
        "array" if key["items"]["properties"].is_object() => "list of sections".to_owned(),
        "array" if key["uniqueItems"] == true => format!("list of {}, none twice", range(&key["items"])),
        "array" => format!("list of {}", range(&key["items"])),
        "string" if key["maxLength"].is_u64() => format!("text of 1 to {} characters", key["maxLength"]),
        "string" => "text".to_owned(),
        "boolean" => "`true`, `false`".to_owned(),
        _ => "section".to_owned(),
    }
}

/// The fixed values a key takes.
fn choices(key: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    for branch in ["oneOf", "anyOf"].iter().filter_map(|word| key[word].as_array()).flatten() {
        if branch["type"] == "boolean" {
            texts.extend(["true".to_owned(), "false".to_owned()]);
        }
        texts.extend(choices(branch));
    }
    texts.extend(key["const"].as_str().map(str::to_owned));
    texts.extend(key["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    texts
}

/// What a key is if it is not given.
fn default(name: &str, key: &Value, section: &Value) -> String {
    let twin = name.strip_suffix("_seconds").unwrap_or(name);
    let named = |rule: &Value| rule["required"][0] == name || rule["required"][0] == twin;
    let either = section["allOf"].as_array().into_iter().flatten().any(|rule| named(&rule["oneOf"][0]));
    let required = section["required"].as_array().into_iter().flatten().any(|key| key == name);
    match key.get("default") {
        _ if either || required => "mandatory".to_owned(),
        Some(Value::Object(_)) => "see below".to_owned(),
        Some(value) => format!("`{}`", value.to_string().trim_matches('"').trim_end_matches(".0")),
        None => "none".to_owned(),
    }
}
