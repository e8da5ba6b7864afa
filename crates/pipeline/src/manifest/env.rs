//! `${NAME}` and `${NAME:default}` in strings of the manifest.
//!
//! Variables are resolved once, when the manifest is read. A string that is nothing but a variable
//! takes the type required at its position, so `max_attempts: ${ATTEMPTS:3}` is a number. `$${`
//! stands for `${`. Secrets do not belong here: they are references (`env:NAME`), resolved by the
//! code that sends them, so that no plan, log or summary of a manifest can show them.
//!
//! Somebody may name a variable that holds a secret all the same, in a manifest that is only checked.
//! So messages are made of a tree in which the values are not put in (`masked`).

use super::problem::{ManifestProblem, quoted};
use super::tree::{ByteRange, YamlNode, YamlValue};

/// What becomes of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VariableLookup {
    /// It has this value.
    Value(String),
    /// Its value is not put in: `${NAME}` stays.
    Stays,
    /// Nobody looked: it has its default, or else stays.
    Unread,
    /// It has no value but its default.
    Unset,
}

/// What stands for a variable whose value is not put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariablePlaceholder {
    /// A value that fits everywhere.
    Open,
    /// The text as it is written, to be judged like any other.
    Text,
}

/// A string with variables whose values were not put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenText {
    pub(super) place: ByteRange,
    /// The names of these variables.
    pub(super) names: Vec<String>,
}

/// Replaces the variables. `find` looks one up. Returns the strings in which some stay.
pub(super) fn expand(
    root: &mut YamlNode,
    find: &impl Fn(&str) -> VariableLookup,
    placeholder: VariablePlaceholder,
    problems: &mut Vec<ManifestProblem>,
) -> Vec<OpenText> {
    let mut open = Vec::new();
    root.each(&mut |node| {
        let YamlValue::Text(text) = &node.value else { return };
        if !text.contains("${") {
            return;
        }
        match expanded(text, find) {
            Ok(Expanded { text, open: names, .. }) if !names.is_empty() => {
                open.push(OpenText { place: node.place.clone(), names });
                node.value = match placeholder {
                    VariablePlaceholder::Open => YamlValue::Open(text),
                    VariablePlaceholder::Text => YamlValue::Text(text),
                };
            }
            Ok(Expanded { text, alone: true, .. }) => node.value = YamlValue::Env(text),
            Ok(Expanded { text, .. }) => node.value = YamlValue::Text(text),
            Err((message, help)) => {
                problems.push(ManifestProblem::new("variable", node.place.clone(), message).help(help));
            }
        }
    });
    open
}

/// A string with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
struct Expanded {
    text: String,
    /// Whether it was nothing but one variable.
    alone: bool,
    /// The variables that stay.
    open: Vec<String>,
}

fn expanded(text: &str, find: &impl Fn(&str) -> VariableLookup) -> Result<Expanded, (String, String)> {
    let mut out = String::new();
    let mut rest = text;
    let mut alone = false;
    let mut open = Vec::new();
    while let Some(at) = rest.find("${") {
        let (before, after) = (rest.get(..at).unwrap_or_default(), rest.get(at + 2..).unwrap_or_default());
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let Some(end) = after.find('}') else {
            return Err(("`${` is not closed by `}`".to_owned(), "write `${NAME}` or `$${`".to_owned()));
        };
        let inner = after.get(..end).unwrap_or_default();
        let (name, default) =
            inner.split_once(':').map_or((inner, None), |(name, value)| (name, Some(value)));
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!("invalid variable name {}", quoted(name));
            return Err((message, "use letters, digits and `_`".to_owned()));
        }
        match (find(name), default) {
            (VariableLookup::Value(value), _) => out.push_str(&value),
            (VariableLookup::Unset | VariableLookup::Unread, Some(default)) => out.push_str(default),
            (VariableLookup::Stays, _) | (VariableLookup::Unread, None) => {
                out.push_str(&format!("${{{name}}}"));
                open.push(name.to_owned());
            }
            (VariableLookup::Unset, None) => {
                let message = format!("environment variable {} is not set", quoted(name));
                return Err((message, format!("set it, or add a default: `${{{name}:value}}`")));
            }
        }
        rest = after.get(end + 1..).unwrap_or_default();
        alone = before.is_empty()
            && rest.is_empty()
            && text.starts_with("${")
            && text.find('}') == Some(text.len() - 1);
    }
    out.push_str(rest);
    Ok(Expanded { text: out, alone, open })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in() {
        let find = |name: &str| match name {
            "N" => VariableLookup::Value("7".to_owned()),
            "S" => VariableLookup::Stays,
            "U" => VariableLookup::Unread,
            _ => VariableLookup::Unset,
        };
        let of =
            |text| expanded(text, &find).map(|made| (made.text, made.alone)).map_err(|(message, _)| message);
        assert_eq!(of("${N}"), Ok(("7".into(), true)));
        assert_eq!(of("${X:3}"), Ok(("3".into(), true)));
        assert_eq!(of("${X:}"), Ok(("".into(), true)));
        assert_eq!(of("a-${N}-${X:b}"), Ok(("a-7-b".into(), false)));
        assert_eq!(of("$${N}"), Ok(("${N}".into(), false)));
        assert_eq!(of("${S:default}-${N}"), Ok(("${S}-7".into(), false)));
        assert_eq!(of("${U:default}-${U}"), Ok(("default-${U}".into(), false)));
        assert_eq!(of("${X}"), Err("environment variable `X` is not set".into()));
        assert!(of("${N").is_err() && of("${a b}").is_err() && of("${}").is_err());
    }
}
