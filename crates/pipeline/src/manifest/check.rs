//! Checks a tree against the schema and reports everything that does not fit.
//!
//! The checker implements only the JSON Schema keywords that the types of [`form`](super::form)
//! use. It continues after an error, so one bad key does not hide the next. What fits is returned
//! as JSON, from which serde builds the types.

use std::collections::BTreeSet;
use tidegate_core::suggest::nearest;

use serde_json::{Map, Number, Value as Json};

use super::duration::{self, human};
use super::problem::{ManifestProblem, quoted};
use super::schema::SECONDS;
use super::tree::{ByteRange, YamlKey, YamlNode, YamlValue};
use super::words::{
    any_scalar, bounds, chosen, expected, found, free_text, kind, mapping, numeric, options, scalar, summary,
    takes_switch, yes_or_no,
};

/// The part of the tree that fits the schema, as JSON. Everything else is reported in `problems`.
/// Values that are left open and are no text are in `missing`, by their places, and not in the JSON.
pub(super) fn check(
    root: &YamlNode,
    schema: &Json,
    problems: &mut Vec<ManifestProblem>,
    missing: &mut Vec<ByteRange>,
) -> Option<Json> {
    ManifestChecker { problems, missing }.node(root, root.place.clone(), schema, "the manifest")
}

struct ManifestChecker<'a> {
    problems: &'a mut Vec<ManifestProblem>,
    missing: &'a mut Vec<ByteRange>,
}

