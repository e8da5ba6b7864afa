//! Finding a value within JSON text.

use crate::format::geojson::scan::{Scan, Stop, Text, unescape};

/// The text of the value at this path of names and places; `None` if there is none, or `null`.
pub(super) fn find<'a>(json: &'a str, path: &[String]) -> Option<&'a str> {
    // The scanner wants something after a number.
    let padded = format!("{json} ");
    let (start, end) = range(&padded, path).ok().flatten()?;
    json.get(start..end).filter(|found| *found != "null")
}

fn range(json: &str, path: &[String]) -> Result<Option<(usize, usize)>, Stop> {
    let mut scan = Scan::new(json.as_bytes(), 0);
    for step in path {
        let found = match scan.peek()? {
            b'{' => enter_object(&mut scan, step)?,
            b'[' => enter_array(&mut scan, step)?,
            _ => false,
        };
        if !found {
            return Ok(None);
        }
    }
    scan.peek()?;
    let start = scan.at;
    scan.skip()?;
    Ok(Some((start, scan.at)))
}

fn enter_object(scan: &mut Scan<'_>, name: &str) -> Result<bool, Stop> {
    scan.at += 1;
    let mut more = !scan.eat(b'}')?;
    while more {
        let key = scan.key()?;
        if is_name(scan, key, name) {
            return Ok(true);
        }
        scan.skip()?;
        more = scan.comma_or(b'}')?;
    }
    Ok(false)
}

fn is_name(scan: &Scan<'_>, key: Text, name: &str) -> bool {
    let raw = scan.bytes.get(key.start..key.end).unwrap_or_default();
    if !key.escaped {
        return raw == name.as_bytes();
    }
    let mut plain = Vec::new();
    unescape(raw, &mut plain).is_ok() && plain == name.as_bytes()
}

fn enter_array(scan: &mut Scan<'_>, place: &str) -> Result<bool, Stop> {
    let Ok(place) = place.parse::<usize>() else { return Ok(false) };
    scan.at += 1;
    let mut more = !scan.eat(b']')?;
    let mut at = 0;
    while more {
        if at == place {
            return Ok(true);
        }
        scan.skip()?;
        more = scan.comma_or(b']')?;
        at += 1;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_through_objects_and_arrays() {
        let json = r#"{"a":[10,{"b":"x","c\u00e9":[true]}],"n":null}"#;
        let at = |path: &str| find(json, &path.split('.').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(at("a.0"), Some("10"));
        assert_eq!(at("a.1.b"), Some("\"x\""));
        assert_eq!(at("a.1.cé.0"), Some("true"));
        for nothing in ["n", "a.2", "a.x", "b", "a.0.z"] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
    }
}
