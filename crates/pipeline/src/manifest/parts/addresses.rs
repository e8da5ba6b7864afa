//! Checks every text of a manifest for credentials, and every address for references.
//!
//! One walk over the whole tree and not a check per key: a key that is added later is held to the rule
//! without anybody thinking of it. What a manifest holds is in version control, in the letter store and
//! in the output of `validate`, so a credential is never in it, only a reference to one.

use super::{ManifestProblem, PartsChecker, YamlNode, YamlValue};
use crate::secret::{Given, GivenError, SecretInUrl, SecretRef, looks_like_reference, secret_in_url};

/// Steps whose values become values of records: data, which may look like anything.
const DATA: [&str; 3] = ["constant", "default", "filter"];
/// The keys of a bucket that hold a reference to a secret, and nothing else.
const OF_BUCKET: [&str; 5] = ["access_key", "secret_key", "session_token", "sas_token", "service_account"];
/// Keys that hold an address or a reference to one.
const REFERENCES: [&[&str]; 8] = [
    &["pipeline", "source", "queue"],
    &["pipeline", "source", "postgis", "url"],
    &["pipeline", "sink", "postgis", "url"],
    &["pipeline", "dead_letters", "store"],
    &["pipeline", "dead_letters", "also"],
    &["pipeline", "alerts", "actions", "webhook"],
    &["pipeline", "lanes"],
    &["pipeline", "lanes", "url"],
];
/// Keys that hold an address or a path, and no reference.
const PLAIN: [&str; 12] = [
    "file", "url", "archive", "endpoint", "copy", "profiles", "rasters", "folder", "output", "grids",
    "include", "store",
];

/// Reports every credential, and every reference that is none or stands where none is read.
pub(super) fn check(root: &YamlNode, problems: &mut Vec<ManifestProblem>) {
    walk(root, &mut Vec::new(), &mut PartsChecker { problems });
}

/// `path` is the names of the keys down to the node. An entry of a list has the path of the list.
fn walk<'a>(node: &'a YamlNode, path: &mut Vec<&'a str>, parts: &mut PartsChecker<'_>) {
    match &node.value {
        YamlValue::Map(entries) => {
            for (name, node) in entries {
                if path.as_slice() == ["pipeline", "steps"] && DATA.contains(&name.name.as_str()) {
                    continue;
                }
                path.push(&name.name);
                walk(node, path, parts);
                path.pop();
            }
        }
        YamlValue::List(items) => items.iter().for_each(|item| walk(item, path, parts)),
        YamlValue::Text(text) | YamlValue::Env(text) => parts.text(node, path, text),
        _ => {}
    }
}

/// Whether a key holds a reference to a secret, and nothing else.
fn is_secret(path: &[&str]) -> bool {
    match path {
        ["pipeline", "services", _, "key"]
        | ["pipeline", "audit" | "dead_letters", "key"]
        | ["pipeline", "alerts", "actions", "key"] => true,
        [.., "store", key] => OF_BUCKET.contains(key),
        _ => false,
    }
}

impl PartsChecker<'_> {
    fn text(&mut self, node: &YamlNode, path: &[&str], text: &str) {
        let key = path.last().copied().unwrap_or_default();
        let place = || node.place.clone();
        if is_secret(path) {
            if text.parse::<SecretRef>().is_err() {
                let message = "a manifest must not contain a secret";
                self.report("secret", place(), message, "use `env:NAME` or `file:PATH`");
            }
            return;
        }
        let takes_reference = REFERENCES.contains(&path);
        if takes_reference || PLAIN.contains(&key) {
            match text.parse::<Given>() {
                Err(why @ GivenError::NotARef) => {
                    // The value may be the secret itself.
                    let message = "this begins like a reference and is none";
                    let help = if takes_reference { why.to_string() } else { no_reference(key) };
                    return self.report("secret", place(), message, help);
                }
                Ok(Given::Reference(_)) if !takes_reference => {
                    let message = format!("`{key}` does not take a reference");
                    return self.report("range", place(), message, no_reference(key));
                }
                _ => {}
            }
        }
        if let Some(what) = secret_in_url(text) {
            let message = match what {
                SecretInUrl::Password | SecretInUrl::User => "a manifest must not contain a password",
                SecretInUrl::Parameter => "a manifest must not contain a secret",
            };
            self.report("secret", place(), format!("{message}: this URL holds {what}"), instead(path));
        }
    }
}

/// What to write instead of a reference where none is read.
fn no_reference(key: &str) -> String {
    match key {
        "url" => "write the URL; the key of a service is a reference: `key: env:NAME`".to_owned(),
        _ => "write the address or the path; for a file of such a name write `./env:…`".to_owned(),
    }
}

/// What to write instead of a URL with a credential.
fn instead(path: &[&str]) -> &'static str {
    match path.last().copied().unwrap_or_default() {
        "webhook" => {
            "put the whole URL into an environment variable or a file, and refer to it: `webhook: env:NAME`; a bearer token can be `key: env:NAME`"
        }
        _ if REFERENCES.contains(&path) => {
            "put the whole URL into an environment variable or a file, and refer to it: `env:NAME` or `file:PATH`"
        }
        "url" | "path" => {
            "remove it, and set `key: env:NAME` on the service; its profile says in which header or parameter the key is sent (`auth`)"
        }
        "file" | "rasters" => {
            "remove it; for a web server, name a service with `key: env:NAME`; for a bucket, use `store` with `sas_token: env:NAME` or the keys of the cloud"
        }
        "endpoint" => "remove it, and set `access_key` and `secret_key` to references: `env:NAME`",
        "command" => "let the program read it from its environment or from a file",
        _ => {
            "put it into an environment variable or a file, to which the manifest refers: `env:NAME`, `file:PATH`"
        }
    }
}

/// Whether a text is a reference, or was meant to be one.
pub(super) fn is_reference(text: &str) -> bool {
    looks_like_reference(text)
}

#[cfg(test)]
mod tests {
    use super::{REFERENCES, is_secret};
    use serde_json::Value;

    /// Every key of a schema that is a text, with its path and its description.
    fn texts(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
        let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        found.push((path.clone(), said.to_owned()));
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            path.push(name.clone());
            texts(schema, path, found);
            path.pop();
        }
        if let Some(each) = schema.get("additionalProperties").filter(|each| each.is_object()) {
            path.push("*".into());
            texts(each, path, found);
            path.pop();
        }
        for same in ["items"].iter().filter_map(|word| schema.get(word)) {
            texts(same, path, found);
        }
        for one in ["anyOf", "oneOf"].iter().filter_map(|word| schema.get(word)?.as_array()).flatten() {
            texts(one, path, found);
        }
    }

    #[test]
    fn what_the_schema_says_of_references_is_what_is_checked() {
        let mut found = Vec::new();
        texts(crate::manifest::schema::bare(), &mut Vec::new(), &mut found);
        assert!(found.len() > 300, "{}", found.len());
        for (path, said) in &found {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let takes = is_secret(&path) || REFERENCES.contains(&path.as_slice());
            // A section says it for its key.
            let says = said.contains("env:NAME") && path.last() != Some(&"actions");
            assert!(!says || takes, "{path:?} says that it takes a reference, and does not: {said}");
        }
        for path in REFERENCES {
            let says = |(known, said): &(Vec<String>, String)| known == path && said.contains("env:NAME");
            assert!(found.iter().any(says), "{path:?} takes a reference, and does not say so");
        }
    }
}
