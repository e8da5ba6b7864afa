//! `${NAME}` and `${NAME:default}` in strings of the manifest.
//!
//! Variables are resolved once, when the manifest is read. A string that is nothing but a variable
//! takes the type required at its position, so `max_attempts: ${ATTEMPTS:3}` is a number. `$${`
//! stands for `${`. Secrets do not belong here: they are references (`env:NAME`), resolved by the
//! code that sends them, so that no plan, log or summary of a manifest can show them.

use super::problem::{ManifestProblem, quoted};
use super::tree::{YamlNode, YamlValue};

/// Replaces the variables. `find` looks one up.
pub(super) fn expand(
    root: &mut YamlNode,
    find: &impl Fn(&str) -> Option<String>,
    problems: &mut Vec<ManifestProblem>,
) {
    root.each(&mut |node| {
        let YamlValue::Text(text) = &node.value else { return };
        if !text.contains("${") {
            return;
        }
        match expanded(text, find) {
            Ok((text, true)) => node.value = YamlValue::Env(text),
            Ok((text, false)) => node.value = YamlValue::Text(text),
            Err((message, help)) => {
                problems.push(ManifestProblem::new("variable", node.place.clone(), message).help(help));
            }
        }
    });
}

/// The string with its variables replaced, and whether it was nothing but one.
fn expanded(text: &str, find: &impl Fn(&str) -> Option<String>) -> Result<(String, bool), (String, String)> {
    let mut out = String::new();
    let mut rest = text;
    let mut alone = false;
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
        match find(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => out.push_str(&value),
            None => {
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
    Ok((out, alone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in() {
        let find = |name: &str| (name == "N").then(|| "7".to_owned());
        let of = |text| expanded(text, &find).map_err(|(message, _)| message);
        assert_eq!(of("${N}"), Ok(("7".into(), true)));
        assert_eq!(of("${X:3}"), Ok(("3".into(), true)));
        assert_eq!(of("${X:}"), Ok(("".into(), true)));
        assert_eq!(of("a-${N}-${X:b}"), Ok(("a-7-b".into(), false)));
        assert_eq!(of("$${N}"), Ok(("${N}".into(), false)));
        assert_eq!(of("${X}"), Err("environment variable `X` is not set".into()));
        assert!(of("${N").is_err() && of("${a b}").is_err() && of("${}").is_err());
    }
}