impl ManifestChecker<'_> {
    fn report(&mut self, code: &'static str, place: ByteRange, message: String, help: impl Into<String>) {
        self.problems.push(ManifestProblem::new(code, place, message).help(help));
    }

    /// Checks one value. `name` is its name in messages; `home` is the position to report if
    /// something is missing.
    fn node(&mut self, node: &YamlNode, home: ByteRange, schema: &Json, name: &str) -> Option<Json> {
        if let YamlValue::Env(text) = &node.value {
            return self.node(
                &YamlNode { place: node.place.clone(), value: typed(text, schema) },
                home,
                schema,
                name,
            );
        }
        if let YamlValue::Open(text) = &node.value {
            return self.open(node, text, schema);
        }
        match (kind(schema), &node.value) {
            ("object", YamlValue::Map(entries)) => Some(self.object(entries, home, schema, name)),
            ("map", YamlValue::Map(entries)) => Some(self.map(entries, schema, name)),
            ("scalar", YamlValue::List(_) | YamlValue::Map(_)) => self.mismatch(node, home, schema, name),
            ("scalar", value) => any_scalar(value),
            ("array", YamlValue::List(items)) => Some(self.list(items, schema, name)),
            ("string", YamlValue::Text(text)) => self.text(node, text, schema, name),
            ("integer", YamlValue::Integer(number)) => {
                self.range(node, *number as f64, schema, name, &expected(schema))?;
                i64::try_from(*number).ok().map(|number| Json::Number(number.into()))
            }
            ("number", YamlValue::Integer(number)) => self.number(node, *number as f64, schema, name),
            ("number", YamlValue::Float(number)) => self.number(node, *number, schema, name),
            ("boolean", YamlValue::Bool(value)) => Some(Json::Bool(*value)),
            ("choice", value) if chosen(value, schema) => scalar(value),
            ("choice", YamlValue::Text(text)) => match free_text(schema) {
                Some(schema) => self.text(node, text, schema, name),
                None => self.mismatch(node, home, schema, name),
            },
            ("choice", YamlValue::Map(entries)) => match mapping(schema) {
                Some(mapping) => Some(self.object(entries, home, mapping, name)),
                None => self.mismatch(node, home, schema, name),
            },
            _ => self.mismatch(node, home, schema, name),
        }
    }

    /// A value that is left open: a text stays as it is written, anything else is missing.
    fn open(&mut self, node: &YamlNode, text: &str, schema: &Json) -> Option<Json> {
        let is_text = matches!(kind(schema), "string" | "scalar") || free_text(schema).is_some();
        if is_text {
            return Some(Json::String(text.to_owned()));
        }
        self.missing.push(node.place.clone());
        None
    }

    fn object(
        &mut self,
        entries: &[(YamlKey, YamlNode)],
        home: ByteRange,
        schema: &Json,
        name: &str,
    ) -> Json {
        let none = Map::new();
        let known = schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
        let mut object = Map::new();
        let mut seen = BTreeSet::new();
        for (key, node) in entries {
            let twin = format!("{}{SECONDS}", key.name);
            let (full, value) = if let Some(schema) = known.get(&key.name) {
                (key.name.clone(), self.node(node, key.place.clone(), schema, &format!("`{}`", key.name)))
            } else if let Some(schema) = known.get(&twin) {
                (twin, self.duration(node, schema, &key.name))
            } else {
                // A mistyped key is one problem, not also a missing key.
                seen.extend(self.unknown(key, known, name));
                continue;
            };
            if object.contains_key(&full) {
                let other = full.strip_suffix(SECONDS).unwrap_or(&full);
                let message = format!("`{full}` and `{other}` set the same value");
                self.report("given_twice", key.place.clone(), message, "keep one of the two");
            }
            seen.insert(full.clone());
            if let Some(value) = value {
                object.insert(full, value);
            }
        }
        // Only a step has it: one key names the step, and a limit may stand beside it.
        let own: Vec<_> = entries.iter().filter(|(key, _)| key.name != "max_reject_rate").collect();
        if schema.get("maxProperties").is_some() && own.len() != 1 {
            let place = own.get(1).map_or(home.clone(), |(key, _)| key.place.clone());
            let message = format!("{name} must have exactly one key, not {}", own.len());
            self.report("one_key", place, message, "start another list entry with `- `");
        }
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        for missing in required.filter_map(Json::as_str).filter(|key| !seen.contains(*key)) {
            self.missing(missing, known.get(missing), home.clone(), name);
        }
        Json::Object(object)
    }

    /// Checks a map with arbitrary keys and values of one type.
    fn map(&mut self, entries: &[(YamlKey, YamlNode)], schema: &Json, name: &str) -> Json {
        let null = Json::Null;
        let each = schema.get("additionalProperties").unwrap_or(&null);
        let mut object = Map::new();
        for (key, node) in entries {
            let label = format!("{} of {name}", quoted(&key.name));
            if key.name.trim().is_empty() || key.name.chars().any(char::is_control) {
                let message = format!("invalid name {}", quoted(&key.name));
                self.report("range", key.place.clone(), message, "use a name without control characters");
            } else if let Some(value) = self.node(node, key.place.clone(), each, &label) {
                object.insert(key.name.clone(), value);
            }
        }
        Json::Object(object)
    }

    fn list(&mut self, items: &[YamlNode], schema: &Json, name: &str) -> Json {
        let bound = |word: &str| schema.get(word).and_then(Json::as_u64);
        if let (Some(least), Some(most), Some(first)) = (bound("minItems"), bound("maxItems"), items.first())
            && !(least..=most).contains(&(items.len() as u64))
        {
            let message = format!("{name} must have {least} entries, not {}", items.len());
            self.report("range", first.place.clone(), message, format!("use {least} entries"));
        }
        let null = Json::Null;
        let each = schema.get("items").unwrap_or(&null);
        let unique = schema.get("uniqueItems") == Some(&Json::Bool(true));
        let mut list = Vec::new();
        for item in items {
            let Some(value) = self.node(item, item.place.clone(), each, &format!("an entry of {name}"))
            else {
                continue;
            };
            if unique && list.contains(&value) {
                let message = format!("{value} is listed twice in {name}");
                self.report("repeated", item.place.clone(), message, "keep one of the two");
            }
            list.push(value);
        }
        Json::Array(list)
    }

    fn text(&mut self, node: &YamlNode, text: &str, schema: &Json, name: &str) -> Option<Json> {
        let bound = |word: &str| schema.get(word).and_then(Json::as_u64);
        let length = text.trim().chars().count() as u64;
        let message = if bound("minLength").is_some_and(|min| length < min) {
            format!("{name} is empty")
        } else if bound("maxLength").is_some_and(|max| length > max) {
            format!("{name} is longer than {} characters", bound("maxLength").unwrap_or_default())
        } else if text.chars().any(char::is_control) {
            format!("{name} contains a control character")
        } else {
            return Some(Json::String(text.to_owned()));
        };
        self.report("range", node.place.clone(), message, format!("use {}", expected(schema)));
        None
    }

    fn number(&mut self, node: &YamlNode, number: f64, schema: &Json, name: &str) -> Option<Json> {
        self.range(node, number, schema, name, &expected(schema))?;
        Number::from_f64(number).map(Json::Number)
    }

    fn duration(&mut self, node: &YamlNode, schema: &Json, key: &str) -> Option<Json> {
        let name = format!("`{key}`");
        let advice = format!("write a duration such as `1m30s`, or `{key}{SECONDS}` with a number");
        let message = match &node.value {
            YamlValue::Open(_) => {
                self.missing.push(node.place.clone());
                return None;
            }
            YamlValue::Text(text) | YamlValue::Env(text) => match duration::seconds(text) {
                Ok(seconds) => {
                    let wanted =
                        format!("a duration{}", bounds(schema, |seconds| format!("`{}`", human(seconds))));
                    self.range(node, seconds, schema, &name, &wanted)?;
                    return Number::from_f64(seconds).map(Json::Number);
                }
                Err(why) => format!("{name} is not a duration: {why}"),
            },
            other => format!("{name} must be a duration with a unit, not {}", found(other)),
        };
        self.report("type", node.place.clone(), message, advice);
        None
    }

    /// Reports a number that is out of range; `wanted` describes the range.
    fn range(&mut self, node: &YamlNode, number: f64, schema: &Json, name: &str, wanted: &str) -> Option<()> {
        let bound = |word: &str| schema.get(word).and_then(Json::as_f64);
        let fits = number.is_finite()
            && bound("minimum").is_none_or(|min| number >= min)
            && bound("exclusiveMinimum").is_none_or(|min| number > min)
            && bound("maximum").is_none_or(|max| number <= max);
        if fits {
            return Some(());
        }
        let shown = found(&node.value);
        let shown = shown.trim_start_matches("the number ").trim_start_matches("the string ");
        let message = format!("{name} cannot be {shown}");
        self.report("range", node.place.clone(), message, format!("use {wanted}"));
        None
    }

    /// Reports a value of another type than the schema requires.
    fn mismatch(&mut self, node: &YamlNode, home: ByteRange, schema: &Json, name: &str) -> Option<Json> {
        let (place, message) = match &node.value {
            YamlValue::Null => (home, format!("{name} has no value")),
            other => {
                (node.place.clone(), format!("{name} must be {}, not {}", expected(schema), found(other)))
            }
        };
        let guess = match &node.value {
            YamlValue::Text(text) => nearest(text, options(schema).into_iter().flatten()),
            _ => None,
        };
        let help = match (guess, &node.value) {
            (Some(guess), _) => format!("did you mean `{guess}`?"),
            (None, YamlValue::Null) => format!("write {} after the colon", expected(schema)),
            (None, YamlValue::Text(text)) if numeric(text, schema) => "remove the quotes".to_owned(),
            (None, YamlValue::Text(text)) if kind(schema) == "boolean" && yes_or_no(text) => {
                "write `true` or `false`".to_owned()
            }
            (None, YamlValue::Integer(_) | YamlValue::Float(_) | YamlValue::Bool(_))
                if kind(schema) == "string" =>
            {
                "put it in quotes".to_owned()
            }
            _ => format!("use {}", expected(schema)),
        };
        self.report("type", place, message, help);
        None
    }

    /// Reports an unknown key; returns the key that was probably meant.
    fn unknown(&mut self, key: &YamlKey, known: &Map<String, Json>, name: &str) -> Option<String> {
        let twins = known.keys().filter_map(|key| key.strip_suffix(SECONDS));
        let guess = nearest(&key.name, known.keys().map(String::as_str).chain(twins));
        let help = match guess {
            Some(guess) => format!("did you mean `{guess}`?"),
            None => {
                let names: Vec<_> = known.keys().map(|key| format!("`{key}`")).collect();
                format!("expected one of {}", names.join(", "))
            }
        };
        let message = format!("unknown key {} in {name}", quoted(&key.name));
        self.report("unknown_key", key.place.clone(), message, help);
        let guess = guess?;
        let full = format!("{guess}{SECONDS}");
        Some(if known.contains_key(&full) { full } else { guess.to_owned() })
    }

    fn missing(&mut self, key: &str, schema: Option<&Json>, home: ByteRange, name: &str) {
        let example = schema.and_then(|schema| schema.get("examples")?.get(0));
        let value = example.map(|example| format!(" {example}").replace(',', ", ")).unwrap_or_default();
        let meaning = schema.map(summary).unwrap_or_default();
        let help = format!("add `{key}:{value}` to {name}: {meaning}");
        self.report("missing_key", home, format!("{name} is missing the required key `{key}`"), help);
    }
}

/// A text from the environment as a value of the type that the schema requires.
fn typed(text: &str, schema: &Json) -> YamlValue {
    let number =
        || text.trim().parse().map(YamlValue::Integer).or_else(|_| text.trim().parse().map(YamlValue::Float));
    let switch = match text.trim() {
        "true" => Some(YamlValue::Bool(true)),
        "false" => Some(YamlValue::Bool(false)),
        _ => None,
    };
    let made = match kind(schema) {
        "integer" | "number" => number().ok(),
        "boolean" => switch,
        "choice" if takes_switch(schema) => switch,
        _ => None,
    };
    made.unwrap_or_else(|| YamlValue::Text(text.to_owned()))
}
